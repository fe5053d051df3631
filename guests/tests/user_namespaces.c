/* Namespaces of users: ids of their own, maps, groups, what capabilities count for, what belongs to whom. */
#include "check.h"
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define NS_GET_USERNS 0xb701
#define NS_GET_PARENT 0xb702
#define NS_GET_NSTYPE 0xb703
#define NS_GET_OWNER_UID 0xb704
#define NOBODY 65534

static void become(uid_t id)
{
	CHECK_EQ(setgroups(0, NULL), 0);
	CHECK_EQ(setresgid(id, id, id), 0);
	CHECK_EQ(setresuid(id, id, id), 0);
	/* So that /proc/self is one's own again. */
	CHECK_EQ(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}

static void line_of(const char *name, char *line)
{
	static char text[8192];
	read_whole("/proc/self/status", text, sizeof text);
	char *at = strstr(text, name);
	CHECK(at != NULL);
	char *end = strchr(++at, '\n');
	memcpy(line, at, (size_t)(end - at));
	line[end - at] = 0;
}

static void unmapped(void)
{
	IN_CHILD(0, {
		char line[128];
		become(1000);
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		CHECK_EQ(getuid(), NOBODY);
		CHECK_EQ(geteuid(), NOBODY);
		CHECK_EQ(getgid(), NOBODY);
		uid_t ids[3];
		CHECK_EQ(getresuid(&ids[0], &ids[1], &ids[2]), 0);
		CHECK(ids[0] == NOBODY && ids[1] == NOBODY && ids[2] == NOBODY);
		line_of("\nCapEff:", line);
		CHECK(strcmp(line, "CapEff:\t0000000000000000") != 0);
		line_of("\nCapInh:", line);
		CHECK_EQ(strcmp(line, "CapInh:\t0000000000000000"), 0);
		line_of("\nUid:", line);
		CHECK_EQ(strcmp(line, "Uid:\t65534\t65534\t65534\t65534"), 0);
		/* What is not mapped cannot be said. */
		CHECK_ERRNO(setuid(0), EINVAL);
		CHECK_ERRNO(setgid(0), EINVAL);
		CHECK_ERRNO(setresuid((uid_t)-1, 5, (uid_t)-1), EINVAL);
		CHECK_EQ(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1), 0);
		CHECK_ERRNO(setgroups(0, NULL), EPERM);
		CHECK_ERRNO(chown("/", 5, (gid_t)-1), EINVAL);
		char text[64];
		CHECK_EQ(read_whole("/proc/self/uid_map", text, sizeof text), 0);
		struct stat root;
		CHECK_EQ(stat("/", &root), 0);
		CHECK_EQ(root.st_uid, NOBODY);
		/* Without a number oneself there is no further one. */
		CHECK_ERRNO(unshare(CLONE_NEWUSER), EPERM);
	});
	say("unmapped: nobody, with all capabilities");
}

