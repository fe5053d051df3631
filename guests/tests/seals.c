/* memfd_create and seals: what a sealed file refuses, by write, truncate, fallocate, chmod and mmap; holes and space. */
#include "check.h"

#include <sys/stat.h>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#define F_SEAL_WRITE 8
#endif
#define SEAL_FUTURE_WRITE 16
#define SEAL_EXEC 32
#define ALLOW_SEALING 2
#define HUGETLB 4
#define NOEXEC_SEAL 8
#define EXEC 16

#define KEEP_SIZE 1
#define PUNCH_HOLE 2
#define COLLAPSE_RANGE 8
#define ZERO_RANGE 16
#define INSERT_RANGE 32

static char page[3 * PAGE];

static int memfd(const char *name, unsigned flags)
{
	return (int)syscall(SYS_memfd_create, name, flags);
}

static int seals(int fd)
{
	return fcntl(fd, F_GET_SEALS);
}

/* A memfd of two pages with these seals. */
static int sealed(int which)
{
	int fd = memfd("sealed", ALLOW_SEALING);
	CHECK(fd >= 0);
	CHECK(ftruncate(fd, 2 * PAGE) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, which) == 0);
	CHECK_EQ(seals(fd), which);
	return fd;
}

static const char *path_of(int fd)
{
	static char path[40];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return path;
}

static struct stat described(int fd)
{
	struct stat about;
	CHECK(fstat(fd, &about) == 0);
	return about;
}

static void *map(int fd, int protection, int flags)
{
	return mmap(NULL, PAGE, protection, flags, fd, 0);
}

static void making(void)
{
	char name[300];
	memset(name, 'n', sizeof name);
	name[249] = 0;
	int fd = memfd(name, 0);
	CHECK(fd >= 0);
	close(fd);
	name[249] = 'n', name[250] = 0;
	CHECK_ERRNO(memfd(name, 0), EINVAL);
	CHECK_ERRNO(memfd(NULL, 0), EFAULT);
	CHECK_ERRNO(memfd("x", 32), EINVAL);
	CHECK_ERRNO(memfd("x", 21u << 26), EINVAL);
	CHECK_ERRNO(memfd(nowhere, NOEXEC_SEAL | EXEC), EINVAL);
	CHECK_ERRNO(memfd(nowhere, HUGETLB), EFAULT);
	static const struct {
		unsigned flags;
		int seals, mode, closes;
	} kinds[] = {
		{ 0, F_SEAL_SEAL, 0100777, 0 },
		{ 1, F_SEAL_SEAL, 0100777, 1 },
		{ ALLOW_SEALING, 0, 0100777, 0 },
		{ EXEC, F_SEAL_SEAL, 0100777, 0 },
		{ EXEC | ALLOW_SEALING, 0, 0100777, 0 },
		{ NOEXEC_SEAL, SEAL_EXEC, 0100666, 0 },
		{ NOEXEC_SEAL | ALLOW_SEALING, SEAL_EXEC, 0100666, 0 },
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		fd = memfd("kind", kinds[i].flags);
		CHECK(fd >= 0);
		CHECK_EQ(seals(fd), kinds[i].seals);
		CHECK_EQ(described(fd).st_mode, kinds[i].mode);
		CHECK_EQ(described(fd).st_nlink, 0);
		CHECK_EQ(fcntl(fd, F_GETFD), kinds[i].closes);
		CHECK_EQ(fcntl(fd, F_GETFL), O_RDWR | 0100000);
		close(fd);
	}
	say("making");
}

static void adding(void)
{
	int fd = memfd("adding", ALLOW_SEALING), pipes[2];
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, 64), EINVAL);
	CHECK(fcntl(fd, F_ADD_SEALS, 0) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	int reader = open(path_of(fd), O_RDONLY);
	CHECK(reader >= 0);
	CHECK_EQ(seals(reader), F_SEAL_SHRINK);
	CHECK_ERRNO(fcntl(reader, F_ADD_SEALS, F_SEAL_GROW), EPERM);
	CHECK_ERRNO(fcntl(reader, F_ADD_SEALS, 64), EPERM);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_GROW) == 0);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, 0), EPERM);
	CHECK_EQ(seals(fd), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	close(fd), close(reader);
	fd = memfd("unsealable", 0);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EPERM);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, 64), EINVAL);
	close(fd);
	fd = open("/dev/null", O_RDWR);
	CHECK_ERRNO(seals(fd), EINVAL);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EINVAL);
	close(fd);
	CHECK(pipe(pipes) == 0);
	CHECK_ERRNO(seals(pipes[1]), EINVAL);
	CHECK_ERRNO(fcntl(pipes[1], F_ADD_SEALS, F_SEAL_SHRINK), EINVAL);
	CHECK_ERRNO(fcntl(pipes[0], F_ADD_SEALS, F_SEAL_SHRINK), EPERM);
	close(pipes[0]), close(pipes[1]);
	say("adding");
}

