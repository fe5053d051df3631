/* Namespaces of processes: numbers of their own, who sees and kills whom, the first process's end, /proc mounted inside. */
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* `struct clone_args`, which not every C library has. */
struct arguments {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size;
};

#define NS_GET_PARENT 0xb702
#define NS_GET_NSTYPE 0xb703

/* A child in a namespace of its own. */
static pid_t inside(unsigned long more)
{
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD | more, 0, 0, 0, 0);
	CHECK(child >= 0);
	return child;
}

/* Runs the statement as the first process of a new namespace, and requires that it exits with `status`. */
#define AS_FIRST(status, ...) do { \
	pid_t first_ = inside(0); \
	if (first_ == 0) { \
		__VA_ARGS__; \
		_exit(0); \
	} \
	expect_exit(first_, (status)); \
} while (0)

static void link_of(const char *path, char *text)
{
	ssize_t length = readlink(path, text, 63);
	CHECK(length > 0);
	text[length] = 0;
}

/* The numbers in a line of /proc/self/status, after its name. */
static int numbers(const char *path, const char *line, int *all)
{
	static char text[8192];
	read_whole(path, text, sizeof text);
	char *at = strstr(text, line);
	CHECK(at != NULL);
	at += strlen(line);
	int count = 0, used;
	while (*at != '\n' && sscanf(at, "%d%n", &all[count], &used) == 1) {
		at += used;
		count++;
	}
	return count;
}

static void own_numbers(void)
{
	pid_t outside = getpid();
	AS_FIRST(7, {
		CHECK_EQ(getpid(), 1);
		CHECK_EQ(syscall(SYS_gettid), 1);
		CHECK_EQ(getppid(), 0);
		/* The group and the session are the parent's, which is not seen from here. */
		CHECK_EQ(getpgrp(), 0);
		CHECK_EQ(getsid(0), 0);
		CHECK_ERRNO(kill(outside, 0), ESRCH);
		CHECK_ERRNO(getpgid(outside), ESRCH);
		CHECK_ERRNO(setpgid(0, outside), EPERM);
		CHECK_ERRNO(syscall(SYS_pidfd_open, outside, 0), ESRCH);
		CHECK_ERRNO(getpriority(PRIO_PROCESS, (id_t)outside), ESRCH);
		CHECK_EQ(setsid(), 1);
		CHECK_EQ(getpgrp(), 1);
		CHECK_EQ(getsid(0), 1);
		pid_t child = fork();
		if (child == 0) {
			CHECK_EQ(getpid(), 2);
			CHECK_EQ(getppid(), 1);
			CHECK_EQ(setpgid(0, 0), 0);
			CHECK_EQ(getpgrp(), 2);
			CHECK_EQ(getsid(0), 1);
			_exit(3);
		}
		CHECK_EQ(child, 2);
		siginfo_t info;
		CHECK_EQ(waitid(P_PID, 2, &info, WEXITED | WNOWAIT), 0);
		CHECK_EQ(info.si_pid, 2);
		expect_exit(2, 3);
		CHECK_ERRNO(wait(NULL), ECHILD);
		_exit(7);
	});
	say("numbers: 1, then 2; nobody outside is seen");
}

static void chosen(void)
{
	AS_FIRST(0, {
		pid_t wanted[3] = { 40, 0, 0 };
		struct arguments arguments = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)wanted, .set_tid_size = 1 };
		pid_t child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
		if (child == 0)
			_exit(getpid() == 40 ? 4 : 5);
		CHECK_EQ(child, 40);
		expect_exit(40, 4);
		arguments.set_tid_size = 3;
		CHECK_ERRNO(syscall(SYS_clone3, &arguments, sizeof arguments), EINVAL);
		arguments.set_tid_size = 1;
		wanted[0] = 1;
		CHECK_ERRNO(syscall(SYS_clone3, &arguments, sizeof arguments), EEXIST);
		/* In a new namespace the first can only be the first. */
		arguments.flags = CLONE_NEWPID;
		wanted[0] = 5;
		CHECK_ERRNO(syscall(SYS_clone3, &arguments, sizeof arguments), EINVAL);
		wanted[0] = 1;
		wanted[1] = 50;
		arguments.set_tid_size = 2;
		child = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
		if (child == 0)
			_exit(getpid() == 1 ? 6 : 7);
		CHECK_EQ(child, 50);
		expect_exit(50, 6);
	});
	say("chosen numbers: one for each namespace");
}

