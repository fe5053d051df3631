/* Memory of other processes: process_vm_readv and process_vm_writev, whole and in part, and who may. */
#include "check.h"

#include <sys/prctl.h>
#include <sys/uio.h>

/* Of both: written pages 0 to 3, nothing at 4, fresh 5 to 7, 8 without access, 9 read-only, fresh to 15. */
static unsigned char *area;
static unsigned char own[16 * PAGE];
static pid_t child;

static long read_from(const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes)
{
	return syscall(SYS_process_vm_readv, child, local, locals, remote, remotes, 0UL);
}

static long write_to(const struct iovec *local, unsigned long locals, const struct iovec *remote, unsigned long remotes)
{
	return syscall(SYS_process_vm_writev, child, local, locals, remote, remotes, 0UL);
}

static struct iovec part(void *at, size_t length)
{
	return (struct iovec){ at, length };
}

static void whole(void)
{
	struct iovec local = part(own, sizeof own), remote = part(area, 3 * PAGE);
	CHECK_EQ(read_from(&local, 1, &remote, 1), 3 * PAGE);
	for (size_t at = 0; at < 3 * PAGE; at++)
		CHECK_EQ(own[at], (unsigned char)(at / PAGE + at + 1));
	/* The child's copy, not ours. */
	for (size_t at = 0; at < 2 * PAGE; at++)
		own[at] = (unsigned char)(at * 3);
	local = part(own, 2 * PAGE), remote = part(area + 5 * PAGE + 100, 2 * PAGE);
	CHECK_EQ(write_to(&local, 1, &remote, 1), 2 * PAGE);
	CHECK_EQ(area[5 * PAGE + 200], 0);
	memset(own, 0, sizeof own);
	CHECK_EQ(read_from(&local, 1, &remote, 1), 2 * PAGE);
	for (size_t at = 0; at < 2 * PAGE; at++)
		CHECK_EQ(own[at], (unsigned char)(at * 3));
	/* Many pieces, cut differently on each side. */
	struct iovec here[100], there[70];
	for (size_t i = 0; i < 100; i++)
		here[i] = part(own + 8 * PAGE + i * 80, 70);
	for (size_t i = 0; i < 70; i++)
		there[i] = part(area + i * 110, 100);
	CHECK_EQ(read_from(here, 100, there, 70), 7000);
	for (size_t at = 0; at < 7000; at++) {
		size_t far = at / 100 * 110 + at % 100;
		CHECK_EQ(own[8 * PAGE + at / 70 * 80 + at % 70], (unsigned char)(far / PAGE + far + 1));
	}
	say("whole");
}

static void in_part(void)
{
	struct iovec local = part(own, sizeof own), remote = part(area, 16 * PAGE), pieces[2];
	CHECK_EQ(read_from(&local, 1, &remote, 1), 4 * PAGE);
	remote = part(area + 3 * PAGE + 10, 10 * PAGE);
	CHECK_EQ(read_from(&local, 1, &remote, 1), PAGE - 10);
	CHECK_EQ(write_to(&local, 1, &remote, 1), PAGE - 10);
	remote = part(area + 5 * PAGE + 10, 10 * PAGE);
	CHECK_EQ(read_from(&local, 1, &remote, 1), 3 * PAGE - 10);
	remote = part(area + 9 * PAGE, 4);
	CHECK_EQ(read_from(&local, 1, &remote, 1), 4);
	CHECK_ERRNO(write_to(&local, 1, &remote, 1), EFAULT);
	remote = part(area + 8 * PAGE, 4);
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), EFAULT);
	CHECK_ERRNO(write_to(&local, 1, &remote, 1), EFAULT);
	remote = part(area + 4 * PAGE, 4);
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), EFAULT);
	remote = part((void *)-1L, 4);
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), EFAULT);
	remote = part((void *)0xffff800000000000UL, 4);
	CHECK_ERRNO(write_to(&local, 1, &remote, 1), EFAULT);
	/* A bad second piece ends it after the first. */
	pieces[0] = part(area, 3), pieces[1] = part(area + 4 * PAGE, 3);
	CHECK_EQ(read_from(&local, 1, pieces, 2), 3);
	/* The local side runs into a hole. */
	local = part(area + 4 * PAGE - 5, 100), remote = part(area, 10000);
	CHECK_EQ(read_from(&local, 1, &remote, 1), 5);
	CHECK_EQ(write_to(&local, 1, &remote, 1), 5);
	local = part(nowhere, 100);
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), EFAULT);
	CHECK_ERRNO(write_to(&local, 1, &remote, 1), EFAULT);
	say("in part");
}

