/* ptrace(2): a debugger's and a tracer's work on children and threads: stops, registers, memory, events, who may and who may not. */
#include "check.h"
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

/* What the libraries call differently, or not at all. */
#undef PTRACE_SYSEMU
#define PTRACE_SYSEMU 31
struct call_info {
	uint8_t op;
	uint32_t arch __attribute__((aligned(4)));
	uint64_t instruction_pointer, stack_pointer;
	union {
		struct { uint64_t nr, args[6]; } entry;
		struct { int64_t rval; uint8_t is_error; } exit;
	};
};
struct waiting_range { uint64_t off; uint32_t flags; int32_t nr; };

/* The libraries' function is variadic and hides the result of peeks; the call itself. */
static long trace(long request, pid_t pid, unsigned long address, unsigned long data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

static unsigned long peek(pid_t pid, const volatile void *address)
{
	unsigned long word = 0;
	CHECK_EQ(trace(PTRACE_PEEKDATA, pid, (unsigned long)address, (unsigned long)&word), 0);
	return word;
}

/* Waits for the tracee's next stop and requires its code (the signal, and the event above it). */
static void expect_stop(pid_t pid, int code)
{
	int status;
	pid_t got;
	do
		got = waitpid(pid, &status, __WALL);
	while (got == -1 && errno == EINTR);
	CHECK_EQ(got, pid);
	if (!WIFSTOPPED(status))
		FAIL("status %x is no stop", status);
	if (status >> 8 != code)
		FAIL("stopped with %x, not %x", status >> 8, code);
}

static void go(pid_t pid, long request, int signal)
{
	CHECK_EQ(trace(request, pid, 0, signal), 0);
}

/* A child that lets itself be traced and stops. */
#define TRACED(pid, ...) do { \
	pid = fork(); \
	CHECK(pid >= 0); \
	if (pid == 0) { \
		CHECK_EQ(trace(PTRACE_TRACEME, 0, 0, 0), 0); \
		raise(SIGSTOP); \
		__VA_ARGS__; \
		_exit(0); \
	} \
	expect_stop(pid, SIGSTOP); \
} while (0)

static volatile unsigned long shared_word = 0x1122334455667788;
static volatile int handled;

static void on_signal(int signal)
{
	handled = signal;
}