static void nested(void)
{
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	AS_FIRST(0, {
		pid_t child = inside(0);
		if (child == 0) {
			CHECK_EQ(getpid(), 1);
			pid_t grandchild = inside(0);
			if (grandchild == 0) {
				CHECK_EQ(getpid(), 1);
				CHECK_EQ(getppid(), 0);
				int all[8];
				/* /proc is the outermost one's. */
				CHECK_EQ(numbers("/proc/thread-self/status", "NSpid:", all), 4);
				CHECK_EQ(all[1], 3);
				CHECK_EQ(all[2], 2);
				CHECK_EQ(all[3], 1);
				CHECK_EQ(numbers("/proc/self/status", "\nPid:", all), 1);
				CHECK(all[0] > 3);
				_exit(9);
			}
			CHECK_EQ(grandchild, 2);
			expect_exit(2, 9);
			_exit(8);
		}
		CHECK_EQ(child, 2);
		expect_exit(2, 8);
	});
	/* Thirty-two deep, and no deeper. */
	IN_CHILD(0, {
		int depth = 0;
		for (;;) {
			pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
			if (child < 0) {
				CHECK_EQ(errno, ENOSPC);
				break;
			}
			if (child > 0) {
				int status;
				CHECK_EQ(waitpid(child, &status, 0), child);
				_exit(WEXITSTATUS(status));
			}
			depth++;
		}
		_exit(depth > 20 && depth <= 32 ? 0 : 1);
	});
	close(pipes[0]);
	close(pipes[1]);
	say("nested: a number on each level, not without end");
}

static volatile sig_atomic_t caught;
static volatile pid_t caught_from;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)context;
	caught = signal;
	caught_from = info->si_pid;
}

static void wait_for(int fd)
{
	char byte;
	CHECK_EQ(read(fd, &byte, 1), 1);
}

static void signals(void)
{
	int up[2], down[2];
	CHECK_EQ(pipe(up), 0);
	CHECK_EQ(pipe(down), 0);
	pid_t first = inside(0);
	if (first == 0) {
		/* What its own send it, it gets only with a handler; and no KILL at all. */
		struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
		CHECK_EQ(kill(1, SIGTERM), 0);
		CHECK_EQ(kill(1, SIGKILL), 0);
		CHECK_EQ(kill(1, SIGSTOP), 0);
		CHECK_EQ(syscall(SYS_tkill, 1, SIGTERM), 0);
		CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
		IN_CHILD(0, {
			CHECK_EQ(kill(1, SIGKILL), 0);
			CHECK_EQ(kill(1, SIGUSR1), 0);
		});
		CHECK_EQ(caught, SIGUSR1);
		CHECK_EQ(caught_from, 2);
		CHECK_EQ(write(up[1], "1", 1), 1);
		/* From above: nobody in particular. */
		wait_for(down[0]);
		CHECK_EQ(caught, SIGUSR1);
		CHECK_EQ(caught_from, 0);
		CHECK_EQ(write(up[1], "2", 1), 1);
		for (;;)
			pause();
	}
	wait_for(up[0]);
	caught = 0;
	CHECK_EQ(kill(first, SIGUSR1), 0);
	CHECK_EQ(write(down[1], "1", 1), 1);
	wait_for(up[0]);
	/* Without a handler TERM does nothing from above either; STOP and KILL do. */
	CHECK_EQ(kill(first, SIGTERM), 0);
	int status;
	CHECK_EQ(waitpid(first, &status, WNOHANG), 0);
	CHECK_EQ(kill(first, SIGSTOP), 0);
	CHECK_EQ(waitpid(first, &status, WUNTRACED), first);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(kill(first, SIGCONT), 0);
	CHECK_EQ(kill(first, SIGKILL), 0);
	expect_signal(first, SIGKILL);

	/* To all there are: in the namespace. */
	AS_FIRST(0, {
		pid_t children[3];
		for (int i = 0; i < 3; i++) {
			children[i] = fork();
			if (children[i] == 0)
				for (;;)
					pause();
		}
		CHECK_EQ(kill(-1, SIGUSR2), 0);
		for (int i = 0; i < 3; i++)
			expect_signal(children[i], SIGUSR2);
		CHECK_ERRNO(kill(-1, SIGUSR2), ESRCH);
	});
	for (int i = 0; i < 2; i++) {
		close(up[i]);
		close(down[i]);
	}
	say("signals: the first process is safe from its own, not from above");
}

