/* Processes by descriptor: pidfd_open, polling for the end, waitid, pidfd_send_signal, process_mrelease. */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#define OF_THREAD 0200

static int pidfd_open(pid_t pid, unsigned flags)
{
	return (int)syscall(434, pid, flags);
}

static int send_by(int fd, int signal, const siginfo_t *info, unsigned flags)
{
	return (int)syscall(424, fd, signal, info, flags);
}

static int mrelease(int fd, unsigned flags)
{
	return (int)syscall(448, fd, flags);
}

static int wait_by(int fd, siginfo_t *info, int options)
{
	memset(info, 0, sizeof *info);
	return waitid((idtype_t)P_PIDFD, (id_t)fd, info, options);
}

/* What it is ready for, waiting so many milliseconds. */
static int ready(int fd, int milliseconds)
{
	struct pollfd one = { fd, POLLIN | POLLOUT, 0 };
	int found = poll(&one, 1, milliseconds);
	CHECK(found >= 0);
	CHECK_EQ(found, one.revents != 0);
	return one.revents;
}

static pid_t sleeper(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	return child;
}

static void opening(void)
{
	char path[40], target[40] = "";
	int fd = pidfd_open(getpid(), 0), other = pidfd_open(getpid(), O_NONBLOCK);
	CHECK(fd >= 0 && other >= 0);
	CHECK_ERRNO(pidfd_open(0, 0), EINVAL);
	CHECK_ERRNO(pidfd_open(-1, 0), EINVAL);
	CHECK_ERRNO(pidfd_open(-1, 1), EINVAL);
	CHECK_ERRNO(pidfd_open(getpid(), 1), EINVAL);
	CHECK_ERRNO(pidfd_open(99999, 0), ESRCH);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(fd, F_GETFL), O_RDWR);
	CHECK_EQ(fcntl(other, F_GETFL), O_RDWR | O_NONBLOCK);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	CHECK_EQ(readlink(path, target, sizeof target), 18);
	CHECK(strcmp(target, "anon_inode:[pidfd]") == 0);
	CHECK_ERRNO(read(fd, target, 1), EINVAL);
	CHECK_ERRNO(write(fd, target, 1), EINVAL);
	CHECK_ERRNO(lseek(fd, 0, SEEK_SET), ESPIPE);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
	CHECK_EQ(ready(fd, 0), 0);
	close(fd), close(other);
	say("opening");
}

static void waiting(void)
{
	siginfo_t info;
	pid_t child = sleeper();
	int fd = pidfd_open(child, 0), polite = pidfd_open(child, O_NONBLOCK), self = pidfd_open(getpid(), 0);
	CHECK_ERRNO(wait_by(-1, &info, WEXITED), EINVAL);
	CHECK_ERRNO(wait_by(0, &info, WEXITED), EBADF);
	CHECK_ERRNO(wait_by(900, &info, WEXITED), EBADF);
	CHECK_ERRNO(wait_by(self, &info, WEXITED), ECHILD);
	CHECK_ERRNO(wait_by(polite, &info, WEXITED), EAGAIN);
	CHECK_EQ(wait_by(polite, &info, WEXITED | WNOHANG), 0);
	CHECK_EQ(info.si_pid, 0);
	CHECK_EQ(ready(fd, 0), 0);
	CHECK(send_by(fd, SIGKILL, NULL, 0) == 0);
	CHECK_EQ(ready(fd, -1), POLLIN);
	CHECK_EQ(wait_by(fd, &info, WEXITED | WNOWAIT), 0);
	CHECK_EQ(info.si_pid, child);
	/* A zombie can still be sent signals. */
	CHECK(send_by(fd, SIGKILL, NULL, 0) == 0);
	int again = pidfd_open(child, 0);
	CHECK(again >= 0);
	CHECK_EQ(wait_by(fd, &info, WEXITED), 0);
	CHECK_EQ(info.si_pid, child);
	CHECK_EQ(info.si_code, CLD_KILLED);
	CHECK_EQ(info.si_status, SIGKILL);
	CHECK_EQ(ready(fd, -1), POLLIN | POLLHUP);
	CHECK_EQ(ready(again, -1), POLLIN | POLLHUP);
	CHECK_ERRNO(wait_by(fd, &info, WEXITED), ECHILD);
	CHECK_ERRNO(send_by(fd, 0, NULL, 0), ESRCH);
	CHECK_ERRNO(pidfd_open(child, 0), ESRCH);
	close(fd), close(polite), close(self), close(again);

	/* poll waits for the end. */
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		usleep(20000);
		_exit(5);
	}
	fd = pidfd_open(child, 0);
	CHECK_EQ(ready(fd, -1), POLLIN);
	CHECK_EQ(wait_by(fd, &info, WEXITED), 0);
	CHECK_EQ(info.si_status, 5);
	close(fd);
	say("waiting");
}