static void signals(void)
{
	pid_t pid;
	siginfo_t info;

	/* Suppressed, replaced, passed on. */
	TRACED(pid, {
		signal(SIGUSR1, on_signal);
		signal(SIGUSR2, on_signal);
		raise(SIGUSR1);
		CHECK_EQ(handled, 0);
		raise(SIGUSR1);
		CHECK_EQ(handled, SIGUSR2);
		raise(SIGUSR1);
		CHECK_EQ(handled, SIGUSR1);
		raise(SIGTERM);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_signo, SIGUSR1);
	CHECK_EQ(info.si_code, SI_TKILL);
	CHECK_EQ(info.si_pid, pid);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	go(pid, PTRACE_CONT, SIGUSR2);
	expect_stop(pid, SIGUSR1);
	go(pid, PTRACE_CONT, SIGUSR1);
	expect_stop(pid, SIGTERM);
	go(pid, PTRACE_CONT, SIGTERM);
	expect_signal(pid, SIGTERM);

	/* What is ignored is seen, too; what is killed is not. */
	TRACED(pid, {
		signal(SIGUSR1, SIG_IGN);
		raise(SIGUSR1);
		raise(SIGKILL);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	CHECK_ERRNO(trace(PTRACE_CONT, pid, 0, 65), EIO);
	go(pid, PTRACE_CONT, SIGUSR1);
	expect_signal(pid, SIGKILL);

	/* The information can be changed. */
	TRACED(pid, {
		sigset_t set;
		siginfo_t got;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		struct sigaction action = { .sa_handler = on_signal };
		sigaction(SIGUSR1, &action, NULL);
		(void)got;
		raise(SIGUSR1);
		_exit(handled == SIGUSR1 ? 7 : 8);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	info.si_value.sival_int = 42;
	CHECK_EQ(trace(PTRACE_SETSIGINFO, pid, 0, (unsigned long)&info), 0);
	go(pid, PTRACE_CONT, SIGUSR1);
	expect_exit(pid, 7);

	/* A fault stops before it kills; what it was is in the information. */
	TRACED(pid, *nowhere = 1);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGSEGV);
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_code, SEGV_MAPERR);
	CHECK(info.si_addr == nowhere);
	go(pid, PTRACE_CONT, SIGSEGV);
	expect_signal(pid, SIGSEGV);

	/* The mask. */
	unsigned long mask = 0;
	TRACED(pid, {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGUSR2);
		raise(SIGUSR1);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	CHECK_EQ(trace(PTRACE_GETSIGMASK, pid, 8, (unsigned long)&mask), 0);
	CHECK_EQ(mask, 1UL << (SIGUSR2 - 1));
	CHECK_ERRNO(trace(PTRACE_GETSIGMASK, pid, 4, (unsigned long)&mask), EINVAL);
	struct waiting_range all = { .off = 0, .flags = 0, .nr = 4 };
	siginfo_t waiting[4];
	CHECK_EQ(trace(PTRACE_PEEKSIGINFO, pid, (unsigned long)&all, (unsigned long)waiting), 1);
	CHECK_EQ(waiting[0].si_signo, SIGUSR2);
	mask = 0;
	CHECK_EQ(trace(PTRACE_SETSIGMASK, pid, 8, (unsigned long)&mask), 0);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR2);
	go(pid, PTRACE_CONT, SIGUSR2);
	expect_signal(pid, SIGUSR2);
	say("signals: suppressed, replaced, delivered, looked at");
}

static void memory(void)
{
	static const unsigned long constant = 0x0123456789abcdef;
	unsigned char *pages = map_pages(4, PROT_READ | PROT_WRITE);
	unsigned char *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	unsigned long word;
	char name[64];
	int fd;

	memset(pages, 7, 4 * PAGE);
	CHECK_EQ(mprotect(pages + PAGE, PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(pages + 2 * PAGE, PAGE, PROT_NONE), 0);
	CHECK_EQ(munmap(pages + 3 * PAGE, PAGE), 0);
	TRACED(pid, _exit(*(volatile unsigned long *)&constant == 5 && shared_word == 6 ? 3 : 4));
	CHECK_EQ(peek(pid, &shared_word), shared_word);
	CHECK_EQ(peek(pid, (char *)&shared_word + 1) & 0xff, 0x77);
	CHECK_EQ(trace(PTRACE_POKEDATA, pid, (unsigned long)&shared_word, 6), 0);
	/* Memory that is only to be read is copied; what allows nothing can be read and written, too. */
	CHECK_EQ(trace(PTRACE_POKETEXT, pid, (unsigned long)&constant, 5), 0);
	CHECK_EQ(*(volatile const unsigned long *)&constant, 0x0123456789abcdef);
	CHECK_EQ(peek(pid, &constant), 5);
	CHECK_EQ(trace(PTRACE_POKEDATA, pid, (unsigned long)pages + PAGE, 8), 0);
	CHECK_EQ(peek(pid, pages + PAGE), 8);
	CHECK_EQ(peek(pid, pages + 2 * PAGE), 0x0707070707070707);
	CHECK_EQ(trace(PTRACE_POKEDATA, pid, (unsigned long)pages + 2 * PAGE, 9), 0);
	CHECK_EQ(peek(pid, pages + 2 * PAGE), 9);
	CHECK_EQ(pages[PAGE], 7);
	/* Shared memory that is not writable is nobody's to copy. */
	CHECK_ERRNO(trace(PTRACE_POKEDATA, pid, (unsigned long)shared, 8), EIO);
	CHECK_ERRNO(trace(PTRACE_PEEKDATA, pid, (unsigned long)pages + 3 * PAGE, (unsigned long)&word), EIO);
	CHECK_ERRNO(trace(PTRACE_PEEKDATA, pid, (unsigned long)pages + 3 * PAGE - 4, (unsigned long)&word), EIO);
	CHECK_ERRNO(trace(PTRACE_PEEKDATA, pid, 0, (unsigned long)&word), EIO);
	CHECK_ERRNO(trace(PTRACE_PEEKDATA, pid, (unsigned long)pages, 8), EFAULT);

	/* The same by /proc/PID/mem. */
	snprintf(name, sizeof name, "/proc/%d/mem", pid);
	fd = open(name, O_RDWR);
	CHECK(fd >= 0);
	CHECK_EQ(pread(fd, &word, 8, (off_t)(unsigned long)&constant), 8);
	CHECK_EQ(word, 5);
	unsigned char buffer[3 * PAGE];
	CHECK_EQ(pread(fd, buffer, sizeof buffer, (off_t)(unsigned long)(pages + PAGE)), 2 * PAGE);
	CHECK_EQ(buffer[PAGE], 9);
	CHECK_ERRNO(pread(fd, buffer, 1, (off_t)(unsigned long)(pages + 3 * PAGE)), EIO);
	word = 0x55;
	CHECK_EQ(pwrite(fd, &word, 8, (off_t)(unsigned long)(pages + PAGE + 16)), 8);
	CHECK_EQ(peek(pid, pages + PAGE + 16), 0x55);
	CHECK_ERRNO(pwrite(fd, &word, 8, (off_t)(unsigned long)shared), EIO);
	CHECK_ERRNO(pwrite(fd, &word, 8, 0), EIO);
	CHECK_EQ(lseek(fd, (off_t)(unsigned long)pages, SEEK_SET), (off_t)(unsigned long)pages);
	CHECK_EQ(read(fd, buffer, 2), 2);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), (off_t)(unsigned long)pages + 2);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 3);
	/* Its memory is gone with it. */
	CHECK_EQ(pread(fd, buffer, 1, (off_t)(unsigned long)pages), 0);
	close(fd);
	say("memory: read and written whatever its protection, and by /proc/PID/mem");
}

/* Unoptimised and out of line, so that there is something to call and to step through. */
static __attribute__((noinline)) long add(long a, long b)
{
	__asm__ volatile("nop; nop; nop");
	return a + b;
}

static void registers(void)
{
	struct user_regs_struct regs, again;
	struct user_fpregs_struct floats;
	unsigned char area[4096];
	pid_t pid;
	siginfo_t info;

	TRACED(pid, {
		unsigned long value = 5;
		__asm__ volatile("mov $0x1234567, %%r15\n\tint3\n\tmov %%r15, %0" : "=r"(value) : : "r15", "memory");
		__asm__ volatile("movq %0, %%xmm7\n\tint3\n\tmovq %%xmm7, %0" : "+r"(value) : : "xmm7");
		_exit(value == 0x99 ? 11 : 12);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP);
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_code, SI_KERNEL);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	CHECK_EQ(regs.r15, 0x1234567);
	CHECK_EQ((long)regs.orig_rax, -1);
	CHECK_EQ(regs.cs, 0x33);
	CHECK_EQ(regs.ss, 0x2b);
	/* The instruction after the breakpoint. */
	CHECK_EQ(peek(pid, (void *)(regs.rip - 1)) & 0xff, 0xcc);
	unsigned long word;
	CHECK_EQ(trace(PTRACE_PEEKUSER, pid, offsetof(struct user, regs.r15), (unsigned long)&word), 0);
	CHECK_EQ(word, 0x1234567);
	CHECK_EQ(trace(PTRACE_PEEKUSER, pid, offsetof(struct user, u_debugreg), (unsigned long)&word), 0);
	CHECK_EQ(word, 0);
	CHECK_ERRNO(trace(PTRACE_PEEKUSER, pid, 3, (unsigned long)&word), EIO);
	CHECK_ERRNO(trace(PTRACE_PEEKUSER, pid, 928, (unsigned long)&word), EIO);
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.r15), 0x99), 0);
	CHECK_ERRNO(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.fs_base), -1UL), EIO);
	CHECK_ERRNO(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.cs), 0), EIO);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&again), 0);
	CHECK_EQ(again.r15, 0x99);
	again.r15 = regs.r15;
	CHECK(memcmp(&regs, &again, sizeof regs) == 0);
	/* Flags that are not the program's stay as they are. */
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.eflags), (regs.eflags | 1 | 1 << 17) & ~0x200UL), 0);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&again), 0);
	CHECK_EQ(again.eflags, regs.eflags | 1);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP);
	CHECK_EQ(trace(PTRACE_GETFPREGS, pid, 0, (unsigned long)&floats), 0);
	CHECK_EQ(floats.xmm_space[28], 0x99);
	CHECK_EQ(floats.mxcsr, 0x1f80);
	floats.xmm_space[28] = 0x77;
	CHECK_EQ(trace(PTRACE_SETFPREGS, pid, 0, (unsigned long)&floats), 0);
	struct iovec vector = { &regs, sizeof regs };
	CHECK_EQ(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (unsigned long)&vector), 0);
	CHECK_EQ(vector.iov_len, sizeof regs);
	vector.iov_len = 16;
	CHECK_EQ(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (unsigned long)&vector), 0);
	CHECK_EQ(vector.iov_len, 16);
	vector.iov_len = 15;
	CHECK_ERRNO(trace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (unsigned long)&vector), EINVAL);
	CHECK_ERRNO(trace(PTRACE_GETREGSET, pid, 0x999, (unsigned long)&vector), EINVAL);
	vector = (struct iovec){ area, sizeof area };
	CHECK_EQ(trace(PTRACE_GETREGSET, pid, NT_PRFPREG, (unsigned long)&vector), 0);
	CHECK_EQ(vector.iov_len, 512);
	vector = (struct iovec){ area, sizeof area };
	CHECK_EQ(trace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, (unsigned long)&vector), 0);
	CHECK(vector.iov_len >= 576);
	CHECK_EQ(area[160 + 7 * 16], 0x77);
	CHECK((area[464] & 3) == 3);
	area[160 + 7 * 16] = 0x99;
	CHECK_EQ(trace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (unsigned long)&vector), 0);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 11);

	/* A call of the debugger's own, in the middle of a system call that goes on afterwards. */
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	TRACED(pid, {
		char byte;
		signal(SIGUSR1, SIG_IGN);
		CHECK_EQ(read(pipes[0], &byte, 1), 1);
		_exit(byte);
	});
	go(pid, PTRACE_CONT, 0);
	usleep(50000);
	kill(pid, SIGUSR1);
	expect_stop(pid, SIGUSR1);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_read);
	CHECK_EQ((long)regs.rax, -512);
	again = regs;
	again.rip = (unsigned long)add;
	again.rdi = 20;
	again.rsi = 22;
	again.orig_rax = -1UL;
	again.rsp = ((regs.rsp - 256) & ~15UL) - 8;
	CHECK_EQ(trace(PTRACE_POKEDATA, pid, again.rsp, 0x10), 0);
	CHECK_EQ(trace(PTRACE_SETREGS, pid, 0, (unsigned long)&again), 0);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGSEGV);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&again), 0);
	CHECK_EQ(again.rip, 0x10);
	CHECK_EQ(again.rax, 42);
	CHECK_EQ(trace(PTRACE_SETREGS, pid, 0, (unsigned long)&regs), 0);
	go(pid, PTRACE_CONT, 0);
	CHECK_EQ(write(pipes[1], "\x21", 1), 1);
	expect_exit(pid, 0x21);
	close(pipes[0]);
	close(pipes[1]);
	say("registers: general, floating, vectors; a call in the middle of a call");
}

