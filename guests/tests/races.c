/* What must look as if it happened at once, tried by several threads and processes at the same time. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>

static volatile int stop;

static void start(pthread_t *thread, void *(*body)(void *), long number)
{
	CHECK_EQ(pthread_create(thread, NULL, body, (void *)number), 0);
}

static void join(pthread_t thread)
{
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* ---- Records that are written as a whole are read as a whole. */

#define RECORD 600

static int ends[2];

static void *write_records(void *number)
{
	char record[RECORD];
	memset(record, 'a' + (int)(long)number, sizeof record);
	for (int i = 0; i < 300; i++)
		CHECK_EQ(write(ends[1], record, sizeof record), RECORD);
	return NULL;
}

static void check_record(const char *record)
{
	for (int i = 1; i < RECORD; i++)
		if (record[i] != record[0])
			FAIL("a record of '%c' has '%c' at %d", record[0], record[i], i);
}

static void pipe_records(void)
{
	pthread_t threads[3];
	char record[RECORD];
	CHECK_EQ(pipe(ends), 0);
	for (long i = 0; i < 3; i++)
		start(&threads[i], write_records, i);
	for (int i = 0; i < 900; i++) {
		size_t got = 0;
		while (got < RECORD) {
			ssize_t part = read(ends[0], record + got, RECORD - got);
			CHECK(part > 0);
			got += (size_t)part;
		}
		check_record(record);
	}
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	close(ends[0]);
	close(ends[1]);
	say("records in a pipe are whole");
}

static void *append_records(void *number)
{
	char record[RECORD];
	int fd = open("/tmp/races-log", O_WRONLY | O_APPEND);
	CHECK(fd >= 0);
	memset(record, 'a' + (int)(long)number, sizeof record);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(write(fd, record, sizeof record), RECORD);
	close(fd);
	return NULL;
}

