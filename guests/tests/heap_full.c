/* A kernel with no memory left for itself: what is read of /proc then fails with ENOMEM, and is there when memory is.
 *
 * Memory is used up only in a small machine of its own, which the test knows by /.foldspace; elsewhere it prints what it would have printed. */
#include "check.h"

#include <sys/resource.h>

/* Files that keep a piece of text each, and how much is read of each. */
#define FILES 6000
#define PIECE 3000
#define AREAS 200
/* Pages of a machine that is small enough. */
#define SMALL (320 * MIB / PAGE)

static char text[1 << 16];
static int files[FILES];

/* Files leave programs and the kernel something, which the texts are then made of. */
static int fill(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	CHECK(fd >= 0);
	for (size_t piece = sizeof text; piece >= PAGE;) {
		if (write(fd, text, piece) <= 0) {
			CHECK_EQ(errno, ENOSPC);
			piece /= 2;
		}
	}
	return fd;
}

/* Begins to read the same text again and again; returns how often that went well before it did not. */
static int begin(void)
{
	for (int count = 0; count < FILES; count++) {
		files[count] = open("/proc/self/maps", O_RDONLY);
		if (files[count] < 0)
			CHECK_EQ(errno, ENOMEM);
		ssize_t got = files[count] < 0 ? -1 : read(files[count], text, PIECE);
		if (got < 0) {
			CHECK_EQ(errno, ENOMEM);
			if (files[count] >= 0)
				close(files[count]);
			return count;
		}
		CHECK_EQ(got, PIECE);
	}
	return FILES;
}

/* Each of these succeeds or says that there is no memory. */
static void read_others(void)
{
	static const char *const names[] = { "maps", "smaps", "smaps_rollup", "status", "stat", "mounts", "mountinfo", "environ" };
	static const char *const system[] = { "/proc/meminfo", "/proc/stat", "/proc/frames", "/proc/self/fd", "/proc" };
	char path[40];
	for (size_t index = 0; index < sizeof names / sizeof *names + sizeof system / sizeof *system; index++) {
		if (index < sizeof names / sizeof *names)
			snprintf(path, sizeof path, "/proc/self/%s", names[index]);
		else
			snprintf(path, sizeof path, "%s", system[index - sizeof names / sizeof *names]);
		int fd = open(path, O_RDONLY);
		if (fd < 0) {
			CHECK(errno == ENOMEM || errno == ENOENT);
			continue;
		}
		struct stat status;
		CHECK(fstat(fd, &status) == 0);
		long got;
		do
			got = S_ISDIR(status.st_mode) ? syscall(SYS_getdents64, fd, text, sizeof text) : read(fd, text, sizeof text);
		while (got > 0);
		if (got < 0)
			CHECK_EQ(errno, ENOMEM);
		close(fd);
	}
}

static void exhaust(void)
{
	struct rlimit limit = { FILES + 100, FILES + 100 };
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	char *areas = mmap(NULL, AREAS * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(areas != MAP_FAILED);
	for (int area = 0; area < AREAS; area += 2)
		CHECK(mprotect(areas + area * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	/* Nothing of the program itself is to want memory later. */
	memset(files, 0xff, sizeof files);
	memset(text, 'x', sizeof text);
	CHECK(mlockall(MCL_CURRENT) == 0);

	int fd = fill("/heap_full.fill");
	int count = begin();
	CHECK(count < FILES);
	read_others();
	CHECK(unlink("/heap_full.fill") == 0);
	close(fd);
	for (int file = 0; file < count; file++)
		close(files[file]);
	CHECK(munlockall() == 0);
	read_whole("/proc/self/maps", text, sizeof text);
	CHECK(strlen(text) > PIECE);
}

int main(void)
{
	if (access("/.foldspace", F_OK) == 0 && (unsigned long)sysconf(_SC_PHYS_PAGES) < SMALL)
		exhaust();
	printf("what there is no memory for says so, and is there again later\n");
	return 0;
}
