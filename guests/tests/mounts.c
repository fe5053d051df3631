/* What is mounted where: binds, moves, options, namespaces of mounts, pivot_root. All in a namespace of its own, so that nothing of it is left. */
#include "check.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define TOP "/tmp/mounts"

static void make(const char *path, const char *content)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, content, strlen(content)), (ssize_t)strlen(content));
	close(fd);
}

static void expect(const char *path, const char *content)
{
	char text[256];
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		FAIL("%s: errno %d", path, errno);
	ssize_t got = read(fd, text, sizeof text - 1);
	CHECK(got >= 0);
	text[got] = 0;
	close(fd);
	if (strcmp(text, content) != 0)
		FAIL("%s has %.100s, not %s", path, text, content);
}

static int exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void expect_cwd(const char *wanted)
{
	char path[256];
	CHECK(getcwd(path, sizeof path) == path);
	if (strcmp(path, wanted) != 0)
		FAIL("here is %.100s, not %s", path, wanted);
}

static int bind_to(const char *from, const char *to, unsigned long flags)
{
	return mount(from, to, NULL, MS_BIND | flags, NULL);
}

/* How often something is mounted there, as this process sees it, and the options of the last. */
static int mounts_at(const char *path, char *options)
{
	static char text[1 << 16];
	int count = 0;
	read_whole("/proc/self/mounts", text, sizeof text);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char where[256], kind[64], with[256];
		CHECK(sscanf(line, "%*s %255s %63s %255s", where, kind, with) == 3);
		if (strcmp(where, path) == 0) {
			count++;
			if (options)
				strcpy(options, with);
		}
	}
	return count;
}

static void binds(void)
{
	struct stat a, b;
	mkdir(TOP "/a", 0755);
	mkdir(TOP "/b", 0755);
	mkdir(TOP "/a/deep", 0755);
	make(TOP "/a/file", "one");
	make(TOP "/b/hidden", "hidden");
	make(TOP "/target", "target");
	CHECK_EQ(bind_to(TOP "/a", TOP "/b", 0), 0);
	CHECK_EQ(mounts_at(TOP "/b", NULL), 1);
	expect(TOP "/b/file", "one");
	CHECK(!exists(TOP "/b/hidden"));
	CHECK_EQ(stat(TOP "/a", &a), 0);
	CHECK_EQ(stat(TOP "/b", &b), 0);
	CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
	/* Made, changed and removed in either, seen in both. */
	make(TOP "/b/deep/new", "new");
	expect(TOP "/a/deep/new", "new");
	CHECK_EQ(rename(TOP "/a/deep/new", TOP "/a/deep/renamed"), 0);
	expect(TOP "/b/deep/renamed", "new");
	CHECK(!exists(TOP "/b/deep/new"));
	CHECK_EQ(chdir(TOP "/b/deep"), 0);
	expect_cwd(TOP "/b/deep");
	CHECK_EQ(rename(TOP "/a/deep", TOP "/a/other"), 0);
	expect_cwd(TOP "/b/other");
	CHECK_EQ(chdir(".."), 0);
	expect_cwd(TOP "/b");
	CHECK_EQ(chdir(".."), 0);
	expect_cwd(TOP);
	CHECK_EQ(unlink(TOP "/b/other/renamed"), 0);
	CHECK_EQ(rmdir(TOP "/b/other"), 0);
	CHECK(!exists(TOP "/a/other"));
	/* Names do not go from one mount to another. */
	CHECK_ERRNO(rename(TOP "/a/file", TOP "/b/file2"), EXDEV);
	CHECK_ERRNO(link(TOP "/a/file", TOP "/b/file2"), EXDEV);
	CHECK_EQ(link(TOP "/b/file", TOP "/b/file2"), 0);
	CHECK_EQ(unlink(TOP "/a/file2"), 0);
	CHECK_ERRNO(rmdir(TOP "/b"), EBUSY);
	/* A file on a file. */
	CHECK_EQ(bind_to(TOP "/a/file", TOP "/target", 0), 0);
	expect(TOP "/target", "one");
	make(TOP "/target", "two");
	expect(TOP "/b/file", "two");
	CHECK_ERRNO(unlink(TOP "/target"), EBUSY);
	CHECK_EQ(umount(TOP "/target"), 0);
	expect(TOP "/target", "target");
	/* Refused. */
	CHECK_ERRNO(bind_to(TOP "/a", TOP "/target", 0), ENOTDIR);
	CHECK_ERRNO(bind_to(TOP "/target", TOP "/a", 0), ENOTDIR);
	CHECK_ERRNO(bind_to(TOP "/nothing", TOP "/a", 0), ENOENT);
	CHECK_ERRNO(bind_to("", TOP "/a", 0), EINVAL);
	CHECK_ERRNO(umount(TOP "/a"), EINVAL);
	CHECK_EQ(umount(TOP "/b"), 0);
	expect(TOP "/b/hidden", "hidden");
	CHECK_ERRNO(umount(TOP "/b"), EINVAL);
	say("binds: one directory at two places");
}