static void appended_records(void)
{
	pthread_t threads[3];
	char record[RECORD];
	int fd = open("/tmp/races-log", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	for (long i = 0; i < 3; i++)
		start(&threads[i], append_records, i);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	for (int i = 0; i < 600; i++) {
		CHECK_EQ(read(fd, record, RECORD), RECORD);
		check_record(record);
	}
	CHECK_EQ(read(fd, record, RECORD), 0);
	close(fd);
	say("records appended to a file are whole, none is lost");
}

/* Two writes at the same offset: one of them is what is there afterwards. */
static void *overwrite(void *number)
{
	static char bytes[3][3 * PAGE];
	long self = (long)number;
	int fd = open("/tmp/races-log", O_WRONLY);
	CHECK(fd >= 0);
	memset(bytes[self], 'a' + (int)self, sizeof bytes[self]);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(pwrite(fd, bytes[self], sizeof bytes[self], 100), (long)sizeof bytes[self]);
	close(fd);
	return NULL;
}

static void whole_writes(void)
{
	static char bytes[3 * PAGE];
	for (int round = 0; round < 10; round++) {
		pthread_t threads[3];
		for (long i = 0; i < 3; i++)
			start(&threads[i], overwrite, i);
		for (int i = 0; i < 3; i++)
			join(threads[i]);
		int fd = open("/tmp/races-log", O_RDONLY);
		CHECK_EQ(pread(fd, bytes, sizeof bytes, 100), (long)sizeof bytes);
		close(fd);
		for (size_t i = 1; i < sizeof bytes; i++)
			CHECK_EQ(bytes[i], bytes[0]);
	}
	CHECK_EQ(unlink("/tmp/races-log"), 0);
	say("of two writes to one place one wins");
}

/* ---- Names. */

static void *rename_over(void *unused)
{
	(void)unused;
	while (!stop) {
		int fd = open("/tmp/races-new", O_WRONLY | O_CREAT, 0600);
		CHECK(fd >= 0);
		close(fd);
		CHECK_EQ(rename("/tmp/races-new", "/tmp/races-name"), 0);
	}
	return NULL;
}

static void renames(void)
{
	pthread_t thread;
	struct stat status;
	int fd = open("/tmp/races-name", O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0);
	close(fd);
	stop = 0;
	start(&thread, rename_over, 0);
	for (int i = 0; i < 5000; i++)
		if (stat("/tmp/races-name", &status) != 0)
			FAIL("a name that is replaced all the time was not there: %s", strerror(errno));
	stop = 1;
	join(thread);
	CHECK_EQ(unlink("/tmp/races-name"), 0);
	say("a name that is replaced is always there");
}

static volatile long made;

static void *make_and_remove(void *unused)
{
	(void)unused;
	for (int i = 0; i < 500; i++) {
		int fd = open("/tmp/races-once", O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd >= 0) {
			__atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
			close(fd);
			CHECK_EQ(unlink("/tmp/races-once"), 0);
			__atomic_fetch_sub(&made, 1, __ATOMIC_RELAXED);
		} else {
			CHECK_EQ(errno, EEXIST);
		}
		/* With or without the other one: it opens. */
		fd = open("/tmp/races-any", O_WRONLY | O_CREAT, 0600);
		CHECK(fd >= 0);
		close(fd);
		unlink("/tmp/races-any");
	}
	return NULL;
}

static void creations(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		start(&threads[i], make_and_remove, i);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	CHECK_EQ(made, 0);
	CHECK_ERRNO(unlink("/tmp/races-once"), ENOENT);
	say("a name is made once");
}

static void *open_and_close(void *unused)
{
	(void)unused;
	for (int i = 0; i < 500; i++) {
		int fd = open("/dev/null", O_RDONLY);
		CHECK(fd >= 0);
		int other = dup(fd);
		CHECK(other >= 0 && other != fd);
		CHECK_EQ(close(fd), 0);
		CHECK_EQ(close(other), 0);
	}
	return NULL;
}

static void descriptors(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		start(&threads[i], open_and_close, i);
	for (int i = 0; i < 30; i++)
		IN_CHILD(0, CHECK(open("/dev/null", O_RDONLY) >= 0));
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	int fd = open("/dev/null", O_RDONLY);
	CHECK_EQ(fd, 3);
	close(fd);
	say("a number is given to one file");
}

/* A fifo whose other side opens, writes and closes at once. */
static void fifos(void)
{
	CHECK_EQ(mkfifo("/tmp/races-fifo", 0600), 0);
	for (int i = 0; i < 150; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			int fd = open("/tmp/races-fifo", O_WRONLY);
			_exit(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0 ? 0 : 1);
		}
		char byte;
		int fd = open("/tmp/races-fifo", O_RDONLY);
		CHECK(fd >= 0);
		CHECK_EQ(read(fd, &byte, 1), 1);
		close(fd);
		expect_exit(child, 0);
	}
	CHECK_EQ(unlink("/tmp/races-fifo"), 0);
	say("both sides of a fifo meet");
}

/* ---- Processes and signals. */

static volatile int received;

static void receive(int signal)
{
	(void)signal;
	__atomic_fetch_add(&received, 1, __ATOMIC_SEQ_CST);
}

static void *spin(void *unused)
{
	(void)unused;
	while (!stop)
		;
	return NULL;
}

