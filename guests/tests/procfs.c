/* /proc/self and /proc/PID: what the kernel says about a process agrees with what the process knows. */
#include "check.h"
#include <ctype.h>
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static char text[1 << 17];
static char own_path[4096];
static int in_data = 1;

struct area {
	unsigned long start, end, offset, inode;
	char permissions[5], name[256];
};

static struct area areas[1000];

/* Reads maps, checks the form of each line, and gives the number of areas. */
static size_t read_maps(void)
{
	size_t count = 0;
	read_whole("/proc/self/maps", text, sizeof text);
	for (char *line = text, *end; *line; line = end + 1, count++) {
		struct area *area = &areas[count];
		unsigned major, minor;
		int at_name = 0;
		end = strchr(line, '\n');
		CHECK(end != NULL && count < 1000);
		*end = 0;
		area->name[0] = 0;
		CHECK(sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n%255[^\n]", &area->start, &area->end, area->permissions,
			     &area->offset, &major, &minor, &area->inode, &at_name, area->name) >= 7);
		/* The form that other programs rely on. */
		char form[400];
		int length = snprintf(form, sizeof form, "%08lx-%08lx %s %08lx %02x:%02x %lu ", area->start, area->end,
				      area->permissions, area->offset, major, minor, area->inode);
		CHECK(strncmp(line, form, (size_t)length) == 0);
		if (area->name[0])
			CHECK_EQ(at_name, length > 72 ? length + 1 : 73);
		CHECK(area->start < area->end && area->start % PAGE == 0 && area->end % PAGE == 0);
		CHECK(count == 0 || areas[count - 1].end <= area->start);
		CHECK(strlen(area->permissions) == 4 && strspn(area->permissions, "rwxps-") == 4);
	}
	return count;
}

static struct area *area_at(const void *at)
{
	size_t count = read_maps();
	for (size_t i = 0; i < count; i++)
		if ((unsigned long)at >= areas[i].start && (unsigned long)at < areas[i].end)
			return &areas[i];
	return NULL;
}

static int is_area(const void *at, const char *permissions, const char *name)
{
	struct area *area = area_at(at);
	return area && strcmp(area->permissions, permissions) == 0 && strcmp(area->name, name) == 0;
}

static void maps(void)
{
	unsigned char on_stack;
	unsigned char *end = raw_brk(NULL);
	CHECK(raw_brk(end + PAGE) == end + PAGE);
	CHECK(is_area((void *)(uintptr_t)maps, "r-xp", own_path));
	CHECK(is_area(&in_data, "rw-p", own_path));
	CHECK(is_area(end + PAGE - 1, "rw-p", "[heap]"));
	CHECK(is_area(&on_stack, "rw-p", "[stack]"));
	CHECK(area_at((void *)(uintptr_t)maps)->inode != 0);
	CHECK(area_at(nowhere) == NULL);
	unsigned char *base = map_pages(9, PROT_READ | PROT_WRITE);
	CHECK(mprotect(base, PAGE, PROT_NONE) == 0 && mprotect(base + 8 * PAGE, PAGE, PROT_NONE) == 0);
	struct area *area = area_at(base + PAGE);
	CHECK(area && area->start == (unsigned long)(base + PAGE) && area->end == (unsigned long)(base + 8 * PAGE));
	CHECK(strcmp(area->permissions, "rw-p") == 0 && area->name[0] == 0);
	CHECK(area->inode == 0 && area->offset == 0);
	CHECK(mprotect(base + 3 * PAGE, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
	area = area_at(base + 3 * PAGE);
	CHECK(area && area->start == (unsigned long)(base + 3 * PAGE) && area->end == (unsigned long)(base + 5 * PAGE));
	CHECK(strcmp(area->permissions, "r-xp") == 0);
	CHECK(strcmp(area_at(base)->permissions, "---p") == 0);
	CHECK(munmap(base, 9 * PAGE) == 0);
	CHECK(area_at(base + 3 * PAGE) == NULL || area_at(base + 3 * PAGE)->start != (unsigned long)(base + 3 * PAGE));
	void *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && strcmp(area_at(shared)->permissions, "r--s") == 0);
	CHECK(munmap(shared, PAGE) == 0);
	CHECK(raw_brk(end) == end);
	say("maps");
}

/* A line of status, without the spaces before its value. */
static const char *status_line(const char *path, const char *name)
{
	static char value[256];
	size_t length = strlen(name);
	read_whole(path, text, sizeof text);
	for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, name, length) == 0 && line[length] == ':') {
			line += length + 1;
			while (isspace((unsigned char)*line))
				line++;
			size_t size = strcspn(line, "\n");
			CHECK(size < sizeof value);
			memcpy(value, line, size);
			value[size] = 0;
			return value;
		}
	FAIL("%s has no line %s", path, name);
}

