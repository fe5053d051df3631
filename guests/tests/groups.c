/* Process groups and sessions, as far as a shell uses them. */
#include "check.h"

static void numbers(void)
{
	CHECK(getpid() > 0);
	CHECK_EQ(getpgid(0), getpgrp());
	CHECK_EQ(getpgid(getpid()), getpgrp());
	pid_t parent = getpid(), group = getpgrp(), session = getsid(0);
	IN_CHILD(0, {
		CHECK_EQ(getppid(), parent);
		CHECK(getpid() != parent);
		CHECK_EQ(getpgrp(), group);
		CHECK_EQ(getsid(0), session);
		CHECK_EQ(syscall(SYS_gettid), getpid());
		CHECK(setpgid(0, 0) == 0);
		CHECK_EQ(getpgrp(), getpid());
		CHECK_EQ(getsid(0), session);
		CHECK_ERRNO(setsid(), EPERM); /* a group's leader may not */
	});
	IN_CHILD(0, {
		CHECK_EQ(setsid(), getpid());
		CHECK_EQ(getsid(0), getpid());
		CHECK_EQ(getpgrp(), getpid());
		CHECK_ERRNO(setpgid(0, 0), EPERM); /* a session's leader may not */
	});
	CHECK_ERRNO(getpgid(999999), ESRCH);
	CHECK_ERRNO(setpgid(999999, 0), ESRCH);
	CHECK_ERRNO(setpgid(0, -1), EINVAL);
	say("numbers");
}

static pid_t sleeper(pid_t group)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		setpgid(0, group);
		for (;;)
			pause();
	}
	/* As a shell does: on both sides, so that it holds whoever runs first. */
	CHECK(setpgid(child, group) == 0);
	return child;
}

static void whole_group(void)
{
	pid_t leader = sleeper(0);
	pid_t second = sleeper(leader), third = sleeper(leader), other = sleeper(0);
	CHECK_EQ(getpgid(second), leader);
	CHECK_EQ(getpgid(third), leader);
	CHECK_EQ(getpgid(other), other);
	int status;
	CHECK_EQ(waitpid(-leader, &status, WNOHANG), 0);
	CHECK(kill(-leader, 0) == 0);
	CHECK(kill(-leader, SIGTERM) == 0);
	int collected = 0;
	for (int i = 0; i < 3; i++) {
		pid_t got = waitpid(-leader, &status, 0);
		CHECK(got == leader || got == second || got == third);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
		collected++;
	}
	CHECK_ERRNO(waitpid(-leader, &status, 0), ECHILD);
	CHECK_ERRNO(kill(-leader, 0), ESRCH);
	CHECK_EQ(waitpid(other, &status, WNOHANG), 0);
	CHECK(kill(other, SIGKILL) == 0);
	expect_signal(other, SIGKILL);
	say("a group of %d ended by one kill", collected);
}

/* kill(0) reaches the sender's own group. */
static void own_group(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(setpgid(0, 0) == 0);
		pid_t inner = fork();
		CHECK(inner >= 0);
		if (inner == 0)
			for (;;)
				pause();
		signal(SIGUSR1, SIG_IGN);
		CHECK(kill(0, SIGUSR1) == 0);
		/* The inner one inherited the default action: it forked before the signal was ignored. */
		expect_signal(inner, SIGUSR1);
		_exit(0);
	}
	expect_exit(child, 0);
	say("own group");
}

/* wait for one's own group only. */
static void wait_for_own_group(void)
{
	IN_CHILD(0, {
		CHECK(setpgid(0, 0) == 0);
		pid_t away = sleeper(0);
		pid_t mine = fork();
		CHECK(mine >= 0);
		if (mine == 0)
			_exit(9);
		int status;
		CHECK_EQ(waitpid(0, &status, 0), mine);
		CHECK_ERRNO(waitpid(0, &status, 0), ECHILD);
		CHECK(kill(away, SIGKILL) == 0);
		expect_signal(away, SIGKILL);
	});
	say("wait for one's own group");
}

static void identity(void)
{
	CHECK_EQ(getuid(), geteuid());
	CHECK_EQ(getgid(), getegid());
	IN_CHILD(0, {
		uid_t real, effective, saved;
		CHECK(getresuid(&real, &effective, &saved) == 0);
		CHECK(real == getuid() && effective == real && saved == real);
	});
	say("identity");
}

int main(void)
{
	numbers();
	whole_group();
	own_group();
	wait_for_own_group();
	identity();
	return 0;
}
