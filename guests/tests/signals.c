/* Signal handlers: what they are told, on which stack and with which mask they run, and where the program goes on. */
#include "check.h"
#include <setjmp.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t count;
static volatile siginfo_t seen;
static sigjmp_buf escape;

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = handler;
	action.sa_flags = flags | SA_SIGINFO;
	sigemptyset(&action.sa_mask);
	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void note(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	seen = *info;
	count++;
}

static void note_and_leave(int signal, siginfo_t *info, void *context)
{
	note(signal, info, context);
	siglongjmp(escape, 1);
}

static void sent(void)
{
	handle(SIGUSR1, note, 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_EQ(count, 1);
	CHECK_EQ(seen.si_signo, SIGUSR1);
	CHECK_EQ(seen.si_code, SI_USER);
	CHECK_EQ(seen.si_pid, getpid());
	CHECK_EQ(seen.si_uid, getuid());
	CHECK(raise(SIGUSR1) == 0);
	CHECK_EQ(count, 2);
	CHECK_EQ(seen.si_code, SI_TKILL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(kill(getppid(), SIGUSR1) == 0);
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK_EQ(count, 3);
	CHECK_EQ(seen.si_pid, child);
	say("sent signals");
}

static void fault(volatile char *at, char write_or_read, int code)
{
	count = 0;
	if (sigsetjmp(escape, 1) == 0) {
		if (write_or_read == 'w')
			*at = 1;
		else
			(void)*at;
		FAIL("no fault");
	}
	CHECK_EQ(count, 1);
	CHECK_EQ(seen.si_signo, SIGSEGV);
	CHECK_EQ(seen.si_code, code);
	CHECK_EQ(seen.si_addr, at);
}

static void memory_faults(void)
{
	unsigned char *base = map_pages(8, PROT_READ | PROT_WRITE);
	handle(SIGSEGV, note_and_leave, 0);
	fault(NULL, 'r', SEGV_MAPERR);
	fault(nowhere, 'w', SEGV_MAPERR);
	CHECK(mprotect(base + PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(base + 2 * PAGE, PAGE, PROT_NONE) == 0);
	fault((char *)base + PAGE + 123, 'w', SEGV_ACCERR);
	fault((char *)base + 2 * PAGE + 7, 'r', SEGV_ACCERR);
	base[3 * PAGE] = 1;
	CHECK(mprotect(base + 3 * PAGE, PAGE, PROT_READ) == 0);
	fault((char *)base + 3 * PAGE, 'w', SEGV_ACCERR);
	CHECK(munmap(base + 4 * PAGE, PAGE) == 0);
	fault((char *)base + 4 * PAGE + 4095, 'r', SEGV_MAPERR);
	CHECK(munmap(base, 8 * PAGE) == 0);
	fault((char *)base, 'w', SEGV_MAPERR);
	/* An address that is not canonical has no si_addr. */
	count = 0;
	if (sigsetjmp(escape, 1) == 0) {
		__asm__ volatile("movb (%0), %%al" : : "r"(0x8000000000000000UL) : "al", "memory");
		FAIL("no fault");
	}
	CHECK_EQ(seen.si_code, SI_KERNEL);
	CHECK_EQ(seen.si_addr, 0);
	signal(SIGSEGV, SIG_DFL);
	say("SIGSEGV: address and code");
}

/* Two handlers: the first goes on where nothing can be executed, the second brings the program back. */
static ucontext_t before, at_fault;

static void go_nowhere(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	before = *(ucontext_t *)context;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)0x0000800000000000UL;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RBX] = 4711;
}

static void come_back(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	seen = *info;
	at_fault = *(ucontext_t *)context;
	memcpy(((ucontext_t *)context)->uc_mcontext.gregs, before.uc_mcontext.gregs, sizeof before.uc_mcontext.gregs);
}

static void no_address(void)
{
	handle(SIGUSR1, go_nowhere, 0);
	handle(SIGSEGV, come_back, 0);
	CHECK_EQ(raise(SIGUSR1), 0);
	CHECK_EQ(at_fault.uc_mcontext.gregs[REG_RIP], 0x0000800000000000);
	CHECK_EQ(at_fault.uc_mcontext.gregs[REG_RBX], 4711);
	CHECK_EQ(at_fault.uc_mcontext.gregs[REG_RSP], before.uc_mcontext.gregs[REG_RSP]);
	CHECK_EQ(seen.si_code, SI_KERNEL);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	say("back to an address that is none");
}

/* The handler makes the page usable, and the program goes on with the instruction that faulted. */
static void mend(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	count++;
	CHECK(mprotect((void *)((uintptr_t)info->si_addr & -PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void mended(void)
{
	unsigned char *base = map_pages(64, PROT_NONE);
	handle(SIGSEGV, mend, 0);
	count = 0;
	for (size_t page = 0; page < 64; page++)
		base[page * PAGE + page] = (unsigned char)page;
	CHECK_EQ(count, 64);
	for (size_t page = 0; page < 64; page++)
		CHECK_EQ(base[page * PAGE + page], page);
	signal(SIGSEGV, SIG_DFL);
	CHECK(munmap(base, 64 * PAGE) == 0);
	say("64 faults mended");
}

static void arithmetic(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	seen = *info;
	ucontext_t *machine = context;
	machine->uc_mcontext.gregs[REG_RCX] = 4; /* the divisor */
}

static void registers(void)
{
	unsigned long quotient;
	handle(SIGFPE, arithmetic, 0);
	__asm__ volatile("xor %%edx, %%edx; mov $20, %%eax; xor %%ecx, %%ecx; div %%rcx"
			 : "=a"(quotient) : : "rcx", "rdx", "cc");
	CHECK_EQ(quotient, 5);
	CHECK_EQ(seen.si_code, FPE_INTDIV);
	signal(SIGFPE, SIG_DFL);
	say("a handler changes a register");
}

static unsigned char *other_stack;
static volatile int was_on_other_stack;

static void where(int signal, siginfo_t *info, void *context)
{
	unsigned char here;
	note(signal, info, context);
	was_on_other_stack = &here >= other_stack && &here < other_stack + 16 * PAGE;
	stack_t now;
	CHECK(sigaltstack(NULL, &now) == 0);
	CHECK_EQ(now.ss_flags, was_on_other_stack ? SS_ONSTACK : 0);
	if (was_on_other_stack)
		CHECK_ERRNO(syscall(SYS_sigaltstack, &now, NULL), EPERM);
}

static void alternate_stack(void)
{
	other_stack = map_pages(16, PROT_READ | PROT_WRITE);
	stack_t stack = { .ss_sp = other_stack, .ss_size = 16 * PAGE, .ss_flags = 0 }, old;
	CHECK(sigaltstack(&stack, &old) == 0);
	CHECK_EQ(old.ss_flags, SS_DISABLE);
	handle(SIGUSR1, where, 0);
	CHECK(raise(SIGUSR1) == 0);
	CHECK_EQ(was_on_other_stack, 0);
	handle(SIGUSR1, where, SA_ONSTACK);
	CHECK(raise(SIGUSR1) == 0);
	CHECK_EQ(was_on_other_stack, 1);
	IN_CHILD(0, { /* inherited */
		was_on_other_stack = 0;
		CHECK(raise(SIGUSR1) == 0);
		CHECK_EQ(was_on_other_stack, 1);
	});
	stack.ss_size = 100;
	CHECK_ERRNO(sigaltstack(&stack, NULL), ENOMEM);
	stack.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&stack, NULL) == 0);
	CHECK(munmap(other_stack, 16 * PAGE) == 0);
	say("sigaltstack");
}

static void masks(void)
{
	sigset_t block, pending, old;
	handle(SIGUSR1, note, 0);
	handle(SIGUSR2, note, 0);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	count = 0;
	CHECK(sigprocmask(SIG_BLOCK, &block, &old) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_EQ(count, 0);
	CHECK(sigpending(&pending) == 0);
	CHECK_EQ(sigismember(&pending, SIGUSR1), 1);
	CHECK_EQ(sigismember(&pending, SIGUSR2), 0);
	IN_CHILD(0, { /* pending signals are not inherited, the mask is */
		CHECK(sigpending(&pending) == 0);
		CHECK_EQ(sigismember(&pending, SIGUSR1), 0);
		CHECK(sigprocmask(SIG_SETMASK, NULL, &pending) == 0);
		CHECK_EQ(sigismember(&pending, SIGUSR1), 1);
	});
	CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	CHECK_EQ(count, 1); /* once, however often it was sent */
	/* sigsuspend lets it through only while it waits. */
	CHECK(sigprocmask(SIG_BLOCK, &block, NULL) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_ERRNO(sigsuspend(&old), EINTR);
	CHECK_EQ(count, 2);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &pending) == 0);
	CHECK_EQ(sigismember(&pending, SIGUSR1), 1);
	/* SIGKILL and SIGSTOP cannot be blocked or caught. */
	sigfillset(&block);
	CHECK(sigprocmask(SIG_SETMASK, &block, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, &old, &pending) == 0);
	CHECK_EQ(sigismember(&pending, SIGKILL), 0);
	CHECK_EQ(sigismember(&pending, SIGSTOP), 0);
	struct sigaction action = { .sa_handler = SIG_IGN };
	CHECK_ERRNO(sigaction(SIGKILL, &action, NULL), EINVAL);
	CHECK_ERRNO(sigaction(SIGSTOP, &action, NULL), EINVAL);
	say("masks");
}

static volatile int depth, deepest;

static void nested(int signal, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (count++ < 2)
		raise(signal);
	depth--;
}

static void flags(void)
{
	struct sigaction now;
	handle(SIGUSR1, nested, 0);
	count = depth = deepest = 0;
	raise(SIGUSR1); /* blocked while its handler runs: one after the other */
	CHECK_EQ(deepest, 1);
	CHECK_EQ(count, 3);
	say("its own signal is blocked in a handler: depth %d", deepest);
	signal(SIGUSR1, SIG_IGN);
	handle(SIGUSR1, nested, SA_NODEFER);
	count = depth = deepest = 0;
	raise(SIGUSR1);
	CHECK_EQ(deepest, 3);
	CHECK_EQ(count, 3);
	handle(SIGUSR1, note, (int)SA_RESETHAND);
	raise(SIGUSR1);
	CHECK(sigaction(SIGUSR1, NULL, &now) == 0);
	CHECK(now.sa_handler == SIG_DFL);
	say("SA_NODEFER, SA_RESETHAND");
}

/* A system call that waits ends with EINTR, or goes on where SA_RESTART says so. */
static void interrupted_calls(void)
{
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0);
	for (int restart = 0; restart < 2; restart++) {
		handle(SIGUSR1, note, restart ? SA_RESTART : 0);
		count = 0;
		pid_t parent = getpid(), child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			usleep(20000);
			kill(parent, SIGUSR1);
			usleep(20000);
			CHECK_EQ(write(ends[1], "x", 1), 1);
			_exit(0);
		}
		if (!restart)
			CHECK_ERRNO(read(ends[0], &byte, 1), EINTR);
		CHECK_EQ(read(ends[0], &byte, 1), 1);
		CHECK_EQ(count, 1);
		expect_exit(child, 0);
	}
	close(ends[0]), close(ends[1]);
	/* nanosleep is interrupted and says how much is left. */
	handle(SIGUSR1, note, SA_RESTART);
	pid_t parent = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		usleep(20000);
		kill(parent, SIGUSR1);
		_exit(0);
	}
	struct timespec time = { 30, 0 }, left = { 0, 0 };
	CHECK_ERRNO(nanosleep(&time, &left), EINTR);
	CHECK(left.tv_sec >= 20 && left.tv_sec < 30);
	expect_exit(child, 0);
	say("interrupted calls: EINTR, SA_RESTART");
}

