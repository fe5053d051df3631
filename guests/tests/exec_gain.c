/* PR_SET_MDWE: memory that may be written is not to become executable; PR_GET_AUXV. */
#include "check.h"

#include <sys/auxv.h>
#include <sys/prctl.h>

#define SET_MDWE 65
#define GET_MDWE 66
#define REFUSE_EXEC_GAIN 1UL
#define NO_INHERIT 2UL
#define GET_AUXV 0x41555856

static int mdwe(void)
{
	return prctl(GET_MDWE, 0L, 0L, 0L, 0L);
}

static int set_mdwe(unsigned long bits)
{
	return prctl(SET_MDWE, bits, 0L, 0L, 0L);
}

static void arguments(void)
{
	CHECK_EQ(mdwe(), 0);
	CHECK_ERRNO(prctl(SET_MDWE, REFUSE_EXEC_GAIN, 1L, 0L, 0L), EINVAL);
	CHECK_ERRNO(prctl(GET_MDWE, 1L, 0L, 0L, 0L), EINVAL);
	CHECK_ERRNO(set_mdwe(4), EINVAL);
	CHECK_ERRNO(set_mdwe(NO_INHERIT), EINVAL);
	CHECK_EQ(set_mdwe(0), 0);
	CHECK_EQ(mdwe(), 0);
}

static void *map(int protection)
{
	return mmap(NULL, 3 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void what_is_refused(void)
{
	char *executable = map(PROT_READ | PROT_WRITE | PROT_EXEC);
	CHECK(executable != MAP_FAILED);
	CHECK_EQ(set_mdwe(REFUSE_EXEC_GAIN), 0);
	CHECK_EQ(mdwe(), 1);
	CHECK_EQ(set_mdwe(REFUSE_EXEC_GAIN), 0);
	CHECK_ERRNO(set_mdwe(0), EPERM);
	CHECK_ERRNO(set_mdwe(REFUSE_EXEC_GAIN | NO_INHERIT), EPERM);

	CHECK(map(PROT_READ | PROT_WRITE | PROT_EXEC) == MAP_FAILED && errno == EACCES);
	CHECK(map(PROT_WRITE | PROT_EXEC) == MAP_FAILED && errno == EACCES);
	char *at = map(PROT_READ | PROT_WRITE), *code = map(PROT_READ | PROT_EXEC);
	CHECK(at != MAP_FAILED && code != MAP_FAILED);
	CHECK_ERRNO(mprotect(at, PAGE, PROT_READ | PROT_EXEC), EACCES);
	CHECK_ERRNO(mprotect(at, PAGE, PROT_EXEC), EACCES);
	CHECK_ERRNO(mprotect(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), EACCES);
	CHECK_EQ(mprotect(code, PAGE, PROT_READ | PROT_EXEC), 0);
	/* What was both stays so, until it is said anew. */
	executable[0] = 1;
	CHECK_ERRNO(mprotect(executable, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), EACCES);
	CHECK_EQ(mprotect(executable, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(mprotect(executable, PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_ERRNO(mprotect(executable, PAGE, PROT_READ | PROT_EXEC), EACCES);

	/* What comes before is changed; a hole is found before what is behind it. */
	CHECK_EQ(mprotect(code, PAGE, PROT_READ), 0);
	char *three = map(PROT_READ | PROT_EXEC);
	CHECK(three != MAP_FAILED);
	CHECK_EQ(mprotect(three + 2 * PAGE, PAGE, PROT_READ), 0);
	CHECK_ERRNO(mprotect(three, 3 * PAGE, PROT_EXEC), EACCES);
	CHECK_EQ(munmap(three + PAGE, PAGE), 0);
	CHECK_ERRNO(mprotect(three, 3 * PAGE, PROT_READ | PROT_EXEC), ENOMEM);
	CHECK_ERRNO(mprotect(three + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), ENOMEM);
	CHECK(mmap(code, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == code);
	IN_CHILD(0, CHECK_EQ(mdwe(), 1); CHECK(map(PROT_WRITE | PROT_EXEC) == MAP_FAILED));
	say("refused: what would be written and executed");
}

static void inherited(char *program)
{
	CHECK_EQ(set_mdwe(REFUSE_EXEC_GAIN | NO_INHERIT), 0);
	CHECK_EQ(mdwe(), 3);
	IN_CHILD(0, CHECK_EQ(mdwe(), 0); CHECK(map(PROT_READ | PROT_WRITE | PROT_EXEC) != MAP_FAILED));
	execv("/proc/self/exe", (char *[]){ program, "again", NULL });
	FAIL("exec fails");
}

static void auxiliary(void)
{
	unsigned long entries[128] = { 0 }, first[2] = { 0 };
	int size = prctl(GET_AUXV, entries, sizeof entries, 0L, 0L);
	CHECK(size > 0 && size <= (int)sizeof entries && size % 16 == 0);
	int found = 0;
	for (int i = 0; entries[i] != AT_NULL; i += 2)
		if (entries[i] == AT_PAGESZ)
			found = entries[i + 1] == PAGE;
	CHECK(found);
	CHECK_EQ(prctl(GET_AUXV, first, sizeof first, 0L, 0L), size);
	CHECK_EQ(first[0], entries[0]);
	CHECK_EQ(prctl(GET_AUXV, 0L, 0L, 0L, 0L), size);
	CHECK_ERRNO(prctl(GET_AUXV, entries, sizeof entries, 1L, 0L), EINVAL);
	CHECK_ERRNO(prctl(GET_AUXV, 8L, sizeof entries, 0L, 0L), EFAULT);
	say("auxiliary vector: %d bytes", size);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		say("after exec: %d", mdwe());
		return 0;
	}
	arguments();
	auxiliary();
	IN_CHILD(0, what_is_refused());
	inherited(argv[0]);
	return 1;
}
