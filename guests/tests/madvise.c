/* madvise: what each advice does to content, to forks and to the areas, and what is refused. */
#include "areas.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

static int advise(void *base, size_t pages, int advice)
{
	return (int)syscall(SYS_madvise, base, pages * PAGE, advice);
}

static void fill(unsigned char *base, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		base[page * PAGE] = (unsigned char)(page + 1);
}

/* What the pages hold, a digit each (a letter from 10 on), `!` where the kernel cannot read. */
static void contents(unsigned char *base, size_t pages, const char *wanted)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	char got[80];
	for (size_t page = 0; page < pages; page++)
		got[page] = access_of(base + page * PAGE) == '-' ? '!' : digits[base[page * PAGE] % 36];
	got[pages] = 0;
	if (strcmp(got, wanted))
		FAIL("the pages hold %s, not %s", got, wanted);
}

static void mistakes(void)
{
	static const int all[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE,
		MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK, MADV_KEEPONFORK,
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, 20 /* COLD */, 21 /* PAGEOUT */,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE };
	unsigned char *base = window_of(8, PAGE);
	fill(base, 8);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		/* Of huge pages and of merging Linux knows only if it was built with them. */
		if (lacks("advice", advise(base, 0, all[i]) == 0))
			continue;
		CHECK_ERRNO(advise(base + 1, 1, all[i]), EINVAL);
		CHECK_ERRNO(syscall(SYS_madvise, base, -1L, all[i]), EINVAL); /* rounds to nothing */
		CHECK_ERRNO(syscall(SYS_madvise, base, -4096L, all[i]), EINVAL); /* ends below its start */
		CHECK_EQ(advise(base, 0, all[i]), 0);
		CHECK_EQ(advise((void *)PAGE, 0, all[i]), 0);
		CHECK_ERRNO(advise(base + 64 * PAGE, 1, all[i]), ENOMEM);
	}
	CHECK_ERRNO(advise(base, 1, 5), EINVAL);
	CHECK_ERRNO(advise(base, 0, 5), EINVAL);
	CHECK_ERRNO(advise(base, 0, -1), EINVAL);
	CHECK_ERRNO(advise(base, 0, 1000), EINVAL);
	CHECK_ERRNO(advise(base, 1, MADV_REMOVE), EINVAL); /* no file */
	CHECK_ERRNO(advise((void *)(1UL << 62), 1, MADV_DONTNEED), ENOMEM);
	contents(base, 8, "12345678");
	EXPECT_AREAS("mistakes change nothing", base, 8, "0+8 rw-p");
	/* A length is rounded up. */
	CHECK(madvise(base + 3 * PAGE, 1, MADV_DONTNEED) == 0);
	contents(base, 8, "12305678");
	/* Around a hole: what is there is advised, and the hole is told. */
	CHECK(munmap(base + 2 * PAGE, PAGE) == 0);
	CHECK_ERRNO(advise(base, 6, MADV_DONTNEED), ENOMEM);
	contents(base, 8, "00!00078");
	CHECK_ERRNO(advise(base + PAGE, 5, MADV_RANDOM), ENOMEM);
	EXPECT_AREAS("random around a hole", base, 8, "0+1 rw-p, 1+1 rw-p, 3+3 rw-p, 6+2 rw-p");
	CHECK(munmap(base, 8 * PAGE) == 0);
}

static void dontneed(void)
{
	unsigned char *base = window_of(8, PAGE), byte;
	fill(base, 8);
	CHECK_EQ(smaps_value(base, "Rss"), 32);
	CHECK(advise(base + 2 * PAGE, 3, MADV_DONTNEED) == 0);
	CHECK_EQ(smaps_value(base, "Rss"), 20);
	contents(base, 8, "12000678");
	/* Of what is shared with a child, each drops its own. */
	fill(base, 8);
	IN_CHILD(0, {
		CHECK(advise(base, 4, MADV_DONTNEED) == 0);
		contents(base, 8, "00005678");
	});
	contents(base, 8, "12345678");
	/* Without permission too. */
	CHECK(mprotect(base, 8 * PAGE, PROT_NONE) == 0);
	CHECK(advise(base, 4, MADV_DONTNEED) == 0);
	CHECK(mprotect(base, 8 * PAGE, PROT_READ) == 0);
	contents(base, 8, "00005678");
	CHECK(munmap(base, 8 * PAGE) == 0);

	int fd = memory_file("dontneed", 4);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	base[PAGE] = 9, base[2 * PAGE] = 9;
	CHECK(advise(base + PAGE, 1, MADV_DONTNEED) == 0);
	contents(base, 4, "1294");
	CHECK(munmap(base, 4 * PAGE) == 0);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	base[PAGE] = 7;
	CHECK(advise(base, 4, MADV_DONTNEED) == 0);
	contents(base, 4, "1734");
	CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == 7);
	CHECK(munmap(base, 4 * PAGE) == 0 && close(fd) == 0);
	say("DONTNEED");
}