static void children_and_alarms(void)
{
	sigset_t block, old;
	sigemptyset(&block);
	sigaddset(&block, SIGCHLD);
	sigaddset(&block, SIGALRM);
	CHECK(sigprocmask(SIG_BLOCK, &block, &old) == 0);
	handle(SIGCHLD, note, 0);
	handle(SIGALRM, note, 0);
	count = 0;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(12);
	while (count < 1)
		sigsuspend(&old);
	CHECK_EQ(seen.si_signo, SIGCHLD);
	CHECK_EQ(seen.si_code, CLD_EXITED);
	CHECK_EQ(seen.si_pid, child);
	CHECK_EQ(seen.si_status, 12);
	expect_exit(child, 12);
	CHECK_EQ(alarm(100), 0);
	unsigned left = alarm(1);
	CHECK(left == 100 || left == 99);
	while (count < 2)
		sigsuspend(&old);
	CHECK_EQ(seen.si_signo, SIGALRM);
	CHECK_EQ(alarm(0), 0);
	struct itimerval timer = { { 0, 5000 }, { 0, 5000 } };
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	while (count < 7)
		sigsuspend(&old);
	memset(&timer, 0, sizeof timer);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
	KILLED_BY(SIGALRM, { alarm(1); pause(); });
	IN_CHILD(0, { /* alarms are not inherited by fork */
		alarm(100);
		IN_CHILD(0, CHECK_EQ(alarm(0), 0));
		CHECK(alarm(0) > 90);
	});
	say("SIGCHLD, alarm, setitimer");
}

int main(void)
{
	sent();
	memory_faults();
	no_address();
	mended();
	registers();
	alternate_stack();
	masks();
	flags();
	interrupted_calls();
	children_and_alarms();
	return 0;
}