static void shrink(void)
{
	int fd = sealed(F_SEAL_SHRINK);
	CHECK_ERRNO(ftruncate(fd, PAGE), EPERM);
	CHECK_ERRNO(open(path_of(fd), O_RDWR | O_TRUNC), EPERM);
	CHECK_ERRNO(truncate(path_of(fd), 100), EPERM);
	CHECK(ftruncate(fd, 2 * PAGE) == 0);
	CHECK(ftruncate(fd, 10000) == 0);
	CHECK(truncate(path_of(fd), 20000) == 0);
	CHECK_EQ(pwrite(fd, page, 5, 30000), 5);
	CHECK(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, PAGE) == 0);
	CHECK_EQ(described(fd).st_size, 30005);
	close(fd);
	say("F_SEAL_SHRINK");
}

static void grow(void)
{
	int fd = sealed(F_SEAL_GROW);
	CHECK_ERRNO(ftruncate(fd, 10000), EPERM);
	CHECK_ERRNO(pwrite(fd, page, 5, 2 * PAGE), EPERM);
	CHECK_ERRNO(pwrite(fd, page, PAGE, 2 * PAGE), EPERM);
	CHECK_EQ(pwrite(fd, page, 0, 9000), 0);
	CHECK_EQ(pwrite(fd, page, 100, 8000), 100);
	CHECK_EQ(pwrite(fd, page, 2 * PAGE + 1, 0), 2 * PAGE);
	CHECK_EQ(pwrite(fd, page, 2 * PAGE, 0), 2 * PAGE);
	CHECK_ERRNO(fallocate(fd, 0, 0, 2 * PAGE + 1), EPERM);
	CHECK_ERRNO(fallocate(fd, KEEP_SIZE, 0, 2 * PAGE + 1), EPERM);
	CHECK(fallocate(fd, 0, 0, 2 * PAGE) == 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 2 * PAGE);
	CHECK_ERRNO(write(fd, page, 1), EPERM);
	CHECK(ftruncate(fd, 100) == 0);
	CHECK_ERRNO(ftruncate(fd, 200), EPERM);
	CHECK_EQ(described(fd).st_size, 100);
	close(fd);
	say("F_SEAL_GROW");
}

