/* futex(2) by itself: every command, who meets whom at which address, timeouts, mistakes, robust lists, locks that name
 * their owner. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

enum {
	WAIT = 0, WAKE = 1, REQUEUE = 3, CMP_REQUEUE = 4, WAKE_OP = 5, LOCK_PI = 6, UNLOCK_PI = 7, TRYLOCK_PI = 8,
	WAIT_BITSET = 9, WAKE_BITSET = 10, WAIT_REQUEUE_PI = 11, CMP_REQUEUE_PI = 12, LOCK_PI2 = 13,
	PRIVATE = 128, REALTIME = 256,
};
#define WAITERS 0x80000000u
#define OWNER_DIED 0x40000000u

static long futex(void *word, int command, long value, const void *timeout, void *second, long third)
{
	return syscall(SYS_futex, word, command, value, timeout, second, third);
}

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0)
		;
}

static long since(clockid_t clock, const struct timespec *from)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (now.tv_sec - from->tv_sec) * 1000 + (now.tv_nsec - from->tv_nsec) / 1000000;
}

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec at;
	clock_gettime(clock, &at);
	at.tv_nsec += ms % 1000 * 1000000;
	at.tv_sec += ms / 1000 + at.tv_nsec / 1000000000;
	at.tv_nsec %= 1000000000;
	return at;
}

static void *shared_page(void)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void mistakes(void)
{
	uint32_t word = 5, other = 0;
	struct timespec none = { 0, 0 }, negative = { -1, 0 }, bad = { 0, 1000000000 };
	CHECK_ERRNO(futex(&word, WAIT, 4, NULL, NULL, 0), EAGAIN);
	CHECK_ERRNO(futex(&word, WAIT | PRIVATE, 4, NULL, NULL, 0), EAGAIN);
	CHECK_ERRNO(futex((char *)&word + 1, WAIT, 4, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex((char *)&word + 2, WAKE, 1, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(NULL, WAIT, 4, NULL, NULL, 0), EFAULT);
	CHECK_ERRNO(futex(NULL, WAIT | PRIVATE, 4, NULL, NULL, 0), EFAULT);
	CHECK_ERRNO(futex(NULL, WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_EQ(futex((void *)4096, WAKE | PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_ERRNO(futex((void *)(1UL << 47), WAKE | PRIVATE, 1, NULL, NULL, 0), EFAULT);
	CHECK_ERRNO(futex(&word, WAIT, 5, &none, NULL, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, WAIT, 5, &negative, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, WAIT, 5, &bad, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, WAIT, 4, &bad, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, WAIT, 4, nowhere, NULL, 0), EFAULT);
	CHECK_ERRNO(futex(&word, WAIT_BITSET, 5, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&word, WAKE | REALTIME, 1, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(futex(&word, 99, 1, NULL, NULL, 0), ENOSYS);
	CHECK_ERRNO(futex(&word, REQUEUE, -1, (void *)1, &other, 0), EINVAL);
	CHECK_ERRNO(futex(&word, REQUEUE, 1, (void *)-1, &other, 0), EINVAL);
	CHECK_ERRNO(futex(&word, CMP_REQUEUE, 1, (void *)1, &other, 4), EAGAIN);
	CHECK_ERRNO(futex(&word, CMP_REQUEUE, 1, (void *)1, NULL, 5), EFAULT);
	CHECK_EQ(futex(&word, CMP_REQUEUE, 1, (void *)1, &other, 5), 0);
	/* The size of the robust list's head, and whose it is. */
	void *head;
	size_t size;
	CHECK_ERRNO(syscall(SYS_set_robust_list, &word, 23), EINVAL);
	CHECK_EQ(syscall(SYS_get_robust_list, 0, &head, &size), 0);
	CHECK_EQ(size, 24);
	CHECK_ERRNO(syscall(SYS_get_robust_list, 999999, &head, &size), ESRCH);
	CHECK_ERRNO(syscall(SYS_get_robust_list, 0, &head, nowhere), EFAULT);
	CHECK_ERRNO(syscall(SYS_get_robust_list, 0, nowhere, &size), EFAULT);
	IN_CHILD(0, CHECK_EQ(setresuid(1234, 1234, 1234), 0);
		CHECK_ERRNO(syscall(SYS_get_robust_list, 1, &head, &size), EPERM));
	say("mistakes");
}

