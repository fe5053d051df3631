/* What prctl does about capabilities, how they follow ids and exec; input and output priorities, slack, the clock's state. */
#include "check.h"

#include <sys/prctl.h>
#include <sys/timex.h>
#include <time.h>


struct sets {
	unsigned effective, permitted, inheritable;
};

static void get(struct sets sets[2])
{
	struct { unsigned version; int pid; } header = { 0x20080522, 0 };
	CHECK_EQ(syscall(SYS_capget, &header, sets), 0);
}

static int set(const struct sets sets[2])
{
	struct { unsigned version; int pid; } header = { 0x20080522, 0 };
	return (int)syscall(SYS_capset, &header, sets);
}

static void in_child(void (*work)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		work();
		_exit(0);
	}
	expect_exit(child, 0);
}

static void bounding(void)
{
	CHECK_EQ(prctl(PR_CAPBSET_READ, 5), 1);
	CHECK_EQ(prctl(PR_CAPBSET_DROP, 5), 0);
	CHECK_EQ(prctl(PR_CAPBSET_READ, 5), 0);
	CHECK_EQ(prctl(PR_CAPBSET_READ, 6), 1);
	CHECK_ERRNO(prctl(PR_CAPBSET_READ, 64), EINVAL);
	CHECK_ERRNO(prctl(PR_CAPBSET_DROP, 64), EINVAL);
	CHECK_EQ(setuid(1000), 0);
	CHECK_ERRNO(prctl(PR_CAPBSET_DROP, 6), EPERM);
	say("bounding");
}

static void kept(void)
{
	struct sets sets[2];
	CHECK_EQ(prctl(PR_GET_KEEPCAPS), 0);
	CHECK_ERRNO(prctl(PR_SET_KEEPCAPS, 2), EINVAL);
	CHECK_EQ(prctl(PR_SET_KEEPCAPS, 1), 0);
	CHECK_EQ(prctl(PR_GET_KEEPCAPS), 1);
	CHECK_EQ(prctl(PR_GET_SECUREBITS), 16);
	CHECK_EQ(setresuid(1000, 1000, 1000), 0);
	get(sets);
	CHECK_EQ(sets[0].effective, 0);
	CHECK((sets[0].permitted & 0xff) == 0xff);
	sets[0].inheritable = 1 << 2;
	CHECK_EQ(set(sets), 0);
	/* What is permitted and inheritable may be made ambient. */
	CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 2, 0, 0), 0);
	CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 2, 0, 0), 0);
	CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 2, 0, 0), 1);
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 3, 0, 0), EPERM);
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 64, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, 9, 2, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 2, 0, 0), EINVAL);
	execl("/proc/self/exe", "privileges", "after", NULL);
	FAIL("exec");
}

/* What kept's program has become. */
static void after_exec(void)
{
	struct sets sets[2];
	get(sets);
	say("after exec: effective %x, permitted %x, inheritable %x", sets[0].effective, sets[0].permitted, sets[0].inheritable);
	CHECK_EQ(prctl(PR_GET_KEEPCAPS), 0);
	CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 2, 0, 0), 0);
}

static void bits(void)
{
	struct sets sets[2];
	CHECK_EQ(prctl(PR_GET_SECUREBITS), 0);
	CHECK_ERRNO(prctl(PR_SET_SECUREBITS, 0x1000), EPERM);
	/* Ids do not change capabilities, and this stays so. */
	CHECK_EQ(prctl(PR_SET_SECUREBITS, 4 | 8), 0);
	CHECK_EQ(prctl(PR_GET_SECUREBITS), 12);
	CHECK_ERRNO(prctl(PR_SET_SECUREBITS, 0), EPERM);
	CHECK_EQ(setresuid(1000, 1000, 1000), 0);
	get(sets);
	CHECK(sets[0].effective != 0 && sets[0].permitted != 0);
	say("bits");
}

static void others(void)
{
	CHECK_EQ(prctl(PR_GET_TIMERSLACK), 50000);
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 1234), 0);
	CHECK_EQ(prctl(PR_GET_TIMERSLACK), 1234);
	pid_t child = fork();
	if (!child) {
		CHECK_EQ(prctl(PR_GET_TIMERSLACK), 1234);
		CHECK_EQ(prctl(PR_SET_TIMERSLACK, 1), 0);
		CHECK_EQ(prctl(PR_SET_TIMERSLACK, 0), 0);
		CHECK_EQ(prctl(PR_GET_TIMERSLACK), 1234);
		_exit(0);
	}
	expect_exit(child, 0);
	int mode = 0;
	CHECK_EQ(prctl(PR_GET_TSC, &mode), 0);
	CHECK_EQ(mode, PR_TSC_ENABLE);
	CHECK_EQ(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_DEFAULT);
	CHECK_ERRNO(prctl(PR_MCE_KILL, 7, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(9999, 0, 0, 0, 0), EINVAL);

	CHECK_EQ(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 5), 0);
	CHECK_EQ(syscall(SYS_ioprio_get, 1, 0), 2 << 13 | 5);
	CHECK_EQ(syscall(SYS_ioprio_get, 1, getpid()), 2 << 13 | 5);
	CHECK_ERRNO(syscall(SYS_ioprio_set, 1, 0, 5), EINVAL);
	CHECK_ERRNO(syscall(SYS_ioprio_get, 9, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_ioprio_get, 1, 0x3fffffff), ESRCH);

	struct timex timex = { .modes = 0 };
	CHECK(syscall(SYS_adjtimex, &timex) >= 0);
	CHECK(timex.time.tv_sec > 1000000000 && timex.tick >= 9000 && timex.tick <= 11000);
	CHECK(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &timex) >= 0);
	CHECK_ERRNO(syscall(SYS_clock_adjtime, CLOCK_MONOTONIC, &timex), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_adjtimex, nowhere), EFAULT);
	say("others");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "after")) {
		after_exec();
		return 0;
	}
	in_child(bounding);
	in_child(kept);
	in_child(bits);
	in_child(others);
	return 0;
}
