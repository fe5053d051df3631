/* What goes along with bytes over local sockets: open files, and who sends. */
#include "check.h"

#include <sys/socket.h>
#include <sys/stat.h>

union control {
	char bytes[256];
	struct cmsghdr header;
};

static ssize_t give(int to, const char *text, int kind, const void *data, size_t length)
{
	union control control;
	struct iovec piece = { .iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(length) };
	memset(&control, 0, sizeof control);
	control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(length), .cmsg_level = SOL_SOCKET, .cmsg_type = kind };
	memcpy(CMSG_DATA(&control.header), data, length);
	return sendmsg(to, &message, 0);
}

/* Receives into `buffer`; says how many bytes came, and what came along. Puts a file's number into *fd. */
static void take(int from, char *buffer, size_t size, size_t room, int flags, int *fd)
{
	union control control;
	struct iovec piece = { .iov_base = buffer, .iov_len = size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = room };
	ssize_t bytes = recvmsg(from, &message, flags);
	CHECK(bytes >= 0);
	say("%d bytes: %.*s, flags %x, control %d", (int)bytes, (int)bytes, buffer, message.msg_flags, (int)message.msg_controllen);
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		say(" level %d type %d: %zu numbers", header->cmsg_level, header->cmsg_type, count);
		int numbers[16];
		memcpy(numbers, CMSG_DATA(header), count * sizeof(int));
		if (header->cmsg_type == SCM_RIGHTS) {
			for (size_t i = 1; i < count; i++)
				CHECK_EQ(close(numbers[i]), 0);
			*fd = numbers[0];
		} else {
			CHECK_EQ(numbers[0], getpid());
			CHECK_EQ(numbers[1], getuid());
			CHECK_EQ(numbers[2], getgid());
		}
	}
}

static void files(int kind)
{
	int ends[2], pipes[2], got = -1, many[3], yes = 1;
	char buffer[64];
	CHECK_EQ(socketpair(AF_UNIX, kind, 0, ends), 0);
	CHECK_EQ(pipe(pipes), 0);
	CHECK_EQ(give(ends[0], "a pipe", SCM_RIGHTS, &pipes[1], sizeof(int)), 6);
	CHECK_EQ(close(pipes[1]), 0);
	take(ends[1], buffer, sizeof buffer, 256, MSG_CMSG_CLOEXEC, &got);
	CHECK_EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(write(got, "through", 7), 7);
	CHECK_EQ(close(got), 0);
	CHECK_EQ(read(pipes[0], buffer, sizeof buffer), 7);
	CHECK_EQ(read(pipes[0], buffer, sizeof buffer), 0);
	/* More than there is room for: the rest is closed. */
	for (int i = 0; i < 3; i++)
		CHECK((many[i] = dup(pipes[0])) >= 0);
	CHECK_EQ(give(ends[0], "three", SCM_RIGHTS, many, sizeof many), 5);
	take(ends[1], buffer, sizeof buffer, CMSG_LEN(2 * sizeof(int)), 0, &got);
	CHECK_EQ(close(got), 0);
	CHECK_EQ(give(ends[0], "no room", SCM_RIGHTS, many, sizeof many), 7);
	take(ends[1], buffer, sizeof buffer, 0, 0, &got);
	/* Plain reads lose what came along. */
	CHECK_EQ(give(ends[0], "plain", SCM_RIGHTS, many, sizeof many), 5);
	CHECK_EQ(read(ends[1], buffer, sizeof buffer), 5);
	/* Each with its own bytes, and once. */
	CHECK_EQ(write(ends[0], "before ", 7), 7);
	CHECK_EQ(give(ends[0], "with", SCM_RIGHTS, many, sizeof(int)), 4);
	CHECK_EQ(write(ends[0], "after", 5), 5);
	take(ends[1], buffer, 7, 256, 0, &got);
	take(ends[1], buffer, sizeof buffer, 256, 0, &got);
	CHECK_EQ(close(got), 0);
	take(ends[1], buffer, sizeof buffer, 256, 0, &got);
	CHECK_EQ(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes), 0);
	CHECK_EQ(give(ends[0], "who", SCM_RIGHTS, many, sizeof(int)), 3);
	take(ends[1], buffer, sizeof buffer, 256, 0, &got);
	CHECK_EQ(close(got), 0);
	struct { pid_t pid; uid_t uid; gid_t gid; } own = { getpid(), getuid(), getgid() };
	CHECK_EQ(give(ends[0], "me", SCM_CREDENTIALS, &own, sizeof own), 2);
	take(ends[1], buffer, sizeof buffer, 256, 0, &got);
	got = 999;
	CHECK_ERRNO(give(ends[0], "bad", SCM_RIGHTS, &got, sizeof got), EBADF);
	CHECK_ERRNO(give(ends[0], "bad", 77, &got, sizeof got), EINVAL);
	CHECK_ERRNO(give(ends[0], "bad", SCM_CREDENTIALS, &got, sizeof got), EINVAL);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(close(many[i]), 0);
	CHECK_EQ(close(ends[0]), 0);
	CHECK_EQ(close(ends[1]), 0);
	CHECK_EQ(close(pipes[0]), 0);
}

/* A file goes to a process that has nothing to do with who opened it; nobody has it open on the way. */
static void on_the_way(void)
{
	int ends[2], pipes[2], got = -1;
	char buffer[64];
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	CHECK_EQ(pipe(pipes), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK_EQ(give(ends[0], "x", SCM_RIGHTS, &pipes[1], sizeof(int)), 1);
		_exit(0);
	}
	CHECK_EQ(close(pipes[1]), 0);
	CHECK_EQ(close(ends[0]), 0);
	expect_exit(child, 0);
	take(ends[1], buffer, sizeof buffer, 256, 0, &got);
	CHECK_EQ(write(got, "still open", 10), 10);
	CHECK_EQ(read(pipes[0], buffer, sizeof buffer), 10);
	CHECK_EQ(close(got), 0);
	CHECK_EQ(read(pipes[0], buffer, sizeof buffer), 0);
	say("on the way");
}

static void batches(void)
{
	int ends[2];
	char texts[3][8] = { "one", "two", "three" }, got[3][8] = { "" };
	struct iovec pieces[3];
	struct mmsghdr batch[3];
	memset(batch, 0, sizeof batch);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	for (int i = 0; i < 3; i++) {
		pieces[i] = (struct iovec){ texts[i], strlen(texts[i]) };
		batch[i].msg_hdr.msg_iov = &pieces[i];
		batch[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK_EQ(sendmmsg(ends[0], batch, 3, 0), 3);
	CHECK_EQ(batch[2].msg_len, 5);
	for (int i = 0; i < 3; i++)
		pieces[i] = (struct iovec){ got[i], 8 };
	CHECK_EQ(recvmmsg(ends[1], batch, 2, 0, NULL), 2);
	CHECK_EQ(recvmmsg(ends[1], batch, 3, MSG_WAITFORONE, NULL), 1);
	CHECK_ERRNO(recvmmsg(ends[1], batch, 3, MSG_DONTWAIT, NULL), EAGAIN);
	CHECK(!strcmp(got[1], "two"));
	say("batches");
}

int main(void)
{
	files(SOCK_STREAM);
	files(SOCK_DGRAM);
	on_the_way();
	batches();
	return 0;
}
