/* Restore points, which Linux does not have: a process keeps what it is, and goes back to it. What comes back, what does not, and who may not: a process
 * with several threads, or one that shares its memory with another. */
#include "areas.h"
#include <pthread.h>
#include <sched.h>

#define RW (PROT_READ | PROT_WRITE)
#define SYS_restore_point_set 0x464f4c45
#define SYS_restore_point_return 0x464f4c46
#define SYS_restore_point_drop 0x464f4c47
#define SYS_restore_point_changes 0x464f4c48

struct row {
	uint64_t start, end;
};

/* What is shared does not come back: so a test knows how often it was here. */
static struct {
	volatile int passes, gate;
	void *volatile more;
} *shared;

static volatile int word = 4;

static long set(void)
{
	return syscall(SYS_restore_point_set);
}

static long go_back(long value)
{
	return syscall(SYS_restore_point_return, value);
}

static long drop(void)
{
	return syscall(SYS_restore_point_drop);
}

static long changes(struct row *rows, size_t most)
{
	return syscall(SYS_restore_point_changes, rows, most);
}

static unsigned char *map(size_t pages, int flags)
{
	void *at = mmap(NULL, pages * PAGE, RW, flags | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void mistakes(void)
{
	CHECK_ERRNO(go_back(1), ENOENT);
	CHECK_ERRNO(drop(), ENOENT);
	CHECK_ERRNO(changes(NULL, 0), ENOENT);
	CHECK_EQ(set(), 0);
	CHECK_ERRNO(go_back(0), EINVAL);
	CHECK_ERRNO(go_back(-1), EINVAL);
	CHECK_ERRNO(go_back(1L << 32), EINVAL);
	CHECK_EQ(drop(), 0);
	CHECK_ERRNO(drop(), ENOENT);
	CHECK_ERRNO(go_back(1), ENOENT);
	say("mistakes");
}

static void memory(void)
{
	unsigned char *base = map(16, MAP_PRIVATE);
	char *heap = (char *)syscall(SYS_brk, 0);
	sigset_t usr1, now;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	base[0] = 1;
	shared->passes = 0;
	long value = set();
	CHECK_EQ(base[0], 1);
	CHECK_EQ(base[5 * PAGE], 0);
	CHECK_EQ(word, 4);
	/* It is mapped, and may be written to. */
	CHECK_EQ(base[8 * PAGE], 0);
	base[9 * PAGE] = 0;
	CHECK((char *)syscall(SYS_brk, 0) == heap);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
	CHECK_EQ(value, shared->passes);
	if (value > 0)
		CHECK_ERRNO(msync(shared->more, PAGE, MS_ASYNC), ENOMEM);
	if (value < 3) {
		base[0] = 2;
		base[5 * PAGE] = 3;
		word = 5;
		shared->more = map(1, MAP_PRIVATE);
		CHECK(munmap(base + 8 * PAGE, PAGE) == 0);
		CHECK(mprotect(base + 9 * PAGE, PAGE, PROT_READ) == 0);
		CHECK((char *)syscall(SYS_brk, heap + 3 * PAGE) == heap + 3 * PAGE);
		CHECK(sigprocmask(SIG_BLOCK, &usr1, NULL) == 0);
		go_back(++shared->passes);
		FAIL("it went on");
	}
	CHECK_EQ(drop(), 0);
	CHECK(munmap(base, 16 * PAGE) == 0);
	say("memory");
}

static void dirty(void)
{
	struct row rows[64];
	unsigned char *base = map(16, MAP_PRIVATE);
	memset(base, 1, 16 * PAGE);
	CHECK_EQ(set(), 0);
	base[3 * PAGE] = base[4 * PAGE + 7] = base[9 * PAGE] = 2;
	/* What is only read is no change. */
	CHECK_EQ(base[12 * PAGE], 1);
	long count = changes(rows, 64), own = 0;
	CHECK(count >= 2 && count <= 64);
	for (long row = 0; row < count; row++) {
		CHECK(rows[row].start < rows[row].end && (row == 0 || rows[row - 1].end <= rows[row].start));
		if (rows[row].start < (uintptr_t)base || rows[row].end > (uintptr_t)(base + 16 * PAGE))
			continue;
		CHECK_EQ((rows[row].start - (uintptr_t)base) / PAGE, own == 0 ? 3 : 9);
		CHECK_EQ((rows[row].end - (uintptr_t)base) / PAGE, own == 0 ? 5 : 10);
		own++;
	}
	CHECK_EQ(own, 2);
	/* There are as many, whatever there is room for. */
	CHECK(changes(NULL, 0) >= 2);
	CHECK_ERRNO(changes((struct row *)8, 64), EFAULT);
	CHECK_EQ(drop(), 0);
	CHECK(munmap(base, 16 * PAGE) == 0);
	say("changes");
}

static void on_fault(int signal)
{
	(void)signal;
	go_back(++shared->passes);
	FAIL("it went on");
}

/* As a fuzzer does it: what crashes goes back. */
static void crashes(void)
{
	struct sigaction action = { .sa_handler = on_fault };
	unsigned char *base = map(1, MAP_PRIVATE);
	sigset_t now;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	shared->passes = 0;
	long value = set();
	CHECK_EQ(value, shared->passes);
	CHECK_EQ(base[0], 0);
	CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGSEGV));
	if (value < 5) {
		base[0] = 1;
		CHECK(mprotect(base, PAGE, PROT_READ) == 0);
		*(volatile unsigned char *)base = 2;
		FAIL("it went on");
	}
	CHECK_EQ(drop(), 0);
	action.sa_handler = SIG_DFL;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(munmap(base, PAGE) == 0);
	say("crashes");
}

