/* Readers of maps: PROCMAP_QUERY with its errors, and which state a reader sees that goes on, goes back, or jumps. */
#include "areas.h"
#include <sys/ioctl.h>

/* linux/fs.h of Linux 6.11 and later. */
struct query {
	uint64_t size, flags, address;
	uint64_t start, end, area_flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};
#define PROCMAP_QUERY _IOWR('f', 17, struct query)
enum { READABLE = 1, WRITABLE = 2, EXECUTABLE = 4, SHARED = 8, OR_NEXT = 16, FILE_BACKED = 32 };

_Static_assert(sizeof(struct query) == 104, "as Linux has it");

static int maps_fd;

static long ask(struct query *query, uint64_t flags, const void *address)
{
	query->size = sizeof *query;
	query->flags = flags;
	query->address = (uint64_t)address;
	return ioctl(maps_fd, PROCMAP_QUERY, query);
}

/* The area that is found: `FIRST+PAGES FLAGS`, in pages of the window, or the error. */
static void expect(uint64_t flags, const unsigned char *window, int page, const char *wanted)
{
	struct query query = { 0 };
	char got[100];
	if (ask(&query, flags, window + page * (long)PAGE) == 0)
		snprintf(got, sizeof got, "%ld+%ld %ld", (long)(query.start - (uint64_t)window) / (long)PAGE,
			 (long)(query.end - query.start) / (long)PAGE, (long)query.area_flags);
	else
		snprintf(got, sizeof got, "%s", strerror(errno));
	if (strcmp(got, wanted) != 0)
		FAIL("page %d, flags %d: %s, not %s", page, (int)flags, got, wanted);
}

static void searching(void)
{
	unsigned char *window = window_of(16, PAGE);
	int file = memory_file("searched", 2);
	const int map = MAP_FIXED | MAP_PRIVATE;
	CHECK(munmap(window + 4 * PAGE, 2 * PAGE) == 0);
	CHECK(mprotect(window, PAGE, PROT_NONE) == 0);
	CHECK(mmap(window + 8 * PAGE, 2 * PAGE, PROT_READ | PROT_EXEC, map, file, 0) != MAP_FAILED);
	CHECK(mmap(window + 12 * PAGE, PAGE, PROT_READ, MAP_FIXED | MAP_SHARED, file, PAGE) != MAP_FAILED);
	expect(0, window, 0, "0+1 0");
	expect(0, window, 3, "1+3 3");
	expect(0, window, 4, "No such file or directory");
	expect(OR_NEXT, window, 4, "6+2 3");
	expect(READABLE, window, 0, "No such file or directory");
	expect(READABLE | OR_NEXT, window, 0, "1+3 3");
	expect(EXECUTABLE | OR_NEXT, window, 0, "8+2 5");
	expect(EXECUTABLE | READABLE, window, 9, "8+2 5");
	expect(SHARED | OR_NEXT, window, 0, "12+1 9");
	expect(FILE_BACKED, window, 7, "No such file or directory");
	expect(FILE_BACKED | OR_NEXT, window, 0, "8+2 5");
	expect(FILE_BACKED | OR_NEXT, window, 10, "12+1 9");
	expect(WRITABLE | OR_NEXT, window, 12, "13+3 3");
	struct query query = { 0 };
	CHECK_EQ(ask(&query, 0, window + 12 * PAGE), 0);
	CHECK_EQ(query.offset, PAGE);
	CHECK(query.inode != 0 && query.page_size == PAGE && query.name_size == 0 && query.build_id_size == 0);
	CHECK(munmap(window, 16 * PAGE) == 0 && close(file) == 0);
}

static void names(void)
{
	unsigned char *end = raw_brk(NULL), on_stack;
	char name[PAGE];
	struct query query = { .name_size = sizeof name, .name = (uint64_t)name };
	CHECK(raw_brk(end + PAGE) == end + PAGE);
	CHECK_EQ(ask(&query, 0, end), 0);
	CHECK(strcmp(name, "[heap]") == 0 && query.name_size == 7);
	query.name_size = sizeof name;
	CHECK_EQ(ask(&query, 0, &on_stack), 0);
	CHECK(strcmp(name, "[stack]") == 0 && query.name_size == 8);
	query.name_size = 8;
	CHECK_EQ(ask(&query, 0, &on_stack), 0);
	query.name_size = 7;
	CHECK_ERRNO(ask(&query, 0, &on_stack), ENAMETOOLONG);
	unsigned char *window = window_of(1, PAGE);
	query.name_size = sizeof name;
	CHECK_EQ(ask(&query, 0, window), 0);
	CHECK_EQ(query.name_size, 0);
	int file = memory_file("a\nb", 1);
	CHECK(mmap(window, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE, file, 0) == window);
	query.name_size = sizeof name;
	CHECK_EQ(ask(&query, 0, window), 0);
	CHECK(strcmp(name, "/memfd:a\nb (deleted)") == 0);
	CHECK(munmap(window, PAGE) == 0 && close(file) == 0 && raw_brk(end) == end);
}

