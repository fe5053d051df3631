/* What /proc says of mappings one by one, of children, of System V objects and of settings; personality, which says how
 * mappings are made; and a few rules beside it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/swap.h>

#include "check.h"

#ifndef MSG_COPY /* not in musl's headers */
#define MSG_COPY 040000
#endif

/* The whole of a small file. */
static char *text_of(const char *path)
{
	static char text[65536];
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	ssize_t length, all = 0;
	while ((length = read(fd, text + all, sizeof text - 1 - all)) > 0)
		all += length;
	CHECK(length == 0);
	text[all] = 0;
	close(fd);
	return text;
}

static void map_files(void)
{
	char path[64], name[128], link[128];
	int fd = open("/tmp/mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
	CHECK(write(fd, "content", 7) == 7);
	char *at = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	char *none = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED && none != MAP_FAILED);
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)at, (long)at + 4 * PAGE);
	ssize_t length = readlink(path, link, sizeof link);
	CHECK(length == 11 && !memcmp(link, "/tmp/mapped", 11));
	struct stat seen;
	CHECK(lstat(path, &seen) == 0 && S_ISLNK(seen.st_mode) && seen.st_size == 64);
	int again = open(path, O_RDONLY);
	CHECK(again >= 0 && read(again, link, 7) == 7 && !memcmp(link, "content", 7));
	close(again);
	snprintf(name, sizeof name, "%lx-%lx", (long)at, (long)at + 4 * PAGE);
	DIR *directory = opendir("/proc/self/map_files");
	CHECK(directory != NULL);
	int found = 0;
	for (struct dirent *entry; (entry = readdir(directory));)
		if (!strcmp(entry->d_name, name))
			found += entry->d_type == DT_LNK;
	CHECK_EQ(found, 1);
	closedir(directory);
	/* Not where it does not begin or end, with zeros before it, or where there is no file. */
	static const char *const forms[] = {"%lx-%lx", "0%lx-%lx", "%lx-0%lx"};
	for (int form = 0; form < 3; form++) {
		strcpy(path, "/proc/self/map_files/");
		snprintf(path + 21, 40, forms[form], (long)at, (long)at + (form ? 4 : 3) * PAGE);
		CHECK(readlink(path, link, sizeof link) == -1 && errno == ENOENT);
	}
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)none, (long)none + PAGE);
	CHECK(readlink(path, link, sizeof link) == -1 && errno == ENOENT);
	CHECK(munmap(at, PAGE) == 0);
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)at, (long)at + 4 * PAGE);
	CHECK(readlink(path, link, sizeof link) == -1 && errno == ENOENT);
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)at + PAGE, (long)at + 4 * PAGE);
	CHECK(readlink(path, link, sizeof link) == 11);
	int zeros = open("/dev/zero", O_RDONLY);
	char *of_device = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE, zeros, 0);
	CHECK(zeros >= 0 && of_device != MAP_FAILED);
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)of_device, (long)of_device + PAGE);
	CHECK(readlink(path, link, sizeof link) == 9 && !memcmp(link, "/dev/zero", 9));
	CHECK(munmap(of_device, PAGE) == 0 && close(zeros) == 0);
	CHECK(munmap(at + PAGE, 3 * PAGE) == 0 && munmap(none, PAGE) == 0 && unlink("/tmp/mapped") == 0);
	close(fd);
	say("map_files");
}

static int is_executable(void *at)
{
	char wanted[32], *line = text_of("/proc/self/maps");
	snprintf(wanted, sizeof wanted, "%08lx-", (long)at);
	line = strstr(line, wanted);
	CHECK(line != NULL);
	return strchr(line, ' ')[3] == 'x';
}

