/* How a process ends, and what its parent is told: wait4, waitid, signals' default actions, stop and continue. */
#include "check.h"
#include <sys/resource.h>

static void exits(void)
{
	for (int status = 0; status < 256; status += 51)
		IN_CHILD(status, _exit(status));
	IN_CHILD(0x34, _exit(0x1234)); /* only eight bits */
	IN_CHILD(255, exit(-1));
	say("exit statuses");
}

/* The default action of each signal: 'k' kills (with or without a core), 'i' is ignored, 's' stops. */
static void default_actions(void)
{
	static const struct { int signal; char action; } table[] = {
		{ SIGHUP, 'k' }, { SIGINT, 'k' }, { SIGQUIT, 'k' }, { SIGILL, 'k' }, { SIGTRAP, 'k' }, { SIGABRT, 'k' },
		{ SIGBUS, 'k' }, { SIGFPE, 'k' }, { SIGKILL, 'k' }, { SIGUSR1, 'k' }, { SIGSEGV, 'k' }, { SIGUSR2, 'k' },
		{ SIGPIPE, 'k' }, { SIGALRM, 'k' }, { SIGTERM, 'k' }, { SIGXCPU, 'k' }, { SIGXFSZ, 'k' },
		{ SIGVTALRM, 'k' }, { SIGPROF, 'k' }, { SIGIO, 'k' }, { SIGSYS, 'k' }, { SIGCHLD, 'i' }, { SIGURG, 'i' },
		{ SIGWINCH, 'i' }, { SIGCONT, 'i' }, { SIGSTOP, 's' }, { SIGTSTP, 's' }, { SIGTTIN, 's' }, { SIGTTOU, 's' },
		{ 34, 'k' }, { 64, 'k' },
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		int signal = table[i].signal, status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			/* Out of the orphaned group that would ignore terminal stops. */
			setpgid(0, 0);
			struct sigaction usual = { .sa_handler = SIG_DFL };
			sigaction(signal, &usual, NULL); /* whoever started the test may have ignored some */
			syscall(SYS_kill, getpid(), signal);
			_exit(7);
		}
		switch (table[i].action) {
		case 'k':
			expect_signal(child, signal);
			break;
		case 'i':
			expect_exit(child, 7);
			break;
		default:
			CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
			CHECK(WIFSTOPPED(status));
			CHECK_EQ(WSTOPSIG(status), signal);
			CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
			CHECK(kill(child, SIGCONT) == 0);
			expect_exit(child, 7);
		}
		say("signal %d: %c", signal, table[i].action);
	}
}

static void stop_and_continue(void)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(child, SIGCONT) == 0);
	CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
	CHECK(WIFCONTINUED(status));
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	/* A stopped process can be killed. */
	CHECK(kill(child, SIGKILL) == 0);
	expect_signal(child, SIGKILL);
	say("stop, continue, kill");
}

static void faults(void)
{
	volatile int zero = 0;
	KILLED_BY(SIGSEGV, *(volatile char *)nowhere = 1);
	KILLED_BY(SIGSEGV, ((void (*)(void))(uintptr_t)nowhere)());
	KILLED_BY(SIGFPE, zero = 100 / zero);
	KILLED_BY(SIGILL, __asm__ volatile("ud2"));
	KILLED_BY(SIGTRAP, __asm__ volatile("int3"));
	KILLED_BY(SIGSEGV, __asm__ volatile("hlt"));
	KILLED_BY(SIGSEGV, __asm__ volatile("movb $1, (%0)" : : "r"(0x8000000000000000UL) : "memory"));
	KILLED_BY(SIGSEGV, __asm__ volatile("movb $1, (%0)" : : "r"(0xffffffff80000000UL) : "memory"));
	KILLED_BY(SIGABRT, abort());
	say("faults kill");
}

static void waits(void)
{
	int status = 1234;
	struct rusage usage;
	memset(&usage, 0xff, sizeof usage);
	CHECK_ERRNO(waitpid(-1, &status, 0), ECHILD);
	CHECK_ERRNO(waitpid(1, &status, 0), ECHILD);
	CHECK_ERRNO(waitpid(-1, &status, 0x4000), EINVAL);
	int gate[2];
	CHECK(pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		ssize_t ignored = read(gate[0], &byte, 1);
		(void)ignored;
		_exit(3);
	}
	CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
	CHECK_EQ(status, 1234);
	CHECK_ERRNO(waitpid(child + 100000, &status, 0), ECHILD);
	CHECK_EQ(write(gate[1], "x", 1), 1);
	CHECK_EQ(wait4(child, &status, 0, &usage), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	CHECK(usage.ru_utime.tv_sec >= 0 && usage.ru_utime.tv_sec < 10);
	close(gate[0]), close(gate[1]);
	/* Without a place for the status. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	CHECK_EQ(waitpid(child, NULL, 0), child);
	say("wait4");
}

static void waits_with_info(void)
{
	siginfo_t info;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(41);
	memset(&info, 0, sizeof info);
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
	CHECK_EQ(info.si_pid, child);
	CHECK_EQ(info.si_signo, SIGCHLD);
	CHECK_EQ(info.si_code, CLD_EXITED);
	CHECK_EQ(info.si_status, 41);
	CHECK_EQ(info.si_uid, getuid());
	memset(&info, 0, sizeof info);
	CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0);
	CHECK_EQ(info.si_pid, child);
	CHECK_ERRNO(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
	CHECK_ERRNO(waitid(P_ALL, 0, &info, 0), EINVAL);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	info.si_pid = 77;
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG) == 0);
	CHECK_EQ(info.si_pid, 0);
	CHECK(kill(child, SIGTERM) == 0);
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED) == 0);
	CHECK_EQ(info.si_code, CLD_KILLED);
	CHECK_EQ(info.si_status, SIGTERM);
	say("waitid");
}

/* Who ignores SIGCHLD gets no zombies: wait blocks until all are gone, then says so. */
static void ignored_children(void)
{
	IN_CHILD(0, {
		signal(SIGCHLD, SIG_IGN);
		for (int i = 0; i < 5; i++) {
			pid_t child = fork();
			CHECK(child >= 0);
			if (child == 0)
				_exit(0);
		}
		CHECK_ERRNO(wait(NULL), ECHILD);
	});
	say("ignored SIGCHLD: no zombies");
}

static void kills(void)
{
	CHECK(kill(getpid(), 0) == 0);
	CHECK_ERRNO(kill(getpid(), 65), EINVAL);
	CHECK_ERRNO(kill(getpid(), -1), EINVAL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
	CHECK(kill(child, SIGTERM) == 0); /* a zombie can be signalled, to no effect */
	expect_exit(child, 0);
	CHECK_ERRNO(kill(child, 0), ESRCH);
	say("kill");
}

int main(void)
{
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	exits();
	default_actions();
	stop_and_continue();
	faults();
	waits();
	waits_with_info();
	ignored_children();
	kills();
	return 0;
}
