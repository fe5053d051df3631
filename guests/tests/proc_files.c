/* What /proc says about memory: smaps, smaps_rollup, pagemap, statm, meminfo, and the numbers of /proc/sys/vm. */
#include "check.h"

#include <sys/prctl.h>
#include <sys/shm.h>

static char text[1 << 18];
static char line[400];

/* The text about the area that begins at an address: without its first line, and what depends on the processor or on how a kernel was built. */
static int in_child;

static void print_area(const char *title, const void *at)
{
	char want[40];
	size_t length = (size_t)snprintf(want, sizeof want, "%08lx-", (unsigned long)at);
	read_whole("/proc/self/smaps", text, sizeof text);
	char *found = NULL;
	for (char *start = text; start != NULL && *start != 0; start = strchr(start, '\n') ? strchr(start, '\n') + 1 : NULL)
		if (strncmp(start, want, length) == 0)
			found = start;
	if (found == NULL)
		FAIL("smaps has no area %s", want);
	say("%s:", title);
	for (char *start = strchr(found, '\n') + 1; *start >= 'A' && *start <= 'Z'; start = strchr(start, '\n') + 1) {
		size_t size = strcspn(start, "\n");
		CHECK(size < sizeof line);
		memcpy(line, start, size);
		line[size] = 0;
		/* Linux gives a child pages that look as if nobody had accessed them; who shares their tables cannot tell. */
		if (strncmp(line, "ProtectionKey:", 14) == 0 || (in_child && strncmp(line, "Referenced:", 11) == 0))
			continue;
		if (strncmp(line, "VmFlags:", 8) == 0) {
			/* Whether a kernel tells dirty pages apart by a flag of their own is not looked at. */
			char *flag = strstr(line, " sd");
			if (flag)
				memmove(flag, flag + 3, strlen(flag + 3) + 1);
		}
		say("  %s", line);
	}
}

/* A number in KiB from a file of `Name:   123 kB`. */
static long number(const char *path, const char *name)
{
	size_t length = strlen(name);
	read_whole(path, text, sizeof text);
	for (char *start = text; start != NULL && *start != 0; start = strchr(start, '\n') ? strchr(start, '\n') + 1 : NULL)
		if (strncmp(start, name, length) == 0 && start[length] == ':')
			return atol(start + length + 1);
	FAIL("%s has no %s", path, name);
}

static char *map(size_t pages, int protection, int flags, int fd)
{
	char *at = mmap(NULL, pages * PAGE, protection, flags, fd, 0);
	CHECK(at != MAP_FAILED);
	/* Not with huge pages, and not one with what is beside it. */
	CHECK(madvise(at, pages * PAGE, MADV_NOHUGEPAGE) == 0);
	return at;
}

