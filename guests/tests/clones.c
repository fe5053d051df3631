/* clone and clone3: each flag by what it shares, where numbers are written, sizes and tails of the record, chosen numbers. */
#include "check.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	uint64_t more[2];
};

static char stack[65536] __attribute__((aligned(16)));

static long clone3(struct args *args, size_t size)
{
	return syscall(SYS_clone3, args, size);
}

static int in_child(void *flags)
{
	(void)flags;
	umask(077);
	close(0);
	signal(SIGUSR1, SIG_IGN);
	*(volatile int *)stack = 7;
	return 0;
}

static void sharing(void)
{
	static const struct { int flags; const char *name; } list[] = {
		{ 0, "nothing" }, { CLONE_VM, "memory" }, { CLONE_FS, "directories" }, { CLONE_FILES, "files" },
		{ CLONE_VM | CLONE_SIGHAND, "memory, handlers" }, { CLONE_VM | CLONE_VFORK, "memory, vfork" },
		{ CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM, "all" },
	};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		struct sigaction before;
		umask(022);
		signal(SIGUSR1, SIG_DFL);
		*(volatile int *)stack = 0;
		if (fcntl(0, F_GETFD) < 0)
			CHECK_EQ(open("/dev/null", O_RDONLY), 0);
		pid_t child = clone(in_child, stack + sizeof stack, list[i].flags | SIGCHLD, NULL);
		CHECK(child > 0);
		expect_exit(child, 0);
		CHECK_EQ(sigaction(SIGUSR1, NULL, &before), 0);
		say("%s: memory %d, mask %03o, file %s, signal %s", list[i].name, *(volatile int *)stack, umask(022),
		    fcntl(0, F_GETFD) < 0 ? "closed" : "open", before.sa_handler == SIG_IGN ? "ignored" : "as it was");
	}
	CHECK_ERRNO(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_VM | CLONE_THREAD, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, stack, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL);
}

static void numbers(void)
{
	int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	int parent = 0, child_word = 0;
	long child = syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &parent, &child_word, 0);
	CHECK(child >= 0);
	if (child == 0) {
		shared[0] = child_word == getpid();
		_exit(0);
	}
	CHECK_EQ(parent, child);
	CHECK_EQ(child_word, 0);
	expect_exit((pid_t)child, 0);
	CHECK_EQ(shared[0], 1);
	/* Cleared at the end only where the memory is shared with somebody. */
	child = syscall(SYS_clone, CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD, 0, 0, &shared[1], 0);
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	expect_exit((pid_t)child, 0);
	CHECK_EQ(shared[1], child);
	/* A parent's child: a grandchild that is ours. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		long sister = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
		if (sister == 0)
			_exit(9);
		_exit(sister > 0 ? 8 : 1);
	}
	expect_exit((pid_t)child, 8);
	int status;
	CHECK(wait(&status) > 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	/* Without a signal at the end, it is waited for by asking for it. */
	child = syscall(SYS_clone, 0, 0, 0, 0, 0);
	CHECK(child >= 0);
	if (child == 0)
		_exit(3);
	CHECK_ERRNO(waitpid((pid_t)child, &status, 0), ECHILD);
	CHECK_EQ(waitpid((pid_t)child, &status, __WALL), child);
	CHECK_EQ(syscall(SYS_set_tid_address, NULL), syscall(SYS_gettid));
	munmap(shared, PAGE);
	say("numbers, parents");
}

static void records(void)
{
	struct args args = { .exit_signal = SIGCHLD };
	CHECK_ERRNO(clone3(NULL, 64), EFAULT);
	CHECK_ERRNO(clone3(&args, 63), EINVAL);
	CHECK_ERRNO(clone3(&args, 0), EINVAL);
	CHECK_ERRNO(clone3(&args, 4097), E2BIG);
	args.more[1] = 1;
	CHECK_ERRNO(clone3(&args, sizeof args), E2BIG);
	args.more[1] = 0;
	static const size_t sizes[] = { 64, 80, 88, 104 };
	for (int i = 0; i < 4; i++) {
		long child = clone3(&args, sizes[i]);
		CHECK(child >= 0);
		if (child == 0)
			_exit(i);
		expect_exit((pid_t)child, i);
	}
	static const struct args bad[] = {
		{ .flags = 0x1f }, { .flags = CLONE_DETACHED }, { .exit_signal = 65 }, { .flags = 1ULL << 40 },
		{ .flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, .exit_signal = SIGCHLD },
		{ .flags = CLONE_PARENT, .exit_signal = SIGCHLD },
		{ .stack = 4096 }, { .stack_size = 4096 }, { .set_tid_size = 1 }, { .set_tid = 4096 },
		{ .set_tid = 4096, .set_tid_size = 33 }, { .flags = CLONE_SIGHAND }, { .flags = CLONE_THREAD },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		args = bad[i];
		errno = 0;
		if (clone3(&args, 88) != -1 || errno != EINVAL)
			FAIL("record %d: %s", (int)i, strerror(errno));
	}
	say("records of clone3");
}

static void chosen(void)
{
	int wanted[2] = { 31000, 31001 };
	struct args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)wanted, .set_tid_size = 1 };
	long child = clone3(&args, 88);
	CHECK(child >= 0);
	if (child == 0)
		_exit(getpid() == 31000 ? 5 : 6);
	CHECK_EQ(child, 31000);
	CHECK_ERRNO(clone3(&args, 88), EEXIST);
	expect_exit(31000, 5);
	wanted[0] = 0;
	CHECK_ERRNO(clone3(&args, 88), EINVAL);
	wanted[0] = -1;
	CHECK_ERRNO(clone3(&args, 88), EINVAL);
	wanted[0] = 1;
	CHECK_ERRNO(clone3(&args, 88), EEXIST);
	args.set_tid = (uintptr_t)nowhere;
	CHECK_ERRNO(clone3(&args, 88), EFAULT);
	args.set_tid = (uintptr_t)wanted;
	wanted[0] = 31000;
	IN_CHILD(0, CHECK_EQ(setresuid(1234, 1234, 1234), 0); CHECK_ERRNO(clone3(&args, 88), EPERM));
	say("chosen numbers");
}

int main(void)
{
	sharing();
	numbers();
	records();
	chosen();
	return 0;
}
