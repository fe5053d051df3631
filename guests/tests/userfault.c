/* userfaultfd(2): faults that a thread answers: missing pages, pages that the file has, stores to protected pages; what is refused. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

/* Of linux/userfaultfd.h, which not every C library's headers come with. */
#define UFFDIO_API 0xc018aa3f
#define UFFDIO_REGISTER 0xc020aa00
#define UFFDIO_UNREGISTER 0x8010aa01
#define UFFDIO_WAKE 0x8010aa02
#define UFFDIO_COPY 0xc028aa03
#define UFFDIO_ZEROPAGE 0xc020aa04
#define UFFDIO_WRITEPROTECT 0xc018aa06
#define UFFDIO_CONTINUE 0xc020aa07
#define MISSING 1
#define WP 2
#define MINOR 4
#define FEATURE_WP 1
#define FEATURE_SIGBUS (1 << 7)
#define FEATURE_THREAD_ID (1 << 8)
#define FEATURE_MINOR_SHMEM (1 << 10)
#define FEATURE_EXACT_ADDRESS (1 << 11)
#define USER_MODE_ONLY 1

struct message {
	uint8_t event, reserved[7];
	uint64_t flags, address;
	uint32_t thread, rest;
};

static int make(int flags)
{
	return (int)syscall(SYS_userfaultfd, flags);
}

static int agreed(int flags, uint64_t features)
{
	uint64_t api[3] = { 0xaa, features, 0 };
	int fd = make(flags);
	CHECK(fd >= 0);
	CHECK_EQ(ioctl(fd, UFFDIO_API, api), 0);
	CHECK_EQ(api[0], 0xaa);
	CHECK_EQ(api[1] & features, features);
	CHECK_EQ(api[2], 3UL | 1UL << 63);
	return fd;
}

static uint64_t watch(int fd, volatile void *at, size_t len, uint64_t mode)
{
	uint64_t wanted[4] = { (uint64_t)at, len, mode, 0 };
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, wanted), 0);
	return wanted[3];
}

static int64_t copied;

static int copy(int fd, volatile void *to, void *from, size_t len, uint64_t mode)
{
	int64_t wanted[5] = { (int64_t)to, (int64_t)from, (int64_t)len, (int64_t)mode, 0 };
	int result = ioctl(fd, UFFDIO_COPY, wanted);
	int error = errno;
	copied = wanted[4];
	errno = error;
	return result;
}

static int zero(int fd, volatile void *at, size_t len)
{
	int64_t wanted[4] = { (int64_t)at, (int64_t)len, 0, 0 };
	int result = ioctl(fd, UFFDIO_ZEROPAGE, wanted);
	copied = wanted[3];
	return result;
}

static int protect(int fd, volatile void *at, size_t len, uint64_t mode)
{
	uint64_t wanted[3] = { (uint64_t)at, len, mode };
	return ioctl(fd, UFFDIO_WRITEPROTECT, wanted);
}

static int unwatch(int fd, volatile void *at, size_t len)
{
	uint64_t wanted[2] = { (uint64_t)at, len };
	return ioctl(fd, UFFDIO_UNREGISTER, wanted);
}

/* The thread that answers: fills each missing page with its number, shows what the file has, lifts protections. */
struct answering {
	int fd, stop;
	volatile unsigned char *base;
	volatile unsigned missing, unmapped, protected, writes;
	volatile uint32_t thread;
	volatile uint64_t last;
	unsigned char page[PAGE] __attribute__((aligned(4096)));
};

static void *answer(void *argument)
{
	struct answering *self = argument;
	struct pollfd files[2] = { { .fd = self->fd, .events = POLLIN }, { .fd = self->stop, .events = POLLIN } };
	for (;;) {
		struct message message;
		CHECK(poll(files, 2, -1) > 0);
		if (files[1].revents)
			return NULL;
		if (!(files[0].revents & POLLIN))
			continue;
		ssize_t got = read(self->fd, &message, sizeof message);
		if (got == -1 && errno == EAGAIN)
			continue;
		CHECK_EQ(got, sizeof message);
		CHECK_EQ(message.event, 0x12);
		volatile unsigned char *at = (unsigned char *)(message.address & ~(PAGE - 1));
		self->thread = message.thread;
		self->last = message.address;
		self->writes += message.flags & 1;
		if (message.flags & 2) {
			self->protected++;
			CHECK_EQ(protect(self->fd, at, PAGE, 0), 0);
		} else if (message.flags & 4) {
			int64_t wanted[4] = { (int64_t)at, PAGE, 0, 0 };
			self->unmapped++;
			CHECK_EQ(ioctl(self->fd, UFFDIO_CONTINUE, wanted), 0);
			CHECK_EQ(wanted[3], PAGE);
		} else {
			self->missing++;
			memset(self->page, (int)((at - self->base) / PAGE) + 1, PAGE);
			int result = copy(self->fd, at, self->page, PAGE, 0);
			CHECK(result == 0 || errno == EEXIST);
		}
	}
}