static void recursion(void)
{
	mkdir(TOP "/a/in", 0755);
	CHECK_EQ(mount("inner", TOP "/a/in", "tmpfs", 0, NULL), 0);
	make(TOP "/a/in/x", "x");
	CHECK_EQ(bind_to(TOP "/a", TOP "/b", 0), 0);
	CHECK(!exists(TOP "/b/in/x"));
	CHECK_EQ(umount(TOP "/b"), 0);
	CHECK_EQ(bind_to(TOP "/a", TOP "/b", MS_REC), 0);
	expect(TOP "/b/in/x", "x");
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	/* What is mounted in one of them is not in the other. */
	CHECK_EQ(umount(TOP "/a/in"), 0);
	expect(TOP "/b/in/x", "x");
	CHECK_EQ(umount2(TOP "/b", MNT_DETACH), 0);
	CHECK_EQ(mounts_at(TOP "/b", NULL), 0);
	CHECK_EQ(mounts_at(TOP "/b/in", NULL), 0);
	/* Below itself, once. */
	mkdir(TOP "/a/self", 0755);
	CHECK_EQ(bind_to(TOP "/a", TOP "/a/self", MS_REC), 0);
	expect(TOP "/a/self/file", "two");
	CHECK(exists(TOP "/a/self/self"));
	CHECK(!exists(TOP "/a/self/self/file"));
	CHECK_EQ(umount(TOP "/a/self"), 0);
	say("recursion: what is mounted below comes along if that is asked for");
}

/* Who is there keeps a mount, unless it is only to be detached. */
static void busy(void)
{
	CHECK_EQ(mount("busy", TOP "/b", "tmpfs", 0, NULL), 0);
	make(TOP "/b/file", "here");
	mkdir(TOP "/b/sub", 0755);
	int fd = open(TOP "/b/file", O_RDONLY);
	CHECK(fd >= 0);
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE), EBUSY);
	char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	close(fd);
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	CHECK_EQ(munmap(at, PAGE), 0);
	fd = open(TOP "/b/sub", O_PATH | O_DIRECTORY);
	CHECK(fd >= 0);
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	close(fd);
	/* One that has no name any more as well. */
	fd = open(TOP "/b/gone", O_CREAT | O_RDWR, 0600);
	CHECK_EQ(unlink(TOP "/b/gone"), 0);
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	close(fd);
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK_EQ(chdir(TOP "/b/sub"), 0);
		CHECK_EQ(write(pipes[1], "x", 1), 1);
		pause();
	}
	char byte;
	CHECK_EQ(read(pipes[0], &byte, 1), 1);
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	kill(child, SIGKILL);
	expect_signal(child, SIGKILL);
	/* Twice, with nobody there in between. */
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE | MNT_FORCE), EINVAL);
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE | MNT_DETACH), EINVAL);
	CHECK_ERRNO(umount2("/", MNT_EXPIRE), EINVAL);
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE), EAGAIN);
	CHECK(exists(TOP "/b/file"));
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE), EAGAIN);
	CHECK_EQ(umount2(TOP "/b", MNT_EXPIRE), 0);
	CHECK_ERRNO(umount2(TOP "/b", MNT_EXPIRE), EINVAL);
	CHECK(!exists(TOP "/b/file"));
	/* Detached, it is there for who has it. */
	CHECK_EQ(mount("busy", TOP "/b", "tmpfs", 0, NULL), 0);
	make(TOP "/b/file", "kept");
	fd = open(TOP "/b/file", O_RDONLY);
	CHECK(fd >= 0);
	CHECK_EQ(umount2(TOP "/b", MNT_DETACH), 0);
	CHECK(!exists(TOP "/b/file"));
	char text[5] = "";
	CHECK_EQ(read(fd, text, 4), 4);
	CHECK_EQ(strcmp(text, "kept"), 0);
	close(fd);
	say("busy: who is there keeps it");
}

