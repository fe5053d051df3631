/* mlock and its relatives: what is locked and present, whose it is, the limit, and what locked memory refuses. */
#include "areas.h"
#include <sys/resource.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

static long vm_lck(void) { return status_value("VmLck"); }

static int lock2(void *at, size_t pages, int flags)
{
	return (int)syscall(SYS_mlock2, at, pages * PAGE, flags);
}

static void locking(void)
{
	unsigned char *base = window_of(10, PAGE);
	long before = vm_lck();
	CHECK(mlock(base + 2 * PAGE, 4 * PAGE) == 0);
	EXPECT_AREAS("locked in the middle", base, 10, "0+2 rw-p, 2+4 rw-p, 6+4 rw-p");
	CHECK_EQ(vm_lck() - before, 16);
	CHECK_EQ(smaps_value(base + 2 * PAGE, "Rss"), 16); /* present without a touch */
	CHECK_EQ(smaps_value(base + 2 * PAGE, "Locked"), 16);
	CHECK_EQ(smaps_value(base, "Locked"), 0);
	CHECK(has_flag(base + 2 * PAGE, "lo") && !has_flag(base, "lo"));
	/* Twice is once; addresses are rounded outwards. */
	CHECK(mlock(base + 3 * PAGE + 5, 1) == 0);
	CHECK_EQ(vm_lck() - before, 16);
	CHECK(mlock(base + 6 * PAGE - 1, 2) == 0);
	CHECK_EQ(vm_lck() - before, 20);
	CHECK_AREAS(base, 10, "0+2 rw-p, 2+5 rw-p, 7+3 rw-p");
	CHECK(munlock(base + 4 * PAGE + 1, 1) == 0);
	CHECK_EQ(vm_lck() - before, 16);
	EXPECT_AREAS("a page unlocked", base, 10, "0+2 rw-p, 2+2 rw-p, 4+1 rw-p, 5+2 rw-p, 7+3 rw-p");
	/* What is unmapped is not locked any more, and growing locks more. */
	CHECK(munmap(base + 6 * PAGE, 4 * PAGE) == 0);
	CHECK_EQ(vm_lck() - before, 12);
	CHECK(mremap(base + 5 * PAGE, PAGE, 3 * PAGE, 0) == base + 5 * PAGE);
	CHECK_EQ(vm_lck() - before, 20);
	CHECK_EQ(smaps_value(base + 5 * PAGE, "Rss"), 12);
	CHECK(munlock(base, 8 * PAGE) == 0);
	CHECK_EQ(vm_lck() - before, 0);
	EXPECT_AREAS("all unlocked", base, 10, "0+8 rw-p");
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* Mapped locked. */
	CHECK(mmap(base, 3 * PAGE, RW, ANON | MAP_LOCKED | MAP_FIXED, -1, 0) == base);
	CHECK_EQ(vm_lck() - before, 12);
	CHECK_EQ(smaps_value(base, "Rss"), 12);
	CHECK(munmap(base, 3 * PAGE) == 0);
	CHECK_EQ(vm_lck() - before, 0);
	/* Read-only memory is present as zeros; what may not be touched is locked, but the caller hears that it is not there. */
	CHECK(mmap(base, 3 * PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0) == base);
	CHECK(mlock(base, 3 * PAGE) == 0);
	CHECK_EQ(smaps_value(base, "Rss"), 0);
	CHECK(munmap(base, 3 * PAGE) == 0);
	CHECK(mmap(base, 3 * PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0) == base);
	CHECK_ERRNO(mlock(base, 3 * PAGE), ENOMEM);
	CHECK(has_flag(base, "lo"));
	CHECK_EQ(vm_lck() - before, 12);
	CHECK(munmap(base, 3 * PAGE) == 0);
	say("locking");
}