/* Pages apart from everything else. */
static char *alone(size_t pages, int protection)
{
	char *at = map(pages + 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(mprotect(at + PAGE, pages * PAGE, protection) == 0);
	return at + PAGE;
}

static void smaps(void)
{
	char *memory = alone(16, PROT_READ | PROT_WRITE);
	print_area("untouched", memory);
	memset(memory, 1, 5 * PAGE);
	print_area("five pages written", memory);
	for (size_t i = 8; i < 12; i++)
		CHECK_EQ(*(volatile char *)(memory + i * PAGE), 0);
	print_area("zeros read", memory);
	IN_CHILD(0, {
		in_child = 1;
		print_area("child", memory);
		memory[0] = 2;
		print_area("child, one page its own", memory);
	});
	print_area("after the child", memory);
	CHECK(mprotect(memory, 16 * PAGE, PROT_READ) == 0);
	print_area("read-only", memory);
	CHECK(madvise(memory, 16 * PAGE, MADV_DONTNEED) == 0);
	print_area("emptied", memory);
	CHECK(munmap(memory, 16 * PAGE) == 0);

	char *shared = map(8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	memset(shared, 1, 3 * PAGE);
	print_area("shared", shared);
	IN_CHILD(0, {
		/* Linux makes a child fault for what is shared anyway. */
		in_child = 1;
		for (size_t i = 0; i < 3; i++)
			shared[i * PAGE] = 2;
		print_area("shared with a child", shared);
	});
	CHECK(munmap(shared, 8 * PAGE) == 0);

	int fd = (int)syscall(SYS_memfd_create, "smaps", 0);
	CHECK(ftruncate(fd, 8 * PAGE) == 0);
	shared = map(8, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	char *private = map(8, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	shared[0] = 'x';
	shared[PAGE] = 'y';
	private[PAGE] = 'z';
	private[2 * PAGE] = 'z';
	print_area("file, shared", shared);
	print_area("file, private", private);
	munmap(shared, 8 * PAGE), munmap(private, 8 * PAGE), close(fd);
}

/* Pages of the program itself may be touched for the first time meanwhile. */
static int about(long got, long wanted)
{
	return got - wanted <= 128 && wanted - got <= 128;
}

static void rollup(void)
{
	long before = number("/proc/self/smaps_rollup", "Rss"), private = number("/proc/self/smaps_rollup", "Private_Dirty");
	char *memory = alone(1000, PROT_READ | PROT_WRITE);
	memset(memory, 1, 1000 * PAGE);
	CHECK(about(number("/proc/self/smaps_rollup", "Rss") - before, 4000));
	CHECK(about(number("/proc/self/smaps_rollup", "Private_Dirty") - private, 4000));
	CHECK(number("/proc/self/smaps_rollup", "Pss") >= 4000);
	CHECK(number("/proc/self/smaps_rollup", "Anonymous") >= 4000);
	CHECK_EQ(number("/proc/self/smaps_rollup", "Locked"), 0);
	char *first = text;
	read_whole("/proc/self/smaps_rollup", text, sizeof text);
	CHECK(strstr(first, "---p 00000000 00:00 0") && strstr(first, "[rollup]\n"));
	/* The names, in order. */
	for (char *start = strchr(text, '\n') + 1; *start != 0; start = strchr(start, '\n') + 1)
		say("rollup: %.*s", (int)strcspn(start, ":"), start);
	CHECK(munmap(memory, 1000 * PAGE) == 0);
	CHECK(about(number("/proc/self/smaps_rollup", "Rss"), before));
}

#define PRESENT (1UL << 63)
#define OF_FILE (1UL << 61)
#define EXCLUSIVE (1UL << 56)
#define FRAME ((1UL << 55) - 1)

static void entries(int fd, const void *at, uint64_t *out, size_t count)
{
	off_t offset = (off_t)((unsigned long)at / PAGE * 8);
	CHECK_EQ(pread(fd, out, count * 8, offset), count * 8);
	/* The soft-dirty bit is not looked at. */
	for (size_t i = 0; i < count; i++)
		out[i] &= ~(1UL << 55);
}

static void pagemap(void)
{
	uint64_t map_of[600], other[600];
	int fd = open("/proc/self/pagemap", O_RDONLY);
	CHECK(fd >= 0);
	char *memory = alone(600, PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < 600; i += 2)
		memory[i * PAGE] = 1;
	entries(fd, memory, map_of, 600);
	for (size_t i = 0; i < 600; i++)
		CHECK_EQ(map_of[i] & ~FRAME, i % 2 ? 0 : PRESENT | EXCLUSIVE);
	if (geteuid() == 0) {
		CHECK((map_of[0] & FRAME) != 0 && (map_of[0] & FRAME) != (map_of[2] & FRAME));
		/* Zeros that were read are one frame. */
		CHECK_EQ(*(volatile char *)(memory + PAGE), 0);
		CHECK_EQ(*(volatile char *)(memory + 3 * PAGE), 0);
		entries(fd, memory, other, 4);
		CHECK_EQ(other[1], other[3]);
		CHECK_EQ(other[1] & ~FRAME, PRESENT);
	}
	IN_CHILD(0, {
		memory[0] = 2;
		int own = open("/proc/self/pagemap", O_RDONLY);
		entries(own, memory, other, 600);
		CHECK_EQ(other[0] & ~FRAME, PRESENT | EXCLUSIVE);
		CHECK_EQ(other[2] & ~FRAME, PRESENT);
		CHECK_EQ(other[2] & FRAME, map_of[2] & FRAME);
		/* The file that was inherited is about the parent. */
		entries(fd, memory, other, 600);
		CHECK_EQ(other[0] & ~FRAME, PRESENT | EXCLUSIVE);
	});
	char *shared = map(3, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	shared[PAGE] = 1;
	entries(fd, shared, map_of, 3);
	CHECK_EQ(map_of[0], 0);
	CHECK_EQ(map_of[1] & ~FRAME, PRESENT | OF_FILE | EXCLUSIVE);
	CHECK_ERRNO(pread(fd, map_of, 12, 0), EINVAL);
	CHECK_ERRNO(pread(fd, map_of, 8, 4), EINVAL);
	CHECK_EQ(pread(fd, map_of, 8, (off_t)(1UL << 47) / 512), 0);
	CHECK_EQ(pread(fd, map_of, 16, (off_t)(1UL << 47) / 512 - 16), 8);
	CHECK_EQ(lseek(fd, 16, SEEK_SET), 16);
	CHECK_EQ(lseek(fd, 8, SEEK_CUR), 24);
	CHECK_ERRNO(lseek(fd, 0, SEEK_END), EINVAL);
	CHECK_EQ(read(fd, map_of, 16), 16);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 40);
	close(fd);
	if (geteuid() == 0)
		IN_CHILD(0, {
			CHECK(setgid(1000) == 0 && setuid(1000) == 0);
			CHECK_ERRNO(open("/proc/1/pagemap", O_RDONLY), EACCES);
			CHECK_ERRNO(open("/proc/1/maps", O_RDONLY), EACCES);
			CHECK_ERRNO(open("/proc/1/smaps", O_RDONLY), EACCES);
			CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
			fd = open("/proc/self/pagemap", O_RDONLY);
			CHECK(fd >= 0);
			entries(fd, memory, map_of, 3);
			CHECK_EQ(map_of[2], PRESENT);
		});
	munmap(memory, 600 * PAGE), munmap(shared, 3 * PAGE);
	say("pagemap");
}

/* Files that were opened before exec are about an address space that has gone. */
static void after_exec(char **arguments)
{
	char numbers[3][12];
	int maps = open("/proc/self/maps", O_RDONLY), smaps = open("/proc/self/smaps", O_RDONLY),
	    pagemap = open("/proc/self/pagemap", O_RDONLY);
	CHECK(maps >= 0 && smaps >= 0 && pagemap >= 0);
	CHECK_EQ(read(maps, text, 10), 10);
	snprintf(numbers[0], sizeof *numbers, "%d", maps);
	snprintf(numbers[1], sizeof *numbers, "%d", smaps);
	snprintf(numbers[2], sizeof *numbers, "%d", pagemap);
	IN_CHILD(0, {
		/* Opened by the child, as it is now. */
		maps = open("/proc/self/maps", O_RDONLY), smaps = open("/proc/self/smaps", O_RDONLY);
		pagemap = open("/proc/self/pagemap", O_RDONLY);
		snprintf(numbers[0], sizeof *numbers, "%d", maps);
		snprintf(numbers[1], sizeof *numbers, "%d", smaps);
		snprintf(numbers[2], sizeof *numbers, "%d", pagemap);
		execl("/proc/self/exe", arguments[0], numbers[0], numbers[1], numbers[2], (char *)NULL);
	});
	close(maps), close(smaps), close(pagemap);
	say("after exec");
}

static void executed(char **arguments)
{
	for (int i = 1; i <= 3; i++)
		CHECK_EQ(read(atoi(arguments[i]), text, 80), 0);
	exit(0);
}

static void statm(void)
{
	long size, resident, shared, code, library, data, dirty;
	long before_size, before_resident, before_data, before_shared;
	const char *format = "%ld %ld %ld %ld %ld %ld %ld";
	read_whole("/proc/self/statm", text, sizeof text);
	CHECK_EQ(sscanf(text, format, &before_size, &before_resident, &before_shared, &code, &library, &before_data, &dirty), 7);
	char *memory = alone(998, PROT_READ | PROT_WRITE);
	memset(memory, 1, 500 * PAGE);
	read_whole("/proc/self/statm", text, sizeof text);
	CHECK_EQ(sscanf(text, format, &size, &resident, &shared, &code, &library, &data, &dirty), 7);
	CHECK_EQ(size - before_size, 1000);
	CHECK(resident - before_resident >= 400 && resident - before_resident <= 600);
	CHECK_EQ(data - before_data, 998);
	CHECK(library == 0 && dirty == 0);
	CHECK(munmap(memory - PAGE, 1000 * PAGE) == 0);
	say("statm");
}

#define MUCH 65536L

static int is_much(const char *name, long before)
{
	long more = number("/proc/meminfo", name) - before;
	return more > MUCH - MUCH / 4 && more < MUCH + MUCH / 4;
}

static int is_little(const char *name, long before)
{
	return labs(number("/proc/meminfo", name) - before) < MUCH / 4;
}

static int private_seen(void)
{
	long anonymous = number("/proc/meminfo", "AnonPages"), committed = number("/proc/meminfo", "Committed_AS");
	char *memory = alone(MUCH / 4, PROT_READ | PROT_WRITE);
	memset(memory, 1, MUCH * 1024);
	int seen = is_much("AnonPages", anonymous) && is_much("Committed_AS", committed) &&
		   number("/proc/meminfo", "PageTables") >= 128;
	munmap(memory, MUCH * 1024);
	return seen && is_little("AnonPages", anonymous) && is_little("Committed_AS", committed);
}

static int shared_seen(void)
{
	long shmem = number("/proc/meminfo", "Shmem"), cached = number("/proc/meminfo", "Cached"),
	     mapped = number("/proc/meminfo", "Mapped"), committed = number("/proc/meminfo", "Committed_AS");
	char *memory = map(MUCH / 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	int seen = is_little("Shmem", shmem) && is_much("Committed_AS", committed);
	memset(memory, 1, MUCH * 1024);
	seen &= is_much("Shmem", shmem) && is_much("Cached", cached) && is_much("Mapped", mapped);
	munmap(memory, MUCH * 1024);
	return seen && is_little("Shmem", shmem) && is_little("Mapped", mapped);
}

static void meminfo(void)
{
	static const char *names[] = { "MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapTotal", "SwapFree",
		"AnonPages", "Mapped", "Shmem", "PageTables", "CommitLimit", "Committed_AS", "Mlocked", "Unevictable", "Active",
		"Inactive", "Slab", "VmallocTotal" };
	const char *path = "/proc/meminfo";
	long value[sizeof names / sizeof *names];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		value[i] = number(path, names[i]);
	CHECK(value[1] <= value[0] && value[2] <= value[0]);
	CHECK(value[0] > 0 && value[1] > 0);
	/* 64 MiB of each kind are seen. Other processes of the machine may come and go meanwhile: then once more. */
	for (int tries = 1; !private_seen() || !shared_seen(); tries++)
		CHECK(tries < 50);
	say("meminfo");
}

static ssize_t put(const char *path, const char *value, size_t length)
{
	int fd = open(path, O_WRONLY);
	CHECK(fd >= 0);
	ssize_t done = write(fd, value, length);
	int error = errno;
	close(fd);
	errno = error;
	return done;
}

/* Only what changes nothing: the machine may be somebody's. */
static void settings(void)
{
	static const char *names[] = { "max_map_count", "overcommit_memory", "overcommit_ratio", "overcommit_kbytes", "mmap_min_addr" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[60], value[40], again[40];
		snprintf(path, sizeof path, "/proc/sys/vm/%s", names[i]);
		size_t length = read_whole(path, value, sizeof value);
		say("%s is %s", names[i], i > 0 ? "a setting" : value);
		int fd = open(path, O_RDONLY);
		CHECK_EQ(read(fd, again, 1), 1);
		CHECK_EQ(read(fd, again, 10), 0);
		close(fd);
		CHECK_ERRNO(write(open(path, O_RDONLY), value, length), EBADF);
		if (geteuid() != 0)
			continue;
		static const char *bad[] = { "x", "", " ", "\n", "1x", "0x", "12345678901234567890123", "99999999999999999999", "--1",
			"- 1", "+1", "1,2", "1.5" };
		/* Setting one of the two makes the other 0, so they are left alone. */
		int pair = strcmp(names[i], "overcommit_ratio") == 0 || strcmp(names[i], "overcommit_kbytes") == 0;
		for (size_t j = 0; !pair && j < sizeof bad / sizeof *bad; j++) {
			size_t bytes = strlen(bad[j]);
			if (bytes == 0)
				CHECK_EQ(put(path, bad[j], 0), 0);
			else
				CHECK_ERRNO(put(path, bad[j], bytes), EINVAL);
		}
		if (pair)
			continue;
		CHECK_EQ(put(path, value, length), length);
		CHECK_EQ(put(path, value, length - 1), length - 1);
		int written = snprintf(again, sizeof again, " \t0x%lx \n", strtoul(value, NULL, 10));
		CHECK_EQ(put(path, again, (size_t)written), written);
		written = snprintf(again, sizeof again, "0%lo\n", strtoul(value, NULL, 10));
		CHECK_EQ(put(path, again, (size_t)written), written);
		/* The rest of a second number is left over. */
		written = snprintf(again, sizeof again, "%lu 7", strtoul(value, NULL, 10));
		CHECK_EQ(put(path, again, (size_t)written), written - 1);
		fd = open(path, O_WRONLY);
		CHECK_EQ(pwrite(fd, "nonsense", 8, 3), 8);
		CHECK_ERRNO(pwrite(fd, (char *)nowhere, 8, 0), EFAULT);
		close(fd);
		read_whole(path, again, sizeof again);
		CHECK(strcmp(again, value) == 0);
	}
	if (geteuid() == 0) {
		CHECK_ERRNO(put("/proc/sys/vm/overcommit_memory", "3", 1), EINVAL);
		CHECK_ERRNO(put("/proc/sys/vm/overcommit_memory", "-1", 2), EINVAL);
		CHECK_ERRNO(put("/proc/sys/vm/max_map_count", "-1", 2), EINVAL);
		CHECK_ERRNO(put("/proc/sys/vm/max_map_count", "2147483648", 10), EINVAL);
		IN_CHILD(0, {
			CHECK(setgid(1000) == 0 && setuid(1000) == 0);
			CHECK_ERRNO(open("/proc/sys/vm/max_map_count", O_WRONLY), EACCES);
			CHECK(open("/proc/sys/vm/max_map_count", O_RDONLY) >= 0);
		});
	}
	say("settings");
}

/* The last column of maps. */
static void name_of(const char *title, const void *at)
{
	char want[40];
	snprintf(want, sizeof want, "%08lx-", (unsigned long)at);
	read_whole("/proc/self/maps", text, sizeof text);
	char *found = strstr(text, want);
	CHECK(found != NULL);
	*strchr(found, '\n') = 0;
	unsigned major, minor;
	unsigned long offset, inode;
	char rights[5];
	int name = 0;
	CHECK(sscanf(found, "%*x-%*x %4s %lx %x:%x %lu %n", rights, &offset, &major, &minor, &inode, &name) == 5);
	say("%s: %s %lx %02x %s", title, rights, offset, major, found + name);
	if (inode == 0)
		CHECK(strncmp(found + name, "/SYSV", 5) == 0 || found[name] == 0);
}

static void names(void)
{
	int both = PROT_READ | PROT_WRITE;
	name_of("shared anonymous", map(3, both, MAP_SHARED | MAP_ANONYMOUS, -1));
	int id = shmget(0x12ab, 3 * PAGE, IPC_CREAT | IPC_EXCL | 0600);
	if (id < 0)
		id = shmget(0x12ab, 0, 0);
	CHECK(id >= 0);
	char *attached = shmat(id, NULL, 0);
	CHECK(attached != (void *)-1);
	name_of("a segment", attached);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	name_of("removed", attached);
	CHECK(shmdt(attached) == 0);
	int zero = open("/dev/zero", O_RDWR);
	name_of("/dev/zero, shared", map(3, both, MAP_SHARED, zero));
	close(zero);
	say("names");
}

int main(int count, char **arguments)
{
	if (count > 1)
		executed(arguments);
	smaps();
	rollup();
	pagemap();
	after_exec(arguments);
	statm();
	meminfo();
	settings();
	names();
	return 0;
}
