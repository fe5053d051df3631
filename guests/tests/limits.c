/* Limits on memory: RLIMIT_AS, DATA, STACK and MEMLOCK; locked memory, over fork and exec; what is in memory (mincore). */
#include "check.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#define BOTH (PROT_READ | PROT_WRITE)

static char text[1 << 16];

static long kib(const char *name)
{
	size_t length = strlen(name);
	read_whole("/proc/self/status", text, sizeof text);
	for (char *line = text; *line; line = strchr(line, '\n') + 1)
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return atol(line + length + 1);
	FAIL("status has no %s", name);
}

static void limit(int resource, unsigned long soft)
{
	struct rlimit64 now;
	CHECK(getrlimit64(resource, &now) == 0);
	now.rlim_cur = soft;
	CHECK(setrlimit64(resource, &now) == 0);
}

static void *map(size_t pages, int protection, int flags)
{
	return mmap(NULL, pages * PAGE, protection, flags | MAP_ANONYMOUS, -1, 0);
}

static int fails(void *at, int error)
{
	return at == MAP_FAILED && errno == error;
}

static void become_nobody(void)
{
	if (geteuid() == 0)
		CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static void address_space(void)
{
	IN_CHILD(0, {
		unsigned char *end = raw_brk(NULL);
		CHECK(raw_brk(end + 4 * PAGE) == end + 4 * PAGE);
		unsigned long size = (unsigned long)kib("VmSize") * 1024;
		/* Room for sixteen pages. */
		limit(RLIMIT_AS, size + 16 * PAGE);
		CHECK(fails(map(17, BOTH, MAP_PRIVATE), ENOMEM));
		CHECK(fails(map(17, PROT_NONE, MAP_PRIVATE | MAP_NORESERVE), ENOMEM));
		CHECK(fails(map(17, PROT_READ, MAP_SHARED), ENOMEM));
		char *ten = map(16, BOTH, MAP_PRIVATE);
		CHECK(ten != MAP_FAILED);
		CHECK(munmap(ten + 10 * PAGE, 6 * PAGE) == 0);
		CHECK(fails(map(7, BOTH, MAP_PRIVATE), ENOMEM));
		/* What is replaced does not count, */
		CHECK(mmap(ten, 16 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == ten);
		CHECK(munmap(ten + 10 * PAGE, 6 * PAGE) == 0);
		/* what moves counts once. */
		char *more = mremap(ten, 10 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
		CHECK(more != MAP_FAILED);
		CHECK(fails(mremap(more, 16 * PAGE, 17 * PAGE, MREMAP_MAYMOVE), ENOMEM));
		CHECK(raw_brk(end + 5 * PAGE) == end + 4 * PAGE);
		CHECK(munmap(more, PAGE) == 0);
		CHECK(raw_brk(end + 5 * PAGE) == end + 5 * PAGE);
		CHECK(raw_brk(end + 6 * PAGE) == end + 5 * PAGE);
		/* A child has the same limit. */
		IN_CHILD(0, {
			CHECK(fails(map(1, BOTH, MAP_PRIVATE), ENOMEM));
			CHECK(munmap(more + PAGE, 2 * PAGE) == 0);
			CHECK(map(2, BOTH, MAP_PRIVATE) != MAP_FAILED);
		});
		/* So low that all is above. */
		limit(RLIMIT_AS, 0);
		CHECK(fails(map(1, BOTH, MAP_PRIVATE), ENOMEM));
		CHECK(munmap(more + PAGE, 2 * PAGE) == 0);
		CHECK(mprotect(more + 3 * PAGE, 2 * PAGE, PROT_READ) == 0);
	});
	say("RLIMIT_AS");
}

static void data(void)
{
	IN_CHILD(0, {
		unsigned char *end = raw_brk(NULL);
		unsigned long size = (unsigned long)kib("VmData") * 1024;
		char *none = map(20, PROT_NONE, MAP_PRIVATE);
		char *reader = map(20, PROT_READ, MAP_PRIVATE);
		limit(RLIMIT_DATA, size + 8 * PAGE);
		CHECK(fails(map(9, BOTH, MAP_PRIVATE), ENOMEM));
		CHECK(fails(map(9, PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE), ENOMEM));
		/* Only what is private and writable counts. */
		CHECK(map(9, PROT_READ, MAP_PRIVATE) != MAP_FAILED);
		CHECK(map(9, PROT_NONE, MAP_PRIVATE) != MAP_FAILED);
		CHECK(map(9, BOTH, MAP_SHARED) != MAP_FAILED);
		CHECK_ERRNO(mprotect(none, 9 * PAGE, BOTH), ENOMEM);
		CHECK_ERRNO(mprotect(reader, 9 * PAGE, BOTH), ENOMEM);
		CHECK(mprotect(none, 8 * PAGE, BOTH) == 0);
		CHECK_ERRNO(mprotect(reader, PAGE, BOTH), ENOMEM);
		CHECK(fails(map(1, BOTH, MAP_PRIVATE), ENOMEM));
		CHECK(mprotect(none, 8 * PAGE, PROT_READ) == 0);
		char *eight = map(8, BOTH, MAP_PRIVATE);
		CHECK(eight != MAP_FAILED);
		CHECK(fails(mremap(eight, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE), ENOMEM));
		CHECK(munmap(eight, 8 * PAGE) == 0);
		/* For brk the data of the program counts, too, whatever was unmapped of it. */
		CHECK(raw_brk(end + 100 * MIB) == end);
	});
	say("RLIMIT_DATA");
}

static int deep(volatile char *above, long pages)
{
	volatile char here[PAGE];
	here[0] = above ? above[0] : 1;
	return pages == 0 ? here[0] : deep(here, pages - 1) + here[0];
}

static void stack(void)
{
	IN_CHILD(0, {
		limit(RLIMIT_STACK, MIB);
		CHECK(deep(NULL, 100) > 0);
	});
	KILLED_BY(SIGSEGV, {
		limit(RLIMIT_STACK, MIB);
		deep(NULL, 300);
	});
	IN_CHILD(0, {
		limit(RLIMIT_STACK, 4 * MIB);
		CHECK(deep(NULL, 500) > 0);
	});
	say("RLIMIT_STACK");
}

static void locking(void)
{
	IN_CHILD(0, {
		become_nobody();
		unsigned char vector[32];
		char *memory = map(32, BOTH, MAP_PRIVATE);
		limit(RLIMIT_MEMLOCK, 16 * PAGE);
		CHECK_EQ(kib("VmLck"), 0);
		CHECK(mlock(memory, 16 * PAGE) == 0);
		CHECK_EQ(kib("VmLck"), 64);
		/* Locked memory is there. */
		CHECK(mincore(memory, 32 * PAGE, vector) == 0);
		for (int i = 0; i < 32; i++)
			CHECK_EQ(vector[i] & 1, i < 16);
		CHECK(mlock(memory + 100, 100) == 0);
		CHECK(mlock(memory, 16 * PAGE) == 0);
		CHECK_EQ(kib("VmLck"), 64);
		CHECK_ERRNO(mlock(memory + 16 * PAGE, PAGE), ENOMEM);
		CHECK_ERRNO(mlock(memory, 17 * PAGE), ENOMEM);
		CHECK(fails(map(1, BOTH, MAP_PRIVATE | MAP_LOCKED), EAGAIN));
		CHECK_ERRNO(mlockall(MCL_CURRENT), ENOMEM);
		CHECK_ERRNO(madvise(memory, PAGE, MADV_DONTNEED), EINVAL);
		CHECK_EQ(kib("VmLck"), 64);
		CHECK(munlock(memory + 4 * PAGE, 4 * PAGE) == 0);
		CHECK_EQ(kib("VmLck"), 48);
		char *locked = map(4, BOTH, MAP_PRIVATE | MAP_LOCKED);
		CHECK(locked != MAP_FAILED);
		CHECK_EQ(kib("VmLck"), 64);
		CHECK(mincore(locked, 4 * PAGE, vector) == 0);
		CHECK(vector[0] & vector[1] & vector[2] & vector[3] & 1);
		CHECK(fails(mremap(locked, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE), EAGAIN));
		CHECK(munmap(locked, 4 * PAGE) == 0);
		CHECK_EQ(kib("VmLck"), 48);
		/* Locked when touched. */
		CHECK(syscall(SYS_mlock2, memory + 16 * PAGE, 4 * PAGE, MLOCK_ONFAULT) == 0);
		CHECK_EQ(kib("VmLck"), 64);
		CHECK(mincore(memory + 16 * PAGE, 4 * PAGE, vector) == 0);
		CHECK_EQ((vector[0] | vector[1] | vector[2] | vector[3]) & 1, 0);
		CHECK_ERRNO(syscall(SYS_mlock2, memory, PAGE, 2), EINVAL);
		/* Locks are not inherited. */
		IN_CHILD(0, {
			CHECK_EQ(kib("VmLck"), 0);
			CHECK(mlock(memory, 16 * PAGE) == 0);
		});
		CHECK(munlockall() == 0);
		CHECK_EQ(kib("VmLck"), 0);
		limit(RLIMIT_MEMLOCK, 0);
		CHECK_ERRNO(mlock(memory, PAGE), EPERM);
		CHECK_ERRNO(mlockall(MCL_FUTURE), EPERM);
		/* One of the C libraries makes ENOMEM of it. */
		CHECK_ERRNO(syscall(SYS_mmap, NULL, PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0), EPERM);
		CHECK(munlock(memory, PAGE) == 0);
	});
	/* Root may lock what it likes, until it is root no more. */
	if (geteuid() == 0)
		IN_CHILD(0, {
			char *memory = map(32, BOTH, MAP_PRIVATE);
			limit(RLIMIT_MEMLOCK, 16 * PAGE);
			CHECK(mlock(memory, 20 * PAGE) == 0);
			become_nobody();
			CHECK_EQ(kib("VmLck"), 80);
			CHECK_ERRNO(mlock(memory + 20 * PAGE, PAGE), ENOMEM);
		});
	say("RLIMIT_MEMLOCK");
}

static void all_and_future(void)
{
	IN_CHILD(0, {
		unsigned char vector[8];
		CHECK_ERRNO(mlockall(0), EINVAL);
		CHECK_ERRNO(mlockall(MCL_ONFAULT), EINVAL);
		CHECK_ERRNO(mlockall(8 | MCL_CURRENT), EINVAL);
		limit(RLIMIT_MEMLOCK, 8 * MIB);
		become_nobody();
		char *before = map(8, BOTH, MAP_PRIVATE);
		CHECK(mlockall(MCL_FUTURE) == 0);
		CHECK_EQ(kib("VmLck"), 0);
		char *after = map(8, BOTH, MAP_PRIVATE);
		CHECK_EQ(kib("VmLck"), 32);
		CHECK(mincore(after, 8 * PAGE, vector) == 0);
		for (int i = 0; i < 8; i++)
			CHECK_EQ(vector[i] & 1, 1);
		CHECK(mincore(before, 8 * PAGE, vector) == 0);
		CHECK_EQ(vector[0] & 1, 0);
		CHECK(fails(map(8 * MIB / PAGE, BOTH, MAP_PRIVATE), EAGAIN));
		unsigned char *end = raw_brk(NULL);
		CHECK(raw_brk(end + 4 * PAGE) == end + 4 * PAGE);
		CHECK_EQ(kib("VmLck"), 48);
		CHECK(raw_brk(end + 8 * MIB) == end + 4 * PAGE);
		CHECK(mlockall(MCL_CURRENT) == 0);
		CHECK(kib("VmLck") > 100);
		/* Without MCL_FUTURE in it, the last call ended that. */
		long locked = kib("VmLck");
		CHECK(map(8, BOTH, MAP_PRIVATE) != MAP_FAILED);
		CHECK_EQ(kib("VmLck"), locked);
		CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
		after = map(8, BOTH, MAP_PRIVATE);
		CHECK_EQ(kib("VmLck"), locked + 32);
		CHECK(mincore(after, 8 * PAGE, vector) == 0);
		CHECK_EQ(vector[0] & 1, 0);
		/* Neither a child nor a new program inherits it. */
		IN_CHILD(0, {
			CHECK_EQ(kib("VmLck"), 0);
			CHECK(map(8, BOTH, MAP_PRIVATE) != MAP_FAILED);
			CHECK_EQ(kib("VmLck"), 0);
		});
		CHECK(munlockall() == 0);
		CHECK(map(8, BOTH, MAP_PRIVATE) != MAP_FAILED);
		CHECK_EQ(kib("VmLck"), 0);
		CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
		execl("/proc/self/exe", "limits", "executed", (char *)NULL);
	});
	say("mlockall");
}

static void of_others(void)
{
	int gates[2][2];
	char byte;
	CHECK(pipe(gates[0]) == 0 && pipe(gates[1]) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(write(gates[0][1], "", 1), 1);
		CHECK_EQ(read(gates[1][0], &byte, 1), 1);
		CHECK(fails(map(1, BOTH, MAP_PRIVATE), ENOMEM));
		_exit(0);
	}
	CHECK_EQ(read(gates[0][0], &byte, 1), 1);
	struct rlimit64 old, new = { 0, RLIM64_INFINITY };
	CHECK(prlimit64(child, RLIMIT_AS, &new, &old) == 0);
	CHECK(old.rlim_cur == RLIM64_INFINITY);
	CHECK(prlimit64(child, RLIMIT_AS, NULL, &old) == 0);
	CHECK_EQ(old.rlim_cur, 0);
	CHECK_EQ(write(gates[1][1], "", 1), 1);
	expect_exit(child, 0);
	CHECK_ERRNO(prlimit64(child, RLIMIT_AS, NULL, &old), ESRCH);
	new.rlim_cur = 2, new.rlim_max = 1;
	CHECK_ERRNO(prlimit64(0, RLIMIT_AS, &new, NULL), EINVAL);
	CHECK_ERRNO(prlimit64(0, 16, NULL, &old), EINVAL);
	IN_CHILD(0, {
		become_nobody();
		new.rlim_cur = new.rlim_max = 1UL << 40;
		CHECK(prlimit64(0, RLIMIT_AS, &new, NULL) == 0);
		new.rlim_max++;
		CHECK_ERRNO(prlimit64(0, RLIMIT_AS, &new, NULL), EPERM);
		CHECK_ERRNO(prlimit64(1, RLIMIT_AS, NULL, &old), EPERM);
	});
	close(gates[0][0]), close(gates[0][1]), close(gates[1][0]), close(gates[1][1]);
	say("of others");
}

int main(int count, char **arguments)
{
	(void)arguments;
	if (count > 1) {
		CHECK_EQ(kib("VmLck"), 0);
		CHECK(map(8, BOTH, MAP_PRIVATE) != MAP_FAILED);
		CHECK_EQ(kib("VmLck"), 0);
		return 0;
	}
	address_space();
	data();
	stack();
	locking();
	all_and_future();
	of_others();
	return 0;
}