static void mistakes(void)
{
	unsigned char *base = window_of(6, PAGE);
	long before = vm_lck();
	CHECK(mlock(base, 0) == 0 && munlock(base, 0) == 0);
	CHECK_ERRNO(lock2(base, 1, 2), EINVAL);
	CHECK_ERRNO(lock2(base, 1, -1), EINVAL);
	CHECK_ERRNO(mlock(base, -PAGE), EINVAL);
	CHECK_ERRNO(munlock(base, -PAGE), EINVAL);
	CHECK_ERRNO(mlock(base + 64 * PAGE, PAGE), ENOMEM);
	CHECK_ERRNO(munlock(base + 64 * PAGE, PAGE), ENOMEM);
	CHECK_ERRNO(mlock((void *)(1UL << 62), PAGE), ENOMEM);
	/* Over a hole: what lies before it is locked. */
	CHECK(munmap(base + 2 * PAGE, PAGE) == 0);
	CHECK_ERRNO(mlock(base, 5 * PAGE), ENOMEM);
	CHECK(has_flag(base, "lo") && !has_flag(base + 3 * PAGE, "lo"));
	CHECK_EQ(vm_lck() - before, 8);
	CHECK_ERRNO(munlock(base, 5 * PAGE), ENOMEM);
	CHECK_EQ(vm_lck() - before, 0);
	CHECK_ERRNO(syscall(SYS_mlockall, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_mlockall, 8), EINVAL);
	CHECK_ERRNO(syscall(SYS_mlockall, MCL_ONFAULT), EINVAL);
	CHECK_ERRNO(syscall(SYS_mlockall, -1), EINVAL);
	/* Content of locked memory is not given up. */
	CHECK(mlock(base, 2 * PAGE) == 0);
	base[0] = 5;
	CHECK_ERRNO(madvise(base, PAGE, MADV_DONTNEED), EINVAL);
	CHECK_ERRNO(madvise(base, PAGE, MADV_FREE), EINVAL);
	CHECK_ERRNO(madvise(base, PAGE, 20), EINVAL);
	CHECK_ERRNO(madvise(base, PAGE, 21), EINVAL);
	CHECK_ERRNO(madvise(base + 3 * PAGE, 4 * PAGE, MADV_REMOVE), EINVAL);
	CHECK_ERRNO(msync(base, PAGE, MS_INVALIDATE), EBUSY);
	CHECK_EQ(base[0], 5);
	int dropped = madvise(base, PAGE, 24 /* DONTNEED_LOCKED */);
	if (!lacks("MADV_DONTNEED_LOCKED", dropped == 0))
		CHECK_EQ(base[0], 0);
	CHECK(munmap(base, 6 * PAGE) == 0);
	CHECK_EQ(vm_lck() - before, 0);
	say("mistakes");
}

static void on_fault(void)
{
	unsigned char *base = window_of(6, PAGE);
	long before = vm_lck();
	CHECK(lock2(base, 6, MLOCK_ONFAULT) == 0);
	CHECK_EQ(vm_lck() - before, 24);
	CHECK_EQ(smaps_value(base, "Rss"), 0);
	base[PAGE] = 1;
	CHECK_EQ(smaps_value(base, "Rss"), 4);
	CHECK_EQ(smaps_value(base, "Locked"), 4);
	/* Plainly locked, it is all present; and back. */
	CHECK(lock2(base + 2 * PAGE, 2, 0) == 0);
	EXPECT_AREAS("on fault, and at once", base, 6, "0+2 rw-p, 2+2 rw-p, 4+2 rw-p");
	CHECK_EQ(smaps_value(base + 2 * PAGE, "Rss"), 8);
	CHECK(lock2(base + 2 * PAGE, 2, MLOCK_ONFAULT) == 0);
	EXPECT_AREAS("on fault again", base, 6, "0+6 rw-p");
	CHECK_EQ(smaps_value(base, "Rss"), 12);
	CHECK(munmap(base, 6 * PAGE) == 0);
	CHECK_EQ(vm_lck() - before, 0);
}

static void forks(void)
{
	unsigned char *base = window_of(4, PAGE);
	CHECK(mlock(base, 4 * PAGE) == 0);
	base[0] = 9;
	IN_CHILD(0, {
		CHECK_EQ(vm_lck(), 0);
		CHECK(!has_flag(base, "lo"));
		CHECK_EQ(base[0], 9);
		CHECK(madvise(base, PAGE, MADV_DONTNEED) == 0);
		CHECK_EQ(base[0], 0);
	});
	CHECK(has_flag(base, "lo"));
	CHECK_EQ(base[0], 9);
	CHECK(munmap(base, 4 * PAGE) == 0);
	say("a child inherits no locks");
}

static void all(void)
{
	unsigned char *base = window_of(4, PAGE);
	IN_CHILD(0, {
		CHECK(mlockall(MCL_CURRENT) == 0);
		CHECK(has_flag(base, "lo"));
		CHECK_EQ(smaps_value(base, "Rss"), 16);
		CHECK(vm_lck() > 16);
		unsigned char *later = window_of(4, PAGE);
		CHECK(!has_flag(later, "lo"));
		CHECK(mlockall(MCL_FUTURE) == 0); /* the future only: the present is as it was */
		CHECK(has_flag(base, "lo") && !has_flag(later, "lo"));
		later = window_of(4, PAGE);
		CHECK(has_flag(later, "lo"));
		CHECK_EQ(smaps_value(later, "Rss"), 16);
		long end = (long)raw_brk(0);
		CHECK((long)raw_brk((void *)(end + 4 * PAGE)) == end + 4 * (long)PAGE);
		CHECK(has_flag((void *)(end + PAGE), "lo"));
		CHECK(munlock(later, 4 * PAGE) == 0 && !has_flag(later, "lo"));
		CHECK(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0);
		later = window_of(4, PAGE);
		CHECK(has_flag(later, "lo"));
		CHECK_EQ(smaps_value(later, "Rss"), 0);
		later[0] = 1;
		CHECK_EQ(smaps_value(later, "Locked"), 4);
		IN_CHILD(0, {
			CHECK_EQ(vm_lck(), 0);
			CHECK(!has_flag(window_of(2, PAGE), "lo"));
		});
		CHECK(munlockall() == 0);
		CHECK_EQ(vm_lck(), 0);
		CHECK(!has_flag(window_of(4, PAGE), "lo"));
	});
	CHECK_EQ(vm_lck(), 0);
	CHECK(munmap(base, 4 * PAGE) == 0);
	say("mlockall");
}