static void operations(void)
{
	static const struct { int operation; uint32_t argument, before, after; } changes[] = {
		{ 0, 7, 3, 7 }, { 1, 7, 3, 10 }, { 2, 12, 5, 13 }, { 3, 5, 7, 2 }, { 4, 5, 6, 3 },
		{ 1, 0xfff, 3, 2 }, { 8, 4, 0, 16 }, { 10, 31, 1, 0x80000001 }, { 8, 33, 0, 2 },
	};
	uint32_t first = 0, second;
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		second = changes[i].before;
		unsigned encoded = (unsigned)changes[i].operation << 28 | changes[i].argument << 12;
		CHECK_EQ(futex(&first, WAKE_OP, 1, (void *)1, &second, encoded), 0);
		CHECK_EQ(second, changes[i].after);
	}
	second = 1;
	CHECK_ERRNO(futex(&first, WAKE_OP, 1, (void *)1, &second, 5u << 28), ENOSYS);
	CHECK_EQ(second, 1);
	CHECK_ERRNO(futex(&first, WAKE_OP, 1, (void *)1, &second, 6u << 24 | 9 << 12), ENOSYS);
	CHECK_EQ(second, 9);
	CHECK_ERRNO(futex(&first, WAKE_OP, 1, (void *)1, nowhere, 0), EFAULT);
	say("operations of FUTEX_WAKE_OP");
}

struct sleeper {
	pthread_t thread;
	uint32_t *word;
	int command;
	uint32_t bits;
	const struct timespec *timeout;
	long result;
	int error;
	volatile int began, done;
};

static void *sleep_here(void *argument)
{
	struct sleeper *self = argument;
	self->began = 1;
	self->result = futex(self->word, self->command, *self->word, self->timeout, NULL, self->bits);
	self->error = errno;
	self->done = 1;
	return NULL;
}

static void start(struct sleeper *sleepers, int count, uint32_t *word, int command, uint32_t bits)
{
	for (int i = 0; i < count; i++) {
		sleepers[i] = (struct sleeper){ .word = word, .command = command, .bits = bits };
		CHECK_EQ(pthread_create(&sleepers[i].thread, NULL, sleep_here, &sleepers[i]), 0);
		while (!sleepers[i].began)
			sched_yield();
		sleep_ms(20);
	}
}

static int finished(struct sleeper *sleepers, int count)
{
	int done = 0;
	sleep_ms(50);
	for (int i = 0; i < count; i++)
		done += sleepers[i].done;
	return done;
}

static void join(struct sleeper *sleepers, int count)
{
	for (int i = 0; i < count; i++) {
		CHECK_EQ(pthread_join(sleepers[i].thread, NULL), 0);
		CHECK_EQ(sleepers[i].result, 0);
	}
}

static void waking(int scope)
{
	struct sleeper s[6];
	uint32_t word = 1, second = 2;
	start(s, 6, &word, WAIT | scope, 0);
	/* Even if none is asked for, one is woken. */
	CHECK_EQ(futex(&word, WAKE | scope, 0, NULL, NULL, 0), 1);
	CHECK_EQ(finished(s, 6), 1);
	CHECK(s[0].done);
	CHECK_EQ(futex(&word, WAKE | scope, -1, NULL, NULL, 0), 1);
	CHECK_EQ(futex(&word, WAKE | scope, 2, NULL, NULL, 0), 2);
	CHECK_EQ(finished(s, 6), 4);
	/* Who says private is not met by who does not. */
	CHECK_EQ(futex(&word, WAKE | (scope ^ PRIVATE), 9, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&word, WAKE | scope, 9, NULL, NULL, 0), 2);
	join(s, 6);

	start(s, 6, &word, WAIT | scope, 0);
	CHECK_ERRNO(futex(&word, CMP_REQUEUE | scope, 1, (void *)3, &second, 7), EAGAIN);
	CHECK_EQ(futex(&word, CMP_REQUEUE | scope, 1, (void *)3, &second, 1), 4);
	CHECK_EQ(finished(s, 6), 1);
	CHECK_EQ(futex(&second, WAKE | scope, 9, NULL, NULL, 0), 3);
	CHECK_EQ(futex(&word, REQUEUE | scope, 0, (void *)100, &second, 0), 2);
	CHECK_EQ(futex(&word, WAKE | scope, 9, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&second, WAKE | scope, 9, NULL, NULL, 0), 2);
	join(s, 6);

	start(s, 3, &word, WAIT_BITSET | scope, 4);
	start(s + 3, 3, &word, WAIT_BITSET | scope, 3);
	CHECK_EQ(futex(&word, WAKE_BITSET | scope, 9, NULL, NULL, 8), 0);
	CHECK_EQ(futex(&word, WAKE_BITSET | scope, 2, NULL, NULL, 2), 2);
	CHECK_EQ(finished(s, 3), 0);
	CHECK_EQ(futex(&word, WAKE_BITSET | scope, 9, NULL, NULL, 4), 3);
	CHECK_EQ(futex(&word, WAKE | scope, 9, NULL, NULL, 0), 1);
	join(s, 6);

	start(s, 2, &word, WAIT | scope, 0);
	start(s + 2, 2, &second, WAIT | scope, 0);
	/* word 2 compares equal to 2, so both are woken; it becomes 5. */
	CHECK_EQ(futex(&word, WAKE_OP | scope, 1, (void *)1, &second, 0u << 28 | 0 << 24 | 5 << 12 | 2), 2);
	CHECK_EQ(second, 5);
	CHECK_EQ(futex(&word, WAKE_OP | scope, 9, (void *)9, &second, 1u << 28 | 4 << 24 | 1 << 12 | 5), 1);
	CHECK_EQ(second, 6);
	CHECK_EQ(futex(&second, WAKE | scope, 9, NULL, NULL, 0), 1);
	join(s, 4);
	say("waking, moving, bits, operations: %s", scope ? "private" : "shared");
}