/* Advice that is only noted: in VmFlags, splitting and merging areas. */
static void noted(void)
{
	static const struct { int on, off; const char *flag; } pairs[] = {
		{ MADV_RANDOM, MADV_NORMAL, "rr" }, { MADV_SEQUENTIAL, MADV_NORMAL, "sr" }, { MADV_DONTFORK, MADV_DOFORK, "dc" },
		{ MADV_DONTDUMP, MADV_DODUMP, "dd" }, { MADV_WIPEONFORK, MADV_KEEPONFORK, "wf" },
	};
	unsigned char *base = window_of(6, PAGE);
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
		CHECK(!has_flag(base, pairs[i].flag));
		CHECK(advise(base + 2 * PAGE, 2, pairs[i].on) == 0);
		CHECK_AREAS(base, 6, "0+2 rw-p, 2+2 rw-p, 4+2 rw-p");
		CHECK(has_flag(base + 2 * PAGE, pairs[i].flag) && !has_flag(base, pairs[i].flag));
		CHECK(!has_flag(base + 4 * PAGE, pairs[i].flag));
		CHECK(advise(base, 6, pairs[i].on) == 0);
		CHECK_AREAS(base, 6, "0+6 rw-p");
		CHECK(advise(base + PAGE, 1, pairs[i].off) == 0);
		CHECK_AREAS(base, 6, "0+1 rw-p, 1+1 rw-p, 2+4 rw-p");
		CHECK(advise(base, 6, pairs[i].off) == 0);
		CHECK_AREAS(base, 6, "0+6 rw-p");
		CHECK(!has_flag(base, pairs[i].flag));
		say("noted: %s", pairs[i].flag);
	}
	/* One replaces the other. */
	CHECK(advise(base, 6, MADV_RANDOM) == 0 && advise(base, 6, MADV_SEQUENTIAL) == 0);
	CHECK(has_flag(base, "sr") && !has_flag(base, "rr"));
	CHECK(advise(base, 6, MADV_NORMAL) == 0);
	CHECK(advise(base, 6, MADV_WILLNEED) == 0 || errno == EBADF);
	for (int advice = MADV_MERGEABLE; advice <= MADV_NOHUGEPAGE; advice++)
		lacks("advice of huge pages and of merging", advise(base, 6, advice) == 0);
	CHECK(munmap(base, 6 * PAGE) == 0);
}