static void mapped(void)
{
	IN_CHILD(0, {
		char line[128];
		char text[64];
		become(1000);
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		/* Groups only where supplementary ones are given up. */
		CHECK_EQ(write_file("/proc/self/gid_map", "0 1000 1"), EPERM);
		CHECK_EQ(write_file("/proc/self/setgroups", "no"), EINVAL);
		CHECK_EQ(write_file("/proc/self/setgroups", "deny"), 0);
		CHECK_EQ(write_file("/proc/self/setgroups", "allow"), EPERM);
		read_whole("/proc/self/setgroups", text, sizeof text);
		CHECK_EQ(strcmp(text, "deny\n"), 0);
		/* Only oneself, once, as one line. */
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1001 1"), EPERM);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 2"), EPERM);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 1 7"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 0"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "x 1000 1"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 4294967295 1"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 1\n0 1001 1"), EINVAL);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 1\n"), 0);
		CHECK_EQ(write_file("/proc/self/uid_map", "0 1000 1\n"), EPERM);
		CHECK_EQ(write_file("/proc/self/gid_map", "0 1000 1"), 0);
		CHECK_EQ(getuid(), 0);
		CHECK_EQ(getgid(), 0);
		read_whole("/proc/self/uid_map", text, sizeof text);
		CHECK_EQ(strcmp(text, "         0       1000          1\n"), 0);
		line_of("\nUid:", line);
		CHECK_EQ(strcmp(line, "Uid:\t0\t0\t0\t0"), 0);
		CHECK_ERRNO(setgroups(0, NULL), EPERM);
		CHECK_EQ(setuid(0), 0);
		CHECK_ERRNO(setuid(1), EINVAL);
		struct stat own;
		CHECK_EQ(stat("/proc/self", &own), 0);
		CHECK_EQ(own.st_uid, 0);
		/* A further one below. */
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		CHECK_EQ(getuid(), NOBODY);
		CHECK_EQ(write_file("/proc/self/uid_map", "7 0 1"), 0);
		CHECK_EQ(getuid(), 7);
		read_whole("/proc/self/uid_map", text, sizeof text);
		CHECK_EQ(strcmp(text, "         7          0          1\n"), 0);
	});
	say("mapped: root to itself, once");
}

