/* Timers that send signals: timer_create on every clock, overruns, setitimer of all three kinds, RLIMIT_CPU, sleeps. */
#include "check.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

/* glibc has the field under another name. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static volatile sig_atomic_t caught, last_code, last_value, last_thread;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	caught++;
	last_code = info->si_code;
	last_value = info->si_value.sival_int;
	last_thread = (int)syscall(SYS_gettid);
}

static void catch(int signal)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	CHECK_EQ(sigaction(signal, &action, NULL), 0);
	caught = 0;
}

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0)
		;
}

static void burn(clockid_t clock, long ms)
{
	struct timespec begin, now;
	clock_gettime(clock, &begin);
	do
		clock_gettime(clock, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

/* The calls themselves: libraries keep timers in records of their own. */
static long create(clockid_t clock, struct sigevent *event, int *timer)
{
	return syscall(SYS_timer_create, clock, event, timer);
}

static long set(int timer, int flags, long value_ms, long interval_ms)
{
	struct itimerspec setting = { { interval_ms / 1000, interval_ms % 1000 * 1000000 },
				      { value_ms / 1000, value_ms % 1000 * 1000000 } };
	return syscall(SYS_timer_settime, timer, flags, &setting, NULL);
}

static void mistakes(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 0 };
	struct itimerspec setting = { .it_value = { 0, 1000000000 } };
	int timer;
	CHECK_ERRNO(create(77, NULL, &timer), EINVAL);
	CHECK_ERRNO(create(CLOCK_MONOTONIC_RAW, NULL, &timer), EOPNOTSUPP);
	CHECK_ERRNO(create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
	event.sigev_signo = 65;
	CHECK_ERRNO(create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
	event.sigev_signo = SIGUSR1;
	event.sigev_notify = 77;
	CHECK_ERRNO(create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
	event.sigev_notify = SIGEV_THREAD_ID;
	CHECK_ERRNO(create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
	CHECK_ERRNO(create(CLOCK_MONOTONIC, (void *)nowhere, &timer), EFAULT);
	CHECK_ERRNO(create(CLOCK_MONOTONIC, NULL, (void *)nowhere), EFAULT);
	CHECK_ERRNO(syscall(SYS_timer_delete, 7777), EINVAL);
	CHECK_ERRNO(syscall(SYS_timer_getoverrun, 7777), EINVAL);
	CHECK_ERRNO(syscall(SYS_timer_gettime, 7777, &setting), EINVAL);
	CHECK_EQ(create(CLOCK_MONOTONIC, NULL, &timer), 0);
	CHECK_ERRNO(syscall(SYS_timer_settime, timer, 0, NULL, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_timer_settime, timer, 0, nowhere, NULL), EFAULT);
	CHECK_ERRNO(syscall(SYS_timer_settime, timer, 0, &setting, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_timer_gettime, timer, nowhere), EFAULT);
	CHECK_EQ(syscall(SYS_timer_delete, timer), 0);
	CHECK_ERRNO(syscall(SYS_timer_delete, timer), EINVAL);
	struct itimerval value = { .it_value = { 0, 1000000 } };
	CHECK_ERRNO(setitimer(ITIMER_REAL, &value, NULL), EINVAL);
	value.it_value.tv_usec = 0;
	CHECK_ERRNO(setitimer(7, &value, NULL), EINVAL);
	CHECK_ERRNO(getitimer(7, &value), EINVAL);
	say("mistakes");
}

static void clocks(void)
{
	static const struct { clockid_t clock; const char *name; } list[] = {
		{ CLOCK_REALTIME, "real time" }, { CLOCK_MONOTONIC, "monotonic" }, { CLOCK_BOOTTIME, "boot time" },
		{ CLOCK_PROCESS_CPUTIME_ID, "process" }, { CLOCK_THREAD_CPUTIME_ID, "thread" },
	};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 40 + (int)i };
		struct itimerspec left;
		int timer;
		catch(SIGUSR1);
		CHECK_EQ(create(list[i].clock, &event, &timer), 0);
		CHECK_EQ(set(timer, 0, 30, 0), 0);
		CHECK_EQ(syscall(SYS_timer_gettime, timer, &left), 0);
		CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec > 0 && left.it_interval.tv_nsec == 0);
		struct timespec begin, now;
		clock_gettime(CLOCK_MONOTONIC, &begin);
		do
			clock_gettime(CLOCK_MONOTONIC, &now);
		while (!caught && now.tv_sec - begin.tv_sec < 10);
		CHECK_EQ(caught, 1);
		CHECK_EQ(last_code, SI_TIMER);
		CHECK_EQ(last_value, 40 + (int)i);
		CHECK_EQ(syscall(SYS_timer_gettime, timer, &left), 0);
		CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
		/* A moment that has passed is now. */
		caught = 0;
		CHECK_EQ(set(timer, TIMER_ABSTIME, 1, 0), 0);
		burn(CLOCK_MONOTONIC, 60);
		CHECK_EQ(caught, 1);
		/* Again and again, until it is set to nothing. */
		caught = 0;
		CHECK_EQ(set(timer, 0, 20, 20), 0);
		burn(list[i].clock, 200);
		CHECK(caught >= 2);
		CHECK_EQ(set(timer, 0, 0, 0), 0);
		burn(CLOCK_MONOTONIC, 50);
		caught = 0;
		burn(CLOCK_MONOTONIC, 50);
		CHECK_EQ(caught, 0);
		CHECK_EQ(syscall(SYS_timer_delete, timer), 0);
		say("%s", list[i].name);
	}
}