static void end(void)
{
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	pid_t first = inside(0);
	if (first == 0) {
		close(pipes[0]);
		for (int i = 0; i < 4; i++)
			if (fork() == 0) {
				fork();
				signal(SIGTERM, SIG_IGN);
				CHECK_EQ(write(pipes[1], "x", 1), 1);
				for (;;)
					pause();
			}
		/* An orphan comes to the first process. */
		pid_t middle = fork();
		if (middle == 0) {
			pid_t orphan = fork();
			if (orphan == 0) {
				while (getppid() != 1)
					sched_yield();
				_exit(33);
			}
			_exit(0);
		}
		expect_exit(middle, 0);
		int status;
		CHECK(wait(&status) > 1);
		CHECK_EQ(WEXITSTATUS(status), 33);
		pause();
	}
	close(pipes[1]);
	for (int i = 0; i < 8; i++)
		wait_for(pipes[0]);
	CHECK_EQ(kill(first, SIGKILL), 0);
	expect_signal(first, SIGKILL);
	/* Nobody has the other end any more. */
	char byte;
	CHECK_EQ(read(pipes[0], &byte, 1), 0);
	close(pipes[0]);

	/* Nobody begins where the first process has ended. */
	IN_CHILD(0, {
		CHECK_EQ(unshare(CLONE_NEWPID), 0);
		pid_t child = fork();
		if (child == 0)
			_exit(getpid());
		expect_exit(child, 1);
		CHECK_ERRNO(fork(), ENOMEM);
	});
	say("end: all go with the first process");
}

