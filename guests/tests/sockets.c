/* Local sockets: names, connections, datagrams, mistakes. */
#include "check.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct sockaddr_un address;

static socklen_t name(const char *text)
{
	memset(&address, 0, sizeof address);
	address.sun_family = AF_UNIX;
	strcpy(address.sun_path + (text[0] == '@'), text + (text[0] == '@'));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(text) + (text[0] != '@'));
}

#define AT(text) (struct sockaddr *)&address, name(text)

static int fresh(int kind)
{
	int fd = socket(AF_UNIX, kind, 0);
	CHECK(fd >= 0);
	return fd;
}

static void mistakes(void)
{
	char byte = 0;
	CHECK_ERRNO(socket(AF_UNIX, 77, 0), EINVAL);
	CHECK_ERRNO(socket(AF_UNIX, 11, 0), EINVAL);
	CHECK_ERRNO(socket(AF_UNIX, SOCK_RDM, 0), ESOCKTNOSUPPORT);
	CHECK_ERRNO(socket(AF_UNIX, SOCK_STREAM, 7), EPROTONOSUPPORT);
	CHECK_ERRNO(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT);
	CHECK_ERRNO(socket(-1, SOCK_STREAM, 0), EAFNOSUPPORT);
	int stream = fresh(SOCK_STREAM), packets = fresh(SOCK_DGRAM), file = open("/proc/self/exe", O_RDONLY);
	CHECK_ERRNO(connect(stream, AT("/no/such/socket")), ENOENT);
	CHECK_ERRNO(connect(stream, AT("@nobody has this")), ECONNREFUSED);
	CHECK_ERRNO(connect(stream, AT("/proc/self/exe")), ECONNREFUSED);
	CHECK_ERRNO(connect(file, AT("@x")), ENOTSOCK);
	CHECK_ERRNO(connect(999, AT("@x")), EBADF);
	CHECK_ERRNO(connect(stream, (void *)nowhere, 10), EFAULT);
	CHECK_ERRNO(connect(stream, (struct sockaddr *)&address, 1), EINVAL);
	CHECK_ERRNO(connect(stream, (struct sockaddr *)&address, 200), EINVAL);
	address.sun_family = AF_INET;
	CHECK_ERRNO(connect(stream, (struct sockaddr *)&address, 20), EINVAL);
	CHECK_ERRNO(bind(stream, (struct sockaddr *)&address, 20), EINVAL);
	CHECK_ERRNO(bind(stream, AT("/no/such/directory")), ENOENT);
	CHECK_ERRNO(bind(stream, AT("/proc/self/exe")), EADDRINUSE);
	CHECK_ERRNO(listen(stream, 5), EINVAL);
	CHECK_ERRNO(listen(packets, 5), EOPNOTSUPP);
	CHECK_ERRNO(accept(stream, NULL, NULL), EINVAL);
	CHECK_ERRNO(accept(packets, NULL, NULL), EOPNOTSUPP);
	CHECK_ERRNO(accept(file, NULL, NULL), ENOTSOCK);
	CHECK_ERRNO(accept4(stream, NULL, NULL, 1), EINVAL);
	CHECK_ERRNO(send(stream, &byte, 1, MSG_NOSIGNAL), ENOTCONN);
	CHECK_ERRNO(send(packets, &byte, 1, 0), ENOTCONN);
	CHECK_ERRNO(recv(stream, &byte, 1, 0), EINVAL);
	CHECK_ERRNO(recv(packets, &byte, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_ERRNO(getpeername(stream, (struct sockaddr *)&address, &(socklen_t){ 2 }), ENOTCONN);
	struct pollfd poll_fresh = { .fd = stream, .events = POLLIN | POLLOUT };
	CHECK_EQ(poll(&poll_fresh, 1, 0), 1);
	CHECK_EQ(poll_fresh.revents, POLLOUT | POLLHUP);
	close(stream);
	close(packets);
	close(file);
	say("mistakes");
}

static void streams(const char *place)
{
	char bytes[16];
	struct sockaddr_un seen;
	socklen_t length = sizeof seen;
	int listener = fresh(SOCK_STREAM | SOCK_CLOEXEC);
	CHECK_EQ(fcntl(listener, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(bind(listener, AT(place)), 0);
	CHECK_ERRNO(bind(listener, AT("@another")), EINVAL);
	int other = fresh(SOCK_STREAM);
	CHECK_ERRNO(bind(other, AT(place)), EADDRINUSE);
	CHECK_ERRNO(connect(other, AT(place)), ECONNREFUSED);
	CHECK_EQ(listen(listener, 1), 0);
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	CHECK_EQ(poll(&wait, 1, 0), 0);
	CHECK_EQ(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
	CHECK_ERRNO(accept(listener, NULL, NULL), EAGAIN);
	int wrong = fresh(SOCK_DGRAM);
	CHECK_ERRNO(connect(wrong, AT(place)), place[0] == '@' ? ECONNREFUSED : EPROTOTYPE);
	close(wrong);
	CHECK_EQ(connect(other, AT(place)), 0);
	CHECK_ERRNO(connect(other, AT(place)), EISCONN);
	CHECK_EQ(write(other, "early", 5), 5);
	CHECK_EQ(poll(&wait, 1, 0), 1);
	/* The second fits, the third does not. */
	int second = fresh(SOCK_STREAM | SOCK_NONBLOCK), third = fresh(SOCK_STREAM | SOCK_NONBLOCK);
	CHECK_EQ(connect(second, AT(place)), 0);
	CHECK_ERRNO(connect(third, AT(place)), EAGAIN);
	int served = accept(listener, (struct sockaddr *)&seen, &length);
	CHECK(served >= 0);
	CHECK_EQ(length, 2);
	CHECK_EQ(connect(third, AT(place)), 0);
	CHECK_EQ(read(served, bytes, 16), 5);
	CHECK(memcmp(bytes, "early", 5) == 0);
	length = sizeof seen;
	CHECK_EQ(getsockname(served, (struct sockaddr *)&seen, &length), 0);
	CHECK_EQ(length, name(place));
	CHECK(memcmp(&seen, &address, length) == 0);
	length = sizeof seen;
	CHECK_EQ(getpeername(other, (struct sockaddr *)&seen, &length), 0);
	CHECK_EQ(length, name(place));
	struct ucred owner;
	length = sizeof owner;
	CHECK_EQ(getsockopt(other, SOL_SOCKET, SO_PEERCRED, &owner, &length), 0);
	CHECK_EQ(owner.pid, getpid());
	int value;
	length = sizeof value;
	CHECK_EQ(getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length), 0);
	CHECK_EQ(value, 1);
	CHECK_EQ(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value), 0);
	CHECK_ERRNO(setsockopt(listener, SOL_SOCKET, 9999, &value, sizeof value), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, 2), EINVAL);
	CHECK_EQ(write(served, "answer", 6), 6);
	close(served);
	CHECK_EQ(read(other, bytes, 16), 6);
	CHECK_EQ(read(other, bytes, 16), 0);
	CHECK_ERRNO(send(other, "x", 1, MSG_NOSIGNAL), EPIPE);
	/* Those that wait see the listener's end. */
	close(listener);
	CHECK_ERRNO(read(second, bytes, 16), ECONNRESET);
	CHECK_EQ(read(second, bytes, 16), 0);
	CHECK_ERRNO(connect(fresh(SOCK_STREAM), AT(place)), ECONNREFUSED);
	close(other);
	close(second);
	close(third);
	if (place[0] != '@') {
		struct stat status;
		CHECK_EQ(stat(place, &status), 0);
		CHECK(S_ISSOCK(status.st_mode));
		CHECK_ERRNO(open(place, O_RDWR), ENXIO);
		CHECK_EQ(unlink(place), 0);
		CHECK_ERRNO(connect(fresh(SOCK_STREAM), AT(place)), ENOENT);
	}
	say("streams: %s", place[0] == '@' ? "abstract" : "path");
}

static void datagrams(void)
{
	char bytes[16];
	struct sockaddr_un seen;
	socklen_t length = sizeof seen;
	int server = fresh(SOCK_DGRAM), client = fresh(SOCK_DGRAM);
	CHECK_EQ(bind(server, AT("@datagram server")), 0);
	CHECK_EQ(sendto(client, "hello", 5, 0, AT("@datagram server")), 5);
	CHECK_EQ(recvfrom(server, bytes, 16, 0, (struct sockaddr *)&seen, &length), 5);
	say("datagram from nobody: %d bytes of address", (int)length);
	CHECK_EQ(bind(client, AT("@datagram client")), 0);
	CHECK_EQ(connect(client, AT("@datagram server")), 0);
	CHECK_EQ(send(client, "again", 5, 0), 5);
	length = sizeof seen;
	CHECK_EQ(recvfrom(server, bytes, 3, MSG_TRUNC, (struct sockaddr *)&seen, &length), 5);
	CHECK_EQ(length, name("@datagram client"));
	CHECK(memcmp(&seen, &address, length) == 0);
	CHECK_EQ(sendto(server, "back", 4, 0, (struct sockaddr *)&seen, length), 4);
	CHECK_EQ(recv(client, bytes, 16, 0), 4);
	CHECK_ERRNO(sendto(server, "x", 1, 0, AT("@gone")), ECONNREFUSED);
	close(server);
	CHECK_ERRNO(send(client, "x", 1, 0), ECONNREFUSED);
	address.sun_family = AF_UNSPEC;
	CHECK_EQ(connect(client, (struct sockaddr *)&address, sizeof address), 0);
	CHECK_ERRNO(send(client, "x", 1, 0), ENOTCONN);
	close(client);
	/* A name of the kernel's choice. */
	server = fresh(SOCK_DGRAM);
	CHECK_EQ(bind(server, (struct sockaddr *)&(struct sockaddr_un){ .sun_family = AF_UNIX }, 2), 0);
	length = sizeof seen;
	CHECK_EQ(getsockname(server, (struct sockaddr *)&seen, &length), 0);
	CHECK_EQ(length, 8);
	CHECK_EQ(seen.sun_path[0], 0);
	close(server);
	say("datagrams");
}

/* Two processes that talk. */
static void processes(void)
{
	int listener = fresh(SOCK_SEQPACKET);
	char bytes[64];
	CHECK_EQ(bind(listener, AT("@processes")), 0);
	CHECK_EQ(listen(listener, 5), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int fd = fresh(SOCK_SEQPACKET);
		CHECK_EQ(connect(fd, AT("@processes")), 0);
		for (int i = 0; i < 100; i++) {
			int length = sprintf(bytes, "message %d", i);
			CHECK_EQ(send(fd, bytes, (size_t)length, 0), length);
			CHECK_EQ(recv(fd, bytes, sizeof bytes, 0), length);
		}
		_exit(0);
	}
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	ssize_t got;
	int messages = 0;
	while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
		CHECK_EQ(send(fd, bytes, (size_t)got, 0), got);
		messages++;
	}
	CHECK_EQ(got, 0);
	expect_exit(child, 0);
	close(fd);
	close(listener);
	say("%d messages between processes", messages);
}

int main(void)
{
	mistakes();
	streams("@abstract");
	streams("/tmp/foldspace test socket");
	datagrams();
	processes();
	return 0;
}
