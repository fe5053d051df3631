/* A bad pointer given to a system call is EFAULT, never the end of the program, and never a success. */
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

static int file, directory, ends[2];

/* All system calls raw: a C library may look at its arguments before. */
#define BAD(name, ...) do { \
	errno = 0; \
	long got_ = syscall(SYS_##name, ##__VA_ARGS__); \
	if (got_ != -1 || errno != EFAULT) \
		FAIL("%s with %s gives %ld, errno %d", #name, what, got_, errno); \
} while (0)

static void bad_for_both(const char *what, void *bad)
{
	struct iovec vector = { bad, 10 };
	BAD(open, bad, O_RDONLY);
	BAD(openat, AT_FDCWD, bad, O_RDONLY);
	BAD(stat, bad, bad);
	BAD(access, bad, F_OK);
	BAD(chdir, bad);
	BAD(mkdir, bad, 0700);
	BAD(rmdir, bad);
	BAD(unlink, bad);
	BAD(rename, bad, "/nowhere");
	BAD(rename, "/tmp", bad);
	BAD(symlink, bad, "/nowhere/x");
	BAD(readlink, bad, bad, 10);
	BAD(chmod, bad, 0600);
	BAD(truncate, bad, 0);
	BAD(execve, bad, NULL, NULL);
	BAD(writev, ends[1], &vector, 1);
	BAD(writev, ends[1], bad, 1);
	BAD(readv, file, bad, 1);
	BAD(write, ends[1], bad, 1);
	BAD(nanosleep, bad, NULL);
	BAD(clock_nanosleep, CLOCK_MONOTONIC, 0, bad, NULL);
	BAD(poll, bad, 1, 0);
	BAD(rt_sigaction, SIGUSR1, bad, NULL, 8);
	BAD(rt_sigprocmask, SIG_BLOCK, bad, NULL, 8);
	BAD(sigaltstack, bad, NULL);
	BAD(setrlimit, RLIMIT_CORE, bad);
	BAD(prctl, PR_SET_NAME, bad, 0, 0, 0);
}

/* Also what can be read but not written. */
static void bad_for_output(const char *what, void *bad)
{
	struct iovec vector = { bad, 10 };
	BAD(read, file, bad, 10);
	BAD(pread64, file, bad, 10, 0);
	BAD(readv, file, &vector, 1);
	BAD(fstat, file, bad);
	BAD(stat, "/", bad);
	BAD(lstat, "/", bad);
	BAD(newfstatat, AT_FDCWD, "/", bad, 0);
	BAD(getcwd, bad, 100);
	BAD(readlink, "/proc/self/exe", bad, 10);
	BAD(pipe, bad);
	BAD(pipe2, bad, 0);
	BAD(uname, bad);
	BAD(sysinfo, bad);
	BAD(times, bad);
	BAD(getrusage, RUSAGE_SELF, bad);
	BAD(getrlimit, RLIMIT_CORE, bad);
	BAD(prlimit64, 0, RLIMIT_CORE, NULL, bad);
	BAD(clock_gettime, CLOCK_MONOTONIC, bad);
	BAD(clock_getres, CLOCK_MONOTONIC, bad);
	BAD(gettimeofday, bad, NULL);
	BAD(rt_sigaction, SIGUSR1, NULL, bad, 8);
	BAD(rt_sigprocmask, SIG_BLOCK, NULL, bad, 8);
	BAD(rt_sigpending, bad, 8);
	BAD(sigaltstack, NULL, bad);
	BAD(getrandom, bad, 10, 0);
	BAD(sched_getaffinity, 0, 128, bad);
	BAD(getdents64, directory, bad, 1000);
	CHECK(lseek(directory, 0, SEEK_SET) == 0);
	BAD(prctl, PR_GET_NAME, bad, 0, 0, 0);
	BAD(getresuid, bad, bad, bad);
}

/* wait's results: the child is gone all the same. */
static void waiting(const char *what, void *bad)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	BAD(wait4, child, bad, 0, NULL);
	CHECK_ERRNO(waitpid(child, NULL, 0), ECHILD);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	BAD(waitid, P_PID, child, bad, WEXITED, NULL);
	CHECK_ERRNO(waitpid(child, NULL, 0), ECHILD);
}

