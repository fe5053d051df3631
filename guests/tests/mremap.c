/* mremap: growing, shrinking and moving, what it refuses, and that every byte comes along. */
#include "areas.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define TABLE (512 * PAGE) /* what a last-level table covers */

static void *move_to(void *from, size_t old_pages, size_t new_pages, int flags, void *to)
{
	return mremap(from, old_pages * PAGE, new_pages * PAGE, flags | MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

/* Every page holds a number of its own, `from` and up. */
static void fill(unsigned char *base, size_t pages, unsigned from)
{
	for (size_t page = 0; page < pages; page++)
		*(volatile unsigned *)(base + page * PAGE) = from + (unsigned)page;
}

static void holds(unsigned char *base, size_t pages, unsigned from)
{
	for (size_t page = 0; page < pages; page++)
		CHECK_EQ(*(volatile unsigned *)(base + page * PAGE), from + page);
}

static void is_zero(unsigned char *base, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		CHECK_EQ(*(volatile unsigned *)(base + page * PAGE), 0);
}

/* A refusal leaves all as it was. */
static void mistakes(void)
{
	unsigned char *base = window_of(8, PAGE), *to = place_for(64, PAGE);
	void *beyond = (void *)(1UL << 62);
	fill(base, 8, 1);
	CHECK_ERRNO(mremap(base + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EINVAL);
	CHECK_ERRNO(mremap(base, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
	CHECK_ERRNO((void *)syscall(SYS_mremap, base, PAGE, -1UL, MREMAP_MAYMOVE), EINVAL); /* rounds to nothing */
	CHECK_ERRNO(syscall(SYS_mremap, base, PAGE, PAGE, 8, to), EINVAL);
	CHECK_ERRNO(syscall(SYS_mremap, base, PAGE, PAGE, MREMAP_FIXED, to), EINVAL);
	CHECK_ERRNO(syscall(SYS_mremap, base, PAGE, PAGE, MREMAP_DONTUNMAP, to), EINVAL);
	CHECK_ERRNO(syscall(SYS_mremap, base, PAGE, 2 * PAGE, MREMAP_DONTUNMAP | MREMAP_MAYMOVE, to), EINVAL);
	CHECK_ERRNO(syscall(SYS_mremap, base, 2 * PAGE, PAGE, MREMAP_DONTUNMAP | MREMAP_MAYMOVE, to), EINVAL);
	CHECK_ERRNO(move_to(base, 1, 1, 0, to + 1), EINVAL);
	CHECK_ERRNO(move_to(base, 1, 1, 0, beyond), EINVAL);
	CHECK_ERRNO(move_to(base, 1, 1, 0, (void *)-PAGE), EINVAL);
	CHECK_ERRNO(move_to(base, 4, 4, 0, base + 3 * PAGE), EINVAL);
	CHECK_ERRNO(move_to(base + 3 * PAGE, 4, 4, 0, base), EINVAL);
	CHECK_ERRNO(move_to(base, 4, 4, 0, base), EINVAL);
	CHECK_ERRNO(mremap(base, 1UL << 40, 1UL << 41, 0), EFAULT); /* past the end of the area */
	CHECK_ERRNO(mremap(base, 0, PAGE, MREMAP_MAYMOVE), EINVAL); /* private: nothing to duplicate */
	CHECK_ERRNO(mremap(base, 8 * PAGE, 0x7ff000000000, MREMAP_MAYMOVE), ENOMEM);
	CHECK_ERRNO(mremap(place_for(1, PAGE), PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK_ERRNO(mremap(place_for(1, PAGE), PAGE, PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK_ERRNO(mremap(beyond, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	/* Growing a part of an area, over the border of two, over a hole. */
	CHECK_ERRNO(mremap(base, 2 * PAGE, 4 * PAGE, 0), ENOMEM);
	CHECK(mprotect(base + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
	CHECK_ERRNO(mremap(base, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK_ERRNO(mremap(base + 6 * PAGE, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK(mprotect(base, 8 * PAGE, RW) == 0);
	EXPECT_AREAS("mistakes change nothing", base, 8, "0+8 rw-p");
	holds(base, 8, 1);
	CHECK(munmap(base, 8 * PAGE) == 0);
}

static void shrinking(void)
{
	unsigned char *base = window_of(16, PAGE);
	fill(base, 16, 1);
	CHECK(mremap(base, 16 * PAGE, 12 * PAGE, 0) == base);
	EXPECT_AREAS("shrunk", base, 16, "0+12 rw-p");
	CHECK(mremap(base, 10 * PAGE, 8 * PAGE, 0) == base); /* a hole in the middle */
	EXPECT_AREAS("shrunk in the middle", base, 16, "0+8 rw-p, 10+2 rw-p");
	CHECK(mremap(base, 8 * PAGE - 1, 7 * PAGE + 1, 0) == base); /* both are 8 pages */
	CHECK(mremap(base, 8 * PAGE, 8 * PAGE, 0) == base);
	/* Over several areas and a hole: the end is unmapped all the same. */
	CHECK(mprotect(base + 11 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mremap(base, 12 * PAGE, 6 * PAGE, 0) == base);
	EXPECT_AREAS("shrunk over areas and a hole", base, 16, "0+6 rw-p");
	holds(base, 6, 1);
	/* Growing again brings zeros. */
	CHECK(mremap(base, 6 * PAGE, 16 * PAGE, 0) == base);
	EXPECT_AREAS("grown again", base, 16, "0+16 rw-p");
	holds(base, 6, 1);
	is_zero(base + 6 * PAGE, 10);
	CHECK(munmap(base, 16 * PAGE) == 0);
}

static void growing(void)
{
	unsigned char *base = window_of(4, PAGE);
	fill(base, 4, 100);
	CHECK(mremap(base, 4 * PAGE, 6 * PAGE, 0) == base);
	/* The tail of an area can grow alone. */
	CHECK(mremap(base + 5 * PAGE, PAGE, 3 * PAGE, 0) == base + 5 * PAGE);
	EXPECT_AREAS("grown in place", base, 12, "0+8 rw-p");
	holds(base, 4, 100);
	is_zero(base + 4 * PAGE, 4);
	/* Something is in the way: not in place, but elsewhere. */
	CHECK(mmap(base + 10 * PAGE, PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0) == base + 10 * PAGE);
	CHECK_ERRNO(mremap(base, 8 * PAGE, 11 * PAGE, 0), ENOMEM);
	CHECK(mremap(base, 8 * PAGE, 10 * PAGE, 0) == base);
	unsigned char *moved = mremap(base, 10 * PAGE, 20 * PAGE, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && (moved + 20 * PAGE <= base || moved >= base + 11 * PAGE));
	EXPECT_AREAS("moved away", base, 12, "10+1 r--p");
	CHECK_AREAS(moved, 20, "0+20 rw-p");
	holds(moved, 4, 100);
	is_zero(moved + 4 * PAGE, 16);
	CHECK(munmap(moved, 20 * PAGE) == 0 && munmap(base, 12 * PAGE) == 0);

	/* It merges with what it grows up to, if that is like it. */
	base = window_of(10, PAGE);
	CHECK(munmap(base + 4 * PAGE, 2 * PAGE) == 0);
	CHECK_AREAS(base, 10, "0+4 rw-p, 6+4 rw-p");
	CHECK(mremap(base, 4 * PAGE, 6 * PAGE, 0) == base);
	EXPECT_AREAS("grown up to its like", base, 10, "0+10 rw-p");
	CHECK(munmap(base, 10 * PAGE) == 0);

	/* What grows beyond the file's end is there, but has nothing in it. */
	int fd = memory_file("grow", 4);
	base = place_for(8, PAGE);
	CHECK(mmap(base, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, PAGE) == base);
	CHECK(mremap(base, 2 * PAGE, 5 * PAGE, 0) == base);
	EXPECT_AREAS("a file, grown", base, 8, "0+5 rw-s @1 memfd:grow (deleted)");
	CHECK_EQ(base[0], 2);
	CHECK_EQ(base[2 * PAGE], 4);
	KILLED_BY(SIGBUS, base[3 * PAGE] = 1);
	CHECK(munmap(base, 8 * PAGE) == 0 && close(fd) == 0);
}

static void moving(void)
{
	unsigned char *base = window_of(12, PAGE), *to = window_of(12, PAGE);
	fill(base, 12, 1);
	fill(to, 12, 1000);
	/* From the middle into the middle of something, which is replaced. */
	CHECK(move_to(base + 3 * PAGE, 4, 4, 0, to + 2 * PAGE) == to + 2 * PAGE);
	EXPECT_AREAS("moved from", base, 12, "0+3 rw-p, 7+5 rw-p");
	holds(base, 3, 1), holds(base + 7 * PAGE, 5, 8);
	holds(to, 2, 1000), holds(to + 2 * PAGE, 4, 4), holds(to + 6 * PAGE, 6, 1006);
	/* Growing and shrinking at the same time: what is cut off is unmapped at the old place too. */
	CHECK(move_to(base + 7 * PAGE, 5, 2, 0, to + 20 * PAGE) == to + 20 * PAGE);
	EXPECT_AREAS("moved and shrunk, from", base, 12, "0+3 rw-p");
	EXPECT_AREAS("moved and shrunk, to", to + 20 * PAGE, 8, "0+2 rw-p");
	holds(to + 20 * PAGE, 2, 8);
	CHECK(move_to(base, 3, 6, 0, to + 30 * PAGE) == to + 30 * PAGE);
	EXPECT_AREAS("moved and grown", to + 30 * PAGE, 8, "0+6 rw-p");
	holds(to + 30 * PAGE, 3, 1), is_zero(to + 33 * PAGE, 3);
	EXPECT_AREAS("nothing is left", base, 12, "");
	CHECK(munmap(to, 64 * PAGE) == 0);

	/* Untouched memory, and pages that nothing may touch. */
	base = window_of(6, PAGE), to = place_for(6, PAGE);
	fill(base, 4, 50);
	CHECK(mprotect(base, 6 * PAGE, PROT_NONE) == 0);
	CHECK(move_to(base, 6, 6, 0, to) == to);
	EXPECT_AREAS("no access", to, 6, "0+6 ---p");
	KILLED_BY(SIGSEGV, (void)*(volatile char *)to);
	CHECK(mprotect(to, 6 * PAGE, PROT_READ) == 0);
	holds(to, 4, 50), is_zero(to + 4 * PAGE, 2);
	CHECK(move_to(to, 6, 6, 0, base) == base);
	KILLED_BY(SIGSEGV, *(volatile char *)base = 1);
	holds(base, 4, 50);
	CHECK(munmap(base, 6 * PAGE) == 0);
	say("moving keeps protections");

	/* Where it came from can be used again at once. */
	base = window_of(3, PAGE), to = place_for(3, PAGE);
	for (unsigned round = 0; round < 50; round++) {
		fill(base, 3, round);
		CHECK(move_to(base, 3, 3, 0, to) == to);
		holds(to, 3, round);
		CHECK(mmap(base, 3 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base);
		is_zero(base, 3);
	}
	CHECK(munmap(base, 3 * PAGE) == 0 && munmap(to, 3 * PAGE) == 0);
	say("moving many times");
}

/* A range over several areas and holes moves as it is (Linux 6.17). */
static void moving_several(void)
{
	unsigned char *base = window_of(12, PAGE), *to = window_of(12, PAGE);
	CHECK(mprotect(to, 12 * PAGE, PROT_NONE) == 0);
	fill(base, 12, 1);
	CHECK(mprotect(base + 3 * PAGE, 2 * PAGE, PROT_READ) == 0);
	CHECK(munmap(base + 7 * PAGE, 2 * PAGE) == 0);
	void *moved = move_to(base, 12, 12, 0, to);
	if (!lacks("moving of several areas", moved == to || errno != EFAULT)) {
		CHECK(moved == to);
		CHECK_AREAS(base, 12, "");
		CHECK_AREAS(to, 12, "0+3 rw-p, 3+2 r--p, 5+2 rw-p, 7+2 ---p, 9+3 rw-p");
		holds(to, 7, 1), holds(to + 9 * PAGE, 3, 10);
	}
	say("several areas at once");
	CHECK(munmap(base, 12 * PAGE) == 0 && munmap(to, 12 * PAGE) == 0);
}

/* DONTUNMAP: the pages move, the area stays. */
static void leaving_the_area(void)
{
	unsigned char *base = window_of(8, PAGE);
	fill(base, 8, 1);
	unsigned char *to = mremap(base, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(to != MAP_FAILED && to != base);
	EXPECT_AREAS("the old area stays", base, 8, "0+8 rw-p");
	holds(to, 8, 1), is_zero(base, 8);
	fill(base, 8, 77);
	holds(to, 8, 1), holds(base, 8, 77);
	CHECK(munmap(to, 8 * PAGE) == 0);
	to = window_of(12, PAGE);
	fill(to, 12, 500);
	CHECK(move_to(base + 2 * PAGE, 3, 3, MREMAP_DONTUNMAP, to + PAGE) == to + PAGE);
	holds(to, 1, 500), holds(to + PAGE, 3, 79), holds(to + 4 * PAGE, 8, 504);
	holds(base, 2, 77), is_zero(base + 2 * PAGE, 3), holds(base + 5 * PAGE, 3, 82);
	CHECK(munmap(base, 8 * PAGE) == 0 && munmap(to, 12 * PAGE) == 0);

	/* A shared file: both places show it; a private one: the old place shows the file again. */
	int fd = memory_file("stay", 3);
	base = place_for(3, PAGE), to = place_for(3, PAGE);
	CHECK(mmap(base, 3 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(move_to(base, 3, 3, MREMAP_DONTUNMAP, to) == to);
	base[9] = 200;
	CHECK_EQ(to[9], 200);
	base[9] = 1;
	CHECK(munmap(base, 3 * PAGE) == 0 && munmap(to, 3 * PAGE) == 0);
	CHECK(mmap(base, 3 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	base[PAGE] = 99;
	CHECK(move_to(base, 3, 3, MREMAP_DONTUNMAP, to) == to);
	CHECK_EQ(to[PAGE], 99);
	CHECK_EQ(base[PAGE], 2);
	CHECK(munmap(base, 3 * PAGE) == 0 && munmap(to, 3 * PAGE) == 0 && close(fd) == 0);
	say("DONTUNMAP");
}

/* An old size of 0 duplicates shared memory. */
static void duplicating(void)
{
	unsigned char *base = place_for(4, PAGE), *to = place_for(4, PAGE);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
	fill(base, 4, 1);
	CHECK(mremap(base + PAGE, 0, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	holds(to, 3, 2);
	to[2 * PAGE + 8] = 9;
	CHECK_EQ(base[3 * PAGE + 8], 9);
	CHECK_ERRNO(mremap(base, 0, PAGE, 0), ENOMEM);
	unsigned char *third = mremap(to, 0, PAGE, MREMAP_MAYMOVE);
	CHECK(third != MAP_FAILED);
	holds(third, 1, 2);
	CHECK(munmap(base, 4 * PAGE) == 0);
	holds(third, 1, 2), holds(to, 3, 2);
	CHECK(munmap(to, 3 * PAGE) == 0 && munmap(third, PAGE) == 0);
	int fd = memory_file("twice", 4);
	CHECK(mmap(base, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, PAGE) == base);
	CHECK(mremap(base, 0, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	EXPECT_AREAS("duplicated", to, 4, "0+3 r--s @1 memfd:twice (deleted)");
	CHECK_EQ(to[2 * PAGE], 4);
	CHECK(munmap(base, 2 * PAGE) == 0 && munmap(to, 3 * PAGE) == 0 && close(fd) == 0);
	say("old size 0");
}

static void files(void)
{
	int fd = memory_file("moved", 6);
	unsigned char *base = place_for(6, PAGE), *to = place_for(6, PAGE);
	CHECK(mmap(base, 6 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	base[2 * PAGE] = 70;
	CHECK(move_to(base + PAGE, 3, 3, 0, to) == to);
	EXPECT_AREAS("a private file, from", base, 6, "0+1 rw-p @0 memfd:moved (deleted), 4+2 rw-p @4 memfd:moved (deleted)");
	EXPECT_AREAS("a private file, to", to, 6, "0+3 rw-p @1 memfd:moved (deleted)");
	CHECK_EQ(to[0], 2);
	CHECK_EQ(to[PAGE], 70);
	CHECK_EQ(to[2 * PAGE], 4);
	/* Back to where it belongs: one area again. */
	CHECK(move_to(to, 3, 3, 0, base + PAGE) == base + PAGE);
	CHECK_EQ(base[2 * PAGE], 70);
	CHECK(munmap(base, 6 * PAGE) == 0);
	CHECK(mmap(base, 6 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(move_to(base + 2 * PAGE, 2, 2, 0, to) == to);
	to[0] = 33;
	unsigned char byte;
	CHECK_EQ(pread(fd, &byte, 1, 2 * PAGE), 1);
	CHECK_EQ(byte, 33);
	CHECK(munmap(base, 6 * PAGE) == 0 && munmap(to, 6 * PAGE) == 0 && close(fd) == 0);
}

/* What a parent and its child share is moved by one of them: the other sees nothing of it. */
static void after_fork(void)
{
	unsigned char *base = window_of(600, TABLE), *to = place_for(600, TABLE), *askew = place_for(600, TABLE) + 7 * PAGE;
	fill(base, 600, 1);
	IN_CHILD(0, {
		CHECK(move_to(base, 600, 600, 0, to) == to);
		holds(to, 600, 1);
		fill(to, 300, 5000);
		holds(to + 300 * PAGE, 300, 301);
		CHECK(move_to(to, 600, 600, 0, askew) == askew);
		holds(askew, 300, 5000), holds(askew + 300 * PAGE, 300, 301);
		IN_CHILD(0, {
			fill(askew, 600, 9000);
			CHECK(move_to(askew, 600, 700, 0, base) == base);
			holds(base, 600, 9000), is_zero(base + 600 * PAGE, 100);
		});
		holds(askew, 300, 5000), holds(askew + 300 * PAGE, 300, 301);
	});
	holds(base, 600, 1);
	/* The parent moves while a child still has it. */
	int gate[2];
	char byte;
	CHECK(pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(read(gate[0], &byte, 1), 1);
		holds(base, 600, 1);
		fill(base, 600, 3);
		holds(base, 600, 3);
		_exit(0);
	}
	CHECK(move_to(base, 600, 600, 0, to) == to);
	fill(to, 600, 40);
	CHECK_EQ(write(gate[1], "x", 1), 1);
	expect_exit(child, 0);
	holds(to, 600, 40);
	CHECK_AREAS(base, 600, "");
	CHECK(munmap(to, 600 * PAGE) == 0 && close(gate[0]) == 0 && close(gate[1]) == 0);
	say("moving what is shared after fork");
}

/* Whole tables move as they are where both places lie alike to them; the edges do not. Every mixture of both. */
static void whole_tables(void)
{
	static const size_t starts[] = { 0, 1, 511 }, sizes[] = { 511, 512, 513, 1024, 1536, 2000 };
	unsigned char *from = place_for(4096, 8 * TABLE), *to = place_for(4096, 8 * TABLE);
	for (size_t s = 0; s < 3; s++)
		for (size_t d = 0; d < 3; d++)
			for (size_t n = 0; n < 6; n++) {
				unsigned char *base = from + starts[s] * PAGE, *at = to + starts[d] * PAGE;
				size_t pages = sizes[n];
				/* Something before and behind, in the same tables. */
				CHECK(mmap(from, 4096 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == from);
				CHECK(mmap(to, 4096 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == to);
				fill(from, 4096, 1);
				fill(to, starts[d] + 1, 10000);
				fill(to + 2600 * PAGE, 10, 20000);
				CHECK(move_to(base, pages, pages, 0, at) == at);
				holds(at, pages, 1 + (unsigned)starts[s]);
				holds(from, starts[s], 1);
				holds(base + pages * PAGE, 4096 - starts[s] - pages, 1 + (unsigned)(starts[s] + pages));
				holds(to, starts[d], 10000);
				holds(to + 2600 * PAGE, 10, 20000);
				is_zero(at + pages * PAGE, 2600 - starts[d] - pages);
				CHECK(access_of(base) == '-' && access_of(base + (pages - 1) * PAGE) == '-');
			}
	CHECK(munmap(from, 4096 * PAGE) == 0 && munmap(to, 4096 * PAGE) == 0);
	say("whole tables and their edges");

	/* Tables of tables: two GiB with a page here and there. */
	size_t gib = 1UL << 30, span = 2 * gib / PAGE;
	unsigned char *base = place_for(span, gib), *at = place_for(span + 1024, gib);
	for (int askew = 0; askew < 2; askew++) {
		unsigned char *target = at + (askew ? TABLE : 0);
		CHECK(mmap(base, 2 * gib, RW, ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == base);
		for (size_t place = 0; place < 2 * gib; place += gib / 16)
			base[place + 12345] = (unsigned char)(1 + place / (gib / 16));
		IN_CHILD(0, {
			CHECK(move_to(base, span, span, 0, target) == target);
			target[12345] = 200;
			CHECK_EQ(target[gib + 12345], 17);
		});
		CHECK(move_to(base, span, span, 0, target) == target);
		for (size_t place = 0; place < 2 * gib; place += gib / 16) {
			CHECK_EQ(target[place + 12345], 1 + place / (gib / 16));
			CHECK_EQ(target[place + gib / 32], 0);
		}
		CHECK(access_of(base) == '-' && access_of(base + gib) == '-');
		CHECK(munmap(target, 2 * gib) == 0);
	}
	say("tables of tables");
}

/* Random moves in a window of 64 pages beside a model of what each page holds; half of the time with a child that shares
 * it and that must keep what it had. */
enum { PAGES = 64, STEPS = 3000 };

static unsigned model[2 * PAGES];
static unsigned char present[2 * PAGES];
static uint64_t state = 0x9e3779b97f4a7c15;

static size_t below(size_t limit)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 20) % limit;
}

static void compare(unsigned char *base)
{
	for (size_t page = 0; page < 2 * PAGES; page++) {
		CHECK_EQ(access_of(base + page * PAGE), present[page] ? 'w' : '-');
		if (present[page])
			CHECK_EQ(*(volatile unsigned *)(base + page * PAGE), model[page]);
	}
}

static void random_moves(void)
{
	unsigned char *base = place_for(2 * PAGES, TABLE) + TABLE - PAGES * PAGE; /* over a border of two tables */
	long moved = 0;
	for (int step = 0; step < STEPS; step++) {
		size_t from = below(2 * PAGES), to = below(2 * PAGES), old = 1 + below(12), new = 1 + below(12);
		if (from + old > 2 * PAGES || to + new > 2 * PAGES)
			continue;
		if (below(4) == 0) {
			CHECK(mmap(base + from * PAGE, old * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base + from * PAGE);
			for (size_t i = from; i < from + old; i++) {
				present[i] = 1;
				model[i] = below(3) ? (unsigned)step + 1 : 0;
				if (model[i])
					*(volatile unsigned *)(base + i * PAGE) = model[i];
			}
			continue;
		}
		int whole = 1;
		for (size_t i = from; i < from + old; i++)
			whole &= present[i];
		if (!whole || (to < from + old && from < to + new))
			continue;
		void *got = move_to(base + from * PAGE, old, new, 0, base + to * PAGE);
		if (got == MAP_FAILED) {
			/* Several areas (the model does not know them): refused before anything, or after the target went. */
			CHECK_EQ(errno, EFAULT);
			for (size_t i = 0; i < 2 * PAGES; i++) {
				char access = access_of(base + i * PAGE);
				CHECK(access == '-' || present[i]);
				present[i] = access == 'w';
			}
		} else {
			moved++;
			for (size_t i = 0; i < new; i++) {
				present[to + i] = 1;
				model[to + i] = i < old ? model[from + i] : 0;
			}
			for (size_t i = from; i < from + old; i++)
				present[i] = 0;
		}
		if (step % 100 == 0) {
			compare(base);
			IN_CHILD(0, {
				for (size_t i = 0; i < 2 * PAGES; i++)
					if (present[i])
						*(volatile unsigned *)(base + i * PAGE) = 0xdead;
			});
		}
	}
	compare(base);
	CHECK(moved > 100);
	CHECK(munmap(base, 2 * PAGES * PAGE) == 0);
	say("random moves");
}

int main(void)
{
	mistakes();
	shrinking();
	growing();
	moving();
	moving_several();
	leaving_the_area();
	duplicating();
	files();
	after_fork();
	whole_tables();
	random_moves();
	return 0;
}
