/* mmap: every flag, alone and with the others, for anonymous memory and for files; every refusal. */
#include "areas.h"
#include <sys/prctl.h>

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* The system call itself: C libraries have opinions of their own. */
static long map(const void *at, size_t length, int protection, int flags, int fd, unsigned long offset)
{
	return syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

static void types(void)
{
	int fd = memory_file("types", 4);
	for (int type = 0; type < 16; type++) {
		long got = map(NULL, PAGE, RW, type | MAP_ANONYMOUS, -1, 0);
		if (type == MAP_SHARED || type == MAP_PRIVATE)
			CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
		else if (type == MAP_DROPPABLE)
			CHECK(lacks("MAP_DROPPABLE", got != -1) || munmap((void *)got, PAGE) == 0);
		else
			CHECK(got == -1 && errno == EINVAL);
		got = map(NULL, PAGE, RW, type, fd, 0);
		if (type == MAP_SHARED || type == MAP_PRIVATE || type == MAP_SHARED_VALIDATE)
			CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
		else
			CHECK(got == -1 && errno == EINVAL);
	}
	/* Flags nobody knows are nothing to SHARED and PRIVATE, and a mistake to SHARED_VALIDATE. */
	for (int bit = 22; bit < 26; bit++) {
		int flag = 1 << bit;
		long got = map(NULL, PAGE, RW, MAP_SHARED | flag, fd, 0);
		CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
		got = map(NULL, PAGE, RW, ANON | flag, -1, 0);
		CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
		CHECK_ERRNO(map(NULL, PAGE, RW, MAP_SHARED_VALIDATE | flag, fd, 0), EOPNOTSUPP);
	}
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0), EOPNOTSUPP);
	long got = map(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_POPULATE | MAP_NORESERVE, fd, 0);
	CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
	/* The old flags that mean nothing any more. */
	got = map(NULL, PAGE, RW, ANON | MAP_DENYWRITE | MAP_EXECUTABLE, -1, 0);
	CHECK(got != -1 && munmap((void *)got, PAGE) == 0);
	CHECK(close(fd) == 0);
	say("types");
}

static void refusals(void)
{
	int fd = memory_file("refusals", 4), ends[2];
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int reader = open(path, O_RDONLY), writer = open(path, O_WRONLY), directory = open("/", O_RDONLY);
	int place = open("/", O_PATH);
	CHECK(reader >= 0 && writer >= 0 && directory >= 0 && place >= 0 && pipe(ends) == 0);
	CHECK_ERRNO(map(NULL, 0, RW, ANON, -1, 0), EINVAL);
	CHECK_ERRNO(map(NULL, 0, RW, MAP_PRIVATE, fd, 0), EINVAL);
	CHECK_ERRNO(map(NULL, 0, RW, MAP_PRIVATE, 1000, 0), EBADF);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_PRIVATE, 1000, 0), EBADF);
	CHECK_ERRNO(map(NULL, PAGE, RW, 0, 1000, 0), EBADF);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_PRIVATE, 1000, 5), EINVAL); /* the offset comes first */
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_PRIVATE, place, 0), EBADF);
	CHECK_ERRNO(map(NULL, -1UL, RW, ANON, -1, 0), ENOMEM); /* rounds to nothing */
	CHECK_ERRNO(map(NULL, -PAGE, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERRNO(map(NULL, 1UL << 62, RW, ANON, -1, 0), ENOMEM);
	CHECK_ERRNO(map(NULL, PAGE, RW, ANON, -1, 1), EINVAL);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_PRIVATE, fd, 100), EINVAL);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_SHARED, reader, 0), EACCES);
	CHECK_ERRNO(map(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0), EACCES);
	CHECK_ERRNO(map(NULL, PAGE, PROT_WRITE, MAP_SHARED, writer, 0), EACCES);
	CHECK_ERRNO(map(NULL, PAGE, PROT_NONE, MAP_PRIVATE, writer, 0), EACCES);
	CHECK_ERRNO(map(NULL, PAGE, PROT_READ, MAP_PRIVATE, directory, 0), ENODEV);
	CHECK_ERRNO(map(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0), ENODEV);
	CHECK_ERRNO(map(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[1], 0), EACCES);
	/* The end of the file would lie beyond what an offset can say. */
	CHECK_ERRNO(map(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, -PAGE), EOVERFLOW);
	CHECK_ERRNO(map(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 1UL << 63), EOVERFLOW);
	/* Grows down: only private anonymous memory. */
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), EINVAL);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_SHARED | MAP_GROWSDOWN, fd, 0), EINVAL);
	CHECK_ERRNO(map(NULL, PAGE, RW, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0), EINVAL);
	/* What a descriptor does not allow can be had of a private mapping, or later not at all. */
	unsigned char *at = (unsigned char *)map(NULL, PAGE, RW, MAP_PRIVATE, reader, 0);
	CHECK(at != MAP_FAILED);
	at[0] = 99;
	CHECK(munmap(at, PAGE) == 0);
	at = (unsigned char *)map(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
	CHECK(at != MAP_FAILED && at[0] == 1);
	CHECK_ERRNO(mprotect(at, PAGE, RW), EACCES);
	CHECK(mprotect(at, PAGE, PROT_NONE) == 0 && mprotect(at, PAGE, PROT_READ) == 0);
	CHECK(!has_flag(at, "mw") && has_flag(at, "mr"));
	CHECK(munmap(at, PAGE) == 0);
	/* Protection bits that mean nothing are no mistake here. */
	at = (unsigned char *)map(NULL, PAGE, PROT_READ | 0x70, ANON, -1, 0);
	CHECK(at != MAP_FAILED && munmap(at, PAGE) == 0);
	/* Anonymous memory has no use for a descriptor; an offset must be a page's. */
	at = (unsigned char *)map(NULL, PAGE, RW, ANON, 1000, 5 * PAGE);
	CHECK(at != MAP_FAILED && munmap(at, PAGE) == 0);
	/* A whole file, and beyond its end. */
	at = (unsigned char *)map(NULL, 8 * PAGE, RW, MAP_SHARED, fd, 2 * PAGE);
	CHECK(at != MAP_FAILED && at[PAGE] == 4);
	KILLED_BY(SIGBUS, at[2 * PAGE] = 1);
	CHECK(munmap(at, 8 * PAGE) == 0);
	close(fd), close(reader), close(writer), close(directory), close(place), close(ends[0]), close(ends[1]);
	say("refusals");
}

