/* Namespaces of time: offsets of the clocks that count from boot, for children and for the next program. */
#include "areas.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <time.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define FAR 1000000L

static long seconds(clockid_t clock)
{
	struct timespec now;
	CHECK_EQ(syscall(SYS_clock_gettime, clock, &now), 0);
	return now.tv_sec;
}

/* Whether two are the same but for what the machine needs to get from one line to the next. */
static int near(long one, long other)
{
	long apart = one - other;
	return apart >= -30 && apart <= 30;
}

static void link_of(const char *path, char *text)
{
	ssize_t length = readlink(path, text, 63);
	CHECK(length > 0);
	text[length] = 0;
}

static void offsets(void)
{
	IN_CHILD(0, {
		char text[256];
		char own[64];
		char next[64];
		long before = seconds(CLOCK_MONOTONIC);
		read_whole("/proc/self/timens_offsets", text, sizeof text);
		CHECK_EQ(strcmp(text, "monotonic           0         0\nboottime            0         0\n"), 0);
		/* The first one's do not change. */
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 1 0"), EACCES);
		CHECK_EQ(unshare(CLONE_NEWTIME), 0);
		link_of("/proc/self/ns/time", own);
		link_of("/proc/self/ns/time_for_children", next);
		CHECK(strcmp(own, next) != 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 1"), EINVAL);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "realtime 1 0"), EINVAL);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 1 1000000000"), EINVAL);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic -1000000000 0"), ERANGE);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 9000000000 0"), ERANGE);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 5 500\nboottime 3 0\n"), 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "1 1000000 7\n"), 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "boottime 2000000 0"), 0);
		read_whole("/proc/self/timens_offsets", text, sizeof text);
		CHECK_EQ(strcmp(text, "monotonic     1000000         7\nboottime      2000000         0\n"), 0);
		/* Not for oneself. */
		CHECK(near(seconds(CLOCK_MONOTONIC), before));
		IN_CHILD(0, {
			CHECK(near(seconds(CLOCK_MONOTONIC), before + FAR));
			CHECK(near(seconds(CLOCK_MONOTONIC_RAW), before + FAR));
			CHECK(near(seconds(CLOCK_MONOTONIC_COARSE), before + FAR));
			CHECK(near(seconds(CLOCK_BOOTTIME), before + 2 * FAR));
			struct sysinfo about;
			CHECK_EQ(sysinfo(&about), 0);
			CHECK(near(about.uptime, before + 2 * FAR));
			read_whole("/proc/uptime", text, sizeof text);
			CHECK(near(atol(text), before + 2 * FAR));
			link_of("/proc/self/ns/time", own);
			CHECK_EQ(strcmp(own, next), 0);
			/* Somebody is there now. */
			CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 0 0"), EACCES);
		});
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 0 0"), EACCES);
	});
	say("offsets: for children, until there are any");
}

static void moments(void)
{
	IN_CHILD(0, {
		CHECK_EQ(unshare(CLONE_NEWTIME), 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 1000000 0\nboottime 2000000 0\n"), 0);
		IN_CHILD(0, {
			struct timespec now;
			/* Moments are meant as the clock shows them. */
			CHECK_EQ(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now), 0);
			now.tv_nsec += 20000000;
			now.tv_sec += now.tv_nsec / 1000000000;
			now.tv_nsec %= 1000000000;
			CHECK_EQ(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL), 0);
			int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK);
			CHECK(fd >= 0);
			uint64_t times;
			struct itimerspec setting = { { 0, 0 }, { seconds(CLOCK_BOOTTIME) - 1, 0 } };
			CHECK_EQ(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL), 0);
			struct pollfd ready = { .fd = fd, .events = POLLIN };
			CHECK_EQ(poll(&ready, 1, 10000), 1);
			CHECK_EQ(read(fd, &times, 8), 8);
			setting.it_value.tv_sec += 1000;
			CHECK_EQ(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL), 0);
			CHECK_ERRNO(read(fd, &times, 8), EAGAIN);
			CHECK_EQ(timerfd_gettime(fd, &setting), 0);
			CHECK(near(setting.it_value.tv_sec, 999));
			timer_t timer;
			struct sigevent event = { .sigev_notify = SIGEV_NONE };
			CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
			setting.it_value.tv_sec = seconds(CLOCK_MONOTONIC) + 500;
			CHECK_EQ(timer_settime(timer, TIMER_ABSTIME, &setting, NULL), 0);
			CHECK_EQ(timer_gettime(timer, &setting), 0);
			CHECK(near(setting.it_value.tv_sec, 500));
			unsigned word = 0;
			now.tv_sec = seconds(CLOCK_MONOTONIC) - 1;
			CHECK_ERRNO(syscall(SYS_futex, &word, 9, 0, &now, NULL, -1), ETIMEDOUT);
		});
	});
	say("moments: as its clocks show them");
}

