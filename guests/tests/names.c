/* Names of anonymous memory (PR_SET_VMA): which are taken, how they are shown, and where they go. Linux has them if it
 * was built with CONFIG_ANON_VMA_NAME. */
#include "areas.h"
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

/* Lengths and alignments are given as they are, mistakes included. */
static int name_bytes(const void *at, size_t size, const char *name)
{
	return (int)syscall(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, size, name);
}

static int name(const void *base, size_t page, size_t pages, const char *text)
{
	return name_bytes((const char *)base + page * PAGE, pages * PAGE, text);
}

/* Each refusal, and of two mistakes in one call the one that is told. */
static void mistakes(void)
{
	unsigned char *base = window_of(6, PAGE);
	char text[100];
	CHECK_ERRNO(syscall(SYS_prctl, PR_SET_VMA, 1, base, PAGE, "x"), EINVAL);
	CHECK_ERRNO(syscall(SYS_prctl, PR_SET_VMA, 1, base + 1, PAGE, nowhere), EINVAL);
	/* The name comes before the address. */
	CHECK_ERRNO(name_bytes(base + 1, PAGE, nowhere), EFAULT);
	CHECK_ERRNO(name_bytes(base, 0, nowhere), EFAULT);
	CHECK_ERRNO(name_bytes(base + 64 * PAGE, PAGE, nowhere), EFAULT);
	CHECK_ERRNO(name_bytes(base, 0, "a\tb"), EINVAL);
	CHECK_ERRNO(name_bytes(base + 64 * PAGE, PAGE, "a$"), EINVAL);
	for (int c = 1; c < 256; c++) {
		bool allowed = c >= 0x20 && c <= 0x7e && !strchr("\\`$[]", c);
		snprintf(text, sizeof text, "a%cb", c);
		if (allowed)
			CHECK_EQ(name(base, 0, 1, text), 0);
		else
			CHECK_ERRNO(name(base, 0, 1, text), EINVAL);
	}
	memset(text, 'n', sizeof text);
	text[80] = 0;
	CHECK_ERRNO(name(base, 0, 6, text), EINVAL);
	text[79] = 0;
	CHECK_EQ(name(base, 0, 6, text), 0);
	CHECK_EQ(name(base, 0, 6, NULL), 0);
	/* It may end where memory does, but not go on there. */
	unsigned char *edge = window_of(1, PAGE) + PAGE;
	memcpy(edge - 4, "end", 4);
	CHECK_EQ(name(base, 0, 6, (char *)edge - 4), 0);
	CHECK_AREAS(base, 6, "0+6 rw-p [anon:end]");
	edge[-1] = 'x';
	CHECK_ERRNO(name(base, 0, 6, (char *)edge - 4), EFAULT);
	CHECK_ERRNO(name_bytes(base + 1, PAGE, "x"), EINVAL);
	CHECK_ERRNO(name_bytes(base + 1, 0, "x"), EINVAL);
	CHECK_ERRNO(name_bytes(base, -1UL, "x"), EINVAL); /* rounds to nothing */
	CHECK_ERRNO(name_bytes(base, -PAGE, "x"), EINVAL); /* wraps */
	CHECK_EQ(name_bytes(base, 0, "x"), 0);
	CHECK_EQ(name_bytes((void *)PAGE, 0, "x"), 0);
	CHECK_ERRNO(name(base, 64, 1, "x"), ENOMEM);
	CHECK_ERRNO(name_bytes((void *)(1UL << 62), PAGE, "x"), ENOMEM);
	CHECK_AREAS(base, 6, "0+6 rw-p [anon:end]");
	CHECK_EQ(name_bytes(base, PAGE + 1, "x"), 0); /* two pages */
	CHECK_AREAS(base, 6, "0+2 rw-p [anon:x], 2+4 rw-p [anon:end]");
	CHECK(munmap(base, 6 * PAGE) == 0);
}

