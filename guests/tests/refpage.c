/* Reference pages, which Linux does not have: MAP_REFPAGE and refpage_create. Memory that reads as one page all over, until it
 * is written. */
#include "areas.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define MAP_REFPAGE 0x200000
#define SYS_refpage_create 0x464f4c44

/* Maps `pages` at `at` that read as the page at `reference`. */
static void *map_ref(void *at, size_t pages, int protection, int flags, const void *reference)
{
	return (void *)syscall(SYS_mmap, at, pages * PAGE, protection, flags | MAP_REFPAGE | (at ? MAP_FIXED : 0), -1, reference);
}

static int create(const void *content, unsigned long size, unsigned long flags)
{
	return (int)syscall(SYS_refpage_create, content, size, flags);
}

/* A page of a pattern of its own. */
static unsigned char *page_of(int seed)
{
	unsigned char *page = window_of(1, PAGE);
	for (size_t i = 0; i < PAGE; i++)
		page[i] = (unsigned char)(seed + (int)i * 7);
	return page;
}

static void reads_as(const unsigned char *at, size_t pages, int seed)
{
	for (size_t page = 0; page < pages; page++)
		for (size_t i = 0; i < PAGE; i += 97)
			CHECK_EQ(at[page * PAGE + i], (unsigned char)(seed + (int)i * 7));
}

static void mapping(void)
{
	unsigned char *page = page_of(1), *base = place_for(16, PAGE);
	CHECK(map_ref(base, 16, RW, ANON, page) == base);
	CHECK_AREAS(base, 16, "0+16 rw-p");
	reads_as(base, 16, 1);
	CHECK_EQ(smaps_value(base, "Rss"), 0);
	/* A store copies one page. */
	base[3 * PAGE + 5] = 200;
	CHECK_EQ(smaps_value(base, "Rss"), 4);
	CHECK_EQ(base[3 * PAGE + 5], 200);
	CHECK_EQ(base[3 * PAGE + 6], (unsigned char)(1 + 6 * 7));
	reads_as(base, 3, 1), reads_as(base + 4 * PAGE, 12, 1);
	/* A store to memory that was never read. */
	base[9 * PAGE] = 1;
	CHECK_EQ(base[9 * PAGE + 1], 8);
	/* The content is that of the call, whatever happens to the page. */
	page[0] = 99;
	CHECK_EQ(base[0], 1);
	CHECK(munmap(page, PAGE) == 0);
	reads_as(base + 10 * PAGE, 6, 1);
	/* What the kernel reads for the program is the same. */
	int ends[2];
	unsigned char got[64];
	CHECK(pipe(ends) == 0 && write(ends[1], base + 12 * PAGE, 64) == 64 && read(ends[0], got, 64) == 64);
	CHECK(memcmp(got, base + 12 * PAGE, 64) == 0 && got[1] == 8);
	CHECK(write(ends[1], "written", 7) == 7 && read(ends[0], base + 13 * PAGE, 7) == 7);
	CHECK(memcmp(base + 13 * PAGE, "written", 7) == 0 && base[13 * PAGE + 7] == 50);
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(base, 16 * PAGE) == 0);
	say("mapping");
}

