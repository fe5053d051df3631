/* Directories, names and links. Works in a directory of its own. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

static void make(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, path, strlen(path)), strlen(path));
	CHECK(close(fd) == 0);
}

static int is(const char *path, const char *content)
{
	char buffer[300];
	read_whole(path, buffer, sizeof buffer);
	return strcmp(buffer, content) == 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, in order, with the type as ls -F shows it. */
static void list(const char *path)
{
	static char names[600][64];
	static char *order[600];
	size_t count = 0;
	DIR *directory = opendir(path);
	CHECK(directory != NULL);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL; count++) {
		CHECK(count < 600 && entry->d_ino != 0);
		snprintf(names[count], 64, "%.60s%s", entry->d_name,
			 entry->d_type == DT_DIR ? "/" : entry->d_type == DT_LNK ? "@" : "");
		order[count] = names[count];
	}
	CHECK(closedir(directory) == 0);
	qsort(order, count, sizeof *order, by_name);
	char line[400] = "";
	for (size_t i = 0; i < count && strlen(line) < 300; i++)
		strcat(strcat(line, " "), order[i]);
	say("%s: %zu:%s", path, count, line);
}

static void making(void)
{
	struct stat status;
	CHECK(mkdir("d", 0755) == 0);
	CHECK_ERRNO(mkdir("d", 0755), EEXIST);
	CHECK_ERRNO(mkdir("no/d", 0755), ENOENT);
	make("d/f");
	CHECK_ERRNO(mkdir("d/f/x", 0755), ENOTDIR);
	CHECK_ERRNO(rmdir("d"), ENOTEMPTY);
	CHECK_ERRNO(rmdir("d/f"), ENOTDIR);
	CHECK_ERRNO(unlink("d"), EISDIR);
	CHECK_ERRNO(rmdir("none"), ENOENT);
	CHECK_ERRNO(rmdir("."), EINVAL);
	CHECK(mkdir("d/e", 0700) == 0 && stat("d", &status) == 0);
	CHECK(S_ISDIR(status.st_mode));
	CHECK(mkdir("d/e/with/", 0700) == 0); /* a slash at the end is allowed */
	list("d");
	list("d/e");
	CHECK(rmdir("d/e/with") == 0 && rmdir("d/e") == 0 && unlink("d/f") == 0 && rmdir("d") == 0);
	say("making and removing");
}

static void many(void)
{
	char path[40];
	CHECK(mkdir("m", 0755) == 0);
	for (int i = 0; i < 500; i++) {
		snprintf(path, sizeof path, "m/entry-%03d", i);
		make(path);
	}
	list("m");
	/* Removing while reading: each name is seen once, and in the end nothing is left. */
	DIR *directory = opendir("m");
	int seen = 0;
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		if (entry->d_name[0] == '.')
			continue;
		CHECK(unlinkat(dirfd(directory), entry->d_name, 0) == 0);
		seen++;
	}
	CHECK(closedir(directory) == 0);
	CHECK(rmdir("m") == 0);
	say("%d removed while reading", seen);
}

static void renaming(void)
{
	make("a"), make("b");
	CHECK(mkdir("d", 0755) == 0 && mkdir("e", 0755) == 0 && mkdir("d/sub", 0755) == 0);
	CHECK(rename("a", "c") == 0);
	CHECK_ERRNO(access("a", F_OK), ENOENT);
	CHECK(is("c", "a"));
	CHECK(rename("c", "b") == 0); /* over a file */
	CHECK(is("b", "a"));
	CHECK(rename("b", "d/b") == 0);
	CHECK_ERRNO(rename("none", "x"), ENOENT);
	CHECK_ERRNO(rename("d/b", "e"), EISDIR);
	CHECK_ERRNO(rename("e", "d/b"), ENOTDIR);
	CHECK_ERRNO(rename("d", "d/sub/d"), EINVAL);
	CHECK_ERRNO(rename("e", "d"), ENOTEMPTY);
	CHECK(rename("d/b", "d/b") == 0);
	CHECK(rename("d", "e") == 0); /* over an empty directory */
	CHECK(is("e/b", "a"));
	CHECK(rename("e/sub", "sub") == 0);
	list("e");
	list(".");
	CHECK(unlink("e/b") == 0 && rmdir("e") == 0 && rmdir("sub") == 0);
	say("renaming");
}

