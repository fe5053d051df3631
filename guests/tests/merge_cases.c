/* The ten ways in which areas merge and split, for what can tell two areas apart: protection, advice, name, file and
 * offset. Each is shown before and after. A letter is a page: A, B, C are three that do not merge, a dot is a hole. */
#include "areas.h"
#include <sys/prctl.h>

#define RW (PROT_READ | PROT_WRITE)
enum { PAGES = 12 };

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

struct kind {
	const char *name;
	int flags;	  /* of the mapping, beside MAP_FIXED */
	int file;	  /* of a file, whose offsets go on from page to page */
	const char *look; /* one column of maps for A, B, C, after the permissions */
	const char *permissions;
	int (*make)(unsigned char *at, size_t length, char letter); /* from an A */
};

static const int protections[] = { RW, PROT_READ, PROT_NONE };

static int protect(unsigned char *at, size_t length, char letter)
{
	return mprotect(at, length, protections[letter - 'A']);
}

static int advise(unsigned char *at, size_t length, char letter)
{
	static const int advice[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL };
	return madvise(at, length, advice[letter - 'A']);
}

static int leave_out(unsigned char *at, size_t length, char letter)
{
	static const int fork_advice[] = { MADV_DOFORK, MADV_DONTFORK, MADV_DOFORK };
	static const int dump_advice[] = { MADV_DODUMP, MADV_DODUMP, MADV_DONTDUMP };
	return madvise(at, length, fork_advice[letter - 'A']) || madvise(at, length, dump_advice[letter - 'A']);
}

static int lock(unsigned char *at, size_t length, char letter)
{
	if (letter == 'A')
		return munlock(at, length);
	return (int)syscall(SYS_mlock2, at, length, letter == 'B' ? 0 : 1 /* on fault */);
}

static int set_name(unsigned char *at, size_t length, char letter)
{
	static const char *const names[] = { NULL, "b", "c" };
	return prctl(PR_SET_VMA, 0, at, length, names[letter - 'A']);
}

static const struct kind kinds[] = {
	{ "protection, private", MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL, "rw-p\0r--p\0---p", protect },
	{ "advice", MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL, "rw-p\0rw-p\0rw-p", advise },
	{ "advice about forks and dumps", MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL, "rw-p\0rw-p\0rw-p", leave_out },
	{ "locks", MAP_PRIVATE | MAP_ANONYMOUS, 0, NULL, "rw-p\0rw-p\0rw-p", lock },
	{ "names", MAP_PRIVATE | MAP_ANONYMOUS, 0, "\0         \0 [anon:b]\0 [anon:c]", "rw-p\0rw-p\0rw-p", set_name },
	{ "protection, a private file", MAP_PRIVATE, 1, NULL, "rw-p\0r--p\0---p", protect },
	{ "protection, a shared file", MAP_SHARED, 1, NULL, "rw-s\0r--s\0---s", protect },
	{ "advice, a shared file", MAP_SHARED, 1, NULL, "rw-s\0rw-s\0rw-s", advise },
};

static const struct {
	const char *name, *before;
	size_t first, pages;
	char to;
} cases[] = {
	{ "merge both", "AAAABBBBAAAA", 4, 4, 'A' },
	{ "merge left, full", "AAAABBBBCCCC", 4, 4, 'A' },
	{ "merge left, partial", "AAAABBBBCCCC", 4, 2, 'A' },
	{ "merge right, full", "CCCCBBBBAAAA", 4, 4, 'A' },
	{ "merge right, partial", "CCCCBBBBAAAA", 6, 2, 'A' },
	{ "new, both", "AAAA....AAAA", 4, 4, 'A' },
	{ "new, left", "AAAA....BBBB", 4, 4, 'A' },
	{ "new, right", "BBBB....AAAA", 4, 4, 'A' },
	{ "split below", "AAAAAAAAAAAA", 0, 5, 'B' },
	{ "split above", "AAAAAAAAAAAA", 7, 5, 'B' },
	/* Beyond the ten: both sides at once, and one change over all three. */
	{ "split in the middle", "AAAAAAAAAAAA", 4, 4, 'B' },
	{ "over several", "AAAABBBBCCCC", 2, 8, 'B' },
	{ "new, neither", "BBBB....BBBB", 4, 4, 'A' },
	{ "new, over several", "ABCABC..AABB", 2, 8, 'A' },
};

static int fd;

/* What maps must have for these letters. */
static void expected(char *line, size_t size, const struct kind *kind, const char *letters)
{
	size_t length = 0;
	line[0] = 0;
	for (size_t first = 0, end; first < PAGES; first = end) {
		for (end = first; end < PAGES && letters[end] == letters[first]; end++)
			;
		if (letters[first] == '.')
			continue;
		int index = letters[first] - 'A';
		length += (size_t)snprintf(line + length, size - length, "%s%zu+%zu %s", length ? ", " : "", first, end - first,
					   kind->permissions + 5 * index);
		if (kind->file)
			length += (size_t)snprintf(line + length, size - length, " @%zu memfd:merge (deleted)", first);
		if (kind->look && index)
			length += (size_t)snprintf(line + length, size - length, "%s", kind->look + 1 + 10 * index);
		CHECK(length < size);
	}
}