static void moves(void)
{
	CHECK_EQ(mount("moved", TOP "/a/in", "tmpfs", 0, NULL), 0);
	make(TOP "/a/in/y", "y");
	mkdir(TOP "/a/in/sub", 0755);
	CHECK_EQ(chdir(TOP "/a/in/sub"), 0);
	CHECK_ERRNO(mount(TOP "/a", TOP "/b", NULL, MS_MOVE, NULL), EINVAL);
	CHECK_ERRNO(mount(TOP "/a/in", TOP "/a/in/sub", NULL, MS_MOVE, NULL), ELOOP);
	CHECK_EQ(mount(TOP "/a/in", TOP "/b", NULL, MS_MOVE, NULL), 0);
	expect(TOP "/b/y", "y");
	CHECK(!exists(TOP "/a/in/y"));
	expect_cwd(TOP "/b/sub");
	CHECK_EQ(chdir("../.."), 0);
	expect_cwd(TOP);
	CHECK_EQ(umount(TOP "/b"), 0);
	say("moves: with whoever is there");
}

/* What is refused by options: set-id bits, devices, programs. */
static void refusing(void)
{
	char program[64];
	CHECK_EQ(mount("opt", TOP "/b", "tmpfs", 0, NULL), 0);
	snprintf(program, sizeof program, TOP "/b/program");
	int from = open("/proc/self/exe", O_RDONLY);
	int to = open(program, O_CREAT | O_WRONLY, 0755);
	CHECK(from >= 0 && to >= 0);
	static char block[1 << 16];
	ssize_t got;
	while ((got = read(from, block, sizeof block)) > 0)
		CHECK_EQ(write(to, block, (size_t)got), got);
	CHECK_EQ(fchown(to, 1234, 0), 0);
	CHECK_EQ(fchmod(to, 04755), 0);
	close(from);
	close(to);
	CHECK_EQ(mknod(TOP "/b/null", S_IFCHR | 0666, 1 << 8 | 3), 0);
	unsigned long flags[] = { 0, MS_NOSUID, MS_NODEV, MS_NOEXEC };
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(mount(NULL, TOP "/b", NULL, MS_REMOUNT | MS_BIND | flags[i], NULL), 0);
		int fd = open(TOP "/b/null", O_RDWR);
		if (flags[i] == MS_NODEV)
			CHECK(fd == -1 && errno == EACCES);
		else
			CHECK(fd >= 0);
		close(fd);
		pid_t child = fork();
		if (child == 0) {
			execl(program, "mounts", "who", NULL);
			_exit(errno);
		}
		expect_exit(child, flags[i] == MS_NOEXEC ? EACCES : flags[i] == MS_NOSUID ? 40 : 41);
	}
	CHECK_EQ(umount(TOP "/b"), 0);
	say("refusing: set-id bits, devices, programs");
}

