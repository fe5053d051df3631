/* Which system calls may be made: the strict mode, filters and what they answer, what they may consist of, who inherits them. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <ucontext.h>

#ifndef SYS_seccomp
#define SYS_seccomp 317
#endif
#define MODE_STRICT 0
#define MODE_FILTER 1
#define ACTION_AVAIL 2
#define NOTIF_SIZES 3
#define TSYNC 1
#define LOG 2
#define TSYNC_ESRCH 16

#define KILL_PROCESS 0x80000000U
#define KILL_THREAD 0U
#define TRAP 0x00030000U
#define ERRNO 0x00050000U
#define TRACE 0x7ff00000U
#define LOGGED 0x7ffc0000U
#define ALLOW 0x7fff0000U

struct instruction {
	unsigned short code;
	unsigned char jt, jf;
	unsigned k;
};

struct program {
	unsigned short len;
	struct instruction *at;
};

#define STMT(code, k) { (code), 0, 0, (k) }
#define JUMP(code, k, jt, jf) { (code), (jt), (jf), (k) }
#define LD_ABS 0x20
#define JEQ 0x15
#define RET 0x06
#define RET_A 0x16

#define PROGRAM(name, ...) \
	struct instruction name##_[] = { __VA_ARGS__ }; \
	struct program name = { sizeof name##_ / sizeof *name##_, name##_ }

static long seccomp(unsigned operation, unsigned flags, void *argument)
{
	return syscall(SYS_seccomp, operation, flags, argument);
}

/* Answers so to that call, and lets all others through. */
static long answer(long number, unsigned what)
{
	PROGRAM(program, STMT(LD_ABS, 0), JUMP(JEQ, (unsigned)number, 0, 1), STMT(RET, what), STMT(RET, ALLOW));
	return seccomp(MODE_FILTER, 0, &program);
}

static void alone(void)
{
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
}

static long filters(const char *line)
{
	static char text[8192];
	read_whole("/proc/self/status", text, sizeof text);
	char *at = strstr(text, line);
	return at ? atol(at + strlen(line)) : -1;
}

static void strict(void)
{
	CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
	int status;
	pid_t child = fork();
	if (child == 0) {
		CHECK_EQ(prctl(PR_SET_SECCOMP, 1, 0, 0, 0), 0);
		if (write(1, "strict: this may be said\n", 25) != 25)
			syscall(SYS_exit, 9);
		syscall(SYS_exit, 4);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
	KILLED_BY(SIGKILL, {
		CHECK_EQ(seccomp(MODE_STRICT, 0, NULL), 0);
		syscall(SYS_getpid);
	});
	KILLED_BY(SIGKILL, {
		CHECK_EQ(seccomp(MODE_STRICT, 0, NULL), 0);
		syscall(SYS_exit_group, 0);
	});
	CHECK_ERRNO(seccomp(MODE_STRICT, 1, NULL), EINVAL);
	CHECK_ERRNO(seccomp(MODE_STRICT, 0, &status), EINVAL);
	CHECK_ERRNO(seccomp(4, 0, NULL), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_SECCOMP, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_SECCOMP, 3, 0, 0, 0), EINVAL);
	say("strict: all else kills");
}

static volatile sig_atomic_t told;
static siginfo_t what;

static void on_sys(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	what = *info;
	told++;
}

