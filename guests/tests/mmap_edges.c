/* mmap, munmap and mprotect: their effects at the edges, and the errno of each mistake. */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static unsigned char *map_at(void *at, size_t pages, int protection, int flags)
{
	return mmap(at, pages * PAGE, protection, ANON | flags, -1, 0);
}

/* What can be read at an address, and written back: 'w' both, 'r' only read, '-' nothing. Asked without touching it:
 * the kernel copies from there and to there. */
static char access_of(void *at)
{
	static int ends[2];
	char byte;
	if (!ends[1])
		CHECK(pipe(ends) == 0);
	if (write(ends[1], at, 1) != 1) {
		CHECK_EQ(errno, EFAULT);
		return '-';
	}
	if (read(ends[0], at, 1) == 1)
		return 'w';
	CHECK(read(ends[0], &byte, 1) == 1);
	return 'r';
}

static void show(const char *what, unsigned char *base, size_t pages)
{
	char line[64];
	for (size_t page = 0; page < pages; page++)
		line[page] = access_of(base + page * PAGE);
	line[pages] = 0;
	say("%-34s %s", what, line);
}

static void mistakes(void)
{
	void *beyond = (void *)(1UL << 62); /* also of a processor with five levels of tables */
	CHECK_ERRNO(mmap(NULL, 0, RW, ANON, -1, 0), EINVAL);
	CHECK_ERRNO(mmap(NULL, (size_t)-1, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERRNO(mmap(NULL, 1UL << 47, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERRNO(syscall(SYS_mmap, NULL, PAGE, RW, ANON, -1, 1), EINVAL);
	CHECK_ERRNO(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_ERRNO(mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0), EBADF);
	CHECK_ERRNO(mmap((void *)0x10001, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	CHECK_ERRNO(mmap(beyond, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_ERRNO(mmap((void *)-PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	unsigned char *base = map_pages(4, RW);
	CHECK_ERRNO(map_at(base + PAGE, 1, RW, MAP_FIXED_NOREPLACE), EEXIST);
	CHECK_ERRNO(munmap(base + 1, PAGE), EINVAL);
	CHECK_ERRNO(munmap(base, 0), EINVAL);
	CHECK_ERRNO(munmap(beyond, PAGE), EINVAL);
	CHECK_ERRNO(munmap(base, (size_t)-PAGE), EINVAL);
	CHECK_ERRNO(syscall(SYS_mprotect, base + 1, PAGE, RW), EINVAL);
	CHECK_ERRNO(mprotect(base, PAGE, 0x70), EINVAL);
	CHECK_ERRNO(mprotect(base, PAGE, RW | PROT_GROWSDOWN), EINVAL);
	CHECK_ERRNO(syscall(SYS_mprotect, base, -1L, RW), ENOMEM);
	CHECK(mprotect(base, 0, PROT_NONE) == 0);
	show("after mistakes", base, 4);
	CHECK(munmap(base, 4 * PAGE) == 0);
	CHECK(munmap(base, 4 * PAGE) == 0); /* nothing there: no mistake */
	CHECK_ERRNO(mprotect(base, PAGE, RW), ENOMEM);
	say("mistakes");
}

static void unmapping(void)
{
	unsigned char *base = map_pages(10, RW);
	memset(base, 1, 10 * PAGE);
	CHECK(munmap(base + 4 * PAGE, 2 * PAGE) == 0);
	show("a hole", base, 10);
	CHECK(munmap(base, PAGE) == 0);
	CHECK(munmap(base + 9 * PAGE, 1) == 0); /* a byte is a page */
	show("the ends", base, 10);
	CHECK(munmap(base, 10 * PAGE) == 0); /* over holes */
	show("all", base, 10);
	/* What is mapped again is empty. */
	CHECK(map_at(base, 10, RW, MAP_FIXED) == base);
	for (size_t at = 0; at < 10 * PAGE; at++)
		CHECK(base[at] == 0);
	CHECK(munmap(base, 10 * PAGE) == 0);
}

static void fixed(void)
{
	unsigned char *base = map_pages(12, RW);
	memset(base, 5, 12 * PAGE);
	CHECK(map_at(base + 2 * PAGE, 3, PROT_READ, MAP_FIXED) == base + 2 * PAGE);
	CHECK(map_at(base + 8 * PAGE, 1, PROT_NONE, MAP_FIXED) == base + 8 * PAGE);
	show("fixed over parts", base, 12);
	for (size_t page = 0; page < 12; page++)
		if (page != 8)
			CHECK_EQ(base[page * PAGE + 9], page >= 2 && page < 5 ? 0 : 5);
	/* Over everything, borders included, several areas at once. */
	CHECK(map_at(base + PAGE, 10, RW, MAP_FIXED) == base + PAGE);
	show("fixed over several", base, 12);
	for (size_t page = 0; page < 12; page++)
		CHECK_EQ(base[page * PAGE], page == 0 || page == 11 ? 5 : 0);
	CHECK(munmap(base + 3 * PAGE, 2 * PAGE) == 0);
	CHECK(map_at(base + 3 * PAGE, 2, PROT_READ, MAP_FIXED_NOREPLACE) == base + 3 * PAGE);
	show("into a hole", base, 12);
	CHECK(munmap(base, 12 * PAGE) == 0);
}

static void hints(void)
{
	unsigned char *base = map_pages(16, RW);
	CHECK(munmap(base + 4 * PAGE, 8 * PAGE) == 0);
	CHECK(map_at(base + 6 * PAGE, 2, RW, 0) == base + 6 * PAGE); /* free: taken */
	unsigned char *elsewhere = map_at(base, 2, RW, 0);	       /* not free */
	CHECK(elsewhere != MAP_FAILED && (elsewhere + 2 * PAGE <= base || elsewhere >= base + 4 * PAGE));
	CHECK(munmap(elsewhere, 2 * PAGE) == 0);
	unsigned char *rounded = map_at(base + 9 * PAGE + 5, 1, RW, 0);
	CHECK(rounded == base + 9 * PAGE || rounded == base + 10 * PAGE);
	CHECK(munmap(base, 16 * PAGE) == 0);
	say("hints");
}

static void protecting(void)
{
	unsigned char *base = map_pages(12, RW);
	memset(base, 6, 6 * PAGE); /* half of it touched */
	CHECK(mprotect(base + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
	show("read-only in the middle", base, 12);
	CHECK(mprotect(base + 2 * PAGE, 4 * PAGE, PROT_NONE) == 0);
	show("none over the border", base, 12);
	CHECK(mprotect(base, 12 * PAGE, RW) == 0);
	show("all again", base, 12);
	for (size_t page = 0; page < 12; page++)
		CHECK_EQ(base[page * PAGE], page < 6 ? 6 : 0);
	/* A hole: what lies before it is changed, what lies behind is not. */
	CHECK(munmap(base + 6 * PAGE, PAGE) == 0);
	CHECK_ERRNO(mprotect(base + 2 * PAGE, 8 * PAGE, PROT_READ), ENOMEM);
	show("up to a hole", base, 12);
	CHECK(munmap(base, 12 * PAGE) == 0);
	base = map_pages(2, PROT_WRITE);
	base[0] = 1; /* writable is readable on this processor */
	show("write only", base, 2);
	CHECK(munmap(base, 2 * PAGE) == 0);
}

/* After a write, made read-only and writable again: the content stays, also with a child that shares it. */
static void protecting_shared_pages(void)
{
	unsigned char *base = map_pages(8, RW);
	memset(base, 3, 8 * PAGE);
	int gate[2];
	char byte;
	CHECK(pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(mprotect(base, 8 * PAGE, PROT_READ) == 0);
		CHECK(mprotect(base, 8 * PAGE, RW) == 0);
		memset(base, 4, 4 * PAGE);
		CHECK_EQ(read(gate[0], &byte, 1), 1);
		for (size_t page = 0; page < 8; page++)
			CHECK_EQ(base[page * PAGE], page < 4 ? 4 : 3);
		_exit(0);
	}
	CHECK(mprotect(base + 2 * PAGE, 4 * PAGE, PROT_NONE) == 0);
	CHECK(mprotect(base, 8 * PAGE, RW) == 0);
	for (size_t page = 0; page < 8; page++)
		CHECK_EQ(base[page * PAGE], 3);
	memset(base, 7, 8 * PAGE);
	CHECK_EQ(write(gate[1], "x", 1), 1);
	expect_exit(child, 0);
	CHECK(munmap(base, 8 * PAGE) == 0);
	close(gate[0]), close(gate[1]);
	say("protection changes of shared pages");
}

/* Areas that become equal are one again: counted in maps. */
static int areas_in(unsigned char *base, size_t pages)
{
	static char maps[65536];
	unsigned long start, end;
	int count = 0;
	read_whole("/proc/self/maps", maps, sizeof maps);
	for (char *line = maps; *line; line = strchr(line, '\n') + 1) {
		CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
		count += start < (unsigned long)(base + pages * PAGE) && end > (unsigned long)base;
	}
	return count;
}

static void merging(void)
{
	unsigned char *base = map_pages(32, RW);
	/* Apart from the neighbours, whatever they are. */
	CHECK(mprotect(base, PAGE, PROT_NONE) == 0 && mprotect(base + 31 * PAGE, PAGE, PROT_NONE) == 0);
	unsigned char *inner = base + PAGE;
	CHECK_EQ(areas_in(inner, 30), 1);
	for (size_t page = 1; page < 29; page += 2)
		CHECK(mprotect(inner + page * PAGE, PAGE, PROT_READ) == 0);
	CHECK_EQ(areas_in(inner, 30), 29);
	for (size_t page = 1; page < 29; page += 4)
		CHECK(mprotect(inner + page * PAGE, PAGE, RW) == 0);
	say("areas after merging: %d", areas_in(inner, 30));
	CHECK(mprotect(inner, 30 * PAGE, PROT_READ) == 0);
	CHECK_EQ(areas_in(inner, 30), 1);
	CHECK(munmap(inner + 10 * PAGE, 5 * PAGE) == 0);
	CHECK_EQ(areas_in(inner, 30), 2);
	/* Writable at first, as the neighbours were: Linux keeps in an area whether it was accounted for. */
	CHECK(map_at(inner + 10 * PAGE, 5, RW, MAP_FIXED) == inner + 10 * PAGE);
	CHECK_EQ(areas_in(inner, 30), 3);
	CHECK(mprotect(inner + 10 * PAGE, 5 * PAGE, PROT_READ) == 0);
	CHECK_EQ(areas_in(inner, 30), 1);
	CHECK(munmap(base, 32 * PAGE) == 0);
	say("merging");
}

/* More memory than the machine has can be mapped if it is not used. */
static void sparse(void)
{
	size_t size = 1UL << 40;
	unsigned char *base = mmap(NULL, size, RW, ANON | MAP_NORESERVE, -1, 0);
	CHECK(base != MAP_FAILED);
	for (size_t at = 0; at < size; at += size / 64) {
		CHECK_EQ(base[at + 4097], 0);
		base[at] = (unsigned char)(at >> 34);
	}
	for (size_t at = 0; at < size; at += size / 64)
		CHECK_EQ(base[at], (unsigned char)(at >> 34));
	CHECK(munmap(base + PAGE, size - PAGE) == 0);
	CHECK(munmap(base, PAGE) == 0);
	say("a terabyte, sparsely");
}

int main(void)
{
	mistakes();
	unmapping();
	fixed();
	hints();
	protecting();
	protecting_shared_pages();
	merging();
	sparse();
	return 0;
}
