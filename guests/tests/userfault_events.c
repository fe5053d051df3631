/* userfaultfd(2), the rest of it: what is told of forks, moves, discarded and unmapped memory; pages that move, that have failed, that are protected
 * before they are there, and that nobody has to be asked for. */
#include "areas.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/ioctl.h>

#define UFFDIO_API 0xc018aa3f
#define UFFDIO_REGISTER 0xc020aa00
#define UFFDIO_COPY 0xc028aa03
#define UFFDIO_ZEROPAGE 0xc020aa04
#define UFFDIO_MOVE 0xc028aa05
#define UFFDIO_WRITEPROTECT 0xc018aa06
#define UFFDIO_POISON 0xc020aa08
#define MISSING 1
#define WP 2
#define EVENT_FORK (1 << 1)
#define EVENT_REMAP (1 << 2)
#define EVENT_REMOVE (1 << 3)
#define EVENT_UNMAP (1 << 6)
#define WP_UNPOPULATED (1 << 13)
#define POISON (1 << 14)
#define WP_ASYNC (1 << 15)
#define MOVE (1 << 16)
#define ALLOW_HOLES 2

struct message {
	uint8_t event, reserved[7];
	uint64_t words[3];
};

/* What is told is printed in pages from here. */
static unsigned char *base;

static int agreed_if(uint64_t features)
{
	uint64_t api[3] = { 0xaa, features, 0 };
	int fd = (int)syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
	CHECK(fd >= 0);
	if (ioctl(fd, UFFDIO_API, api) == 0)
		return fd;
	close(fd);
	return -1;
}

static int agreed(uint64_t features)
{
	int fd = agreed_if(features);
	CHECK(fd >= 0);
	return fd;
}

static void watch(int fd, void *at, size_t pages, uint64_t mode)
{
	uint64_t wanted[4] = { (uint64_t)at, pages * PAGE, mode, 0 };
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, wanted), 0);
}

static int64_t copied;

static int fill(int fd, void *at, int value)
{
	static unsigned char page[PAGE];
	memset(page, value, PAGE);
	int64_t wanted[5] = { (int64_t)at, (int64_t)page, PAGE, 0, 0 };
	int result = ioctl(fd, UFFDIO_COPY, wanted);
	copied = wanted[4];
	return result;
}

static int move(int fd, void *to, void *from, size_t pages, uint64_t mode)
{
	int64_t wanted[5] = { (int64_t)to, (int64_t)from, (int64_t)(pages * PAGE), (int64_t)mode, 0 };
	int result = ioctl(fd, UFFDIO_MOVE, wanted);
	copied = wanted[4];
	return result;
}

static int protect(int fd, void *at, size_t pages, uint64_t mode)
{
	uint64_t wanted[3] = { (uint64_t)at, pages * PAGE, mode };
	return ioctl(fd, UFFDIO_WRITEPROTECT, wanted);
}

static struct message next_message(int fd)
{
	struct message message;
	struct pollfd file = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&file, 1, 20000), 1);
	CHECK_EQ(file.revents, POLLIN);
	CHECK_EQ(read(fd, &message, sizeof message), sizeof message);
	return message;
}

static long page_of(uint64_t address)
{
	return (long)(address - (uint64_t)base) / (long)PAGE;
}

/* One who changes memory waits until it is read what it does: another thread does it. */
struct change {
	int what, done;
	void *at, *to;
	size_t pages;
	void *result;
};

