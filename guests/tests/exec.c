/* execve: arguments, environment, what a new program inherits and what not; vfork and posix_spawn. The test runs itself
 * with a first argument that says what to do. */
#include "check.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>

static char *self;
extern char **environ;

static pid_t started(char *const arguments[], char *const environment[])
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execve(self, arguments, environment);
		_exit(127);
	}
	return child;
}

/* In the new program: print the arguments and the environment. */
static int show(int count, char **arguments)
{
	say("argc %d", count);
	for (int i = 1; i < count; i++)
		say("argv[%d] \"%s\"", i, arguments[i]);
	for (char **entry = environ; *entry; entry++)
		say("env \"%s\"", *entry);
	return 17;
}

static void arguments_and_environment(void)
{
	char *arguments[] = { "name", "show", "", "two words", "\xc3\xa4\xff", NULL };
	char *environment[] = { "A=1", "EMPTY=", "B=x=y", NULL };
	expect_exit(started(arguments, environment), 17);
	char *none[] = { NULL };
	char *only[] = { "name", "show", NULL };
	expect_exit(started(only, none), 17);
}

/* 100 arguments of 1000 bytes, and one of 100,000. */
static int long_arguments(int count, char **arguments)
{
	CHECK_EQ(count, 103);
	for (int i = 2; i < 102; i++) {
		CHECK_EQ(strlen(arguments[i]), 1000);
		CHECK_EQ(arguments[i][999], 'a' + i % 26);
	}
	CHECK_EQ(strlen(arguments[102]), 100000);
	return 18;
}

static void many_arguments(void)
{
	static char text[100][1001], longest[100001];
	char *arguments[104] = { "name", "long" };
	for (int i = 0; i < 100; i++) {
		memset(text[i], 'a' + (i + 2) % 26, 1000);
		arguments[i + 2] = text[i];
	}
	memset(longest, 'z', 100000);
	arguments[102] = longest;
	expect_exit(started(arguments, environ), 18);
	static char too_long[4 * MIB];
	memset(too_long, 'z', sizeof too_long - 1);
	arguments[102] = too_long;
	CHECK_ERRNO(execve(self, arguments, environ), E2BIG);
	say("long arguments");
}

/* In the new program: descriptor 50 is there, 51 was marked close-on-exec; of the dispositions only "ignore" stays; the
 * mask stays; the memory is new. */
static unsigned char memory[64 * PAGE];
static int inherited(void)
{
	struct sigaction action;
	sigset_t mask;
	CHECK(fcntl(50, F_GETFD) == 0);
	CHECK_ERRNO(fcntl(51, F_GETFD), EBADF);
	CHECK_ERRNO(fcntl(52, F_GETFD), EBADF);
	CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
	CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
	CHECK_EQ(sigismember(&mask, SIGTERM), 1);
	CHECK_EQ(sigismember(&mask, SIGINT), 0);
	CHECK_EQ(umask(0), 027);
	for (size_t at = 0; at < sizeof memory; at++)
		CHECK(memory[at] == 0);
	char directory[64];
	CHECK(getcwd(directory, sizeof directory) != NULL);
	CHECK(strcmp(directory, "/") == 0);
	return 19;
}

static void handler(int signal) { (void)signal; }

static void inheritance(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char *arguments[] = { "name", "inherited", NULL };
		sigset_t mask;
		CHECK(dup2(1, 50) == 50);
		CHECK(dup3(1, 51, O_CLOEXEC) == 51);
		CHECK(dup2(1, 52) == 52 && fcntl(52, F_SETFD, FD_CLOEXEC) == 0);
		signal(SIGUSR1, handler);
		signal(SIGUSR2, SIG_IGN);
		sigemptyset(&mask);
		sigaddset(&mask, SIGTERM);
		CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
		umask(027);
		memset(memory, 0xee, sizeof memory);
		CHECK(chdir("/") == 0);
		execv(self, arguments);
		_exit(127);
	}
	expect_exit(child, 19);
	say("inherited: descriptors, ignored signals, mask, umask, directory");
}