static void *waits(void *argument)
{
	pause();
	return argument;
}

static void entered(void)
{
	IN_CHILD(0, {
		long before = seconds(CLOCK_MONOTONIC);
		int first = open("/proc/self/ns/time", O_RDONLY);
		CHECK(first >= 0);
		CHECK_EQ(unshare(CLONE_NEWTIME), 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 1000000 0"), 0);
		int second = open("/proc/self/ns/time_for_children", O_RDONLY);
		CHECK(second >= 0);
		CHECK_EQ(setns(second, CLONE_NEWTIME), 0);
		CHECK(near(seconds(CLOCK_MONOTONIC), before + FAR));
		CHECK_EQ(setns(first, 0), 0);
		CHECK(near(seconds(CLOCK_MONOTONIC), before));
		/* The next program is where the children are. */
		CHECK_EQ(unshare(CLONE_NEWTIME), 0);
		CHECK_EQ(write_file("/proc/self/timens_offsets", "monotonic 3000000 0"), 0);
		IN_CHILD(0, {
			pthread_t other;
			CHECK_EQ(pthread_create(&other, NULL, waits, NULL), 0);
			CHECK_ERRNO(setns(first, CLONE_NEWTIME), EUSERS);
		});
		char text[64];
		snprintf(text, sizeof text, "%ld", before + 3 * FAR);
		execl("/proc/self/exe", "time_namespaces", text, NULL);
		_exit(9);
	});
	/* clone3 has a bit for it, which is part of clone's signal. */
	IN_CHILD(0, {
		uint64_t arguments[8] = { CLONE_NEWTIME, 0, 0, 0, SIGCHLD, 0, 0, 0 };
		char own[64];
		char childs[64];
		link_of("/proc/self/ns/time", own);
		pid_t child = (pid_t)syscall(SYS_clone3, arguments, sizeof arguments);
		if (child == 0) {
			link_of("/proc/self/ns/time", childs);
			_exit(strcmp(own, childs) != 0 ? 7 : 8);
		}
		expect_exit(child, 7);
		arguments[0] = 0x40;
		CHECK_ERRNO(syscall(SYS_clone3, arguments, sizeof arguments), EINVAL);
		/* What is no control group. */
		uint64_t more[11] = { 1UL << 33, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, 1 };
		CHECK_ERRNO(syscall(SYS_clone3, more, sizeof more), EBADF);
		more[10] = 1UL << 31;
		CHECK_ERRNO(syscall(SYS_clone3, more, sizeof more), EINVAL);
		more[10] = 77;
		CHECK_ERRNO(syscall(SYS_clone3, more, sizeof more), EBADF);
		CHECK_ERRNO(syscall(SYS_clone3, more, 80), EINVAL);
	});
	IN_CHILD(0, {
		CHECK_EQ(setgid(65534), 0);
		CHECK_EQ(setuid(65534), 0);
		CHECK_ERRNO(unshare(CLONE_NEWTIME), EPERM);
	});
	say("entered: by setns, by the next program");
}

int main(int count, char **arguments)
{
	if (count > 1) {
		/* Since Linux 6.3. */
		lacks("move by exec", near(seconds(CLOCK_MONOTONIC), atol(arguments[1])));
		return 0;
	}
	offsets();
	moments();
	entered();
	return 0;
}
