/* Time: clocks go on, sleeps last, and mistakes are told. */
#include "check.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static int64_t now(clockid_t clock)
{
	struct timespec time;
	CHECK(clock_gettime(clock, &time) == 0);
	CHECK(time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void clocks(void)
{
	static const clockid_t all[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
		CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct timespec step;
		int64_t last = now(all[i]);
		for (int n = 0; n < 1000; n++) {
			int64_t next = now(all[i]);
			CHECK(next >= last);
			last = next;
		}
		CHECK(clock_getres(all[i], &step) == 0 && step.tv_sec == 0 && step.tv_nsec > 0);
	}
	struct timespec time;
	CHECK_ERRNO(clock_gettime(99, &time), EINVAL);
	struct timeval day;
	CHECK(gettimeofday(&day, NULL) == 0);
	CHECK(now(CLOCK_REALTIME) / 1000000000 - day.tv_sec <= 1);
	time_t seconds = -1;
	CHECK(syscall(SYS_time, &seconds) == seconds);
	CHECK(seconds - day.tv_sec <= 1 && day.tv_sec - seconds <= 1);
	CHECK(day.tv_sec > 1600000000);
	int64_t start = now(CLOCK_MONOTONIC);
	struct timespec raw;
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &raw) == 0); /* with and without the vdso */
	CHECK(raw.tv_sec * INT64_C(1000000000) + raw.tv_nsec >= start);
	CHECK(now(CLOCK_MONOTONIC) >= raw.tv_sec * INT64_C(1000000000) + raw.tv_nsec);
	say("clocks");
}

static void sleeps(void)
{
	static const long lengths[] = { 0, 1, 1000, 100000, 1000000, 20000000, 150000000 };
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct timespec length = { 0, lengths[i] };
		int64_t start = now(CLOCK_MONOTONIC);
		CHECK(nanosleep(&length, NULL) == 0);
		int64_t took = now(CLOCK_MONOTONIC) - start;
		CHECK(took >= lengths[i] && took < lengths[i] + INT64_C(2000000000));
		start = now(CLOCK_MONOTONIC);
		struct timespec until = { (start + lengths[i]) / 1000000000, (start + lengths[i]) % 1000000000 };
		CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
		CHECK(now(CLOCK_MONOTONIC) >= start + lengths[i]);
	}
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 }, past = { 1, 0 };
	CHECK_ERRNO(nanosleep(&bad, NULL), EINVAL);
	CHECK_ERRNO(nanosleep(&negative, NULL), EINVAL);
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL), 0);
	CHECK_EQ(clock_nanosleep(99, 0, &past, NULL), EINVAL);
	/* Sleepers wake in the order of their times, not of their starts. */
	int ends[2];
	char order[6] = "";
	CHECK(pipe(ends) == 0);
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			usleep((useconds_t)(300000 - 50000 * i));
			CHECK_EQ(write(ends[1], &"abcde"[i], 1), 1);
			_exit(0);
		}
	}
	for (int i = 0; i < 5; i++)
		CHECK_EQ(read(ends[0], order + i, 1), 1);
	while (wait(NULL) > 0) {
	}
	say("sleeps end in the order %s", order);
}

static volatile unsigned long sink;

static void processor_time(void)
{
	struct tms before, after;
	struct rusage usage, children;
	CHECK(times(&before) != (clock_t)-1);
	int64_t start = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
	while (now(CLOCK_MONOTONIC) - wall < 200000000)
		for (int i = 0; i < 10000; i++)
			sink += (unsigned long)i;
	CHECK(now(CLOCK_PROCESS_CPUTIME_ID) > start);
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	CHECK(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec < 60);
	CHECK(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec + usage.ru_utime.tv_sec > 0);
	/* Sleeping costs no processor time. */
	start = now(CLOCK_PROCESS_CPUTIME_ID);
	usleep(200000);
	CHECK(now(CLOCK_PROCESS_CPUTIME_ID) - start < 150000000);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		wall = now(CLOCK_MONOTONIC);
		while (now(CLOCK_MONOTONIC) - wall < 200000000)
			sink++;
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK(getrusage(RUSAGE_CHILDREN, &children) == 0);
	CHECK(times(&after) != (clock_t)-1);
	CHECK(children.ru_utime.tv_usec + children.ru_stime.tv_usec + children.ru_utime.tv_sec > 0);
	CHECK(after.tms_cutime + after.tms_cstime > 0);
	CHECK_ERRNO(getrusage(99, &usage), EINVAL);
	say("processor time");
}

/* Two processes that never wait both get on. */
static void fairness(void)
{
	volatile unsigned long *counts = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[3];
	CHECK(counts != MAP_FAILED);
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0)
			for (;;)
				counts[i * 8]++;
	}
	usleep(600000);
	for (int i = 0; i < 3; i++) {
		CHECK(kill(children[i], SIGKILL) == 0);
		expect_signal(children[i], SIGKILL);
		CHECK(counts[i * 8] > 1000);
	}
	for (int i = 0; i < 100; i++)
		CHECK(sched_yield() == 0);
	say("processes that never wait all get on");
}

int main(void)
{
	clocks();
	sleeps();
	processor_time();
	fairness();
	return 0;
}
