/* Limits: address space, data, the stack, the number of areas, and how much memory is promised. */
#include "areas.h"
#include <sys/resource.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static void set_limit(int which, long bytes)
{
	struct rlimit limit = { (rlim_t)bytes, RLIM_INFINITY };
	CHECK(setrlimit(which, &limit) == 0);
}

static void *map(void *at, size_t pages, int protection, int flags)
{
	return mmap(at, pages * PAGE, protection, flags | (at ? MAP_FIXED : 0), -1, 0);
}

static void address_space(void)
{
	unsigned char *base = window_of(40, PAGE);
	IN_CHILD(0, {
		long now = status_value("VmSize") << 10;
		set_limit(RLIMIT_AS, now + 20 * (long)PAGE + 100);
		CHECK_ERRNO(map(NULL, 21, RW, ANON), ENOMEM);
		CHECK_ERRNO(map(NULL, 21, PROT_NONE, ANON | MAP_NORESERVE), ENOMEM);
		CHECK_ERRNO(map(NULL, 21, RW, MAP_SHARED | MAP_ANONYMOUS), ENOMEM);
		void *fits = map(NULL, 20, RW, ANON);
		CHECK(fits != MAP_FAILED);
		CHECK_ERRNO(map(NULL, 1, RW, ANON), ENOMEM);
		/* What is replaced does not count twice. */
		CHECK(map(base, 40, PROT_READ, ANON) == base);
		CHECK_ERRNO(mremap(base, 40 * PAGE, 41 * PAGE, 0), ENOMEM);
		CHECK_ERRNO(mremap(base, 40 * PAGE, 41 * PAGE, MREMAP_MAYMOVE), ENOMEM);
		CHECK_ERRNO(syscall(SYS_mremap, base, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0), ENOMEM);
		CHECK(mremap(base, 40 * PAGE, 40 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place_for(40, PAGE)) != MAP_FAILED);
		unsigned char *end = raw_brk(0);
		CHECK(raw_brk(end + 2 * PAGE) == end);
		CHECK(munmap(fits, 20 * PAGE) == 0);
		CHECK(raw_brk(end + 2 * PAGE) == end + 2 * PAGE);
		/* Below what it has already: nothing more, but what there is stays. */
		set_limit(RLIMIT_AS, PAGE);
		CHECK_ERRNO(map(NULL, 1, RW, ANON), ENOMEM);
		IN_CHILD(0, CHECK_ERRNO(map(NULL, 1, RW, ANON), ENOMEM));
	});
	CHECK(munmap(base, 40 * PAGE) == 0);
	say("RLIMIT_AS");
}

static void data(void)
{
	unsigned char *base = window_of(40, PAGE), *end = raw_brk(0);
	CHECK(map(base, 40, PROT_READ, ANON) == base);
	IN_CHILD(0, {
		long now = status_value("VmData") << 10;
		set_limit(RLIMIT_DATA, now + 10 * (long)PAGE);
		CHECK_ERRNO(map(NULL, 11, RW, ANON), ENOMEM);
		CHECK_ERRNO(map(NULL, 11, PROT_WRITE, ANON | MAP_NORESERVE), ENOMEM);
		/* Only what is private and writable counts, and no stack. */
		void *other = map(NULL, 11, PROT_READ, ANON);
		CHECK(other != MAP_FAILED && munmap(other, 11 * PAGE) == 0);
		other = map(NULL, 11, RW, MAP_SHARED | MAP_ANONYMOUS);
		CHECK(other != MAP_FAILED && munmap(other, 11 * PAGE) == 0);
		other = map(NULL, 11, RW, ANON | MAP_GROWSDOWN);
		CHECK(other != MAP_FAILED && munmap(other, 11 * PAGE) == 0);
		/* Memory that becomes writable counts from then on. */
		CHECK(mprotect(base, 10 * PAGE, RW) == 0);
		CHECK_ERRNO(mprotect(base + 10 * PAGE, PAGE, RW), ENOMEM);
		CHECK_ERRNO(map(NULL, 1, RW, ANON), ENOMEM);
		CHECK_ERRNO(mremap(base, 10 * PAGE, 11 * PAGE, MREMAP_MAYMOVE), ENOMEM);
		CHECK(raw_brk(end + 2 * PAGE) == end);
		CHECK(mprotect(base, 5 * PAGE, PROT_READ) == 0);
		CHECK(raw_brk(end + 2 * PAGE) == end + 2 * PAGE);
		CHECK(mprotect(base, 3 * PAGE, RW) == 0);
		CHECK_EQ(status_value("VmData") << 10, now + 10 * (long)PAGE);
	});
	CHECK(munmap(base, 40 * PAGE) == 0);
	say("RLIMIT_DATA");
}

static void stack(void)
{
	IN_CHILD(0, {
		set_limit(RLIMIT_STACK, 64 * PAGE);
		char *volatile top = (char *)&top; /* out of the sight of the compiler */
		volatile char *here = top;
		here[-40 * (long)PAGE] = 1;
		KILLED_BY(SIGSEGV, here[-70 * (long)PAGE] = 1);
		set_limit(RLIMIT_STACK, 200 * PAGE);
		here[-70 * (long)PAGE] = 1;
	});
	say("RLIMIT_STACK");
}

/* As many areas as the system allows a process, and what works then. */
static void number_of_areas(void)
{
	char text[32];
	read_whole("/proc/sys/vm/max_map_count", text, sizeof text);
	size_t limit = strtoul(text, NULL, 10);
	CHECK(limit >= 1000 && limit < 1000000);
	IN_CHILD(0, {
		size_t pages = 2 * limit + 64;
		unsigned char *base = place_for(pages, PAGE);
		CHECK(map(base, pages, RW, ANON | MAP_NORESERVE) == base);
		size_t page = 1;
		while (mprotect(base + page * PAGE, PAGE, PROT_READ) == 0)
			page += 2;
		CHECK_EQ(errno, ENOMEM);
		/* Two more came with each page, so there is room for one at most. */
		CHECK(page / 2 * 2 < limit && page / 2 * 2 + 64 > limit);
		CHECK_ERRNO(mprotect(base + (page + 2) * PAGE, PAGE, PROT_READ), ENOMEM);
		CHECK_ERRNO(madvise(base + (page + 2) * PAGE, PAGE, MADV_DONTFORK), EAGAIN);
		CHECK_ERRNO(mlock(base + (page + 2) * PAGE, PAGE), ENOMEM);
		CHECK_ERRNO(munmap(base + (page + 2) * PAGE, PAGE), ENOMEM);
		/* What makes fewer, or no more, works; a child has as many. */
		IN_CHILD(0, CHECK_ERRNO(munmap(base + (page + 2) * PAGE, PAGE), ENOMEM));
		CHECK(mprotect(base + PAGE, PAGE, RW) == 0);
		CHECK(munmap(base + (page + 2) * PAGE, PAGE) == 0);
		CHECK(munmap(base, pages * PAGE) == 0);
	});
	say("max_map_count");
}

int main(void)
{
	address_space();
	data();
	stack();
	number_of_areas();
	return 0;
}
