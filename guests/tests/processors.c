/* Memory and several processors: what one thread takes away, no other one still has. With one processor it is the same
 * program, only less likely to fail. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <time.h>

#define WRITERS 3

static __thread sigjmp_buf refused;
static volatile int stop;
static unsigned char *volatile target;
static volatile long stored[WRITERS], faults[WRITERS];

static void on_refusal(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if ((unsigned char *)info->si_addr < target || (unsigned char *)info->si_addr >= target + 16 * PAGE)
		_exit(98);
	siglongjmp(refused, 1);
}

/* Stores into the first page of the target as fast as it can; what is refused is counted and tried again. */
static void *store_for_ever(void *number)
{
	long self = (long)number;
	if (sigsetjmp(refused, 1))
		faults[self]++;
	while (!stop) {
		((volatile unsigned long *)target)[self]++;
		stored[self]++;
	}
	return NULL;
}

static void pause_ns(long nanoseconds)
{
	struct timespec time = { 0, nanoseconds };
	while (nanosleep(&time, &time) == -1)
		;
}

static void until_all_have(volatile long *counts)
{
	long before[WRITERS];
	for (int i = 0; i < WRITERS; i++)
		before[i] = counts[i];
	for (int i = 0; i < WRITERS; i++)
		while (counts[i] == before[i])
			sched_yield();
}

/* The words do not change while this thread looks on. */
static void must_stand_still(const volatile unsigned long *words, const char *when)
{
	unsigned long before[WRITERS];
	for (int i = 0; i < WRITERS; i++)
		before[i] = words[i];
	for (int turn = 0; turn < 2000; turn++)
		for (int i = 0; i < WRITERS; i++)
			if (words[i] != before[i])
				FAIL("writer %d stored after %s", i, when);
}

static void with_writers(void (*body)(void))
{
	pthread_t threads[WRITERS];
	struct sigaction action = { .sa_sigaction = on_refusal, .sa_flags = SA_SIGINFO | SA_NODEFER };
	sigaction(SIGSEGV, &action, NULL);
	target = map_pages(16, PROT_READ | PROT_WRITE);
	stop = 0;
	for (long i = 0; i < WRITERS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, store_for_ever, (void *)i), 0);
	until_all_have(stored);
	body();
	stop = 1;
	for (int i = 0; i < WRITERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(munmap(target, 16 * PAGE), 0);
	signal(SIGSEGV, SIG_DFL);
}

static void protect(void)
{
	for (int round = 0; round < 100; round++) {
		/* One page, and so many that everything is dropped. */
		size_t length = round % 2 ? PAGE : 16 * PAGE;
		CHECK_EQ(mprotect(target, length, PROT_READ), 0);
		must_stand_still((unsigned long *)target, "mprotect took the right to");
		if (round % 8 == 0)
			until_all_have(faults);
		CHECK_EQ(mprotect(target, length, PROT_READ | PROT_WRITE), 0);
		if (round % 8 == 0)
			until_all_have(stored);
	}
	say("a store is refused as soon as mprotect has returned");
}

static void unmap(void)
{
	for (int round = 0; round < 100; round++) {
		CHECK_EQ(munmap(target, PAGE), 0);
		/* Frames that were just freed are the first to be used again. */
		unsigned char *reused = map_pages(8, PROT_READ | PROT_WRITE);
		CHECK(reused != target);
		for (size_t i = 0; i < 8 * PAGE; i++)
			CHECK_EQ(reused[i], 0);
		memset(reused, 0xa5, 8 * PAGE);
		for (int turn = 0; turn < 20; turn++)
			for (size_t i = 0; i < 8 * PAGE; i += 8)
				if (*(volatile unsigned long *)(reused + i) != 0xa5a5a5a5a5a5a5a5)
					FAIL("a store through an unmapped address hit another page");
		CHECK_EQ(munmap(reused, 8 * PAGE), 0);
		CHECK_EQ((long)mmap(target, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 (long)target);
		if (round % 8 == 0)
			until_all_have(stored);
	}
	say("a page that was unmapped and used again is nobody else's");
}

static void copy(void)
{
	for (int round = 0; round < 30; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			/* The writers are the parent's: here nothing moves. */
			must_stand_still((unsigned long *)target, "fork into the child's copy");
			for (int i = 0; i < WRITERS; i++)
				((volatile unsigned long *)target)[i] = 1;
			must_stand_still((unsigned long *)target, "the child's own store");
			_exit(0);
		}
		expect_exit(child, 0);
		for (int i = 0; i < WRITERS; i++)
			CHECK(((volatile unsigned long *)target)[i] > 1);
	}
	until_all_have(stored);
	say("a child of a process whose threads store sees one moment");
}