static void answers(void)
{
	IN_CHILD(0, {
		alone();
		CHECK_EQ(answer(SYS_getppid, ERRNO | 77), 0);
		CHECK_EQ(prctl(PR_GET_SECCOMP), 2);
		CHECK_ERRNO(syscall(SYS_getppid), 77);
		CHECK_EQ(filters("\nSeccomp:\t"), 2);
		CHECK_EQ(filters("Seccomp_filters:\t"), 1);
		CHECK_EQ(filters("NoNewPrivs:\t"), 1);
		/* An errno above the highest is that; none is success. */
		CHECK_EQ(answer(SYS_getuid, ERRNO | 0xffff), 0);
		CHECK_ERRNO(syscall(SYS_getuid), 4095);
		CHECK_EQ(answer(SYS_getgid, ERRNO), 0);
		CHECK_EQ(syscall(SYS_getgid), 0);
		CHECK_EQ(filters("Seccomp_filters:\t"), 3);
		CHECK_EQ(answer(SYS_getegid, LOGGED), 0);
		CHECK_EQ(syscall(SYS_getegid), 0);
		/* Nobody traces. */
		CHECK_EQ(answer(SYS_umask, TRACE | 5), 0);
		CHECK_ERRNO(syscall(SYS_umask, 0), ENOSYS);
		CHECK_ERRNO(seccomp(MODE_STRICT, 0, NULL), EINVAL);
		/* Children have them too. */
		IN_CHILD(0, CHECK_ERRNO(syscall(SYS_getppid), 77));
		/* A call that there is not can be refused as well. */
		CHECK_EQ(answer(1000, ERRNO | 3), 0);
		CHECK_ERRNO(syscall(1000), 3);
	});
	KILLED_BY(SIGSYS, {
		alone();
		CHECK_EQ(answer(SYS_getppid, KILL_PROCESS), 0);
		syscall(SYS_getppid);
	});
	KILLED_BY(SIGSYS, {
		alone();
		signal(SIGSYS, SIG_IGN);
		CHECK_EQ(answer(SYS_getppid, KILL_THREAD), 0);
		syscall(SYS_getppid);
	});
	/* What is no answer kills. */
	KILLED_BY(SIGSYS, {
		alone();
		CHECK_EQ(answer(SYS_getppid, 0x00010000), 0);
		syscall(SYS_getppid);
	});
	IN_CHILD(0, {
		alone();
		struct sigaction action = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
		CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
		CHECK_EQ(answer(SYS_getppid, TRAP | 12), 0);
		CHECK_EQ(syscall(SYS_getppid), SYS_getppid);
		CHECK_EQ(told, 1);
		CHECK_EQ(what.si_code, 1);
		CHECK_EQ(what.si_errno, 12);
		CHECK_EQ(what.si_syscall, SYS_getppid);
		CHECK_EQ(what.si_arch, 0xc000003e);
		CHECK(what.si_call_addr != NULL);
	});
	KILLED_BY(SIGSYS, {
		alone();
		CHECK_EQ(answer(SYS_getppid, TRAP), 0);
		syscall(SYS_getppid);
	});
	say("answers: errno, trap, log, kill");
}

static void order(void)
{
	/* The strictest counts, and the newest among equals. */
	IN_CHILD(0, {
		alone();
		CHECK_EQ(answer(SYS_getppid, ERRNO | 1), 0);
		CHECK_EQ(answer(SYS_getppid, ERRNO | 2), 0);
		CHECK_EQ(answer(SYS_getppid, LOGGED), 0);
		CHECK_EQ(answer(SYS_getppid, TRACE), 0);
		CHECK_ERRNO(syscall(SYS_getppid), 2);
		signal(SIGSYS, SIG_IGN);
		struct sigaction action = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
		CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
		told = 0;
		CHECK_EQ(answer(SYS_getppid, TRAP), 0);
		syscall(SYS_getppid);
		CHECK_EQ(told, 1);
		pid_t child = fork();
		if (child == 0) {
			CHECK_EQ(answer(SYS_getppid, KILL_THREAD), 0);
			syscall(SYS_getppid);
			_exit(0);
		}
		expect_signal(child, SIGSYS);
	});
	say("order: the strictest, then the newest");
}

