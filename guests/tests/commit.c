/* Promises of memory: what overcommit modes 0, 1 and 2 refuse, what counts as promised, and vm.max_map_count. */
#include "check.h"

#include <sys/shm.h>

#define BOTH (PROT_READ | PROT_WRITE)
#define SLACK (4 * MIB)

static char text[1 << 16];

static long meminfo(const char *name)
{
	read_whole("/proc/meminfo", text, sizeof text);
	char *line = strstr(text, name);
	CHECK(line != NULL);
	return atol(strchr(line, ':') + 1);
}

static long setting(const char *name)
{
	char path[60];
	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	read_whole(path, text, sizeof text);
	return atol(text);
}

static void set(const char *name, long value)
{
	char path[60];
	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	int length = snprintf(text, sizeof text, "%ld\n", value), fd = open(path, O_WRONLY);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, (size_t)length), length);
	close(fd);
	CHECK_EQ(setting(name), value);
}

static void *map(size_t length, int protection, int flags)
{
	return mmap(NULL, length, protection, flags | MAP_ANONYMOUS, -1, 0);
}

static int maps(size_t length, int protection, int flags)
{
	void *at = map(length, protection, flags);
	if (at == MAP_FAILED) {
		CHECK_EQ(errno, ENOMEM);
		return 0;
	}
	CHECK(munmap(at, length) == 0);
	return 1;
}

static void heuristic(void)
{
	if (setting("overcommit_memory") == 0) {
		CHECK(!maps(1UL << 46, BOTH, MAP_PRIVATE));
		CHECK(!maps(1UL << 46, PROT_READ, MAP_SHARED));
		CHECK(maps(1UL << 46, BOTH, MAP_PRIVATE | MAP_NORESERVE));
		CHECK(maps(1UL << 46, PROT_READ, MAP_PRIVATE));
		CHECK(maps(1UL << 46, PROT_NONE, MAP_PRIVATE));
		void *at = map(1UL << 46, PROT_READ, MAP_PRIVATE);
		CHECK(at != MAP_FAILED);
		CHECK_ERRNO(mprotect(at, 1UL << 46, BOTH), ENOMEM);
		CHECK(munmap(at, 1UL << 46) == 0);
	}
	say("heuristic");
}

static void always(void)
{
	set("overcommit_memory", 1);
	CHECK(maps(1UL << 46, BOTH, MAP_PRIVATE));
	CHECK(maps(1UL << 46, BOTH, MAP_SHARED));
	set("overcommit_memory", 0);
}

