/* Regular files: what is written is read, at any offset, through any descriptor. Works in a directory of its own. */
#include "check.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

static off_t size_of(const char *path)
{
	struct stat status;
	CHECK(stat(path, &status) == 0);
	return status.st_size;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	CHECK(close(fd) == 0);
}

static int holds(const char *path, const char *text)
{
	char buffer[1024];
	read_whole(path, buffer, sizeof buffer);
	return strcmp(buffer, text) == 0;
}

static void opening(void)
{
	int fd = open("a", O_RDWR | O_CREAT | O_EXCL, 0640);
	CHECK(fd >= 0);
	CHECK_ERRNO(open("a", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
	CHECK_ERRNO(open("b", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("a/b", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("a/", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open(".", O_WRONLY), EISDIR);
	CHECK_ERRNO(open("a", O_RDONLY | O_DIRECTORY), ENOTDIR);
	char name[300];
	memset(name, 'n', sizeof name);
	name[256] = 0;
	CHECK_ERRNO(open(name, O_RDONLY | O_CREAT, 0600), ENAMETOOLONG);
	name[255] = 0;
	int long_name = open(name, O_RDONLY | O_CREAT, 0600);
	CHECK(long_name >= 0 && close(long_name) == 0 && unlink(name) == 0);
	char too_long[PATH_MAX + 10];
	memset(too_long, '/', sizeof too_long - 1);
	too_long[sizeof too_long - 1] = 0;
	CHECK_ERRNO(open(too_long, O_RDONLY), ENAMETOOLONG);
	char byte;
	CHECK_EQ(read(fd, &byte, 1), 0);
	CHECK(close(fd) == 0);
	CHECK_ERRNO(close(fd), EBADF);
	CHECK_ERRNO(read(fd, &byte, 1), EBADF);
	CHECK_ERRNO(write(-1, &byte, 1), EBADF);
	CHECK_ERRNO(fcntl(12345, F_GETFD), EBADF);
	fd = open("a", O_RDONLY);
	CHECK_ERRNO(write(fd, "x", 1), EBADF);
	CHECK_ERRNO(ftruncate(fd, 0), EINVAL);
	CHECK(close(fd) == 0);
	fd = open("a", O_WRONLY);
	CHECK_ERRNO(read(fd, &byte, 1), EBADF);
	CHECK(close(fd) == 0);
	fd = open(".", O_RDONLY);
	CHECK_ERRNO(read(fd, &byte, 1), EISDIR);
	CHECK(close(fd) == 0);
	/* The lowest free number. */
	int first = open("a", O_RDONLY), second = open("a", O_RDONLY), third = open("a", O_RDONLY);
	CHECK(second == first + 1 && third == first + 2);
	CHECK(close(second) == 0);
	CHECK_EQ(open("a", O_RDONLY), second);
	close(first), close(second), close(third);
	CHECK(unlink("a") == 0);
	say("opening");
}

static void offsets(void)
{
	char buffer[64];
	int fd = open("o", O_RDWR | O_CREAT, 0600);
	CHECK_EQ(write(fd, "0123456789", 10), 10);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10);
	CHECK_EQ(lseek(fd, 3, SEEK_SET), 3);
	CHECK_EQ(read(fd, buffer, 4), 4);
	CHECK(memcmp(buffer, "3456", 4) == 0);
	CHECK_EQ(lseek(fd, -2, SEEK_END), 8);
	CHECK_EQ(read(fd, buffer, 64), 2);
	CHECK_EQ(read(fd, buffer, 64), 0);
	CHECK_ERRNO(lseek(fd, -1, SEEK_SET), EINVAL);
	CHECK_ERRNO(lseek(fd, 0, 99), EINVAL);
	CHECK_EQ(pwrite(fd, "XY", 2, 4), 2);
	CHECK_EQ(pread(fd, buffer, 5, 3), 5);
	CHECK(memcmp(buffer, "3XY67", 5) == 0);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10);
	CHECK_ERRNO(pread(fd, buffer, 1, -1), EINVAL);
	/* Beyond the end: a hole of zeroes. */
	CHECK_EQ(lseek(fd, 10000, SEEK_SET), 10000);
	CHECK_EQ(read(fd, buffer, 1), 0);
	CHECK_EQ(write(fd, "end", 3), 3);
	CHECK_EQ(size_of("o"), 10003);
	CHECK_EQ(pread(fd, buffer, 64, 9990), 13);
	CHECK(memcmp(buffer, "\0\0\0\0\0\0\0\0\0\0end", 13) == 0);
	CHECK_EQ(pread(fd, buffer, 12, 8), 12);
	CHECK(memcmp(buffer, "89\0\0\0\0\0\0\0\0\0\0", 12) == 0);
	struct iovec parts[2] = { { "abc", 3 }, { "def", 3 } };
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(writev(fd, parts, 2), 6);
	CHECK_EQ(pread(fd, buffer, 8, 0), 8);
	CHECK(memcmp(buffer, "abcdef67", 8) == 0);
	CHECK(close(fd) == 0 && unlink("o") == 0);
	say("offsets");
}

static void truncation(void)
{
	char buffer[64];
	put("t", "0123456789");
	CHECK(truncate("t", 4) == 0);
	CHECK(holds("t", "0123"));
	CHECK(truncate("t", 8) == 0);
	int fd = open("t", O_RDWR);
	CHECK_EQ(read(fd, buffer, 64), 8);
	CHECK(memcmp(buffer, "0123\0\0\0\0", 8) == 0);
	CHECK(ftruncate(fd, 0) == 0);
	CHECK_EQ(write(fd, "z", 1), 1); /* the offset stayed */
	CHECK_EQ(size_of("t"), 9);
	CHECK_ERRNO(ftruncate(fd, -1), EINVAL);
	CHECK(ftruncate(fd, 3 * (off_t)PAGE) == 0);
	CHECK(ftruncate(fd, PAGE + 1) == 0);
	CHECK(ftruncate(fd, 3 * (off_t)PAGE) == 0);
	for (off_t at = 9; at < 3 * (off_t)PAGE; at += 61) {
		CHECK_EQ(pread(fd, buffer, 1, at), 1);
		CHECK_EQ(buffer[0], 0);
	}
	CHECK(close(fd) == 0);
	put("t", "short");
	CHECK_EQ(size_of("t"), 5);
	CHECK_ERRNO(truncate("none", 0), ENOENT);
	CHECK_ERRNO(truncate(".", 0), EISDIR);
	CHECK(unlink("t") == 0);
	say("truncation");
}

static void appending(void)
{
	put("p", "one ");
	int first = open("p", O_WRONLY | O_APPEND), second = open("p", O_WRONLY | O_APPEND);
	CHECK_EQ(write(first, "two ", 4), 4);
	CHECK_EQ(write(second, "three ", 6), 6);
	CHECK_EQ(lseek(first, 0, SEEK_SET), 0);
	CHECK_EQ(write(first, "four", 4), 4);
	CHECK(holds("p", "one two three four"));
	CHECK_EQ(fcntl(first, F_GETFL) & (O_APPEND | O_ACCMODE), O_APPEND | O_WRONLY);
	CHECK(fcntl(first, F_SETFL, 0) == 0);
	CHECK_EQ(lseek(first, 0, SEEK_SET), 0);
	CHECK_EQ(write(first, "ONE", 3), 3);
	CHECK(holds("p", "ONE two three four"));
	close(first), close(second);
	CHECK(unlink("p") == 0);
	say("appending");
}

static void duplicates(void)
{
	char buffer[16];
	put("d", "0123456789");
	int fd = open("d", O_RDWR);
	int copy = dup(fd);
	CHECK_EQ(read(fd, buffer, 3), 3);
	CHECK_EQ(read(copy, buffer, 2), 2); /* one offset */
	CHECK(memcmp(buffer, "34", 2) == 0);
	CHECK_EQ(fcntl(fd, F_DUPFD, 100), 100);
	CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 100), 101);
	CHECK_EQ(fcntl(100, F_GETFD), 0);
	CHECK_EQ(fcntl(101, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(dup2(fd, 200), 200);
	CHECK_EQ(dup2(fd, fd), fd);
	CHECK_ERRNO(dup2(-1, 5), EBADF);
	CHECK_ERRNO(dup2(fd, -1), EBADF);
	CHECK_ERRNO(dup3(fd, fd, 0), EINVAL);
	CHECK_EQ(dup3(fd, 201, O_CLOEXEC), 201);
	CHECK_EQ(fcntl(201, F_GETFD), FD_CLOEXEC);
	CHECK_ERRNO(fcntl(fd, F_DUPFD, -1), EINVAL);
	CHECK_ERRNO(fcntl(fd, 9999), EINVAL);
	/* A child shares the offset. */
	IN_CHILD(0, CHECK_EQ(lseek(200, 7, SEEK_SET), 7));
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 7);
	close(copy), close(100), close(101), close(200), close(201);
	CHECK_EQ(read(fd, buffer, 16), 3);
	CHECK(close(fd) == 0 && unlink("d") == 0);
	say("duplicates");
}

static void removed_while_open(void)
{
	char buffer[16];
	struct stat status;
	int fd = open("r", O_RDWR | O_CREAT, 0600);
	CHECK_EQ(write(fd, "still here", 10), 10);
	CHECK(link("r", "r2") == 0);
	CHECK(fstat(fd, &status) == 0 && status.st_nlink == 2);
	CHECK(unlink("r") == 0 && unlink("r2") == 0);
	CHECK(fstat(fd, &status) == 0 && status.st_nlink == 0);
	CHECK_ERRNO(open("r", O_RDONLY), ENOENT);
	CHECK_EQ(pread(fd, buffer, 16, 0), 10);
	CHECK(memcmp(buffer, "still here", 10) == 0);
	put("r", "another");
	CHECK_EQ(pread(fd, buffer, 16, 0), 10);
	CHECK(close(fd) == 0);
	CHECK(holds("r", "another") && unlink("r") == 0);
	CHECK_ERRNO(unlink("r"), ENOENT);
	CHECK_ERRNO(link("none", "l"), ENOENT);
	say("removed while open");
}

static void status_and_modes(void)
{
	struct stat status, again;
	mode_t old = umask(022);
	int fd = open("s", O_RDWR | O_CREAT, 0666);
	CHECK(fstat(fd, &status) == 0);
	CHECK_EQ(status.st_mode, S_IFREG | 0644);
	CHECK_EQ(status.st_nlink, 1);
	CHECK_EQ(status.st_uid, geteuid());
	CHECK(status.st_ino != 0 && status.st_blksize >= 512);
	CHECK(chmod("s", 04751) == 0);
	CHECK(stat("s", &again) == 0);
	CHECK_EQ(again.st_mode, S_IFREG | 04751);
	CHECK(again.st_ino == status.st_ino && again.st_dev == status.st_dev);
	CHECK(fchmod(fd, 0600) == 0);
	CHECK(lstat("s", &again) == 0);
	CHECK_EQ(again.st_mode, S_IFREG | 0600);
	CHECK_EQ(umask(0), 022);
	CHECK(mkdir("sd", 0777) == 0 && stat("sd", &again) == 0);
	CHECK_EQ(again.st_mode, S_IFDIR | 0777);
	CHECK(rmdir("sd") == 0);
	umask(old);
	CHECK(access("s", F_OK) == 0 && access("s", R_OK | W_OK) == 0);
	CHECK_ERRNO(access("s", X_OK), EACCES);
	CHECK_ERRNO(access("none", F_OK), ENOENT);
	CHECK_ERRNO(stat("none", &status), ENOENT);
	CHECK_ERRNO(fstat(-1, &status), EBADF);
	struct timespec times[2] = { { 1000000000, 0 }, { 1234567890, 500 } };
	CHECK(utimensat(AT_FDCWD, "s", times, 0) == 0);
	CHECK(stat("s", &status) == 0);
	CHECK_EQ(status.st_mtim.tv_sec, 1234567890);
	CHECK_EQ(status.st_atim.tv_sec, 1000000000);
	CHECK(stat("/dev/null", &status) == 0);
	CHECK(S_ISCHR(status.st_mode));
	CHECK_EQ(status.st_rdev, 0x103);
	int ends[2];
	CHECK(pipe(ends) == 0 && fstat(ends[0], &status) == 0);
	CHECK(S_ISFIFO(status.st_mode));
	close(ends[0]), close(ends[1]);
	CHECK(close(fd) == 0 && unlink("s") == 0);
	say("status and modes");
}

static void devices(void)
{
	static char buffer[10000];
	memset(buffer, 1, sizeof buffer);
	int fd = open("/dev/zero", O_RDWR);
	CHECK_EQ(read(fd, buffer, sizeof buffer), sizeof buffer);
	for (size_t at = 0; at < sizeof buffer; at++)
		CHECK(buffer[at] == 0);
	CHECK_EQ(write(fd, buffer, sizeof buffer), sizeof buffer);
	close(fd);
	fd = open("/dev/null", O_RDWR);
	CHECK_EQ(read(fd, buffer, 10), 0);
	CHECK_EQ(write(fd, buffer, sizeof buffer), sizeof buffer);
	CHECK(!isatty(fd));
	close(fd);
	fd = open("/dev/urandom", O_RDONLY);
	CHECK_EQ(read(fd, buffer, 256), 256);
	int different = 0;
	for (int at = 1; at < 256; at++)
		different += buffer[at] != buffer[0];
	CHECK(different > 200);
	close(fd);
	say("devices");
}

/* 20 MiB in odd pieces, read back in others, and through a second descriptor in another process. */
static void large(void)
{
	static unsigned char block[70001];
	int fd = open("big", O_RDWR | O_CREAT | O_TRUNC, 0600);
	size_t total = 300 * sizeof block;
	for (int i = 0; i < 300; i++) {
		for (size_t at = 0; at < sizeof block; at++)
			block[at] = (unsigned char)((i * sizeof block + at) * 2654435761u >> 24);
		CHECK_EQ(write(fd, block, sizeof block), sizeof block);
	}
	CHECK_EQ(size_of("big"), total);
	IN_CHILD(0, {
		int other = open("big", O_RDONLY);
		size_t position = 0;
		for (ssize_t n; (n = read(other, block, 65537)) != 0; position += (size_t)n) {
			CHECK(n > 0);
			for (size_t at = 0; at < (size_t)n; at++)
				CHECK(block[at] == (unsigned char)((position + at) * 2654435761u >> 24));
		}
		CHECK_EQ(position, total);
	});
	CHECK(close(fd) == 0 && unlink("big") == 0);
	say("a file of %zu bytes", total);
}

/* RLIMIT_FSIZE: SIGXFSZ and EFBIG, and what fits is written. */
static void longest(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		struct rlimit limit = { 100, 100 };
		int fd = open("longest", O_RDWR | O_CREAT, 0600);
		CHECK(fd >= 0);
		CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
		signal(SIGXFSZ, SIG_IGN);
		CHECK_EQ(pwrite(fd, "0123456789", 10, 95), 5);
		CHECK_ERRNO(pwrite(fd, "x", 1, 100), EFBIG);
		CHECK_ERRNO(ftruncate(fd, 101), EFBIG);
		CHECK_ERRNO(fallocate(fd, 0, 90, 11), EFBIG);
		CHECK_EQ(ftruncate(fd, 100), 0);
		CHECK_EQ(unlink("longest"), 0);
		signal(SIGXFSZ, SIG_DFL);
		(void)!pwrite(fd, "x", 1, 200);
		_exit(0);
	}
	expect_signal(child, SIGXFSZ);
	say("longest");
}

/* What openat2 refuses and open ignores. */
static void strict_opening(void)
{
	struct { uint64_t flags, mode, resolve; } how = { .flags = O_PATH | O_RDWR };
	CHECK_ERRNO(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how), EINVAL);
	how.flags = O_TMPFILE | O_RDWR | O_CREAT;
	CHECK_ERRNO(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how), EINVAL);
	how.flags = O_TMPFILE | O_RDWR;
	how.mode = 0600;
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
	CHECK(fd >= 0);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_TMPFILE, O_TMPFILE);
	CHECK_EQ(close(fd), 0);
	say("strict opening");
}

int main(void)
{
	char directory[] = "/tmp/files-test.XXXXXX";
	mkdir("/tmp", 01777);
	CHECK(mkdtemp(directory) != NULL && chdir(directory) == 0);
	opening();
	offsets();
	truncation();
	appending();
	duplicates();
	removed_while_open();
	status_and_modes();
	devices();
	large();
	longest();
	strict_opening();
	CHECK(chdir("/") == 0 && rmdir(directory) == 0);
	return 0;
}
