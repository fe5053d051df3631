/* Breakpoints of the processor, set by a tracer: what stops a tracee and what it is told, that they are a thread's own,
 * and what is refused. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define DEBUG(n) ((void *)(offsetof(struct user, u_debugreg) + 8 * (n)))

enum kind { EXECUTE = 0, WRITE = 1, PORTS = 2, ACCESS = 3 };
enum size { ONE = 0, TWO = 1, EIGHT = 2, FOUR = 3 };

/* DR7 with breakpoint `n` on. */
static unsigned long on(int n, enum kind kind, enum size size)
{
	return 1UL << (2 * n) | (unsigned long)kind << (16 + 4 * n) | (unsigned long)size << (18 + 4 * n);
}

static volatile long watched[4];
static volatile long others[64];

static unsigned long debug(pid_t child, int n)
{
	errno = 0;
	long value = ptrace(PTRACE_PEEKUSER, child, DEBUG(n), NULL);
	CHECK_EQ(errno, 0);
	return (unsigned long)value;
}

static void set(pid_t child, int n, unsigned long value)
{
	CHECK_EQ(ptrace(PTRACE_POKEUSER, child, DEBUG(n), value), 0);
}

/* A child that does `work` once its tracer lets it. */
static pid_t tracee(void (*work)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
		raise(SIGSTOP);
		work();
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	return child;
}

static void go_on(pid_t child)
{
	CHECK_EQ(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
}

/* Waits for the stop at a breakpoint, and says which. */
static void stopped(pid_t child, const char *where)
{
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	if (!WIFSTOPPED(status))
		FAIL("%s: it did not stop but ended: %x", where, status);
	CHECK_EQ(WSTOPSIG(status), SIGTRAP);
	siginfo_t info;
	CHECK_EQ(ptrace(PTRACE_GETSIGINFO, child, NULL, &info), 0);
	say("%s: code %d, DR6 %lx", where, info.si_code, debug(child, 6));
}

static void stores(void)
{
	long seen = watched[0];
	watched[1] = seen + 1;
	watched[0] = 1;
	((volatile char *)watched)[7] = 2;
	seen = watched[2];
	watched[2] = seen + 3;
}

static void data(void)
{
	pid_t child = tracee(stores);
	say("at first: DR0 %lx, DR6 %lx, DR7 %lx", debug(child, 0), debug(child, 6), debug(child, 7));
	set(child, 0, (unsigned long)&watched[0]);
	set(child, 2, (unsigned long)&watched[2]);
	set(child, 7, on(0, WRITE, EIGHT) | on(2, ACCESS, EIGHT));
	CHECK_EQ(debug(child, 0), (unsigned long)&watched[0]);
	CHECK_EQ(debug(child, 2), (unsigned long)&watched[2]);
	CHECK_EQ(debug(child, 7), on(0, WRITE, EIGHT) | on(2, ACCESS, EIGHT));
	go_on(child);
	stopped(child, "the first store");
	/* It comes after the store. */
	CHECK_EQ(ptrace(PTRACE_PEEKDATA, child, (void *)&watched[0], NULL), 1);
	go_on(child);
	stopped(child, "a store of its last byte");
	set(child, 6, 0);
	say("then DR6 is %lx", debug(child, 6));
	go_on(child);
	stopped(child, "a load");
	go_on(child);
	stopped(child, "a store");
	go_on(child);
	expect_exit(child, 0);
}

static void __attribute__((noinline)) called(void)
{
	__asm__ volatile("" ::: "memory");
	watched[3]++;
}

static void calls_it(void)
{
	called();
	called();
	watched[1] = 1;
}

static void execution(void)
{
	pid_t child = tracee(calls_it);
	set(child, 1, (unsigned long)called);
	set(child, 7, on(1, EXECUTE, ONE));
	for (int turn = 0; turn < 2; turn++) {
		go_on(child);
		stopped(child, "a function");
		struct user_regs_struct registers;
		CHECK_EQ(ptrace(PTRACE_GETREGS, child, NULL, &registers), 0);
		CHECK_EQ(registers.rip, (unsigned long)called);
		CHECK_EQ(ptrace(PTRACE_PEEKDATA, child, (void *)&watched[3], NULL), turn);
	}
	/* A step from there. */
	CHECK_EQ(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
	stopped(child, "a step");
	set(child, 7, 0);
	go_on(child);
	expect_exit(child, 0);
}

static void *stores_too(void *unused)
{
	for (int i = 0; i < 100; i++) {
		watched[0]++;
		sched_yield();
	}
	return unused;
}

static void with_a_thread(void)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, stores_too, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	IN_CHILD(0, watched[0] = 5);
	watched[0] = 7;
}

/* Another thread and a child are not stopped, on whatever processor they run, nor is another process at the same address. */
static void whose_they_are(void)
{
	pid_t child = tracee(with_a_thread), bystander = fork();
	CHECK(bystander >= 0);
	if (bystander == 0) {
		for (int i = 0; i < 2000; i++) {
			watched[0] = i;
			if (i % 100 == 0)
				sched_yield();
		}
		_exit(0);
	}
	set(child, 0, (unsigned long)&watched[0]);
	set(child, 7, on(0, WRITE, EIGHT));
	go_on(child);
	int status;
	/* The child of the child ends. */
	CHECK_EQ(waitpid(child, &status, 0), child);
	while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGCHLD) {
		CHECK_EQ(ptrace(PTRACE_CONT, child, NULL, SIGCHLD), 0);
		CHECK_EQ(waitpid(child, &status, 0), child);
	}
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	CHECK_EQ(ptrace(PTRACE_PEEKDATA, child, (void *)&watched[0], NULL), 7);
	say("the thread's own store: DR6 %lx", debug(child, 6));
	go_on(child);
	expect_exit(child, 0);
	expect_exit(bystander, 0);
}