static void mistakes(void)
{
	unsigned char *page = page_of(1), *base = place_for(4, PAGE);
	int fd = memory_file("reference", 2);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, page + 1), EINVAL);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, page + 64 * PAGE), EFAULT);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, (void *)(1UL << 62)), EFAULT);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, (void *)-PAGE), EFAULT);
	CHECK_ERRNO(map_ref(NULL, 0, RW, ANON, page), EINVAL);
	CHECK_ERRNO(map_ref(NULL, 1, RW, MAP_SHARED | MAP_ANONYMOUS, page), EINVAL);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON | MAP_GROWSDOWN, page), EINVAL);
	CHECK(mprotect(page, PAGE, PROT_NONE) == 0);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, page), EFAULT);
	CHECK(mprotect(page, PAGE, PROT_READ) == 0);
	unsigned char *got = map_ref(NULL, 1, RW, ANON, page);
	CHECK(got != MAP_FAILED && munmap(got, PAGE) == 0);
	/* The page may be shared memory's or a file's, but must be there. */
	CHECK(mmap(base, 3 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	got = map_ref(NULL, 2, RW, ANON, base + PAGE);
	CHECK(got != MAP_FAILED && got[0] == 2 && got[2 * PAGE - 1] == 2);
	base[PAGE] = 50;
	CHECK_EQ(got[0], 2);
	CHECK_ERRNO(map_ref(NULL, 1, RW, ANON, base + 2 * PAGE), EFAULT);
	CHECK(munmap(got, 2 * PAGE) == 0 && munmap(base, 3 * PAGE) == 0 && close(fd) == 0);
	CHECK(mmap(base, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == base);
	base[7] = 7;
	got = map_ref(NULL, 1, PROT_READ, ANON, base);
	CHECK(got != MAP_FAILED && got[7] == 7 && got[8] == 0);
	KILLED_BY(SIGSEGV, got[0] = 1);
	CHECK(munmap(got, PAGE) == 0 && munmap(base, PAGE) == 0 && munmap(page, PAGE) == 0);
	say("mistakes");
}

static void files(void)
{
	unsigned char *page = page_of(3);
	CHECK_ERRNO(create(page, PAGE, 1), EINVAL);
	CHECK_ERRNO(create(page, 0, 0), EINVAL);
	CHECK_ERRNO(create(page, 3, 0), EINVAL);
	CHECK_ERRNO(create(page, 2 * PAGE, 0), EINVAL);
	CHECK_ERRNO(create(page + 4, 8, 0), EINVAL);
	CHECK_ERRNO(create(page + 64 * PAGE, 8, 0), EFAULT);
	for (unsigned long size = 1; size <= PAGE; size *= 2) {
		int fd = create(page, size, 0);
		CHECK(fd >= 0);
		unsigned char *base = mmap(NULL, 3 * PAGE, RW, MAP_PRIVATE, fd, 0);
		CHECK(base != MAP_FAILED);
		for (size_t i = 0; i < 3 * PAGE; i++)
			CHECK_EQ(base[i], page[i % size]);
		CHECK(close(fd) == 0);
		base[PAGE] = (unsigned char)~base[PAGE];
		CHECK_EQ(base[PAGE], (unsigned char)~page[PAGE % size]);
		CHECK_EQ(base[0], page[0]);
		CHECK(munmap(base, 3 * PAGE) == 0);
	}
	int fd = create(page, 16, 0);
	CHECK_ERRNO(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	/* The offset is only that. */
	unsigned char *base = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 100 * PAGE);
	CHECK(base != MAP_FAILED);
	CHECK(memcmp(base, page, 16) == 0 && memcmp(base + 4080, page, 16) == 0);
	CHECK(munmap(base, PAGE) == 0 && close(fd) == 0 && munmap(page, PAGE) == 0);
	say("refpage_create");
}

static void forks(void)
{
	unsigned char *page = page_of(5), *base = place_for(8, PAGE);
	CHECK(map_ref(base, 8, RW, ANON, page) == base);
	base[PAGE] = 100;
	IN_CHILD(0, {
		reads_as(base, 1, 5), reads_as(base + 2 * PAGE, 6, 5);
		CHECK_EQ(base[PAGE], 100);
		base[2 * PAGE] = 101, base[PAGE] = 102;
		CHECK(munmap(page, PAGE) == 0);
		IN_CHILD(0, {
			CHECK_EQ(base[2 * PAGE], 101);
			reads_as(base + 3 * PAGE, 5, 5);
			base[3 * PAGE] = 1;
		});
		reads_as(base + 3 * PAGE, 5, 5);
	});
	CHECK_EQ(base[PAGE], 100);
	reads_as(base + 2 * PAGE, 6, 5);
	CHECK(munmap(base, 8 * PAGE) == 0 && munmap(page, PAGE) == 0);
	say("forks");
}

/* As on anonymous memory. */
static void changes(void)
{
	unsigned char *page = page_of(9), *base = place_for(8, PAGE), *to = place_for(1024, 512 * PAGE);
	CHECK(map_ref(base, 8, RW, ANON, page) == base);
	base[2 * PAGE] = 1, base[5 * PAGE] = 1;
	CHECK(madvise(base + 2 * PAGE, PAGE, MADV_DONTNEED) == 0); /* the content is back */
	reads_as(base, 5, 9);
	CHECK_EQ(smaps_value(base, "Rss"), 4);
	CHECK(mprotect(base, 4 * PAGE, PROT_READ) == 0);
	KILLED_BY(SIGSEGV, base[0] = 1);
	reads_as(base, 4, 9);
	CHECK(mprotect(base, 4 * PAGE, PROT_NONE) == 0);
	KILLED_BY(SIGSEGV, (void)*(volatile char *)base);
	CHECK(mprotect(base, 4 * PAGE, RW) == 0);
	CHECK_AREAS(base, 8, "0+8 rw-p");
	CHECK(mremap(base, 8 * PAGE, 12 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 3 * PAGE) == to + 3 * PAGE);
	reads_as(to + 3 * PAGE, 5, 9), reads_as(to + 9 * PAGE, 6, 9); /* what has grown is of the same content */
	CHECK_EQ(to[8 * PAGE], 1);
	CHECK(mremap(to + 3 * PAGE, 12 * PAGE, 12 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to + 40 * PAGE) ==
	      to + 40 * PAGE);
	reads_as(to + 3 * PAGE, 12, 9);
	CHECK_EQ(to[45 * PAGE], 1);
	CHECK(munmap(to, 1024 * PAGE) == 0);
	/* Made present at once. */
	CHECK(map_ref(base, 8, RW, ANON | MAP_POPULATE, page) == base);
	CHECK_EQ(smaps_value(base, "Rss"), 32);
	reads_as(base, 8, 9);
	CHECK(munmap(base, 8 * PAGE) == 0 && munmap(page, PAGE) == 0);
	say("changes");
}

/* Equal content is one reference, whatever it was made of. */
static void merging(void)
{
	unsigned char *page = page_of(11), *same = page_of(11), *other = page_of(12), *base = place_for(12, PAGE);
	CHECK(map_ref(base, 3, RW, ANON, page) == base);
	CHECK(map_ref(base + 3 * PAGE, 3, RW, ANON, page) == base + 3 * PAGE);
	CHECK(map_ref(base + 6 * PAGE, 2, RW, ANON, same) == base + 6 * PAGE);
	CHECK(map_ref(base + 8 * PAGE, 2, RW, ANON, other) == base + 8 * PAGE);
	CHECK(mmap(base + 10 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == base + 10 * PAGE);
	CHECK_AREAS(base, 12, "0+8 rw-p, 8+2 rw-p, 10+2 rw-p");
	reads_as(base, 8, 11), reads_as(base + 8 * PAGE, 2, 12);
	CHECK(mprotect(base + 2 * PAGE, 4 * PAGE, PROT_READ) == 0);
	CHECK_AREAS(base, 12, "0+2 rw-p, 2+4 r--p, 6+2 rw-p, 8+2 rw-p, 10+2 rw-p");
	CHECK(mprotect(base + 2 * PAGE, 4 * PAGE, RW) == 0);
	CHECK(munmap(base + 3 * PAGE, 2 * PAGE) == 0);
	CHECK_AREAS(base, 12, "0+3 rw-p, 5+3 rw-p, 8+2 rw-p, 10+2 rw-p");
	CHECK(map_ref(base + 3 * PAGE, 2, RW, ANON, same) == base + 3 * PAGE);
	CHECK_AREAS(base, 12, "0+8 rw-p, 8+2 rw-p, 10+2 rw-p");
	CHECK(munmap(base, 12 * PAGE) == 0 && munmap(page, PAGE) == 0 && munmap(same, PAGE) == 0 && munmap(other, PAGE) == 0);
	say("merging");
}

/* A GiB of it, read page by page: next to no memory. */
static void much(void)
{
	size_t gib = 1UL << 30;
	unsigned char *page = page_of(13), *base = place_for(gib / PAGE, gib);
	CHECK(map_ref(base, gib / PAGE, RW, ANON | MAP_NORESERVE, page) == base);
	long tables = status_value("VmPTE"), resident = status_value("VmRSS");
	for (size_t at = 0; at < gib; at += PAGE)
		CHECK_EQ(base[at + 1], 20);
	CHECK(status_value("VmPTE") - tables < 32);
	CHECK(status_value("VmRSS") - resident < 64);
	for (size_t at = 0; at < gib; at += gib / 16)
		base[at] = 1;
	CHECK_EQ(smaps_value(base, "Rss"), 64);
	CHECK_EQ(base[gib / 16 + PAGE + 1], 20);
	CHECK(munmap(base, gib) == 0 && munmap(page, PAGE) == 0);
	say("much");
}

int main(void)
{
	unsigned char *page = page_of(1);
	if (lacks("refpage_create", create(page, 16, 0) >= 0)) {
		say("mapping\nmistakes\nrefpage_create\nforks\nchanges\nmerging\nmuch");
		return 0;
	}
	mapping();
	mistakes();
	files();
	forks();
	changes();
	merging();
	much();
	return 0;
}
