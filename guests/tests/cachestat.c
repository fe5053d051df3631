/* cachestat(2): how many pages of a file are in memory. Linux has it since 6.5. */
#include "areas.h"

struct range { uint64_t offset, length; };
struct counts { uint64_t cached, dirty, writeback, evicted, recently_evicted; };

static long cachestat(int fd, const void *range, void *counts, unsigned flags)
{
	return syscall(451, fd, range, counts, flags);
}

static long cached(int fd, uint64_t offset, uint64_t length)
{
	struct range range = { offset, length };
	struct counts counts;
	memset(&counts, 0xff, sizeof counts);
	CHECK_EQ(cachestat(fd, &range, &counts, 0), 0);
	CHECK_EQ(counts.writeback + counts.evicted + counts.recently_evicted, 0);
	return (long)counts.cached;
}

int main(void)
{
	static const char line[] = "cachestat: counts, refusals";
	struct range range = { 0, 0 };
	struct counts counts;
	int fd = memfd_create("cached", 0);
	CHECK(fd >= 0);
	if (cachestat(fd, &range, &counts, 0) == -1 && errno == ENOSYS) {
		say("%s", line);
		return 0;
	}
	CHECK_EQ(cached(fd, 0, 0), 0);
	CHECK_EQ(ftruncate(fd, 100 * (long)PAGE), 0);
	CHECK_EQ(cached(fd, 0, 0), 0);
	for (int i = 10; i < 20; i++)
		CHECK_EQ(pwrite(fd, "x", 1, i * (long)PAGE), 1);
	CHECK_EQ(cached(fd, 0, 0), 10);
	CHECK_EQ(cached(fd, 0, 10 * PAGE), 0);
	CHECK_EQ(cached(fd, 0, 10 * PAGE + 1), 1);
	CHECK_EQ(cached(fd, 15 * PAGE, 3 * PAGE), 3);
	CHECK_EQ(cached(fd, 15 * PAGE + 5, 3 * PAGE), 4);
	CHECK_EQ(cached(fd, 15 * PAGE, 0), 5);
	CHECK_EQ(cached(fd, 200 * PAGE, 1 << 30), 0);
	CHECK_ERRNO(cachestat(fd, &range, &counts, 1), EINVAL);
	CHECK_ERRNO(cachestat(99, &range, &counts, 0), EBADF);
	CHECK_ERRNO(cachestat(fd, (void *)8, &counts, 0), EFAULT);
	CHECK_ERRNO(cachestat(fd, &range, (void *)8, 0), EFAULT);
	say("%s", line);
	return 0;
}