static void unshared(void)
{
	char own[64], for_children[64], of_child[64];
	IN_CHILD(0, {
		pid_t before = getpid();
		link_of("/proc/self/ns/pid", own);
		link_of("/proc/self/ns/pid_for_children", for_children);
		CHECK_EQ(strcmp(own, for_children), 0);
		CHECK_EQ(unshare(CLONE_NEWPID), 0);
		/* For its children only. */
		CHECK_EQ(getpid(), before);
		CHECK_ERRNO(readlink("/proc/self/ns/pid_for_children", for_children, 63), ENOENT);
		/* Once; and no thread may be elsewhere than its process. */
		CHECK_ERRNO(unshare(CLONE_NEWPID), EINVAL);
		unsigned long thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
		CHECK_ERRNO(syscall(SYS_clone, thread, map_pages(1, PROT_READ | PROT_WRITE) + PAGE, 0, 0, 0), EINVAL);
		int up[2], down[2];
		CHECK_EQ(pipe(up), 0);
		CHECK_EQ(pipe(down), 0);
		pid_t first = fork();
		if (first == 0) {
			CHECK_EQ(getpid(), 1);
			CHECK_EQ(write(up[1], "x", 1), 1);
			wait_for(down[0]);
			_exit(0);
		}
		wait_for(up[0]);
		pid_t second = fork();
		if (second == 0) {
			CHECK_EQ(getpid(), 2);
			CHECK_EQ(getppid(), 0);
			_exit(0);
		}
		expect_exit(second, 0);
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/ns/pid", first);
		link_of(path, of_child);
		link_of("/proc/self/ns/pid_for_children", for_children);
		CHECK(strcmp(of_child, own) != 0);
		CHECK_EQ(strcmp(of_child, for_children), 0);
		/* By its file into it, and back again. */
		int below = open(path, O_RDONLY);
		int here = open("/proc/self/ns/pid", O_RDONLY);
		CHECK(below >= 0 && here >= 0);
		CHECK_EQ(ioctl(below, NS_GET_NSTYPE), CLONE_NEWPID);
		int parent = ioctl(below, NS_GET_PARENT);
		CHECK(parent >= 0);
		check_same_file(parent, here);
		CHECK_EQ(setns(here, CLONE_NEWPID), 0);
		pid_t plain = fork();
		if (plain == 0)
			_exit(getppid() == before ? 0 : 1);
		expect_exit(plain, 0);
		CHECK_EQ(setns(below, 0), 0);
		pid_t third = fork();
		if (third == 0) {
			CHECK_EQ(getpid(), 3);
			/* Not up. */
			CHECK_ERRNO(setns(here, CLONE_NEWPID), EINVAL);
			_exit(0);
		}
		expect_exit(third, 0);
		CHECK_EQ(setns(here, CLONE_NEWPID), 0);
		int process = (int)syscall(SYS_pidfd_open, first, 0);
		CHECK(process >= 0);
		CHECK_EQ(setns(process, CLONE_NEWPID), 0);
		pid_t fourth = fork();
		if (fourth == 0)
			_exit(getpid());
		expect_exit(fourth, 4);
		/* A descriptor shows both numbers. */
		snprintf(path, sizeof path, "/proc/self/fdinfo/%d", process);
		int all[4];
		CHECK_EQ(numbers(path, "\nNSpid:", all), 2);
		CHECK_EQ(all[0], first);
		CHECK_EQ(all[1], 1);
		CHECK_EQ(write(down[1], "x", 1), 1);
		expect_exit(first, 0);
		CHECK_EQ(numbers(path, "\nPid:", all), 1);
		CHECK_EQ(all[0], -1);
	});
	say("unshare and setns: the next children");
}

static void in_proc(void)
{
	AS_FIRST(0, {
		/* The old /proc does not show who is not in it as itself... */
		char text[64];
		link_of("/proc/self", text);
		CHECK(atoi(text) > 1);
		CHECK_EQ(unshare(CLONE_NEWNS), 0);
		CHECK_EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
		CHECK_EQ(mount("proc", "/proc", "proc", 0, NULL), 0);
		/* ... the new one does. */
		link_of("/proc/self", text);
		CHECK_EQ(strcmp(text, "1"), 0);
		link_of("/proc/thread-self", text);
		CHECK_EQ(strcmp(text, "1/task/1"), 0);
		int all[8];
		CHECK_EQ(numbers("/proc/self/status", "\nPid:", all), 1);
		CHECK_EQ(all[0], 1);
		CHECK_EQ(numbers("/proc/self/status", "NSpid:", all), 1);
		CHECK_EQ(all[0], 1);
		CHECK_EQ(numbers("/proc/self/status", "PPid:", all), 1);
		CHECK_EQ(all[0], 0);
		pid_t child = fork();
		if (child == 0)
			for (;;)
				pause();
		CHECK_EQ(numbers("/proc/2/status", "PPid:", all), 1);
		CHECK_EQ(all[0], 1);
		char whole[1024];
		read_whole("/proc/2/stat", whole, sizeof whole);
		int pid, parent;
		char state;
		CHECK_EQ(sscanf(whole, "%d (%*[^)]) %c %d", &pid, &state, &parent), 3);
		CHECK_EQ(pid, 2);
		CHECK_EQ(parent, 1);
		struct stat about;
		CHECK_EQ(stat("/proc/2/task/2", &about), 0);
		CHECK_ERRNO(stat("/proc/3", &about), ENOENT);
		kill(child, SIGKILL);
		expect_signal(child, SIGKILL);
		CHECK_ERRNO(stat("/proc/2", &about), ENOENT);
	});
	say("/proc: that of the namespace it is mounted in");
}

