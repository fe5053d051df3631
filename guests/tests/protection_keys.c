/* Protection keys (pkeys(7)): keys are given, memory gets them, and the rights that a thread has in a register of its own hold
 * for its accesses and for those that the kernel makes for it. Where the processor has none, only the errors are looked at. */
#include "areas.h"
#include <pthread.h>
#include <setjmp.h>
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <ucontext.h>

#define RW (PROT_READ | PROT_WRITE)
#define NO_ACCESS 1u
#define NO_WRITE 2u
#define AT_START 0x55555554u

static int pkey_alloc_(unsigned long flags, unsigned long rights) { return (int)syscall(SYS_pkey_alloc, flags, rights); }
static int pkey_free_(int key) { return (int)syscall(SYS_pkey_free, key); }
static int pkey_mprotect_(void *at, size_t len, int prot, int key) { return (int)syscall(SYS_pkey_mprotect, at, len, prot, key); }

static unsigned rights(void)
{
	unsigned low, high;
	__asm__ volatile("rdpkru" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static void set_rights(unsigned value) { __asm__ volatile("wrpkru" : : "a"(value), "c"(0), "d"(0) : "memory"); }

static void set_key(int key, unsigned what) { set_rights((rights() & ~(3u << (2 * key))) | what << (2 * key)); }

static unsigned of_key(int key) { return rights() >> (2 * key) & 3; }

static sigjmp_buf back;
static volatile siginfo_t seen;
static volatile unsigned in_handler;

static void caught(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	in_handler = rights();
	*(siginfo_t *)&seen = *info;
	siglongjmp(back, 1);
}

enum { FINE, KEY, ACCESS };

/* What a load or a store is. After siglongjmp the rights are those of the handler: they are put back. */
static int touch(volatile char *at, int store)
{
	unsigned before = rights();
	if (sigsetjmp(back, 1)) {
		set_rights(before);
		if (seen.si_addr != (void *)at)
			FAIL("the fault is at %p, not at %p (signal %d, code %d)", seen.si_addr, (void *)at, seen.si_signo, seen.si_code);
		CHECK_EQ(in_handler, AT_START);
		return seen.si_code == 4 ? KEY : ACCESS;
	}
	if (store)
		*at = 1;
	else
		(void)*at;
	return FINE;
}

static long key_of(const void *at) { return smaps_value(at, "ProtectionKey"); }

static unsigned thread_rights;
static void *threaded(void *page)
{
	thread_rights = rights();
	CHECK_EQ(touch(page, 0), KEY);
	set_rights(0);
	return (void *)(long)touch(page, 1);
}

/* A handler that lets what it interrupted go on: the rights in the frame are those that count after it. */
static volatile int opened;
static void open_up(int number, siginfo_t *info, void *context)
{
	(void)number;
	unsigned eax = 0xd, ebx, ecx = 9, edx;
	__asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
	ucontext_t *frame = context;
	unsigned *saved = (unsigned *)((char *)frame->uc_mcontext.fpregs + ebx);
	CHECK_EQ(info->si_code, 4);
	CHECK_EQ(*(unsigned *)((char *)info + 32), 1);
	*saved &= ~(3u << 2);
	opened++;
}

int main(int count, char **arguments)
{
	CHECK_ERRNO(pkey_alloc_(1, 0), EINVAL);
	CHECK_ERRNO(pkey_alloc_(0, 4), EINVAL);
	CHECK_ERRNO(pkey_free_(-1), EINVAL);
	CHECK_ERRNO(pkey_free_(16), EINVAL);
	CHECK_ERRNO(pkey_free_(3), EINVAL);
	char *pages = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	CHECK_ERRNO(pkey_mprotect_(pages, PAGE, RW, 3), EINVAL);
	CHECK_ERRNO(pkey_mprotect_(pages, PAGE, RW, 16), EINVAL);
	CHECK_ERRNO(pkey_mprotect_(pages, PAGE, RW, -2), EINVAL);
	CHECK_EQ(pkey_mprotect_(pages, PAGE, RW, -1), 0);
	if (count == 1)
		say("errors");
	int key = pkey_alloc_(0, NO_ACCESS);
	/* What follows prints nothing: it is the same where there are no keys. */
	if (lacks("protection key", key != -1)) {
		CHECK_EQ(errno, EINVAL);
		return 0;
	}
	CHECK_EQ(key, 1);
	CHECK_EQ(rights(), AT_START);
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	if (count == 2) {
		/* After exec the keys are gone, and the rights are as at first. */
		CHECK(strcmp(arguments[1], "executed") == 0);
		return 0;
	}

	/* Every page of the area gets the key: touched, read only, not touched. */
	pages[0] = 7;
	CHECK_EQ(pages[PAGE], 0);
	CHECK_EQ(pkey_mprotect_(pages, 4 * PAGE, RW, key), 0);
	for (int page = 0; page < 4; page++) {
		CHECK_EQ(touch(pages + page * PAGE, 0), KEY);
		CHECK_EQ(touch(pages + page * PAGE, 1), KEY);
		CHECK_EQ(*(int *)((char *)&seen + 32), key);
	}
	CHECK_EQ(touch(pages + 4 * PAGE, 1), FINE);
	set_key(key, NO_WRITE);
	CHECK_EQ(pages[0], 7);
	CHECK_EQ(touch(pages, 1), KEY);
	CHECK_EQ(touch(pages + 2 * PAGE, 0), FINE);
	CHECK_EQ(touch(pages + 2 * PAGE, 1), KEY);
	set_key(key, 0);
	CHECK_EQ(touch(pages + 2 * PAGE, 1), FINE);
	CHECK_EQ(key_of(pages), key);
	CHECK_EQ(key_of(pages + 4 * PAGE), 0);
	CHECK_AREAS(pages, 8, "0+4 rw-p, 4+4 rw-p");

	/* mprotect keeps it; what is not allowed at all is SEGV_ACCERR. */
	CHECK(mprotect(pages, PAGE, PROT_READ) == 0);
	CHECK_EQ(touch(pages, 1), ACCESS);
	CHECK_EQ(key_of(pages), key);
	CHECK(mprotect(pages, PAGE, RW) == 0);
	set_key(key, NO_ACCESS);
	CHECK_EQ(touch(pages, 0), KEY);

	/* The kernel has no more rights than who calls it. */
	int pipes[2];
	CHECK(pipe(pipes) == 0);
	CHECK_ERRNO(write(pipes[1], pages, 1), EFAULT);
	CHECK_ERRNO(read(open("/dev/zero", O_RDONLY), pages, 1), EFAULT);
	set_key(key, NO_WRITE);
	CHECK_EQ(write(pipes[1], pages, 2), 2);
	CHECK_ERRNO(read(pipes[0], pages, 1), EFAULT);
	set_key(key, 0);
	CHECK_EQ(read(pipes[0], pages, 2), 2);

	/* Fork and threads: keys, memory and rights as they were. */
	set_key(key, NO_ACCESS);
	IN_CHILD(0, CHECK_EQ(touch(pages, 1), KEY); set_key(key, 0); CHECK_EQ(touch(pages, 1), FINE); CHECK_EQ(pkey_alloc_(0, 0), 2));
	CHECK_EQ(touch(pages, 1), KEY);
	pthread_t thread;
	void *result;
	CHECK(pthread_create(&thread, NULL, threaded, pages) == 0 && pthread_join(thread, &result) == 0);
	CHECK_EQ(thread_rights, AT_START);
	CHECK_EQ((long)result, FINE);
	CHECK_EQ(rights(), AT_START);
	for (int turn = 0; turn < 20; turn++) {
		CHECK_EQ(rights(), AT_START);
		sched_yield();
	}

	/* Where the frame of a signal says so, the thread goes on with other rights. */
	struct sigaction opening = {.sa_sigaction = open_up, .sa_flags = SA_SIGINFO};
	CHECK(sigaction(SIGSEGV, &opening, NULL) == 0);
	*(volatile char *)(pages + 1) = 5;
	CHECK_EQ(opened, 1);
	CHECK_EQ(of_key(key), 0);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);

	/* Files, and what is moved. */
	int fd = memory_file("keys", 600);
	char *file = mmap(NULL, 600 * PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(file != MAP_FAILED);
	CHECK_EQ(file[5 * PAGE], 6);
	CHECK_EQ(pkey_mprotect_(file, 600 * PAGE, PROT_READ, key), 0);
	set_key(key, NO_ACCESS);
	CHECK_EQ(touch(file + 5 * PAGE, 0), KEY);
	CHECK_EQ(touch(file + 500 * PAGE, 0), KEY);
	char *moved = mremap(pages, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, file + 100 * PAGE);
	CHECK(moved == file + 100 * PAGE);
	CHECK_EQ(touch(moved, 0), KEY);
	set_key(key, 0);
	CHECK_EQ(moved[1], 5);
	CHECK_EQ(touch(file + 5 * PAGE, 0), FINE);
	CHECK_EQ(touch(file + 5 * PAGE, 1), ACCESS);

	/* Only to be executed: that has a key of its own. */
	char *code = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	code[0] = (char)0xc3;
	CHECK(mprotect(code, PAGE, PROT_EXEC) == 0);
	CHECK_EQ(touch(code, 0), KEY);
	((void (*)(void))code)();
	long own = key_of(code);
	CHECK(own > key);
	CHECK_ERRNO(pkey_free_((int)own), EINVAL);
	CHECK_ERRNO(pkey_mprotect_(code, PAGE, RW, (int)own), EINVAL);
	char *mapped = mmap(NULL, PAGE, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(key_of(mapped), own);
	CHECK_EQ(touch(mapped, 0), KEY);
	CHECK(mprotect(code, PAGE, PROT_READ) == 0);
	CHECK_EQ(key_of(code), 0);
	CHECK_EQ(touch(code, 0), FINE);

	/* A tracer sees a thread's rights, and sets them. */
	int offset, size;
	__asm__ volatile("cpuid" : "=a"(size), "=b"(offset) : "a"(13), "c"(9) : "edx");
	static unsigned char area[4096];
	IN_CHILD(0, {
		pid_t pid = fork();
		if (pid == 0) {
			set_rights(0x55555550);
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
			_exit(rights() == 0x55555110 ? 0 : 1);
		}
		int status;
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSTOPPED(status));
		struct iovec vector = { area, sizeof area };
		CHECK_EQ(ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &vector), 0);
		CHECK(vector.iov_len >= (size_t)(offset + size));
		CHECK(area[465] & 2);
		CHECK(area[513] & 2);
		unsigned there;
		memcpy(&there, area + offset, sizeof there);
		CHECK_EQ(there, 0x55555550);
		there = 0x55555110;
		memcpy(area + offset, &there, sizeof there);
		CHECK_EQ(ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &vector), 0);
		CHECK_EQ(ptrace(PTRACE_CONT, pid, 0, 0), 0);
		expect_exit(pid, 0);
	});

	/* All of them, and given back. */
	int given = 0;
	while (pkey_alloc_(0, 0) > 0)
		given++;
	CHECK_EQ(errno, ENOSPC);
	CHECK_EQ(pkey_free_(7), 0);
	CHECK_ERRNO(pkey_free_(7), EINVAL);
	CHECK_EQ(pkey_alloc_(0, NO_WRITE), 7);
	CHECK_EQ(of_key(7), NO_WRITE);
	CHECK_EQ(given, 13);
	IN_CHILD(0, execl("/proc/self/exe", "keys", "executed", NULL));
	return 0;
}