static void steps(void)
{
	struct user_regs_struct regs, before;
	siginfo_t info;
	pid_t pid;

	TRACED(pid, {
		signal(SIGUSR1, on_signal);
		__asm__ volatile("int3\n\tnop\n\tnop\n\tinc %%eax\n\tnop" : : : "rax");
		syscall(SYS_getppid);
		raise(SIGUSR1);
	});
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&before), 0);
	for (int i = 0; i < 4; i++) {
		static const int offset[] = { 1, 2, 4, 5 };
		go(pid, PTRACE_SINGLESTEP, 0);
		expect_stop(pid, SIGTRAP);
		CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
		CHECK_EQ(regs.rip - before.rip, offset[i]);
		CHECK_EQ(regs.eflags & 0x100, 0);
	}
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_code, TRAP_TRACE);
	/* Over a system call: right after it. */
	do {
		CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
		before = regs;
		go(pid, PTRACE_SINGLESTEP, 0);
		expect_stop(pid, SIGTRAP);
	} while ((peek(pid, (void *)regs.rip) & 0xffff) != 0x050f);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	CHECK_EQ(regs.rip - before.rip, 2);
	CHECK_EQ(regs.rax, getpid());
	/* Into a handler: at its first instruction. */
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGUSR1);
	go(pid, PTRACE_SINGLESTEP, SIGUSR1);
	expect_stop(pid, SIGTRAP);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	CHECK_EQ(regs.rip, (unsigned long)on_signal);
	CHECK_EQ(regs.rdi, SIGUSR1);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 0);
	say("steps: instruction by instruction, over a call, into a handler");
}