/* Filters that compute: their answer to getppid(a, b, ...) is an errno. */
static long computed(struct program *program, long first, long second)
{
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		alone();
		if (seccomp(MODE_FILTER, 0, program) == -1)
			_exit(1);
		long result = syscall(SYS_getppid, first, second);
		result = result == -1 ? errno : 0;
		CHECK_EQ(write(pipes[1], &result, sizeof result), sizeof result);
		_exit(0);
	}
	long result;
	expect_exit(child, 0);
	CHECK_EQ(read(pipes[0], &result, sizeof result), sizeof result);
	close(pipes[0]);
	close(pipes[1]);
	return result;
}

static void machine(void)
{
#define START STMT(LD_ABS, 0), JUMP(JEQ, SYS_getppid, 1, 0), STMT(RET, ALLOW)
#define END STMT(0x54, 0xfff), STMT(0x44, ERRNO), STMT(RET_A, 0)
	PROGRAM(sum, START, STMT(LD_ABS, 16), STMT(0x02, 3), STMT(LD_ABS, 24), STMT(0x61, 3), STMT(0x0c, 0), END);
	CHECK_EQ(computed(&sum, 1000, 234), 1234);
	CHECK_EQ(computed(&sum, 0x100000001, 0x200000002), 3);
	PROGRAM(high, START, STMT(LD_ABS, 20), END);
	CHECK_EQ(computed(&high, 0x5500000001, 0), 0x55);
	PROGRAM(length, START, STMT(0x80, 0), END);
	CHECK_EQ(computed(&length, 0, 0), 64);
	PROGRAM(more, START, STMT(LD_ABS, 16), STMT(0x07, 0), STMT(LD_ABS, 24), STMT(0x1c, 0), STMT(0x84, 0),
		STMT(0x24, 3), STMT(0x34, 2), STMT(0x64, 2), STMT(0x74, 1), STMT(0xa4, 1), END);
	/* -(40 - 100) * 3 / 2 << 2 >> 1 ^ 1 */
	CHECK_EQ(computed(&more, 100, 40), 181);
	PROGRAM(divide, START, STMT(LD_ABS, 24), STMT(0x07, 0), STMT(LD_ABS, 16), STMT(0x3c, 0), END);
	CHECK_EQ(computed(&divide, 100, 7), 14);
	/* By nothing: the answer is 0, which kills. */
	KILLED_BY(SIGSYS, {
		alone();
		CHECK_EQ(seccomp(MODE_FILTER, 0, &divide), 0);
		syscall(SYS_getppid, 1, 0);
	});
	PROGRAM(compare, START, STMT(LD_ABS, 16), JUMP(0x25, 10, 0, 1), STMT(RET, ERRNO | 1), JUMP(0x35, 10, 0, 1),
		STMT(RET, ERRNO | 2), JUMP(0x45, 4, 0, 1), STMT(RET, ERRNO | 3), STMT(0x05, 1), STMT(RET, ERRNO | 9),
		STMT(RET, ERRNO | 4));
	CHECK_EQ(computed(&compare, 11, 0), 1);
	CHECK_EQ(computed(&compare, 10, 0), 2);
	CHECK_EQ(computed(&compare, 5, 0), 3);
	CHECK_EQ(computed(&compare, 2, 0), 4);
	say("machine: arithmetic, comparisons, memory");
}

