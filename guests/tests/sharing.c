/* What threads share and have of their own: unshare, kcmp, classes of scheduling, memory policies; bytes between pipes
 * and memory. */
#include "check.h"
#include <sys/epoll.h>

#include <sched.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* musl refuses these by itself. */
#define sched_getscheduler(pid) syscall(SYS_sched_getscheduler, pid)
#define sched_setscheduler(pid, policy, parameter) syscall(SYS_sched_setscheduler, pid, policy, parameter)
#define sched_getparam(pid, parameter) syscall(SYS_sched_getparam, pid, parameter)
#define sched_setparam(pid, parameter) syscall(SYS_sched_setparam, pid, parameter)

static int kcmp(pid_t one, pid_t two, int type, unsigned long first, unsigned long second)
{
	return (int)syscall(SYS_kcmp, one, two, type, first, second);
}

static void comparing(void)
{
	pid_t own = getpid();
	int copy = dup(1), other = open("/dev/null", O_RDONLY);
	CHECK_EQ(kcmp(own, own, 0, 1, (unsigned long)copy), 0);
	int order = kcmp(own, own, 0, 1, (unsigned long)other);
	CHECK(order == 1 || order == 2);
	CHECK_EQ(order + kcmp(own, own, 0, (unsigned long)other, 1), 3);
	for (int type = 1; type <= 4; type++)
		CHECK_EQ(kcmp(own, own, type, 0, 0), 0);
	CHECK_ERRNO(kcmp(own, own, 0, 1, 999), EBADF);
	CHECK_ERRNO(kcmp(own, own, 99, 0, 0), EINVAL);
	/* What a set of epoll watches: the number that it had, and the how manieth of that. */
	int set = epoll_create1(0);
	int ends[2];
	struct epoll_event event = { .events = EPOLLIN };
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
	unsigned slot[3] = { (unsigned)set, (unsigned)ends[0], 0 };
	CHECK_EQ(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)slot), 0);
	CHECK(kcmp(own, own, 7, (unsigned long)ends[1], (unsigned long)slot) > 0);
	slot[2] = 1;
	CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)slot), ENOENT);
	slot[0] = (unsigned)ends[0];
	CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)slot), EINVAL);
	slot[0] = 999;
	CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], (unsigned long)slot), EBADF);
	CHECK_ERRNO(kcmp(own, own, 7, (unsigned long)ends[0], 8), EFAULT);
	close(set);
	close(ends[0]);
	close(ends[1]);
	CHECK_ERRNO(kcmp(own, 999999, 1, 0, 0), ESRCH);
	IN_CHILD(0, CHECK(kcmp(own, getpid(), 1, 0, 0) > 0);
		CHECK(kcmp(own, getpid(), 2, 0, 0) > 0);
		CHECK(kcmp(own, getpid(), 3, 0, 0) > 0);
		CHECK(kcmp(own, getpid(), 4, 0, 0) > 0);
		CHECK_EQ(kcmp(own, getpid(), 0, 1, 1), 0);
		CHECK_EQ(setresuid(1234, 1234, 1234), 0);
		CHECK_ERRNO(kcmp(1, getpid(), 1, 0, 0), EPERM));
	close(copy);
	close(other);
	say("kcmp");
}

static char stack[65536] __attribute__((aligned(16)));

static int change(void *flags)
{
	CHECK_EQ(unshare((int)(long)flags), 0);
	umask(077);
	close(0);
	return 0;
}

static void unsharing(void)
{
	CHECK_ERRNO(unshare(1), EINVAL);
	CHECK_ERRNO(unshare(CLONE_PARENT), EINVAL);
	CHECK_EQ(unshare(0), 0);
	CHECK_EQ(unshare(CLONE_THREAD | CLONE_SIGHAND | CLONE_VM), 0);
	static const int parts[] = { 0, CLONE_FS, CLONE_FILES, CLONE_FS | CLONE_FILES };
	for (int i = 0; i < 4; i++) {
		umask(022);
		if (fcntl(0, F_GETFD) < 0)
			CHECK_EQ(open("/dev/null", O_RDONLY), 0);
		pid_t child = clone(change, stack + sizeof stack, CLONE_FS | CLONE_FILES | CLONE_VM | SIGCHLD, (void *)(long)parts[i]);
		CHECK(child > 0);
		expect_exit(child, 0);
		mode_t mask = umask(022);
		say("unshare%s%s: umask %03o, file %s", parts[i] & CLONE_FS ? " fs" : "", parts[i] & CLONE_FILES ? " files" : "",
		    mask, fcntl(0, F_GETFD) < 0 ? "closed" : "open");
	}
	IN_CHILD(0, CHECK_EQ(setresuid(1234, 1234, 1234), 0); CHECK_ERRNO(unshare(CLONE_NEWNS), EPERM));
	CHECK_ERRNO(setns(999, 0), EBADF);
	int file = open("/dev/null", O_RDONLY);
	CHECK_ERRNO(setns(file, 0), EINVAL);
	close(file);
}

