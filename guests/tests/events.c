/* Files that tell of something: epoll (level, edge, once, sets in sets), timerfd, signalfd, eventfd. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0)
		;
}

static void watch(int set, int operation, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = 0x1234567800000000u + (unsigned)fd };
	CHECK_EQ(epoll_ctl(set, operation, fd, &event), 0);
}

/* What is ready now, as text: the descriptor's number in the list and the events. */
static const char *ready(int set, const int *fds, int count)
{
	static char text[256];
	struct epoll_event events[8];
	int found = epoll_wait(set, events, 8, 0);
	CHECK(found >= 0);
	text[0] = 0;
	for (int i = 0; i < count; i++)
		for (int j = 0; j < found; j++)
			if ((int)(events[j].data.u64 & 0xffff) == fds[i])
				sprintf(text + strlen(text), " %d:%x", i, events[j].events);
	return found ? text : " none";
}

static void epoll_mistakes(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int pipes[2], set, other = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_RDONLY);
	CHECK_ERRNO(syscall(SYS_epoll_create, 0), EINVAL);
	CHECK_ERRNO(epoll_create1(1), EINVAL);
	set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(set >= 0 && fcntl(set, F_GETFD) == FD_CLOEXEC);
	CHECK_EQ(pipe(pipes), 0);
	CHECK_ERRNO(epoll_ctl(999, EPOLL_CTL_ADD, pipes[0], &event), EBADF);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, 999, &event), EBADF);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], (void *)nowhere), EFAULT);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, other, &event), EPERM);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, null, &event), EPERM);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
	CHECK_ERRNO(epoll_ctl(pipes[0], EPOLL_CTL_ADD, pipes[1], &event), EINVAL);
	CHECK_ERRNO(epoll_ctl(set, 9, pipes[0], &event), EINVAL);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_MOD, pipes[0], &event), ENOENT);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_DEL, pipes[0], NULL), ENOENT);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event), 0);
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event), EEXIST);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_DEL, pipes[0], NULL), 0);
	CHECK_ERRNO(epoll_wait(set, &event, 0, 0), EINVAL);
	volatile int negative = -1;
	CHECK_ERRNO(epoll_wait(set, &event, negative, 0), EINVAL);
	CHECK_ERRNO(epoll_wait(pipes[0], &event, 1, 0), EINVAL);
	CHECK_ERRNO(epoll_wait(999, &event, 1, 0), EBADF);
	CHECK_EQ(epoll_wait(set, (void *)nowhere, 1, 0), 0);
	/* Sets that would watch each other. */
	int inner = epoll_create1(0);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, inner, &event), 0);
	CHECK_ERRNO(epoll_ctl(inner, EPOLL_CTL_ADD, set, &event), ELOOP);
	event.events = EPOLLIN | EPOLLEXCLUSIVE;
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_MOD, inner, &event), EINVAL);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event), 0);
	event.events = EPOLLIN;
	CHECK_ERRNO(epoll_ctl(set, EPOLL_CTL_MOD, pipes[0], &event), EINVAL);
	char byte;
	CHECK_ERRNO(read(set, &byte, 1), EINVAL);
	CHECK_ERRNO(write(set, &byte, 1), EINVAL);
	for (int fd = 3; fd < 12; fd++)
		close(fd);
	say("mistakes of epoll");
}