/* A buffer whose first bytes are good: the good part, or EFAULT. */
static void half_good(void)
{
	unsigned char *base = map_pages(2, PROT_READ | PROT_WRITE);
	CHECK(munmap(base + PAGE, PAGE) == 0);
	memset(base, 'x', PAGE);
	unsigned char *buffer = base + PAGE - 100;
	for (int round = 0; round < 2; round++) {
		ssize_t got = round ? pread(file, buffer, 200, 0) : pwrite(file, buffer, 200, 0);
		CHECK(got == 100 || (got == -1 && errno == EFAULT));
	}
	CHECK_ERRNO(write(ends[1], buffer + 100, 1), EFAULT);
	/* A string that ends just before the hole is good; one that does not end is bad. */
	memcpy(base + PAGE - 5, "/tmp", 5);
	CHECK(access((char *)base + PAGE - 5, F_OK) == 0);
	memset(base + PAGE - 5, '/', 5);
	CHECK_ERRNO(access((char *)base + PAGE - 5, F_OK), EFAULT);
	CHECK(munmap(base, PAGE) == 0);
	say("half good buffers");
}

/* The kernel writes where the program has not yet: pages never touched, read-only zero pages, and pages shared since a
 * fork. */
static void untouched_buffers(void)
{
	size_t pages = 20;
	unsigned char *base = map_pages(pages, PROT_READ | PROT_WRITE);
	int zero = open("/dev/zero", O_RDONLY), to[2];
	CHECK(zero >= 0 && pipe(to) == 0);
	CHECK_EQ(read(zero, base, pages * PAGE), pages * PAGE);
	memset(base, 1, pages * PAGE);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(read(zero, base, pages * PAGE), pages * PAGE);
		for (size_t at = 0; at < pages * PAGE; at++)
			CHECK(base[at] == 0);
		_exit(0);
	}
	expect_exit(child, 0);
	for (size_t at = 0; at < pages * PAGE; at++)
		CHECK(base[at] == 1);
	unsigned char *fresh = map_pages(pages, PROT_READ | PROT_WRITE);
	CHECK_EQ(write(to[1], fresh, 3 * PAGE), 3 * PAGE); /* reads zeroes */
	CHECK_EQ(read(to[0], base, 3 * PAGE), 3 * PAGE);
	for (size_t at = 0; at < 3 * PAGE; at++)
		CHECK(base[at] == 0);
	close(to[0]), close(to[1]), close(zero);
	say("untouched and shared buffers");
}

int main(void)
{
	mkdir("/tmp", 01777);
	char path[] = "/tmp/efault-test.XXXXXX";
	directory = open("/", O_RDONLY | O_DIRECTORY);
	file = mkstemp(path);
	CHECK(directory >= 0 && file >= 0 && pipe(ends) == 0);
	CHECK(unlink(path) == 0);
	CHECK(write(file, path, sizeof path) == sizeof path && lseek(file, 0, SEEK_SET) == 0);
	unsigned char *none = map_pages(1, PROT_NONE), *read_only = map_pages(1, PROT_READ);
	const struct { const char *name; void *at; } bad[] = {
		{ "address 8", nowhere },
		{ "a kernel address", (void *)0xffff888000000000UL },
		{ "the last page", (void *)-64L },
		{ "an address that is not canonical", (void *)0x0000800000000000UL },
		{ "a page without access", none },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		bad_for_both(bad[i].name, bad[i].at);
		bad_for_output(bad[i].name, bad[i].at);
		waiting(bad[i].name, bad[i].at);
		say("%s", bad[i].name);
	}
	bad_for_output("a read-only page", read_only);
	bad_for_output("the program's text", (void *)half_good);
	waiting("a read-only page", read_only);
	say("read-only pages");
	half_good();
	untouched_buffers();
	return 0;
}
