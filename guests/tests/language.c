/* What a C program takes for granted: the heap, long jumps, formatted output, sorting, deep recursion. */
#include "check.h"
#include <setjmp.h>

static uint64_t state = 88172645463325252u;

static uint64_t random_number(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return state;
}

enum { BLOCKS = 2000 };

static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];

static void fill(int i)
{
	for (size_t at = 0; at < sizes[i]; at += 61)
		blocks[i][at] = (unsigned char)(i + at);
	if (sizes[i])
		blocks[i][sizes[i] - 1] = (unsigned char)~i;
}

static void check_block(int i, size_t size)
{
	for (size_t at = 0; at + 1 < size; at += 61)
		CHECK_EQ(blocks[i][at], (unsigned char)(i + at));
	if (size == sizes[i] && size)
		CHECK_EQ(blocks[i][size - 1], (unsigned char)~i);
}

/* Small and large blocks, so that the heap and mappings are both used. */
static void allocation(int steps)
{
	for (int step = 0; step < steps; step++) {
		int i = (int)(random_number() % BLOCKS);
		size_t size = random_number() % (step % 50 == 0 ? 600000 : 3000);
		switch (random_number() % 3) {
		case 0:
			check_block(i, sizes[i]);
			free(blocks[i]);
			blocks[i] = malloc(size);
			break;
		case 1: {
			size_t kept = size < sizes[i] ? size : sizes[i];
			check_block(i, sizes[i]);
			blocks[i] = realloc(blocks[i], size ? size : 1);
			if (kept < sizes[i])
				check_block(i, kept);
			break;
		}
		default:
			check_block(i, sizes[i]);
			free(blocks[i]);
			blocks[i] = calloc(size ? size : 1, 1);
			for (size_t at = 0; at < size; at += 7)
				CHECK_EQ(blocks[i][at], 0);
		}
		CHECK(blocks[i] != NULL || size == 0);
		sizes[i] = size;
		fill(i);
	}
	for (int i = 0; i < BLOCKS; i++) {
		check_block(i, sizes[i]);
		free(blocks[i]);
		blocks[i] = NULL, sizes[i] = 0;
	}
}

static jmp_buf back;

__attribute__((noinline)) static void dive(int depth)
{
	volatile char room[200];
	room[0] = (char)depth;
	if (room[0] > 0)
		dive(depth - 1);
	else if (room[0] == 0)
		longjmp(back, 7);
	room[1] = room[0];
}

static void jumps(void)
{
	volatile int times = 0;
	for (volatile int i = 0; i < 1000; i++)
		if (setjmp(back) == 0)
			dive(i % 100);
		else
			times++;
	say("%d long jumps", times);
}

static int ascending(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return (left > right) - (left < right);
}

static void sorting(void)
{
	size_t count = 200000;
	uint64_t *numbers = malloc(count * sizeof *numbers), sum = 0;
	CHECK(numbers != NULL);
	for (size_t i = 0; i < count; i++)
		sum += numbers[i] = random_number();
	qsort(numbers, count, sizeof *numbers, ascending);
	for (size_t i = 0; i < count; i++) {
		sum -= numbers[i];
		CHECK(i == 0 || numbers[i - 1] <= numbers[i]);
	}
	CHECK_EQ(sum, 0);
	say("sorted: least %016llx", (unsigned long long)numbers[0]);
	free(numbers);
}

static void numbers(void)
{
	double root = 1, sum = 0;
	volatile double third = 1.0 / 3;
	for (int i = 0; i < 20; i++)
		root = (root + 2 / root) / 2;
	for (int i = 1; i <= 100000; i++)
		sum += 1.0 / ((double)i * i);
	say("%.17g %.17g %.17g %a", root, third, sum, 1e-300);
	say("%.15Lg", (long double)root * (long double)third);
	say("%d %x %o %s %c %5.2f|%-8s|%08ld", -1, 255, 8, "text", 'c', 3.14159, "left", 42L);
	CHECK(strtod("1.5e300", NULL) == 1.5e300 && strtol("-0x7f", NULL, 16) == -127);
}

/* In one process, in its children, and in the parent again. */
int main(void)
{
	allocation(20000);
	say("allocation");
	for (int i = 0; i < BLOCKS; i++) {
		sizes[i] = (size_t)i;
		blocks[i] = malloc(sizes[i]);
		fill(i);
	}
	pid_t children[4];
	for (int i = 0; i < 4; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			state += (uint64_t)i;
			allocation(5000);
			exit(i);
		}
	}
	allocation(5000);
	for (int i = 0; i < 4; i++)
		expect_exit(children[i], i);
	say("allocation in four children of a full heap");
	jumps();
	sorting();
	numbers();
	return 0;
}