static long kib(const char *name)
{
	char *unit;
	long value = strtol(status_line("/proc/self/status", name), &unit, 10);
	CHECK(strcmp(unit, " kB") == 0);
	return value;
}

/* Linux counts resident pages per processor and adds them up coarsely. */
static int near(long got, long wanted)
{
	return got - wanted <= 1024 && wanted - got <= 1024;
}

static void status(void)
{
	const char *path = "/proc/self/status";
	CHECK_EQ(atol(status_line(path, "Pid")), getpid());
	CHECK_EQ(atol(status_line(path, "Tgid")), getpid());
	CHECK_EQ(atol(status_line(path, "PPid")), getppid());
	CHECK_EQ(atol(status_line(path, "Threads")), 1);
	CHECK(strcmp(status_line(path, "State"), "R (running)") == 0);
	CHECK_EQ(atol(status_line(path, "Uid")), getuid());
	CHECK(prctl(PR_SET_NAME, "another name") == 0);
	CHECK(strcmp(status_line(path, "Name"), "another name") == 0);
	size_t pages = 10000;
	long before = kib("VmSize"), resident = kib("VmRSS"), tables = kib("VmPTE"), anonymous = kib("RssAnon");
	unsigned char *base = map_pages(pages, PROT_READ | PROT_WRITE);
	madvise(base, pages * PAGE, MADV_NOHUGEPAGE);
	CHECK_EQ(kib("VmSize") - before, pages * 4);
	CHECK(near(kib("VmRSS") - resident, 0));
	for (size_t page = 0; page < pages; page++)
		base[page * PAGE] = 1;
	CHECK(near(kib("VmRSS") - resident, (long)pages * 4));
	CHECK(near(kib("RssAnon") - anonymous, (long)pages * 4));
	CHECK(kib("VmHWM") >= kib("VmRSS") - 1024);
	CHECK(kib("VmPTE") - tables >= (long)pages / 512 * 4);
	CHECK(munmap(base + pages / 2 * PAGE, pages / 2 * PAGE) == 0);
	CHECK(near(kib("VmRSS") - resident, (long)pages * 2));
	CHECK_EQ(kib("VmSize") - before, pages * 2);
	IN_CHILD(0, { /* what it shares is resident in the child, too */
		CHECK(near(kib("VmRSS") - resident, (long)pages * 2));
		CHECK_EQ(kib("VmSize") - before, pages * 2);
	});
	CHECK(munmap(base, pages / 2 * PAGE) == 0);
	CHECK_EQ(kib("VmSize"), before);
	CHECK(near(kib("VmRSS"), resident));
	CHECK(kib("VmStk") >= 4 && kib("VmStk") <= 8192);
	CHECK(kib("VmExe") > 0 && kib("VmData") > 0);
	say("status");
}

static void statm_and_stat(void)
{
	long size, resident, shared, code, library, data, dirty;
	read_whole("/proc/self/statm", text, sizeof text);
	CHECK(sscanf(text, "%ld %ld %ld %ld %ld %ld %ld", &size, &resident, &shared, &code, &library, &data, &dirty) == 7);
	CHECK_EQ(size, kib("VmSize") / 4);
	CHECK(near(resident * 4, kib("VmRSS")));
	CHECK(shared <= resident && library == 0 && dirty == 0);
	int pid, parent, group, session, fields = 0;
	char name[32], state;
	read_whole("/proc/self/stat", text, sizeof text);
	CHECK(sscanf(text, "%d (%30[^)]) %c %d %d %d", &pid, name, &state, &parent, &group, &session) == 6);
	CHECK_EQ(pid, getpid());
	CHECK_EQ(parent, getppid());
	CHECK_EQ(group, getpgrp());
	CHECK_EQ(session, getsid(0));
	CHECK(state == 'R' && strcmp(name, "another name") == 0);
	for (char *at = text; *at; at++)
		fields += *at == ' ' || *at == '\n';
	say("stat has %d fields", fields - 1); /* the name has a space */
}

