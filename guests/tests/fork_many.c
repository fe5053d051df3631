/* Many processes: at once, one after the other, and each the child of the last. */
#include "check.h"

static int value;

static void at_once(int count)
{
	pid_t children[count];
	int gate[2];
	CHECK(pipe(gate) == 0);
	for (int i = 0; i < count; i++) {
		value = i;
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			char byte;
			close(gate[1]);
			CHECK_EQ(read(gate[0], &byte, 1), 0);
			_exit(value == i ? i % 200 : 255);
		}
	}
	close(gate[0]), close(gate[1]);
	for (int i = count - 1; i >= 0; i--)
		expect_exit(children[i], i % 200);
	CHECK_ERRNO(wait(NULL), ECHILD);
	say("%d at once", count);
}

static void in_a_row(int count)
{
	unsigned char *memory = map_pages(64, PROT_READ | PROT_WRITE);
	memset(memory, 1, 64 * PAGE);
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			CHECK_EQ(value, i);
			memory[(size_t)i % 64 * PAGE]++;
			_exit(memory[(size_t)i % 64 * PAGE]);
		}
		expect_exit(child, 2);
		CHECK_EQ(memory[(size_t)i % 64 * PAGE], 1);
		value = i + 1;
	}
	CHECK(munmap(memory, 64 * PAGE) == 0);
	say("%d in a row", count);
}

/* Each process forks one child, adds to what it inherited, and gives the child's answer on. */
static int chain(int depth)
{
	if (depth == 0)
		return value;
	int answer[2], got = -1;
	CHECK(pipe(answer) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		value += depth;
		int sum = chain(depth - 1);
		CHECK(write(answer[1], &sum, sizeof sum) == sizeof sum);
		_exit(0);
	}
	close(answer[1]);
	CHECK(read(answer[0], &got, sizeof got) == sizeof got);
	close(answer[0]);
	expect_exit(child, 0);
	return got;
}

/* The parent is gone before the child: init takes the orphan. */
static void orphan(void)
{
	int answer[2];
	int got = -1;
	CHECK(pipe(answer) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		pid_t self = getpid();
		pid_t grandchild = fork();
		CHECK(grandchild >= 0);
		if (grandchild == 0) {
			while (getppid() == self)
				usleep(1000);
			int orphaned = getppid() != self;
			CHECK(write(answer[1], &orphaned, sizeof orphaned) == sizeof orphaned);
			_exit(0);
		}
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK(read(answer[0], &got, sizeof got) == sizeof got);
	CHECK_EQ(got, 1);
	close(answer[0]), close(answer[1]);
	say("an orphan has another parent");
}

/* Children that end by themselves in any order are all collected by wait(). */
static void any_order(int count)
{
	int seen[count];
	memset(seen, 0, sizeof seen);
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			if (i % 3 == 0)
				usleep((useconds_t)(1000 * (i % 7)));
			_exit(i);
		}
	}
	for (int i = 0; i < count; i++) {
		int status;
		CHECK(wait(&status) > 0);
		CHECK(WIFEXITED(status));
		CHECK_EQ(seen[WEXITSTATUS(status)], 0);
		seen[WEXITSTATUS(status)] = 1;
	}
	say("%d collected in any order", count);
}

int main(void)
{
	at_once(100);
	value = 0;
	in_a_row(500);
	value = 0;
	say("a chain of 60: %d", chain(60));
	orphan();
	any_order(60);
	return 0;
}