static void mistakes(void)
{
	struct iovec local = part(own, PAGE), remote = part(area, PAGE), empty = part(area, 0), huge = part(area, -1UL);
	CHECK_ERRNO(syscall(SYS_process_vm_readv, child, &local, 1UL, &remote, 1UL, 1UL), EINVAL);
	CHECK_ERRNO(read_from(&local, 1025, &remote, 1), EINVAL);
	CHECK_ERRNO(read_from(&local, 1, &remote, 1025), EINVAL);
	CHECK_ERRNO(read_from((void *)nowhere, 1, &remote, 1), EFAULT);
	CHECK_ERRNO(read_from(&local, 1, (void *)nowhere, 1), EFAULT);
	CHECK_ERRNO(read_from(&local, 1, &huge, 1), EINVAL);
	CHECK_EQ(read_from(&local, 0, &remote, 1), 0);
	CHECK_EQ(read_from(&local, 1, &remote, 0), 0);
	CHECK_EQ(read_from(NULL, 0, (void *)nowhere, 1), 0);
	pid_t before = child;
	child = 99999;
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), ESRCH);
	CHECK_EQ(read_from(&local, 1, &empty, 1), 0);
	CHECK_EQ(read_from(&empty, 1, &remote, 1), 0);
	child = 0;
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), ESRCH);
	child = -1;
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), ESRCH);
	child = getpid();
	CHECK_EQ(read_from(&local, 1, &remote, 1), PAGE);
	child = before;
	say("mistakes");
}

/* Needs root at the start; what remains is the same for others. */
static void permission(void)
{
	struct iovec local = part(own, 10), remote = part(area, 10);
	if (geteuid() != 0) {
		say("permission");
		return;
	}
	IN_CHILD(0, {
		CHECK(setgid(1000) == 0 && setuid(1000) == 0);
		CHECK_ERRNO(read_from(&local, 1, &remote, 1), EPERM);
		/* Its own kind, but it changed its user, so it is not to be looked at. */
		CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
		pid_t inner = fork();
		CHECK(inner >= 0);
		if (inner == 0)
			for (;;)
				pause();
		child = inner;
		CHECK_ERRNO(read_from(&local, 1, &remote, 1), EPERM);
		CHECK(kill(inner, SIGKILL) == 0);
		expect_signal(inner, SIGKILL);
		CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
		inner = fork();
		if (inner == 0)
			for (;;)
				pause();
		child = inner;
		CHECK_EQ(read_from(&local, 1, &remote, 1), 10);
		CHECK(kill(inner, SIGKILL) == 0);
		expect_signal(inner, SIGKILL);
	});
	say("permission");
}

int main(void)
{
	int gate[2];
	area = map_pages(16, PROT_READ | PROT_WRITE);
	CHECK(munmap(area + 4 * PAGE, PAGE) == 0);
	CHECK(mprotect(area + 8 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(mprotect(area + 9 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(pipe(gate) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (size_t at = 0; at < 4 * PAGE; at++)
			area[at] = (unsigned char)(at / PAGE + at + 1);
		CHECK_EQ(write(gate[1], "", 1), 1);
		for (;;)
			pause();
	}
	CHECK_EQ(read(gate[0], own, 1), 1);
	whole();
	in_part();
	mistakes();
	permission();
	struct iovec local = part(own, 10), remote = part(area, 10);
	CHECK(kill(child, SIGKILL) == 0);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
	/* A zombie has no memory. */
	CHECK_ERRNO(read_from(&local, 1, &remote, 1), ESRCH);
	expect_signal(child, SIGKILL);
	return 0;
}
