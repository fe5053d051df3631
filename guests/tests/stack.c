/* The stack grows by itself, up to its limit, and no further. */
#include "check.h"
#include <sys/resource.h>

static unsigned char handler_stack[64 * 1024];
static unsigned char *top;

__attribute__((noinline)) static unsigned descend(unsigned depth)
{
	volatile unsigned char frame[1024];
	for (size_t i = 0; i < sizeof frame; i += 128)
		frame[i] = (unsigned char)(depth + i);
	unsigned below = depth ? descend(depth - 1) : 0;
	for (size_t i = 0; i < sizeof frame; i += 128)
		CHECK_EQ(frame[i], (unsigned char)(depth + i));
	return below + 1;
}

static void overflowed(int signal, siginfo_t *info, void *context)
{
	(void)context;
	unsigned char *at = info->si_addr;
	_exit(signal == SIGSEGV && at < top - 7 * MIB && at > top - 9 * MIB ? 42 : 43);
}

static void never_reached(int signal)
{
	_exit(100 + signal);
}

__attribute__((noinline)) static unsigned for_ever(unsigned depth)
{
	volatile unsigned char frame[4000];
	frame[0] = (unsigned char)depth;
	/* The depth is never reached; the compiler need not know. */
	return (depth == 1u << 31 ? 0 : for_ever(depth + 1)) + frame[0];
}

static void overflow(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		stack_t stack = { .ss_sp = handler_stack, .ss_size = sizeof handler_stack };
		struct sigaction action;
		memset(&action, 0, sizeof action);
		action.sa_sigaction = overflowed;
		action.sa_flags = SA_SIGINFO | SA_ONSTACK;
		CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
		_exit((int)for_ever(0));
	}
	expect_exit(child, 42);
	say("overflow: handled on another stack");
	KILLED_BY(SIGSEGV, _exit((int)for_ever(0)));
	say("overflow: SIGSEGV");
	/* A handler that has no other stack cannot run. */
	KILLED_BY(SIGSEGV, { signal(SIGSEGV, never_reached); _exit((int)for_ever(0)); });
	say("overflow with a handler on the same stack: SIGSEGV");
}

/* One access far below the end, within the limit: allowed. */
__attribute__((noinline)) static void leap(void)
{
	volatile unsigned char far[6 * MIB];
	far[0] = 1;
	CHECK_EQ(far[0], 1);
	CHECK_EQ(far[3 * MIB], 0);
}

int main(void)
{
	unsigned char here;
	struct rlimit limit;
	top = &here;
	CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
	if (limit.rlim_cur != 8 * MIB) {
		/* The kernel looks at the limit when the stack grows. */
		limit.rlim_cur = 8 * MIB;
		CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
	}
	IN_CHILD(0, leap());
	say("a leap of 6 MiB");
	say("descended %u frames", descend(6300)); /* some 7 MiB */
	IN_CHILD(0, CHECK_EQ(descend(6000), 6001));
	say("again in a child");
	overflow();
	return 0;
}