static void refused(void)
{
	PROGRAM(good, STMT(RET, ALLOW));
	/* Who may gain privileges and has none may not. */
	IN_CHILD(0, {
		CHECK_EQ(setgid(65534), 0);
		CHECK_EQ(setuid(65534), 0);
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, &good), EACCES);
		alone();
		CHECK_EQ(seccomp(MODE_FILTER, 0, &good), 0);
	});
	IN_CHILD(0, {
		alone();
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, NULL), EFAULT);
		CHECK_ERRNO(seccomp(MODE_FILTER, 0x100, &good), EINVAL);
		struct program bad = { 0, good_ };
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, &bad), EINVAL);
		bad.len = 4097;
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, &bad), EINVAL);
		bad.len = 1;
		bad.at = (void *)nowhere;
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, &bad), EFAULT);
		struct instruction wrong[][2] = {
			{ STMT(LD_ABS, 0), STMT(LD_ABS, 0) },		/* no end */
			{ STMT(LD_ABS, 64), STMT(RET, ALLOW) },		/* beyond the record */
			{ STMT(LD_ABS, 2), STMT(RET, ALLOW) },		/* not a whole word */
			{ STMT(0x28, 0), STMT(RET, ALLOW) },		/* half a word */
			{ STMT(0x40, 0), STMT(RET, ALLOW) },		/* indirect */
			{ STMT(0x60, 0), STMT(RET, ALLOW) },		/* never written */
			{ STMT(0x02, 16), STMT(RET, ALLOW) },		/* no such word */
			{ STMT(0x34, 0), STMT(RET, ALLOW) },		/* by nothing */
			{ STMT(0x64, 32), STMT(RET, ALLOW) },		/* too far */
			{ STMT(0x94, 3), STMT(RET, ALLOW) },		/* remainder */
			{ STMT(0x05, 1), STMT(RET, ALLOW) },		/* jumps out */
			{ STMT(0x05, 0xffffffff), STMT(RET, ALLOW) },	/* back */
			{ JUMP(JEQ, 0, 0, 1), STMT(RET, ALLOW) },
			{ STMT(0xffff, 0), STMT(RET, ALLOW) },
			{ STMT(0x0e, 0), STMT(0x0e, 0) },		/* returns the index */
		};
		for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
			struct program program = { 2, wrong[i] };
			long got = seccomp(MODE_FILTER, 0, &program);
			if (got != -1 || errno != EINVAL)
				FAIL("program %zu gives %ld, errno %d", i, got, errno);
		}
		/* Written on one way only. */
		PROGRAM(half, JUMP(JEQ, 0, 0, 1), STMT(0x02, 0), STMT(0x60, 0), STMT(RET, ALLOW));
		CHECK_ERRNO(seccomp(MODE_FILTER, 0, &half), EINVAL);
		CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
		/* Some thirty-two thousand together, each filter for four more. */
		static struct instruction long_[4096];
		for (int i = 0; i < 4095; i++)
			long_[i] = (struct instruction)STMT(LD_ABS, 0);
		long_[4095] = (struct instruction)STMT(RET, ALLOW);
		struct program longest = { 4096, long_ };
		int count = 0;
		while (seccomp(MODE_FILTER, 0, &longest) == 0)
			count++;
		CHECK_EQ(errno, ENOMEM);
		CHECK_EQ(count, 7);
	});
	unsigned action[] = { KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOGGED, ALLOW, 0x7fc00000U };
	for (size_t i = 0; i < sizeof action / sizeof *action; i++)
		CHECK_EQ(seccomp(ACTION_AVAIL, 0, &action[i]), 0);
	unsigned other = 0x1234;
	CHECK_ERRNO(seccomp(ACTION_AVAIL, 0, &other), EOPNOTSUPP);
	CHECK_ERRNO(seccomp(ACTION_AVAIL, 0, NULL), EFAULT);
	CHECK_ERRNO(seccomp(ACTION_AVAIL, 1, action), EINVAL);
	unsigned short sizes[3];
	CHECK_EQ(seccomp(NOTIF_SIZES, 0, sizes), 0);
	CHECK_EQ(sizes[0], 80);
	CHECK_EQ(sizes[1], 24);
	CHECK_EQ(sizes[2], 64);
	say("refused: bad programs, the unprivileged, too many");
}

static volatile int go, seen;
static pid_t other_thread;

