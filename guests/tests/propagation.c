/* Mounts that do the same: peer groups, slaves, private and unbindable ones, within a namespace and between two. */
#include "check.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define TOP "/tmp/propagation"

/* The groups that /proc/self/mountinfo shows for what is mounted last at `path`; whether there is anything. */
static int fields(const char *path, int *shared, int *master, int *unbindable)
{
	static char text[1 << 16];
	int found = 0;
	read_whole("/proc/self/mountinfo", text, sizeof text);
	*shared = *master = *unbindable = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char where[256];
		CHECK_EQ(sscanf(line, "%*s %*s %*s %*s %255s", where), 1);
		if (strcmp(where, path) != 0)
			continue;
		found++;
		char *at;
		*shared = (at = strstr(line, " shared:")) ? atoi(at + 8) : 0;
		*master = (at = strstr(line, " master:")) ? atoi(at + 8) : 0;
		*unbindable = strstr(line, " unbindable") != NULL;
	}
	return found;
}

static int shared(const char *path)
{
	int one, other, third;
	CHECK(fields(path, &one, &other, &third) > 0);
	return one;
}

static int master(const char *path)
{
	int one, other, third;
	CHECK(fields(path, &one, &other, &third) > 0);
	return other;
}

static int there(const char *path)
{
	int one, other, third;
	return fields(path, &one, &other, &third);
}

static void fs(const char *path)
{
	CHECK_EQ(mount("none", path, "tmpfs", 0, NULL), 0);
}

static void manner(const char *path, unsigned long what)
{
	CHECK_EQ(mount(NULL, path, NULL, what, NULL), 0);
}

static void bind_to(const char *from, const char *to, unsigned long flags)
{
	CHECK_EQ(mount(from, to, NULL, MS_BIND | flags, NULL), 0);
}

static void directories(void)
{
	mkdir(TOP "/a/x", 0755);
	mkdir(TOP "/a/y", 0755);
	mkdir(TOP "/a/y/deep", 0755);
}

static void peers(void)
{
	fs(TOP "/a");
	directories();
	CHECK_EQ(shared(TOP "/a"), 0);
	manner(TOP "/a", MS_SHARED);
	CHECK(shared(TOP "/a") > 0);
	bind_to(TOP "/a", TOP "/b", 0);
	CHECK_EQ(shared(TOP "/b"), shared(TOP "/a"));
	/* On the one, and so on the other. */
	fs(TOP "/a/x");
	CHECK_EQ(there(TOP "/b/x"), 1);
	CHECK(shared(TOP "/b/x") > 0);
	CHECK_EQ(shared(TOP "/b/x"), shared(TOP "/a/x"));
	CHECK_EQ(mkdir(TOP "/a/x/made", 0755), 0);
	struct stat about;
	CHECK_EQ(stat(TOP "/b/x/made", &about), 0);
	/* And further on. */
	fs(TOP "/b/x/made");
	CHECK_EQ(there(TOP "/a/x/made"), 1);
	CHECK_EQ(umount(TOP "/a/x/made"), 0);
	CHECK_EQ(there(TOP "/b/x/made"), 0);
	CHECK_EQ(umount(TOP "/b/x"), 0);
	CHECK_EQ(there(TOP "/a/x"), 0);
	/* A part of it is of the group too, as far as it goes. */
	bind_to(TOP "/a/y", TOP "/c", 0);
	fs(TOP "/a/y/deep");
	CHECK_EQ(there(TOP "/b/y/deep"), 1);
	CHECK_EQ(there(TOP "/c/deep"), 1);
	fs(TOP "/a/x");
	CHECK_EQ(there(TOP "/c/x"), 0);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	CHECK_EQ(umount(TOP "/c/deep"), 0);
	CHECK_EQ(there(TOP "/a/y/deep"), 0);
	/* Nothing moves out of it. */
	fs(TOP "/a/x");
	CHECK_ERRNO(mount(TOP "/a/x", TOP "/d", NULL, MS_MOVE, NULL), EINVAL);
	CHECK_EQ(umount(TOP "/b/x"), 0);
	fs(TOP "/d");
	CHECK_EQ(mount(TOP "/d", TOP "/a/x", NULL, MS_MOVE, NULL), 0);
	CHECK_EQ(there(TOP "/b/x"), 1);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	CHECK_EQ(umount(TOP "/c"), 0);
	say("peers: what is mounted on one is on all");
}