static void credentials(void)
{
	int pair[2];
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	int on = 1;
	CHECK_EQ(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
	pid_t first = inside(0);
	if (first == 0) {
		struct ucred record;
		socklen_t length = sizeof record;
		CHECK_EQ(getsockopt(pair[1], SOL_SOCKET, SO_PEERCRED, &record, &length), 0);
		/* Made outside, by somebody who is not seen. */
		CHECK_EQ(record.pid, 0);
		CHECK_EQ(send(pair[1], "x", 1, 0), 1);
		_exit(0);
	}
	char byte;
	union {
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
	CHECK_EQ(recvmsg(pair[0], &message, 0), 1);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	CHECK(header && header->cmsg_type == SCM_CREDENTIALS);
	struct ucred sender;
	memcpy(&sender, CMSG_DATA(header), sizeof sender);
	CHECK_EQ(sender.pid, first);
	expect_exit(first, 0);
	close(pair[0]);
	close(pair[1]);
	say("credentials: each by the receiver's number");
}

static void traced(void)
{
	pid_t first = inside(0);
	if (first == 0) {
		CHECK_EQ(ptrace(PTRACE_TRACEME, 0, 0, 0), 0);
		kill(getpid(), SIGUSR1);
		pid_t child = fork();
		if (child == 0)
			_exit(getpid());
		expect_exit(child, 2);
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(first, &status, 0), first);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(ptrace(PTRACE_SETOPTIONS, first, 0, PTRACE_O_TRACEFORK), 0);
	CHECK_EQ(ptrace(PTRACE_CONT, first, 0, 0), 0);
	CHECK_EQ(waitpid(first, &status, 0), first);
	CHECK_EQ(status >> 8, SIGTRAP | PTRACE_EVENT_FORK << 8);
	unsigned long child;
	CHECK_EQ(ptrace(PTRACE_GETEVENTMSG, first, 0, &child), 0);
	CHECK_EQ(waitpid((pid_t)child, &status, __WALL), (pid_t)child);
	CHECK_EQ(ptrace(PTRACE_DETACH, (pid_t)child, 0, 0), 0);
	CHECK_EQ(ptrace(PTRACE_DETACH, first, 0, 0), 0);
	expect_exit(first, 0);
	say("traced: events carry the tracer's number");
}

/* A namespace is restarted or halted by itself: its first process ends, and a signal says how. */
static void rebooted(void)
{
	static const struct { unsigned command; int signal; } ways[] = {
		{0x01234567, SIGHUP}, {0xa1b2c3d4, SIGHUP}, {0x4321fedc, SIGINT}, {0xcdef0123, SIGINT},
	};
	for (int way = 0; way < 4; way++)
		for (int by_child = 0; by_child < 2; by_child++) {
			int status;
			pid_t first = inside(0);
			if (first == 0) {
				CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0), EINVAL);
				CHECK_ERRNO(syscall(SYS_reboot, 0xfee1dead, 1, ways[way].command, 0), EINVAL);
				if (!by_child || fork() == 0)
					syscall(SYS_reboot, 0xfee1dead, 672274793, ways[way].command, "again");
				pause();
				_exit(3);
			}
			CHECK_EQ(waitpid(first, &status, 0), first);
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == ways[way].signal);
		}
	say("restarted and halted");
}

static void refused(void)
{
	unsigned long thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
	char *stack = (char *)map_pages(1, PROT_READ | PROT_WRITE) + PAGE;
	CHECK_ERRNO(syscall(SYS_clone, thread | CLONE_NEWPID, stack, 0, 0, 0), EINVAL);
	AS_FIRST(0, CHECK_ERRNO(syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0), EINVAL));
	IN_CHILD(0, {
		CHECK_EQ(setgid(65534), 0);
		CHECK_EQ(setuid(65534), 0);
		CHECK_ERRNO(unshare(CLONE_NEWPID), EPERM);
		CHECK_ERRNO(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0), EPERM);
	});
	say("refused: threads apart, siblings of the first, the unprivileged");
}

int main(void)
{
	own_numbers();
	chosen();
	nested();
	signals();
	end();
	unshared();
	in_proc();
	credentials();
	traced();
	rebooted();
	refused();
	return 0;
}
