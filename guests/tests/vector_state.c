/* The floating-point and vector registers of a process are its own: kept over switches to other processes, over system
 * calls, forks and signal handlers. Uses the AVX registers where the processor and the kernel offer them, else SSE's. */
#include "check.h"
#include <sched.h>
#include <sys/time.h>
#include <time.h>

struct registers {
	unsigned char vector[16][32];
	uint32_t control_sse;
	uint16_t control_x87;
};

static int have_avx;

/* The content that a process with this number keeps in its registers. */
static void pattern(struct registers *registers, unsigned number)
{
	memset(registers, 0, sizeof *registers);
	for (unsigned i = 0; i < 16; i++)
		for (unsigned at = 0; at < (have_avx ? 32u : 16u); at++)
			registers->vector[i][at] = (unsigned char)(number * 31 + i * 7 + at + 1);
	registers->control_sse = 0x1f80 | (number % 4) << 13; /* a rounding mode of its own */
	registers->control_x87 = (uint16_t)(0x037f | (number % 4) << 10);
}

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD_AVX(n) "vmovdqu 32*" #n "(%0), %%ymm" #n "\n"
#define STORE_AVX(n) "vmovdqu %%ymm" #n ", 32*" #n "(%1)\n"
#define LOAD_SSE(n) "movdqu 32*" #n "(%0), %%xmm" #n "\n"
#define STORE_SSE(n) "movdqu %%xmm" #n ", 32*" #n "(%1)\n"
#define ALL_REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
	"xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc", "rax", "rcx", "rdx", "r11"
#define CONTROLS "ldmxcsr 512(%0)\n fldcw 516(%0)\n"
#define STORE_CONTROLS "stmxcsr 512(%1)\n fnstcw 516(%1)\n"

_Static_assert(offsetof(struct registers, control_sse) == 512 && offsetof(struct registers, control_x87) == 516, "");

/* Loads all registers, does what `MIDDLE` does, stores them. Nothing of the compiler's lies in between. */
#define THROUGH(load, store, MIDDLE) do { \
	__asm__ volatile(EACH(LOAD_SSE) : : "r"(load) : ALL_REGISTERS); \
	if (have_avx) \
		__asm__ volatile(CONTROLS EACH(LOAD_AVX) MIDDLE EACH(STORE_AVX) STORE_CONTROLS "vzeroupper\n" \
				 : : "r"(load), "r"(store), "r"(spins), "r"(argument) : ALL_REGISTERS); \
	else \
		__asm__ volatile(CONTROLS EACH(LOAD_SSE) MIDDLE EACH(STORE_SSE) STORE_CONTROLS \
				 : : "r"(load), "r"(store), "r"(spins), "r"(argument) : ALL_REGISTERS); \
	__asm__ volatile("ldmxcsr (%0)\n fldcw (%1)" : : "r"(&usual_sse), "r"(&usual_x87)); \
} while (0)

static const uint32_t usual_sse = 0x1f80;
static const uint16_t usual_x87 = 0x037f;

#define SPIN "mov %2, %%rcx\n 1: dec %%rcx\n jnz 1b\n"
#define GETPPID "mov $110, %%eax\n syscall\n"
#define YIELD "mov $24, %%eax\n syscall\n"
#define FORK "mov $57, %%eax\n syscall\n mov %%rax, (%3)\n"

static void same(const struct registers *got, const struct registers *wanted, const char *when)
{
	for (int i = 0; i < 16; i++)
		if (memcmp(got->vector[i], wanted->vector[i], 32))
			FAIL("register %d differs %s", i, when);
	CHECK_EQ(got->control_sse & 0xffc0, wanted->control_sse & 0xffc0);
	CHECK_EQ(got->control_x87, wanted->control_x87);
}

static struct registers mine, got;

static int64_t milliseconds(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

/* Some processes hold different contents while they are switched by the clock, and at each yield. */
static void switches(void)
{
	pid_t children[4];
	for (unsigned i = 0; i < 4; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			unsigned long spins = 20000, *argument = NULL;
			pattern(&mine, i + 1);
			for (int64_t end = milliseconds() + 400; milliseconds() < end;) {
				memset(&got, 0, sizeof got);
				THROUGH(&mine, &got, SPIN);
				same(&got, &mine, "after spinning");
				memset(&got, 0, sizeof got);
				THROUGH(&mine, &got, YIELD YIELD YIELD);
				same(&got, &mine, "after yielding");
			}
			_exit(0);
		}
	}
	for (unsigned i = 0; i < 4; i++)
		expect_exit(children[i], 0);
	say("kept over switches");
}

static void calls_and_forks(void)
{
	unsigned long spins = 0, result = 0, *argument = &result;
	pattern(&mine, 9);
	THROUGH(&mine, &got, GETPPID);
	same(&got, &mine, "after a system call");
	memset(&got, 0, sizeof got);
	THROUGH(&mine, &got, FORK);
	same(&got, &mine, result ? "after fork in the parent" : "after fork in the child");
	if (result == 0)
		_exit(33);
	expect_exit((pid_t)result, 33);
	say("kept over system calls and fork");
}

static volatile int handled;

static void spoil(int signal)
{
	static struct registers other, sink;
	unsigned long spins = 0, *argument = NULL;
	(void)signal;
	pattern(&other, 14);
	THROUGH(&other, &sink, "");
	same(&sink, &other, "in a handler");
	handled++;
}

/* A timer's handler spoils all registers in the midst of a computation. */
static void handlers(void)
{
	unsigned long spins = 30000, *argument = NULL;
	struct itimerval timer = { { 0, 2000 }, { 0, 2000 } };
	signal(SIGALRM, spoil);
	pattern(&mine, 11);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (int64_t end = milliseconds() + 10000; handled < 50 && milliseconds() < end;) {
		memset(&got, 0, sizeof got);
		THROUGH(&mine, &got, SPIN);
		same(&got, &mine, "after a handler");
	}
	memset(&timer, 0, sizeof timer);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	CHECK(handled >= 50);
	say("kept over signal handlers");
}

static double series(unsigned terms, double scale)
{
	double sum = 0;
	long double exact = 0;
	for (unsigned i = 1; i <= terms; i++) {
		sum += 1 / (i * scale + 1 / (i + scale)) - scale / i;
		exact += 1.0L / i;
	}
	return sum + (double)exact;
}

/* Ordinary computations side by side give what each gives alone. */
static void computations(void)
{
	double *results = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t children[3];
	CHECK(results != MAP_FAILED);
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			results[i] = series(300000, 0.1 * (i + 1));
			_exit(0);
		}
	}
	for (int i = 0; i < 3; i++)
		expect_exit(children[i], 0);
	for (int i = 0; i < 3; i++) {
		double alone = series(300000, 0.1 * (i + 1));
		CHECK(alone == results[i]);
		say("series %d: %.12f", i, results[i]);
	}
}

int main(void)
{
	__builtin_cpu_init();
	have_avx = __builtin_cpu_supports("avx") != 0;
	switches();
	calls_and_forks();
	handlers();
	computations();
	return 0;
}
