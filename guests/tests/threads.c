/* Threads: what they share, how they wait for each other, how they and their process end. */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#define THREADS 8
#define ROUNDS 20000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counter;
static int finished;
static __thread long own = 5;

static void *add(void *number)
{
	own += (long)number;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		counter++;
		pthread_mutex_unlock(&lock);
	}
	char *block = malloc(100000);
	CHECK(block != NULL);
	memset(block, (int)(long)number, 100000);
	free(block);
	pthread_mutex_lock(&lock);
	finished++;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return (void *)own;
}

static void together(void)
{
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, add, (void *)i), 0);
	pthread_mutex_lock(&lock);
	while (finished < THREADS)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	long sum = 0;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		CHECK_EQ(pthread_join(threads[i], &result), 0);
		sum += (long)result;
	}
	CHECK_EQ(counter, THREADS * ROUNDS);
	CHECK_EQ(sum, THREADS * 5 + 28);
	CHECK_EQ(own, 5);
	for (int i = 0; i < 200; i++) {
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, add, NULL), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	say("%d threads at once, 200 in a row", THREADS);
}

static volatile pid_t handled_by;

static void note_thread(int signal)
{
	(void)signal;
	handled_by = (pid_t)syscall(SYS_gettid);
}

static void *sleep_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

static void *sleep_until_handled(void *unused)
{
	(void)unused;
	/* Held back but while waiting: a signal between the look and the wait would be missed. */
	sigset_t none;
	sigemptyset(&none);
	while (!handled_by)
		sigsuspend(&none);
	CHECK_EQ(handled_by, syscall(SYS_gettid));
	CHECK(handled_by != getpid());
	return NULL;
}

static void signals(void)
{
	struct sigaction action = { .sa_handler = note_thread };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	sigset_t held, before;
	sigemptyset(&held);
	sigaddset(&held, SIGUSR1);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &held, &before), 0);
	pthread_t thread;
	/* To the thread itself; then to the process, where only that thread does not hold it back. */
	CHECK_EQ(pthread_create(&thread, NULL, sleep_until_handled, NULL), 0);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	handled_by = 0;
	CHECK_EQ(pthread_create(&thread, NULL, sleep_until_handled, NULL), 0);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	CHECK_EQ(pthread_create(&thread, NULL, sleep_for_ever, NULL), 0);
	CHECK_EQ(pthread_cancel(thread), 0);
	void *result;
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK_ERRNO(syscall(SYS_tgkill, getpid(), 999999, 0), ESRCH);
	CHECK_ERRNO(syscall(SYS_tgkill, 999999, getpid(), 0), ESRCH);
	say("signals to threads");
}

static void *fork_here(void *unused)
{
	(void)unused;
	IN_CHILD(3, {
		CHECK_EQ(syscall(SYS_gettid), getpid());
		_exit(3);
	});
	return NULL;
}

static void *exec_here(void *unused)
{
	(void)unused;
	char *arguments[] = { "threads", "again", NULL };
	execv("/proc/self/exe", arguments);
	return NULL;
}

static void *exit_here(void *unused)
{
	(void)unused;
	usleep(10000);
	exit(7);
}

static void *spin(void *word)
{
	for (;;)
		(*(volatile long *)word)++;
	return NULL;
}

static void start(void *(*body)(void *), int count)
{
	static long words[THREADS];
	for (int i = 0; i < count; i++) {
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, body, &words[i]), 0);
	}
}

static void ends(void)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, fork_here, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	say("a thread forks");
	IN_CHILD(9, {
		start(sleep_for_ever, 3);
		start(exec_here, 1);
		sleep_for_ever(NULL);
	});
	say("a thread calls exec");
	IN_CHILD(7, {
		start(sleep_for_ever, 3);
		start(exit_here, 1);
		sleep_for_ever(NULL);
	});
	say("a thread ends the process");
	IN_CHILD(7, {
		start(exit_here, 1);
		pthread_exit(NULL);
	});
	say("the first thread ends before the last");
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		start(spin, 3);
		sleep_for_ever(NULL);
	}
	usleep(20000);
	CHECK(kill(child, SIGSTOP) == 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(child, SIGCONT) == 0);
	CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
	CHECK(WIFCONTINUED(status));
	CHECK(kill(child, SIGKILL) == 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	say("all threads stop, go on and are killed together");
}

/* Waiting by way of memory that processes share. */
static void between_processes(void)
{
	struct shared {
		sem_t there, back;
		pthread_mutex_t lock;
	} *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK(sem_init(&shared->there, 1, 0) == 0 && sem_init(&shared->back, 1, 0) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (int i = 0; i < 1000; i++) {
			while (sem_wait(&shared->there) != 0)
				;
			sem_post(&shared->back);
		}
		_exit(0);
	}
	for (int i = 0; i < 1000; i++) {
		sem_post(&shared->there);
		while (sem_wait(&shared->back) != 0)
			;
	}
	expect_exit(child, 0);
	struct timespec soon;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 20000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	CHECK_ERRNO(sem_timedwait(&shared->there, &soon), ETIMEDOUT);

	pthread_mutexattr_t robust;
	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	CHECK_EQ(pthread_mutex_init(&shared->lock, &robust), 0);
	IN_CHILD(0, {
		CHECK_EQ(pthread_mutex_lock(&shared->lock), 0);
		_exit(0);
	});
	CHECK_EQ(pthread_mutex_lock(&shared->lock), EOWNERDEAD);
	CHECK_EQ(pthread_mutex_consistent(&shared->lock), 0);
	CHECK_EQ(pthread_mutex_unlock(&shared->lock), 0);
	CHECK(munmap(shared, PAGE) == 0);
	say("a thousand rounds between processes; a lock outlives its owner");
}

int main(int count, char **arguments)
{
	if (count > 1) {
		CHECK_EQ(strcmp(arguments[1], "again"), 0);
		CHECK_EQ(syscall(SYS_gettid), getpid());
		return 9;
	}
	together();
	signals();
	ends();
	between_processes();
	return 0;
}