/* Without the capability, RLIMIT_MEMLOCK counts. */
static void limits(void)
{
	unsigned char *base = window_of(32, PAGE);
	IN_CHILD(0, {
		struct rlimit limit = { 8 * PAGE + 5, 64 * PAGE };
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		CHECK(syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
		CHECK(mlock(base, 8 * PAGE) == 0);
		CHECK_ERRNO(mlock(base + 8 * PAGE, PAGE), ENOMEM);
		CHECK(mlock(base, 8 * PAGE) == 0); /* what is locked already does not count twice */
		CHECK_ERRNO(mlock(base + PAGE, 8 * PAGE), ENOMEM);
		CHECK_ERRNO(mlockall(MCL_CURRENT), ENOMEM);
		CHECK_ERRNO(mmap(NULL, PAGE, RW, ANON | MAP_LOCKED, -1, 0), EAGAIN);
		CHECK_ERRNO(mremap(base, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), EAGAIN);
		CHECK(munlock(base, 4 * PAGE) == 0);
		CHECK(mlock(base + 20 * PAGE, 4 * PAGE) == 0);
		CHECK(munmap(base + 20 * PAGE, 2 * PAGE) == 0);
		CHECK(mlock(base, 2 * PAGE) == 0);
		CHECK_ERRNO(mlock(base + 2 * PAGE, PAGE), ENOMEM);
		CHECK_EQ(vm_lck(), 32);
		/* A limit of the future is met by whatever would be locked. */
		CHECK(munlockall() == 0);
		CHECK(mlockall(MCL_FUTURE) == 0);
		CHECK_ERRNO(mmap(NULL, 9 * PAGE, RW, ANON, -1, 0), EAGAIN);
		unsigned char *end = raw_brk(0);
		CHECK(raw_brk(end + 9 * PAGE) == end);
		unsigned char *some = mmap(NULL, 8 * PAGE, RW, ANON, -1, 0);
		CHECK(some != MAP_FAILED);
		CHECK(munlockall() == 0);
		/* Nothing at all is allowed. */
		limit.rlim_cur = 0;
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		CHECK_ERRNO(mlock(base, PAGE), EPERM);
		CHECK_ERRNO(lock2(base, 1, MLOCK_ONFAULT), EPERM);
		CHECK_ERRNO(mlockall(MCL_CURRENT), EPERM);
		CHECK_ERRNO(mlockall(MCL_FUTURE), EPERM);
		CHECK_ERRNO((void *)syscall(SYS_mmap, NULL, PAGE, RW, ANON | MAP_LOCKED, -1, 0), EPERM);
		CHECK(munlock(base, PAGE) == 0 && munlockall() == 0);
	});
	CHECK(munmap(base, 32 * PAGE) == 0);
	say("RLIMIT_MEMLOCK");
}

static void files(void)
{
	int fd = memory_file("lock", 3);
	unsigned char *base = place_for(4, PAGE);
	long before = vm_lck();
	CHECK(mmap(base, 3 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(mlock(base, 3 * PAGE) == 0);
	CHECK_EQ(smaps_value(base, "Locked"), 12);
	CHECK(munmap(base, 3 * PAGE) == 0);
	CHECK(mmap(base, 3 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	CHECK(mlock(base, 3 * PAGE) == 0);
	CHECK_EQ(smaps_value(base, "Anonymous"), 12); /* writable: copied at once */
	CHECK_EQ(base[PAGE], 2);
	CHECK(munmap(base, 3 * PAGE) == 0);
	/* Beyond the file's end nothing can be present. */
	CHECK(mmap(base, 4 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK_ERRNO(mlock(base, 4 * PAGE), ENOMEM);
	CHECK_EQ(vm_lck() - before, 16);
	CHECK(munmap(base, 4 * PAGE) == 0 && close(fd) == 0);
	CHECK_EQ(vm_lck() - before, 0);
	say("files");
}

int main(void)
{
	locking();
	mistakes();
	on_fault();
	forks();
	all();
	limits();
	files();
	return 0;
}