static void *map_page(int prot)
{
	void *at = mmap(NULL, PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	/* So that neighbours do not join it. */
	CHECK(madvise(at, PAGE, MADV_DONTFORK) == 0);
	return at;
}

static void personalities(void)
{
	CHECK_EQ(personality(0xffffffff), 0);
	CHECK_EQ(personality(ADDR_NO_RANDOMIZE), 0);
	CHECK_EQ(personality(0xffffffff), ADDR_NO_RANDOMIZE);
	CHECK(!strcmp(text_of("/proc/self/personality"), "00040000\n"));
	CHECK_EQ(personality(READ_IMPLIES_EXEC), ADDR_NO_RANDOMIZE);
	void *readable = map_page(PROT_READ), *nothing = map_page(PROT_NONE);
	CHECK(is_executable(readable) && !is_executable(nothing));
	CHECK(mprotect(nothing, PAGE, PROT_READ | PROT_WRITE) == 0 && is_executable(nothing));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(personality(0xffffffff), READ_IMPLIES_EXEC);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK_EQ(personality(0), READ_IMPLIES_EXEC);
	CHECK(mprotect(nothing, PAGE, PROT_READ) == 0 && !is_executable(nothing));
	CHECK(munmap(readable, PAGE) == 0 && munmap(nothing, PAGE) == 0);
	say("personality");
}

static void children(void)
{
	char wanted[32];
	int gate[2];
	CHECK(!strcmp(text_of("/proc/thread-self/children"), "") && pipe(gate) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) != 0);
	}
	snprintf(wanted, sizeof wanted, "%d ", child);
	CHECK(!strcmp(text_of("/proc/thread-self/children"), wanted));
	close(gate[1]);
	CHECK(access("/proc/self/children", F_OK) == -1 && errno == ENOENT);
	int status;
	/* Its directory knows that it is gone. */
	char path[32];
	snprintf(path, sizeof path, "/proc/%d", child);
	int directory = open(path, O_RDONLY | O_DIRECTORY);
	CHECK(directory >= 0 && syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0) == -1 && errno == ESRCH);
	CHECK(!strcmp(text_of("/proc/thread-self/children"), ""));
	close(directory);
	close(gate[0]);
	say("children");
}

/* Words of the line that begins with a key, from the third on; returns how many there are in all. */
static int row(const char *path, int key, int id, unsigned long *words)
{
	char wanted[32], *line = text_of(path);
	snprintf(wanted, sizeof wanted, "\n%10d %10d ", key, id);
	line = strstr(line, wanted);
	if (!line)
		return 0;
	line += 23;
	int count = 2;
	for (char *end; *line != '\n'; line = end) {
		words[count] = strtoul(line, &end, count == 2 ? 8 : 10);
		count++;
	}
	return count;
}

static void system_v(void)
{
	unsigned long words[20];
	int key = 0x5a17;
	int shm = shmget(key, 3 * PAGE + 1, IPC_CREAT | 0640);
	int msg = msgget(key, IPC_CREAT | 0600);
	int sem = semget(key, 3, IPC_CREAT | 0604);
	CHECK(shm >= 0 && msg >= 0 && sem >= 0);
	char *at = shmat(shm, NULL, 0);
	CHECK(at != (char *)-1);
	at[0] = 1;
	CHECK_EQ(row("/proc/sysvipc/shm", key, shm, words), 16);
	CHECK_EQ(words[2], 0640);
	CHECK_EQ(words[3], 3 * PAGE + 1);
	CHECK_EQ(words[4], getpid());
	CHECK_EQ(words[6], 1);
	CHECK_EQ(words[14], PAGE);
	struct { long kind; char text[8]; } message = {3, "one"};
	CHECK(msgsnd(msg, &message, 4, 0) == 0);
	message.kind = 4;
	CHECK(msgsnd(msg, &message, 8, 0) == 0);
	CHECK_EQ(row("/proc/sysvipc/msg", key, msg, words), 14);
	CHECK_EQ(words[2], 0600);
	CHECK_EQ(words[3], 12);
	CHECK_EQ(words[4], 2);
	CHECK_EQ(row("/proc/sysvipc/sem", key, sem, words), 10);
	CHECK_EQ(words[2], 0604);
	CHECK_EQ(words[3], 3);
	/* By place, and left there. */
	CHECK(msgrcv(msg, &message, 8, 1, MSG_COPY | IPC_NOWAIT) == 8 && message.kind == 4);
	CHECK(msgrcv(msg, &message, 8, 0, MSG_COPY | IPC_NOWAIT) == 4 && message.kind == 3);
	CHECK(msgrcv(msg, &message, 8, 2, MSG_COPY | IPC_NOWAIT) == -1 && errno == ENOMSG);
	CHECK(msgrcv(msg, &message, 8, -1, MSG_COPY | IPC_NOWAIT) == -1 && errno == ENOMSG);
	CHECK(msgrcv(msg, &message, 8, 0, MSG_COPY) == -1 && errno == EINVAL);
	CHECK(msgrcv(msg, &message, 8, 0, MSG_COPY | IPC_NOWAIT | MSG_EXCEPT) == -1 && errno == EINVAL);
	CHECK(msgrcv(msg, &message, 8, 0, IPC_NOWAIT) == 4);
	CHECK(shmctl(shm, IPC_RMID, NULL) == 0 && msgctl(msg, IPC_RMID, NULL) == 0 && semctl(sem, 0, IPC_RMID) == 0);
	CHECK_EQ(row("/proc/sysvipc/shm", 0, shm, words), 16);
	CHECK_EQ(words[2], 01640);
	CHECK(shmdt(at) == 0);
	CHECK_EQ(row("/proc/sysvipc/shm", 0, shm, words), 0);
	CHECK_EQ(row("/proc/sysvipc/msg", key, msg, words), 0);
	say("System V");
}