static void calls(void)
{
	struct user_regs_struct regs;
	struct call_info call;
	pid_t pid;

	TRACED(pid, {
		long parent = syscall(SYS_getppid);
		long changed = syscall(SYS_getppid);
		long skipped = syscall(SYS_getppid);
		long emulated = syscall(SYS_getppid);
		_exit(parent == getppid() && changed == 77 && skipped == 78 && emulated == 79 ? 0 : 1);
	});
	CHECK_ERRNO(trace(PTRACE_SETOPTIONS, pid, 0, 1UL << 30), EINVAL);
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD), 0);
	CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, (unsigned long)&call), 24);
	CHECK_EQ(call.op, PTRACE_SYSCALL_INFO_NONE);
	CHECK_EQ(call.arch, 0xc000003e);

	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	/* musl asks for the thread again after it has raised a signal; both libraries reset the mask. */
	while (regs.orig_rax != SYS_getppid) {
		CHECK_EQ((long)regs.rax, -ENOSYS);
		go(pid, PTRACE_SYSCALL, 0);
		expect_stop(pid, SIGTRAP | 0x80);
		go(pid, PTRACE_SYSCALL, 0);
		expect_stop(pid, SIGTRAP | 0x80);
		CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	}
	CHECK_EQ((long)regs.rax, -ENOSYS);
	CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, (unsigned long)&call), 80);
	CHECK_EQ(call.op, PTRACE_SYSCALL_INFO_ENTRY);
	CHECK_EQ(call.entry.nr, SYS_getppid);
	CHECK_EQ(call.instruction_pointer, regs.rip);
	CHECK_EQ(call.stack_pointer, regs.rsp);
	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, (unsigned long)&call), 33);
	CHECK_EQ(call.op, PTRACE_SYSCALL_INFO_EXIT);
	CHECK_EQ(call.exit.rval, getpid());
	CHECK_EQ(call.exit.is_error, 0);
	siginfo_t info;
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_signo, SIGTRAP);
	CHECK_EQ(info.si_code, SIGTRAP | 0x80);
	CHECK_EQ(info.si_pid, pid);

	/* The result changed at its end. */
	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.rax), 77), 0);
	/* Not done at all. */
	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.orig_rax), -1UL), 0);
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.rax), 78), 0);
	go(pid, PTRACE_SYSCALL, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	/* Emulated: only its begin is seen. */
	go(pid, PTRACE_SYSEMU, 0);
	expect_stop(pid, SIGTRAP | 0x80);
	CHECK_EQ(trace(PTRACE_GETREGS, pid, 0, (unsigned long)&regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_getppid);
	CHECK_EQ(trace(PTRACE_POKEUSER, pid, offsetof(struct user, regs.rax), 79), 0);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 0);

	/* Counted, as strace does it; a signal given at a call's stop is sent. */
	int seen = 0, status;
	TRACED(pid, {
		signal(SIGUSR1, on_signal);
		syscall(SYS_getppid);
		syscall(SYS_write, -1, NULL, 0);
		_exit(handled == SIGUSR1 ? 5 : 6);
	});
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD), 0);
	for (int signal = 0;;) {
		go(pid, PTRACE_SYSCALL, signal);
		signal = 0;
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		CHECK(WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGUSR1) {
			signal = SIGUSR1;
			continue;
		}
		CHECK_EQ(WSTOPSIG(status), SIGTRAP | 0x80);
		CHECK_EQ(trace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, (unsigned long)&call) >= 33, 1);
		if (call.op == PTRACE_SYSCALL_INFO_ENTRY) {
			if (call.entry.nr == SYS_getppid || call.entry.nr == SYS_write || call.entry.nr == SYS_exit_group)
				seen++;
			if (call.entry.nr == SYS_getppid)
				signal = SIGUSR1;
		} else if (call.exit.is_error) {
			CHECK_EQ(call.exit.rval, -EBADF);
		}
	}
	CHECK_EQ(WEXITSTATUS(status), 5);
	CHECK_EQ(seen, 3);
	say("calls: begin and end, changed, skipped, emulated");
}