static void signals(void)
{
	pthread_t threads[2];
	struct sigaction action = { .sa_handler = receive };
	sigaction(SIGUSR1, &action, NULL);
	stop = 0;
	for (int i = 0; i < 2; i++)
		start(&threads[i], spin, i);
	/* To a thread that runs and makes no call. */
	for (int i = 0; i < 200; i++) {
		int before = received;
		CHECK_EQ(pthread_kill(threads[i % 2], SIGUSR1), 0);
		while (received == before)
			sched_yield();
		CHECK_EQ(received, before + 1);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		join(threads[i]);
	say("a signal reaches a thread that makes no call");
}

/* A signal to the process, while the thread that may take it changes all the time: it is never lost. */
static void *block_and_unblock(void *unused)
{
	sigset_t set;
	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (!stop) {
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	}
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return NULL;
}

static void *briefly(void *unused)
{
	(void)unused;
	return NULL;
}

static void process_signals(void)
{
	pthread_t threads[3];
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	stop = 0;
	for (int i = 0; i < 2; i++)
		start(&threads[i], block_and_unblock, i);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	for (int i = 0; i < 300; i++) {
		int before = received;
		/* Threads that come and go could take it too. */
		start(&threads[2], briefly, 0);
		CHECK_EQ(kill(getpid(), SIGUSR1), 0);
		time_t begin = time(NULL);
		while (received == before) {
			if (time(NULL) - begin > 20)
				FAIL("signal %d was lost", i);
			sched_yield();
		}
		join(threads[2]);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		join(threads[i]);
	say("a signal to a process is taken by one of its threads");
}

/* All ways in which a process with running threads ends. */
static void *exit_all(void *status)
{
	_exit((int)(long)status);
}

static void ends_of_groups(void)
{
	for (int round = 0; round < 40; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			pthread_t threads[4];
			stop = 0;
			for (int i = 0; i < 3; i++)
				start(&threads[i], spin, i);
			switch (round % 4) {
			case 0:
				_exit(7);
			case 1:
				start(&threads[3], exit_all, 7);
				for (;;)
					pause();
			case 2:
				for (;;)
					pause();
			case 3: {
				char *const arguments[] = { "races", "7", NULL };
				execv("/proc/self/exe", arguments);
				_exit(1);
			}
			}
		}
		if (round % 4 == 2) {
			CHECK_EQ(kill(child, SIGKILL), 0);
			expect_signal(child, SIGKILL);
		} else {
			expect_exit(child, 7);
		}
	}
	say("a process ends with all of its threads, wherever they run");
}

static void stops(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		pthread_t threads[2];
		stop = 0;
		for (int i = 0; i < 2; i++)
			start(&threads[i], spin, i);
		spin(NULL);
	}
	for (int i = 0; i < 100; i++) {
		int status;
		CHECK_EQ(kill(child, SIGSTOP), 0);
		CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
		CHECK_EQ(kill(child, SIGCONT), 0);
		CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
		CHECK(WIFCONTINUED(status));
	}
	/* Whatever becomes of the stops, the last one that continues wins. */
	for (int i = 0; i < 200; i++) {
		kill(child, SIGSTOP);
		kill(child, SIGCONT);
	}
	int status;
	while (waitpid(child, &status, WUNTRACED | WCONTINUED | WNOHANG) > 0)
		;
	struct timespec moment = { 0, 20000000 };
	nanosleep(&moment, NULL);
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%d/stat", child);
	read_whole(path, line, sizeof line);
	if (strrchr(line, ')')[2] == 'T')
		FAIL("it is stopped after SIGCONT");
	CHECK_EQ(kill(child, SIGKILL), 0);
	expect_signal(child, SIGKILL);
	say("stops and continuations are reported, and the last one counts");
}

/* Threads make children and wait for them, each for its own. */
static void *make_children(void *number)
{
	for (int i = 0; i < 30; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit((int)(long)number);
		expect_exit(child, (int)(long)number);
	}
	return NULL;
}

static void children(void)
{
	pthread_t threads[4];
	for (long i = 0; i < 4; i++)
		start(&threads[i], make_children, i + 10);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	/* Orphans, whose parent ends while they do. */
	for (int i = 0; i < 40; i++) {
		IN_CHILD(3, {
			for (int j = 0; j < 3; j++)
				if (fork() == 0)
					_exit(0);
			_exit(3);
		});
	}
	CHECK_ERRNO(waitpid(-1, NULL, WNOHANG), ECHILD);
	say("each thread gets its own children back");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return atoi(argv[1]);
	alarm(200);
	pipe_records();
	appended_records();
	whole_writes();
	renames();
	creations();
	descriptors();
	fifos();
	signals();
	process_signals();
	ends_of_groups();
	stops();
	children();
	return 0;
}