static void times(void)
{
	uint32_t word = 0;
	struct timespec began, timeout = { 0, 60000000 };
	clock_gettime(CLOCK_MONOTONIC, &began);
	CHECK_ERRNO(futex(&word, WAIT, 0, &timeout, NULL, 0), ETIMEDOUT);
	CHECK(since(CLOCK_MONOTONIC, &began) >= 60);
	clock_gettime(CLOCK_MONOTONIC, &began);
	timeout = in_ms(CLOCK_MONOTONIC, 60);
	CHECK_ERRNO(futex(&word, WAIT_BITSET, 0, &timeout, NULL, -1), ETIMEDOUT);
	CHECK(since(CLOCK_MONOTONIC, &began) >= 59);
	clock_gettime(CLOCK_MONOTONIC, &began);
	timeout = in_ms(CLOCK_REALTIME, 60);
	CHECK_ERRNO(futex(&word, WAIT_BITSET | REALTIME, 0, &timeout, NULL, -1), ETIMEDOUT);
	CHECK(since(CLOCK_MONOTONIC, &began) >= 59);
	timeout = (struct timespec){ 0, 0 };
	CHECK_ERRNO(futex(&word, WAIT_BITSET, 0, &timeout, NULL, -1), ETIMEDOUT);
	say("timeouts");
}

static void on_signal(int signal)
{
	(void)signal;
}

/* How a wait ends that a signal meets: with a handler, with one that asks for restarts, and when it is just stopped. */
static void interrupted(int flags, const struct timespec *timeout, const char *what)
{
	struct sleeper *s = shared_page();
	uint32_t *word = (uint32_t *)((char *)s + PAGE - 4);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
		CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
		*s = (struct sleeper){ .word = word, .command = WAIT, .timeout = timeout };
		sleep_here(s);
		_exit(0);
	}
	while (!s->began)
		sched_yield();
	sleep_ms(50);
	CHECK_EQ(kill(child, SIGSTOP), 0);
	sleep_ms(50);
	CHECK_EQ(kill(child, SIGCONT), 0);
	sleep_ms(50);
	int was_done = s->done;
	CHECK_EQ(kill(child, SIGUSR1), 0);
	sleep_ms(50);
	int is_done = s->done;
	long woken = futex(word, WAKE, 1, NULL, NULL, 0);
	expect_exit(child, 0);
	say("%s: stopped: %s, handled: %s, woken %ld, result %ld%s%s", what, was_done ? "over" : "goes on",
	    is_done ? "over" : "goes on", woken, s->result, s->result ? ", " : "", s->result ? strerror(s->error) : "");
	munmap(s, PAGE);
}