static unsigned long message(pid_t pid)
{
	unsigned long value = 0;
	CHECK_EQ(trace(PTRACE_GETEVENTMSG, pid, 0, (unsigned long)&value), 0);
	return value;
}

static void *nothing(void *argument)
{
	return argument;
}

static void events(const char *self)
{
	pid_t pid, child;
	int status;

	/* fork: the child is traced from its first instruction. */
	TRACED(pid, {
		pid_t inner = fork();
		if (inner == 0)
			_exit(9);
		expect_exit(inner, 9);
		inner = vfork();
		if (inner == 0)
			_exit(8);
		expect_exit(inner, 8);
	});
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE |
		       PTRACE_O_TRACEEXIT), 0);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_FORK << 8);
	child = (pid_t)message(pid);
	expect_stop(child, SIGSTOP);
	go(pid, PTRACE_CONT, 0);
	go(child, PTRACE_CONT, 0);
	expect_stop(child, SIGTRAP | PTRACE_EVENT_EXIT << 8);
	CHECK_EQ(message(child), 9 << 8);
	CHECK_EQ(peek(child, &shared_word), shared_word);
	go(child, PTRACE_CONT, 0);
	/* It ends twice: for us, then for its parent, who sees SIGCHLD then. */
	CHECK_EQ(waitpid(child, &status, __WALL), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	expect_stop(pid, SIGCHLD);
	go(pid, PTRACE_CONT, SIGCHLD);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_VFORK << 8);
	child = (pid_t)message(pid);
	expect_stop(child, SIGSTOP);
	go(pid, PTRACE_CONT, 0);
	CHECK_EQ(trace(PTRACE_DETACH, child, 0, 0), 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_VFORK_DONE << 8);
	CHECK_EQ(message(pid), child);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGCHLD);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_EXIT << 8);
	CHECK_EQ(message(pid), 0);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 0);
	CHECK_ERRNO(waitpid(-1, &status, __WALL), ECHILD);

	/* Threads are waited for by their own numbers, with or without __WALL. */
	TRACED(pid, {
		pthread_t thread;
		CHECK_EQ(pthread_create(&thread, NULL, nothing, NULL), 0);
		pthread_join(thread, NULL);
		_exit(4);
	});
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE), 0);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_CLONE << 8);
	child = (pid_t)message(pid);
	CHECK(child != pid);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	go(child, PTRACE_CONT, 0);
	go(pid, PTRACE_CONT, 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	/* Or it was still on its way out when the whole process ended. */
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 4));
	expect_exit(pid, 4);

	/* exec: an event, or a SIGTRAP. */
	char *const arguments[] = { (char *)self, "exit", NULL };
	TRACED(pid, execv(self, arguments));
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXEC), 0);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_EXEC << 8);
	CHECK_EQ(message(pid), pid);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 33);
	TRACED(pid, execv(self, arguments));
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGTRAP);
	go(pid, PTRACE_CONT, 0);
	expect_exit(pid, 33);

	/* It still has its memory in its last stop, also when it was killed. */
	TRACED(pid, pause());
	CHECK_EQ(trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXIT), 0);
	go(pid, PTRACE_CONT, 0);
	kill(pid, SIGKILL);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_EXIT << 8);
	CHECK_EQ(message(pid), SIGKILL);
	CHECK_EQ(peek(pid, &shared_word), shared_word);
	go(pid, PTRACE_CONT, 0);
	expect_signal(pid, SIGKILL);
	TRACED(pid, pause());
	go(pid, PTRACE_KILL, 0);
	expect_signal(pid, SIGKILL);
	say("events: fork, vfork, clone, exec, exit");
}

