/* Namespaces of networks: an interface that is down, ports and abstract names of one's own, interfaces by ioctl. */
#include "check.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct sockaddr_in address(uint32_t ip, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(ip) };
	return to;
}

static int connect_to(int port)
{
	struct sockaddr_in to = address(INADDR_LOOPBACK, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	int result = connect(fd, (struct sockaddr *)&to, sizeof to);
	int error = errno;
	close(fd);
	errno = error;
	return result;
}

static int bind_at(uint32_t ip, int port, int type)
{
	struct sockaddr_in to = address(ip, port);
	int fd = socket(AF_INET, type, 0);
	CHECK(fd >= 0);
	if (bind(fd, (struct sockaddr *)&to, sizeof to) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

static void set_up(int up)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(ioctl(fd, SIOCGIFFLAGS, &request), 0);
	request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
	CHECK_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

static void interfaces(int up)
{
	struct ifreq request = { .ifr_name = "lo" };
	struct ifreq listed[4];
	struct ifconf list = { .ifc_len = sizeof listed, .ifc_req = listed };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(ioctl(fd, SIOCGIFFLAGS, &request), 0);
	CHECK_EQ(request.ifr_flags & (IFF_UP | IFF_LOOPBACK), IFF_LOOPBACK | (up ? IFF_UP : 0));
	CHECK_EQ(ioctl(fd, SIOCGIFINDEX, &request), 0);
	CHECK_EQ(request.ifr_ifindex, 1);
	CHECK_EQ(ioctl(fd, SIOCGIFMTU, &request), 0);
	CHECK_EQ(request.ifr_mtu, 65536);
	CHECK_EQ(ioctl(fd, SIOCGIFCONF, &list), 0);
	CHECK_EQ(list.ifc_len, up ? (int)sizeof listed[0] : 0);
	if (up) {
		CHECK(strcmp(listed[0].ifr_name, "lo") == 0);
		CHECK_EQ(((struct sockaddr_in *)&listed[0].ifr_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
		CHECK_EQ(ioctl(fd, SIOCGIFADDR, &request), 0);
		CHECK_EQ(((struct sockaddr_in *)&request.ifr_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	} else {
		CHECK_ERRNO(ioctl(fd, SIOCGIFADDR, &request), EADDRNOTAVAIL);
	}
	strcpy(request.ifr_name, "nothing0");
	CHECK_ERRNO(ioctl(fd, SIOCGIFFLAGS, &request), ENODEV);
	CHECK_ERRNO(ioctl(fd, SIOCGIFINDEX, &request), ENODEV);
	request.ifr_ifindex = 1;
	CHECK_EQ(ioctl(fd, SIOCGIFNAME, &request), 0);
	CHECK(strcmp(request.ifr_name, "lo") == 0);
	close(fd);
}

static int abstract(const char *name, int listens)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	memcpy(to.sun_path + 1, name, strlen(name));
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	int result = listens ? bind(fd, (struct sockaddr *)&to, length) : connect(fd, (struct sockaddr *)&to, length);
	if (result == 0) {
		if (listens)
			CHECK_EQ(listen(fd, 4), 0);
		return fd;
	}
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

int main(void)
{
	struct stat before, after;
	/* One to begin with that is like a machine's first, wherever this runs. */
	CHECK_EQ(unshare(CLONE_NEWNET), 0);
	interfaces(0);
	CHECK_ERRNO(connect_to(7000), ENETUNREACH);
	int any = bind_at(INADDR_ANY, 7000, SOCK_DGRAM);
	CHECK(any >= 0);
	close(any);
	say("down: nobody is reached");
	set_up(1);
	interfaces(1);
	CHECK_ERRNO(connect_to(7000), ECONNREFUSED);
	int server = bind_at(INADDR_LOOPBACK, 7000, SOCK_STREAM);
	CHECK(server >= 0);
	CHECK_EQ(listen(server, 4), 0);
	CHECK_EQ(connect_to(7000), 0);
	say("up: as ever");
	int name = abstract("a name", 1);
	CHECK(name >= 0);
	CHECK_EQ(stat("/proc/self/ns/net", &before), 0);
	int outside = open("/proc/self/ns/net", O_RDONLY);
	IN_CHILD(0, {
		CHECK_EQ(unshare(CLONE_NEWNET), 0);
		CHECK_EQ(stat("/proc/self/ns/net", &after), 0);
		CHECK(before.st_ino != after.st_ino);
		set_up(1);
		/* Neither its ports nor its names; but what was open is what it was. */
		CHECK_ERRNO(connect_to(7000), ECONNREFUSED);
		CHECK_ERRNO(abstract("a name", 0), ECONNREFUSED);
		int own = bind_at(INADDR_LOOPBACK, 7000, SOCK_STREAM);
		CHECK(own >= 0);
		int own_name = abstract("a name", 1);
		CHECK(own_name >= 0);
		struct sockaddr_in to = address(INADDR_LOOPBACK, 7000);
		CHECK_EQ(setns(outside, CLONE_NEWNET), 0);
		CHECK_EQ(connect_to(7000), 0);
		CHECK(abstract("a name", 0) >= 0);
		/* A socket stays where it was made. */
		CHECK_EQ(listen(own, 1), 0);
		CHECK_EQ(getsockname(own, (struct sockaddr *)&to, &(socklen_t){ sizeof to }), 0);
	});
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		CHECK_ERRNO(connect_to(7000), ENETUNREACH);
		_exit(0);
	}
	expect_exit(child, 0);
	CHECK_EQ(connect_to(7000), 0);
	CHECK(abstract("a name", 0) >= 0);
	say("namespaces: ports and names of one's own");
	IN_CHILD(0, {
		CHECK_EQ(setresuid(1000, 1000, 1000), 0);
		struct ifreq request = { .ifr_name = "lo", .ifr_flags = 0 };
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK_ERRNO(ioctl(fd, SIOCSIFFLAGS, &request), EPERM);
		CHECK_EQ(ioctl(fd, SIOCGIFFLAGS, &request), 0);
		CHECK_ERRNO(unshare(CLONE_NEWNET), EPERM);
	});
	say("permissions: for those who may");
	return 0;
}