static void overruns(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	sigset_t block;
	int timer, other;
	catch(SIGRTMIN);
	sigemptyset(&block);
	sigaddset(&block, SIGRTMIN);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &block, NULL), 0);
	CHECK_EQ(create(CLOCK_MONOTONIC, &event, &timer), 0);
	CHECK_EQ(set(timer, 0, 10, 10), 0);
	sleep_ms(205);
	/* One signal stands for all of them. */
	siginfo_t info;
	CHECK_EQ(sigwaitinfo(&block, &info), SIGRTMIN);
	CHECK(info.si_code == SI_TIMER && info.si_overrun >= 15 && info.si_overrun < 500);
	CHECK(syscall(SYS_timer_getoverrun, timer) >= 0);
	CHECK_EQ(syscall(SYS_timer_delete, timer), 0);
	/* Nobody is told. */
	event.sigev_notify = SIGEV_NONE;
	CHECK_EQ(create(CLOCK_MONOTONIC, &event, &other), 0);
	CHECK_EQ(set(other, 0, 10, 0), 0);
	struct itimerspec left;
	sleep_ms(30);
	CHECK_EQ(syscall(SYS_timer_gettime, other, &left), 0);
	CHECK_EQ(left.it_value.tv_nsec, 0);
	/* Children do not have it. */
	IN_CHILD(0, CHECK_ERRNO(syscall(SYS_timer_gettime, other, &left), EINVAL));
	CHECK_EQ(syscall(SYS_timer_delete, other), 0);
	say("overruns, timers that tell nobody");
}

static volatile int thread_id, stop;

static void *receive(void *unused)
{
	(void)unused;
	thread_id = (int)syscall(SYS_gettid);
	while (!stop)
		sleep_ms(5);
	return NULL;
}

static void to_a_thread(void)
{
	pthread_t thread;
	int timer;
	catch(SIGUSR2);
	CHECK_EQ(pthread_create(&thread, NULL, receive, NULL), 0);
	while (!thread_id)
		sleep_ms(1);
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2 };
	event.sigev_notify_thread_id = thread_id;
	CHECK_EQ(create(CLOCK_MONOTONIC, &event, &timer), 0);
	CHECK_EQ(set(timer, 0, 10, 0), 0);
	sleep_ms(100);
	CHECK_EQ(caught, 1);
	CHECK_EQ(last_thread, thread_id);
	stop = 1;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(syscall(SYS_timer_delete, timer), 0);
	say("to a thread");
}

static void intervals(int which, int signal, const char *name)
{
	struct itimerval setting = { .it_value = { 0, 30000 }, .it_interval = { 0, 20000 } }, old;
	catch(signal);
	CHECK_EQ(setitimer(which, &setting, NULL), 0);
	CHECK_EQ(getitimer(which, &old), 0);
	CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_usec > 0 && old.it_interval.tv_usec >= 20000);
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (caught < 3 && now.tv_sec - begin.tv_sec < 10);
	CHECK(caught >= 3);
	CHECK_EQ(last_code, SI_KERNEL);
	setting = (struct itimerval){ 0 };
	CHECK_EQ(setitimer(which, &setting, &old), 0);
	CHECK(old.it_interval.tv_usec >= 20000);
	IN_CHILD(0, CHECK_EQ(getitimer(which, &old), 0); CHECK_EQ(old.it_value.tv_usec, 0));
	say("setitimer: %s", name);
}

static void limit(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		catch(SIGXCPU);
		struct rlimit seconds = { 1, 2 };
		CHECK_EQ(setrlimit(RLIMIT_CPU, &seconds), 0);
		while (!caught)
			;
		say("RLIMIT_CPU: the soft limit");
		for (;;)
			;
	}
	expect_signal(child, SIGKILL);
	say("RLIMIT_CPU: the hard limit");
}

int main(void)
{
	mistakes();
	clocks();
	overruns();
	to_a_thread();
	intervals(ITIMER_REAL, SIGALRM, "real");
	intervals(ITIMER_VIRTUAL, SIGVTALRM, "virtual");
	intervals(ITIMER_PROF, SIGPROF, "profiling");
	limit();
	return 0;
}