static void settings(void)
{
	static const char *const numbers[] = {"vm/swappiness", "vm/dirty_ratio", "vm/page-cluster", "kernel/shmmax", "kernel/shmmni",
		"kernel/msgmax", "kernel/cap_last_cap", "kernel/ngroups_max", "kernel/overflowuid", "fs/overflowgid"};
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		char path[64], *end;
		snprintf(path, sizeof path, "/proc/sys/%s", numbers[i]);
		char *text = text_of(path);
		strtoull(text, &end, 10);
		CHECK(end > text && !strcmp(end, "\n"));
	}
	long set, all, call, sets;
	CHECK(sscanf(text_of("/proc/sys/kernel/sem"), "%ld %ld %ld %ld", &set, &all, &call, &sets) == 4 && set * sets == all);
	struct stat seen;
	CHECK(stat("/proc/sys/vm/drop_caches", &seen) == 0 && (seen.st_mode & 07777) == 0200);
	CHECK(stat("/proc/sys/vm/swappiness", &seen) == 0 && (seen.st_mode & 07777) == 0644);
	CHECK(stat("/proc/sys/kernel/ngroups_max", &seen) == 0 && (seen.st_mode & 07777) == 0444);
	int fd = open("/proc/sys/vm/swappiness", O_RDWR);
	if (fd >= 0)
		CHECK(write(fd, "201", 3) == -1 && errno == EINVAL && write(fd, "x", 1) == -1 && errno == EINVAL);
	say("settings");
}

static void idle_time(void)
{
	double up, idle, up_before = 0, idle_before = 0;
	for (int i = 0; i < 300; i++) {
		CHECK(sscanf(text_of("/proc/uptime"), "%lf %lf", &up, &idle) == 2);
		CHECK(up >= up_before && idle >= idle_before);
		up_before = up, idle_before = idle;
	}
	say("uptime");
}

/* Files in memory are nothing to swap to. */
static void swapping(void)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", memfd_create("swap", 0));
	CHECK_ERRNO(swapon(path, 0), EINVAL);
	CHECK_ERRNO(swapon(path, 0x900000), EINVAL);
	CHECK_ERRNO(swapoff(path), EINVAL);
	CHECK_ERRNO(swapon("/proc", 0), EISDIR);
	CHECK_ERRNO(swapon("/none", 0), ENOENT);
	say("swap");
}

static void small_stack(void)
{
	static char small[2048];
	stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
	CHECK(sigaltstack(&stack, NULL) == 0);
	stack.ss_size--;
	CHECK(sigaltstack(&stack, NULL) == -1 && errno == ENOMEM);
	say("small alternate stack");
}

int main(void)
{
	map_files();
	personalities();
	children();
	system_v();
	settings();
	idle_time();
	swapping();
	small_stack();
	return 0;
}
