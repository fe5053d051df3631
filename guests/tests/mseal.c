/* mseal: sealed memory stays as it is (Linux 6.10). */
#include "areas.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static long seal(void *at, size_t length, unsigned long flags)
{
	return syscall(SYS_mseal, at, length, flags);
}

/* Whatever would change the page at `at` is refused, for it alone and for all the areas around it. (Not for parts of those:
 * Linux splits them before it refuses.) */
static void refuses(unsigned char *at, unsigned char *all, size_t pages)
{
	unsigned char *elsewhere = place_for(4, PAGE);
	for (int around = 0; around < 2; around++) {
		unsigned char *start = around ? all : at;
		size_t length = (around ? pages : 1) * PAGE;
		CHECK_ERRNO(munmap(start, length), EPERM);
		CHECK_ERRNO(mprotect(start, length, PROT_READ), EPERM);
		CHECK_ERRNO(mprotect(start, length, RW), EPERM); /* even if nothing changes */
		CHECK_ERRNO(mmap(start, length, RW, ANON | MAP_FIXED, -1, 0), EPERM);
		CHECK_ERRNO(mmap(start, length, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	}
	CHECK_ERRNO(mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere), EPERM);
	CHECK_ERRNO(mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EPERM);
	CHECK_ERRNO(syscall(SYS_mremap, at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0), EPERM);
	CHECK(mmap(elsewhere, PAGE, RW, ANON | MAP_FIXED, -1, 0) == elsewhere);
	CHECK_ERRNO(mremap(elsewhere, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at), EPERM);
	CHECK(munmap(elsewhere, PAGE) == 0);
	CHECK_ERRNO(syscall(SYS_pkey_mprotect, at, PAGE, PROT_READ, -1), EPERM);
	/* Advice is taken if it loses nothing, or what it loses could be written. */
	CHECK(madvise(at, PAGE, MADV_RANDOM) == 0 && madvise(at, PAGE, MADV_NORMAL) == 0);
	CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0);
	CHECK(mlock(at, PAGE) == 0 && munlock(at, PAGE) == 0);
}

static void read_only(void)
{
	unsigned char *base = window_of(5, PAGE);
	base[2 * PAGE] = 7;
	CHECK(mprotect(base + 2 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(seal(base + 2 * PAGE, PAGE, 0) == 0);
	static const int losing[] = { MADV_DONTNEED, MADV_FREE, MADV_DONTFORK, MADV_WIPEONFORK, 102 /* GUARD_INSTALL */ };
	for (size_t i = 0; i < sizeof losing / sizeof *losing; i++)
		CHECK_ERRNO(madvise(base + 2 * PAGE, PAGE, losing[i]), EPERM);
	CHECK_EQ(base[2 * PAGE], 7);
	CHECK_ERRNO(mprotect(base, 5 * PAGE, PROT_READ), EPERM);
	IN_CHILD(0, {
		CHECK_ERRNO(munmap(base, 5 * PAGE), EPERM);
		CHECK_ERRNO(madvise(base + 2 * PAGE, PAGE, MADV_DONTNEED), EPERM);
		CHECK_EQ(base[2 * PAGE], 7);
	});
}

static void check_seals(void)
{
	unsigned char *base = window_of(9, PAGE);
	/* Mistakes come first; sealing nothing is none. */
	CHECK_ERRNO(seal(base, PAGE, 1), EINVAL);
	CHECK_ERRNO(seal(base, PAGE, -1UL), EINVAL);
	CHECK_ERRNO(seal(base + 1, PAGE, 0), EINVAL);
	CHECK_ERRNO(seal(base, -1UL, 0), EINVAL);
	CHECK_ERRNO(seal(base, -PAGE, 0), EINVAL);
	CHECK_EQ(seal(base, 0, 0), 0);
	CHECK_EQ(seal(base + 64 * PAGE, 0, 0), 0);
	CHECK_ERRNO(seal(base + 64 * PAGE, PAGE, 0), ENOMEM);
	/* A hole anywhere: nothing is sealed. */
	CHECK(munmap(base + 6 * PAGE, PAGE) == 0);
	CHECK_ERRNO(seal(base + 4 * PAGE, 4 * PAGE, 0), ENOMEM);
	CHECK_ERRNO(seal(base + 4 * PAGE, 3 * PAGE, 0), ENOMEM);
	CHECK_ERRNO(seal(base + 6 * PAGE, 2 * PAGE, 0), ENOMEM);
	CHECK(!has_flag(base + 4 * PAGE, "sl"));
	CHECK(munmap(base + 7 * PAGE, 2 * PAGE) == 0);
	base[3 * PAGE] = 3;
	CHECK(seal(base + 3 * PAGE, 1, 0) == 0); /* a byte is a page */
	CHECK(seal(base + 3 * PAGE, PAGE, 0) == 0);
	CHECK_AREAS(base, 9, "0+3 rw-p, 3+1 rw-p, 4+2 rw-p");
	CHECK(has_flag(base + 3 * PAGE, "sl") && !has_flag(base, "sl") && !has_flag(base + 4 * PAGE, "sl"));
	refuses(base + 3 * PAGE, base, 6);
	CHECK_AREAS(base, 9, "0+3 rw-p, 3+1 rw-p, 4+2 rw-p");
	/* Beside it, and into the page, everything is as before. */
	base[3 * PAGE] = 4;
	CHECK(mprotect(base + 2 * PAGE, PAGE, PROT_READ) == 0 && munmap(base + 4 * PAGE, PAGE) == 0);
	CHECK_AREAS(base, 9, "0+2 rw-p, 2+1 r--p, 3+1 rw-p, 5+1 rw-p");
	/* Children have it sealed too. */
	IN_CHILD(0, {
		CHECK_EQ(base[3 * PAGE], 4);
		refuses(base + 3 * PAGE, base, 4);
		base[3 * PAGE] = 5;
	});
	CHECK_EQ(base[3 * PAGE], 4);
	/* Sealed areas that are alike merge. */
	base = window_of(6, PAGE);
	CHECK(seal(base, 2 * PAGE, 0) == 0 && seal(base + 4 * PAGE, 2 * PAGE, 0) == 0);
	CHECK_AREAS(base, 6, "0+2 rw-p, 2+2 rw-p, 4+2 rw-p");
	CHECK(seal(base, 6 * PAGE, 0) == 0);
	CHECK_AREAS(base, 6, "0+6 rw-p");
	read_only();
	int fd = memory_file("seal", 3);
	base = place_for(3, PAGE);
	CHECK(mmap(base, 3 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(seal(base + PAGE, PAGE, 0) == 0);
	refuses(base + PAGE, base, 3);
	base[PAGE] = 20;
	CHECK(close(fd) == 0);
	/* The heap's end cannot be taken back over it. */
	unsigned char *end = (unsigned char *)(((uintptr_t)raw_brk(0) + PAGE - 1) / PAGE * PAGE);
	CHECK(raw_brk(end + 4 * PAGE) == end + 4 * PAGE);
	CHECK(seal(end + 2 * PAGE, PAGE, 0) == 0);
	CHECK(raw_brk(end) == end + 4 * PAGE);
	CHECK(raw_brk(end + 3 * PAGE) == end + 3 * PAGE);
	CHECK(raw_brk(end + 5 * PAGE) == end + 5 * PAGE);
}

int main(void)
{
	if (!lacks("mseal", seal(NULL, 0, 0) == 0))
		check_seals();
	say("mseal");
	return 0;
}
