/* memfd_secret: memory of a file that can only be mapped, and that nobody reaches but through a mapping: no tracer, no
 * process_vm_readv, nothing that holds on to pages. */
#include "check.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#define SYS_MEMFD_SECRET 447
#define POPULATE_READ 22
#define POPULATE_WRITE 23
#define DONTNEED_LOCKED 24
#define FUTEX_WAKE 1
#define FUTEX_PRIVATE 128

static int secret(unsigned flags)
{
	return (int)syscall(SYS_MEMFD_SECRET, flags);
}

/* One of two pages, and its mapping. */
static char *mapped_secret(int *file)
{
	int fd = secret(0);
	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	if (file)
		*file = fd;
	else
		close(fd);
	return at;
}

/* The line of smaps that begins so, of the mapping at `at`. */
static void say_line_of(const void *at, const char *wanted)
{
	char line[512], start[32];
	snprintf(start, sizeof start, "%lx-", (unsigned long)at);
	FILE *smaps = fopen("/proc/self/smaps", "r");
	CHECK(smaps);
	int inside = 0;
	while (fgets(line, sizeof line, smaps)) {
		if (strncmp(line, start, strlen(start)) == 0)
			inside = 1;
		if (inside && strncmp(line, wanted, strlen(wanted)) == 0) {
			line[strcspn(line, "\n")] = 0;
			say("%s", line);
			break;
		}
	}
	fclose(smaps);
}

static void the_file(void)
{
	CHECK_ERRNO(secret(1), EINVAL);
	CHECK_ERRNO(secret(O_NONBLOCK), EINVAL);
	int fd = secret(O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	struct stat about;
	struct statfs system;
	CHECK_EQ(fstat(fd, &about), 0);
	CHECK_EQ(fstatfs(fd, &system), 0);
	say("mode %o, %ld bytes, file system %lx", about.st_mode, (long)about.st_size, (long)system.f_type);

	char byte = 0, path[40], name[64] = { 0 };
	CHECK_ERRNO(read(fd, &byte, 1), EINVAL);
	CHECK_ERRNO(write(fd, &byte, 1), EINVAL);
	CHECK_ERRNO(pread(fd, &byte, 1, 0), ESPIPE);
	CHECK_ERRNO(lseek(fd, 0, SEEK_END), ESPIPE);
	CHECK_ERRNO(fallocate(fd, 0, 0, PAGE), EOPNOTSUPP);
	CHECK_ERRNO(fcntl(fd, F_GET_SEALS), EINVAL);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EINVAL);
	CHECK_ERRNO(fsync(fd), EINVAL);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	CHECK_ERRNO(open(path, O_RDWR), ENXIO);
	CHECK(readlink(path, name, sizeof name - 1) > 0);
	say("it is called %s", name);

	/* A length is given once. */
	CHECK_EQ(ftruncate(fd, 2 * PAGE), 0);
	CHECK_ERRNO(ftruncate(fd, PAGE), EINVAL);
	CHECK_ERRNO(ftruncate(fd, 2 * PAGE), EINVAL);
	CHECK_ERRNO(ftruncate(fd, 0), EINVAL);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	close(fd);
}