static pthread_t answer_with(struct answering *self, int fd, volatile unsigned char *base, int pipes[2])
{
	pthread_t thread;
	CHECK_EQ(pipe(pipes), 0);
	memset(self, 0, sizeof *self);
	self->fd = fd;
	self->stop = pipes[0];
	self->base = base;
	CHECK_EQ(pthread_create(&thread, NULL, answer, self), 0);
	return thread;
}

static void end_answers(pthread_t thread, int pipes[2])
{
	CHECK_EQ(write(pipes[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	close(pipes[0]);
	close(pipes[1]);
}

static struct answering self;

static int flag_of(volatile void *at, const char *flag)
{
	static char text[1 << 16];
	char line[32];
	read_whole("/proc/self/smaps", text, sizeof text);
	snprintf(line, sizeof line, "%08lx-", (unsigned long)at);
	char *found = strstr(text, line);
	CHECK(found != NULL);
	char *flags = strstr(found, "VmFlags:");
	CHECK(flags != NULL);
	*strchr(flags, '\n') = 0;
	return strstr(flags, flag) != NULL;
}

static void refusals(void)
{
	uint64_t api[3] = { 0xab, 0, 0 };
	CHECK_ERRNO(make(0x100000), EINVAL);
	int fd = make(O_CLOEXEC | O_NONBLOCK);
	CHECK(fd >= 0);
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	unsigned char *pages = map_pages(4, PROT_READ | PROT_WRITE);
	uint64_t wanted[4] = { (uint64_t)pages, 4 * PAGE, MISSING, 0 };
	char buffer[64];
	/* Nothing before the interface has been agreed on. */
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	CHECK_ERRNO(read(fd, buffer, 64), EINVAL);
	CHECK_ERRNO(ioctl(fd, UFFDIO_API, api), EINVAL);
	CHECK_EQ(api[0], 0);
	api[0] = 0xaa;
	api[1] = 1UL << 60;
	CHECK_ERRNO(ioctl(fd, UFFDIO_API, api), EINVAL);
	api[0] = 0xaa;
	api[1] = 0;
	CHECK_EQ(ioctl(fd, UFFDIO_API, api), 0);
	api[0] = 0xaa;
	CHECK_ERRNO(ioctl(fd, UFFDIO_API, api), EINVAL);
	CHECK_ERRNO(read(fd, buffer, 31), EINVAL);
	CHECK_ERRNO(read(fd, buffer, 32), EAGAIN);
	CHECK_ERRNO(write(fd, buffer, 32), EBADF);

	wanted[2] = 0;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	wanted[2] = 8;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	wanted[2] = MISSING;
	wanted[0]++;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	wanted[0]--;
	wanted[1] = 0;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	wanted[1] = -PAGE;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	wanted[1] = 4 * PAGE;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, 8), EFAULT);
	/* Somebody else's; what cannot be written; nothing at all. */
	CHECK_EQ((watch(fd, pages, 2 * PAGE, MISSING) & 0x1f) | 1 << 5, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5);
	CHECK_EQ(flag_of(pages, " um"), 1);
	CHECK_EQ(flag_of(pages + 2 * PAGE, " um"), 0);
	int other = agreed(O_NONBLOCK, 0);
	CHECK_ERRNO(ioctl(other, UFFDIO_REGISTER, wanted), EBUSY);
	CHECK_EQ(munmap(pages + 2 * PAGE, 2 * PAGE), 0);
	wanted[0] += 2 * PAGE;
	wanted[1] = 2 * PAGE;
	CHECK_ERRNO(ioctl(fd, UFFDIO_REGISTER, wanted), EINVAL);
	CHECK_ERRNO(unwatch(fd, pages + 2 * PAGE, PAGE), EINVAL);

	unsigned char page[PAGE];
	CHECK_ERRNO(copy(fd, pages + 1, page, PAGE, 0), EINVAL);
	CHECK_ERRNO(copy(fd, pages, page, PAGE, 4), EINVAL);
	CHECK_ERRNO(copy(fd, pages + 2 * PAGE, page, PAGE, 0), ENOENT);
	CHECK_ERRNO(copy(fd, pages + PAGE, self.page, 2 * PAGE, 0), ENOENT);
	CHECK_ERRNO(copy(fd, pages, (void *)8, PAGE, 0), EFAULT);
	CHECK_EQ(copy(fd, pages, page, PAGE, 0), 0);
	CHECK_EQ(copied, PAGE);
	CHECK_ERRNO(copy(fd, pages, page, PAGE, 0), EEXIST);
	CHECK_EQ(copied, -EEXIST);
	/* The second of two is there already. */
	CHECK_EQ(munmap(pages, PAGE), 0);
	CHECK_EQ(unwatch(fd, pages + PAGE, PAGE), 0);
	CHECK_EQ(flag_of(pages + PAGE, " um"), 0);
	pages = map_pages(2, PROT_READ | PROT_WRITE);
	pages[PAGE] = 1;
	watch(fd, pages, 2 * PAGE, MISSING);
	unsigned char *two = map_pages(2, PROT_READ | PROT_WRITE);
	memset(two, 5, 2 * PAGE);
	CHECK_ERRNO(copy(fd, pages, two, 2 * PAGE, 0), EAGAIN);
	CHECK_EQ(copied, PAGE);
	CHECK_EQ(pages[0], 5);
	CHECK_EQ(pages[PAGE], 1);
	CHECK_ERRNO(protect(fd, pages, PAGE, 1), ENOENT);
	CHECK_ERRNO(protect(fd, pages, PAGE, 3), EINVAL);
	CHECK_ERRNO(protect(fd, pages, PAGE, 4), EINVAL);
	/* A descriptor whose reads wait cannot be polled. */
	struct pollfd files = { .fd = agreed(0, 0), .events = POLLIN };
	CHECK_EQ(poll(&files, 1, 0), 1);
	CHECK_EQ(files.revents, POLLERR);
	close(files.fd);
	close(fd);
	close(other);
	say("refusals");
}

static void missing(void)
{
	int pipes[2];
	int fd = agreed(O_NONBLOCK, FEATURE_THREAD_ID);
	volatile unsigned char *pages = map_pages(64, PROT_READ | PROT_WRITE);
	watch(fd, pages, 64 * PAGE, MISSING);
	pthread_t thread = answer_with(&self, fd, pages, pipes);
	/* Loads and stores; once for each page. */
	for (int i = 0; i < 16; i++)
		CHECK_EQ(pages[i * PAGE + 7], i + 1);
	CHECK_EQ(self.missing, 16);
	CHECK_EQ(self.writes, 0);
	CHECK_EQ(self.thread, syscall(SYS_gettid));
	for (int i = 16; i < 32; i++) {
		pages[i * PAGE] = 99;
		CHECK_EQ(pages[i * PAGE + 1], i + 1);
	}
	CHECK_EQ(self.missing, 32);
	CHECK_EQ(self.writes, 16);
	for (int i = 0; i < 32; i++)
		CHECK_EQ(pages[i * PAGE], i < 16 ? i + 1 : 99);
	CHECK_EQ(self.missing, 32);
	/* What is discarded is missing again; zeros take no memory. */
	CHECK_EQ(madvise((void *)pages, 4 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(zero(fd, pages, PAGE), 0);
	CHECK_EQ(copied, PAGE);
	CHECK_EQ(pages[0], 0);
	pages[0] = 3;
	CHECK_EQ(pages[0], 3);
	CHECK_EQ(self.missing, 32);
	CHECK_EQ(pages[PAGE], 2);
	CHECK_EQ(self.missing, 33);

	/* The kernel's own accesses wait as well. */
	int channel[2];
	CHECK_EQ(pipe(channel), 0);
	CHECK_EQ(write(channel[1], (void *)(pages + 40 * PAGE), 10), 10);
	CHECK_EQ(self.missing, 34);
	CHECK_EQ(read(channel[0], (void *)(pages + 41 * PAGE), 10), 10);
	CHECK_EQ(self.missing, 35);
	CHECK_EQ(pages[41 * PAGE + 9], 41);
	CHECK_EQ(pages[41 * PAGE + 10], 42);
	struct timespec *now = (struct timespec *)(pages + 42 * PAGE);
	CHECK_EQ(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now), 0);
	CHECK_EQ(self.missing, 36);
	close(channel[0]);
	close(channel[1]);

	/* A child's memory is nobody's to answer. */
	IN_CHILD(0, {
		CHECK_EQ(pages[50 * PAGE], 0);
		CHECK_EQ(pages[5 * PAGE], 6);
		CHECK_EQ(flag_of(pages, " um"), 0);
	});
	CHECK_EQ(self.missing, 36);
	/* Nor is what is not watched any more, or moves. */
	CHECK_EQ(unwatch(fd, pages + 60 * PAGE, 2 * PAGE), 0);
	CHECK_EQ(pages[60 * PAGE], 0);
	unsigned char *moved = mremap((void *)(pages + 62 * PAGE), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(1, PROT_NONE));
	CHECK(moved != MAP_FAILED);
	CHECK_EQ(moved[0], 0);
	CHECK_EQ(self.missing, 36);
	CHECK_EQ(pages[63 * PAGE], 64);
	end_answers(thread, pipes);
	/* Closed: as it was before. */
	close(fd);
	CHECK_EQ(pages[55 * PAGE], 0);
	CHECK_EQ(flag_of(pages, " um"), 0);
	munmap((void *)pages, 64 * PAGE);
	say("missing: each page once, for the program and for the kernel");
}

static void shared(void)
{
	int pipes[2], memory = memfd_create("pages", 0);
	CHECK_EQ(ftruncate(memory, 16 * PAGE), 0);
	volatile unsigned char *pages = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	volatile unsigned char *again = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	CHECK(pages != MAP_FAILED && again != MAP_FAILED);
	int fd = agreed(O_NONBLOCK, FEATURE_MINOR_SHMEM);
	again[2 * PAGE] = 77;
	CHECK_EQ(watch(fd, pages, 16 * PAGE, MISSING | MINOR) & (1 << 7), 1 << 7);
	CHECK_EQ(flag_of(pages, " ui"), 1);
	pthread_t thread = answer_with(&self, fd, pages, pipes);
	/* Not there; there, and not here; there, and made meanwhile through another mapping. */
	CHECK_EQ(pages[PAGE], 2);
	CHECK_EQ(self.missing, 1);
	CHECK_EQ(again[PAGE], 2);
	CHECK_EQ(pages[2 * PAGE], 77);
	CHECK_EQ(self.unmapped, 1);
	again[3 * PAGE] = 78;
	pages[3 * PAGE + 1] = 79;
	CHECK_EQ(self.unmapped, 2);
	CHECK_EQ(again[3 * PAGE + 1], 79);
	CHECK_EQ(pages[3 * PAGE], 78);
	CHECK_EQ(self.missing, 1);
	end_answers(thread, pipes);
	int64_t wanted[4] = { (int64_t)pages + 5 * (int64_t)PAGE, PAGE, 0, 0 };
	CHECK_ERRNO(ioctl(fd, UFFDIO_CONTINUE, wanted), EFAULT);
	wanted[0] = (int64_t)pages + 3 * (int64_t)PAGE;
	CHECK_ERRNO(ioctl(fd, UFFDIO_CONTINUE, wanted), EEXIST);
	close(fd);
	munmap((void *)pages, 16 * PAGE);
	munmap((void *)again, 16 * PAGE);
	close(memory);
	say("shared: missing in the file, or only here");
}

static void protection(void)
{
	int pipes[2];
	int fd = agreed(O_NONBLOCK, FEATURE_WP);
	volatile unsigned char *pages = map_pages(32, PROT_READ | PROT_WRITE);
	memset((void *)pages, 1, 32 * PAGE);
	CHECK_EQ(watch(fd, pages, 32 * PAGE, WP) & (1 << 6), 1 << 6);
	CHECK_EQ(flag_of(pages, " uw"), 1);
	CHECK_EQ(protect(fd, pages, 16 * PAGE, 1), 0);
	pthread_t thread = answer_with(&self, fd, pages, pipes);
	for (int i = 0; i < 32; i++)
		CHECK_EQ(pages[i * PAGE], 1);
	CHECK_EQ(self.protected, 0);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 32; i++)
			pages[i * PAGE] = 2;
	CHECK_EQ(self.protected, 16);
	CHECK_EQ(self.writes, 16);
	/* It outlives mprotect, and a fork; the child is not concerned. */
	CHECK_EQ(protect(fd, pages, 32 * PAGE, 1), 0);
	CHECK_EQ(mprotect((void *)pages, 8 * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect((void *)pages, 8 * PAGE, PROT_READ | PROT_WRITE), 0);
	IN_CHILD(0, {
		for (int i = 0; i < 32; i++)
			pages[i * PAGE] = 3;
	});
	CHECK_EQ(self.protected, 16);
	for (int i = 0; i < 10; i++)
		pages[i * PAGE] = 4;
	CHECK_EQ(self.protected, 26);
	/* The kernel's stores, too. */
	int channel[2];
	CHECK_EQ(pipe(channel), 0);
	CHECK_EQ(write(channel[1], "hello", 5), 5);
	CHECK_EQ(read(channel[0], (void *)(pages + 12 * PAGE), 5), 5);
	CHECK_EQ(self.protected, 27);
	close(channel[0]);
	close(channel[1]);
	end_answers(thread, pipes);
	/* Not watched any more: stores are as ever. */
	CHECK_EQ(unwatch(fd, pages, 32 * PAGE), 0);
	for (int i = 0; i < 32; i++)
		pages[i * PAGE] = 5;
	close(fd);
	munmap((void *)pages, 32 * PAGE);

	/* Filled and protected at once. */
	unsigned char page[PAGE];
	memset(page, 9, PAGE);
	fd = agreed(O_NONBLOCK, FEATURE_WP);
	pages = map_pages(2, PROT_READ | PROT_WRITE);
	watch(fd, pages, 2 * PAGE, MISSING | WP);
	CHECK_EQ(copy(fd, pages, page, PAGE, 2), 0);
	thread = answer_with(&self, fd, pages, pipes);
	CHECK_EQ(pages[0], 9);
	CHECK_EQ(self.protected, 0);
	pages[0] = 8;
	CHECK_EQ(self.protected, 1);
	end_answers(thread, pipes);
	close(fd);
	munmap((void *)pages, 2 * PAGE);
	say("protection: stores are told of once, reads are not");
}

static void *poke(void *at)
{
	*(volatile char *)at = 1;
	return NULL;
}

static volatile sig_atomic_t rung;

static void ring(int signal)
{
	rung = signal;
}

static void waiting(void)
{
	int fd = agreed(O_NONBLOCK, FEATURE_EXACT_ADDRESS);
	unsigned char *pages = map_pages(8, PROT_READ | PROT_WRITE);
	unsigned char page[PAGE];
	struct message messages[4];
	pthread_t threads[3];
	memset(page, 6, PAGE);
	watch(fd, pages, 8 * PAGE, MISSING);
	/* Three wait for two pages; each is told of; one request lets two go on. */
	CHECK_EQ(pthread_create(&threads[0], NULL, poke, pages + 100), 0);
	CHECK_EQ(pthread_create(&threads[1], NULL, poke, pages + 200), 0);
	CHECK_EQ(pthread_create(&threads[2], NULL, poke, pages + PAGE), 0);
	uint64_t sum = 0;
	for (int seen = 0; seen < 3;) {
		struct pollfd file = { .fd = fd, .events = POLLIN };
		CHECK_EQ(poll(&file, 1, -1), 1);
		ssize_t got = read(fd, messages, sizeof messages);
		CHECK(got > 0 && got % (ssize_t)sizeof messages[0] == 0);
		for (int i = 0; i < got / (ssize_t)sizeof messages[0]; i++, seen++)
			sum += messages[i].address - (uint64_t)pages;
	}
	CHECK_EQ(sum, 300 + PAGE);
	/* A signal is delivered to who waits. */
	struct sigaction action = { .sa_handler = ring };
	sigaction(SIGUSR1, &action, NULL);
	CHECK_EQ(pthread_kill(threads[0], SIGUSR1), 0);
	while (rung != SIGUSR1)
		usleep(1000);
	CHECK_EQ(copy(fd, pages, page, PAGE, 1), 0);
	uint64_t range[2] = { (uint64_t)pages, PAGE };
	CHECK_EQ(ioctl(fd, UFFDIO_WAKE, range), 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	CHECK_EQ(pages[100] + pages[200] + pages[300], 8);
	/* Closing lets the last one go on. */
	close(fd);
	pthread_join(threads[2], NULL);
	CHECK_EQ(pages[PAGE], 1);
	munmap(pages, 8 * PAGE);

	/* No waiting, but SIGBUS, or EFAULT. */
	fd = agreed(O_NONBLOCK, FEATURE_SIGBUS);
	pages = map_pages(2, PROT_READ | PROT_WRITE);
	watch(fd, pages, 2 * PAGE, MISSING);
	KILLED_BY(SIGABRT, abort());
	int channel[2];
	CHECK_EQ(pipe(channel), 0);
	CHECK_ERRNO(write(channel[1], pages, 1), EFAULT);
	close(fd);
	fd = agreed(O_NONBLOCK | USER_MODE_ONLY, 0);
	watch(fd, pages, 2 * PAGE, MISSING);
	CHECK_ERRNO(write(channel[1], pages, 1), EFAULT);
	close(fd);
	CHECK_EQ(write(channel[1], pages, 1), 1);
	munmap(pages, 2 * PAGE);
	say("waiting: who is told, who is woken, and by what");
}

int main(void)
{
	refusals();
	missing();
	shared();
	protection();
	waiting();
	return 0;
}
