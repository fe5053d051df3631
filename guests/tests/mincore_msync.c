/* mincore and msync: what is in memory, what is refused. */
#include "areas.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void resident(void *base, size_t pages, const char *wanted)
{
	unsigned char got[64];
	char text[65];
	memset(got, 0xff, sizeof got);
	CHECK(mincore(base, pages * PAGE, got) == 0);
	for (size_t page = 0; page < pages; page++) {
		CHECK((got[page] & ~1) == 0); /* the other bits are 0 */
		text[page] = (char)('0' + got[page]);
	}
	text[pages] = 0;
	CHECK_EQ(got[pages], 0xff);
	if (strcmp(text, wanted))
		FAIL("in memory are %s, not %s", text, wanted);
}

static void in_memory(void)
{
	unsigned char *base = window_of(8, PAGE), vector[16];
	resident(base, 8, "00000000");
	base[PAGE] = 1, base[5 * PAGE] = 1;
	resident(base, 8, "01000100");
	CHECK(madvise(base + PAGE, PAGE, MADV_DONTNEED) == 0);
	resident(base, 8, "00000100");
	CHECK(mprotect(base, 8 * PAGE, PROT_NONE) == 0);
	resident(base, 8, "00000100");
	CHECK(mprotect(base + 4 * PAGE, 4 * PAGE, PROT_READ) == 0); /* over two areas */
	resident(base, 8, "00000100");
	IN_CHILD(0, resident(base, 8, "00000100"));
	/* Half pages count as whole ones; of the vector no more is written. */
	memset(vector, 9, sizeof vector);
	CHECK(mincore(base, PAGE + 1, vector) == 0);
	CHECK(vector[0] == 0 && vector[1] == 0 && vector[2] == 9);
	CHECK(mincore(base, 0, vector) == 0);
	CHECK(mincore(base, 0, (void *)nowhere) == 0);
	CHECK_ERRNO(mincore(base + 1, PAGE, vector), EINVAL);
	CHECK_ERRNO(mincore(base, PAGE, (void *)nowhere), EFAULT);
	CHECK_ERRNO(mincore(base + 64 * PAGE, PAGE, vector), ENOMEM);
	CHECK_ERRNO(mincore((void *)(1UL << 62), PAGE, vector), ENOMEM);
	CHECK_ERRNO(mincore(base, -PAGE, vector), ENOMEM);
	CHECK_ERRNO(mincore(base, -1UL, vector), ENOMEM);
	CHECK(munmap(base + 3 * PAGE, PAGE) == 0);
	CHECK_ERRNO(mincore(base, 8 * PAGE, vector), ENOMEM);
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* Shared memory is in memory for all if it is for one. */
	base = mmap(NULL, 6 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	resident(base, 6, "000000");
	IN_CHILD(0, base[2 * PAGE] = 1);
	resident(base, 6, "001000");
	CHECK(madvise(base, 6 * PAGE, MADV_DONTNEED) == 0); /* of this process only */
	resident(base, 6, "001000");
	CHECK(madvise(base, 6 * PAGE, MADV_REMOVE) == 0);
	resident(base, 6, "000000");
	CHECK(munmap(base, 6 * PAGE) == 0);
	int fd = memory_file("core", 4);
	CHECK(ftruncate(fd, 6 * PAGE) == 0);
	base = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE, fd, 0);
	CHECK(base != MAP_FAILED);
	resident(base, 8, "11110000");
	base[5 * PAGE] = 1; /* a copy of nothing */
	resident(base, 8, "11110100");
	CHECK(madvise(base, 8 * PAGE, MADV_DONTNEED) == 0);
	CHECK(mincore(base, 4 * PAGE, vector) == 0 && vector[0] == 1 && vector[3] == 1);
	CHECK(munmap(base, 8 * PAGE) == 0 && close(fd) == 0);
	/* More than a page of answers. */
	static unsigned char many[5000];
	base = window_of(5000, PAGE);
	for (size_t page = 0; page < 5000; page += 7)
		base[page * PAGE] = 1;
	CHECK(mincore(base, 5000 * PAGE, many) == 0);
	for (size_t page = 0; page < 5000; page++)
		CHECK_EQ(many[page], page % 7 == 0);
	CHECK(munmap(base, 5000 * PAGE) == 0);
	say("mincore");
}

static void syncing(void)
{
	static const int flags[] = { 0, MS_ASYNC, MS_SYNC, MS_INVALIDATE, MS_ASYNC | MS_INVALIDATE, MS_SYNC | MS_INVALIDATE };
	int fd = memory_file("sync", 6);
	unsigned char *base = place_for(6, PAGE), byte;
	for (int private = 0; private < 2; private++) {
		CHECK(mmap(base, 6 * PAGE, RW, (private ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED, fd, 0) == base);
		base[PAGE] = 40;
		for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
			CHECK(msync(base, 6 * PAGE, flags[i]) == 0);
			CHECK_EQ(base[PAGE], 40); /* INVALIDATE takes no private page away */
			CHECK(msync(base, 0, flags[i]) == 0);
			CHECK(msync(base + 64 * PAGE, 0, flags[i]) == 0);
			CHECK_ERRNO(msync(base + 1, PAGE, flags[i]), EINVAL);
			CHECK_ERRNO(msync(base, -PAGE, flags[i]), ENOMEM);
			CHECK_EQ(msync(base, -1UL, flags[i]), 0); /* rounds to nothing */
			CHECK_ERRNO(msync(base + 64 * PAGE, PAGE, flags[i]), ENOMEM);
		}
		CHECK_ERRNO(msync(base, PAGE, MS_ASYNC | MS_SYNC), EINVAL);
		CHECK_ERRNO(msync(base, PAGE, 8), EINVAL);
		CHECK_ERRNO(msync(base, PAGE, -1), EINVAL);
		CHECK(pread(fd, &byte, 1, PAGE) == 1);
		CHECK_EQ(byte, 40);
		/* A hole is told at the end. */
		CHECK(munmap(base + 2 * PAGE, PAGE) == 0);
		CHECK_ERRNO(msync(base, 6 * PAGE, MS_SYNC), ENOMEM);
		CHECK_ERRNO(msync(base + 2 * PAGE, PAGE, MS_ASYNC), ENOMEM);
		CHECK(mlock(base + 4 * PAGE, PAGE) == 0);
		CHECK_ERRNO(msync(base + 3 * PAGE, 3 * PAGE, MS_INVALIDATE), EBUSY);
		CHECK_ERRNO(msync(base, 6 * PAGE, MS_ASYNC | MS_INVALIDATE), EBUSY); /* which comes before the hole's */
		CHECK(msync(base + 3 * PAGE, 3 * PAGE, MS_SYNC) == 0);
		CHECK(munmap(base, 6 * PAGE) == 0);
	}
	CHECK(close(fd) == 0);
	say("msync");
}

int main(void)
{
	in_memory();
	syncing();
	return 0;
}