static void who_reaches_it(void)
{
	char *at = mapped_secret(NULL), bytes[8] = { 0 };
	strcpy(at, "secret");
	struct iovec here = { bytes, 6 }, there = { at, 6 };
	CHECK_ERRNO(process_vm_readv(getpid(), &here, 1, &there, 1, 0), EFAULT);
	CHECK_ERRNO(process_vm_writev(getpid(), &here, 1, &there, 1, 0), EFAULT);
	int memory = open("/proc/self/mem", O_RDWR);
	CHECK(memory >= 0);
	CHECK_ERRNO(pread(memory, bytes, 6, (off_t)at), EIO);
	CHECK_ERRNO(pwrite(memory, bytes, 6, (off_t)at), EIO);
	close(memory);

	/* The program itself may give it to a call. */
	int pipe_ends[2];
	CHECK_EQ(pipe(pipe_ends), 0);
	CHECK_EQ(write(pipe_ends[1], at, 6), 6);
	CHECK_EQ(read(pipe_ends[0], at + PAGE - 3, 6), 6);
	CHECK(memcmp(at + PAGE - 3, "secret", 6) == 0);
	CHECK_ERRNO(vmsplice(pipe_ends[1], &there, 1, 0), EFAULT);
	close(pipe_ends[0]), close(pipe_ends[1]);
	CHECK_ERRNO(syscall(SYS_futex, at, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_EQ(syscall(SYS_futex, at, FUTEX_WAKE | FUTEX_PRIVATE, 1, NULL, NULL, 0), 0);

	/* A child shares it; its tracer sees nothing of it. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(strcmp(at, "secret") == 0);
		at[0] = 'S';
		CHECK_EQ(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
		raise(SIGSTOP);
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSTOPPED(status));
	errno = 0;
	CHECK(ptrace(PTRACE_PEEKDATA, child, at, NULL) == -1 && errno == EIO);
	CHECK_ERRNO(ptrace(PTRACE_POKEDATA, child, at, 0L), EIO);
	CHECK_ERRNO(process_vm_readv(child, &here, 1, &there, 1, 0), EFAULT);
	CHECK_EQ(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
	expect_exit(child, 0);
	say("the program and its child reach it: %s", at);
	munmap(at, 2 * PAGE);
}

static void advice_and_locks(void)
{
	char *at = mapped_secret(NULL);
	unsigned char resident[2];
	CHECK_EQ(mincore(at, 2 * PAGE, resident), 0);
	CHECK_EQ((resident[0] & 1) + (resident[1] & 1), 0);
	at[0] = 1;
	CHECK_EQ(mincore(at, 2 * PAGE, resident), 0);
	CHECK_EQ((resident[0] & 1) * 2 + (resident[1] & 1), 2);
	say_line_of(at, "Size:");
	say_line_of(at, "Rss:");
	say_line_of(at, "VmFlags:");

	CHECK_ERRNO(mlock(at, PAGE), ENOMEM);
	CHECK_EQ(munlock(at, PAGE), 0);
	CHECK_EQ(munlockall(), 0);
	static const struct { int advice; const char *name; } given[] = {
		{ MADV_DONTNEED, "DONTNEED" }, { POPULATE_READ, "POPULATE_READ" }, { POPULATE_WRITE, "POPULATE_WRITE" },
		{ MADV_REMOVE, "REMOVE" }, { MADV_FREE, "FREE" }, { 20, "COLD" }, { 21, "PAGEOUT" },
		{ MADV_WIPEONFORK, "WIPEONFORK" }, { MADV_DONTFORK, "DONTFORK" }, { MADV_DOFORK, "DOFORK" },
		{ DONTNEED_LOCKED, "DONTNEED_LOCKED" },
	};
	for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
		errno = 0;
		int result = madvise(at, 2 * PAGE, given[i].advice);
		say("%s: %d, errno %d", given[i].name, result, errno);
	}
	CHECK_EQ(at[0], 1);
	CHECK_ERRNO(msync(at, PAGE, MS_SYNC), EINVAL);
	CHECK_EQ(msync(at, PAGE, MS_ASYNC), 0);
	CHECK_ERRNO(mprotect(at, PAGE, PROT_READ | PROT_EXEC), EACCES);
	CHECK_EQ(mprotect(at, 2 * PAGE, PROT_READ), 0);
	KILLED_BY(SIGSEGV, at[0] = 2);
	CHECK_EQ(mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	char *moved = mremap(at, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	CHECK_EQ(moved[0], 1);
	KILLED_BY(SIGBUS, moved[2 * PAGE] = 1);
	/* It is locked from the start, and stays so. */
	say_line_of(moved, "VmFlags:");
	/* The child's mapping is not. */
	IN_CHILD(0, say_line_of(moved, "VmFlags:"); CHECK_ERRNO(mlock(moved, PAGE), ENOMEM);
		 say_line_of(moved, "VmFlags:"));
	munmap(moved, 3 * PAGE);
}

static void the_limit(void)
{
	int fd;
	char *at = mapped_secret(&fd);
	struct rlimit limit = { 3 * PAGE, 3 * PAGE };
	CHECK_EQ(setuid(1000), 0);
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	char *more = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(more != MAP_FAILED);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EAGAIN);
	CHECK_EQ(munmap(at, PAGE), 0);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	limit.rlim_cur = 0;
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EAGAIN);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_LOCKED, fd, 0) == MAP_FAILED && errno == EPERM);
	say("what may be locked may be secret");
}

int main(void)
{
	the_file();
	who_reaches_it();
	advice_and_locks();
	IN_CHILD(0, the_limit());
	say("secret memory: ok");
	return 0;
}