static void working_directory(void)
{
	char start[200], here[300], expected[300], small[4];
	CHECK(getcwd(start, sizeof start) != NULL);
	CHECK(mkdir("w", 0755) == 0 && mkdir("w/x", 0755) == 0);
	CHECK(chdir("w/x") == 0 && getcwd(here, sizeof here) != NULL);
	snprintf(expected, sizeof expected, "%s/w/x", start);
	CHECK(strcmp(here, expected) == 0);
	CHECK(syscall(SYS_getcwd, here, sizeof here) == (long)strlen(here) + 1);
	CHECK_ERRNO(syscall(SYS_getcwd, small, sizeof small), ERANGE);
	CHECK(chdir("../.") == 0 && access("x", F_OK) == 0);
	CHECK(chdir("..") == 0 && getcwd(here, sizeof here) != NULL && strcmp(here, start) == 0);
	int fd = open("w", O_RDONLY | O_DIRECTORY);
	CHECK(fchdir(fd) == 0 && access("x", F_OK) == 0 && fchdir(fd) == 0);
	CHECK(chdir(start) == 0);
	make("w/f");
	int below = openat(fd, "f", O_RDONLY);
	CHECK(below >= 0 && close(below) == 0);
	CHECK_ERRNO(openat(fd, "none", O_RDONLY), ENOENT);
	CHECK_ERRNO(openat(999, "f", O_RDONLY), EBADF);
	CHECK(mkdirat(fd, "y", 0700) == 0);
	CHECK(unlinkat(fd, "y", AT_REMOVEDIR) == 0);
	CHECK(renameat(fd, "f", AT_FDCWD, "f") == 0);
	CHECK(faccessat(fd, "../f", F_OK, 0) == 0);
	CHECK_ERRNO(chdir("f"), ENOTDIR);
	CHECK_ERRNO(chdir("none"), ENOENT);
	CHECK(close(fd) == 0);
	IN_CHILD(0, CHECK(chdir("w/x") == 0)); /* its own */
	CHECK(getcwd(here, sizeof here) != NULL && strcmp(here, start) == 0);
	CHECK(unlink("f") == 0 && rmdir("w/x") == 0 && rmdir("w") == 0);
	CHECK(access("/..", F_OK) == 0 && access("//tmp//../tmp/.", F_OK) == 0);
	say("working directory");
}

static void links(void)
{
	char target[100];
	struct stat status;
	make("f");
	CHECK(mkdir("d", 0755) == 0);
	make("d/inner");
	CHECK(symlink("f", "l") == 0 && symlink("d", "ld") == 0 && symlink("nowhere", "dangling") == 0);
	CHECK(symlink("loop2", "loop1") == 0 && symlink("loop1", "loop2") == 0);
	CHECK_ERRNO(symlink("x", "l"), EEXIST);
	CHECK_ERRNO(symlink("", "empty"), ENOENT);
	CHECK(is("l", "f") && is("ld/inner", "d/inner") && is("ld/../f", "f"));
	CHECK_EQ(readlink("l", target, sizeof target), 1);
	CHECK_EQ(readlink("dangling", target, 3), 3); /* cut off */
	CHECK_ERRNO(readlink("f", target, sizeof target), EINVAL);
	CHECK(lstat("l", &status) == 0 && S_ISLNK(status.st_mode));
	CHECK_EQ(status.st_size, 1);
	CHECK(stat("l", &status) == 0 && S_ISREG(status.st_mode));
	CHECK_ERRNO(stat("dangling", &status), ENOENT);
	CHECK_ERRNO(stat("loop1", &status), ELOOP);
	CHECK_ERRNO(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
	CHECK_ERRNO(open("dangling", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
	make("nowhere2");
	CHECK(rename("nowhere2", "nowhere") == 0 && is("dangling", "nowhere2"));
	list(".");
	CHECK(unlink("ld") == 0 && access("d/inner", F_OK) == 0); /* the link goes, not its target */
	CHECK(rename("l", "l2") == 0 && lstat("l2", &status) == 0 && S_ISLNK(status.st_mode));
	char deep[64] = "f";
	for (int i = 0; i < 30; i++) {
		char next[64];
		snprintf(next, sizeof next, "chain-%d", i);
		CHECK(symlink(deep, next) == 0);
		strcpy(deep, next);
	}
	CHECK(is("chain-29", "f"));
	for (int i = 0; i < 30; i++) {
		snprintf(deep, sizeof deep, "chain-%d", i);
		CHECK(unlink(deep) == 0);
	}
	CHECK(link("f", "hard") == 0 && stat("hard", &status) == 0);
	CHECK_EQ(status.st_nlink, 2);
	CHECK_ERRNO(link("d", "hard2"), EPERM);
	CHECK(unlink("f") == 0 && is("hard", "f"));
	static const char *rest[] = { "hard", "l2", "dangling", "nowhere", "loop1", "loop2", "d/inner" };
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
		CHECK(unlink(rest[i]) == 0);
	CHECK(rmdir("d") == 0);
	say("links");
}

int main(void)
{
	char directory[] = "/tmp/directories-test.XXXXXX";
	mkdir("/tmp", 01777);
	CHECK(mkdtemp(directory) != NULL && chdir(directory) == 0);
	making();
	many();
	renaming();
	working_directory();
	links();
	CHECK(chdir("/") == 0 && rmdir(directory) == 0);
	return 0;
}
