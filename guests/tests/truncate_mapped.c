/* Files that get shorter, longer, or holes while they are mapped: SIGBUS past the end, zeros after, in every process. */
#include "check.h"

#include <setjmp.h>

#define KEEP_SIZE 1
#define PUNCH_HOLE 2
#define PAGES 8UL
#define LENGTH (PAGES * PAGE)

static sigjmp_buf back;
static volatile sig_atomic_t signal_number, signal_code;
static char *volatile signal_address;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)context;
	signal_number = signal;
	signal_code = info->si_code;
	signal_address = info->si_addr;
	siglongjmp(back, 1);
}

/* The byte there, or minus the signal that looking at it gives. */
static int look(char *at)
{
	if (sigsetjmp(back, 1) != 0) {
		CHECK(signal_address == at);
		if (signal_number == SIGBUS)
			CHECK_EQ(signal_code, BUS_ADRERR);
		return -signal_number;
	}
	return *(volatile char *)at;
}

/* Stores a byte: 0, or minus the signal. */
static int put(char *at, char value)
{
	if (sigsetjmp(back, 1) != 0) {
		CHECK(signal_address == at);
		if (signal_number == SIGBUS)
			CHECK_EQ(signal_code, BUS_ADRERR);
		return -signal_number;
	}
	*(volatile char *)at = value;
	return 0;
}

static void fill(int fd)
{
	static char page[PAGE];
	for (size_t i = 0; i < PAGES; i++) {
		memset(page, 'A' + (int)i, sizeof page);
		CHECK_EQ(pwrite(fd, page, sizeof page, (off_t)(i * PAGE)), PAGE);
	}
}

static char *map(int fd, int flags)
{
	char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void shorter(int fd)
{
	fill(fd);
	char *shared = map(fd, MAP_SHARED), *private = map(fd, MAP_PRIVATE), *untouched = map(fd, MAP_PRIVATE);
	for (size_t i = 0; i < PAGES; i++) {
		CHECK_EQ(look(shared + i * PAGE), 'A' + (int)i);
		CHECK_EQ(put(private + i * PAGE + 1, 'x'), 0);
	}
	CHECK(ftruncate(fd, 3 * PAGE / 2) == 0);
	CHECK_EQ(look(shared + 3 * PAGE / 2 - 1), 'B');
	CHECK_EQ(look(shared + 3 * PAGE / 2), 0);
	CHECK_EQ(look(shared + 2 * PAGE - 1), 0);
	CHECK_EQ(look(shared + 2 * PAGE), -SIGBUS);
	CHECK_EQ(put(shared + 2 * PAGE + 77, 1), -SIGBUS);
	CHECK_EQ(look(shared + LENGTH - 1), -SIGBUS);
	/* Private copies past the end are gone, too; the page that the end is in stays as it was. */
	CHECK_EQ(look(private + PAGE), 'B');
	CHECK_EQ(look(private + PAGE + 1), 'x');
	CHECK_EQ(look(private + 2 * PAGE - 1), 'B');
	CHECK_EQ(look(private + 2 * PAGE + 1), -SIGBUS);
	CHECK_EQ(put(private + 7 * PAGE, 'y'), -SIGBUS);
	CHECK_EQ(look(untouched + 2 * PAGE), -SIGBUS);
	CHECK_EQ(look(untouched + 2 * PAGE - 1), 0);
	say("shorter");

	/* System calls say EFAULT. */
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	CHECK_ERRNO(write(pipes[1], shared + 2 * PAGE, 1), EFAULT);
	CHECK_EQ(write(pipes[1], "abc", 3), 3);
	CHECK_ERRNO(read(pipes[0], private + 2 * PAGE, 3), EFAULT);
	close(pipes[0]), close(pipes[1]);

	CHECK(ftruncate(fd, LENGTH) == 0);
	CHECK_EQ(look(shared + PAGE), 'B');
	for (size_t i = 2; i < PAGES; i++) {
		CHECK_EQ(look(shared + i * PAGE), 0);
		CHECK_EQ(look(private + i * PAGE + 1), 0);
		CHECK_EQ(put(shared + i * PAGE, 'z'), 0);
		CHECK_EQ(look(untouched + i * PAGE), 'z');
	}
	CHECK_EQ(put(private + 2 * PAGE, 'p'), 0);
	CHECK_EQ(look(shared + 2 * PAGE), 'z');
	munmap(shared, LENGTH), munmap(private, LENGTH), munmap(untouched, LENGTH);
	say("longer again");
}

static void empty(int fd)
{
	fill(fd);
	char *shared = map(fd, MAP_SHARED), path[40], text[8] = { 0 };
	CHECK_EQ(look(shared), 'A');
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR | O_TRUNC);
	CHECK(again >= 0);
	CHECK_EQ(look(shared), -SIGBUS);
	CHECK_EQ(pwrite(again, "hello", 5, 0), 5);
	CHECK_EQ(look(shared + 4), 'o');
	CHECK_EQ(look(shared + 5), 0);
	CHECK_EQ(look(shared + PAGE), -SIGBUS);
	CHECK(truncate(path, 2) == 0);
	CHECK_EQ(look(shared + 1), 'e');
	CHECK_EQ(look(shared + 2), 0);
	CHECK(truncate(path, 5) == 0);
	CHECK_EQ(pread(fd, text, sizeof text, 0), 5);
	CHECK(memcmp(text, "he\0\0\0", 5) == 0);
	CHECK(truncate(path, 0) == 0);
	CHECK(truncate(path, 1) == 0);
	CHECK_EQ(look(shared), 0);
	close(again), munmap(shared, LENGTH);
	say("empty");
}