static void failures(void)
{
	char *arguments[] = { "x", NULL };
	CHECK_ERRNO(execv("/no/such/program", arguments), ENOENT);
	CHECK_ERRNO(execv("/", arguments), EACCES);
	CHECK_ERRNO(execv(self, (char **)nowhere), EFAULT);
	CHECK_ERRNO(execv(nowhere, arguments), EFAULT);
	char path[] = "/tmp/exec-test.XXXXXX";
	mkdir("/tmp", 01777);
	int fd = mkstemp(path);
	CHECK(fd >= 0);
	CHECK(write(fd, "no program\n", 11) == 11);
	CHECK(fchmod(fd, 0600) == 0);
	close(fd);
	CHECK_ERRNO(execv(path, arguments), EACCES);
	CHECK(chmod(path, 0700) == 0);
	CHECK_ERRNO(execv(path, arguments), ENOEXEC);
	char below[80];
	snprintf(below, sizeof below, "%s/x", path);
	CHECK_ERRNO(execv(below, arguments), ENOTDIR);
	CHECK(unlink(path) == 0);
	say("failures leave the program as it was");
}

static volatile int written_by_child;

static void vforked(void)
{
	char *arguments[] = { "name", "exit", "21", NULL };
	pid_t child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		written_by_child = 1;
		execve(self, arguments, environ);
		_exit(127);
	}
	/* vfork returns only after the child's exec, and the child used this memory. */
	CHECK_EQ(written_by_child, 1);
	expect_exit(child, 21);
	child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		written_by_child = 2;
		_exit(5);
	}
	CHECK_EQ(written_by_child, 2);
	expect_exit(child, 5);
	say("vfork");
}

static void spawned(void)
{
	char *arguments[] = { "name", "exit", "22", NULL };
	pid_t child;
	CHECK_EQ(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0);
	expect_exit(child, 22);
	/* Its output through a pipe. */
	int ends[2];
	char got[64] = "";
	posix_spawn_file_actions_t actions;
	char *show_arguments[] = { "name", "show", "spawned", NULL };
	char *none[] = { NULL };
	CHECK(pipe(ends) == 0);
	CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
	CHECK_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), 0);
	CHECK_EQ(posix_spawn_file_actions_addclose(&actions, ends[0]), 0);
	CHECK_EQ(posix_spawn(&child, self, &actions, NULL, show_arguments, none), 0);
	close(ends[1]);
	size_t length = 0;
	for (ssize_t n; (n = read(ends[0], got + length, sizeof got - 1 - length)) > 0;)
		length += (size_t)n;
	close(ends[0]);
	expect_exit(child, 17);
	CHECK(strcmp(got, "argc 3\nargv[1] \"show\"\nargv[2] \"spawned\"\n") == 0);
	posix_spawn_file_actions_destroy(&actions);
	CHECK_EQ(posix_spawn(&child, "/no/such/program", NULL, NULL, arguments, environ), ENOENT);
	say("posix_spawn");
}

/* Each program starts the next in its own place: the process stays, its program changes. */
static int again(char *count, char *pid)
{
	CHECK_EQ(getpid(), atoi(pid));
	int left = atoi(count);
	if (left == 0)
		return 23;
	char next[16];
	snprintf(next, sizeof next, "%d", left - 1);
	char *arguments[] = { "name", "again", next, pid, NULL };
	execv(self, arguments);
	return 127;
}

int main(int count, char **arguments)
{
	static char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	CHECK(length > 0);
	self = path;
	if (count > 1 && !strcmp(arguments[1], "show"))
		return show(count, arguments);
	if (count > 1 && !strcmp(arguments[1], "long"))
		return long_arguments(count, arguments);
	if (count > 1 && !strcmp(arguments[1], "inherited"))
		return inherited();
	if (count > 1 && !strcmp(arguments[1], "exit"))
		return atoi(arguments[2]);
	if (count > 1 && !strcmp(arguments[1], "again"))
		return again(arguments[2], arguments[3]);
	arguments_and_environment();
	many_arguments();
	inheritance();
	failures();
	vforked();
	spawned();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char pid[16];
		snprintf(pid, sizeof pid, "%d", getpid());
		_exit(again("20", pid));
	}
	expect_exit(child, 23);
	say("20 programs in one process");
	return 0;
}