static void walking(void)
{
	unsigned char *base = window_of(12, PAGE);
	CHECK(munmap(base + 3 * PAGE, PAGE) == 0 && munmap(base + 6 * PAGE, 2 * PAGE) == 0);
	CHECK_ERRNO(name(base, 1, 8, "holes"), ENOMEM);
	CHECK_AREAS(base, 12, "0+1 rw-p, 1+2 rw-p [anon:holes], 4+2 rw-p [anon:holes], 8+1 rw-p [anon:holes], 9+3 rw-p");
	CHECK_ERRNO(name(base, 3, 3, "head"), ENOMEM);
	CHECK_ERRNO(name(base, 4, 3, "tail"), ENOMEM);
	CHECK_AREAS(base, 12, "0+1 rw-p, 1+2 rw-p [anon:holes], 4+2 rw-p [anon:tail], 8+1 rw-p [anon:holes], 9+3 rw-p");
	CHECK(munmap(base, 12 * PAGE) == 0);
	/* At a file it ends at once. */
	int fd = memory_file("between", 2), zero = open("/dev/zero", O_RDWR);
	char path[64] = "/tmp/names.XXXXXX";
	int named = mkstemp(path);
	CHECK(zero >= 0 && named >= 0 && ftruncate(named, 2 * PAGE) == 0);
	base = window_of(12, PAGE);
	CHECK(mmap(base + 4 * PAGE, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, named, 0) == base + 4 * PAGE);
	CHECK_ERRNO(name(base, 0, 12, "first"), EBADF);
	char wanted[200];
	snprintf(wanted, sizeof wanted, "0+4 rw-p [anon:first], 4+2 rw-p @0 %s, 6+6 rw-p", strrchr(path, '/') + 1);
	CHECK_AREAS(base, 12, wanted);
	CHECK(munmap(base + PAGE, PAGE) == 0);
	CHECK_ERRNO(name(base, 0, 12, "second"), EBADF);
	CHECK_ERRNO(name(base, 4, 1, NULL), EBADF);
	CHECK(munmap(base, 12 * PAGE) == 0 && unlink(path) == 0 && close(named) == 0);
	/* A private mapping of zeros is a file's still. */
	CHECK(mmap(base, PAGE, RW, MAP_PRIVATE | MAP_FIXED, zero, 0) == base);
	CHECK_ERRNO(name(base, 0, 1, "zero"), EBADF);
	CHECK(munmap(base, PAGE) == 0 && close(zero) == 0 && close(fd) == 0);
}