static void options(void)
{
	char with[256];
	CHECK_EQ(mount("opt", TOP "/b", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"), 0);
	CHECK_EQ(mounts_at(TOP "/b", with), 1);
	CHECK(strncmp(with, "rw,nosuid,nodev", 15) == 0);
	make(TOP "/b/z", "z");
	CHECK_EQ(bind_to(TOP "/b", TOP "/a/in", 0), 0);
	CHECK_EQ(mount(NULL, TOP "/a/in", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
	CHECK_EQ(mounts_at(TOP "/a/in", with), 1);
	CHECK(strncmp(with, "ro", 2) == 0);
	/* Through this mount only. */
	CHECK_ERRNO(open(TOP "/a/in/z", O_WRONLY), EROFS);
	CHECK_ERRNO(open(TOP "/a/in/new", O_WRONLY | O_CREAT, 0644), EROFS);
	CHECK_ERRNO(mkdir(TOP "/a/in/new", 0755), EROFS);
	CHECK_ERRNO(unlink(TOP "/a/in/z"), EROFS);
	CHECK_ERRNO(rename(TOP "/a/in/z", TOP "/a/in/w"), EROFS);
	CHECK_ERRNO(chmod(TOP "/a/in/z", 0600), EROFS);
	CHECK_ERRNO(truncate(TOP "/a/in/z", 0), EROFS);
	CHECK_ERRNO(access(TOP "/a/in/z", W_OK), EROFS);
	CHECK_EQ(access(TOP "/a/in/z", R_OK), 0);
	make(TOP "/b/z", "written");
	expect(TOP "/a/in/z", "written");
	CHECK_EQ(mount(NULL, TOP "/a/in", NULL, MS_REMOUNT | MS_BIND | MS_NOEXEC, NULL), 0);
	make(TOP "/a/in/program", "#!/nothing\n");
	CHECK_EQ(chmod(TOP "/a/in/program", 0755), 0);
	char *arguments[] = { "program", NULL };
	CHECK_ERRNO(execv(TOP "/a/in/program", arguments), EACCES);
	CHECK_ERRNO(execv(TOP "/b/program", arguments), ENOENT);
	CHECK_ERRNO(mount(NULL, TOP "/a", NULL, MS_REMOUNT | MS_BIND, NULL), EINVAL);
	CHECK_EQ(umount(TOP "/a/in"), 0);
	CHECK_EQ(umount(TOP "/b"), 0);
	/* Propagation: one kind, of a mount. */
	CHECK_ERRNO(mount(NULL, TOP "/a", NULL, MS_PRIVATE, NULL), EINVAL);
	CHECK_ERRNO(mount(NULL, "/", NULL, MS_PRIVATE | MS_SHARED, NULL), EINVAL);
	CHECK_EQ(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL), 0);
	say("options: of the mount, not of the files");
}

static void wait_for(int fd)
{
	char byte;
	CHECK_EQ(read(fd, &byte, 1), 1);
}

static void namespaces(void)
{
	int there[2], back[2];
	struct stat before, after;
	CHECK_EQ(pipe(there), 0);
	CHECK_EQ(pipe(back), 0);
	CHECK_EQ(chdir(TOP "/a"), 0);
	CHECK_EQ(stat("/proc/self/ns/mnt", &before), 0);
	int own = open("/proc/self/ns/mnt", O_RDONLY);
	CHECK(own >= 0);
	int outside = open(TOP "/a/file", O_RDONLY);
	pid_t child = fork();
	if (child == 0) {
		CHECK_EQ(unshare(CLONE_NEWNS), 0);
		CHECK_EQ(stat("/proc/self/ns/mnt", &after), 0);
		CHECK(before.st_ino != after.st_ino);
		expect_cwd(TOP "/a");
		expect("file", "two");
		CHECK_EQ(mount("here", TOP "/b", "tmpfs", 0, NULL), 0);
		make(TOP "/b/here", "here");
		/* Files are the same. */
		make(TOP "/a/made", "made");
		CHECK_EQ(write(there[1], "x", 1), 1);
		wait_for(back[0]);
		CHECK(!exists(TOP "/a/in/outer"));
		/* Back to where it came from. */
		CHECK_EQ(setns(own, CLONE_NEWNS), 0);
		expect_cwd("/");
		CHECK(exists(TOP "/a/in/outer"));
		CHECK(!exists(TOP "/b/here"));
		_exit(0);
	}
	wait_for(there[0]);
	CHECK(!exists(TOP "/b/here"));
	CHECK_EQ(mounts_at(TOP "/b", NULL), 0);
	expect(TOP "/a/made", "made");
	CHECK_EQ(mount("outer", TOP "/a/in", "tmpfs", 0, NULL), 0);
	make(TOP "/a/in/outer", "outer");
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/root" TOP "/b/here", child);
	expect(path, "here");
	CHECK_EQ(write(back[1], "x", 1), 1);
	expect_exit(child, 0);
	CHECK_EQ(umount(TOP "/a/in"), 0);
	/* clone makes one, too; root and directory are then not shared. */
	child = (pid_t)syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		CHECK_EQ(mount("child", TOP "/b", "tmpfs", 0, NULL), 0);
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK_EQ(mounts_at(TOP "/b", NULL), 0);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_EQ(read(outside, path, 3), 3);
	close(own);
	close(outside);
	CHECK_EQ(unlink(TOP "/a/made"), 0);
	/* A namespace's file as a file: it stays as long as that. */
	int uts = open("/proc/self/ns/uts", O_RDONLY);
	CHECK_EQ(bind_to("/proc/self/ns/uts", TOP "/target", 0), 0);
	CHECK_EQ(fstat(uts, &before), 0);
	CHECK_EQ(stat(TOP "/target", &after), 0);
	CHECK(before.st_ino == after.st_ino);
	int bound = open(TOP "/target", O_RDONLY);
	CHECK_EQ(setns(bound, CLONE_NEWUTS), 0);
	close(bound);
	close(uts);
	CHECK_EQ(umount(TOP "/target"), 0);
	CHECK_EQ(chdir("/"), 0);
	say("namespaces: mounts of one's own, files of all");
}

static void pivot(void)
{
	IN_CHILD(0, {
		CHECK_EQ(unshare(CLONE_NEWNS), 0);
		/* Where the root is the first file system of all it cannot be exchanged on Linux: a root of one's own first. */
		CHECK_EQ(mount("root", TOP "/b", "tmpfs", 0, NULL), 0);
		CHECK_EQ(mkdir(TOP "/b/old", 0755), 0);
		make(TOP "/b/mark", "new root");
		CHECK_ERRNO(syscall(SYS_pivot_root, TOP "/a", TOP "/a"), EINVAL);
		CHECK_ERRNO(syscall(SYS_pivot_root, TOP "/b", TOP "/a"), EINVAL);
		CHECK_ERRNO(syscall(SYS_pivot_root, TOP "/target", TOP "/a"), ENOTDIR);
	});
	say("pivot_root: refusals");
	IN_CHILD(0, {
		char line[128];
		CHECK_EQ(unshare(CLONE_NEWNS), 0);
		CHECK_EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
		CHECK_EQ(mount("outer", TOP "/b", "tmpfs", 0, NULL), 0);
		CHECK_EQ(mkdir(TOP "/b/inner", 0755), 0);
		make(TOP "/b/mark", "outer root");
		CHECK_EQ(chdir(TOP "/b"), 0);
		CHECK_EQ(chroot("."), 0);
		CHECK_EQ(mount("inner", "/inner", "tmpfs", 0, NULL), 0);
		CHECK_EQ(mkdir("/inner/old", 0755), 0);
		CHECK_EQ(mkdir("/inner/plain", 0755), 0);
		make("/inner/mark", "inner root");
		CHECK_ERRNO(syscall(SYS_pivot_root, "/inner", "/"), EBUSY);
		CHECK_ERRNO(syscall(SYS_pivot_root, "/", "/inner/old"), EBUSY);
		CHECK_ERRNO(syscall(SYS_pivot_root, "/inner/plain", "/inner/old"), EINVAL);
		CHECK_EQ(syscall(SYS_pivot_root, "/inner", "/inner/old"), 0);
		/* Whoever had the old root, and stood there, has the new one. */
		read_whole("/mark", line, sizeof line);
		CHECK(strcmp(line, "inner root") == 0);
		read_whole("mark", line, sizeof line);
		CHECK(strcmp(line, "inner root") == 0);
		read_whole("/old/mark", line, sizeof line);
		CHECK(strcmp(line, "outer root") == 0);
		CHECK(getcwd(line, sizeof line) != NULL && strcmp(line, "/") == 0);
		CHECK_ERRNO(access("/inner", F_OK), ENOENT);
		CHECK_EQ(umount2("/old", MNT_DETACH), 0);
		CHECK_ERRNO(access("/old/mark", F_OK), ENOENT);
		CHECK_EQ(access("/mark", F_OK), 0);
	});
	say("pivot_root: from a root of one's own to another");
}

#define OPEN_TREE 428
#define MOVE_MOUNT 429
#define FSOPEN 430
#define FSCONFIG 431
#define FSMOUNT 432

static void descriptors(void)
{
	char with[256];
	CHECK_ERRNO(syscall(FSOPEN, "nosuchfs", 0), ENODEV);
	CHECK_ERRNO(syscall(FSOPEN, "tmpfs", 2), EINVAL);
	int fs = (int)syscall(FSOPEN, "tmpfs", 1);
	CHECK(fs >= 0);
	CHECK_EQ(fcntl(fs, F_GETFD), FD_CLOEXEC);
	CHECK_ERRNO(syscall(FSMOUNT, fs, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(FSCONFIG, -1, 6, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(syscall(FSCONFIG, 999, 6, NULL, NULL, 0), EBADF);
	CHECK_ERRNO(syscall(FSCONFIG, 1, 6, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(syscall(FSCONFIG, fs, 99, NULL, NULL, 0), EOPNOTSUPP);
	CHECK_ERRNO(syscall(FSCONFIG, fs, 1, "source", NULL, 0), EINVAL);
	CHECK_ERRNO(syscall(FSCONFIG, fs, 1, "nonsense", "x", 0), EINVAL);
	CHECK_EQ(syscall(FSCONFIG, fs, 1, "source", "here", 0), 0);
	CHECK_EQ(syscall(FSCONFIG, fs, 1, "size", "1M", 0), 0);
	CHECK_EQ(syscall(FSCONFIG, fs, 6, NULL, NULL, 0), 0);
	CHECK_ERRNO(syscall(FSCONFIG, fs, 6, NULL, NULL, 0), EBUSY);
	CHECK_ERRNO(syscall(FSMOUNT, fs, 0, 0x1000), EINVAL);
	int mounted = (int)syscall(FSMOUNT, fs, 1, 2 | 4);
	CHECK(mounted >= 0);
	CHECK_ERRNO(syscall(FSMOUNT, fs, 0, 0), EBUSY);
	close(fs);
	/* Nowhere yet, and usable. */
	int file = openat(mounted, "early", O_CREAT | O_WRONLY, 0644);
	CHECK_EQ(write(file, "early", 5), 5);
	close(file);
	CHECK_ERRNO(syscall(MOVE_MOUNT, mounted, "", AT_FDCWD, TOP "/target", 4), EINVAL);
	CHECK_EQ(syscall(MOVE_MOUNT, mounted, "", AT_FDCWD, TOP "/b", 4), 0);
	expect(TOP "/b/early", "early");
	CHECK_EQ(mounts_at(TOP "/b", with), 1);
	CHECK(strncmp(with, "rw,nosuid,nodev", 15) == 0);
	close(mounted);
	/* A copy of what is there, and what is there. */
	int tree = (int)syscall(OPEN_TREE, AT_FDCWD, TOP "/b", 1 | O_CLOEXEC);
	CHECK(tree >= 0);
	CHECK_EQ(umount(TOP "/b"), 0);
	CHECK_EQ(syscall(MOVE_MOUNT, tree, "", AT_FDCWD, TOP "/a/in", 4), 0);
	expect(TOP "/a/in/early", "early");
	close(tree);
	CHECK_EQ(syscall(MOVE_MOUNT, AT_FDCWD, TOP "/a/in", AT_FDCWD, TOP "/b", 0), 0);
	expect(TOP "/b/early", "early");
	CHECK_ERRNO(syscall(MOVE_MOUNT, AT_FDCWD, TOP "/a", AT_FDCWD, TOP "/b", 0), EINVAL);
	CHECK_ERRNO(syscall(MOVE_MOUNT, AT_FDCWD, TOP "/b", AT_FDCWD, TOP "/a", 0x10000), EINVAL);
	tree = (int)syscall(OPEN_TREE, AT_FDCWD, TOP "/b", 0);
	CHECK(tree >= 0);
	CHECK(fcntl(tree, F_GETFL) & O_PATH);
	CHECK_EQ(faccessat(tree, "early", R_OK, 0), 0);
	close(tree);
	CHECK_ERRNO(syscall(OPEN_TREE, AT_FDCWD, TOP "/b", 0x8000), EINVAL);
	CHECK_ERRNO(syscall(OPEN_TREE, AT_FDCWD, TOP "/b", 2), EINVAL);
	CHECK_EQ(umount(TOP "/b"), 0);
	/* Never attached: gone with its descriptor. */
	tree = (int)syscall(OPEN_TREE, AT_FDCWD, TOP "/a", 1 | 0x8000);
	CHECK(tree >= 0);
	file = openat(tree, "file", O_RDONLY);
	CHECK(file >= 0);
	close(tree);
	CHECK_EQ(read(file, with, 3), 3);
	close(file);
	say("descriptors: made, copied, attached");
}

static void permissions(void)
{
	IN_CHILD(0, {
		CHECK_EQ(setresuid(1000, 1000, 1000), 0);
		CHECK_ERRNO(mount("x", TOP "/b", "tmpfs", 0, NULL), EPERM);
		CHECK_ERRNO(bind_to(TOP "/a", TOP "/b", 0), EPERM);
		CHECK_ERRNO(umount("/proc"), EPERM);
		CHECK_ERRNO(unshare(CLONE_NEWNS), EPERM);
		CHECK_ERRNO(unshare(CLONE_NEWCGROUP), EPERM);
		CHECK_ERRNO(syscall(SYS_pivot_root, "/", "/"), EPERM);
		CHECK_ERRNO(syscall(FSOPEN, "tmpfs", 0), EPERM);
		CHECK_ERRNO(syscall(OPEN_TREE, AT_FDCWD, TOP "/a", 1), EPERM);
	});
	CHECK_ERRNO(mount("x", TOP "/b", "nosuchfs", 0, NULL), ENODEV);
	CHECK_ERRNO(mount("x", TOP "/target", "tmpfs", 0, NULL), ENOTDIR);
	CHECK_ERRNO(mount("x", TOP "/b", NULL, 0, NULL), EINVAL);
	CHECK_ERRNO(mount("x", NULL, "tmpfs", 0, NULL), EFAULT);
	CHECK_EQ(unshare(CLONE_NEWCGROUP), 0);
	say("permissions: for those who may");
}

int main(int count, char **arguments)
{
	/* By itself again: whose program it is. */
	if (count > 1)
		return arguments[1][0] == 'w' && geteuid() == 1234 ? 41 : 40;
	/* Nothing of this is seen elsewhere, nor left when it ends. */
	CHECK_EQ(unshare(CLONE_NEWNS), 0);
	CHECK_EQ(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL), 0);
	mkdir("/tmp", 01777);
	mkdir(TOP, 0755);
	CHECK_EQ(mount("top", TOP, "tmpfs", 0, NULL), 0);
	binds();
	recursion();
	busy();
	moves();
	refusing();
	options();
	namespaces();
	pivot();
	descriptors();
	permissions();
	CHECK_EQ(umount2(TOP, MNT_DETACH), 0);
	CHECK_EQ(rmdir(TOP), 0);
	return 0;
}