static void slaves(void)
{
	int group = shared(TOP "/a");
	manner(TOP "/b", MS_SLAVE);
	CHECK_EQ(shared(TOP "/b"), 0);
	CHECK_EQ(master(TOP "/b"), group);
	fs(TOP "/a/x");
	CHECK_EQ(there(TOP "/b/x"), 1);
	CHECK_EQ(shared(TOP "/b/x"), 0);
	CHECK_EQ(master(TOP "/b/x"), shared(TOP "/a/x"));
	fs(TOP "/b/y");
	CHECK_EQ(there(TOP "/a/y"), 0);
	CHECK_EQ(umount(TOP "/b/y"), 0);
	CHECK_EQ(umount(TOP "/b/x"), 0);
	CHECK_EQ(there(TOP "/a/x"), 1);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	/* A slave may have peers of its own. */
	manner(TOP "/b", MS_SHARED);
	CHECK_EQ(master(TOP "/b"), group);
	CHECK(shared(TOP "/b") > 0 && shared(TOP "/b") != group);
	bind_to(TOP "/b", TOP "/c", 0);
	CHECK_EQ(shared(TOP "/c"), shared(TOP "/b"));
	CHECK_EQ(master(TOP "/c"), group);
	fs(TOP "/a/x");
	CHECK_EQ(there(TOP "/b/x"), 1);
	CHECK_EQ(there(TOP "/c/x"), 1);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	CHECK_EQ(there(TOP "/c/x"), 0);
	fs(TOP "/c/x");
	CHECK_EQ(there(TOP "/b/x"), 1);
	CHECK_EQ(there(TOP "/a/x"), 0);
	CHECK_EQ(umount(TOP "/b/x"), 0);
	CHECK_EQ(umount(TOP "/c"), 0);
	/* Alone again, it is a slave only; and private, nothing. */
	manner(TOP "/b", MS_SLAVE);
	CHECK_EQ(shared(TOP "/b"), 0);
	CHECK_EQ(master(TOP "/b"), group);
	manner(TOP "/b", MS_PRIVATE);
	CHECK_EQ(master(TOP "/b"), 0);
	fs(TOP "/a/x");
	CHECK_EQ(there(TOP "/b/x"), 0);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	/* Whoever is alone in its group has no master to become the slave of. */
	manner(TOP "/a", MS_SLAVE);
	CHECK_EQ(shared(TOP "/a"), 0);
	CHECK_EQ(master(TOP "/a"), 0);
	CHECK_EQ(umount(TOP "/b"), 0);
	say("slaves: get, and do not give");
}

static void unbindable(void)
{
	int one, other, marked;
	manner(TOP "/a", MS_UNBINDABLE);
	CHECK_EQ(fields(TOP "/a", &one, &other, &marked), 1);
	CHECK(one == 0 && other == 0 && marked);
	CHECK_ERRNO(mount(TOP "/a", TOP "/b", NULL, MS_BIND, NULL), EINVAL);
	manner(TOP "/a", MS_PRIVATE);
	fs(TOP "/a/x");
	manner(TOP "/a/x", MS_UNBINDABLE);
	bind_to(TOP "/a", TOP "/b", MS_REC);
	CHECK_EQ(there(TOP "/b/x"), 0);
	CHECK_EQ(umount(TOP "/b"), 0);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	say("unbindable: is left out");
}