static void discard(void)
{
	for (int round = 0; round < 100; round++) {
		CHECK_EQ(madvise(target, PAGE, MADV_DONTNEED), 0);
		if (round % 8 == 0)
			until_all_have(stored);
		/* Counters that start again at nothing cannot be above what was stored in this round. */
		CHECK_EQ(mprotect(target, PAGE, PROT_READ), 0);
		must_stand_still((unsigned long *)target, "mprotect after a discard");
		CHECK_EQ(mprotect(target, PAGE, PROT_READ | PROT_WRITE), 0);
	}
	say("pages are discarded under running threads");
}

static void move(void)
{
	for (int round = 0; round < 50; round++) {
		unsigned char *to = map_pages(1, PROT_NONE);
		CHECK_EQ((long)mremap(target, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to), (long)to);
		must_stand_still((unsigned long *)to, "mremap moved the page away");
		CHECK_EQ((long)mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target), (long)target);
		if (round % 8 == 0)
			until_all_have(stored);
	}
	say("a page that mremap has moved is not reached by its old address");
}

/* Each thread maps, fills, checks and unmaps memory of its own. */
static void *churn(void *number)
{
	unsigned long self = (unsigned long)number;
	unsigned long random = self * 2654435761 + 1;
	unsigned char *own[8] = { 0 };
	size_t pages[8] = { 0 };
	for (int round = 0; round < 400; round++) {
		random = random * 6364136223846793005 + 1442695040888963407;
		int slot = (int)(random >> 60) & 7;
		if (own[slot] != NULL) {
			for (size_t page = 0; page < pages[slot]; page++)
				CHECK_EQ(*(unsigned long *)(own[slot] + page * PAGE), self << 32 | (unsigned long)slot << 16 | page);
			CHECK_EQ(munmap(own[slot], pages[slot] * PAGE), 0);
			own[slot] = NULL;
			continue;
		}
		pages[slot] = 1 + (random >> 50 & 31);
		own[slot] = map_pages(pages[slot], PROT_READ | PROT_WRITE);
		for (size_t page = 0; page < pages[slot]; page++) {
			unsigned long *word = (unsigned long *)(own[slot] + page * PAGE);
			CHECK_EQ(*word, 0);
			*word = self << 32 | (unsigned long)slot << 16 | page;
		}
		if (random >> 48 & 1) {
			CHECK_EQ(mprotect(own[slot], PAGE, PROT_READ), 0);
			CHECK_EQ(mprotect(own[slot], PAGE, PROT_READ | PROT_WRITE), 0);
		}
	}
	for (int slot = 0; slot < 8; slot++)
		if (own[slot] != NULL)
			CHECK_EQ(munmap(own[slot], pages[slot] * PAGE), 0);
	return NULL;
}

