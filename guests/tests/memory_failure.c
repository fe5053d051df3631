/* Memory that is said to have failed, and frames that move: MADV_HWPOISON, MADV_SOFT_OFFLINE, compact_memory.
 *
 * Where memory must not be said to have failed (a machine that somebody needs), the test prints what it would have printed:
 * it does it only as the program of a machine of its own, which it knows by /.foldspace. */
#include "check.h"

#include <setjmp.h>

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

static sigjmp_buf back;
static siginfo_t seen;
static volatile int signals;

static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	seen = *info;
	signals++;
	siglongjmp(back, 1);
}

static void watch(void)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER };
	CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

/* That a load of the byte is SIGBUS, and says why. */
static void lost(volatile unsigned char *at)
{
	int before = signals;
	if (sigsetjmp(back, 1) == 0) {
		(void)*at;
		FAIL("what was lost can be read");
	}
	CHECK_EQ(signals, before + 1);
	CHECK_EQ(seen.si_code, BUS_MCEERR_AR);
	CHECK_EQ((unsigned long)seen.si_addr & ~(PAGE - 1), (unsigned long)at & ~(PAGE - 1));
	CHECK_EQ(seen.si_addr_lsb, 12);
}

/* Says that the page has failed. Whoever has written to it is told at once. */
static void fail(void *page)
{
	int before = signals;
	if (sigsetjmp(back, 1) == 0) {
		CHECK(madvise(page, PAGE, MADV_HWPOISON) == 0);
		FAIL("nobody is told");
	}
	CHECK_EQ(signals, before + 1);
	CHECK_EQ(seen.si_signo, SIGBUS);
	CHECK_EQ(seen.si_code, BUS_MCEERR_AR);
	CHECK_EQ((unsigned long)seen.si_addr, (unsigned long)page);
	CHECK_EQ(seen.si_addr_lsb, 12);
}