/* Who shares a word with whom. */
static void places(void)
{
	uint32_t *page = shared_page();
	struct sleeper *s = shared_page();
	/* The same page at another address. */
	int fd = (int)syscall(SYS_memfd_create, "words", 0);
	CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
	uint32_t *one = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint32_t *two = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
	CHECK(one != MAP_FAILED && two != MAP_FAILED);
	start(s, 1, one + 1024 + 3, WAIT, 0);
	CHECK_EQ(futex(two + 2, WAKE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(futex(one + 3, WAKE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(futex(two + 3, WAKE | PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(futex(two + 3, WAKE, 1, NULL, NULL, 0), 1);
	join(s, 1);
	/* In another process, by object and offset. */
	uint32_t *private_word = (uint32_t *)map_pages(1, PROT_READ | PROT_WRITE);
	*private_word = 0;
	for (int i = 0; i < 4; i++) {
		uint32_t *const words[] = { page, two + 5, private_word, one + 7 };
		static const char *const names[] = { "anonymous shared", "a file elsewhere", "private", "a file" };
		s->began = s->done = 0;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			struct timespec timeout = { 0, 300000000 };
			s->word = i == 1 ? one + 1024 + 5 : words[i];
			s->command = WAIT;
			s->timeout = &timeout;
			sleep_here(s);
			_exit(0);
		}
		while (!s->began)
			sched_yield();
		sleep_ms(100);
		long woken = futex(words[i], WAKE, 1, NULL, NULL, 0);
		expect_exit(child, 0);
		say("%s, across processes: %ld woken, %s", names[i], woken, s->result == 0 ? "woken" : s->error == ETIMEDOUT ? "too late" : strerror(s->error));
	}
	/* Memory that may only be read can be waited for. */
	CHECK_EQ(mprotect(page, PAGE, PROT_READ), 0);
	CHECK_ERRNO(futex(page, WAIT, 1, NULL, NULL, 0), EAGAIN);
	CHECK_EQ(futex(page, WAKE, 1, NULL, NULL, 0), 0);
	CHECK_ERRNO(futex(page, LOCK_PI, 0, NULL, NULL, 0), EFAULT);
	CHECK_EQ(mprotect(page, PAGE, PROT_NONE), 0);
	CHECK_ERRNO(futex(page, WAKE, 1, NULL, NULL, 0), EFAULT);
	/* Past the end of the file. */
	CHECK_EQ(ftruncate(fd, PAGE), 0);
	CHECK_ERRNO(futex(two, WAKE, 1, NULL, NULL, 0), EFAULT);
	close(fd);
	munmap(one, 2 * PAGE);
	munmap(two, PAGE);
	munmap(page, PAGE);
	munmap(s, PAGE);
}

struct waitv {
	uint64_t value, address;
	uint32_t flags, reserved;
};

static long waitv(struct waitv *words, unsigned count, unsigned flags, const struct timespec *timeout, int clock)
{
	return syscall(449, words, count, flags, timeout, clock);
}

static void *wake_third(void *word)
{
	sleep_ms(50);
	CHECK_EQ(futex(word, WAKE | PRIVATE, 1, NULL, NULL, 0), 1);
	return NULL;
}

static void several(void)
{
	uint32_t words[129] = { 0 };
	struct waitv list[129];
	struct timespec past = { 0, 0 };
	for (int i = 0; i < 129; i++)
		list[i] = (struct waitv){ 0, (uintptr_t)&words[i], 2 | PRIVATE, 0 };
	CHECK_ERRNO(waitv(list, 0, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(NULL, 1, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(list, 129, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv(list, 1, 1, NULL, 0), EINVAL);
	CHECK_ERRNO(waitv((void *)nowhere, 1, 0, NULL, 0), EFAULT);
	CHECK_ERRNO(waitv(list, 1, 0, &past, 7), EINVAL);
	CHECK_ERRNO(waitv(list, 1, 0, (void *)nowhere, CLOCK_MONOTONIC), EFAULT);
	CHECK_ERRNO(waitv(list, 128, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
	CHECK_ERRNO(waitv(list, 128, 0, &past, CLOCK_REALTIME), ETIMEDOUT);
	list[3].flags = PRIVATE;
	CHECK_ERRNO(waitv(list, 5, 0, &past, CLOCK_MONOTONIC), EINVAL);
	list[3].flags = 2 | PRIVATE;
	list[3].reserved = 1;
	CHECK_ERRNO(waitv(list, 5, 0, &past, CLOCK_MONOTONIC), EINVAL);
	list[3].reserved = 0;
	list[4].value = 1;
	CHECK_ERRNO(waitv(list, 5, 0, &past, CLOCK_MONOTONIC), EAGAIN);
	list[4].address += 1;
	CHECK_ERRNO(waitv(list, 5, 0, &past, CLOCK_MONOTONIC), EINVAL);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, wake_third, &words[2]), 0);
	CHECK_EQ(waitv(list, 4, 0, NULL, 0), 2);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	say("futex_waitv");
}

struct robust {
	struct { void *next; } list;
	long offset;
	void *pending;
	struct lock { void *next; uint32_t word; } locks[3000];
};

/* A child that ends with a robust list; what its locks look like afterwards. */
static void robust(void)
{
	size_t size = (sizeof(struct robust) + PAGE - 1) & -PAGE;
	struct robust *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		uint32_t own = (uint32_t)syscall(SYS_gettid);
		at->offset = offsetof(struct lock, word);
		void **link = &at->list.next;
		for (int i = 0; i < 2990; i++) {
			at->locks[i].word = i == 3 ? own + 1 : i == 4 ? own | WAITERS : own;
			*link = &at->locks[i];
			link = &at->locks[i].next;
		}
		*link = &at->list;
		at->pending = &at->locks[2995];
		at->locks[2995].word = own;
		CHECK_EQ(syscall(SYS_set_robust_list, &at->list, 24), 0);
		_exit(0);
	}
	expect_exit(child, 0);
	int died = 0;
	for (int i = 0; i < 2990; i++)
		died += at->locks[i].word == OWNER_DIED;
	say("robust: %d marked, another's %d, with waiters %#x, pending %#x", died, at->locks[3].word == (uint32_t)child + 1,
	    at->locks[4].word, at->locks[2995].word);
	/* A list that leads nowhere, and one that is a circle, end. */
	for (int i = 0; i < 2; i++) {
		memset(at, 0, sizeof *at);
		IN_CHILD(0, at->offset = 8; at->list.next = i ? (void *)&at->locks[0] : (void *)nowhere;
			at->locks[0].next = &at->locks[1]; at->locks[1].next = &at->locks[0];
			at->locks[0].word = (uint32_t)syscall(SYS_gettid);
			CHECK_EQ(syscall(SYS_set_robust_list, &at->list, 24), 0));
		say("robust: %s: %s", i ? "a circle" : "nowhere", at->locks[0].word & OWNER_DIED ? "marked" : "as it was");
	}
	munmap(at, size);
}

struct owner {
	uint32_t *word, *condition;
	volatile int stage;
	long result;
	int error;
	uint32_t seen, tid;
};

static void *lock_it(void *argument)
{
	struct owner *self = argument;
	self->tid = (uint32_t)syscall(SYS_gettid);
	self->stage = 1;
	self->result = self->condition ? futex(self->condition, WAIT_REQUEUE_PI | PRIVATE, 0, NULL, self->word, 0) :
					 futex(self->word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0);
	self->error = errno;
	self->seen = *self->word;
	self->stage = 2;
	if (self->result == 0)
		CHECK_EQ(futex(self->word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	return NULL;
}

static void *die_with_it(void *word)
{
	CHECK_EQ(futex(word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	sleep_ms(100);
	return NULL;
}

static void owners(void)
{
	uint32_t own = (uint32_t)syscall(SYS_gettid), word = 0, condition = 0;
	CHECK_EQ(futex(&word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(word, own);
	CHECK_ERRNO(futex(&word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), EDEADLK);
	CHECK_ERRNO(futex(&word, TRYLOCK_PI | PRIVATE, 0, NULL, NULL, 0), EDEADLK);
	CHECK_EQ(futex(&word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(word, 0);
	CHECK_ERRNO(futex(&word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), EPERM);
	CHECK_EQ(futex(&word, TRYLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);

	struct owner first = { .word = &word }, second = { .word = &word };
	pthread_t one, two;
	CHECK_EQ(pthread_create(&one, NULL, lock_it, &first), 0);
	while (first.stage == 0)
		sched_yield();
	sleep_ms(50);
	CHECK_EQ(word, own | WAITERS);
	CHECK_EQ(pthread_create(&two, NULL, lock_it, &second), 0);
	sleep_ms(50);
	CHECK_EQ(futex(&word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(pthread_join(two, NULL), 0);
	CHECK_EQ(first.result, 0);
	CHECK_EQ(second.result, 0);
	CHECK_EQ(first.seen, first.tid | WAITERS);
	CHECK_EQ(second.seen, second.tid | WAITERS);
	CHECK_EQ(word, 0);

	/* A timeout is a moment of the clock of real time, and of the other one for the newer command. */
	CHECK_EQ(pthread_create(&one, NULL, die_with_it, &word), 0);
	while (word == 0)
		sched_yield();
	struct timespec soon = in_ms(CLOCK_REALTIME, 20);
	CHECK_ERRNO(futex(&word, LOCK_PI | PRIVATE, 0, &soon, NULL, 0), ETIMEDOUT);
	soon = in_ms(CLOCK_MONOTONIC, 20);
	CHECK_ERRNO(futex(&word, LOCK_PI2 | PRIVATE, 0, &soon, NULL, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(&word, TRYLOCK_PI | PRIVATE, 0, NULL, NULL, 0), EAGAIN);
	/* Its owner ends while it is waited for. */
	CHECK_EQ(futex(&word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(word, own | WAITERS | OWNER_DIED);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(futex(&word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(word, 0);
	/* Somebody who does not exist. */
	word = 0x3ffffffe;
	CHECK_ERRNO(futex(&word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), ESRCH);
	CHECK_ERRNO(futex(&word, TRYLOCK_PI | PRIVATE, 0, NULL, NULL, 0), ESRCH);
	word = 0;

	/* From a condition to the lock. */
	CHECK_ERRNO(futex(&condition, CMP_REQUEUE_PI | PRIVATE, 2, (void *)1, &word, 0), EINVAL);
	CHECK_ERRNO(futex(&condition, CMP_REQUEUE_PI | PRIVATE, 1, (void *)1, &word, 1), EAGAIN);
	CHECK_ERRNO(futex(&condition, WAIT_REQUEUE_PI | PRIVATE, 0, NULL, &condition, 0), EINVAL);
	CHECK_ERRNO(futex(&condition, WAIT_REQUEUE_PI | PRIVATE, 1, NULL, &word, 0), EAGAIN);
	first = (struct owner){ .word = &word, .condition = &condition };
	second = first;
	CHECK_EQ(pthread_create(&one, NULL, lock_it, &first), 0);
	while (first.stage == 0)
		sched_yield();
	sleep_ms(50);
	CHECK_EQ(pthread_create(&two, NULL, lock_it, &second), 0);
	sleep_ms(50);
	CHECK_ERRNO(futex(&condition, WAKE | PRIVATE, 1, NULL, NULL, 0), EINVAL);
	CHECK_EQ(futex(&word, LOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&condition, CMP_REQUEUE_PI | PRIVATE, 1, (void *)100, &word, 0), 2);
	CHECK_EQ(word, own | WAITERS);
	sleep_ms(50);
	CHECK_EQ(first.stage + second.stage, 2);
	CHECK_EQ(futex(&word, UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(pthread_join(two, NULL), 0);
	CHECK_EQ(first.result, 0);
	CHECK_EQ(second.result, 0);
	CHECK_EQ(word, 0);
	say("locks that name their owner");
}

static pthread_mutex_t inheriting;
static long counter;

static void *count_up(void *unused)
{
	(void)unused;
	for (int i = 0; i < 2000; i++) {
		CHECK_EQ(pthread_mutex_lock(&inheriting), 0);
		long seen = counter;
		if (i % 100 == 0)
			sched_yield();
		counter = seen + 1;
		CHECK_EQ(pthread_mutex_unlock(&inheriting), 0);
	}
	return NULL;
}

/* The C library's mutexes with PTHREAD_PRIO_INHERIT use the same commands. */
static void mutexes(void)
{
	pthread_mutexattr_t attributes;
	pthread_t threads[8];
	CHECK_EQ(pthread_mutexattr_init(&attributes), 0);
	CHECK_EQ(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT), 0);
	CHECK_EQ(pthread_mutex_init(&inheriting, &attributes), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(counter, 16000);
	say("mutexes that inherit priorities");
}

int main(void)
{
	struct timespec timeout = { 5, 0 };
	mistakes();
	operations();
	waking(PRIVATE);
	waking(0);
	times();
	interrupted(0, NULL, "for ever");
	interrupted(SA_RESTART, NULL, "for ever, SA_RESTART");
	interrupted(0, &timeout, "with a timeout");
	interrupted(SA_RESTART, &timeout, "with a timeout, SA_RESTART");
	places();
	several();
	robust();
	owners();
	mutexes();
	return 0;
}