static char state_of(pid_t pid)
{
	char name[64], text[512], *at;
	snprintf(name, sizeof name, "/proc/%d/stat", pid);
	read_whole(name, text, sizeof text);
	at = strrchr(text, ')');
	CHECK(at != NULL);
	return at[2];
}

static int tracer_of(pid_t pid)
{
	char name[64], text[4096], *at;
	snprintf(name, sizeof name, "/proc/%d/status", pid);
	read_whole(name, text, sizeof text);
	at = strstr(text, "TracerPid:");
	CHECK(at != NULL);
	return atoi(at + 10);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	while (pid == 0)
		pause();
	while (state_of(pid) != 'S')
		usleep(1000);
	return pid;
}

static void attaching(void)
{
	pid_t pid;
	int status;
	siginfo_t info;

	pid = sleeper();
	CHECK_EQ(tracer_of(pid), 0);
	CHECK_ERRNO(trace(PTRACE_CONT, pid, 0, 0), ESRCH);
	CHECK_EQ(trace(PTRACE_ATTACH, pid, 0, 0), 0);
	CHECK_ERRNO(trace(PTRACE_ATTACH, pid, 0, 0), EPERM);
	expect_stop(pid, SIGSTOP);
	CHECK_EQ(tracer_of(pid), getpid());
	CHECK_EQ(state_of(pid), 't');
	CHECK_ERRNO(trace(PTRACE_INTERRUPT, pid, 0, 0), EIO);
	CHECK_ERRNO(trace(PTRACE_LISTEN, pid, 0, 0), EIO);
	IN_CHILD(0, {
		CHECK_ERRNO(trace(PTRACE_ATTACH, pid, 0, 0), EPERM);
		CHECK_ERRNO(trace(PTRACE_CONT, pid, 0, 0), ESRCH);
	});
	go(pid, PTRACE_CONT, 0);
	/* It runs: there is nothing to be looked at. */
	CHECK_ERRNO(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), ESRCH);
	CHECK_EQ(waitpid(pid, &status, WNOHANG | __WALL), 0);
	kill(pid, SIGUSR1);
	expect_stop(pid, SIGUSR1);
	CHECK_ERRNO(trace(PTRACE_DETACH, pid, 0, 99), EIO);
	CHECK_EQ(trace(PTRACE_DETACH, pid, 0, 0), 0);
	CHECK_EQ(tracer_of(pid), 0);
	/* Not traced any more, it dies of it. */
	kill(pid, SIGUSR1);
	expect_signal(pid, SIGUSR1);
	CHECK_ERRNO(trace(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
	CHECK_ERRNO(trace(PTRACE_ATTACH, 0x3ffffff, 0, 0), ESRCH);
	CHECK_ERRNO(trace(PTRACE_SEIZE, 0x3ffffff, 0, 0), ESRCH);
	CHECK_ERRNO(trace(0x12345, 0x3ffffff, 0, 0), ESRCH);

	/* Seized: it does not stop until it is interrupted. */
	pid = sleeper();
	CHECK_ERRNO(trace(PTRACE_SEIZE, pid, 1, 0), EIO);
	CHECK_ERRNO(trace(PTRACE_SEIZE, pid, 0, 1UL << 30), EIO);
	CHECK_EQ(trace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD), 0);
	CHECK_EQ(waitpid(pid, &status, WNOHANG | __WALL), 0);
	CHECK_EQ(trace(PTRACE_INTERRUPT, pid, 0, 0), 0);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_STOP << 8);
	CHECK_EQ(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), 0);
	CHECK_EQ(info.si_code, SIGTRAP | PTRACE_EVENT_STOP << 8);
	CHECK_ERRNO(trace(PTRACE_LISTEN, pid, 0, 0) == 0 ? (errno = EIO, -1) : -1, EIO);
	kill(pid, SIGKILL);
	expect_signal(pid, SIGKILL);

	/* A group's stop, and its end, as seized threads see it. */
	pid = sleeper();
	CHECK_EQ(trace(PTRACE_SEIZE, pid, 0, 0), 0);
	kill(pid, SIGSTOP);
	expect_stop(pid, SIGSTOP);
	go(pid, PTRACE_CONT, SIGSTOP);
	expect_stop(pid, SIGSTOP | PTRACE_EVENT_STOP << 8);
	CHECK_EQ(trace(PTRACE_LISTEN, pid, 0, 0), 0);
	CHECK_EQ(waitpid(pid, &status, WNOHANG | __WALL), 0);
	CHECK_ERRNO(trace(PTRACE_CONT, pid, 0, 0), ESRCH);
	kill(pid, SIGCONT);
	expect_stop(pid, SIGTRAP | PTRACE_EVENT_STOP << 8);
	go(pid, PTRACE_CONT, 0);
	expect_stop(pid, SIGCONT);
	CHECK_EQ(trace(PTRACE_DETACH, pid, 0, SIGTERM), 0);
	expect_signal(pid, SIGTERM);

	/* The same of one that was attached: no information, and it goes on when told. */
	pid = sleeper();
	CHECK_EQ(trace(PTRACE_ATTACH, pid, 0, 0), 0);
	expect_stop(pid, SIGSTOP);
	go(pid, PTRACE_CONT, SIGSTOP);
	expect_stop(pid, SIGSTOP);
	CHECK_ERRNO(trace(PTRACE_GETSIGINFO, pid, 0, (unsigned long)&info), EINVAL);
	go(pid, PTRACE_CONT, 0);
	kill(pid, SIGUSR2);
	expect_stop(pid, SIGUSR2);
	CHECK_EQ(trace(PTRACE_DETACH, pid, 0, 0), 0);
	while (state_of(pid) != 'T')
		usleep(1000);
	kill(pid, SIGKILL);
	expect_signal(pid, SIGKILL);

	/* Attached to while it is stopped: it rests for its tracer at once. */
	pid = sleeper();
	kill(pid, SIGSTOP);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK_EQ(trace(PTRACE_ATTACH, pid, 0, 0), 0);
	expect_stop(pid, SIGSTOP);
	kill(pid, SIGKILL);
	expect_signal(pid, SIGKILL);
	say("attaching: attach, seize, interrupt, listen, detach");
}