static volatile sig_atomic_t got_signal, got_value, got_thread;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)context;
	got_signal = signal;
	got_value = info->si_value.sival_int;
	got_thread = (sig_atomic_t)syscall(SYS_gettid);
}

static void sending(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	siginfo_t info = { 0 };
	pid_t child = sleeper();
	int fd = pidfd_open(child, 0), self = pidfd_open(getpid(), 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(send_by(fd, 0, NULL, 0) == 0);
	CHECK_ERRNO(send_by(fd, 65, NULL, 0), EINVAL);
	CHECK_ERRNO(send_by(fd, -1, NULL, 0), EINVAL);
	CHECK_ERRNO(send_by(fd, 0, NULL, 16), EINVAL);
	CHECK_ERRNO(send_by(fd, 0, NULL, 3), EINVAL);
	CHECK_ERRNO(send_by(0, SIGKILL, NULL, 0), EBADF);
	CHECK_ERRNO(send_by(-1, SIGKILL, NULL, 0), EBADF);
	CHECK_ERRNO(send_by(fd, SIGUSR1, (void *)nowhere, 0), EFAULT);
	info.si_signo = SIGUSR2, info.si_code = SI_QUEUE;
	CHECK_ERRNO(send_by(fd, SIGUSR1, &info, 0), EINVAL);
	info.si_signo = SIGUSR1, info.si_code = SI_USER;
	CHECK_ERRNO(send_by(fd, SIGUSR1, &info, 0), EPERM);
	CHECK(send_by(fd, 0, NULL, 1) == 0);
	CHECK(send_by(fd, 0, NULL, 2) == 0);
	/* It leads no group. */
	CHECK_ERRNO(send_by(fd, 0, NULL, 4), ESRCH);
	info.si_code = SI_QUEUE, info.si_value.sival_int = 77;
	CHECK(send_by(self, SIGUSR1, &info, 0) == 0);
	CHECK_EQ(got_signal, SIGUSR1);
	CHECK_EQ(got_value, 77);
	got_signal = 0;
	CHECK(send_by(self, SIGUSR1, NULL, 0) == 0);
	CHECK_EQ(got_signal, SIGUSR1);
	CHECK(send_by(fd, SIGTERM, NULL, 0) == 0);
	expect_signal(child, SIGTERM);
	close(fd), close(self);
	say("sending");
}

static sem_t started, leave;
static pid_t thread_number;

static void *thread(void *unused)
{
	thread_number = (pid_t)syscall(SYS_gettid);
	sem_post(&started);
	while (sem_wait(&leave) != 0)
		;
	return unused;
}

static void threads(void)
{
	pthread_t id;
	siginfo_t info;
	sem_init(&started, 0, 0), sem_init(&leave, 0, 0);
	CHECK_EQ(pthread_create(&id, NULL, thread, NULL), 0);
	while (sem_wait(&started) != 0)
		;
	CHECK(thread_number != getpid());
	int fd = pidfd_open(thread_number, OF_THREAD), self = pidfd_open(getpid(), OF_THREAD);
	CHECK(fd >= 0 && self >= 0);
	got_thread = 0;
	CHECK(send_by(fd, SIGUSR1, NULL, 0) == 0);
	while (got_thread == 0)
		sched_yield();
	CHECK_EQ(got_thread, thread_number);
	CHECK(send_by(self, SIGUSR1, NULL, 0) == 0);
	CHECK_EQ(got_thread, getpid());
	CHECK_ERRNO(wait_by(fd, &info, WEXITED), ECHILD);
	CHECK_EQ(ready(fd, 0), 0);
	sem_post(&leave);
	CHECK((ready(fd, -1) & POLLIN) != 0);
	CHECK_EQ(pthread_join(id, NULL), 0);
	close(fd), close(self);
	say("threads");
}

/* A child and its descriptor in one call, by both calls that can. */
static void cloning(void)
{
	siginfo_t info;
	int fd = -1;
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} arguments = { 0x1000, (uintptr_t)&fd, 0, 0, SIGCHLD, 0, 0, 0 };
	for (int round = 0; round < 2; round++) {
		pid_t child = (pid_t)(round == 0 ? syscall(SYS_clone, 0x1000UL | SIGCHLD, NULL, &fd, NULL, 0UL)
						 : syscall(435, &arguments, sizeof arguments));
		CHECK(child >= 0);
		if (child == 0) {
			/* It has no such descriptor: the number was told to its parent. */
			_exit(fcntl(fd, F_GETFD) == -1 && round == 0 ? 31 : 30 + round);
		}
		CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
		CHECK_EQ(ready(fd, -1), POLLIN);
		CHECK_EQ(wait_by(fd, &info, WEXITED), 0);
		CHECK_EQ(info.si_pid, child);
		CHECK_EQ(info.si_status, 31);
		close(fd);
	}
	CHECK_ERRNO(syscall(SYS_clone, 0x101000UL | SIGCHLD, NULL, &fd, NULL, 0UL), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, 0x1000UL | SIGCHLD, NULL, nowhere, NULL, 0UL), EFAULT);
	CHECK_ERRNO(waitpid(-1, NULL, 0), ECHILD);
	say("cloning");
}