static void *other(void *argument)
{
	if (argument)
		CHECK_EQ(answer(SYS_getuid, ERRNO | 8), 0);
	other_thread = (pid_t)syscall(SYS_gettid);
	__atomic_store_n(&seen, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
		sched_yield();
	errno = 0;
	return (void *)(syscall(SYS_getppid) == -1 ? (long)errno : 0L);
}

static void *killed(void *argument)
{
	(void)argument;
	CHECK_EQ(answer(SYS_getppid, KILL_THREAD), 0);
	__atomic_store_n(&other_thread, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	syscall(SYS_getppid);
	return NULL;
}

static void threads(void)
{
	PROGRAM(program, STMT(LD_ABS, 0), JUMP(JEQ, SYS_getppid, 0, 1), STMT(RET, ERRNO | 7), STMT(RET, ALLOW));
	for (int all = 0; all < 2; all++)
		IN_CHILD(0, {
			pthread_t thread;
			void *result;
			alone();
			CHECK_EQ(pthread_create(&thread, NULL, other, NULL), 0);
			while (!__atomic_load_n(&seen, __ATOMIC_SEQ_CST))
				sched_yield();
			CHECK_EQ(seccomp(MODE_FILTER, all ? TSYNC : 0, &program), 0);
			__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
			CHECK_EQ(pthread_join(thread, &result), 0);
			CHECK_EQ((long)result, all ? 7 : 0);
			CHECK_ERRNO(syscall(SYS_getppid), 7);
		});
	/* One that has gone its own way is in the way. */
	IN_CHILD(0, {
		pthread_t thread;
		alone();
		CHECK_EQ(pthread_create(&thread, NULL, other, (void *)"apart"), 0);
		while (!__atomic_load_n(&seen, __ATOMIC_SEQ_CST))
			sched_yield();
		CHECK_EQ(seccomp(MODE_FILTER, TSYNC, &program), other_thread);
		CHECK_ERRNO(seccomp(MODE_FILTER, TSYNC | TSYNC_ESRCH, &program), ESRCH);
		CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
		__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		/* Now it is alone. */
		CHECK_EQ(seccomp(MODE_FILTER, TSYNC, &program), 0);
	});
	/* Just the thread. */
	IN_CHILD(5, {
		pthread_t thread;
		alone();
		CHECK_EQ(pthread_create(&thread, NULL, killed, NULL), 0);
		/* It leaves no word behind: it just is not there any more. */
		while (!__atomic_load_n(&other_thread, __ATOMIC_SEQ_CST))
			sched_yield();
		while (syscall(SYS_tgkill, getpid(), other_thread, 0) == 0)
			sched_yield();
		_exit(5);
	});
	say("threads: each its own, all together, one that dies");
}

static void traced(void)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		alone();
		CHECK_EQ(ptrace(PTRACE_TRACEME, 0, 0, 0), 0);
		kill(getpid(), SIGSTOP);
		CHECK_EQ(answer(SYS_getppid, TRACE | 0x1234), 0);
		CHECK_EQ(syscall(SYS_getppid), 42);
		/* Another call in its place is asked about too. */
		CHECK_EQ(answer(SYS_getuid, ERRNO | 5), 0);
		CHECK_ERRNO(syscall(SYS_getppid), 5);
		CHECK_EQ(syscall(SYS_getppid), getpid());
		_exit(3);
	}
	struct user_regs_struct registers;
	unsigned long message;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(ptrace(PTRACE_SETOPTIONS, child, 0, 1 << 7), 0);
	for (int round = 0; round < 3; round++) {
		CHECK_EQ(ptrace(PTRACE_CONT, child, 0, 0), 0);
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status >> 8, SIGTRAP | 7 << 8);
		CHECK_EQ(ptrace(PTRACE_GETEVENTMSG, child, 0, &message), 0);
		CHECK_EQ(message, 0x1234);
		CHECK_EQ(ptrace(PTRACE_GETREGS, child, 0, &registers), 0);
		CHECK_EQ(registers.orig_rax, SYS_getppid);
		CHECK_EQ(registers.rax, -ENOSYS);
		if (round == 0) {
			registers.orig_rax = (unsigned long)-1;
			registers.rax = 42;
		} else {
			registers.orig_rax = round == 1 ? SYS_getuid : SYS_getpid;
		}
		CHECK_EQ(ptrace(PTRACE_SETREGS, child, 0, &registers), 0);
	}
	/* What its filters are. */
	struct instruction copy[8];
	CHECK_EQ(ptrace(0x420c, child, (void *)0, NULL), 4);
	CHECK_EQ(ptrace(0x420c, child, (void *)1, copy), 4);
	CHECK_EQ(copy[2].k, ERRNO | 5);
	CHECK_EQ(ptrace(0x420c, child, (void *)0, copy), 4);
	CHECK_EQ(copy[2].k, TRACE | 0x1234);
	CHECK_ERRNO(ptrace(0x420c, child, (void *)2, NULL), ENOENT);
	CHECK_EQ(ptrace(PTRACE_CONT, child, 0, 0), 0);
	expect_exit(child, 3);
	say("traced: the tracer decides");
}

