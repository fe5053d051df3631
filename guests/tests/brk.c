/* The heap's end: growing, shrinking, what it refuses. */
#include "check.h"

static unsigned char *page_up(unsigned char *at)
{
	return (unsigned char *)(((uintptr_t)at + PAGE - 1) & -PAGE);
}

int main(void)
{
	/* Nothing here allocates: the heap is this test's own. */
	unsigned char *start = raw_brk(NULL);
	CHECK(start != NULL);
	CHECK(raw_brk(NULL) == start);
	unsigned char *base = page_up(start);

	CHECK(raw_brk(base + 100 * PAGE) == base + 100 * PAGE);
	for (size_t at = 0; at < 100 * PAGE; at++)
		CHECK(base[at] == 0);
	memset(base, 9, 100 * PAGE);
	say("grown by 100 pages");

	CHECK(raw_brk(base + 40 * PAGE) == base + 40 * PAGE);
	KILLED_BY(SIGSEGV, ((volatile unsigned char *)base)[40 * PAGE] = 1);
	CHECK(raw_brk(base + 100 * PAGE) == base + 100 * PAGE);
	for (size_t page = 0; page < 100; page++)
		CHECK_EQ(base[page * PAGE + 17], page < 40 ? 9 : 0);
	say("shrunk and grown: empty again");

	/* An end within a page: the whole page is there. */
	CHECK(raw_brk(base + 100 * PAGE + 1) == base + 100 * PAGE + 1);
	base[101 * PAGE - 1] = 1;
	KILLED_BY(SIGSEGV, ((volatile unsigned char *)base)[101 * PAGE] = 1);
	CHECK(raw_brk(base + 100 * PAGE + 4096) == base + 100 * PAGE + 4096);
	CHECK_EQ(base[101 * PAGE - 1], 1);
	say("an end within a page");

	/* Refused: the old end is the answer. */
	unsigned char *end = raw_brk(NULL);
	CHECK(raw_brk((void *)PAGE) == end);
	CHECK(raw_brk((void *)(1UL << 46)) == end || raw_brk(end) == end);
	CHECK(raw_brk((void *)-1L) == end);
	say("refused ends change nothing");

	/* A mapping in the way. */
	unsigned char *wall = base + 120 * PAGE;
	CHECK(mmap(wall, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == wall);
	CHECK(raw_brk(base + 125 * PAGE) == end);
	CHECK(raw_brk(base + 110 * PAGE) == base + 110 * PAGE);
	CHECK(munmap(wall, PAGE) == 0);
	CHECK(raw_brk(base + 125 * PAGE) == base + 125 * PAGE);
	say("a mapping in the way");

	/* The child's heap is its own. */
	IN_CHILD(0, {
		CHECK(raw_brk(NULL) == base + 125 * PAGE);
		CHECK(raw_brk(base + 200 * PAGE) == base + 200 * PAGE);
		memset(base, 7, 200 * PAGE);
		CHECK(raw_brk(base) == base);
	});
	CHECK(raw_brk(NULL) == base + 125 * PAGE);
	CHECK_EQ(base[17], 9);
	say("a child's heap");

	for (int i = 0; i < 1000; i++) {
		CHECK(raw_brk(base + (size_t)(i % 300) * PAGE) == base + (size_t)(i % 300) * PAGE);
		if (i % 300)
			base[(size_t)(i % 300) * PAGE - 1] = 1;
	}
	CHECK(raw_brk(start) == start);
	say("a thousand moves");
	CHECK(raw_brk(base + 64 * MIB) == base + 64 * MIB);
	for (size_t at = 0; at < 64 * MIB; at += PAGE)
		base[at]++;
	for (size_t at = 0; at < 64 * MIB; at += PAGE)
		CHECK_EQ(base[at], 1);
	CHECK(raw_brk(start) == start);
	say("64 MiB");
	return 0;
}