static void write_seal(void)
{
	int fd = sealed(F_SEAL_WRITE);
	CHECK_ERRNO(pwrite(fd, page, 5, 0), EPERM);
	CHECK_EQ(pwrite(fd, page, 0, 0), 0);
	CHECK_ERRNO(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, PAGE), EPERM);
	CHECK(fallocate(fd, 0, 0, 9000) == 0);
	CHECK(ftruncate(fd, PAGE) == 0);
	CHECK(ftruncate(fd, 2 * PAGE) == 0);
	CHECK(map(fd, PROT_READ | PROT_WRITE, MAP_SHARED) == MAP_FAILED && errno == EPERM);
	char *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	CHECK(private != MAP_FAILED);
	private[0] = 1;
	char *shared = map(fd, PROT_READ, MAP_SHARED);
	CHECK(shared != MAP_FAILED);
	CHECK_EQ(shared[0], 0);
	CHECK_ERRNO(mprotect(shared, PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK(mprotect(shared, PAGE, PROT_READ) == 0);
	munmap(private, PAGE), munmap(shared, PAGE), close(fd);
	say("F_SEAL_WRITE");
}

static void future_write(void)
{
	int fd = memfd("future", ALLOW_SEALING);
	CHECK(ftruncate(fd, PAGE) == 0);
	char *old = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	CHECK(old != MAP_FAILED);
	CHECK(fcntl(fd, F_ADD_SEALS, SEAL_FUTURE_WRITE) == 0);
	old[0] = 7;
	CHECK_ERRNO(pwrite(fd, page, 5, 0), EPERM);
	CHECK_ERRNO(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, PAGE), EPERM);
	CHECK(map(fd, PROT_READ | PROT_WRITE, MAP_SHARED) == MAP_FAILED && errno == EPERM);
	char *new = map(fd, PROT_READ, MAP_SHARED);
	CHECK(new != MAP_FAILED);
	CHECK_EQ(new[0], 7);
	CHECK_ERRNO(mprotect(new, PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK(mprotect(old, PAGE, PROT_READ) == 0);
	CHECK(mprotect(old, PAGE, PROT_READ | PROT_WRITE) == 0);
	old[1] = 8;
	CHECK_EQ(new[1], 8);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	munmap(old, PAGE);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	CHECK_EQ(seals(fd), SEAL_FUTURE_WRITE | F_SEAL_WRITE);
	munmap(new, PAGE), close(fd);
	say("F_SEAL_FUTURE_WRITE");
}

static void busy(void)
{
	int fd = memfd("busy", ALLOW_SEALING), gate[2];
	CHECK(ftruncate(fd, 2 * PAGE) == 0);
	/* It could become writable, so it counts; also in part, and in a child. */
	char *shared = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	CHECK(munmap(shared, PAGE) == 0);
	CHECK(mprotect(shared + PAGE, PAGE, PROT_NONE) == 0);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), EBUSY);
	CHECK_EQ(seals(fd), 0);
	CHECK(pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		close(gate[1]);
		CHECK_EQ(read(gate[0], &byte, 1), 0);
		_exit(0);
	}
	CHECK(munmap(shared + PAGE, PAGE) == 0);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	close(gate[0]), close(gate[1]);
	expect_exit(child, 0);
	int reader = open(path_of(fd), O_RDONLY);
	shared = map(reader, PROT_READ, MAP_SHARED);
	char *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	CHECK(shared != MAP_FAILED && private != MAP_FAILED);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	munmap(shared, PAGE), munmap(private, PAGE), close(fd), close(reader);
	say("busy");
}

static void exec_seal(void)
{
	int fd = memfd("exec", ALLOW_SEALING);
	CHECK(fcntl(fd, F_ADD_SEALS, SEAL_EXEC) == 0);
	/* What may be executed may not be written then. */
	CHECK_EQ(seals(fd), SEAL_EXEC | SEAL_FUTURE_WRITE | F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK);
	CHECK_ERRNO(fchmod(fd, 0666), EPERM);
	CHECK_ERRNO(fchmod(fd, 0700), EPERM);
	CHECK_ERRNO(chmod(path_of(fd), 0700), EPERM);
	CHECK(fchmod(fd, 01777) == 0);
	close(fd);
	fd = memfd("noexec", NOEXEC_SEAL);
	CHECK_ERRNO(fchmod(fd, 0777), EPERM);
	CHECK(fchmod(fd, 0600) == 0);
	CHECK_EQ(described(fd).st_mode, 0100600);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
	CHECK_EQ(seals(fd), SEAL_EXEC | F_SEAL_GROW);
	close(fd);
	fd = memfd("mapped", ALLOW_SEALING);
	char *shared = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
	CHECK(shared != MAP_FAILED);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, SEAL_EXEC), EBUSY);
	CHECK_EQ(seals(fd), 0);
	munmap(shared, PAGE), close(fd);
	fd = memfd("plain", ALLOW_SEALING);
	CHECK(fchmod(fd, 0600) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, SEAL_EXEC) == 0);
	CHECK_EQ(seals(fd), SEAL_EXEC);
	close(fd);
	say("F_SEAL_EXEC");
}