static void forks(void)
{
	unsigned char *base = window_of(12, PAGE);
	fill(base, 12);
	CHECK(advise(base + 2 * PAGE, 3, MADV_DONTFORK) == 0);
	CHECK(advise(base + 7 * PAGE, 2, MADV_WIPEONFORK) == 0);
	IN_CHILD(0, {
		contents(base, 12, "12!!!6700abc");
		CHECK_AREAS(base, 12, "0+2 rw-p, 5+2 rw-p, 7+2 rw-p, 9+3 rw-p");
		KILLED_BY(SIGSEGV, base[3 * PAGE] = 1);
		CHECK(has_flag(base + 7 * PAGE, "wf"));
		base[8 * PAGE] = 5;
		IN_CHILD(0, contents(base, 12, "12!!!6700abc"));
		contents(base, 12, "12!!!6705abc");
		CHECK(advise(base + 7 * PAGE, 1, MADV_KEEPONFORK) == 0);
		base[7 * PAGE] = 4;
		IN_CHILD(0, contents(base, 12, "12!!!6740abc"));
		/* The hole can be mapped. */
		CHECK(mmap(base + 2 * PAGE, 3 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == base + 2 * PAGE);
		contents(base, 12, "120006745abc");
	});
	contents(base, 12, "123456789abc");
	EXPECT_AREAS("in the parent", base, 12, "0+2 rw-p, 2+3 rw-p, 5+2 rw-p, 7+2 rw-p, 9+3 rw-p");
	CHECK(advise(base, 12, MADV_DOFORK) == 0 && advise(base, 12, MADV_KEEPONFORK) == 0);
	EXPECT_AREAS("taken back", base, 12, "0+12 rw-p");
	IN_CHILD(0, contents(base, 12, "123456789abc"));
	/* Many of them, in tables of their own and in shared ones. */
	CHECK(munmap(base, 12 * PAGE) == 0);
	base = window_of(2048, 512 * PAGE);
	for (size_t page = 0; page < 2048; page++)
		base[page * PAGE] = 1 + page % 7;
	CHECK(advise(base + 100 * PAGE, 1000, MADV_DONTFORK) == 0);
	CHECK(advise(base + 1500 * PAGE, 524, MADV_WIPEONFORK) == 0);
	IN_CHILD(0, for (size_t page = 0; page < 2048; page++) {
		char access = access_of(base + page * PAGE);
		CHECK_EQ(access, page >= 100 && page < 1100 ? '-' : 'w');
		if (access == 'w')
			CHECK_EQ(base[page * PAGE], page >= 1500 && page < 2024 ? 0 : 1 + page % 7);
	});
	for (size_t page = 0; page < 2048; page++)
		CHECK_EQ(base[page * PAGE], 1 + page % 7);
	CHECK(munmap(base, 2048 * PAGE) == 0);
	/* Shared memory is not wiped, but can be left out. */
	base = mmap(NULL, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	CHECK_ERRNO(advise(base, 1, MADV_WIPEONFORK), EINVAL);
	CHECK(advise(base + PAGE, 1, MADV_DONTFORK) == 0);
	IN_CHILD(0, { CHECK_EQ(access_of(base), 'w'); CHECK_EQ(access_of(base + PAGE), '-'); });
	CHECK(munmap(base, 2 * PAGE) == 0);
	int fd = memory_file("wipe", 2);
	base = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, 0);
	CHECK(base != MAP_FAILED);
	CHECK_ERRNO(advise(base, 1, MADV_WIPEONFORK), EINVAL);
	CHECK(advise(base, 1, MADV_KEEPONFORK) == 0);
	CHECK(munmap(base, 2 * PAGE) == 0 && close(fd) == 0);
	say("DONTFORK, WIPEONFORK");
}

/* What is freed may go or stay until it is written again: then it stays. */
static void freed(void)
{
	unsigned char *base = window_of(8, PAGE);
	fill(base, 8);
	CHECK(advise(base, 6, MADV_FREE) == 0);
	base[2 * PAGE] = 33;
	for (size_t page = 0; page < 6; page++)
		CHECK(page == 2 || base[page * PAGE] == 0 || base[page * PAGE] == page + 1);
	CHECK_EQ(base[2 * PAGE], 33);
	CHECK_EQ(base[6 * PAGE], 7);
	IN_CHILD(0, CHECK(advise(base, 8, MADV_FREE) == 0));
	CHECK_EQ(base[2 * PAGE], 33);
	CHECK_EQ(base[7 * PAGE], 8);
	CHECK(munmap(base, 8 * PAGE) == 0);
	int fd = memory_file("free", 2);
	CHECK(mmap(base, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	CHECK_ERRNO(advise(base, 2, MADV_FREE), EINVAL);
	CHECK(mmap(base, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK_ERRNO(advise(base, 2, MADV_FREE), EINVAL);
	CHECK(munmap(base, 2 * PAGE) == 0 && close(fd) == 0);
	say("FREE");
}

static void removed(void)
{
	int fd = memory_file("remove", 6);
	unsigned char *base = place_for(6, PAGE), *other = place_for(6, PAGE), *own = place_for(6, PAGE), byte = 9;
	CHECK(mmap(base, 6 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(mmap(other, 4 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, PAGE) == other);
	CHECK(mmap(own, 6 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == own);
	contents(other, 4, "2345");
	own[PAGE] = 30; /* a copy of its own, which stays */
	CHECK_EQ(own[2 * PAGE], 3);
	CHECK(advise(base + PAGE, 2, MADV_REMOVE) == 0);
	contents(base, 6, "100456"), contents(other, 4, "0045"), contents(own, 6, "1u0456");
	CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == 0);
	base[PAGE] = 8;
	contents(other, 4, "8045");
	/* What counts is whether it could be made writable. */
	CHECK(advise(other + PAGE, 1, MADV_REMOVE) == 0);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reader = open(path, O_RDONLY);
	CHECK(reader >= 0 && mmap(other, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, reader, PAGE) == other);
	CHECK_ERRNO(advise(other, 1, MADV_REMOVE), EACCES);
	CHECK(close(reader) == 0);
	CHECK_ERRNO(advise(own, 1, MADV_REMOVE), EACCES);
	CHECK(mprotect(base, PAGE, PROT_READ) == 0);
	CHECK(advise(base, 1, MADV_REMOVE) == 0); /* writing was possible */
	contents(base, 6, "080456");
	CHECK(munmap(base, 6 * PAGE) == 0 && munmap(other, 4 * PAGE) == 0 && munmap(own, 6 * PAGE) == 0 && close(fd) == 0);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
	fill(base, 4);
	IN_CHILD(0, CHECK(advise(base + PAGE, 2, MADV_REMOVE) == 0));
	contents(base, 4, "1004");
	CHECK(munmap(base, 4 * PAGE) == 0);
	say("REMOVE");
}

static void populated(void)
{
	unsigned char *base = window_of(8, PAGE);
	CHECK_EQ(smaps_value(base, "Rss"), 0);
	CHECK(advise(base, 2, MADV_POPULATE_READ) == 0);
	CHECK_EQ(smaps_value(base, "Rss"), 0); /* zeros are nobody's */
	CHECK(advise(base + PAGE, 3, MADV_POPULATE_WRITE) == 0);
	CHECK_EQ(smaps_value(base, "Rss"), 12);
	CHECK_EQ(smaps_value(base, "Anonymous"), 12);
	contents(base, 8, "00000000");
	base[2 * PAGE] = 7;
	CHECK(advise(base, 8, MADV_POPULATE_WRITE) == 0);
	CHECK_EQ(smaps_value(base, "Rss"), 32);
	contents(base, 8, "00700000");
	/* What may not be done cannot be prepared. */
	CHECK(mprotect(base + 4 * PAGE, PAGE, PROT_READ) == 0);
	CHECK_ERRNO(advise(base, 8, MADV_POPULATE_WRITE), EINVAL);
	CHECK(advise(base, 8, MADV_POPULATE_READ) == 0);
	CHECK(mprotect(base + 4 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK_ERRNO(advise(base, 8, MADV_POPULATE_READ), EINVAL);
	CHECK(munmap(base + 4 * PAGE, PAGE) == 0);
	CHECK(advise(base + 6 * PAGE, 2, MADV_DONTNEED) == 0);
	CHECK_ERRNO(advise(base, 8, MADV_POPULATE_WRITE), ENOMEM); /* up to the hole, no further */
	CHECK_EQ(smaps_value(base + 6 * PAGE, "Rss"), 4);
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* The parent's pages are not its child's to write before it has copied them. */
	base = window_of(4, PAGE);
	fill(base, 4);
	IN_CHILD(0, {
		CHECK(advise(base, 4, MADV_POPULATE_WRITE) == 0);
		CHECK_EQ(smaps_value(base, "Private_Dirty"), 16);
		contents(base, 4, "1234");
	});
	CHECK(munmap(base, 4 * PAGE) == 0);
	int fd = memory_file("populate", 3);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base);
	CHECK(advise(base, 2, MADV_POPULATE_READ) == 0);
	CHECK_EQ(smaps_value(base, "Anonymous"), 0);
	CHECK(advise(base, 2, MADV_POPULATE_WRITE) == 0);
	CHECK_EQ(smaps_value(base, "Anonymous"), 8);
	contents(base, 3, "123");
	CHECK_ERRNO(advise(base, 4, MADV_POPULATE_READ), EFAULT); /* past the file's end */
	CHECK(munmap(base, 4 * PAGE) == 0 && close(fd) == 0);
	say("POPULATE");
}

/* Advice about when memory will be wanted changes nothing that can be seen in it. */
static void later(void)
{
	static const int advice[] = { 20, 21, MADV_WILLNEED };
	int fd = memory_file("later", 4);
	unsigned char *base = window_of(4, PAGE), *file = place_for(4, PAGE), *shared = place_for(4, PAGE);
	fill(base, 4);
	CHECK(mmap(file, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == file);
	CHECK(mmap(shared, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == shared);
	file[0] = 9;
	for (size_t i = 0; i < 3; i++) {
		if (advice[i] != MADV_WILLNEED)
			CHECK_EQ(advise(base, 4, advice[i]), 0);
		CHECK_EQ(advise(file, 4, advice[i]), 0);
		CHECK_EQ(advise(shared, 4, advice[i]), 0);
		contents(base, 4, "1234"), contents(file, 4, "9234"), contents(shared, 4, "1234");
		IN_CHILD(0, {
			CHECK_EQ(advise(file, 4, advice[i]), 0);
			contents(file, 4, "9234");
		});
	}
	CHECK(munmap(base, 4 * PAGE) == 0 && munmap(file, 4 * PAGE) == 0 && munmap(shared, 4 * PAGE) == 0 && close(fd) == 0);
	say("COLD, PAGEOUT, WILLNEED");
}

static void check_guards(void)
{
	unsigned char *base = window_of(8, PAGE), *to = place_for(8, PAGE);
	fill(base, 8);
	CHECK(advise(base + 2 * PAGE, 3, MADV_GUARD_INSTALL) == 0);
	CHECK_AREAS(base, 8, "0+8 rw-p");
	contents(base, 8, "12!!!678");
	KILLED_BY(SIGSEGV, (void)*(volatile char *)(base + 2 * PAGE));
	KILLED_BY(SIGSEGV, base[4 * PAGE] = 1);
	CHECK_EQ(smaps_value(base, "Rss"), 20);
	/* Neither dropping content nor protection, nor advice, nor a fork takes them away. */
	CHECK(advise(base, 8, MADV_DONTNEED) == 0);
	contents(base, 8, "00!!!000");
	CHECK(advise(base, 8, MADV_FREE) == 0);
	contents(base, 8, "00!!!000");
	CHECK(mprotect(base, 8 * PAGE, PROT_READ) == 0 && mprotect(base, 8 * PAGE, RW) == 0);
	fill(base, 2);
	CHECK_ERRNO(advise(base, 8, MADV_POPULATE_READ), EFAULT);
	CHECK_ERRNO(advise(base, 8, MADV_POPULATE_WRITE), EFAULT);
	IN_CHILD(0, {
		contents(base, 8, "12!!!000");
		CHECK(advise(base + 3 * PAGE, 1, MADV_GUARD_REMOVE) == 0);
		contents(base, 8, "12!0!000");
		base[3 * PAGE] = 5;
		IN_CHILD(0, contents(base, 8, "12!5!000"));
	});
	contents(base, 8, "12!!!000");
	/* They move along. */
	CHECK(mremap(base, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	contents(to, 8, "12!!!000");
	CHECK(mremap(to, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, base) == base);
	/* Removing touches nothing but guards; installing again changes nothing. */
	CHECK(advise(base + 3 * PAGE, 1, MADV_GUARD_INSTALL) == 0);
	CHECK(advise(base, 4, MADV_GUARD_REMOVE) == 0);
	contents(base, 8, "1200!000");
	CHECK(advise(base, 8, MADV_GUARD_REMOVE) == 0);
	fill(base, 8);
	CHECK(advise(base, 8, MADV_GUARD_REMOVE) == 0);
	contents(base, 8, "12345678");
	/* Unmapping takes them away. */
	CHECK(advise(base, 8, MADV_GUARD_INSTALL) == 0);
	contents(base, 8, "!!!!!!!!");
	CHECK(mmap(base, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base);
	contents(base, 8, "0000!!!!");
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* Where it is refused. */
	CHECK(mmap(base, 8 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base);
	CHECK_ERRNO(advise(base + 1, 1, MADV_GUARD_INSTALL), EINVAL);
	CHECK(munmap(base + 3 * PAGE, PAGE) == 0);
	CHECK_ERRNO(advise(base, 8, MADV_GUARD_INSTALL), ENOMEM);
	contents(base, 8, "!!!!!!!!");
	CHECK_ERRNO(advise(base, 8, MADV_GUARD_REMOVE), ENOMEM);
	contents(base, 8, "000!0000");
	CHECK(mlock(base, PAGE) == 0);
	CHECK_ERRNO(advise(base, 1, MADV_GUARD_INSTALL), EINVAL);
	CHECK(munlock(base, PAGE) == 0);
	CHECK(mprotect(base, PAGE, PROT_READ) == 0);
	CHECK(advise(base, 1, MADV_WIPEONFORK) == 0);
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* They are wiped with the content. */
	CHECK(mmap(base, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base);
	fill(base, 4);
	CHECK(advise(base, 4, MADV_WIPEONFORK) == 0);
	CHECK(advise(base + PAGE, 1, MADV_GUARD_INSTALL) == 0);
	IN_CHILD(0, contents(base, 4, "0000"));
	contents(base, 4, "1!34");
	CHECK(munmap(base, 4 * PAGE) == 0);
	/* Over whole tables, touched and not. */
	base = window_of(2048, 512 * PAGE);
	base[700 * PAGE] = 1;
	CHECK(advise(base + 5 * PAGE, 2000, MADV_GUARD_INSTALL) == 0);
	for (size_t page = 0; page < 2048; page++)
		CHECK_EQ(access_of(base + page * PAGE), page >= 5 && page < 2005 ? '-' : 'w');
	CHECK(advise(base + 6 * PAGE, 1998, MADV_GUARD_REMOVE) == 0);
	for (size_t page = 0; page < 2048; page++)
		CHECK_EQ(access_of(base + page * PAGE), page == 5 || page == 2004 ? '-' : 'w');
	CHECK_EQ(base[700 * PAGE], 0);
	CHECK(munmap(base, 2048 * PAGE) == 0);
}

static void guards(void)
{
	unsigned char *base = window_of(1, PAGE);
	if (!lacks("MADV_GUARD_INSTALL", advise(base, 1, MADV_GUARD_INSTALL) == 0))
		check_guards();
	CHECK(munmap(base, PAGE) == 0);
	say("GUARD_INSTALL, GUARD_REMOVE");
}

/* The same by process_madvise, for the process itself. */
static void of_processes(void)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CHECK(self >= 0);
	unsigned char *base = window_of(8, PAGE);
	fill(base, 8);
	struct { void *base; size_t length; } ranges[2] = { { base, 2 * PAGE }, { base + 4 * PAGE, PAGE } };
	CHECK_EQ(syscall(SYS_process_madvise, self, ranges, 2, 20, 0), 3 * PAGE);
	CHECK_EQ(syscall(SYS_process_madvise, self, ranges, 2, 21, 0), 3 * PAGE);
	CHECK_EQ(syscall(SYS_process_madvise, self, ranges, 0, 20, 0), 0);
	contents(base, 8, "12345678");
	CHECK_ERRNO(syscall(SYS_process_madvise, self, ranges, 2, 20, 1), EINVAL);
	CHECK_ERRNO(syscall(SYS_process_madvise, 12345, ranges, 2, 20, 0), EBADF);
	CHECK_ERRNO(syscall(SYS_process_madvise, self, ranges, 2, 5, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_process_madvise, self, nowhere, 2, 20, 0), EFAULT);
	CHECK_ERRNO(syscall(SYS_process_madvise, self, ranges, 1025, 20, 0), EINVAL);
	/* What was done before a mistake counts. */
	ranges[1].base = base + 64 * PAGE;
	CHECK_EQ(syscall(SYS_process_madvise, self, ranges, 2, 20, 0), 2 * PAGE);
	CHECK_ERRNO(syscall(SYS_process_madvise, self, ranges + 1, 1, 20, 0), ENOMEM);
	CHECK(munmap(base, 8 * PAGE) == 0 && close(self) == 0);
	say("process_madvise");
}

int main(void)
{
	mistakes();
	dontneed();
	noted();
	forks();
	freed();
	removed();
	populated();
	later();
	guards();
	of_processes();
	return 0;
}
