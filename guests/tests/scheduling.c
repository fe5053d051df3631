/* Classes of scheduling: who runs before whom, who takes turns, what is left to the others. Most of it on one processor. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#ifndef SCHED_IDLE
#define SCHED_IDLE 5
#endif

/* What the threads of a test have done, a letter each. */
static char done[256];
static atomic_uint done_count;

static void note(char what)
{
	unsigned at = atomic_fetch_add(&done_count, 1);
	CHECK(at < sizeof done - 1);
	done[at] = what;
}

static void say_done(const char *what)
{
	say("%s: %s", what, done);
	memset(done, 0, sizeof done);
	atomic_store(&done_count, 0);
}

static void become(pid_t who, int policy, int priority)
{
	struct sched_param parameter = { .sched_priority = priority };
	CHECK_EQ(syscall(SYS_sched_setscheduler, who, policy, &parameter), 0);
}

/* Some processors of those that there are: the first `count`. */
static void stay_on(int count)
{
	static cpu_set_t all;
	cpu_set_t some;
	if (CPU_COUNT(&all) == 0)
		CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
	CPU_ZERO(&some);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < count; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &some);
	CHECK_EQ(sched_setaffinity(0, sizeof some, &some), 0);
}

static long milliseconds(clockid_t clock)
{
	struct timespec now;
	CHECK_EQ(clock_gettime(clock, &now), 0);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Uses so much time of a processor. */
static void work(long time)
{
	long end = milliseconds(CLOCK_THREAD_CPUTIME_ID) + time;
	while (milliseconds(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void sleep_for(long time)
{
	struct timespec rest = { 0, time * 1000000 };
	CHECK_EQ(nanosleep(&rest, NULL), 0);
}

struct thread {
	pthread_t id;
	void (*act)(char name);
	char name;
};

static void *begin(void *argument)
{
	struct thread *thread = argument;
	thread->act(thread->name);
	return NULL;
}

/* Makes a thread of that class, which the maker's own class must not keep from being started. */
static void start(struct thread *thread, char name, int policy, int priority, void (*act)(char))
{
	*thread = (struct thread){ .act = act, .name = name };
	pthread_attr_t attributes;
	struct sched_param parameter = { .sched_priority = priority };
	CHECK_EQ(pthread_attr_init(&attributes), 0);
	CHECK_EQ(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED), 0);
	CHECK_EQ(pthread_attr_setschedpolicy(&attributes, policy), 0);
	CHECK_EQ(pthread_attr_setschedparam(&attributes, &parameter), 0);
	CHECK_EQ(pthread_create(&thread->id, &attributes, begin, thread), 0);
}

static void join(struct thread *thread)
{
	CHECK_EQ(pthread_join(thread->id, NULL), 0);
}

static void by_priority(void)
{
	struct thread threads[4];
	start(&threads[0], 'a', SCHED_FIFO, 10, note);
	start(&threads[1], 'b', SCHED_FIFO, 30, note);
	start(&threads[2], 'c', SCHED_FIFO, 20, note);
	start(&threads[3], 'd', SCHED_RR, 30, note);
	note('-');
	for (int i = 0; i < 4; i++)
		join(&threads[i]);
	say_done("by priority, the last lowered first");
}

static atomic_int flag;

static void waits_for_the_flag(char name)
{
	note(name);
	while (!atomic_load(&flag))
		;
	note(name);
}

static void sleeps_and_sets_it(char name)
{
	sleep_for(30);
	note(name);
	atomic_store(&flag, 1);
}

static void preempted(void)
{
	struct thread low, high;
	atomic_store(&flag, 0);
	start(&high, 'H', SCHED_FIFO, 20, sleeps_and_sets_it);
	start(&low, 'l', SCHED_FIFO, 10, waits_for_the_flag);
	join(&low), join(&high);
	say_done("one that wakes runs at once");
}

static void works(char name)
{
	note(name);
	work(250);
	note(name);
}

static void yields(char name)
{
	for (int i = 0; i < 3; i++) {
		note(name);
		sched_yield();
	}
}

static void turns(void)
{
	struct thread first, second;
	start(&first, 'a', SCHED_FIFO, 10, works);
	start(&second, 'b', SCHED_FIFO, 10, works);
	join(&first), join(&second);
	say_done("first in, first out");
	start(&first, 'a', SCHED_RR, 10, works);
	start(&second, 'b', SCHED_RR, 10, works);
	join(&first), join(&second);
	say_done("round robin");
	start(&first, 'a', SCHED_FIFO, 10, yields);
	start(&second, 'b', SCHED_FIFO, 10, yields);
	join(&first), join(&second);
	say_done("yielding");
}

static atomic_long progress;
static atomic_int over;

static void counts(char name)
{
	(void)name;
	while (!atomic_load(&over))
		atomic_fetch_add(&progress, 1);
}

static void before_others(void)
{
	struct thread other;
	atomic_store(&over, 0);
	start(&other, 'o', SCHED_OTHER, 0, counts);
	clockid_t its;
	CHECK_EQ(pthread_getcpuclockid(other.id, &its), 0);
	work(400);
	CHECK(milliseconds(its) < 100);
	say("an ordinary thread waits");
	/* For ever it does not. */
	long before = atomic_load(&progress);
	for (int i = 0; i < 100 && atomic_load(&progress) == before; i++)
		work(100);
	CHECK(atomic_load(&progress) > before);
	say("and is not forgotten");
	atomic_store(&over, 1);
	join(&other);
}

static void raised(void)
{
	struct thread low;
	start(&low, 'l', SCHED_FIFO, 10, note);
	/* A process that has not run. */
	int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		*shared = done_count;
		_exit(0);
	}
	become(child, SCHED_FIFO, 20);
	expect_exit(child, 0);
	CHECK_EQ(atomic_load(&done_count), 0);
	say("one that is raised runs before those of less priority");
	become(child = getpid(), SCHED_FIFO, 5);
	/* The other one has had its turn by now. */
	CHECK_EQ(atomic_load(&done_count), 1);
	become(child, SCHED_FIFO, 50);
	join(&low);
	say_done("one that is lowered makes place");
}

static void counts_idly(char name)
{
	become(0, SCHED_IDLE, 0);
	counts(name);
}

static void background(void)
{
	struct thread idle;
	become(0, SCHED_OTHER, 0);
	atomic_store(&over, 0), atomic_store(&progress, 0);
	start(&idle, 'i', SCHED_OTHER, 0, counts_idly);
	clockid_t its;
	CHECK_EQ(pthread_getcpuclockid(idle.id, &its), 0);
	while (milliseconds(its) < 20)
		sleep_for(20);
	long before = milliseconds(its);
	work(200);
	CHECK(milliseconds(its) - before < 100);
	atomic_store(&over, 1);
	join(&idle);
	say("a background thread runs when others do not");
	become(0, SCHED_FIFO, 50);
}

static void spins(char name)
{
	(void)name;
	while (!atomic_load(&over))
		;
}

/* Two processors, an ordinary thread on each, and two real-time threads that need each other: each finds a processor. */
static void everywhere(void)
{
	stay_on(2);
	struct thread busy[2], first, second;
	become(0, SCHED_OTHER, 0);
	atomic_store(&over, 0), atomic_store(&flag, 0);
	start(&busy[0], 'x', SCHED_OTHER, 0, spins);
	start(&busy[1], 'y', SCHED_OTHER, 0, spins);
	start(&first, 'l', SCHED_FIFO, 10, waits_for_the_flag);
	start(&second, 'H', SCHED_FIFO, 10, sleeps_and_sets_it);
	join(&first), join(&second);
	atomic_store(&over, 1);
	join(&busy[0]), join(&busy[1]);
	memset(done, 0, sizeof done);
	say("two find a processor each");
}

int main(void)
{
	stay_on(1);
	become(0, SCHED_FIFO, 50);
	by_priority();
	preempted();
	turns();
	before_others();
	raised();
	background();
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		everywhere();
	else
		say("two find a processor each");
	say("scheduling: ok");
	return 0;
}
