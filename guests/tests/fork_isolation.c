/* After a fork each process has its own copy of every page of private memory, wherever it lies, and one common copy of
 * shared memory. */
#include "check.h"

#define PAGES 96

static unsigned char data[PAGES * PAGE] = { 1 };
static unsigned char bss[PAGES * PAGE];

struct area {
	const char *name;
	unsigned char *base;
};

static void fill(unsigned char *base, unsigned char mark)
{
	for (size_t page = 0; page < PAGES; page++) {
		base[page * PAGE] = (unsigned char)(mark + page);
		base[page * PAGE + PAGE - 1] = (unsigned char)(mark ^ page);
	}
}

static int holds(const unsigned char *base, unsigned char mark)
{
	for (size_t page = 0; page < PAGES; page++)
		if (base[page * PAGE] != (unsigned char)(mark + page) ||
		    base[page * PAGE + PAGE - 1] != (unsigned char)(mark ^ page))
			return 0;
	return 1;
}

/* Each process writes every page of the area before the other looks, in both orders. */
static void isolated(const struct area *area)
{
	int to_child[2], to_parent[2];
	char byte = 0;
	CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
	fill(area->base, 10);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(holds(area->base, 10));
		fill(area->base, 20);
		CHECK(write(to_parent[1], "a", 1) == 1);
		CHECK(read(to_child[0], &byte, 1) == 1);
		CHECK(holds(area->base, 20));
		_exit(0);
	}
	CHECK(read(to_parent[0], &byte, 1) == 1);
	CHECK(holds(area->base, 10));
	fill(area->base, 30);
	CHECK(write(to_child[1], "b", 1) == 1);
	expect_exit(child, 0);
	CHECK(holds(area->base, 30));
	close(to_child[0]), close(to_child[1]), close(to_parent[0]), close(to_parent[1]);
	say("%s: isolated", area->name);
}

/* Every node of a tree of processes writes its own mark and finds it again after its children have written theirs. */
static void tree(unsigned char *base, int depth, unsigned char mark)
{
	fill(base, mark);
	if (depth == 0)
		return;
	pid_t children[3];
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			CHECK(holds(base, mark));
			tree(base, depth - 1, (unsigned char)(mark * 3 + i + 1));
			_exit(0);
		}
	}
	CHECK(holds(base, mark));
	for (int i = 0; i < 3; i++)
		expect_exit(children[i], 0);
	CHECK(holds(base, mark));
}

/* Pages that the parent never touched read as zero in the child, and stay zero in the parent. */
static void untouched(void)
{
	unsigned char *base = map_pages(PAGES, PROT_READ | PROT_WRITE);
	base[7 * PAGE] = 7;
	volatile unsigned char seen = base[9 * PAGE]; /* read only: the zero page */
	CHECK(seen == 0);
	IN_CHILD(0, {
		for (size_t page = 0; page < PAGES; page++)
			CHECK_EQ(base[page * PAGE], page == 7 ? 7 : 0);
		memset(base, 0xff, PAGES * PAGE);
	});
	for (size_t page = 0; page < PAGES; page++)
		CHECK_EQ(base[page * PAGE], page == 7 ? 7 : 0);
	CHECK(munmap(base, PAGES * PAGE) == 0);
	say("untouched pages: zero on both sides");
}

/* What one process maps, unmaps and protects after a fork is nothing to the other. */
static void layout(void)
{
	unsigned char *base = map_pages(PAGES, PROT_READ | PROT_WRITE);
	fill(base, 40);
	IN_CHILD(0, {
		CHECK(munmap(base + 10 * PAGE, 20 * PAGE) == 0);
		CHECK(mprotect(base + 40 * PAGE, 10 * PAGE, PROT_NONE) == 0);
		CHECK(mmap(base + 60 * PAGE, 5 * PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		      base + 60 * PAGE);
		CHECK_EQ(base[60 * PAGE], 0);
	});
	CHECK(holds(base, 40));
	fill(base, 50);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		usleep(20000);
		_exit(holds(base, 50) ? 0 : 3);
	}
	CHECK(munmap(base, PAGES * PAGE) == 0);
	expect_exit(child, 0);
	say("layout: each its own");
}

static void shared_memory(void)
{
	unsigned char *base = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	fill(base, 60);
	IN_CHILD(0, {
		CHECK(holds(base, 60));
		IN_CHILD(0, fill(base, 70));
		CHECK(holds(base, 70));
		fill(base, 80);
	});
	CHECK(holds(base, 80));
	CHECK(munmap(base, PAGES * PAGE) == 0);
	/* Touched for the first time in the child. */
	base = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	IN_CHILD(0, fill(base, 90));
	CHECK(holds(base, 90));
	CHECK(munmap(base, PAGES * PAGE) == 0);
	say("shared memory: common");
}

/* A parent that forks again and again while it writes: every child keeps the content of its own moment. */
static void generations(unsigned char *base)
{
	enum { CHILDREN = 12 };
	pid_t children[CHILDREN];
	int gate[2];
	CHECK(pipe(gate) == 0);
	for (int i = 0; i < CHILDREN; i++) {
		fill(base, (unsigned char)(100 + i));
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			char byte;
			close(gate[1]);
			CHECK_EQ(read(gate[0], &byte, 1), 0);
			_exit(holds(base, (unsigned char)(100 + i)) ? 0 : 4);
		}
	}
	fill(base, 99);
	close(gate[0]), close(gate[1]);
	for (int i = 0; i < CHILDREN; i++)
		expect_exit(children[i], 0);
	CHECK(holds(base, 99));
	say("generations: each child keeps its moment");
}

static void on_stack(void)
{
	unsigned char stack[PAGES * PAGE];
	struct area area = { "stack", stack };
	isolated(&area);
	tree(stack, 2, 5);
}

int main(void)
{
	CHECK(data[0] == 1);
	unsigned char *heap = malloc(PAGES * PAGE);
	unsigned char *end = raw_brk(NULL);
	unsigned char *brk_area = (unsigned char *)(((uintptr_t)end + PAGE - 1) & -PAGE);
	CHECK(heap != NULL);
	CHECK(raw_brk(brk_area + PAGES * PAGE) == brk_area + PAGES * PAGE);
	struct area areas[] = {
		{ "data", data },
		{ "bss", bss },
		{ "heap", heap },
		{ "brk", brk_area },
		{ "private mapping", map_pages(PAGES, PROT_READ | PROT_WRITE) },
	};
	size_t count = sizeof areas / sizeof *areas;
	for (size_t i = 0; i < count; i++)
		isolated(&areas[i]);
	on_stack();
	for (size_t i = 0; i < count; i++)
		tree(areas[i].base, 3, (unsigned char)(i + 1));
	say("trees of 40 processes: isolated");
	untouched();
	layout();
	shared_memory();
	generations(bss);
	return 0;
}
