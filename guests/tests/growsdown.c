/* MAP_GROWSDOWN: memory that grows towards lower addresses when it is touched just below, as a stack does. */
#include "areas.h"
#include <sys/resource.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

/* A stack of `pages` pages at the upper end of `room` pages with nothing in them. */
static unsigned char *stack_at(size_t room, size_t pages)
{
	unsigned char *base = place_for(room, PAGE) + (room - pages) * PAGE;
	CHECK(mmap(base, pages * PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0) == base);
	return base;
}

static void growing(void)
{
	unsigned char *base = stack_at(1000, 2), *all = base - 998 * PAGE;
	CHECK(has_flag(base, "gd"));
	base[0] = 1;
	base[-1] = 2;
	EXPECT_AREAS("grown by a page", all, 1000, "997+3 rw-p");
	base[-5 * (long)PAGE] = 3; /* over some */
	EXPECT_AREAS("grown by some", all, 1000, "993+7 rw-p");
	CHECK_EQ(*(volatile char *)(base - 20 * PAGE), 0); /* by a read */
	CHECK_EQ(base[-1], 2);
	EXPECT_AREAS("grown by a read", all, 1000, "978+22 rw-p");
	/* A system call's access grows it as well. */
	int ends[2];
	CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	CHECK_EQ(read(ends[0], base - 40 * PAGE, 1), 1);
	EXPECT_AREAS("grown by a system call", all, 1000, "958+42 rw-p");
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
	/* Each process by itself. */
	IN_CHILD(0, {
		base[-60 * (long)PAGE] = 1;
		CHECK_AREAS(all, 1000, "938+62 rw-p");
	});
	CHECK_AREAS(all, 1000, "958+42 rw-p");
	CHECK(munmap(all, 1000 * PAGE) == 0);
}

/* It keeps 256 pages away from what is mapped below, if that can be touched and is no stack itself. */
static void gaps(void)
{
	unsigned char *base = stack_at(1000, 2), *all = base - 998 * PAGE;
	unsigned char *below = all + 500 * PAGE;
	CHECK(mmap(below, PAGE, RW, ANON | MAP_FIXED, -1, 0) == below);
	base[-200 * (long)PAGE] = 1; /* page 798 */
	CHECK_AREAS(all, 1000, "500+1 rw-p, 798+202 rw-p");
	all[757 * PAGE] = 1; /* 256 pages lie between */
	EXPECT_AREAS("as near as it may", all, 1000, "500+1 rw-p, 757+243 rw-p");
	KILLED_BY(SIGSEGV, all[756 * PAGE] = 1);
	CHECK(munmap(below, PAGE) == 0);
	CHECK(mmap(below, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0) == below);
	all[756 * PAGE] = 1;
	all[501 * PAGE] = 1;
	EXPECT_AREAS("up to what nobody may touch", all, 1000, "500+1 ---p, 501+499 rw-p");
	KILLED_BY(SIGSEGV, below[-1] = 1);
	CHECK(munmap(all, 1000 * PAGE) == 0);
	/* What the kernel places itself stays away too. */
	base = stack_at(600, 2), all = base - 598 * PAGE;
	unsigned char *near = mmap(base - PAGE, PAGE, RW, ANON, -1, 0);
	CHECK(near != MAP_FAILED && (near < base - 256 * PAGE || near > base));
	CHECK(munmap(near, PAGE) == 0 && munmap(all, 600 * PAGE) == 0);
}

static void protections(void)
{
	unsigned char *base = stack_at(100, 8), *all = base - 92 * PAGE;
	/* A part in the middle, from there down to the beginning. */
	CHECK(mprotect(base + 4 * PAGE, PAGE, PROT_READ | PROT_GROWSDOWN) == 0);
	EXPECT_AREAS("down to the beginning", all, 100, "92+5 r--p, 97+3 rw-p");
	CHECK(mprotect(base + 2 * PAGE, PAGE, RW | PROT_GROWSDOWN) == 0);
	EXPECT_AREAS("and again", all, 100, "92+3 rw-p, 95+2 r--p, 97+3 rw-p");
	CHECK_ERRNO(mprotect(base, PAGE, RW | PROT_GROWSUP), EINVAL);
	CHECK_ERRNO(mprotect(base, PAGE, RW | PROT_GROWSUP | PROT_GROWSDOWN), EINVAL);
	CHECK(munmap(all, 100 * PAGE) == 0);
	CHECK_ERRNO(mprotect(base, PAGE, RW | PROT_GROWSDOWN), ENOMEM);
	unsigned char *plain = window_of(2, PAGE);
	CHECK_ERRNO(mprotect(plain, PAGE, RW | PROT_GROWSDOWN), EINVAL);
	CHECK(munmap(plain, 2 * PAGE) == 0);
	/* Without access it does not grow. */
	base = stack_at(100, 2), all = base - 98 * PAGE;
	CHECK(mprotect(base, 2 * PAGE, PROT_READ) == 0);
	KILLED_BY(SIGSEGV, base[-1] = 1);
	CHECK_EQ(*(volatile char *)(base - 1), 0);
	CHECK_AREAS(all, 100, "97+3 r--p");
	CHECK(munmap(all, 100 * PAGE) == 0);
}

static void limits(void)
{
	unsigned char *base = stack_at(1000, 2), *all = base - 998 * PAGE;
	IN_CHILD(0, {
		struct rlimit limit = { 300 * PAGE, 300 * PAGE };
		CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
		all[700 * PAGE] = 1;
		KILLED_BY(SIGSEGV, all[699 * PAGE] = 1);
		CHECK_AREAS(all, 1000, "700+300 rw-p");
		/* Locked pages are present as far as it has grown. */
		CHECK(mlock(base, PAGE) == 0);
	});
	CHECK(munmap(all, 1000 * PAGE) == 0);
	say("limits");
}

/* A copy that is moved elsewhere still grows; its parts are told apart from plain memory. */
static void moving(void)
{
	unsigned char *base = stack_at(1000, 4), *to = place_for(1000, PAGE) + 500 * PAGE;
	base[PAGE] = 9;
	CHECK(mremap(base, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	to[-3 * (long)PAGE] = 1;
	CHECK_EQ(to[PAGE], 9);
	EXPECT_AREAS("moved and grown", to - 500 * PAGE, 1000, "497+7 rw-p");
	CHECK(munmap(to - 500 * PAGE, 1000 * PAGE) == 0);
	base = stack_at(100, 2);
	CHECK(mmap(base + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base + 2 * PAGE);
	EXPECT_AREAS("beside plain memory", base - 98 * PAGE, 102, "98+2 rw-p, 100+2 rw-p");
	CHECK(munmap(base - 98 * PAGE, 102 * PAGE) == 0);
}

int main(void)
{
	growing();
	gaps();
	protections();
	limits();
	moving();
	return 0;
}