static void private_memory(void)
{
	unsigned char *memory = map_pages(4, PROT_READ | PROT_WRITE);
	memset(memory, 7, 4 * PAGE);
	int go[2], gone[2];
	CHECK(pipe(go) == 0 && pipe(gone) == 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		/* A copy of its own of one page, which is not lost. */
		memory[2 * PAGE] = 8;
		CHECK(write(gone[1], "x", 1) == 1);
		CHECK(read(go[0], &byte, 1) == 1);
		lost(memory + PAGE);
		CHECK_EQ(memory[2 * PAGE], 8);
		CHECK_EQ(memory[0], 7);
		_exit(0);
	}
	char byte;
	CHECK(read(gone[0], &byte, 1) == 1);
	fail(memory + PAGE);
	fail(memory + 2 * PAGE);
	lost(memory + PAGE);
	lost(memory + 2 * PAGE + 100);
	CHECK_EQ(memory[0], 7);
	CHECK_EQ(memory[3 * PAGE], 7);
	CHECK(write(go[1], "x", 1) == 1);
	expect_exit(child, 0);
	say("private memory: lost to those who shared it, and to nobody else");

	/* The kernel does not get at it either, and it cannot fail twice. */
	CHECK_ERRNO(write(go[1], memory + PAGE, 1), EFAULT);
	CHECK_ERRNO(madvise(memory + PAGE, PAGE, MADV_HWPOISON), EFAULT);
	IN_CHILD(0, lost(memory + PAGE));
	CHECK(madvise(memory + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK_EQ(memory[PAGE], 0);
	CHECK(mmap(memory + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	memory[2 * PAGE] = 1;
	CHECK(munmap(memory, 4 * PAGE) == 0);
	say("as good as new where it is discarded or mapped anew");
}

static void shared_memory(void)
{
	int file = memfd_create("failing", 0);
	CHECK(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	unsigned char *first = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	unsigned char *second = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, PAGE);
	CHECK(first != MAP_FAILED && second != MAP_FAILED);
	memset(first, 5, 4 * PAGE);
	CHECK_EQ(second[0], 5);
	fail(first + PAGE);
	lost(first + PAGE);
	lost(second);
	CHECK_EQ(second[PAGE], 5);
	char bytes[2];
	CHECK_ERRNO(pread(file, bytes, 1, PAGE), EIO);
	CHECK_EQ(pread(file, bytes, 1, 0), 1);
	IN_CHILD(0, lost(second));
	say("a page of a file: lost to all who map or read it");
}

static void refusals(void)
{
	unsigned char *memory = map_pages(2, PROT_READ | PROT_WRITE);
	memory[0] = 1;
	IN_CHILD(0, {
		CHECK(setresuid(65534, 65534, 65534) == 0);
		CHECK_ERRNO(madvise(memory, PAGE, MADV_HWPOISON), EPERM);
		CHECK_ERRNO(madvise(memory, PAGE, MADV_SOFT_OFFLINE), EPERM);
	});
	CHECK_ERRNO(madvise(memory + 1, PAGE, MADV_HWPOISON), EINVAL);
	CHECK(munmap(memory + PAGE, PAGE) == 0);
	CHECK_ERRNO(madvise(memory + PAGE, PAGE, MADV_HWPOISON), EFAULT);
	CHECK(madvise(memory, 0, MADV_HWPOISON) == 0);
	KILLED_BY(SIGBUS, {
		signal(SIGBUS, SIG_DFL);
		madvise(memory, PAGE, MADV_HWPOISON);
	});
	say("refused to whoever may not");
}

/* The frame that holds a page: root sees it. */
static unsigned long frame_of(const void *page)
{
	int file = open("/proc/self/pagemap", O_RDONLY);
	unsigned long entry = 0;
	CHECK(file >= 0 && pread(file, &entry, 8, (long)((unsigned long)page / PAGE * 8)) == 8);
	close(file);
	return entry & ((1UL << 55) - 1);
}

static unsigned long of_frame(const char *path, unsigned long frame)
{
	int file = open(path, O_RDONLY);
	unsigned long entry = 0;
	CHECK(file >= 0 && pread(file, &entry, 8, (long)(frame * 8)) == 8);
	close(file);
	return entry;
}

static void frames_move(void)
{
	unsigned char *memory = map_pages(2, PROT_READ | PROT_WRITE);
	memset(memory, 3, 2 * PAGE);
	unsigned long before = frame_of(memory);
	CHECK(before != 0);
	CHECK_EQ(of_frame("/proc/kpagecount", before), 1);
	CHECK_EQ(of_frame("/proc/kpageflags", before) >> 11 & 3, 3);
	CHECK(madvise(memory, PAGE, MADV_SOFT_OFFLINE) == 0);
	CHECK_EQ(memory[0], 3);
	CHECK(frame_of(memory) != before);
	CHECK_EQ(of_frame("/proc/kpageflags", before) >> 19 & 1, 1);
	say("what is in memory that will fail goes elsewhere");

	/* Every other page of a lot is free: then all of it is moved together. */
	size_t pages = 4096;
	unsigned char *much = map_pages(pages, PROT_READ | PROT_WRITE);
	for (size_t page = 0; page < pages; page++)
		memset(much + page * PAGE, (int)(page % 251), PAGE);
	for (size_t page = 0; page < pages; page += 2)
		CHECK(madvise(much + page * PAGE, PAGE, MADV_DONTNEED) == 0);
	int file = open("/proc/sys/vm/compact_memory", O_WRONLY);
	CHECK(file >= 0);
	CHECK_EQ(write(file, "1\n", 2), 2);
	for (size_t page = 0; page < pages; page++)
		for (size_t at = 0; at < PAGE; at += 512)
			CHECK_EQ(much[page * PAGE + at], page % 2 ? page % 251 : 0);
	say("compaction changes nothing that a program sees");
}

int main(void)
{
	if (access("/.foldspace", F_OK) == 0) {
		watch();
		private_memory();
		shared_memory();
		refusals();
		frames_move();
		return 0;
	}
	say("private memory: lost to those who shared it, and to nobody else");
	say("as good as new where it is discarded or mapped anew");
	say("a page of a file: lost to all who map or read it");
	say("refused to whoever may not");
	say("what is in memory that will fail goes elsewhere");
	say("compaction changes nothing that a program sees");
	return 0;
}
