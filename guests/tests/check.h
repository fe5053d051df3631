/* What all the tests share. A test prints what it has seen, the same on every kernel and in every run, and exits with
 * 0; the first thing that is not as it should be is printed with its place and ends the process with 1. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

/* Prints a line at once: what a child says stands where it was said, and nothing is written twice after a fork. */
static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...)
{
	char line[512];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof line - 2)
		length = (int)sizeof line - 2;
	line[length++] = '\n';
	if (write(1, line, (size_t)length) != length)
		_exit(99);
}

#define FAIL(...) do { \
	char why_[256]; \
	snprintf(why_, sizeof why_, __VA_ARGS__); \
	say("FAILED %s:%d: %s", __FILE__, __LINE__, why_); \
	_exit(1); \
} while (0)

#define CHECK(condition) do { \
	if (!(condition)) \
		FAIL("%s (errno is now %d)", #condition, errno); \
} while (0)

/* Both sides as signed numbers; the message shows them. */
#define CHECK_EQ(got, wanted) do { \
	long got_ = (long)(got), wanted_ = (long)(wanted); \
	if (got_ != wanted_) \
		FAIL("%s is %ld, not %ld (errno is now %d)", #got, got_, wanted_, errno); \
} while (0)

/* The call fails with just this errno. */
#define CHECK_ERRNO(call, wanted) do { \
	errno = 0; \
	long got_ = (long)(call); \
	if (got_ != -1 || errno != (wanted)) \
		FAIL("%s gives %ld, errno %d (%s), not errno %d (%s)", #call, got_, errno, strerror(errno), \
		     (wanted), strerror(wanted)); \
} while (0)

/* Waits for that child and requires that it exited with `status`. */
static inline void expect_exit(pid_t child, int status)
{
	int got = -1;
	pid_t waited;
	do
		waited = waitpid(child, &got, 0);
	while (waited == -1 && errno == EINTR);
	CHECK_EQ(waited, child);
	if (WIFSIGNALED(got))
		FAIL("the child was killed by signal %d", WTERMSIG(got));
	CHECK(WIFEXITED(got));
	CHECK_EQ(WEXITSTATUS(got), status);
}

/* Waits for that child and requires that a signal killed it. */
static inline void expect_signal(pid_t child, int signal)
{
	int got = -1;
	pid_t waited;
	do
		waited = waitpid(child, &got, 0);
	while (waited == -1 && errno == EINTR);
	CHECK_EQ(waited, child);
	if (WIFEXITED(got))
		FAIL("the child exited with %d", WEXITSTATUS(got));
	CHECK(WIFSIGNALED(got));
	CHECK_EQ(WTERMSIG(got), signal);
}

/* Runs the statement in a child and requires that the child exits with `status`. */
#define IN_CHILD(status, ...) do { \
	pid_t child_ = fork(); \
	CHECK(child_ >= 0); \
	if (child_ == 0) { \
		__VA_ARGS__; \
		_exit(0); \
	} \
	expect_exit(child_, (status)); \
} while (0)

/* The same where the child must be killed by `signal`. */
#define KILLED_BY(signal, ...) do { \
	pid_t child_ = fork(); \
	CHECK(child_ >= 0); \
	if (child_ == 0) { \
		__VA_ARGS__; \
		_exit(0); \
	} \
	expect_signal(child_, (signal)); \
} while (0)

/* An address where nothing is mapped, out of the compiler's sight. */
static char *volatile nowhere __attribute__((unused)) = (char *)8;

/* The system call itself: the new end of the heap, or the present one if that is refused. */
static inline unsigned char *raw_brk(const void *end)
{
	return (unsigned char *)syscall(SYS_brk, end);
}

/* A whole file as a string, without allocating anything: what is mapped does not change by it. */
static inline size_t read_whole(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY);
	size_t length = 0;
	ssize_t got;
	if (fd < 0)
		FAIL("open %s: %s", path, strerror(errno));
	while (length < size - 1 && (got = read(fd, buffer + length, size - 1 - length)) != 0) {
		CHECK(got > 0);
		length += (size_t)got;
	}
	CHECK(close(fd) == 0);
	buffer[length] = 0;
	return length;
}

/* Writes a text in one piece; 0, or the errno. */
static inline int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return errno;
	ssize_t done = write(fd, text, strlen(text));
	int error = done < 0 ? errno : 0;
	close(fd);
	return error;
}

/* Both are open on the same inode. */
static inline void check_same_file(int one, int other)
{
	struct stat about_one, about_other;
	CHECK_EQ(fstat(one, &about_one), 0);
	CHECK_EQ(fstat(other, &about_other), 0);
	CHECK_EQ(about_one.st_ino, about_other.st_ino);
}

/* Fresh private anonymous memory. */
static inline unsigned char *map_pages(size_t pages, int protection)
{
	void *at = mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

#endif
