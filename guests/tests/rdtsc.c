/* PR_SET_TSC: threads that may not read the time stamp counter, beside those that may. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/prctl.h>

static sigjmp_buf back;
static volatile int code;

static void caught(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	code = info->si_code;
	siglongjmp(back, 1);
}

/* Whether the counter can be read; -1 if it went back. */
static int readable(void)
{
	if (sigsetjmp(back, 1))
		return 0;
	unsigned low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return 1;
}

static int said(void)
{
	int value = -1;
	CHECK_EQ(prctl(PR_GET_TSC, &value), 0);
	return value;
}

static void *another(void *unused)
{
	CHECK_EQ(said(), PR_TSC_SIGSEGV);
	CHECK_EQ(readable(), 0);
	CHECK_EQ(prctl(PR_SET_TSC, PR_TSC_ENABLE), 0);
	CHECK_EQ(readable(), 1);
	return unused;
}

/* Takes turns with others on the processor. */
static void again_and_again(int wanted)
{
	for (int i = 0; i < 300; i++) {
		CHECK_EQ(readable(), wanted);
		sched_yield();
	}
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	if (argc > 1) {
		say("after exec: %d, %s", said(), readable() ? "readable" : "refused");
		return 0;
	}
	say("at first: %d, %s", said(), readable() ? "readable" : "refused");
	CHECK_ERRNO(prctl(PR_SET_TSC, 0), EINVAL);
	CHECK_ERRNO(prctl(PR_SET_TSC, 3), EINVAL);
	CHECK_ERRNO(prctl(PR_GET_TSC, 8), EFAULT);
	CHECK_EQ(prctl(PR_SET_TSC, PR_TSC_SIGSEGV), 0);
	CHECK_EQ(readable(), 0);
	say("then: %d, code %d", said(), code);

	/* Inherited by threads and children, each of which has its own. */
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, another, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(readable(), 0);
	IN_CHILD(0, another(NULL));
	CHECK_EQ(readable(), 0);

	cpu_set_t all, one;
	CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(prctl(PR_SET_TSC, PR_TSC_ENABLE), 0);
		again_and_again(1);
		_exit(0);
	}
	again_and_again(0);
	expect_exit(child, 0);
	KILLED_BY(SIGSEGV, signal(SIGSEGV, SIG_DFL); readable());
	execv("/proc/self/exe", (char *[]){ argv[0], "again", NULL });
	FAIL("exec fails");
}