static void counts(void)
{
	for (int i = 0; i < 50; i++) {
		watched[0] = i;
		others[i] = i;
		sched_yield();
	}
}

/* Two tracees with different breakpoints that take turns. */
static void two_at_once(void)
{
	cpu_set_t before, one;
	CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &before)) {
			CPU_SET(cpu, &one);
			break;
		}
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	pid_t first = tracee(counts), second = tracee(counts);
	set(first, 0, (unsigned long)&watched[0]);
	set(first, 7, on(0, WRITE, EIGHT));
	set(second, 3, (unsigned long)&others[7]);
	set(second, 7, on(3, WRITE, EIGHT));
	go_on(first), go_on(second);
	int hits_first = 0, hits_second = 0, ended = 0;
	while (ended < 2) {
		int status;
		pid_t child = waitpid(-1, &status, 0);
		CHECK(child == first || child == second);
		if (WIFEXITED(status)) {
			ended++;
			continue;
		}
		CHECK(WIFSTOPPED(status));
		CHECK_EQ(WSTOPSIG(status), SIGTRAP);
		CHECK_EQ(debug(child, 6), child == first ? 0xffff0ff1 : 0xffff0ff8);
		++*(child == first ? &hits_first : &hits_second);
		go_on(child);
	}
	CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
	say("one was stopped %d times, the other %d times", hits_first, hits_second);
}

static void run_another(void)
{
	execl("/proc/self/exe", "breakpoints", "exec", NULL);
}

static void ends_with_the_program(void)
{
	pid_t child = tracee(run_another);
	set(child, 0, (unsigned long)&watched[0]);
	set(child, 7, on(0, WRITE, EIGHT));
	go_on(child);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	say("after exec: DR0 %lx, DR7 %lx", debug(child, 0), debug(child, 7));
	go_on(child);
	expect_exit(child, 0);
}

static void nothing(void)
{
}

static void refused(void)
{
	pid_t child = tracee(nothing);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(4), 0L), EIO);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(5), 0L), EIO);
	CHECK_EQ(debug(child, 4), 0);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(0), 0xffff800000000000UL), EINVAL);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, (void *)((char *)DEBUG(0) + 1), 0L), EIO);
	set(child, 0, (unsigned long)&watched[0] + 1);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(7), on(0, WRITE, EIGHT)), EINVAL);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(7), on(0, WRITE, TWO)), EINVAL);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(7), on(0, PORTS, ONE)), EINVAL);
	CHECK_ERRNO(ptrace(PTRACE_POKEUSER, child, DEBUG(7), on(0, EXECUTE, TWO)), EINVAL);
	CHECK_EQ(debug(child, 7), 0);
	/* Bits that concern more than the thread have no effect. */
	set(child, 7, on(0, WRITE, ONE) | 0xff0000ff00);
	say("DR7 is %lx", debug(child, 7));
	go_on(child);
	expect_exit(child, 0);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		watched[0] = 1;
		return 0;
	}
	data();
	execution();
	whose_they_are();
	two_at_once();
	ends_with_the_program();
	refused();
	say("breakpoints: ok");
	return 0;
}