static void links_and_lists(char **arguments)
{
	char path[64], target[4096];
	ssize_t length = readlink("/proc/self", target, sizeof target - 1);
	CHECK(length > 0);
	target[length] = 0;
	CHECK_EQ(atoi(target), getpid());
	size_t size = read_whole("/proc/self/cmdline", text, sizeof text);
	CHECK_EQ(size, strlen(arguments[0]) + 1 + strlen(arguments[1]) + 1);
	CHECK(strcmp(text, arguments[0]) == 0 && strcmp(text + strlen(text) + 1, "an argument") == 0);
	snprintf(path, sizeof path, "/proc/%d/exe", getpid());
	length = readlink(path, target, sizeof target - 1);
	CHECK(length > 0);
	target[length] = 0;
	CHECK(strcmp(target, own_path) == 0);
	/* Descriptors: those that are open, and one for the directory itself. */
	int fd = open("/dev/null", O_RDONLY);
	CHECK_EQ(dup2(fd, 77), 77);
	DIR *directory = opendir("/proc/self/fd");
	int found = 0;
	CHECK(directory != NULL);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
		found |= atoi(entry->d_name) == 77 ? 1 : atoi(entry->d_name) == dirfd(directory) ? 2 : 0;
	CHECK_EQ(found, 3);
	CHECK(closedir(directory) == 0);
	length = readlink("/proc/self/fd/77", target, sizeof target);
	CHECK(length == 9 && memcmp(target, "/dev/null", 9) == 0);
	char byte;
	int again = open("/proc/self/fd/77", O_RDONLY);
	CHECK(again >= 0 && read(again, &byte, 1) == 0);
	close(fd), close(77), close(again);
	CHECK_ERRNO(readlink("/proc/self/fd/77", target, sizeof target), ENOENT);
	say("links and lists");
}

static void other_processes(void)
{
	char path[64];
	int gate[2], found = 0;
	CHECK(pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		close(gate[1]);
		CHECK_EQ(read(gate[0], &byte, 1), 0);
		_exit(0);
	}
	snprintf(path, sizeof path, "/proc/%d/status", child);
	CHECK_EQ(atol(status_line(path, "PPid")), getpid());
	for (int tries = 0; strcmp(status_line(path, "State"), "S (sleeping)") != 0 && tries < 1000; tries++)
		usleep(1000);
	CHECK(strcmp(status_line(path, "State"), "S (sleeping)") == 0);
	DIR *directory = opendir("/proc");
	CHECK(directory != NULL);
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
		found += atoi(entry->d_name) == child || atoi(entry->d_name) == getpid();
	CHECK(closedir(directory) == 0);
	CHECK_EQ(found, 2);
	close(gate[0]), close(gate[1]);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
	CHECK(strcmp(status_line(path, "State"), "Z (zombie)") == 0);
	snprintf(path, sizeof path, "/proc/%d/maps", child);
	CHECK_EQ(read_whole(path, text, sizeof text), 0);
	expect_exit(child, 0);
	CHECK_ERRNO(open(path, O_RDONLY), ENOENT);
	CHECK_ERRNO(open("/proc/999999/status", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("/proc/none", O_RDONLY), ENOENT);
	say("other processes");
}

/* A maps file is read in small pieces, and the pieces make the whole. */
static void in_pieces(void)
{
	char piece[7];
	static char joined[1 << 17];
	size_t total = 0, whole = read_whole("/proc/self/maps", text, sizeof text);
	int fd = open("/proc/self/maps", O_RDONLY);
	for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0; total += (size_t)n) {
		CHECK(n > 0);
		memcpy(joined + total, piece, (size_t)n);
	}
	CHECK_EQ(total, whole);
	CHECK(memcmp(joined, text, whole) == 0);
	CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(read(fd, piece, sizeof piece), sizeof piece);
	CHECK(memcmp(piece, text, sizeof piece) == 0);
	close(fd);
	say("in pieces");
}

int main(int count, char **arguments)
{
	ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
	CHECK(length > 0);
	if (count == 1) {
		char *again[] = { "a name", "an argument", NULL };
		execv(own_path, again);
		FAIL("execv");
	}
	maps();
	status();
	statm_and_stat();
	links_and_lists(arguments);
	other_processes();
	in_pieces();
	return 0;
}