static void modes(void)
{
	int pipes[2], set = epoll_create1(0);
	CHECK_EQ(pipe2(pipes, O_NONBLOCK), 0);
	char bytes[65536] = { 0 };
	watch(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN);
	watch(set, EPOLL_CTL_ADD, pipes[1], EPOLLOUT);
	say("level, empty:%s", ready(set, pipes, 2));
	CHECK_EQ(write(pipes[1], "ab", 2), 2);
	say("level, two bytes:%s,%s", ready(set, pipes, 2), "");
	say("level, again:%s", ready(set, pipes, 2));
	CHECK_EQ(read(pipes[0], bytes, 2), 2);
	watch(set, EPOLL_CTL_MOD, pipes[0], EPOLLIN | EPOLLET);
	watch(set, EPOLL_CTL_MOD, pipes[1], EPOLLOUT | EPOLLET);
	say("edge, begin:%s", ready(set, pipes, 2));
	say("edge, again:%s", ready(set, pipes, 2));
	CHECK_EQ(write(pipes[1], "ab", 2), 2);
	say("edge, two bytes:%s", ready(set, pipes, 2));
	say("edge, again:%s", ready(set, pipes, 2));
	CHECK_EQ(write(pipes[1], "c", 1), 1);
	say("edge, a third:%s", ready(set, pipes, 2));
	CHECK_EQ(read(pipes[0], bytes, 1), 1);
	say("edge, one read:%s", ready(set, pipes, 2));
	watch(set, EPOLL_CTL_MOD, pipes[0], EPOLLIN | EPOLLET);
	say("edge, asked anew:%s", ready(set, pipes, 2));
	watch(set, EPOLL_CTL_MOD, pipes[0], EPOLLIN | EPOLLONESHOT);
	say("once:%s", ready(set, pipes, 1));
	CHECK_EQ(write(pipes[1], "d", 1), 1);
	say("once, again:%s", ready(set, pipes, 1));
	watch(set, EPOLL_CTL_MOD, pipes[0], EPOLLIN | EPOLLONESHOT);
	say("once, asked anew:%s", ready(set, pipes, 1));
	/* The end of the writer; errors are told without being asked for. */
	watch(set, EPOLL_CTL_MOD, pipes[0], 0);
	close(pipes[1]);
	say("writer gone:%s", ready(set, pipes, 2));
	/* A set in a set. */
	int outer = epoll_create1(0);
	watch(outer, EPOLL_CTL_ADD, set, EPOLLIN);
	say("outer:%s", ready(outer, &set, 1));
	struct pollfd poll_set = { .fd = set, .events = POLLIN };
	CHECK_EQ(poll(&poll_set, 1, 0), 1);
	CHECK_EQ(poll_set.revents, POLLIN);
	/* It stays until the open file goes, not the number. */
	int copy = dup(pipes[0]);
	close(pipes[0]);
	say("number closed:%s", ready(set, pipes, 1));
	close(copy);
	say("file closed:%s", ready(set, pipes, 1));
	say("outer:%s", ready(outer, &set, 1));
	close(set);
	close(outer);
	/* Sockets: data, and the end of the other side. */
	int ends[2];
	set = epoll_create1(0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	watch(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
	say("socket:%s", ready(set, ends, 1));
	CHECK_EQ(write(ends[1], "x", 1), 1);
	say("socket, a byte:%s", ready(set, ends, 1));
	say("socket, again:%s", ready(set, ends, 1));
	CHECK_EQ(shutdown(ends[1], SHUT_WR), 0);
	say("socket, half closed:%s", ready(set, ends, 1));
	close(ends[1]);
	say("socket, closed:%s", ready(set, ends, 1));
	close(ends[0]);
	close(set);
}

static void *write_later(void *fd)
{
	sleep_ms(100);
	CHECK_EQ(write(*(int *)fd, "x", 1), 1);
	return NULL;
}

static int handled;
static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void waiting(void)
{
	int pipes[2], set = epoll_create1(0);
	struct epoll_event events[4];
	pthread_t thread;
	CHECK_EQ(pipe(pipes), 0);
	watch(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN);
	CHECK_EQ(epoll_wait(set, events, 4, 20), 0);
	CHECK_EQ(pthread_create(&thread, NULL, write_later, &pipes[1]), 0);
	CHECK_EQ(epoll_wait(set, events, 4, -1), 1);
	CHECK(events[0].events == EPOLLIN && events[0].data.u64 == 0x1234567800000000u + (unsigned)pipes[0]);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* A signal ends a wait, with SA_RESTART too. */
	char byte;
	CHECK_EQ(read(pipes[0], &byte, 1), 1);
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	alarm(1);
	CHECK_ERRNO(epoll_wait(set, events, 4, 5000), EINTR);
	CHECK_EQ(handled, 1);
	/* One that is let in only while waiting. */
	sigset_t block, none;
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGALRM);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &block, NULL), 0);
	CHECK_EQ(raise(SIGALRM), 0);
	CHECK_EQ(epoll_wait(set, events, 4, 0), 0);
	CHECK_ERRNO(epoll_pwait(set, events, 4, 1000, &none), EINTR);
	CHECK_EQ(handled, 2);
	CHECK_EQ(sigprocmask(SIG_UNBLOCK, &block, NULL), 0);
	/* Many files, few at a time: each gets its turn. */
	int counters[10], told[10] = { 0 };
	for (int i = 0; i < 10; i++) {
		counters[i] = eventfd(1, 0);
		watch(set, EPOLL_CTL_ADD, counters[i], EPOLLIN);
	}
	for (int round = 0; round < 5; round++) {
		CHECK_EQ(epoll_wait(set, events, 2, 0), 2);
		for (int j = 0; j < 2; j++)
			for (int i = 0; i < 10; i++)
				told[i] += (int)(events[j].data.u64 & 0xffff) == counters[i];
	}
	for (int i = 0; i < 10; i++)
		CHECK_EQ(told[i], 1);
	for (int i = 0; i < 10; i++)
		close(counters[i]);
	close(set);
	close(pipes[0]);
	close(pipes[1]);
	say("waiting, signals, turns");
}