static void never(void)
{
	/* Room for 64 MiB beside what is promised already. */
	set("overcommit_memory", 1);
	set("overcommit_kbytes", meminfo("Committed_AS") + 64 * 1024);
	CHECK_EQ(setting("overcommit_ratio"), 0);
	CHECK_EQ(meminfo("CommitLimit"), setting("overcommit_kbytes"));
	set("overcommit_memory", 2);
	size_t room = 64 * MIB;
	CHECK(maps(room - SLACK, BOTH, MAP_PRIVATE));
	CHECK(!maps(room + SLACK, BOTH, MAP_PRIVATE));
	CHECK(!maps(room + SLACK, BOTH, MAP_PRIVATE | MAP_NORESERVE));
	CHECK(!maps(room + SLACK, PROT_READ, MAP_SHARED));
	CHECK(maps(room - SLACK, PROT_READ, MAP_SHARED));
	CHECK(maps(room + SLACK, PROT_READ, MAP_PRIVATE));
	CHECK(maps(room + SLACK, PROT_NONE, MAP_PRIVATE));

	char *big = map(2 * room, PROT_NONE, MAP_PRIVATE);
	CHECK(big != MAP_FAILED);
	CHECK_ERRNO(mprotect(big, room + SLACK, BOTH), ENOMEM);
	CHECK(mprotect(big, 40 * MIB, BOTH) == 0);
	CHECK(!maps(30 * MIB, BOTH, MAP_PRIVATE));
	/* What was promised once and used stays so while it is mapped, */
	big[0] = 1;
	CHECK(mprotect(big, 40 * MIB, PROT_NONE) == 0);
	CHECK(!maps(30 * MIB, BOTH, MAP_PRIVATE));
	/* and a child would need as much again. */
	errno = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(child == -1 && errno == ENOMEM);
	CHECK(munmap(big, 10 * MIB) == 0);
	CHECK(maps(30 * MIB, BOTH, MAP_PRIVATE));
	CHECK(munmap(big + 10 * MIB, 10 * MIB) == 0);
	IN_CHILD(0, CHECK(!maps(40 * MIB, BOTH, MAP_PRIVATE)));
	CHECK(maps(40 * MIB, BOTH, MAP_PRIVATE));
	CHECK(munmap(big + 20 * MIB, 2 * room - 20 * MIB) == 0);

	char *moved = map(40 * MIB, BOTH, MAP_PRIVATE);
	CHECK(moved != MAP_FAILED);
	CHECK(mremap(moved, 40 * MIB, 80 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	moved = mremap(moved, 40 * MIB, 50 * MIB, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	CHECK(!maps(30 * MIB, BOTH, MAP_PRIVATE));
	CHECK(munmap(moved, 50 * MIB) == 0);

	unsigned char *end = raw_brk(NULL);
	CHECK(raw_brk(end + room + SLACK) == end);
	CHECK(raw_brk(end + room / 2) == end + room / 2);
	CHECK(!maps(room / 2 + SLACK, BOTH, MAP_PRIVATE));
	CHECK(raw_brk(end) == end);

	CHECK_ERRNO(shmget(IPC_PRIVATE, room + SLACK, 0600), ENOMEM);
	int id = shmget(IPC_PRIVATE, room / 2, 0600);
	CHECK(id >= 0);
	CHECK(!maps(room / 2 + SLACK, BOTH, MAP_PRIVATE));
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(maps(room - SLACK, BOTH, MAP_PRIVATE));

	/* A file in memory is promised page by page, as it gets them. */
	int file = (int)syscall(SYS_memfd_create, "promises", 0);
	CHECK(file >= 0 && ftruncate(file, (off_t)(2 * room)) == 0);
	CHECK(maps(room - SLACK, BOTH, MAP_PRIVATE));
	CHECK(fallocate(file, 0, 0, (off_t)(room / 2)) == 0);
	CHECK(!maps(room / 2 + SLACK, BOTH, MAP_PRIVATE));
	CHECK(maps(room / 2 - SLACK, BOTH, MAP_PRIVATE));
	CHECK(fallocate(file, 0, 0, (off_t)(room + SLACK)) == -1 && errno == ENOSPC);
	CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(room / 4)) == 0);
	CHECK(maps(room / 2 + SLACK, BOTH, MAP_PRIVATE));
	CHECK(close(file) == 0);
	CHECK(maps(room - SLACK, BOTH, MAP_PRIVATE));
	char *shared = map(2 * room, BOTH, MAP_SHARED | MAP_NORESERVE);
	CHECK(shared == MAP_FAILED && errno == ENOMEM);

	set("overcommit_memory", 0);
	set("overcommit_ratio", 50);
	CHECK_EQ(setting("overcommit_kbytes"), 0);
}

static void map_count(void)
{
	long before = setting("max_map_count");
	set("max_map_count", 100);
	char *at = map(400 * PAGE, PROT_NONE, MAP_PRIVATE);
	CHECK(at != MAP_FAILED);
	int made = 0;
	while (made < 200 && mprotect(at + 2 * made * PAGE, PAGE, PROT_READ) == 0)
		made++;
	CHECK(made > 30 && made < 50 && errno == ENOMEM);
	/* mmap may make one more than there should be. */
	int more = 0;
	while (more < 10 && map(PAGE, more % 2 ? BOTH : PROT_READ, MAP_PRIVATE) != MAP_FAILED)
		more++;
	CHECK(more <= 2 && errno == ENOMEM);
	set("max_map_count", before);
	CHECK(maps(PAGE, BOTH, MAP_PRIVATE));
	CHECK(munmap(at, 400 * PAGE) == 0);
}

int main(void)
{
	heuristic();
	/* Started by the first process of all, the machine is ours; else its settings are none of our business. */
	if (getppid() == 1) {
		always();
		never();
		map_count();
	}
	say("settings");
	return 0;
}