static void *make_change(void *argument)
{
	struct change *change = argument;
	switch (change->what) {
	case 'u':
		CHECK_EQ(munmap(change->at, change->pages * PAGE), 0);
		break;
	case 'f':
		change->result = mmap(change->at, change->pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(change->result == change->at);
		break;
	case 'd':
		CHECK_EQ(madvise(change->at, change->pages * PAGE, MADV_DONTNEED), 0);
		break;
	case 'm':
		change->result = mremap(change->at, change->pages * PAGE, change->pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, change->to);
		CHECK(change->result == change->to);
		break;
	case 's':
		CHECK(mremap(change->at, change->pages * PAGE, PAGE, 0) == change->at);
		break;
	}
	__atomic_store_n(&change->done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static pthread_t begin(struct change *change)
{
	pthread_t thread;
	change->done = 0;
	CHECK_EQ(pthread_create(&thread, NULL, make_change, change), 0);
	return thread;
}

static void tell(const char *what, struct message message)
{
	switch (message.event) {
	case 0x14:
		say("%-24s remap %ld to %ld, %ld pages", what, page_of(message.words[0]), page_of(message.words[1]),
		    (long)(message.words[2] / PAGE));
		break;
	case 0x15:
	case 0x16:
		say("%-24s %s %ld to %ld", what, message.event == 0x15 ? "remove" : "unmap", page_of(message.words[0]), page_of(message.words[1]));
		break;
	default:
		FAIL("%s: event %#x", what, message.event);
	}
}

static void changes(void)
{
	int fd = agreed(EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP);
	pthread_t thread;
	base = window_of(64, PAGE);
	watch(fd, base, 16, MISSING);
	memset(base + 40 * PAGE, 1, PAGE);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(fill(fd, base + (size_t)i * PAGE, i + 1), 0);
	/* Whoever does it waits; nobody may fill pages meanwhile. */
	struct change discard = { .what = 'd', .at = base + PAGE, .pages = 2 };
	thread = begin(&discard);
	struct pollfd file = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&file, 1, 20000), 1);
	CHECK_EQ(__atomic_load_n(&discard.done, __ATOMIC_SEQ_CST), 0);
	CHECK_ERRNO(fill(fd, base + 12 * PAGE, 9), EAGAIN);
	CHECK_EQ(base[PAGE], 2);
	tell("MADV_DONTNEED", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(fill(fd, base + PAGE, 77), 0);
	CHECK_EQ(base[PAGE], 77);
	/* Only as far as it is watched. */
	discard = (struct change){ .what = 'd', .at = base + 12 * PAGE, .pages = 10 };
	thread = begin(&discard);
	tell("over the edge", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* Moved: watched where it is now. */
	struct change moved = { .what = 'm', .at = base + 4 * PAGE, .to = base + 32 * PAGE, .pages = 2 };
	thread = begin(&moved);
	tell("mremap", next_message(fd));
	tell("mremap", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(base[32 * PAGE], 5);
	CHECK_EQ(has_flag(base + 32 * PAGE, "um"), 1);
	/* Unmapped: told of in whole, as it was asked for. */
	struct change unmapped = { .what = 'u', .at = base + 8 * PAGE, .pages = 12 };
	thread = begin(&unmapped);
	tell("munmap", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	struct change replaced = { .what = 'f', .at = base + 7 * PAGE, .pages = 1 };
	thread = begin(&replaced);
	tell("mmap over it", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	struct change shrunk = { .what = 's', .at = base, .pages = 4 };
	thread = begin(&shrunk);
	tell("mremap to less", next_message(fd));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* What nobody watches is nobody's business. */
	CHECK_EQ(madvise(base + 40 * PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(munmap(base + 40 * PAGE, PAGE), 0);
	struct message message;
	CHECK_ERRNO(read(fd, &message, sizeof message), EAGAIN);
	/* Closed while somebody waits. */
	discard = (struct change){ .what = 'd', .at = base, .pages = 1 };
	thread = begin(&discard);
	CHECK_EQ(poll(&file, 1, 20000), 1);
	close(fd);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(base[0], 0);
	munmap(base, 64 * PAGE);
	say("changes: told of before they are over");
}

static void *fork_one(void *argument)
{
	unsigned char *pages = argument;
	IN_CHILD(0, {
		CHECK_EQ(pages[0], 1);
		CHECK_EQ(pages[PAGE], 42);
		CHECK_EQ(has_flag(pages, "um"), 1);
		/* The child's own page, not the parent's. */
		pages[0] = 7;
		/* A grandchild's memory is told of where the child's is. */
	});
	return NULL;
}

static void forks(void)
{
	int fd = agreed(EVENT_FORK);
	pthread_t thread;
	unsigned char *pages = window_of(8, PAGE);
	watch(fd, pages, 8, MISSING);
	CHECK_EQ(fill(fd, pages, 1), 0);
	CHECK_EQ(pthread_create(&thread, NULL, fork_one, pages), 0);
	struct message message = next_message(fd);
	CHECK_EQ(message.event, 0x13);
	int child = (int)(uint32_t)message.words[0];
	CHECK_EQ(fcntl(child, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(child, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	message = next_message(child);
	CHECK_EQ(message.event, 0x12);
	CHECK_EQ(message.words[1], (uint64_t)pages + PAGE);
	CHECK_EQ(fill(child, pages + PAGE, 42), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* It is not the parent's that was filled; and the child is gone. */
	CHECK_ERRNO(fill(child, pages + PAGE, 43), ESRCH);
	CHECK_EQ(fill(fd, pages + PAGE, 44), 0);
	CHECK_EQ(pages[PAGE], 44);
	CHECK_EQ(pages[0], 1);
	close(child);
	close(fd);
	/* Only for those who may trace others. */
	IN_CHILD(0, {
		CHECK_EQ(setresuid(1000, 1000, 1000), 0);
		uint64_t api[3] = { 0xaa, EVENT_FORK, 0 };
		int own = (int)syscall(SYS_userfaultfd, 1);
		CHECK(own >= 0);
		CHECK_ERRNO(ioctl(own, UFFDIO_API, api), EPERM);
		api[0] = 0xaa;
		api[1] = 0;
		CHECK_EQ(ioctl(own, UFFDIO_API, api), 0);
	});
	munmap(pages, 8 * PAGE);
	say("forks: the child's memory has a descriptor of its own");
}

static sigjmp_buf back;
static volatile int code;
static void *volatile where;

static void on_bus(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	code = info->si_code;
	where = info->si_addr;
	siglongjmp(back, 1);
}

static int bus_at(unsigned char *at)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	if (sigsetjmp(back, 1))
		return 1;
	*(volatile unsigned char *)at;
	return 0;
}

static void poison_checks(int fd)
{
	unsigned char *pages = window_of(8, PAGE);
	int64_t wanted[4] = { (int64_t)pages, 2 * PAGE, 0, 0 };
	watch(fd, pages, 8, MISSING);
	CHECK_EQ(ioctl(fd, UFFDIO_POISON, wanted), 0);
	CHECK_EQ(wanted[3], 2 * PAGE);
	CHECK_EQ(bus_at(pages + 100), 1);
	/* BUS_MCEERR_AR; BUS_ADRERR of a Linux that was built without memory failures. */
	CHECK(code == 4 || code == 2);
	CHECK(where == pages + 100 || where == pages);
	/* What is there is there. */
	CHECK_ERRNO(ioctl(fd, UFFDIO_POISON, wanted), EEXIST);
	CHECK_EQ(wanted[3], -EEXIST);
	CHECK_EQ(fill(fd, pages + PAGE, 1), 0);
	CHECK_EQ(pages[PAGE], 1);
	wanted[2] = 2;
	CHECK_ERRNO(ioctl(fd, UFFDIO_POISON, wanted), EINVAL);
	wanted[2] = 0;
	CHECK_EQ(fill(fd, pages + 3 * PAGE, 9), 0);
	wanted[0] = (int64_t)(pages + 2 * PAGE);
	CHECK_ERRNO(ioctl(fd, UFFDIO_POISON, wanted), EAGAIN);
	CHECK_EQ(wanted[3], PAGE);
	CHECK_EQ(pages[3 * PAGE], 9);
	/* Children have it, too; the kernel fails there. */
	IN_CHILD(0, CHECK_EQ(bus_at(pages), 1));
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	CHECK_ERRNO(write(ends[1], pages, 1), EFAULT);
	/* Discarded, it is missing again. */
	CHECK_EQ(madvise(pages, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(fill(fd, pages, 3), 0);
	CHECK_EQ(pages[0], 3);
	munmap(pages, 8 * PAGE);
	/* Of shared memory, here only. */
	int memory = memory_file("pages", 2);
	unsigned char *here = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	unsigned char *there = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	watch(fd, here, 2, MISSING);
	wanted[0] = (int64_t)here;
	wanted[1] = PAGE;
	CHECK_EQ(ioctl(fd, UFFDIO_POISON, wanted), 0);
	CHECK_EQ(bus_at(here), 1);
	CHECK_EQ(there[0], 1);
	CHECK_EQ(here[PAGE], 2);
	munmap(here, 2 * PAGE);
	munmap(there, 2 * PAGE);
	close(memory);
}

static void poison(void)
{
	int fd = agreed_if(POISON);
	if (!lacks("UFFDIO_POISON", fd >= 0)) {
		poison_checks(fd);
		close(fd);
	}
	say("poison: SIGBUS, until it is discarded");
}

static void move_checks(int fd)
{
	unsigned char *from = window_of(8, PAGE), *to = window_of(8, PAGE);
	for (int i = 0; i < 8; i++)
		memset(from + (size_t)i * PAGE, i + 1, PAGE);
	watch(fd, to, 8, MISSING);
	CHECK_EQ(move(fd, to, from, 2, 0), 0);
	CHECK_EQ(copied, 2 * PAGE);
	CHECK_EQ(to[0], 1);
	CHECK_EQ(to[2 * PAGE - 1], 2);
	CHECK_EQ(from[0], 0);
	CHECK_EQ(from[PAGE], 0);
	to[0] = 99;
	CHECK_EQ(to[0], 99);
	CHECK_EQ(from[0], 0);
	/* There already; two pages, of which one is. */
	CHECK_ERRNO(move(fd, to, from + 2 * PAGE, 1, 0), EEXIST);
	CHECK_EQ(copied, -EEXIST);
	CHECK_EQ(fill(fd, to + 3 * PAGE, 50), 0);
	CHECK_ERRNO(move(fd, to + 2 * PAGE, from + 2 * PAGE, 2, 0), EAGAIN);
	CHECK_EQ(copied, PAGE);
	CHECK_EQ(to[2 * PAGE], 3);
	CHECK_EQ(from[3 * PAGE], 4);
	/* Holes. */
	CHECK_EQ(madvise(from + 4 * PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_ERRNO(move(fd, to + 4 * PAGE, from + 4 * PAGE, 2, 0), ENOENT);
	CHECK_EQ(move(fd, to + 4 * PAGE, from + 4 * PAGE, 2, ALLOW_HOLES), 0);
	CHECK_EQ(copied, 2 * PAGE);
	CHECK_EQ(to[5 * PAGE], 6);
	CHECK_EQ(fill(fd, to + 4 * PAGE, 51), 0);
	/* Zeros that were read. */
	CHECK_EQ(from[4 * PAGE], 0);
	CHECK_EQ(madvise(to + 4 * PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(move(fd, to + 4 * PAGE, from + 4 * PAGE, 1, 0), 0);
	CHECK_EQ(to[4 * PAGE], 0);
	to[4 * PAGE] = 1;
	CHECK_EQ(from[4 * PAGE], 0);
	/* What others have as well. */
	int ends[2];
	char byte;
	CHECK_EQ(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK_EQ(read(ends[0], &byte, 1), 1);
		CHECK_EQ(from[7 * PAGE], 8);
		_exit(0);
	}
	CHECK_ERRNO(move(fd, to + 7 * PAGE, from + 7 * PAGE, 1, 0), EBUSY);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	expect_exit(child, 0);
	from[7 * PAGE] = 8;
	CHECK_EQ(move(fd, to + 7 * PAGE, from + 7 * PAGE, 1, 0), 0);
	CHECK_EQ(to[7 * PAGE], 8);
	IN_CHILD(0, CHECK_EQ(to[7 * PAGE], 8));
	CHECK_EQ(to[7 * PAGE], 8);
	/* Refused. */
	CHECK_ERRNO(move(fd, to + 6 * PAGE, from + 6 * PAGE, 1, 4), EINVAL);
	CHECK_ERRNO(move(fd, to + 6 * PAGE + 1, from + 6 * PAGE, 1, 0), EINVAL);
	CHECK_ERRNO(move(fd, to + 6 * PAGE, from + 6 * PAGE + 1, 1, 0), EINVAL);
	CHECK_ERRNO(move(fd, from + 4 * PAGE, to, 1, 0), EINVAL);
	CHECK_ERRNO(move(fd, to + 6 * PAGE, from + 7 * PAGE, 2, 0), EINVAL);
	CHECK_EQ(mprotect(from + 6 * PAGE, PAGE, PROT_READ), 0);
	CHECK_ERRNO(move(fd, to + 6 * PAGE, from + 6 * PAGE, 1, 0), EINVAL);
	unsigned char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared[0] = 1;
	CHECK_ERRNO(move(fd, to + 6 * PAGE, shared, 1, 0), EINVAL);
	munmap(shared, PAGE);
	CHECK_ERRNO(move(fd, to + 6 * PAGE, shared, 1, 0), ENOENT);
	munmap(from, 8 * PAGE);
	munmap(to, 8 * PAGE);
}

static void moves(void)
{
	int fd = agreed_if(MOVE);
	if (!lacks("UFFDIO_MOVE", fd >= 0)) {
		move_checks(fd);
		close(fd);
	}
	say("moves: the very page, if nobody else has it");
}

static void *store(void *at)
{
	*(volatile unsigned char *)at = 5;
	return NULL;
}

static void unpopulated_checks(int fd)
{
	unsigned char *pages = window_of(1024, 2 << 20);
	pthread_t thread;
	pages[3 * PAGE] = 1;
	watch(fd, pages, 1024, WP);
	CHECK_EQ(protect(fd, pages, 1024, 1), 0);
	CHECK_EQ(pages[700 * PAGE], 0);
	for (int i = 0; i < 4; i++) {
		size_t page = (size_t[]){ 0, 3, 700, 1023 }[i];
		CHECK_EQ(pthread_create(&thread, NULL, store, pages + page * PAGE), 0);
		struct message message = next_message(fd);
		CHECK_EQ(message.event, 0x12);
		CHECK_EQ(message.words[0], 3);
		CHECK_EQ(message.words[1], (uint64_t)(pages + page * PAGE));
		CHECK_EQ(protect(fd, pages + page * PAGE, 1, 0), 0);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		CHECK_EQ(pages[page * PAGE], 5);
	}
	munmap(pages, 1024 * PAGE);
}

/* Whether stores to the page are still to be told of, as /proc/self/pagemap says. */
static int is_protected(void *at)
{
	uint64_t entry;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	CHECK_EQ(pread(fd, &entry, 8, (off_t)((uint64_t)at / PAGE * 8)), 8);
	close(fd);
	return (int)(entry >> 57 & 1);
}

static void async_checks(int fd)
{
	unsigned char *pages = window_of(8, PAGE);
	memset(pages, 1, 4 * PAGE);
	watch(fd, pages, 8, WP);
	CHECK_EQ(protect(fd, pages, 8, 1), 0);
	CHECK_EQ(is_protected(pages), 1);
	CHECK_EQ(is_protected(pages + 6 * PAGE), 1);
	pages[0] = 2;
	pages[6 * PAGE] = 3;
	CHECK_EQ(is_protected(pages), 0);
	CHECK_EQ(is_protected(pages + PAGE), 1);
	CHECK_EQ(is_protected(pages + 6 * PAGE), 0);
	struct message message;
	CHECK_ERRNO(read(fd, &message, sizeof message), EAGAIN);
	munmap(pages, 8 * PAGE);
}

static void protection(void)
{
	int fd = agreed_if(1 | WP_UNPOPULATED);
	if (!lacks("UFFD_FEATURE_WP_UNPOPULATED", fd >= 0)) {
		unpopulated_checks(fd);
		close(fd);
	}
	fd = agreed_if(1 | WP_ASYNC);
	if (!lacks("UFFD_FEATURE_WP_ASYNC", fd >= 0)) {
		async_checks(fd);
		close(fd);
	}
	say("protection: of pages that are not there; noted without a word");
}

int main(void)
{
	changes();
	forks();
	poison();
	moves();
	protection();
	return 0;
}