static void timers(void)
{
	struct itimerspec setting = { 0 }, old;
	uint64_t count;
	CHECK_ERRNO(timerfd_create(77, 0), EINVAL);
	CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
	CHECK_ERRNO(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0), EINVAL);
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), other = eventfd(0, 0);
	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
	CHECK_ERRNO(read(fd, &count, 7), EINVAL);
	CHECK_ERRNO(write(fd, &count, 8), EINVAL);
	CHECK_ERRNO(timerfd_settime(fd, 8, &setting, NULL), EINVAL);
	CHECK_ERRNO(timerfd_settime(other, 0, &setting, NULL), EINVAL);
	CHECK_ERRNO(timerfd_settime(999, 0, &setting, NULL), EBADF);
	CHECK_ERRNO(timerfd_settime(fd, 0, (void *)nowhere, NULL), EFAULT);
	CHECK_ERRNO(timerfd_gettime(other, &old), EINVAL);
	setting.it_value.tv_nsec = 1000000000;
	CHECK_ERRNO(timerfd_settime(fd, 0, &setting, NULL), EINVAL);
	setting.it_value.tv_nsec = 30000000;
	CHECK_EQ(timerfd_settime(fd, 0, &setting, NULL), 0);
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&wait, 1, 5000), 1);
	CHECK_EQ(read(fd, &count, 8), 8);
	CHECK_EQ(count, 1);
	CHECK_EQ(timerfd_gettime(fd, &old), 0);
	CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
	/* Again and again: what was missed is counted. */
	setting.it_interval.tv_nsec = 10000000;
	CHECK_EQ(timerfd_settime(fd, 0, &setting, NULL), 0);
	sleep_ms(200);
	CHECK_EQ(read(fd, &count, 8), 8);
	CHECK(count >= 15 && count < 200);
	CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
	CHECK_EQ(read(fd, &count, 8), 8);
	CHECK(count >= 1);
	CHECK_EQ(timerfd_gettime(fd, &old), 0);
	CHECK(old.it_interval.tv_nsec == 10000000 && old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 10000000);
	/* A moment that has passed is over at once; setting it forgets what was counted. */
	sleep_ms(30);
	setting = (struct itimerspec){ .it_value = { 0, 1 } };
	CHECK_EQ(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, &old), 0);
	CHECK_EQ(old.it_interval.tv_nsec, 10000000);
	CHECK_EQ(read(fd, &count, 8), 8);
	CHECK_EQ(count, 1);
	setting = (struct itimerspec){ .it_value = { 100, 0 } };
	CHECK_EQ(timerfd_settime(fd, 0, &setting, NULL), 0);
	setting = (struct itimerspec){ 0 };
	CHECK_EQ(timerfd_settime(fd, 0, &setting, &old), 0);
	CHECK(old.it_value.tv_sec >= 99);
	CHECK_EQ(poll(&wait, 1, 20), 0);
	close(fd);
	fd = timerfd_create(CLOCK_REALTIME, 0);
	CHECK_EQ(clock_gettime(CLOCK_REALTIME, &setting.it_value), 0);
	setting.it_value.tv_sec += 1;
	CHECK_EQ(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL), 0);
	CHECK_EQ(timerfd_gettime(fd, &old), 0);
	CHECK(old.it_value.tv_sec <= 1);
	CHECK_EQ(read(fd, &count, 8), 8);
	CHECK_EQ(count, 1);
	close(fd);
	close(other);
	say("timerfd");
}

static void *signal_later(void *process)
{
	sleep_ms(100);
	union sigval value = { .sival_int = 77 };
	CHECK_EQ(sigqueue(*(pid_t *)process, SIGRTMIN + 1, value), 0);
	return NULL;
}