static volatile char selector;

static void on_dispatch(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	selector = 0;
	what = *info;
	ucontext_t *at = context;
	told++;
	at->uc_mcontext.gregs[REG_RAX] = 4711;
}

static void dispatched(void)
{
	const int set = 59;
	CHECK_ERRNO(prctl(set, 0, 1L, 0L, 0L), EINVAL);
	CHECK_ERRNO(prctl(set, 3, 0L, 0L, 0L), EINVAL);
	CHECK_ERRNO(prctl(set, 1, 8L, -8L, 0L), EINVAL);
	CHECK_ERRNO(prctl(set, 1, 0L, 0L, 1UL << 63), EFAULT);
	IN_CHILD(0, {
		struct sigaction action = { .sa_sigaction = on_dispatch, .sa_flags = SA_SIGINFO };
		CHECK_EQ(sigaction(SIGSYS, &action, NULL), 0);
		told = 0;
		CHECK_EQ(prctl(set, 1, 0L, 0L, &selector), 0);
		CHECK_EQ(syscall(SYS_getpid), getpid());
		selector = 1;
		CHECK_EQ(syscall(SYS_getppid), 4711);
		CHECK_EQ(told, 1);
		CHECK_EQ(what.si_code, 2);
		CHECK_EQ(what.si_syscall, SYS_getppid);
		/* Not a child's, and not of what is in the range. */
		CHECK_EQ(prctl(set, 1, 1L, -2L, &selector), 0);
		selector = 1;
		CHECK(syscall(SYS_getppid) != 4711);
		CHECK_EQ(prctl(set, 1, 0L, 0L, &selector), 0);
		selector = 0;
		IN_CHILD(0, {
			selector = 1;
			CHECK(syscall(SYS_getppid) != 4711);
		});
		selector = 1;
		CHECK_EQ(syscall(SYS_getppid), 4711);
		CHECK_EQ(prctl(set, 0, 0L, 0L, 0L), 0);
		selector = 1;
		CHECK(syscall(SYS_getppid) != 4711);
		CHECK_EQ(told, 2);
	});
	KILLED_BY(SIGSYS, {
		selector = 0;
		CHECK_EQ(prctl(set, 1, 0L, 0L, &selector), 0);
		selector = 2;
		syscall(SYS_getppid);
	});
	KILLED_BY(SIGSEGV, {
		CHECK_EQ(prctl(set, 1, 0L, 0L, (long)nowhere), 0);
		syscall(SYS_getppid);
	});
	say("dispatched: the program hears of its calls itself");
}

int main(int count, char **arguments)
{
	if (count > 1)
		return syscall(SYS_getppid) == -1 && errno == 11 ? 6 : 7;
	strict();
	answers();
	order();
	machine();
	refused();
	threads();
	traced();
	dispatched();
	IN_CHILD(6, {
		alone();
		CHECK_EQ(answer(SYS_getppid, ERRNO | 11), 0);
		execl("/proc/self/exe", arguments[0], "again", NULL);
		_exit(9);
	});
	say("exec: keeps them");
	return 0;
}