static void ranges(void)
{
	int up[2], down[2];
	CHECK_EQ(pipe(up), 0);
	CHECK_EQ(pipe(down), 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		CHECK_EQ(write(up[1], "x", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		CHECK_EQ(getuid(), 0);
		CHECK_EQ(setgroups(2, (gid_t[]){ 5, 105 }), 0);
		gid_t groups[2];
		CHECK_EQ(getgroups(2, groups), 2);
		CHECK(groups[0] == 5 && groups[1] == 105);
		CHECK_ERRNO(setgroups(1, (gid_t[]){ 20 }), EINVAL);
		int fd = open("/tmp/owned", O_CREAT | O_RDWR | O_TRUNC, 0600);
		CHECK(fd >= 0);
		struct stat about;
		CHECK_EQ(fchown(fd, 3, 104), 0);
		CHECK_EQ(fstat(fd, &about), 0);
		CHECK(about.st_uid == 3 && about.st_gid == 104);
		CHECK_ERRNO(fchown(fd, 50, -1), EINVAL);
		CHECK_EQ(write(up[1], "y", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		/* A file of somebody who has no number here is not for this root. */
		CHECK_EQ(fstat(fd, &about), 0);
		CHECK_EQ(about.st_uid, NOBODY);
		CHECK_ERRNO(fchmod(fd, 0644), EPERM);
		CHECK_ERRNO(fchown(fd, 3, -1), EPERM);
		CHECK_ERRNO(open("/tmp/owned", O_RDONLY), EACCES);
		/* As somebody else of it, without capabilities. */
		CHECK_EQ(setresgid(105, 105, 105), 0);
		CHECK_EQ(setresuid(4, 4, 4), 0);
		CHECK_EQ(getuid(), 4);
		CHECK_ERRNO(setuid(0), EPERM);
		CHECK_ERRNO(unshare(CLONE_NEWUTS), EPERM);
		CHECK_EQ(write(up[1], "z", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		_exit(0);
	}
	char byte, path[64];
	struct stat about;
	CHECK_EQ(read(up[0], &byte, 1), 1);
	snprintf(path, sizeof path, "/proc/%d/uid_map", child);
	CHECK_EQ(write_file(path, "0 0 1\n1 2001 9\n100 3000 10\n"), 0);
	char text[256];
	read_whole(path, text, sizeof text);
	CHECK_EQ(strcmp(text, "         0          0          1\n         1       2001          9\n       100       3000         10\n"), 0);
	snprintf(path, sizeof path, "/proc/%d/gid_map", child);
	CHECK_EQ(write_file(path, "0 0 10\n100 3000 10\n"), 0);
	CHECK_EQ(write(down[1], "x", 1), 1);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	CHECK_EQ(stat("/tmp/owned", &about), 0);
	CHECK_EQ(about.st_uid, 2003);
	CHECK_EQ(about.st_gid, 3004);
	CHECK_EQ(chown("/tmp/owned", 5000, 5000), 0);
	CHECK_EQ(write(down[1], "x", 1), 1);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	snprintf(path, sizeof path, "/proc/%d", child);
	CHECK_EQ(kill(child, 0), 0);
	CHECK_EQ(write(down[1], "x", 1), 1);
	expect_exit(child, 0);
	CHECK_EQ(unlink("/tmp/owned"), 0);
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
	say("ranges: users and groups of their own");
}

static void powers(void)
{
	IN_CHILD(0, {
		struct utsname names;
		become(1000);
		CHECK_ERRNO(unshare(CLONE_NEWUTS), EPERM);
		/* With one of users, all others may be had. */
		CHECK_EQ(unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID), 0);
		CHECK_EQ(sethostname("inside", 6), 0);
		CHECK_EQ(uname(&names), 0);
		CHECK_EQ(strcmp(names.nodename, "inside"), 0);
		CHECK_EQ(mount("none", "/tmp", "tmpfs", 0, NULL), 0);
		CHECK_EQ(umount("/tmp"), 0);
		/* What belongs to the machine stays so. */
		CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0), EPERM);
		CHECK_ERRNO(prctl(PR_SET_MM, 1, 0, 0, 0), EPERM);
		IN_CHILD(0, {
			CHECK_EQ(getpid(), 1);
			CHECK_EQ(prctl(PR_CAPBSET_DROP, 5, 0, 0, 0), 0);
		});
	});
	IN_CHILD(0, {
		become(1000);
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		/* The names are still the machine's. */
		CHECK_ERRNO(sethostname("machine", 7), EPERM);
		CHECK_ERRNO(mount("none", "/tmp", "tmpfs", 0, NULL), EPERM);
		int fd = open("/proc/self/ns/uts", O_RDONLY);
		CHECK(fd >= 0);
		CHECK_ERRNO(setns(fd, CLONE_NEWUTS), EPERM);
		CHECK_ERRNO(kill(1, 0), EPERM);
		CHECK_EQ(unshare(CLONE_NEWUTS), 0);
		CHECK_EQ(sethostname("own", 3), 0);
	});
	/* One's own maker is all-powerful there. */
	IN_CHILD(0, {
		int up[2], down[2];
		char byte;
		CHECK_EQ(pipe(up), 0);
		CHECK_EQ(pipe(down), 0);
		become(1000);
		pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0);
		CHECK(child >= 0);
		if (child == 0) {
			CHECK_EQ(sethostname("below", 5), 0);
			CHECK_EQ(write(up[1], "x", 1), 1);
			CHECK_EQ(read(down[0], &byte, 1), 1);
			_exit(0);
		}
		CHECK_EQ(read(up[0], &byte, 1), 1);
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/ns/user", child);
		int user = open(path, O_RDONLY);
		snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
		int uts = open(path, O_RDONLY);
		CHECK(user >= 0 && uts >= 0);
		/* The other needs a capability in one's own as well. */
		CHECK_ERRNO(setns(uts, CLONE_NEWUTS), EPERM);
		CHECK_EQ(setns(user, CLONE_NEWUSER), 0);
		CHECK_ERRNO(setns(user, CLONE_NEWUSER), EINVAL);
		CHECK_EQ(setns(uts, CLONE_NEWUTS), 0);
		struct utsname names;
		CHECK_EQ(uname(&names), 0);
		CHECK_EQ(strcmp(names.nodename, "below"), 0);
		CHECK_EQ(write(down[1], "x", 1), 1);
		expect_exit(child, 0);
	});
	say("powers: over what belongs to it");
}

static void files(void)
{
	IN_CHILD(0, {
		become(1000);
		int first = open("/proc/self/ns/user", O_RDONLY);
		CHECK(first >= 0);
		CHECK_EQ(ioctl(first, NS_GET_NSTYPE), CLONE_NEWUSER);
		CHECK_EQ(unshare(CLONE_NEWUSER | CLONE_NEWUTS), 0);
		CHECK_EQ(write_file("/proc/self/uid_map", "3 1000 1"), 0);
		int own = open("/proc/self/ns/user", O_RDONLY);
		int uts = open("/proc/self/ns/uts", O_RDONLY);
		int ipc = open("/proc/self/ns/ipc", O_RDONLY);
		CHECK(own >= 0 && uts >= 0 && ipc >= 0);
		uid_t uid = 0;
		CHECK_EQ(ioctl(own, NS_GET_OWNER_UID, &uid), 0);
		CHECK_EQ(uid, 3);
		CHECK_ERRNO(ioctl(uts, NS_GET_OWNER_UID, &uid), EINVAL);
		int owner = ioctl(uts, NS_GET_USERNS);
		CHECK(owner >= 0);
		check_same_file(owner, own);
		/* What is above is not seen. */
		CHECK_ERRNO(ioctl(own, NS_GET_PARENT), EPERM);
		CHECK_ERRNO(ioctl(ipc, NS_GET_USERNS), EPERM);
		CHECK_ERRNO(setns(first, CLONE_NEWUSER), EPERM);
	});
	say("files: whose a namespace is");
}

static void *waits(void *argument)
{
	pause();
	return argument;
}

static void refused(void)
{
	char *stack = (char *)map_pages(1, PROT_READ | PROT_WRITE) + PAGE;
	unsigned long thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
	CHECK_ERRNO(syscall(SYS_clone, thread | CLONE_NEWUSER, stack, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_FS | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0), EINVAL);
	IN_CHILD(0, {
		pthread_t other;
		CHECK_EQ(pthread_create(&other, NULL, waits, NULL), 0);
		CHECK_ERRNO(unshare(CLONE_NEWUSER), EINVAL);
	});
	/* Thirty-two deep. */
	IN_CHILD(0, {
		int depth = 0;
		while (unshare(CLONE_NEWUSER) == 0) {
			CHECK_EQ(write_file("/proc/self/uid_map", "0 0 1"), 0);
			CHECK_EQ(write_file("/proc/self/setgroups", "deny"), depth ? 0 : 0);
			CHECK_EQ(write_file("/proc/self/gid_map", "0 0 1"), 0);
			depth++;
		}
		CHECK_EQ(errno, ENOSPC);
		_exit(depth > 20 && depth <= 33 ? 0 : 1);
	});
	say("refused: threads, shared directories, too deep");
}

static void told(void)
{
	/* Who one is, to others and of others. */
	int pair[2];
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	IN_CHILD(0, {
		become(1000);
		CHECK_EQ(unshare(CLONE_NEWUSER), 0);
		CHECK_EQ(write_file("/proc/self/uid_map", "4 1000 1"), 0);
		struct ucred record;
		socklen_t length = sizeof record;
		CHECK_EQ(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &record, &length), 0);
		CHECK_EQ(record.uid, NOBODY);
		int own[2];
		CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, own), 0);
		CHECK_EQ(getsockopt(own[0], SOL_SOCKET, SO_PEERCRED, &record, &length), 0);
		CHECK_EQ(record.uid, 4);
		siginfo_t info;
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED), 0);
		CHECK_EQ(info.si_uid, 4);
		/* A program keeps what root of the namespace has; somebody else of it has nothing. */
		child = fork();
		if (child == 0) {
			char line[128];
			execl("/proc/self/exe", "user_namespaces", "again", NULL);
			(void)line;
			_exit(9);
		}
		expect_exit(child, 5);
	});
	close(pair[0]);
	close(pair[1]);
	say("told: by the reader's numbers");
}

int main(int count, char **arguments)
{
	(void)arguments;
	if (count > 1) {
		char line[128];
		line_of("\nCapEff:", line);
		return strcmp(line, "CapEff:\t0000000000000000") == 0 && getuid() == 4 ? 5 : 6;
	}
	unmapped();
	mapped();
	ranges();
	powers();
	files();
	refused();
	told();
	return 0;
}