static void signals(void)
{
	struct signalfd_siginfo info[4];
	sigset_t set, small;
	sigemptyset(&set);
	sigemptyset(&small);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGKILL);
	sigaddset(&small, SIGUSR2);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &small, NULL), 0);
	CHECK_ERRNO(syscall(SYS_signalfd4, -1, &set, 4, 0), EINVAL);
	CHECK_ERRNO(signalfd(-1, &set, 1), EINVAL);
	CHECK_ERRNO(signalfd(999, &set, 0), EBADF);
	CHECK_ERRNO(signalfd(1, &set, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_signalfd4, -1, nowhere, 8, 0), EFAULT);
	int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, info, sizeof info), EAGAIN);
	CHECK_ERRNO(read(fd, info, 127), EINVAL);
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	CHECK_ERRNO(read(fd, info, sizeof info), EAGAIN);
	union sigval value = { .sival_int = 5 };
	CHECK_EQ(sigqueue(getpid(), SIGRTMIN + 1, value), 0);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&wait, 1, 0), 1);
	CHECK_EQ(read(fd, info, sizeof info), 256);
	CHECK(info[0].ssi_signo == SIGUSR1 && info[0].ssi_code == SI_USER && info[0].ssi_pid == (uint32_t)getpid());
	CHECK(info[1].ssi_signo == (uint32_t)SIGRTMIN + 1 && info[1].ssi_code == SI_QUEUE && info[1].ssi_int == 5);
	CHECK_EQ(poll(&wait, 1, 0), 0);
	/* A child's end, waited for. */
	CHECK_EQ(fcntl(fd, F_SETFL, 0), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sleep_ms(50);
		_exit(3);
	}
	CHECK_EQ(read(fd, info, sizeof info), 128);
	CHECK(info[0].ssi_signo == SIGCHLD && info[0].ssi_code == CLD_EXITED && info[0].ssi_status == 3);
	CHECK_EQ(info[0].ssi_pid, child);
	expect_exit(child, 3);
	pthread_t thread;
	pid_t own = getpid();
	CHECK_EQ(pthread_create(&thread, NULL, signal_later, &own), 0);
	int epoll = epoll_create1(0);
	watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
	struct epoll_event event;
	CHECK_EQ(epoll_wait(epoll, &event, 1, 5000), 1);
	CHECK_EQ(read(fd, info, sizeof info), 128);
	CHECK_EQ(info[0].ssi_int, 77);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* Another choice. */
	CHECK_EQ(signalfd(fd, &small, 0), fd);
	CHECK_EQ(read(fd, info, sizeof info), 128);
	CHECK_EQ(info[0].ssi_signo, SIGUSR2);
	close(fd);
	close(epoll);
	say("signalfd");
}

static void counters(void)
{
	uint64_t value = 0;
	int fd = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(read(fd, &value, 8), 8);
		CHECK_EQ(value, 1);
	}
	CHECK_ERRNO(read(fd, &value, 8), EAGAIN);
	value = UINT64_MAX;
	CHECK_ERRNO(write(fd, &value, 8), EINVAL);
	value--;
	CHECK_EQ(write(fd, &value, 8), 8);
	value = 1;
	CHECK_ERRNO(write(fd, &value, 8), EAGAIN);
	struct pollfd wait = { .fd = fd, .events = POLLIN | POLLOUT };
	CHECK_EQ(poll(&wait, 1, 0), 1);
	CHECK_EQ(wait.revents, POLLIN);
	CHECK_ERRNO(write(fd, &value, 7), EINVAL);
	CHECK_ERRNO(read(fd, &value, 7), EINVAL);
	CHECK_ERRNO(eventfd(0, 2), EINVAL);
	close(fd);
	say("eventfd");
}

/* A set that is watched is ready for what it would report, and edges are reported once. */
static void edges_of_sets(void)
{
	int ends[2], set = epoll_create1(0);
	CHECK_EQ(pipe(ends), 0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
	struct pollfd poller = { .fd = set, .events = POLLIN };
	for (int round = 0; round < 2; round++) {
		CHECK_EQ(poll(&poller, 1, 0), 0);
		CHECK_EQ(write(ends[1], "x", 1), 1);
		CHECK_EQ(poll(&poller, 1, 0), 1);
		CHECK_EQ(poll(&poller, 1, 0), 1);
		CHECK_EQ(epoll_wait(set, &event, 1, 0), 1);
		CHECK_EQ(poll(&poller, 1, 0), 0);
		CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	}
	close(ends[0]);
	close(ends[1]);
	close(set);
	say("edges of sets");
}

int main(void)
{
	edges_of_sets();
	epoll_mistakes();
	modes();
	waiting();
	timers();
	signals();
	counters();
	return 0;
}