static void everybody_maps(void)
{
	pthread_t threads[6];
	for (long i = 0; i < 6; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (int round = 0; round < 10; round++)
		IN_CHILD(0, churn((void *)77L));
	for (int i = 0; i < 6; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	say("threads and children that map at once keep what is theirs");
}

/* All threads touch the same fresh pages at once: each page comes once. */
static unsigned char *volatile fresh;
static pthread_barrier_t line;

static void *touch_all(void *number)
{
	for (int round = 0; round < 20; round++) {
		pthread_barrier_wait(&line);
		for (int page = 0; page < 64; page++)
			__atomic_fetch_add((long *)(fresh + page * PAGE), (long)number, __ATOMIC_RELAXED);
		pthread_barrier_wait(&line);
	}
	return NULL;
}

static void same_faults(void)
{
	pthread_t threads[4];
	CHECK_EQ(pthread_barrier_init(&line, NULL, 5), 0);
	for (long i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, touch_all, (void *)(1L << 8 * i)), 0);
	for (int round = 0; round < 20; round++) {
		fresh = map_pages(64, PROT_READ | PROT_WRITE);
		pthread_barrier_wait(&line);
		pthread_barrier_wait(&line);
		for (int page = 0; page < 64; page++)
			CHECK_EQ(*(long *)(fresh + page * PAGE), 0x01010101);
		CHECK_EQ(munmap(fresh, 64 * PAGE), 0);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	say("a page that several threads touch first is one page");
}

/* One side stores and loads with nothing between, the other has a barrier made in both: not both may miss the other's store. */
static volatile long turn, here, there, seen;

#define MEMBARRIER(command) syscall(SYS_membarrier, command, 0, 0)

static void *fast_side(void *unused)
{
	(void)unused;
	for (long round = 1; round <= 500; round++) {
		for (int turns = 1; __atomic_load_n(&turn, __ATOMIC_ACQUIRE) != round; turns++)
			if (turns % 256 == 0)
				sched_yield();
		here = round;
		long other = there;
		seen = other;
		__atomic_store_n(&turn, -round, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void barriers(void)
{
	pthread_t thread;
	long commands = MEMBARRIER(0);
	CHECK_EQ(commands & 0x7f, 0x7f);
	CHECK_ERRNO(MEMBARRIER(1 << 3), EPERM);
	CHECK_ERRNO(MEMBARRIER(1 << 5), EPERM);
	CHECK_ERRNO(MEMBARRIER(3), EINVAL);
	CHECK_ERRNO(MEMBARRIER(1 << 20), EINVAL);
	CHECK_ERRNO(syscall(SYS_membarrier, 0, 1, 0), EINVAL);
	CHECK_EQ(MEMBARRIER(1 << 4), 0);
	CHECK_EQ(MEMBARRIER(1 << 3), 0);
	CHECK_EQ(MEMBARRIER(1 << 6), 0);
	CHECK_EQ(MEMBARRIER(1 << 5), 0);
	CHECK_EQ(MEMBARRIER(1), 0);
	CHECK_EQ(MEMBARRIER(1 << 1), 0);
	CHECK_EQ(pthread_create(&thread, NULL, fast_side, NULL), 0);
	for (long round = 1; round <= 500; round++) {
		__atomic_store_n(&turn, round, __ATOMIC_RELEASE);
		there = round;
		CHECK_EQ(MEMBARRIER(1 << (round % 2 ? 3 : 5)), 0);
		long other = here;
		while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != -round)
			sched_yield();
		if (other != round && seen != round)
			FAIL("in round %ld neither side saw the other", round);
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	say("a barrier is made in other threads");
}

static void where(void)
{
	cpu_set_t all, one;
	CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
	int count = CPU_COUNT(&all);
	CHECK_EQ(count, sysconf(_SC_NPROCESSORS_ONLN));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
		for (int i = 0; i < 5; i++) {
			CHECK_EQ(sched_getcpu(), cpu);
			pause_ns(100000);
			sched_yield();
		}
		CHECK_EQ(sched_getaffinity(0, sizeof one, &one), 0);
		CHECK(CPU_ISSET(cpu, &one) && CPU_COUNT(&one) == 1);
	}
	CPU_ZERO(&one);
	CHECK_ERRNO(sched_setaffinity(0, sizeof one, &one), EINVAL);
	CPU_SET(1000, &one);
	CHECK_ERRNO(sched_setaffinity(0, sizeof one, &one), EINVAL);
	CHECK_ERRNO(sched_setaffinity(999999, sizeof all, &all), ESRCH);
	CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
	say("a thread runs where it is told to");
}

int main(void)
{
	alarm(100);
	where();
	with_writers(protect);
	with_writers(unmap);
	with_writers(copy);
	with_writers(discard);
	with_writers(move);
	everybody_maps();
	same_faults();
	barriers();
	return 0;
}