static void space(void)
{
	int fd = memfd("space", 0), pipes[2], directory = open("/", O_RDONLY), zero = open("/dev/zero", O_RDWR);
	int reader = open(path_of(fd), O_RDONLY);
	CHECK(pipe(pipes) == 0);
	CHECK_ERRNO(fallocate(fd, 0, 0, 0), EINVAL);
	CHECK_ERRNO(fallocate(fd, 0, -1, 1), EINVAL);
	CHECK_ERRNO(fallocate(fd, 0, 0, -1), EINVAL);
	CHECK_ERRNO(fallocate(fd, PUNCH_HOLE, 0, 1), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, ZERO_RANGE, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, ZERO_RANGE | KEEP_SIZE, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, COLLAPSE_RANGE, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, INSERT_RANGE, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, 256, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, PUNCH_HOLE | KEEP_SIZE | ZERO_RANGE, 0, 1), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(fd, 0, 0x7fffffffffffffff, 1), EFBIG);
	CHECK_ERRNO(fallocate(reader, 0, 0, 1), EBADF);
	CHECK_ERRNO(fallocate(reader, 256, 0, 1), EOPNOTSUPP);
	CHECK_ERRNO(fallocate(directory, 0, 0, 1), EBADF);
	CHECK_ERRNO(fallocate(pipes[1], 0, 0, 1), ESPIPE);
	CHECK_ERRNO(fallocate(zero, 0, 0, 1), ENODEV);
	CHECK_ERRNO(fallocate(-1, 256, 0, 0), EBADF);
	CHECK_ERRNO(ftruncate(fd, -1), EINVAL);
	CHECK_ERRNO(ftruncate(reader, 0), EINVAL);
	CHECK_ERRNO(ftruncate(pipes[1], 0), EINVAL);
	close(pipes[0]), close(pipes[1]), close(directory), close(zero), close(reader);

	CHECK(fallocate(fd, 0, 5000, 10000) == 0);
	CHECK_EQ(described(fd).st_size, 15000);
	CHECK_EQ(described(fd).st_blocks, 24);
	memset(page, 'a', sizeof page);
	CHECK_EQ(pwrite(fd, page, 3 * PAGE, 0), 3 * PAGE);
	CHECK_EQ(described(fd).st_blocks, 32);
	CHECK(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, PAGE, PAGE) == 0);
	CHECK_EQ(described(fd).st_size, 15000);
	CHECK_EQ(described(fd).st_blocks, 24);
	CHECK_EQ(pread(fd, page, sizeof page, 0), sizeof page);
	CHECK(page[PAGE - 1] == 'a' && page[PAGE] == 0 && page[2 * PAGE - 1] == 0 && page[2 * PAGE] == 'a');
	/* A hole's edges are zeros in pages that stay. */
	CHECK(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 10, 2 * PAGE) == 0);
	CHECK_EQ(described(fd).st_blocks, 24);
	CHECK_EQ(pread(fd, page, sizeof page, 0), sizeof page);
	CHECK(page[9] == 'a' && page[10] == 0 && page[2 * PAGE + 9] == 0 && page[2 * PAGE + 10] == 'a');
	CHECK(fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 100000, 8192) == 0);
	CHECK(fallocate(fd, KEEP_SIZE, 0, 20000) == 0);
	CHECK_EQ(described(fd).st_size, 15000);
	CHECK_EQ(described(fd).st_blocks, 40);
	CHECK(ftruncate(fd, 0x7fffffffffffffff) == 0);
	CHECK_EQ(described(fd).st_size, 0x7fffffffffffffff);
	CHECK(ftruncate(fd, 0) == 0);
	CHECK_EQ(described(fd).st_blocks, 0);
	close(fd);
	say("space");
}

static void names(void)
{
	static char text[1 << 16];
	char want[60];
	int fd = memfd("a name", 0);
	CHECK(ftruncate(fd, PAGE) == 0);
	char *at = map(fd, PROT_READ, MAP_SHARED);
	snprintf(want, sizeof want, "%lx-%lx r--s", (unsigned long)at, (unsigned long)at + PAGE);
	read_whole("/proc/self/maps", text, sizeof text);
	char *line = strstr(text, want);
	CHECK(line != NULL);
	*strchr(line, '\n') = 0;
	CHECK(strcmp(strchr(line, '/'), "/memfd:a name (deleted)") == 0);
	ssize_t length = readlink(path_of(fd), text, sizeof text);
	CHECK(length > 0);
	text[length] = 0;
	CHECK(strcmp(text, "/memfd:a name (deleted)") == 0);
	munmap(at, PAGE), close(fd);
	say("names");
}

int main(void)
{
	making();
	adding();
	shrink();
	grow();
	write_seal();
	future_write();
	busy();
	exec_seal();
	space();
	names();
	return 0;
}