/* An ELF file with a note that has a build id. */
static void build_ids(void)
{
	unsigned char id[32];
	struct query query = { .build_id = (uint64_t)id };
	uint32_t note[9] = { 4, 20, 3, 0x554e47, 0x01020304, 5, 6, 7, 8 };
	uint16_t one = 1, dynamic = 3;
	uint32_t note_segment = 4;
	uint64_t headers = 64, notes = 120, size = sizeof note;
	int file = memory_file("library", 1);
	CHECK_EQ(pwrite(file, "\177ELF\2\1\1", 8, 0), 8);
	CHECK_EQ(pwrite(file, &dynamic, 2, 16), 2);
	CHECK_EQ(pwrite(file, &headers, 8, 32), 8);
	CHECK_EQ(pwrite(file, &one, 2, 56), 2);
	CHECK_EQ(pwrite(file, &note_segment, 4, 64), 4);
	CHECK_EQ(pwrite(file, &notes, 8, 72), 8);
	CHECK_EQ(pwrite(file, &size, 8, 96), 8);
	CHECK_EQ(pwrite(file, note, sizeof note, 120), sizeof note);
	unsigned char *window = window_of(2, PAGE);
	CHECK(mmap(window, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE, file, 0) == window);
	query.build_id_size = sizeof id;
	CHECK_EQ(ask(&query, 0, window), 0);
	CHECK(query.build_id_size == 20 && memcmp(id, note + 4, 20) == 0);
	query.build_id_size = 19;
	CHECK_ERRNO(ask(&query, 0, window), ENAMETOOLONG);
	query.build_id_size = sizeof id;
	CHECK_EQ(ask(&query, 0, window + PAGE), 0);
	CHECK_EQ(query.build_id_size, 0);
	CHECK(munmap(window, 2 * PAGE) == 0 && close(file) == 0);
}

static void errors(void)
{
	struct { struct query query; uint64_t more; } longer = { 0 };
	struct query query = { 0 };
	int on_stack, smaps = open("/proc/self/smaps", O_RDONLY);
	CHECK(smaps >= 0);
	CHECK_ERRNO(ioctl(smaps, PROCMAP_QUERY, &query), ENOTTY);
	CHECK_ERRNO(ioctl(maps_fd, PROCMAP_QUERY + 1, &query), ENOTTY);
	CHECK_ERRNO(ioctl(maps_fd, PROCMAP_QUERY, nowhere), EFAULT);
	query.size = 23;
	CHECK_ERRNO(ioctl(maps_fd, PROCMAP_QUERY, &query), EINVAL);
	query.size = PAGE + 1;
	CHECK_ERRNO(ioctl(maps_fd, PROCMAP_QUERY, &query), E2BIG);
	longer.query.size = sizeof longer;
	longer.query.address = (uint64_t)&on_stack;
	CHECK_EQ(ioctl(maps_fd, PROCMAP_QUERY, &longer), 0);
	CHECK(longer.query.start <= (uint64_t)&on_stack && (uint64_t)&on_stack < longer.query.end);
	longer.more = 1;
	CHECK_ERRNO(ioctl(maps_fd, PROCMAP_QUERY, &longer), E2BIG);
	CHECK_ERRNO(ask(&query, 64, &on_stack), EINVAL);
	query.name_size = 1;
	CHECK_ERRNO(ask(&query, 0, &on_stack), EINVAL);
	CHECK(close(smaps) == 0);

	/* The file is bound to the address space that it was opened on. */
	int ready[2], maps = -1;
	char path[64], byte, last = 0;
	CHECK(pipe(ready) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(ready[0], 0) == 0 && close(ready[1]) == 0);
		CHECK(read(0, &byte, 1) == 1);
		execl("/proc/self/exe", "procmap", "wait", NULL);
		_exit(1);
	}
	snprintf(path, sizeof path, "/proc/%d/maps", child);
	CHECK((maps = open(path, O_RDONLY)) >= 0);
	int before = maps_fd;
	maps_fd = maps;
	memset(&query, 0, sizeof query);
	CHECK_EQ(ask(&query, OR_NEXT, NULL), 0);
	CHECK_EQ(read(maps, &byte, 1), 1);
	CHECK(write(ready[1], "x", 1) == 1);
	for (int tries = 0; ask(&query, OR_NEXT, NULL) == 0; tries++) {
		CHECK(tries < 10000);
		usleep(1000);
	}
	CHECK_EQ(errno, ESRCH);
	/* A line that was begun comes to its end. */
	size_t rest = 0;
	while (read(maps, &byte, 1) == 1) {
		CHECK(++rest < 200);
		last = byte;
	}
	CHECK(rest > 0 && last == '\n');
	CHECK_EQ(pread(maps, &byte, 1, 0), 0);
	CHECK_ERRNO(ask(&query, 64, NULL), EINVAL);
	CHECK(close(ready[1]) == 0);
	expect_exit(child, 0);
	CHECK(close(maps) == 0 && close(ready[0]) == 0);
	maps_fd = before;
}

