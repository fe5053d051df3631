/* remap_file_pages, which Linux has emulated since 4.0 by mapping the file once more: other pages of a shared file at the
 * same addresses. */
#include "areas.h"

#define RW (PROT_READ | PROT_WRITE)

static int remap(void *at, size_t pages, size_t page, int flags)
{
	return (int)syscall(SYS_remap_file_pages, at, pages * PAGE, 0, page, flags);
}

static void holds(unsigned char *base, size_t pages, const char *wanted)
{
	char got[32];
	for (size_t page = 0; page < pages; page++)
		got[page] = (char)('0' + base[page * PAGE]);
	got[pages] = 0;
	if (strcmp(got, wanted))
		FAIL("the pages hold %s, not %s", got, wanted);
}

int main(void)
{
	int fd = memory_file("remap", 8);
	unsigned char *base = place_for(8, PAGE);
	CHECK(mmap(base, 8 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	holds(base, 8, "12345678");
	CHECK_EQ(remap(base + 2 * PAGE, 2, 5, 0), 0);
	holds(base, 8, "12675678");
	EXPECT_AREAS("other pages", base, 8,
		     "0+2 rw-s @0 memfd:remap (deleted), 2+2 rw-s @5 memfd:remap (deleted), 4+4 rw-s @4 memfd:remap (deleted)");
	base[2 * PAGE] = 9;
	holds(base, 8, "12975978");
	CHECK_EQ(remap(base + 2 * PAGE, 2, 2, 0), 0);
	EXPECT_AREAS("back again", base, 8, "0+8 rw-s @0 memfd:remap (deleted)");
	holds(base, 8, "12345978");
	/* Turned round, page by page. */
	for (size_t page = 0; page < 8; page++)
		CHECK_EQ(remap(base + page * PAGE, 1, 7 - page, 0), 0);
	holds(base, 8, "87954321");
	IN_CHILD(0, holds(base, 8, "87954321"); base[0] = 1; CHECK_EQ(remap(base, 8, 0, 0), 0));
	CHECK_EQ(base[0], 1);
	say("turned round");
	CHECK(mmap(base, 8 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	/* Over several areas of one file, though not over a hole or another file. */
	CHECK_ERRNO(remap(base, 9, 0, 0), EINVAL);
	CHECK(munmap(base + 4 * PAGE, PAGE) == 0);
	CHECK_ERRNO(remap(base, 8, 0, 0), EINVAL);
	CHECK_ERRNO(remap(base + 4 * PAGE, 1, 0, 0), EINVAL);
	/* Mistakes. */
	CHECK_ERRNO(remap(base, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_remap_file_pages, base, PAGE, PROT_READ, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_remap_file_pages, base, -PAGE, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_remap_file_pages, base, PAGE, 0, -1UL, 0), EINVAL);
	CHECK_EQ(syscall(SYS_remap_file_pages, base + 100, PAGE + 100, 0, 1, 0), 0); /* rounded down, both */
	CHECK_EQ(base[0], 2);
	unsigned char *private = window_of(2, PAGE);
	CHECK_ERRNO(remap(private, 1, 0, 0), EINVAL);
	CHECK(mmap(private, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == private);
	CHECK_ERRNO(remap(private, 1, 1, 0), EINVAL);
	say("mistakes");
	/* Protections stay. */
	CHECK(mprotect(base + PAGE, PAGE, PROT_READ) == 0);
	CHECK_EQ(remap(base + PAGE, 1, 6, 0), 0);
	CHECK_EQ(base[PAGE], 7);
	KILLED_BY(SIGSEGV, base[PAGE] = 1);
	EXPECT_AREAS("protections", base, 3,
		     "0+1 rw-s @1 memfd:remap (deleted), 1+1 r--s @6 memfd:remap (deleted), 2+1 rw-s @2 memfd:remap (deleted)");
	CHECK(munmap(base, 8 * PAGE) == 0 && munmap(private, 2 * PAGE) == 0 && close(fd) == 0);
	return 0;
}
