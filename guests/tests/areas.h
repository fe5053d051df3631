/* What /proc says about a window of this process' memory, in pages from the window's start, so that it is the same
 * wherever the window lies. Nothing here allocates or maps: asking changes no answer. */
#ifndef AREAS_H
#define AREAS_H

#include "check.h"
#include <sys/utsname.h>

/* Whether a feature's checks must be left out. Linux may be too old for it, or built without it; Foldspace has it. What
 * a test prints must not depend on it. */
static inline int lacks(const char *feature, int present)
{
	struct utsname name;
	CHECK(uname(&name) == 0);
	if (!present && strstr(name.release, "foldspace"))
		FAIL("there is no %s", feature);
	return !present;
}

/* Writes the areas as `FIRST+PAGES PERMISSIONS`, of a file also ` @OFFSET` in pages, then the name if there is one (a path
 * without its directories), separated by `, `. An area that reaches over the window's ends is cut there, its offset with it. */
static inline char *areas(char *line, size_t size, const void *base, size_t pages)
{
	static char maps[1 << 20];
	unsigned long low = (unsigned long)base, high = low + pages * PAGE;
	size_t length = 0;
	read_whole("/proc/self/maps", maps, sizeof maps);
	line[0] = 0;
	for (char *text = maps, *next; *text; text = next) {
		unsigned long start, end, inode;
		unsigned long long offset;
		char permissions[8];
		int name = 0;
		next = strchr(text, '\n');
		*next++ = 0;
		CHECK(sscanf(text, "%lx-%lx %7s %llx %*x:%*x %lu %n", &start, &end, permissions, &offset, &inode, &name) == 5);
		if (start >= high || end <= low)
			continue;
		if (start < low) {
			offset += low - start;
			start = low;
		}
		if (end > high)
			end = high;
		length += (size_t)snprintf(line + length, size - length, "%s%lu+%lu %s", length ? ", " : "",
					   (start - low) / PAGE, (end - start) / PAGE, permissions);
		if (inode && length < size)
			length += (size_t)snprintf(line + length, size - length, " @%llu", offset / PAGE);
		if (text[name] && length < size) {
			char *shown = text + name;
			if (shown[0] == '/')
				shown = strrchr(shown, '/') + 1;
			length += (size_t)snprintf(line + length, size - length, " %s", shown);
		}
		CHECK(length < size);
	}
	return line;
}

static inline void check_areas(const char *file, int line, const void *base, size_t pages, const char *wanted)
{
	char got[400];
	if (strcmp(areas(got, sizeof got, base, pages), wanted) == 0)
		return;
	say("FAILED %s:%d: %s, not %s", file, line, got, wanted);
	_exit(1);
}

/* The areas are these. */
#define CHECK_AREAS(base, pages, wanted) check_areas(__FILE__, __LINE__, base, pages, wanted)

/* The areas are these, and they are printed. */
#define EXPECT_AREAS(what, base, pages, wanted) do { \
	CHECK_AREAS(base, pages, wanted); \
	say("%-34s %s", what, wanted); \
} while (0)

/* What stands after `key` in /proc/self/smaps for the area that has this address: "8 kB", "rd wr mr". NULL if the key is
 * not there. */
static inline char *smaps_text(const void *at, const char *key)
{
	static char smaps[1 << 20];
	unsigned long start, end;
	int inside = 0;
	read_whole("/proc/self/smaps", smaps, sizeof smaps);
	for (char *text = smaps, *next; *text; text = next) {
		next = strchr(text, '\n');
		*next++ = 0;
		/* Only the line of an area begins with an address: keys begin with a capital letter and have a colon. */
		if (strchr("0123456789abcdef", text[0]) && sscanf(text, "%lx-%lx ", &start, &end) == 2)
			inside = start <= (unsigned long)at && (unsigned long)at < end;
		else if (inside && strncmp(text, key, strlen(key)) == 0 && text[strlen(key)] == ':')
			return text + strlen(key) + 1 + strspn(text + strlen(key) + 1, " ");
	}
	return NULL;
}

/* The same as a number (of KiB). */
static inline long smaps_value(const void *at, const char *key)
{
	char *text = smaps_text(at, key);
	if (!text)
		FAIL("smaps has no %s for %s", key, "the area");
	return strtol(text, NULL, 10);
}

/* Whether the area's VmFlags has this two-letter mnemonic. */
static inline int has_flag(const void *at, const char *mnemonic)
{
	char *text = smaps_text(at, "VmFlags");
	CHECK(text != NULL);
	for (; *text; text += 3)
		if (text[0] == mnemonic[0] && text[1] == mnemonic[1])
			return 1;
	return 0;
}

/* A number of /proc/self/status, in KiB. */
static inline long status_value(const char *key)
{
	static char status[8192];
	read_whole("/proc/self/status", status, sizeof status);
	char *text = strstr(status, key);
	if (!text)
		FAIL("status has no %s", key);
	return strtol(text + strlen(key) + 1, NULL, 10);
}

/* What can be read at an address, and written back: 'w' both, 'r' only read, '-' nothing. Asked without touching it: the
 * kernel copies from there and to there. */
static inline char access_of(void *at)
{
	static int ends[2];
	char byte;
	if (!ends[1])
		CHECK(pipe(ends) == 0);
	if (write(ends[1], at, 1) != 1) {
		CHECK_EQ(errno, EFAULT);
		return '-';
	}
	if (read(ends[0], at, 1) == 1)
		return 'w';
	CHECK_EQ(errno, EFAULT);
	CHECK(read(ends[0], &byte, 1) == 1);
	return 'r';
}

/* An address for `pages` pages, a multiple of `alignment`, far from everything else: there is no neighbour to merge with,
 * and what the kernel places itself does not come near. */
static inline unsigned char *place_for(size_t pages, size_t alignment)
{
	static uintptr_t next = 0x210000000000;
	uintptr_t base = (next + alignment - 1) / alignment * alignment;
	next = base + pages * PAGE + (16UL << 20);
	return (unsigned char *)base;
}

/* Private anonymous memory at such an address, readable and writable. */
static inline unsigned char *window_of(size_t pages, size_t alignment)
{
	unsigned char *base = place_for(pages, alignment);
	CHECK(mmap(base, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
	      base);
	return base;
}

/* A file in memory of that many pages, each filled with its number plus one. */
static inline int memory_file(const char *name, size_t pages)
{
	unsigned char page[PAGE];
	int fd = (int)syscall(SYS_memfd_create, name, 0);
	CHECK(fd >= 0);
	for (size_t number = 0; number < pages; number++) {
		memset(page, (int)number + 1, PAGE);
		CHECK_EQ(write(fd, page, PAGE), PAGE);
	}
	return fd;
}

#endif