static void holes(int fd)
{
	CHECK(ftruncate(fd, LENGTH) == 0);
	fill(fd);
	char *shared = map(fd, MAP_SHARED), *private = map(fd, MAP_PRIVATE), *untouched = map(fd, MAP_PRIVATE);
	for (size_t i = 0; i < PAGES; i++) {
		CHECK_EQ(look(shared + i * PAGE), 'A' + (int)i);
		CHECK_EQ(look(untouched + i * PAGE), 'A' + (int)i);
		if (i % 2 == 0)
			CHECK_EQ(put(private + i * PAGE, 'x'), 0);
	}
	/* Pages 2 to 4, half of 1, the first byte of 5. */
	CHECK(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 3 * PAGE / 2, 7 * PAGE / 2 + 1) == 0);
	CHECK_EQ(look(shared + 3 * PAGE / 2 - 1), 'B');
	CHECK_EQ(look(shared + 3 * PAGE / 2), 0);
	CHECK_EQ(look(shared + 2 * PAGE), 0);
	CHECK_EQ(look(shared + 5 * PAGE - 1), 0);
	CHECK_EQ(look(shared + 5 * PAGE), 0);
	CHECK_EQ(look(shared + 5 * PAGE + 1), 'F');
	for (size_t i = 2; i < 5; i++) {
		CHECK_EQ(look(untouched + i * PAGE), 0);
		/* Private copies stay. */
		CHECK_EQ(look(private + i * PAGE), i % 2 == 0 ? 'x' : 0);
		CHECK_EQ(look(private + i * PAGE + 1), i % 2 == 0 ? 'A' + (int)i : 0);
	}
	CHECK_EQ(put(shared + 3 * PAGE, 'n'), 0);
	CHECK_EQ(look(untouched + 3 * PAGE), 'n');
	CHECK_EQ(lseek(fd, 0, SEEK_END), LENGTH);
	/* The same through a mapping. */
	CHECK(madvise(shared + 6 * PAGE, PAGE, MADV_REMOVE) == 0);
	CHECK_EQ(look(shared + 6 * PAGE), 0);
	CHECK_EQ(look(untouched + 6 * PAGE), 0);
	CHECK_EQ(look(private + 6 * PAGE), 'x');
	CHECK_EQ(look(shared + 7 * PAGE), 'H');
	CHECK_ERRNO(madvise(private, PAGE, MADV_REMOVE), EACCES);
	CHECK(mprotect(shared, LENGTH, PROT_READ) == 0);
	CHECK(madvise(shared + 7 * PAGE, PAGE, MADV_REMOVE) == 0);
	CHECK_EQ(look(shared + 7 * PAGE), 0);
	munmap(shared, LENGTH), munmap(private, LENGTH), munmap(untouched, LENGTH);
	say("holes");
}

static void other_processes(int fd)
{
	int gates[2][2];
	char byte;
	CHECK(ftruncate(fd, LENGTH) == 0);
	fill(fd);
	char *shared = map(fd, MAP_SHARED), *private = map(fd, MAP_PRIVATE);
	for (size_t i = 0; i < PAGES; i++) {
		CHECK_EQ(look(shared + i * PAGE), 'A' + (int)i);
		CHECK_EQ(put(private + i * PAGE, 'x'), 0);
	}
	CHECK(pipe(gates[0]) == 0 && pipe(gates[1]) == 0);
	/* The child shares all that its parent has; the grandchild has written some of it. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		pid_t grandchild = fork();
		CHECK(grandchild >= 0);
		if (grandchild == 0) {
			CHECK_EQ(put(private + 6 * PAGE, 'g'), 0);
			CHECK_EQ(write(gates[0][1], "g", 1), 1);
		} else {
			CHECK_EQ(write(gates[0][1], "c", 1), 1);
		}
		close(gates[1][1]);
		CHECK_EQ(read(gates[1][0], &byte, 1), 0);
		CHECK_EQ(look(shared + PAGE), 'B');
		CHECK_EQ(look(private + PAGE), 'x');
		CHECK_EQ(look(shared + 4 * PAGE), -SIGBUS);
		CHECK_EQ(look(private + 4 * PAGE), -SIGBUS);
		CHECK_EQ(look(private + 6 * PAGE), -SIGBUS);
		if (grandchild != 0)
			expect_exit(grandchild, 0);
		_exit(0);
	}
	CHECK_EQ(read(gates[0][0], &byte, 1), 1);
	CHECK_EQ(read(gates[0][0], &byte, 1), 1);
	CHECK(ftruncate(fd, 4 * PAGE) == 0);
	CHECK_EQ(look(private + 4 * PAGE), -SIGBUS);
	close(gates[1][0]), close(gates[1][1]), close(gates[0][0]), close(gates[0][1]);
	expect_exit(child, 0);
	CHECK_EQ(look(private + 3 * PAGE), 'x');
	munmap(shared, LENGTH), munmap(private, LENGTH);
	/* Nobody catches it. */
	shared = map(fd, MAP_SHARED);
	signal(SIGBUS, SIG_DFL);
	KILLED_BY(SIGBUS, *(volatile char *)(shared + 5 * PAGE));
	munmap(shared, LENGTH);
	say("other processes");
}

static void all(int fd)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
	shorter(fd);
	empty(fd);
	holes(fd);
	other_processes(fd);
	close(fd);
}

int main(void)
{
	char path[] = "/tmp/truncate_mapped-XXXXXX";
	all((int)syscall(SYS_memfd_create, "mapped", 0));
	int fd = mkstemp(path);
	CHECK(fd >= 0 && unlink(path) == 0);
	all(fd);
	return 0;
}
