/* Processes change their memory at random, fork in between, and know at each moment what every page must hold: a model
 * beside the memory, compared page by page. The same numbers in each run. */
#include "check.h"

/* Three windows, each over a border of the page tables: of a last-level table, of one above, and of the next. */
enum { WINDOW = 600, WINDOWS = 3, PAGES = WINDOW * WINDOWS };

static const uintptr_t borders[WINDOWS] = { 0x200000200000, 0x200040000000, 0x208000000000 };

/* What a page is in the model. */
struct page {
	unsigned char mapped, protection;
	uint32_t content;
};

static struct page model[PAGES];
static uint64_t state;
static long steps_done, forks_done;

static uint64_t random_below(uint64_t limit)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 16) % limit;
}

static volatile uint32_t *address(size_t page)
{
	uintptr_t start = borders[page / WINDOW] - WINDOW / 2 * PAGE;
	return (volatile uint32_t *)(start + page % WINDOW * PAGE);
}

/* Whether the kernel can read there, asked without touching. */
static int readable(size_t page)
{
	static int ends[2];
	char byte;
	if (!ends[1])
		CHECK(pipe(ends) == 0);
	if (write(ends[1], (const void *)address(page), 1) == 1) {
		CHECK(read(ends[0], &byte, 1) == 1);
		return 1;
	}
	CHECK(errno == EFAULT);
	return 0;
}

static void look(size_t page)
{
	if (model[page].mapped && model[page].protection & PROT_READ)
		CHECK_EQ(*address(page), model[page].content);
	else
		CHECK(!readable(page));
}

static void look_at_all(void)
{
	for (size_t page = 0; page < PAGES; page++)
		if (model[page].mapped && model[page].protection & PROT_READ)
			look(page);
	for (int i = 0; i < 50; i++)
		look(random_below(PAGES));
}

/* A range within one window: mostly short. */
static size_t range(size_t *length)
{
	size_t window = random_below(WINDOWS), start = random_below(WINDOW);
	*length = 1 + random_below(random_below(8) ? 12 : 300);
	if (*length > WINDOW - start)
		*length = WINDOW - start;
	return window * WINDOW + start;
}

static void set(size_t start, size_t length, struct page page)
{
	for (size_t i = start; i < start + length; i++)
		model[i] = page;
}

static const int protections[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE };

static void map_some(void)
{
	size_t length, start = range(&length);
	int protection = protections[random_below(4)];
	void *at = (void *)address(start);
	CHECK(mmap(at, length * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	set(start, length, (struct page){ 1, (unsigned char)protection, 0 });
}

static void unmap_some(void)
{
	size_t length, start = range(&length);
	CHECK(munmap((void *)address(start), length * PAGE) == 0);
	set(start, length, (struct page){ 0, 0, 0 });
}

static void protect_some(void)
{
	size_t length, start = range(&length), changed = 0;
	int protection = protections[random_below(4)];
	int result = mprotect((void *)address(start), length * PAGE, protection);
	int why = errno;
	/* Up to the first hole. */
	while (changed < length && model[start + changed].mapped)
		model[start + changed++].protection = (unsigned char)protection;
	if (changed == length)
		CHECK_EQ(result, 0);
	else
		CHECK(result == -1 && why == ENOMEM);
}

static void write_some(void)
{
	size_t length, start = range(&length);
	for (size_t i = start; i < start + length; i++)
		if (model[i].mapped && model[i].protection & PROT_WRITE) {
			look(i);
			*address(i) = model[i].content = (uint32_t)random_below(UINT32_MAX) + 1;
		}
}

/* What the kernel writes for the program. */
static void receive_some(void)
{
	static int zero = -1;
	size_t length, start = range(&length), good = 0;
	if (zero < 0)
		zero = open("/dev/zero", O_RDONLY);
	while (good < length && model[start + good].mapped && model[start + good].protection & PROT_WRITE)
		good++;
	ssize_t got = read(zero, (void *)address(start), length * PAGE);
	if (good == 0) {
		CHECK(got == -1 && errno == EFAULT);
		return;
	}
	CHECK_EQ(got, good * PAGE);
	for (size_t i = start; i < start + good; i++)
		model[i].content = 0;
}

static void live(int depth, int steps);

static void fork_some(int depth, int steps)
{
	if (depth == 0)
		return;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		state = state * 31 + 7;
		steps_done = forks_done = 0;
		look_at_all();
		live(depth - 1, steps / 3);
		_exit(0);
	}
	forks_done++;
	if (random_below(2)) /* else it lives beside its parent, and is waited for at the end */
		expect_exit(child, 0);
}

static void live(int depth, int steps)
{
	for (int step = 0; step < steps; step++) {
		switch (random_below(depth ? 40 : 36)) {
		case 0 ... 5: map_some(); break;
		case 6 ... 8: unmap_some(); break;
		case 9 ... 14: protect_some(); break;
		case 15 ... 28: write_some(); break;
		case 29 ... 30: receive_some(); break;
		case 31 ... 35: look(random_below(PAGES)); break;
		default:
			if (step % 3 == 0)
				fork_some(depth, steps);
		}
		steps_done++;
	}
	look_at_all();
	int status;
	while (wait(&status) > 0)
		CHECK_EQ(status, 0);
}

int main(void)
{
	for (int round = 1; round <= 6; round++) {
		state = 0x9e3779b97f4a7c15u * (uint64_t)round;
		steps_done = forks_done = 0;
		live(2, 600);
		long mapped = 0, sum = 0;
		for (size_t page = 0; page < PAGES; page++)
			mapped += model[page].mapped, sum += model[page].content % 1000;
		say("round %d: %ld steps, %ld forks, %ld pages mapped, sum %ld", round, steps_done, forks_done, mapped, sum);
	}
	return 0;
}