static void recursive(void)
{
	fs(TOP "/a/x");
	manner(TOP "/a", MS_SHARED | MS_REC);
	CHECK(shared(TOP "/a") > 0);
	CHECK(shared(TOP "/a/x") > 0);
	CHECK(shared(TOP "/a") != shared(TOP "/a/x"));
	bind_to(TOP "/a", TOP "/b", MS_REC);
	CHECK_EQ(shared(TOP "/b/x"), shared(TOP "/a/x"));
	/* With something on it, it goes only all together. */
	CHECK_ERRNO(umount(TOP "/b"), EBUSY);
	CHECK_EQ(umount2(TOP "/b", MNT_DETACH), 0);
	/* What was on it has gone from its peer, too. */
	CHECK_EQ(there(TOP "/a/x"), 0);
	CHECK_EQ(there(TOP "/a"), 1);
	CHECK_ERRNO(mount(NULL, TOP "/a/y", NULL, MS_SHARED, NULL), EINVAL);
	CHECK_ERRNO(mount(NULL, TOP "/a", NULL, MS_SHARED | MS_SLAVE, NULL), EINVAL);
	CHECK_ERRNO(mount(NULL, TOP "/a", NULL, MS_SHARED | MS_NODEV, NULL), EINVAL);
	say("recursive: all that is below");
}

static void namespaces(void)
{
	int up[2], down[2];
	char byte;
	CHECK_EQ(pipe(up), 0);
	CHECK_EQ(pipe(down), 0);
	manner(TOP "/a", MS_SHARED);
	pid_t child = fork();
	if (child == 0) {
		CHECK_EQ(unshare(CLONE_NEWNS), 0);
		CHECK(shared(TOP "/a") > 0);
		CHECK_EQ(write(up[1], "x", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		/* What was mounted over there. */
		CHECK_EQ(there(TOP "/a/x"), 1);
		fs(TOP "/a/y");
		CHECK_EQ(write(up[1], "x", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		CHECK_EQ(there(TOP "/a/x"), 0);
		manner(TOP "/a", MS_SLAVE);
		fs(TOP "/a/x");
		CHECK_EQ(write(up[1], "x", 1), 1);
		CHECK_EQ(read(down[0], &byte, 1), 1);
		_exit(0);
	}
	CHECK_EQ(read(up[0], &byte, 1), 1);
	fs(TOP "/a/x");
	CHECK_EQ(write(down[1], "x", 1), 1);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	CHECK_EQ(there(TOP "/a/y"), 1);
	CHECK_EQ(umount(TOP "/a/x"), 0);
	CHECK_EQ(write(down[1], "x", 1), 1);
	CHECK_EQ(read(up[0], &byte, 1), 1);
	CHECK_EQ(there(TOP "/a/x"), 0);
	CHECK_EQ(write(down[1], "x", 1), 1);
	expect_exit(child, 0);
	CHECK_EQ(umount(TOP "/a/y"), 0);
	/* One of other users only gets. */
	child = fork();
	if (child == 0) {
		CHECK_EQ(unshare(CLONE_NEWUSER | CLONE_NEWNS), 0);
		CHECK_EQ(shared(TOP "/a"), 0);
		CHECK(master(TOP "/a") > 0);
		_exit(0);
	}
	expect_exit(child, 0);
	say("namespaces: groups reach across");
}

int main(void)
{
	CHECK_EQ(unshare(CLONE_NEWNS), 0);
	manner("/", MS_REC | MS_PRIVATE);
	mkdir("/tmp", 0777);
	mkdir(TOP, 0755);
	CHECK_EQ(mount("top", TOP, "tmpfs", 0, NULL), 0);
	for (const char *name = "abcd"; *name; name++) {
		char path[64];
		snprintf(path, sizeof path, TOP "/%c", *name);
		CHECK_EQ(mkdir(path, 0755), 0);
	}
	peers();
	slaves();
	unbindable();
	recursive();
	namespaces();
	CHECK_EQ(umount2(TOP, MNT_DETACH), 0);
	rmdir(TOP);
	return 0;
}
