/* Namespaces of names and of System V objects: unshare, setns, clone, and the files that stand for them. */
#include "check.h"
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>

#define NS_GET_NSTYPE 0xb703

static void expect_host(const char *name)
{
	struct utsname names;
	CHECK_EQ(uname(&names), 0);
	if (strcmp(names.nodename, name))
		FAIL("the host is %s, not %s", names.nodename, name);
}

static int open_ns(const char *of, const char *kind)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%s/ns/%s", of, kind);
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	return fd;
}

static void link_of(const char *kind, char *text)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
	ssize_t length = readlink(path, text, 63);
	CHECK(length > 0);
	text[length] = 0;
}

static void names(void)
{
	IN_CHILD(0, {
		CHECK_EQ(unshare(CLONE_NEWUTS), 0);
		CHECK_EQ(sethostname("first", 5), 0);
		int first = open_ns("self", "uts");
		IN_CHILD(0, expect_host("first"));
		/* A copy of the names, and then one's own. */
		CHECK_EQ(unshare(CLONE_NEWUTS), 0);
		expect_host("first");
		CHECK_EQ(sethostname("second", 6), 0);
		CHECK_EQ(setdomainname("domain", 6), 0);
		char text[64];
		CHECK_EQ(read_whole("/proc/sys/kernel/hostname", text, sizeof text), 7);
		CHECK(strcmp(text, "second\n") == 0);
		int second = open_ns("self", "uts");
		CHECK_EQ(setns(first, 0), 0);
		expect_host("first");
		CHECK_EQ(setns(second, CLONE_NEWUTS), 0);
		expect_host("second");
		CHECK_ERRNO(setns(second, CLONE_NEWIPC), EINVAL);
		CHECK_ERRNO(setns(1, CLONE_NEWUTS), EINVAL);
		CHECK_ERRNO(setns(99, CLONE_NEWUTS), EBADF);
		/* clone makes one for the child. */
		pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0);
		if (child == 0) {
			CHECK_EQ(sethostname("third", 5), 0);
			expect_host("third");
			_exit(5);
		}
		expect_exit(child, 5);
		expect_host("second");
		/* By a descriptor of a process that is in another. */
		int pipes[2];
		CHECK_EQ(pipe(pipes), 0);
		child = fork();
		if (child == 0) {
			char byte;
			CHECK_EQ(unshare(CLONE_NEWUTS | CLONE_NEWIPC), 0);
			CHECK_EQ(sethostname("fourth", 6), 0);
			CHECK_EQ(write(pipes[1], "x", 1), 1);
			for (;;)
				CHECK(read(0, &byte, 0) == 0 && pause() == -1);
		}
		char byte;
		CHECK_EQ(read(pipes[0], &byte, 1), 1);
		int process = (int)syscall(SYS_pidfd_open, child, 0);
		CHECK(process >= 0);
		CHECK_ERRNO(setns(process, 0), EINVAL);
		CHECK_EQ(setns(process, CLONE_NEWUTS | CLONE_NEWIPC), 0);
		expect_host("fourth");
		kill(child, SIGKILL);
		expect_signal(child, SIGKILL);
		CHECK_ERRNO(setns(process, CLONE_NEWUTS), ESRCH);
	});
	say("names: unshared, copied, entered again");
}

static void objects(void)
{
	key_t key = 0x5ca1ab1e;
	int memory = shmget(key, PAGE, IPC_CREAT | 0600);
	int set = semget(key, 1, IPC_CREAT | 0600);
	CHECK(memory >= 0 && set >= 0);
	char *at = shmat(memory, NULL, 0);
	CHECK(at != (char *)-1);
	at[0] = 42;
	IN_CHILD(0, {
		int before = open_ns("self", "ipc");
		CHECK_EQ(unshare(CLONE_NEWIPC), 0);
		/* Attached is attached; found it is not. */
		CHECK_EQ(at[0], 42);
		CHECK_ERRNO(shmget(key, PAGE, 0600), ENOENT);
		CHECK_ERRNO(semget(key, 1, 0600), ENOENT);
		int own = shmget(key, 2 * PAGE, IPC_CREAT | IPC_EXCL | 0600);
		CHECK(own >= 0);
		char *there = shmat(own, NULL, 0);
		CHECK_EQ(there[0], 0);
		there[0] = 43;
		CHECK_EQ(setns(before, CLONE_NEWIPC), 0);
		CHECK_EQ(shmget(key, PAGE, 0600), memory);
		CHECK_EQ(semctl(set, 0, GETVAL), 0);
		CHECK_EQ(there[0], 43);
	});
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWIPC | SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		CHECK_ERRNO(shmget(key, PAGE, 0600), ENOENT);
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWIPC | CLONE_SYSVSEM | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_EQ(shmctl(memory, IPC_RMID, NULL), 0);
	CHECK_EQ(semctl(set, 0, IPC_RMID), 0);
	say("objects: shared memory and semaphores, each namespace its own");
}

static void files(void)
{
	char before[64], after[64];
	static const char *const kinds[] = { "uts", "ipc" };
	static const int flags[] = { CLONE_NEWUTS, CLONE_NEWIPC };
	for (int i = 0; i < 2; i++) {
		link_of(kinds[i], before);
		struct stat here;
		struct stat there;
		struct statfs system;
		int fd = open_ns("self", kinds[i]);
		CHECK_EQ(fstat(fd, &here), 0);
		CHECK(S_ISREG(here.st_mode));
		char wanted[64];
		snprintf(wanted, sizeof wanted, "%s:[%lu]", kinds[i], (unsigned long)here.st_ino);
		CHECK(strcmp(before, wanted) == 0);
		CHECK_EQ(fstatfs(fd, &system), 0);
		CHECK_EQ(system.f_type, 0x6e736673);
		CHECK_EQ(ioctl(fd, NS_GET_NSTYPE), flags[i]);
		CHECK_ERRNO(ioctl(fd, 0x5401, &here), ENOTTY);
		IN_CHILD(0, {
			link_of(kinds[i], after);
			CHECK(strcmp(before, after) == 0);
			CHECK_EQ(unshare(flags[i]), 0);
			link_of(kinds[i], after);
			CHECK(strcmp(before, after) != 0);
			int own = open_ns("self", kinds[i]);
			CHECK_EQ(fstat(own, &there), 0);
			CHECK(here.st_ino != there.st_ino && here.st_dev == there.st_dev);
			CHECK_EQ(setns(fd, 0), 0);
			link_of(kinds[i], after);
			CHECK(strcmp(before, after) == 0);
		});
		close(fd);
	}
	/* For those who may. */
	IN_CHILD(0, {
		int uts = open_ns("self", "uts");
		CHECK_EQ(setresuid(1000, 1000, 1000), 0);
		CHECK_ERRNO(unshare(CLONE_NEWUTS), EPERM);
		CHECK_ERRNO(unshare(CLONE_NEWIPC), EPERM);
		CHECK_ERRNO(unshare(CLONE_NEWNS), EPERM);
		CHECK_ERRNO(setns(uts, 0), EPERM);
		CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0), EPERM);
		CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0), EPERM);
	});
	CHECK_ERRNO(unshare(0x00001000), EINVAL);
	say("files: numbers, types, who may enter");
}

int main(void)
{
	names();
	objects();
	files();
	return 0;
}