static char text[1 << 18], now[1 << 18];

/* The whole file as another descriptor sees it now. */
static size_t look(char *buffer)
{
	return read_whole("/proc/self/maps", buffer, sizeof text);
}

static void positions(void)
{
	unsigned char *window = window_of(3, PAGE);
	int fd = open("/proc/self/maps", O_RDONLY);
	CHECK(fd >= 0);
	size_t length = look(text);
	/* From the start, in small pieces, nothing changes. */
	for (size_t at = 0, got; at < length; at += got) {
		char piece[7];
		CHECK((got = (size_t)read(fd, piece, sizeof piece)) > 0 && got <= sizeof piece);
		CHECK(memcmp(piece, text + at, got) == 0);
	}
	CHECK_EQ(read(fd, now, 1), 0);
	/* At its end it stays at its end; back at the start it shows what is there now. */
	CHECK(mprotect(window + PAGE, PAGE, PROT_READ) == 0);
	CHECK_EQ(read(fd, now, 1), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	length = look(now);
	CHECK(strcmp(text, now) != 0);
	for (size_t at = 0, got; at < length; at += got) {
		CHECK((got = (size_t)read(fd, text, 1000)) > 0);
		CHECK(memcmp(text, now + at, got) == 0);
	}
	/* So does a read at an offset, the start or another one: the file's position has nothing to do with it. */
	CHECK(munmap(window, PAGE) == 0);
	length = look(now);
	CHECK(pread(fd, text, 50, 0) == 50 && memcmp(text, now, 50) == 0);
	CHECK(munmap(window + PAGE, PAGE) == 0);
	length = look(now);
	size_t got = (size_t)pread(fd, text, sizeof text, (off_t)length - 300);
	CHECK(got == 300 && memcmp(text, now + length - 300, 300) == 0);
	CHECK_EQ(pread(fd, text, 1, (off_t)length), 0);
	CHECK_EQ(pread(fd, text, 1, (off_t)length + 1000), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), lseek(fd, 0, SEEK_CUR));
	CHECK_ERRNO(lseek(fd, 0, SEEK_END), EINVAL);
	/* Anywhere else that the position is put. */
	CHECK_EQ(lseek(fd, 100, SEEK_SET), 100);
	CHECK(read(fd, text, 100) == 100 && memcmp(text, now + 100, 100) == 0);
	CHECK(munmap(window + 2 * PAGE, PAGE) == 0 && close(fd) == 0);
	say("positions");
}

int main(int count, char **arguments __attribute__((unused)))
{
	if (count > 1) {
		char byte;
		return read(0, &byte, 1) == 0 ? 0 : 1;
	}
	maps_fd = open("/proc/self/maps", O_RDONLY);
	CHECK(maps_fd >= 0);
	struct query query = { 0 };
	positions();
	if (!lacks("PROCMAP_QUERY", ask(&query, OR_NEXT, NULL) == 0)) {
		searching();
		names();
		build_ids();
		errors();
	}
	say("searching, names, build ids, errors");
	return 0;
}
