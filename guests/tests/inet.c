/* Sockets of the internet families within one machine: streams and datagrams over 127.0.0.1 and ::1, options, mistakes. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t place(union address *address, int family, const char *ip, int port)
{
	memset(address, 0, sizeof *address);
	address->any.sa_family = (sa_family_t)family;
	if (family == AF_INET) {
		address->v4.sin_port = htons((uint16_t)port);
		CHECK_EQ(inet_pton(AF_INET, ip, &address->v4.sin_addr), 1);
		return sizeof address->v4;
	}
	address->v6.sin6_port = htons((uint16_t)port);
	CHECK_EQ(inet_pton(AF_INET6, ip, &address->v6.sin6_addr), 1);
	return sizeof address->v6;
}

static int fresh(int family, int kind)
{
	int fd = socket(family, kind, 0);
	CHECK(fd >= 0);
	return fd;
}

static int port_of(int fd)
{
	union address own;
	socklen_t length = sizeof own;
	CHECK_EQ(getsockname(fd, &own.any, &length), 0);
	return ntohs(own.any.sa_family == AF_INET ? own.v4.sin_port : own.v6.sin6_port);
}

static int server(int family, const char *ip, int kind)
{
	union address address;
	int fd = fresh(family, kind);
	socklen_t length = place(&address, family, ip, 0);
	CHECK_EQ(bind(fd, &address.any, length), 0);
	CHECK(port_of(fd) != 0);
	if ((kind & 15) == SOCK_STREAM)
		CHECK_EQ(listen(fd, 5), 0);
	return fd;
}

static const char *text(const union address *address)
{
	static char buffer[64];
	if (address->any.sa_family == AF_INET)
		inet_ntop(AF_INET, &address->v4.sin_addr, buffer, sizeof buffer);
	else
		inet_ntop(AF_INET6, &address->v6.sin6_addr, buffer, sizeof buffer);
	return buffer;
}

static void say_names(const char *who, int fd)
{
	union address name;
	socklen_t length = sizeof name;
	CHECK_EQ(getsockname(fd, &name.any, &length), 0);
	say("%s: own %s, %d bytes", who, text(&name), (int)length);
	length = sizeof name;
	CHECK_EQ(getpeername(fd, &name.any, &length), 0);
	say("%s: peer %s", who, text(&name));
}

static int ready(int fd, int events)
{
	struct pollfd poller = { .fd = fd, .events = (short)events };
	CHECK(poll(&poller, 1, 0) >= 0);
	return poller.revents;
}

/* `bound` is where the server listens, `wanted` where the client goes. */
static void stream(int server_family, const char *bound, int family, const char *wanted)
{
	union address address;
	char buffer[64] = "";
	int listening = server(server_family, bound, SOCK_STREAM), client = fresh(family, SOCK_STREAM);
	CHECK_EQ(ready(listening, POLLIN), 0);
	socklen_t length = place(&address, family, wanted, port_of(listening));
	CHECK_EQ(connect(client, &address.any, length), 0);
	CHECK_ERRNO(connect(client, &address.any, length), EISCONN);
	CHECK_EQ(ready(listening, POLLIN), POLLIN);
	length = sizeof address;
	int accepted = accept4(listening, &address.any, &length, SOCK_CLOEXEC);
	CHECK(accepted >= 0);
	say("accepted from %s", text(&address));
	say_names("client", client);
	say_names("server", accepted);
	CHECK_EQ(port_of(accepted), port_of(listening));
	CHECK_EQ(ready(client, POLLIN | POLLOUT), POLLOUT);
	CHECK_EQ(send(client, "hello", 5, 0), 5);
	CHECK_EQ(ready(accepted, POLLIN), POLLIN);
	CHECK_EQ(recv(accepted, buffer, 3, MSG_PEEK), 3);
	CHECK_EQ(recv(accepted, buffer, sizeof buffer, 0), 5);
	CHECK(!memcmp(buffer, "hello", 5));
	CHECK_ERRNO(recv(accepted, buffer, sizeof buffer, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(write(accepted, "answer", 6), 6);
	CHECK_EQ(shutdown(accepted, SHUT_WR), 0);
	CHECK_EQ(recv(client, buffer, sizeof buffer, MSG_WAITALL), 6);
	CHECK_EQ(recv(client, buffer, sizeof buffer, 0), 0);
	CHECK_EQ(ready(client, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
	CHECK_EQ(write(client, "more", 4), 4);
	CHECK_EQ(read(accepted, buffer, sizeof buffer), 4);
	CHECK_EQ(close(client), 0);
	CHECK_EQ(read(accepted, buffer, sizeof buffer), 0);
	CHECK_EQ(close(accepted), 0);
	CHECK_EQ(close(listening), 0);
}

static void without_waiting(void)
{
	union address address;
	int listening = server(AF_INET, "127.0.0.1", SOCK_STREAM | SOCK_NONBLOCK), error;
	socklen_t size = sizeof error, length;
	CHECK_ERRNO(accept(listening, NULL, NULL), EAGAIN);
	int client = fresh(AF_INET, SOCK_STREAM | SOCK_NONBLOCK), port = port_of(listening);
	length = place(&address, AF_INET, "127.0.0.1", port);
	CHECK_ERRNO(connect(client, &address.any, length), EINPROGRESS);
	struct pollfd poller = { .fd = client, .events = POLLOUT };
	CHECK_EQ(poll(&poller, 1, 1000), 1);
	CHECK_EQ(poller.revents, POLLOUT);
	CHECK_EQ(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size), 0);
	CHECK_EQ(error, 0);
	CHECK_EQ(connect(client, &address.any, length), 0);
	CHECK_ERRNO(connect(client, &address.any, length), EISCONN);
	int accepted = accept(listening, NULL, NULL);
	CHECK(accepted >= 0);
	/* What was not read is lost, and the other side is told. */
	CHECK_EQ(write(client, "unread", 6), 6);
	CHECK_EQ(ready(accepted, POLLIN), POLLIN);
	CHECK_EQ(close(accepted), 0);
	char byte;
	CHECK_ERRNO(read(client, &byte, 1), ECONNRESET);
	CHECK_ERRNO(send(client, &byte, 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(close(client), 0);
	CHECK_EQ(close(listening), 0);
	/* So does who lingers for no time. */
	int again = server(AF_INET, "127.0.0.1", SOCK_STREAM);
	struct linger none = { .l_onoff = 1 };
	length = place(&address, AF_INET, "127.0.0.1", port_of(again));
	client = fresh(AF_INET, SOCK_STREAM);
	CHECK_EQ(connect(client, &address.any, length), 0);
	CHECK((accepted = accept(again, NULL, NULL)) >= 0);
	CHECK_EQ(setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
	CHECK_EQ(close(client), 0);
	CHECK_ERRNO(read(accepted, &byte, 1), ECONNRESET);
	CHECK_EQ(close(accepted), 0);
	CHECK_EQ(close(again), 0);
	/* Nobody is there any more. */
	client = fresh(AF_INET, SOCK_STREAM);
	CHECK_ERRNO(connect(client, &address.any, length), ECONNREFUSED);
	CHECK_EQ(close(client), 0);
	client = fresh(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
	CHECK_ERRNO(connect(client, &address.any, length), EINPROGRESS);
	poller.fd = client;
	CHECK_EQ(poll(&poller, 1, 1000), 1);
	CHECK_EQ(poller.revents, POLLOUT | POLLERR | POLLHUP);
	CHECK_EQ(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size), 0);
	CHECK_EQ(error, ECONNREFUSED);
	CHECK_EQ(close(client), 0);
	say("without waiting");
}

static void datagrams(int family, const char *ip)
{
	union address address, from;
	char buffer[16];
	int first = server(family, ip, SOCK_DGRAM), second = fresh(family, SOCK_DGRAM), third = fresh(family, SOCK_DGRAM);
	socklen_t length = place(&address, family, ip, port_of(first)), size = sizeof from;
	CHECK_ERRNO(recv(first, buffer, 16, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(ready(first, POLLIN | POLLOUT), POLLOUT);
	CHECK_EQ(sendto(second, "question", 8, 0, &address.any, length), 8);
	CHECK_EQ(sendto(second, "", 0, 0, &address.any, length), 0);
	CHECK_EQ(recvfrom(first, buffer, 4, MSG_TRUNC, &from.any, &size), 8);
	CHECK_EQ(ntohs(from.v4.sin_port), port_of(second));
	say("from %s, %d bytes", text(&from), (int)size);
	CHECK_EQ(recv(first, buffer, 16, 0), 0);
	CHECK_EQ(sendto(first, "answer", 6, 0, &from.any, size), 6);
	CHECK_EQ(recv(second, buffer, 16, 0), 6);
	/* Connected, it hears one only. */
	CHECK_EQ(connect(second, &address.any, length), 0);
	CHECK_EQ(sendto(third, "no", 2, 0, &from.any, size), 2);
	CHECK_EQ(sendto(first, "yes", 3, 0, &from.any, size), 3);
	CHECK_EQ(recv(second, buffer, 16, 0), 3);
	CHECK_ERRNO(recv(second, buffer, 16, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(send(second, "again", 5, 0), 5);
	CHECK_EQ(recv(first, buffer, 16, 0), 5);
	CHECK_EQ(close(first), 0);
	CHECK_EQ(send(second, "lost", 4, 0), 4);
	CHECK_ERRNO(send(second, "lost", 4, 0), ECONNREFUSED);
	CHECK_ERRNO(send(third, "x", 1, 0), EDESTADDRREQ);
	CHECK_EQ(close(second), 0);
	CHECK_EQ(close(third), 0);
}

static void ports(void)
{
	union address address;
	int first = server(AF_INET, "127.0.0.1", SOCK_STREAM), port = port_of(first), second = fresh(AF_INET, SOCK_STREAM);
	socklen_t length = place(&address, AF_INET, "127.0.0.1", port);
	CHECK_ERRNO(bind(second, &address.any, length), EADDRINUSE);
	CHECK_ERRNO(bind(first, &address.any, length), EINVAL);
	length = place(&address, AF_INET, "0.0.0.0", port);
	CHECK_ERRNO(bind(second, &address.any, length), EADDRINUSE);
	length = place(&address, AF_INET, "127.0.0.2", port);
	CHECK_EQ(bind(second, &address.any, length), 0);
	length = place(&address, AF_INET, "192.0.2.1", port);
	int third = fresh(AF_INET, SOCK_STREAM);
	CHECK_ERRNO(bind(third, &address.any, length), EADDRNOTAVAIL);
	CHECK_ERRNO(bind(third, &address.any, 8), EINVAL);
	address.any.sa_family = AF_INET6;
	CHECK_ERRNO(bind(third, &address.any, length), EAFNOSUPPORT);
	CHECK_EQ(close(third), 0);
	/* A port for datagrams is another one. */
	third = fresh(AF_INET, SOCK_DGRAM);
	length = place(&address, AF_INET, "127.0.0.1", port);
	CHECK_EQ(bind(third, &address.any, length), 0);
	CHECK_ERRNO(listen(third, 5), EOPNOTSUPP);
	CHECK_ERRNO(accept(third, NULL, NULL), EOPNOTSUPP);
	CHECK_EQ(close(first), 0);
	first = fresh(AF_INET, SOCK_STREAM);
	CHECK_EQ(bind(first, &address.any, length), 0);
	CHECK_EQ(close(first), 0);
	CHECK_EQ(close(second), 0);
	CHECK_EQ(close(third), 0);
	say("ports");
}

static void options(void)
{
	int fd = fresh(AF_INET, SOCK_STREAM), value = 1, v6 = fresh(AF_INET6, SOCK_DGRAM);
	socklen_t length = sizeof value;
	const int plain[][2] = {
		{ SOL_SOCKET, SO_REUSEADDR }, { SOL_SOCKET, SO_REUSEPORT }, { SOL_SOCKET, SO_KEEPALIVE },
		{ IPPROTO_TCP, TCP_NODELAY }, { IPPROTO_TCP, TCP_KEEPCNT },
	};
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
		value = 1;
		CHECK_EQ(setsockopt(fd, plain[i][0], plain[i][1], &value, 4), 0);
		value = 77;
		CHECK_EQ(getsockopt(fd, plain[i][0], plain[i][1], &value, &length), 0);
		CHECK_EQ(value, 1);
	}
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), 0);
	CHECK_EQ(value, SOCK_STREAM);
	CHECK_EQ(getsockopt(v6, SOL_SOCKET, SO_DOMAIN, &value, &length), 0);
	CHECK_EQ(value, AF_INET6);
	CHECK_EQ(getsockopt(v6, SOL_SOCKET, SO_PROTOCOL, &value, &length), 0);
	CHECK_EQ(value, IPPROTO_UDP);
	CHECK_EQ(getsockopt(v6, IPPROTO_IPV6, IPV6_V6ONLY, &value, &length), 0);
	CHECK_EQ(value, 0);
	CHECK_ERRNO(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 2), EINVAL);
	CHECK_ERRNO(setsockopt(fd, IPPROTO_TCP, 9999, &value, 4), ENOPROTOOPT);
	CHECK_ERRNO(getsockopt(fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
	value = 1;
	CHECK_EQ(ioctl(fd, FIOASYNC, &value), 0);
	CHECK((fcntl(fd, F_GETFL) & O_ASYNC) != 0);
	value = 0;
	CHECK_EQ(ioctl(fd, FIOASYNC, &value), 0);
	CHECK_EQ(fcntl(fd, F_GETFL), O_RDWR);
	struct linger linger = { .l_onoff = 1, .l_linger = 7 };
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	memset(&linger, 0, sizeof linger);
	length = sizeof linger;
	CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length), 0);
	CHECK_EQ(linger.l_linger, 7);
	struct timeval patience = { .tv_usec = 20000 };
	CHECK_EQ(setsockopt(v6, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
	char byte;
	CHECK_ERRNO(recv(v6, &byte, 1, 0), EAGAIN);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(close(v6), 0);
	say("options");
}

static void mistakes(void)
{
	union address address;
	char byte = 0;
	CHECK_ERRNO(socket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
	CHECK_ERRNO(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	CHECK_ERRNO(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){ 0 }), EOPNOTSUPP);
	int fd = fresh(AF_INET, SOCK_STREAM);
	CHECK_ERRNO(accept(fd, NULL, NULL), EINVAL);
	CHECK_ERRNO(recv(fd, &byte, 1, 0), ENOTCONN);
	CHECK_ERRNO(send(fd, &byte, 1, MSG_NOSIGNAL), EPIPE);
	CHECK_ERRNO(shutdown(fd, SHUT_RDWR), ENOTCONN);
	socklen_t length = sizeof address;
	CHECK_ERRNO(getpeername(fd, &address.any, &length), ENOTCONN);
	CHECK_EQ(getsockname(fd, &address.any, &length), 0);
	say("unbound: %s", text(&address));
	CHECK_EQ(close(fd), 0);
	say("mistakes");
}

/* Much at once, in both directions, between two processes. */
static void bulk(void)
{
	enum { TOTAL = 4 << 20 };
	union address address;
	static char buffer[65536];
	int listening = server(AF_INET6, "::1", SOCK_STREAM), fd;
	socklen_t length = place(&address, AF_INET6, "::1", port_of(listening));
	pid_t child = fork();
	CHECK(child >= 0);
	fd = child ? accept(listening, NULL, NULL) : fresh(AF_INET6, SOCK_STREAM);
	if (!child)
		CHECK_EQ(connect(fd, &address.any, length), 0);
	CHECK(fd >= 0);
	long sent = 0, got = 0;
	unsigned char next = 0, wanted = 0;
	CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (sent < TOTAL || got < TOTAL) {
		struct pollfd poller = { .fd = fd, .events = (short)(POLLIN | (sent < TOTAL ? POLLOUT : 0)) };
		CHECK_EQ(poll(&poller, 1, 10000), 1);
		if (poller.revents & POLLIN && got < TOTAL) {
			long bytes = read(fd, buffer, sizeof buffer);
			CHECK(bytes > 0);
			for (long i = 0; i < bytes; i++)
				CHECK_EQ((unsigned char)buffer[i], wanted++);
			got += bytes;
		}
		if (poller.revents & POLLOUT && sent < TOTAL) {
			long bytes = TOTAL - sent < 10000 ? TOTAL - sent : 10000;
			for (long i = 0; i < bytes; i++)
				buffer[i] = (char)(unsigned char)(next + i);
			bytes = write(fd, buffer, (size_t)bytes);
			CHECK(bytes > 0 || errno == EAGAIN);
			if (bytes > 0) {
				sent += bytes;
				next = (unsigned char)(next + bytes);
			}
		}
	}
	if (!child)
		_exit(0);
	expect_exit(child, 0);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(close(listening), 0);
	say("bulk");
}

int main(void)
{
	stream(AF_INET, "127.0.0.1", AF_INET, "127.0.0.1");
	stream(AF_INET, "0.0.0.0", AF_INET, "127.0.0.1");
	stream(AF_INET6, "::1", AF_INET6, "::1");
	stream(AF_INET6, "::", AF_INET, "127.0.0.1");
	without_waiting();
	datagrams(AF_INET, "127.0.0.1");
	datagrams(AF_INET6, "::1");
	ports();
	options();
	mistakes();
	bulk();
	return 0;
}