static void classes(void)
{
	struct sched_param priority = { 0 };
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	CHECK_ERRNO(sched_setscheduler(-1, SCHED_OTHER, &priority), EINVAL);
	CHECK_ERRNO(sched_setscheduler(999999, SCHED_OTHER, &priority), ESRCH);
	CHECK_ERRNO(sched_setscheduler(0, 77, &priority), EINVAL);
	CHECK_ERRNO(sched_setscheduler(0, SCHED_FIFO, &priority), EINVAL);
	CHECK_ERRNO(sched_getparam(0, NULL), EINVAL);
	CHECK_ERRNO(sched_getscheduler(999999), ESRCH);
	IN_CHILD(0, CHECK_EQ(sched_setscheduler(0, SCHED_BATCH, &priority), 0);
		CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
		priority.sched_priority = 1;
		CHECK_ERRNO(sched_setparam(0, &priority), EINVAL);
		CHECK_EQ(setresuid(1234, 1234, 1234), 0);
		CHECK_ERRNO(sched_setscheduler(0, SCHED_FIFO, &priority), EPERM);
		priority.sched_priority = 0;
		CHECK_EQ(sched_setscheduler(0, SCHED_IDLE | 0x40000000, &priority), 0);
		CHECK_EQ(sched_getscheduler(0), SCHED_IDLE | 0x40000000));
	CHECK_EQ(sched_get_priority_max(SCHED_FIFO), 99);
	CHECK_EQ(sched_get_priority_min(SCHED_RR), 1);
	CHECK_EQ(sched_get_priority_max(SCHED_OTHER), 0);
	CHECK_ERRNO(sched_get_priority_max(77), EINVAL);
	struct { unsigned size, policy; unsigned long flags; int nice; unsigned priority; unsigned long times[3]; } attributes;
	CHECK_ERRNO(syscall(SYS_sched_getattr, 0, &attributes, 47, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_sched_getattr, 0, NULL, 48, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_sched_getattr, 0, &attributes, 48, 1), EINVAL);
	CHECK_EQ(syscall(SYS_sched_getattr, 0, &attributes, 48, 0), 0);
	CHECK(attributes.size == 48 && attributes.policy == SCHED_OTHER && attributes.priority == 0);
	attributes.size = 47;
	CHECK_ERRNO(syscall(SYS_sched_setattr, 0, &attributes, 0), E2BIG);
	CHECK_EQ(attributes.size % 8, 0);
	say("classes of scheduling");
}

static void splices(void)
{
	int one[2], two[2], fd = (int)syscall(SYS_memfd_create, "file", 0);
	char bytes[32] = "";
	struct iovec pieces[2] = { { "hello ", 6 }, { "world", 5 } }, into = { bytes, sizeof bytes };
	CHECK_EQ(pipe(one), 0);
	CHECK_EQ(pipe(two), 0);
	CHECK_ERRNO(vmsplice(fd, pieces, 2, 0), EBADF);
	CHECK_ERRNO(vmsplice(one[1], pieces, 2, 16), EINVAL);
	CHECK_EQ(vmsplice(one[1], pieces, 2, 0), 11);
	CHECK_EQ(splice(one[0], NULL, two[1], NULL, 100, 0), 11);
	CHECK_ERRNO(splice(one[0], NULL, two[1], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
	loff_t offset = 3;
	CHECK_EQ(splice(two[0], NULL, fd, &offset, 5, 0), 5);
	CHECK_EQ(offset, 8);
	CHECK_ERRNO(splice(two[0], &offset, fd, NULL, 5, 0), ESPIPE);
	CHECK_ERRNO(splice(fd, NULL, fd, NULL, 5, 0), EINVAL);
	CHECK_ERRNO(splice(two[0], NULL, two[1], NULL, 5, 0), EINVAL);
	CHECK_ERRNO(splice(two[1], NULL, fd, NULL, 5, 0), EBADF);
	CHECK_EQ(splice(999, NULL, fd, NULL, 0, 0), 0);
	CHECK_EQ(vmsplice(two[0], &into, 1, 0), 6);
	CHECK(memcmp(bytes, " world", 6) == 0);
	offset = 2;
	CHECK_EQ(splice(fd, &offset, one[1], NULL, 100, 0), 6);
	CHECK_EQ(read(one[0], bytes, sizeof bytes), 6);
	CHECK(memcmp(bytes, "\0hello", 6) == 0);
	say("splice, vmsplice");
}

int main(void)
{
	comparing();
	unsharing();
	classes();
	splices();
	return 0;
}