static void places(void)
{
	unsigned char *base = window_of(8, PAGE), *beyond = (unsigned char *)(1UL << 62);
	memset(base, 7, 8 * PAGE);
	CHECK_ERRNO(map(base + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	CHECK_ERRNO(map(base + 1, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EINVAL);
	CHECK_ERRNO(map(beyond, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_ERRNO(map(beyond, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), ENOMEM);
	CHECK_ERRNO(map((void *)-PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_ERRNO(map((void *)-PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	/* NOREPLACE: any overlap is one. */
	CHECK_ERRNO(map(base, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_ERRNO(map(base - 2 * PAGE, 3 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_ERRNO(map(base - 2 * PAGE, 12 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_ERRNO(map(base + 7 * PAGE, 12 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE | MAP_FIXED, -1, 0), EEXIST);
	CHECK(map(base - 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == (long)(base - 2 * PAGE));
	CHECK(map(base + 8 * PAGE, PAGE, PROT_READ, ANON | MAP_FIXED_NOREPLACE, -1, 0) == (long)(base + 8 * PAGE));
	EXPECT_AREAS("not replaced", base - 2 * PAGE, 12, "0+10 rw-p, 10+1 r--p");
	CHECK_EQ(base[0], 7);
	/* A replacement that is refused replaces nothing. */
	CHECK_ERRNO(map(base, PAGE, RW, MAP_PRIVATE | MAP_FIXED, 1000, 0), EBADF);
	CHECK_ERRNO(map(base, PAGE, RW, MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	CHECK_EQ(base[0], 7);
	CHECK(munmap(base - 2 * PAGE, 11 * PAGE) == 0);
	/* A hint is taken if it is free, rounded down to a page; otherwise another place is found. */
	CHECK(map(base + 5, PAGE, RW, ANON, -1, 0) == (long)base || map(base + 5, PAGE, RW, ANON, -1, 0) == (long)(base + PAGE));
	long other = map(base, 2 * PAGE, RW, ANON, -1, 0);
	CHECK(other != -1 && other != (long)base && other != (long)base + (long)PAGE);
	CHECK(munmap((void *)other, 2 * PAGE) == 0 && munmap(base, 2 * PAGE) == 0);
	other = map(beyond, PAGE, RW, ANON, -1, 0);
	CHECK(other != -1 && munmap((void *)other, PAGE) == 0);
	/* Below the lowest address that programs may have, a hint is lifted. */
	char text[32];
	read_whole("/proc/sys/vm/mmap_min_addr", text, sizeof text);
	long lowest = strtol(text, NULL, 10);
	IN_CHILD(0, {
		CHECK(syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
		CHECK_ERRNO(map(NULL, PAGE, RW, ANON | MAP_FIXED, -1, 0), EPERM);
		CHECK_ERRNO(map((void *)(lowest - PAGE), PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EPERM);
		CHECK(map((void *)1, PAGE, RW, ANON, -1, 0) > lowest); /* rounded down: no hint at all */
		if (lowest > (long)PAGE)
			CHECK_EQ(map((void *)(lowest - PAGE), PAGE, RW, ANON, -1, 0), lowest);
		CHECK_EQ(map((void *)(lowest + 3 * PAGE), PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), lowest + 3 * PAGE);
	});
	/* In the lower two gigabytes. */
	for (int i = 0; i < 4; i++) {
		long low = map(i & 1 ? base : NULL, (i + 1) * MIB, RW, ANON | MAP_32BIT, -1, 0);
		CHECK(low != -1 && low + (i + 1) * (long)MIB <= 1L << 31);
		*(volatile char *)low = 1;
		CHECK(munmap((void *)low, (i + 1) * MIB) == 0);
	}
	CHECK_ERRNO(map(NULL, 1UL << 31, RW, ANON | MAP_32BIT | MAP_NORESERVE, -1, 0), ENOMEM);
	CHECK(map(base, PAGE, RW, ANON | MAP_32BIT | MAP_FIXED, -1, 0) == (long)base); /* FIXED counts */
	CHECK(munmap(base, PAGE) == 0);
	say("places");
}

static void populating(void)
{
	int fd = memory_file("populate", 4);
	unsigned char *base = place_for(4, PAGE);
	static const struct { int protection, flags, file; long resident, anonymous; } rows[] = {
		{ RW, ANON | MAP_POPULATE, 0, 16, 16 },
		{ PROT_READ, ANON | MAP_POPULATE, 0, 0, 0 }, /* zeros */
		{ PROT_NONE, ANON | MAP_POPULATE, 0, 0, 0 },
		{ RW, ANON | MAP_POPULATE | MAP_NONBLOCK, 0, 0, 0 },
		{ RW, ANON, 0, 0, 0 },
		{ RW, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, 0, 16, 0 },
		{ RW, MAP_SHARED | MAP_POPULATE, 1, 16, 0 },
		{ RW, MAP_PRIVATE | MAP_POPULATE, 1, 16, 16 }, /* copied at once */
		{ PROT_READ, MAP_PRIVATE | MAP_POPULATE, 1, 16, 0 },
		{ RW, ANON | MAP_STACK | MAP_POPULATE, 0, 16, 16 },
		{ RW, ANON | MAP_NORESERVE | MAP_POPULATE, 0, 16, 16 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		CHECK(map(base, 4 * PAGE, rows[i].protection, rows[i].flags | MAP_FIXED, rows[i].file ? fd : -1, 0) == (long)base);
		CHECK_EQ(smaps_value(base, "Rss"), rows[i].resident);
		CHECK_EQ(smaps_value(base, "Anonymous"), rows[i].anonymous);
		if (rows[i].protection & PROT_READ)
			CHECK_EQ(base[3 * PAGE], rows[i].file ? 4 : 0);
		CHECK(munmap(base, 4 * PAGE) == 0);
	}
	/* As far as there is a file; what cannot be had is no mistake. */
	CHECK(map(base, 8 * PAGE, RW, MAP_SHARED | MAP_POPULATE | MAP_FIXED, fd, PAGE) == (long)base);
	CHECK_EQ(smaps_value(base, "Rss"), 12);
	CHECK(munmap(base, 8 * PAGE) == 0 && close(fd) == 0);
	say("populating");
}

/* What smaps tells of the flags. */
static void shown(void)
{
	static const struct { int protection, flags; const char *has, *has_not; } rows[] = {
		{ RW, ANON, "rd wr mr mw me ac", "sh ms ex nr lo gd" },
		{ PROT_READ, ANON, "rd mr mw me", "wr sh ac" },
		{ PROT_NONE, ANON, "mr mw me", "rd wr ex ac" },
		{ RW | PROT_EXEC, ANON, "rd wr ex mr mw me ac", "sh" },
		{ RW, ANON | MAP_NORESERVE, "rd wr nr", "ac" },
		{ RW, ANON | MAP_LOCKED, "rd wr lo ac", "nr" },
		{ RW, ANON | MAP_GROWSDOWN, "rd wr gd ac", "sh" },
		{ RW, MAP_SHARED | MAP_ANONYMOUS, "rd wr sh mr mw me ms", "ac" },
		{ PROT_READ, MAP_SHARED | MAP_ANONYMOUS, "rd sh mr mw me ms", "wr" },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		unsigned char *base = place_for(2, PAGE);
		CHECK(map(base, 2 * PAGE, rows[i].protection, rows[i].flags | MAP_FIXED, -1, 0) == (long)base);
		for (const char *flag = rows[i].has; flag; flag = strchr(flag, ' ') ? strchr(flag, ' ') + 1 : NULL)
			if (!has_flag(base, flag))
				FAIL("row %zu has no %.2s: %.40s", i, flag, smaps_text(base, "VmFlags"));
		for (const char *flag = rows[i].has_not; flag; flag = strchr(flag, ' ') ? strchr(flag, ' ') + 1 : NULL)
			if (has_flag(base, flag))
				FAIL("row %zu has %.2s: %.40s", i, flag, smaps_text(base, "VmFlags"));
		CHECK(munmap(base - PAGE, 3 * PAGE) == 0);
	}
	/* Accounted from the moment that it can be written, and, once it was, from then on. */
	unsigned char *base = place_for(2, PAGE);
	CHECK(map(base, 2 * PAGE, PROT_READ, ANON | MAP_FIXED, -1, 0) == (long)base);
	CHECK(mprotect(base, 2 * PAGE, RW) == 0 && has_flag(base, "ac"));
	base[0] = 1;
	CHECK(mprotect(base, 2 * PAGE, PROT_NONE) == 0 && has_flag(base, "ac"));
	CHECK(munmap(base, 2 * PAGE) == 0);
	/* NORESERVE is an area of its own kind. */
	base = window_of(6, PAGE);
	CHECK(map(base + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_NORESERVE | MAP_FIXED, -1, 0) == (long)(base + 2 * PAGE));
	EXPECT_AREAS("beside its like, but not reserved", base, 6, "0+2 rw-p, 2+2 rw-p, 4+2 rw-p");
	CHECK(munmap(base, 6 * PAGE) == 0);
	say("shown");
}

/* Private anonymous memory with an offset merges like any other; shared memory is one object for each call. */
static void objects(void)
{
	unsigned char *base = place_for(8, PAGE);
	CHECK(map(base, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 100 * PAGE) == (long)base);
	CHECK(map(base + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 7 * PAGE) == (long)(base + 2 * PAGE));
	EXPECT_AREAS("private memory", base, 8, "0+4 rw-p");
	CHECK(munmap(base, 8 * PAGE) == 0);
	CHECK(map(base, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 9 * PAGE) == (long)base);
	CHECK(map(base + 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)(base + 2 * PAGE));
	EXPECT_AREAS("shared memory", base, 8, "0+2 rw-s @0 zero (deleted), 2+2 rw-s @0 zero (deleted)");
	base[0] = 1;
	CHECK_EQ(base[2 * PAGE], 0);
	CHECK(munmap(base, 8 * PAGE) == 0);
	/* Of /dev/zero: private is anonymous memory, shared an object of its own. */
	int zero = open("/dev/zero", O_RDWR);
	CHECK(zero >= 0);
	CHECK(map(base, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, zero, 0) == (long)base);
	CHECK(map(base + 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, zero, 0) == (long)(base + 2 * PAGE));
	base[0] = 5, base[2 * PAGE] = 6;
	CHECK_EQ(base[PAGE], 0);
	IN_CHILD(0, base[0] = 50; base[2 * PAGE] = 60);
	CHECK_EQ(base[0], 5);
	CHECK_EQ(base[2 * PAGE], 60);
	CHECK(munmap(base, 4 * PAGE) == 0 && close(zero) == 0);
	say("objects");
}

int main(void)
{
	types();
	refusals();
	places();
	populating();
	shown();
	objects();
	return 0;
}