static void tracers(void)
{
	pid_t pid, tracer;
	int status, pipes[2];

	/* Somebody else traces our child: its end is the tracer's to see first, then ours. */
	pid = sleeper();
	CHECK_EQ(pipe(pipes), 0);
	tracer = fork();
	if (tracer == 0) {
		CHECK_EQ(trace(PTRACE_ATTACH, pid, 0, 0), 0);
		expect_stop(pid, SIGSTOP);
		go(pid, PTRACE_CONT, 0);
		CHECK_EQ(write(pipes[1], "a", 1), 1);
		int inner;
		CHECK_EQ(waitpid(pid, &inner, 0), pid);
		CHECK(WIFSTOPPED(inner));
		go(pid, PTRACE_CONT, SIGTERM);
		CHECK_EQ(waitpid(pid, &inner, 0), pid);
		CHECK(WIFSIGNALED(inner) && WTERMSIG(inner) == SIGTERM);
		_exit(0);
	}
	char byte;
	CHECK_EQ(read(pipes[0], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGTERM);
	expect_signal(pid, SIGTERM);
	expect_exit(tracer, 0);

	/* The tracer ends: its tracee goes on, or does not. */
	for (int kills = 0; kills < 2; kills++) {
		pid = sleeper();
		tracer = fork();
		if (tracer == 0) {
			CHECK_EQ(trace(PTRACE_SEIZE, pid, 0, kills ? PTRACE_O_EXITKILL : 0), 0);
			CHECK_EQ(trace(PTRACE_INTERRUPT, pid, 0, 0), 0);
			expect_stop(pid, SIGTRAP | PTRACE_EVENT_STOP << 8);
			_exit(0);
		}
		expect_exit(tracer, 0);
		if (kills) {
			expect_signal(pid, SIGKILL);
		} else {
			CHECK_EQ(tracer_of(pid), 0);
			kill(pid, SIGTERM);
			expect_signal(pid, SIGTERM);
		}
	}
	close(pipes[0]);
	close(pipes[1]);

	/* SIGCHLD says what happened. */
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	while (sigtimedwait(&set, &info, &(struct timespec){ 0, 0 }) > 0)
		;
	TRACED(pid, raise(SIGUSR1));
	CHECK_EQ(sigwaitinfo(&set, &info), SIGCHLD);
	CHECK_EQ(info.si_code, CLD_TRAPPED);
	CHECK_EQ(info.si_status, SIGSTOP);
	CHECK_EQ(info.si_pid, pid);
	go(pid, PTRACE_CONT, 0);
	memset(&info, 0, sizeof info);
	CHECK_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
	CHECK_EQ(info.si_code, CLD_TRAPPED);
	CHECK_EQ(info.si_status, SIGUSR1);
	expect_stop(pid, SIGUSR1);
	/* Told once. */
	CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	expect_signal(pid, SIGKILL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	IN_CHILD(0, {
		CHECK_EQ(trace(PTRACE_TRACEME, 0, 0, 0), 0);
		CHECK_ERRNO(trace(PTRACE_TRACEME, 0, 0, 0), EPERM);
	});
	say("tracers: who is told, and what becomes of tracees");
}

/* Every thread of a process stopped, one by one, by somebody who attached to all of them. */
static volatile unsigned long turns[3];
static volatile pid_t tids[3];

static void *turn(void *argument)
{
	volatile unsigned long *own = argument;
	tids[own - turns] = (pid_t)syscall(SYS_gettid);
	for (;;)
		++*own;
	return NULL;
}

static void threads(void)
{
	int pipes[2], status;
	pid_t ids[3];
	CHECK_EQ(pipe(pipes), 0);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t thread;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 3; i++)
			CHECK_EQ(pthread_create(&thread, NULL, turn, (void *)&turns[i]), 0);
		for (int i = 0; i < 3; i++)
			while (turns[i] == 0)
				sched_yield();
		CHECK_EQ(write(pipes[1], (const void *)tids, sizeof tids), (ssize_t)sizeof tids);
		for (;;)
			pause();
	}
	CHECK_EQ(read(pipes[0], ids, sizeof ids), (ssize_t)sizeof ids);
	CHECK_EQ(trace(PTRACE_SEIZE, pid, 0, 0), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(trace(PTRACE_SEIZE, ids[i], 0, 0), 0);
		CHECK_EQ(trace(PTRACE_INTERRUPT, ids[i], 0, 0), 0);
	}
	for (int i = 0; i < 3; i++)
		expect_stop(ids[i], SIGTRAP | PTRACE_EVENT_STOP << 8);
	for (int i = 0; i < 3; i++) {
		unsigned long before = peek(ids[i], &turns[i]);
		CHECK(before != 0);
		go(ids[i], PTRACE_CONT, 0);
		usleep(30000);
		CHECK_EQ(trace(PTRACE_INTERRUPT, ids[i], 0, 0), 0);
		expect_stop(ids[i], SIGTRAP | PTRACE_EVENT_STOP << 8);
		CHECK(peek(ids[i], &turns[i]) != before);
	}
	/* All end: each thread is reported, the first one last. */
	kill(pid, SIGKILL);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(waitpid(ids[i], &status, __WALL), ids[i]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	expect_signal(pid, SIGKILL);
	CHECK_ERRNO(waitpid(-1, &status, __WALL), ECHILD);
	close(pipes[0]);
	close(pipes[1]);
	say("threads: each stopped by itself, all of them told of");
}

int main(int count, char **arguments)
{
	if (count > 1)
		return 33;
	signals();
	memory();
	registers();
	steps();
	calls();
	events("/proc/self/exe");
	attaching();
	tracers();
	threads();
	(void)arguments;
	return 0;
}