static void releasing(void)
{
	siginfo_t info;
	pid_t child = sleeper();
	int fd = pidfd_open(child, 0);
	CHECK_ERRNO(mrelease(fd, 1), EINVAL);
	CHECK_ERRNO(mrelease(-1, 0), EBADF);
	CHECK_ERRNO(mrelease(0, 0), EBADF);
	/* It is not dying. */
	CHECK_ERRNO(mrelease(fd, 0), EINVAL);
	CHECK(send_by(fd, SIGKILL, NULL, 0) == 0);
	int result = mrelease(fd, 0);
	CHECK(result == 0 || (result == -1 && errno == ESRCH));
	CHECK_EQ(ready(fd, -1), POLLIN);
	CHECK_ERRNO(mrelease(fd, 0), ESRCH);
	CHECK_EQ(wait_by(fd, &info, WEXITED), 0);
	CHECK_ERRNO(mrelease(fd, 0), ESRCH);
	close(fd);
	say("releasing");
}

/* pidfd_getfd: what another process has open. */
static void taking(void)
{
	int ends[2], mine[2], fd;
	char byte;
	CHECK(pipe(ends) == 0 && pipe(mine) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		int other = dup2(mine[1], 77);
		CHECK_EQ(write(ends[1], "r", 1), 1);
		CHECK_EQ(other, 77);
		pause();
	}
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK((fd = (int)syscall(SYS_pidfd_open, child, 0)) >= 0);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 77, 1), EINVAL);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 99, 0), EBADF);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, ends[0], 77, 0), EBADF);
	int got = (int)syscall(SYS_pidfd_getfd, fd, 77, 0);
	CHECK(got >= 0);
	CHECK_EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(write(got, "x", 1), 1);
	CHECK_EQ(read(mine[0], &byte, 1), 1);
	/* A directory of /proc does for signals. */
	char path[32];
	snprintf(path, sizeof path, "/proc/%d", child);
	int directory = open(path, O_DIRECTORY);
	CHECK(directory >= 0);
	CHECK_EQ(syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0), 0);
	CHECK_EQ(syscall(SYS_pidfd_send_signal, directory, SIGKILL, NULL, 0), 0);
	expect_signal(child, SIGKILL);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 77, 0), ESRCH);
	close(directory);
	close(fd);
	close(got);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(mine[i]);
	}
	say("taking");
}

int main(void)
{
	taking();
	opening();
	waiting();
	sending();
	threads();
	cloning();
	releasing();
	return 0;
}