static void map_new(const struct kind *kind, unsigned char *base, size_t first, size_t pages)
{
	unsigned char *at = base + first * PAGE;
	CHECK(mmap(at, pages * PAGE, RW, kind->flags | MAP_FIXED, kind->file ? fd : -1,
		   kind->file ? (off_t)(first * PAGE) : 0) == at);
}

static void one_case(const struct kind *kind, size_t number, int touched, int lacking)
{
	char before[400], after[400], letters[PAGES + 1];
	unsigned char *base = place_for(PAGES, PAGE);
	strcpy(letters, cases[number].before);
	expected(before, sizeof before, kind, letters);
	int fresh = letters[cases[number].first] == '.' || strchr(letters, '.');
	memset(letters + cases[number].first, cases[number].to, cases[number].pages);
	expected(after, sizeof after, kind, letters);
	if (!lacking) {
		map_new(kind, base, 0, PAGES);
		if (touched)
			for (size_t page = 0; page < PAGES; page++)
				base[page * PAGE] = (unsigned char)(100 + page);
		for (size_t page = 0; page < PAGES; page++) {
			char letter = cases[number].before[page];
			if (letter == '.')
				CHECK(munmap(base + page * PAGE, PAGE) == 0);
			else if (letter != 'A')
				CHECK(kind->make(base + page * PAGE, PAGE, letter) == 0 || errno == ENOMEM);
		}
		CHECK_AREAS(base, PAGES, before);
		unsigned char *at = base + cases[number].first * PAGE;
		if (fresh)
			map_new(kind, base, cases[number].first, cases[number].pages);
		else
			CHECK(kind->make(at, cases[number].pages * PAGE, cases[number].to) == 0);
		CHECK_AREAS(base, PAGES, after);
		/* No byte has changed but in what is new. */
		CHECK(mprotect(base, PAGES * PAGE, PROT_READ) == 0);
		for (size_t page = 0; page < PAGES && touched && !kind->file; page++) {
			int renewed = fresh && page >= cases[number].first && page < cases[number].first + cases[number].pages;
			CHECK_EQ(base[page * PAGE], renewed ? 0 : 100 + page);
		}
		CHECK(munmap(base, PAGES * PAGE) == 0);
	}
	if (touched) {
		say("  %-22s %s", cases[number].name, before);
		say("  %-22s %s", "", after);
	}
}

/* A file's areas merge only where the file goes on. */
static void offsets(void)
{
	unsigned char *base = place_for(8, PAGE);
	CHECK(mmap(base, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == base);
	CHECK(mmap(base + 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 3 * PAGE) == base + 2 * PAGE);
	CHECK(mmap(base + 4 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 5 * PAGE) == base + 4 * PAGE);
	CHECK(mmap(base + 6 * PAGE, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, fd, 7 * PAGE) == base + 6 * PAGE);
	EXPECT_AREAS("offsets", base, 8,
		     "0+2 rw-s @0 memfd:merge (deleted), 2+4 rw-s @3 memfd:merge (deleted), 6+2 rw-p @7 memfd:merge (deleted)");
	int other = memory_file("merge", 8);
	CHECK(mmap(base + 3 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, other, 4 * PAGE) == base + 3 * PAGE);
	EXPECT_AREAS("another file", base, 6,
		     "0+2 rw-s @0 memfd:merge (deleted), 2+1 rw-s @3 memfd:merge (deleted), 3+2 rw-s @4 memfd:merge (deleted), "
		     "5+1 rw-s @6 memfd:merge (deleted)");
	CHECK(munmap(base, 8 * PAGE) == 0 && close(other) == 0);
}

/* The heap grows as one area, and shrinks. */
static void heap(void)
{
	unsigned char *end = (unsigned char *)(((uintptr_t)raw_brk(0) + PAGE - 1) / PAGE * PAGE);
	CHECK(raw_brk(end + 4 * PAGE) == end + 4 * PAGE);
	CHECK(raw_brk(end + 6 * PAGE) == end + 6 * PAGE);
	EXPECT_AREAS("brk", end, 8, "0+6 rw-p [heap]");
	CHECK(mprotect(end + 4 * PAGE, 2 * PAGE, PROT_READ) == 0);
	CHECK(raw_brk(end + 7 * PAGE) == end + 7 * PAGE);
	EXPECT_AREAS("brk beside something else", end, 8, "0+4 rw-p [heap], 4+2 r--p [heap], 6+1 rw-p [heap]");
	CHECK(mprotect(end + 4 * PAGE, 2 * PAGE, RW) == 0);
	EXPECT_AREAS("the same again", end, 8, "0+7 rw-p [heap]");
	CHECK(raw_brk(end) == end);
	CHECK_AREAS(end, 8, "");
}

int main(void)
{
	fd = memory_file("merge", PAGES);
	for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		int lacking = 0;
		if (kinds[kind].make == set_name) {
			unsigned char *probe = window_of(1, PAGE);
			lacking = lacks("PR_SET_VMA_ANON_NAME", set_name(probe, PAGE, 'B') == 0);
			CHECK(munmap(probe, PAGE) == 0);
		}
		say("%s", kinds[kind].name);
		for (size_t number = 0; number < sizeof cases / sizeof *cases; number++)
			for (int touched = 0; touched < 2; touched++)
				one_case(&kinds[kind], number, touched, lacking);
	}
	offsets();
	heap();
	return 0;
}
