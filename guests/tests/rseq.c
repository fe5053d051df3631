/* Restartable sequences: registering, where a thread runs, and sequences that a switch, a signal and another processor abort. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <time.h>

struct area {
	uint32_t start, cpu;
	uint64_t sequence;
	uint32_t flags, node, number, pad;
} __attribute__((aligned(32)));

struct sequence {
	uint32_t version, flags;
	uint64_t start, length, abort;
} __attribute__((aligned(32)));

#define SIGNATURE 0x53053053
#define rseq(area, length, flags, signature) syscall(SYS_rseq, area, length, flags, signature)

static _Thread_local struct area own;

/* glibc may have registered an area of its own; its place is found by asking for another. */
static void leave_libc(void)
{
	extern const ptrdiff_t __rseq_offset __attribute__((weak));
	extern const unsigned __rseq_size __attribute__((weak));
	if (&__rseq_size && __rseq_size) {
		char *thread;
		__asm__("mov %%fs:0, %0" : "=r"(thread));
		CHECK_EQ(rseq(thread + __rseq_offset, 32, 1, SIGNATURE), 0);
	}
}

static void mistakes(void)
{
	static char memory[128] __attribute__((aligned(64)));
	CHECK_ERRNO(rseq(memory, 32, 2, SIGNATURE), EINVAL);
	CHECK_ERRNO(rseq(memory + 1, 32, 0, SIGNATURE), EINVAL);
	CHECK_ERRNO(rseq(memory, 16, 0, SIGNATURE), EINVAL);
	CHECK_ERRNO(rseq((void *)0x7fffffffffe0, 32, 0, SIGNATURE), EFAULT);
	CHECK_ERRNO(rseq(memory, 32, 1, SIGNATURE), EINVAL);
	own.sequence = 0;
	own.cpu = 77;
	CHECK_EQ(rseq(&own, 32, 0, SIGNATURE), 0);
	CHECK(own.cpu < 64);
	CHECK_EQ(own.start, own.cpu);
	CHECK_ERRNO(rseq(&own, 32, 0, SIGNATURE), EBUSY);
	CHECK_ERRNO(rseq(&own, 32, 0, 1), EPERM);
	CHECK_ERRNO(rseq(memory, 32, 0, SIGNATURE), EINVAL);
	CHECK_ERRNO(rseq(&own, 64, 1, SIGNATURE), EINVAL);
	CHECK_ERRNO(rseq(&own, 32, 1, 1), EPERM);
	CHECK_EQ(rseq(&own, 32, 1, SIGNATURE), 0);
	CHECK_EQ(own.cpu, (uint32_t)-1);
	CHECK_EQ(own.start, 0);
	CHECK_ERRNO(rseq(&own, 32, 1, SIGNATURE), EINVAL);
	say("mistakes");
}

/* Adds 1 to what `counter` points to, or waits in the sequence for as long as *wait is not 0. Returns how often it was aborted. */
static long attempt(volatile long *counter, volatile int *inside, volatile int *wait)
{
	static struct sequence sequence;
	long aborted = 0;
	__asm__ volatile(
		"jmp 3f\n"
		".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n"
		"9: incq %[aborted]\n"
		"cmpq $0, %[aborted]\n"
		"jmp 4f\n"
		"3: leaq 1f(%%rip), %%rax\n"
		"movq %%rax, 8(%[sequence])\n"
		"leaq 2f(%%rip), %%rcx\n"
		"subq %%rax, %%rcx\n"
		"movq %%rcx, 16(%[sequence])\n"
		"leaq 9b(%%rip), %%rax\n"
		"movq %%rax, 24(%[sequence])\n"
		"movq %[sequence], 8(%[area])\n"
		"1: movl $1, (%[inside])\n"
		"5: cmpl $0, (%[wait])\n"
		"jne 5b\n"
		"incq (%[counter])\n"
		"2: nop\n"
		"4:\n"
		: [aborted] "+r"(aborted)
		: [sequence] "r"(&sequence), [area] "r"(&own), [inside] "r"(inside), [wait] "r"(wait), [counter] "r"(counter)
		: "rax", "rcx", "memory", "cc");
	return aborted;
}

static volatile int inside, wait_there;
static volatile long counter;

static void on_alarm(int signal)
{
	(void)signal;
	CHECK_EQ(own.sequence, 0);
}

static void signals(void)
{
	signal(SIGALRM, on_alarm);
	wait_there = 0;
	CHECK_EQ(attempt(&counter, &inside, &wait_there), 0);
	CHECK_EQ(counter, 1);
	wait_there = 1;
	ualarm(20000, 0);
	CHECK_EQ(attempt(&counter, &inside, &wait_there), 1);
	CHECK_EQ(counter, 1);
	say("a signal aborts");
}

static void *other(void *unused)
{
	(void)unused;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	for (int round = 0; round < 1000 && wait_there; round++)
		sched_yield();
	return NULL;
}

/* Another thread of the same processor takes its turn. */
static void preemption(void)
{
	cpu_set_t one, all;
	CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	CHECK_EQ(own.cpu, 0);
	wait_there = 1;
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, other, NULL), 0);
	CHECK_EQ(attempt(&counter, &inside, &wait_there), 1);
	wait_there = 0;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	for (int cpu = 0; cpu < CPU_COUNT(&all); cpu++) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
		CHECK_EQ(own.cpu, cpu);
		CHECK_EQ(own.start, cpu);
		CHECK_EQ(sched_getcpu(), cpu);
	}
	CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
	say("a switch aborts; a thread knows where it is");
}

static void *fence(void *unused)
{
	(void)unused;
	while (!inside)
		sched_yield();
	CHECK_EQ(syscall(SYS_membarrier, 1 << 8, 0, 0), 0);
	CHECK_EQ(syscall(SYS_membarrier, 1 << 7, 0, 0), 0);
	return NULL;
}

static void barriers(void)
{
	CHECK((syscall(SYS_membarrier, 0, 0, 0) & (3 << 7)) == 3 << 7);
	CHECK_ERRNO(syscall(SYS_membarrier, 1 << 7, 0, 0), EPERM);
	wait_there = 1;
	inside = 0;
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, fence, NULL), 0);
	CHECK_EQ(attempt(&counter, &inside, &wait_there), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	say("membarrier aborts");
}

static void children(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		/* It has the area of its parent. */
		CHECK_ERRNO(rseq(&own, 32, 0, SIGNATURE), EBUSY);
		wait_there = 1;
		ualarm(10000, 0);
		CHECK_EQ(attempt(&counter, &inside, &wait_there), 1);
		_exit(0);
	}
	expect_exit(child, 0);
	child = fork();
	if (!child) {
		/* What it announces is not sound. */
		static struct sequence bad = { .version = 1 };
		own.sequence = (uintptr_t)&bad;
		ualarm(10000, 0);
		for (;;)
			;
	}
	expect_signal(child, SIGSEGV);
	say("children");
}

int main(void)
{
	leave_libc();
	mistakes();
	CHECK_EQ(rseq(&own, 32, 0, SIGNATURE), 0);
	signals();
	preemption();
	barriers();
	children();
	return 0;
}