static void *wait_at_the_gate(void *given)
{
	/* It may neither, and its process is as it was. */
	CHECK_ERRNO(set(), EBUSY);
	CHECK_ERRNO(go_back(1), EBUSY);
	while (!shared->gate)
		sched_yield();
	return given;
}

static void threads(void)
{
	struct row rows[4];
	shared->gate = 0;
	long value = set();
	CHECK_EQ(word, 4);
	if (value == 0) {
		pthread_t thread;
		void *result;
		word = 5;
		CHECK(pthread_create(&thread, NULL, wait_at_the_gate, shared) == 0);
		CHECK_ERRNO(set(), EBUSY);
		CHECK_ERRNO(go_back(1), EBUSY);
		CHECK_ERRNO(changes(rows, 4), EBUSY);
		CHECK_EQ(word, 5);
		shared->gate = 1;
		CHECK(pthread_join(thread, &result) == 0 && result == shared);
		/* Who has been joined may be on his way out still. The point of before is there. */
		while (go_back(2) == -1) {
			CHECK_EQ(errno, EBUSY);
			sched_yield();
		}
		FAIL("it went on");
	}
	CHECK_EQ(value, 2);
	/* To forget is anybody's right. */
	CHECK_EQ(drop(), 0);
	say("threads");
}

static void relatives(void)
{
	CHECK_EQ(set(), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_ERRNO(go_back(1), ENOENT);
		long value = set();
		word = 6;
		if (value == 0)
			go_back(3);
		_exit(value == 3 ? 0 : 1);
	}
	expect_exit(child, 0);
	/* A child in the same memory. */
	child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_ERRNO(set(), EBUSY);
		CHECK_ERRNO(go_back(1), EBUSY);
		_exit(0);
	}
	expect_exit(child, 0);
	/* Another program has none. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(set(), 0);
		execl("/proc/self/exe", "restore_points", "executed", (char *)NULL);
		_exit(2);
	}
	expect_exit(child, 0);
	CHECK_EQ(drop(), 0);
	say("relatives");
}

int main(int count, char **arguments)
{
	(void)arguments;
	if (count > 1) {
		CHECK_ERRNO(go_back(1), ENOENT);
		return 0;
	}
	shared = (void *)map(1, MAP_SHARED);
	int there = drop() == 0 || errno == ENOENT;
	if (lacks("restore_point_set", there)) {
		say("mistakes\nmemory\nchanges\ncrashes\nthreads\nrelatives");
		return 0;
	}
	mistakes();
	memory();
	dirty();
	crashes();
	threads();
	relatives();
	return 0;
}
