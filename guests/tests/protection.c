/* What may not be touched is not touched: every kind of access against every kind of page. */
#include "check.h"

static int data_word = 1;
static const int constant = 2;
static unsigned char code_in_data[PAGE] __attribute__((aligned(4096))) = { 0xc3 }; /* ret */

/* The addresses go through a variable that the compiler cannot see through. */
static void *volatile target;

static void do_read(void) { (void)*(volatile char *)target; }
static void do_write(void) { *(volatile char *)target = 1; }
static void do_execute(void) { ((void (*)(void))target)(); }

static char outcome(void (*action)(void), void *at)
{
	target = at;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		action();
		_exit(0);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 'y';
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	return '-';
}

static void show(const char *what, void *at)
{
	say("%-26s read %c write %c execute %c", what, outcome(do_read, at), outcome(do_write, at),
	    outcome(do_execute, at));
}

static void with_protection(const char *what, int protection)
{
	unsigned char *base = map_pages(1, PROT_READ | PROT_WRITE);
	base[0] = 0xc3;
	CHECK(mprotect(base, PAGE, protection) == 0);
	show(what, base);
	CHECK(munmap(base, PAGE) == 0);
}

static void never_touched(const char *what, int protection)
{
	unsigned char *base = map_pages(1, protection);
	say("%-26s read %c write %c", what, outcome(do_read, base), outcome(do_write, base));
	CHECK(munmap(base, PAGE) == 0);
}

static void code(void) { __asm__ volatile(""); }

int main(void)
{
	unsigned char on_stack[64];
	on_stack[0] = 0xc3;
	unsigned char *heap = malloc(100);
	heap[0] = 0xc3;
	(void)on_stack;
	show("data", code_in_data);
	say("%-26s read %c write %c", "text", outcome(do_read, (void *)code), outcome(do_write, (void *)code));
	say("%-26s read %c write %c", "constants", outcome(do_read, (void *)&constant), outcome(do_write, (void *)&constant));
	say("%-26s read %c write %c", "variables", outcome(do_read, &data_word), outcome(do_write, &data_word));
	show("heap", heap);
	show("stack", on_stack);
	with_protection("none", PROT_NONE);
	with_protection("read", PROT_READ);
	with_protection("read, write", PROT_READ | PROT_WRITE);
	with_protection("read, execute", PROT_READ | PROT_EXEC);
	with_protection("all", PROT_READ | PROT_WRITE | PROT_EXEC);
	never_touched("none, never touched", PROT_NONE);
	never_touched("read, never touched", PROT_READ);
	never_touched("all, never touched", PROT_READ | PROT_WRITE);

	/* Code that the program makes, step by step as a compiler at run time does. */
	unsigned char *made = map_pages(1, PROT_READ | PROT_WRITE);
	for (int value = 0; value < 50; value++) {
		unsigned char body[] = { 0xb8, (unsigned char)value, 0, 0, 0, 0xc3 }; /* mov $value, %eax; ret */
		memcpy(made, body, sizeof body);
		CHECK(mprotect(made, PAGE, PROT_READ | PROT_EXEC) == 0);
		CHECK_EQ(((int (*)(void))(uintptr_t)made)(), value);
		CHECK(mprotect(made, PAGE, PROT_READ | PROT_WRITE) == 0);
	}
	say("code made at run time");

	/* Many changes of one page's protection: each is obeyed at once, no stale translation is used. */
	unsigned char *base = map_pages(3, PROT_READ | PROT_WRITE);
	memset(base, 1, 3 * PAGE);
	for (int i = 0; i < 30; i++) {
		CHECK(mprotect(base + PAGE, PAGE, PROT_READ) == 0);
		CHECK_EQ(outcome(do_write, base + PAGE), '-');
		CHECK(mprotect(base + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
		base[PAGE] = (unsigned char)i;
		CHECK_EQ(outcome(do_write, base + PAGE), 'y');
		CHECK_EQ(base[PAGE], i);
	}
	say("protection changes are obeyed at once");
	return 0;
}