static void shared_memory(void)
{
	unsigned char *base = place_for(6, PAGE);
	CHECK(mmap(base, 6 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
	CHECK_AREAS(base, 6, "0+6 rw-s @0 zero (deleted)");
	CHECK_EQ(name(base, 2, 2, "shared"), 0);
	CHECK_AREAS(base, 6, "0+2 rw-s @0 zero (deleted), 2+2 rw-s @2 [anon_shmem:shared], 4+2 rw-s @4 zero (deleted)");
	CHECK_EQ(name(base, 0, 6, "shared"), 0);
	CHECK_AREAS(base, 6, "0+6 rw-s @0 [anon_shmem:shared]");
	base[0] = 1;
	/* The name is the area's, not the memory's. */
	unsigned char *other = place_for(6, PAGE);
	CHECK(mremap(base, 0, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
	CHECK_AREAS(other, 6, "0+6 rw-s @0 [anon_shmem:shared]");
	CHECK_EQ(name(base, 0, 6, NULL), 0);
	CHECK_AREAS(base, 6, "0+6 rw-s @0 zero (deleted)");
	CHECK_AREAS(other, 6, "0+6 rw-s @0 [anon_shmem:shared]");
	IN_CHILD(0, {
		CHECK_AREAS(other, 6, "0+6 rw-s @0 [anon_shmem:shared]");
		CHECK_EQ(other[0], 1);
		CHECK_EQ(name(other, 0, 6, "childs"), 0);
	});
	CHECK_AREAS(other, 6, "0+6 rw-s @0 [anon_shmem:shared]");
	CHECK(munmap(base, 6 * PAGE) == 0 && munmap(other, 6 * PAGE) == 0);
	/* So may a file be named that had no path when it was mapped: a memfd, and one that has been removed. */
	int fd = memory_file("unlinked", 4);
	base = place_for(8, PAGE);
	CHECK(mmap(base, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(mmap(base + 4 * PAGE, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == base + 4 * PAGE);
	CHECK_EQ(name(base, 1, 4, "memfd"), 0);
	CHECK_AREAS(base, 8, "0+1 rw-s @0 memfd:unlinked (deleted), 1+3 rw-s @1 [anon_shmem:memfd], 4+1 rw-p @0 [anon_shmem:memfd], 5+3 rw-p @1 memfd:unlinked (deleted)");
	CHECK(munmap(base, 8 * PAGE) == 0 && close(fd) == 0);
	/* A segment of System V is a file, so to speak. */
	int segment = shmget(IPC_PRIVATE, PAGE, 0600);
	CHECK(segment >= 0);
	void *at = shmat(segment, NULL, 0);
	CHECK(at != (void *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
	CHECK_ERRNO(name(at, 0, 1, "segment"), EBADF);
	CHECK(shmdt(at) == 0);
}

/* Named parts split, equal names merge; no name is like no name only. */
static void splitting_and_merging(void)
{
	unsigned char *base = window_of(12, PAGE);
	CHECK_EQ(name(base, 0, 12, "a"), 0);
	CHECK_EQ(name(base, 4, 4, "b"), 0);
	CHECK_AREAS(base, 12, "0+4 rw-p [anon:a], 4+4 rw-p [anon:b], 8+4 rw-p [anon:a]");
	CHECK_EQ(name(base, 4, 2, "a"), 0);
	CHECK_AREAS(base, 12, "0+6 rw-p [anon:a], 6+2 rw-p [anon:b], 8+4 rw-p [anon:a]");
	CHECK_EQ(name(base, 6, 2, "a"), 0);
	CHECK_AREAS(base, 12, "0+12 rw-p [anon:a]");
	CHECK_EQ(name(base, 3, 3, NULL), 0);
	CHECK_EQ(name(base, 9, 3, ""), 0);
	CHECK_AREAS(base, 12, "0+3 rw-p [anon:a], 3+3 rw-p, 6+3 rw-p [anon:a], 9+3 rw-p [anon:]");
	CHECK_EQ(name(base, 6, 3, NULL), 0);
	CHECK_AREAS(base, 12, "0+3 rw-p [anon:a], 3+6 rw-p, 9+3 rw-p [anon:]");
	CHECK_EQ(name(base, 0, 12, NULL), 0);
	CHECK_AREAS(base, 12, "0+12 rw-p");
	/* Two names with one beginning. */
	CHECK_EQ(name(base, 0, 6, "same"), 0);
	CHECK_EQ(name(base, 6, 6, "samely"), 0);
	CHECK_AREAS(base, 12, "0+6 rw-p [anon:same], 6+6 rw-p [anon:samely]");
	/* Other changes keep names, and parts. */
	CHECK(mprotect(base + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
	CHECK_AREAS(base, 12, "0+4 rw-p [anon:same], 4+2 r--p [anon:same], 6+2 r--p [anon:samely], 8+4 rw-p [anon:samely]");
	CHECK(mprotect(base, 12 * PAGE, RW) == 0);
	CHECK(munmap(base + 2 * PAGE, 2 * PAGE) == 0);
	CHECK_AREAS(base, 12, "0+2 rw-p [anon:same], 4+2 rw-p [anon:same], 6+6 rw-p [anon:samely]");
	/* A new mapping has no name, whatever was there and whatever is beside it. */
	CHECK(mmap(base + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base + 2 * PAGE);
	CHECK_AREAS(base, 12, "0+2 rw-p [anon:same], 2+2 rw-p, 4+2 rw-p [anon:same], 6+6 rw-p [anon:samely]");
	CHECK_EQ(name(base, 2, 2, "same"), 0);
	CHECK_AREAS(base, 12, "0+6 rw-p [anon:same], 6+6 rw-p [anon:samely]");
	CHECK(munmap(base, 12 * PAGE) == 0);
}

static void moving(void)
{
	unsigned char *base = window_of(8, PAGE), *to = place_for(16, PAGE);
	CHECK_EQ(name(base, 0, 8, "moves"), 0);
	base[3 * PAGE] = 3;
	CHECK(mremap(base + 2 * PAGE, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK_AREAS(base, 8, "0+2 rw-p [anon:moves], 6+2 rw-p [anon:moves]");
	CHECK_AREAS(to, 16, "0+6 rw-p [anon:moves]");
	CHECK_EQ(to[PAGE], 3);
	CHECK(mremap(to, 6 * PAGE, 9 * PAGE, 0) == to);
	CHECK_AREAS(to, 16, "0+9 rw-p [anon:moves]");
	CHECK(mremap(to, 9 * PAGE, 2 * PAGE, 0) == to);
	CHECK_AREAS(to, 16, "0+2 rw-p [anon:moves]");
	CHECK(mremap(to, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to + 8 * PAGE) == to + 8 * PAGE);
	CHECK_AREAS(to, 16, "0+2 rw-p [anon:moves], 8+2 rw-p [anon:moves]");
	CHECK(munmap(base, 8 * PAGE) == 0 && munmap(to, 16 * PAGE) == 0);
}

static void forks(void)
{
	unsigned char *base = window_of(8, PAGE);
	char text[16];
	CHECK_EQ(name(base, 0, 4, "parents"), 0);
	IN_CHILD(0, {
		CHECK_AREAS(base, 8, "0+4 rw-p [anon:parents], 4+4 rw-p");
		CHECK_EQ(name(base, 2, 4, "childs"), 0);
		IN_CHILD(0, {
			CHECK_AREAS(base, 8, "0+2 rw-p [anon:parents], 2+4 rw-p [anon:childs], 6+2 rw-p");
			CHECK_EQ(name(base, 0, 8, NULL), 0);
		});
		CHECK_AREAS(base, 8, "0+2 rw-p [anon:parents], 2+4 rw-p [anon:childs], 6+2 rw-p");
	});
	CHECK_AREAS(base, 8, "0+4 rw-p [anon:parents], 4+4 rw-p");
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* A name lives as long as anybody uses it. */
	for (int round = 0; round < 20; round++) {
		base = window_of(64, PAGE);
		for (size_t page = 0; page < 64; page++) {
			snprintf(text, sizeof text, "%d", (int)page % 5);
			CHECK_EQ(name(base, page, 1, text), 0);
		}
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			usleep(1000);
			CHECK_AREAS(base + 3 * PAGE, 3, "0+1 rw-p [anon:3], 1+1 rw-p [anon:4], 2+1 rw-p [anon:0]");
			_exit(0);
		}
		CHECK(munmap(base, 64 * PAGE) == 0);
		expect_exit(child, 0);
	}
}

/* The heap and the stack are shown as such, whatever their name. */
static void special(void)
{
	unsigned char *end = raw_brk(0);
	CHECK(raw_brk(end + 4 * PAGE) == end + 4 * PAGE);
	unsigned char *heap = (unsigned char *)(((uintptr_t)end + PAGE - 1) / PAGE * PAGE);
	CHECK_EQ(name(heap, 1, 1, "mine"), 0);
	CHECK_AREAS(heap, 3, "0+1 rw-p [heap], 1+1 rw-p [heap], 2+1 rw-p [heap]");
	CHECK_EQ(name(heap, 1, 1, NULL), 0);
	CHECK_AREAS(heap, 3, "0+3 rw-p [heap]");
	unsigned char *top = (unsigned char *)((uintptr_t)&end / PAGE * PAGE);
	CHECK_EQ(name(top, 0, 1, "mine"), 0);
	char line[400];
	areas(line, sizeof line, top, 1);
	CHECK(strcmp(line, "0+1 rw-p [stack]") == 0 || strcmp(line, "0+1 rw-p [anon:mine]") == 0);
	CHECK_EQ(name(top, 0, 1, NULL), 0);
}

/* smaps says the same. */
static void elsewhere(void)
{
	unsigned char *base = window_of(4, PAGE);
	static char smaps[1 << 20];
	CHECK_EQ(name(base, 1, 2, "asked for"), 0);
	read_whole("/proc/self/smaps", smaps, sizeof smaps);
	CHECK(strstr(smaps, " [anon:asked for]\n"));
	CHECK_EQ(smaps_value(base + PAGE, "Size"), 8);
	CHECK(munmap(base, 4 * PAGE) == 0);
}

/* As many areas as there may be: a name that would split one is refused, one for a whole area is not. */
static void too_many(void)
{
	IN_CHILD(0, {
		size_t pages = 140000;
		unsigned char *base = place_for(pages, PAGE);
		CHECK(mmap(base, pages * PAGE, RW, ANON | MAP_FIXED | MAP_NORESERVE, -1, 0) == base);
		size_t page = 1;
		while (page < pages && mprotect(base + page * PAGE, PAGE, PROT_READ) == 0)
			page += 2;
		CHECK(page < pages - 8);
		CHECK_EQ(errno, ENOMEM);
		while (page < pages && name(base, page + 2, 1, "one more") == 0)
			page += 2;
		CHECK_EQ(errno, EAGAIN);
		CHECK_ERRNO(name(base, page + 2, 2, "one more"), EAGAIN);
		CHECK_EQ(name(base, 3, 1, "whole"), 0);
	});
}

static void check_all(void)
{
	mistakes();
	walking();
	shared_memory();
	splitting_and_merging();
	moving();
	forks();
	special();
	elsewhere();
	too_many();
}

/* Started again by itself: nothing has a name. */
static int is_fresh(void)
{
	static char maps[1 << 20];
	read_whole("/proc/self/maps", maps, sizeof maps);
	return strstr(maps, "[anon:") == NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return is_fresh() ? 0 : 3;
	unsigned char *base = window_of(4, PAGE);
	if (!lacks("PR_SET_VMA_ANON_NAME", name(base, 0, 1, "probe") == 0)) {
		check_all();
		CHECK(!is_fresh());
		IN_CHILD(0, { execl("/proc/self/exe", argv[0], "again", NULL); _exit(4); });
	}
	say("names");
	return 0;
}
