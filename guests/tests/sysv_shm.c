/* System V shared memory. */
#include "check.h"

#include <sys/ipc.h>
#include <sys/shm.h>

static struct shmid_ds described(int id)
{
	struct shmid_ds record;
	CHECK(shmctl(id, IPC_STAT, &record) == 0);
	return record;
}

static void sharing(void)
{
	int id = shmget(IPC_PRIVATE, 10000, IPC_CREAT | 0600);
	CHECK(id >= 0);
	char *first = shmat(id, NULL, 0);
	CHECK(first != (char *)-1);
	struct shmid_ds record = described(id);
	CHECK_EQ(record.shm_segsz, 10000);
	CHECK_EQ(record.shm_nattch, 1);
	CHECK_EQ(record.shm_perm.mode, 0600);
	CHECK_EQ(record.shm_cpid, getpid());
	IN_CHILD(0, {
		first[1] = 7;
		CHECK_EQ(described(id).shm_nattch, 2);
		CHECK(shmdt(first) == 0);
		CHECK_EQ(described(id).shm_nattch, 1);
	});
	CHECK_EQ(first[1], 7);
	char *second = shmat(id, NULL, SHM_RDONLY);
	CHECK(second != (char *)-1 && second != first);
	CHECK_EQ(second[1], 7);
	first[9999] = 3;
	CHECK_EQ(second[9999], 3);
	CHECK_ERRNO(mprotect(second, PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK(shmdt(second) == 0);
	CHECK_ERRNO(shmdt(second), EINVAL);
	say("one segment, several attachments");

	/* Removed, it lives on where it is attached, and can still be attached by its number. */
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK_EQ(described(id).shm_perm.mode, 01600);
	second = shmat(id, NULL, 0);
	CHECK(second != (char *)-1);
	CHECK_EQ(second[1], 7);
	CHECK(shmdt(second) == 0);
	CHECK(shmdt(first) == 0);
	CHECK_ERRNO(shmctl(id, IPC_STAT, &record), EINVAL);
	CHECK_ERRNO(shmat(id, NULL, 0), EINVAL);
	say("removed");
}

static void mistakes(void)
{
	/* A key of this process's own. */
	key_t key = 0x46000000 + getpid();
	CHECK_ERRNO(shmget(key, 0, IPC_CREAT), EINVAL);
	CHECK_ERRNO(shmget(key, 100, 0), ENOENT);
	int id = shmget(key, 5000, IPC_CREAT | IPC_EXCL | 0666);
	CHECK(id >= 0);
	CHECK_ERRNO(shmget(key, 5000, IPC_CREAT | IPC_EXCL | 0666), EEXIST);
	CHECK_ERRNO(shmget(key, 9000, 0), EINVAL);
	CHECK_EQ(shmget(key, 1, 0), id);
	CHECK_ERRNO(shmat(id, (void *)1, 0), EINVAL);
	CHECK_ERRNO(shmat(-1, NULL, 0), EINVAL);
	CHECK_ERRNO(shmctl(id, 99, NULL), EINVAL);
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memory[0] = 1;
	CHECK_ERRNO(shmat(id, memory, 0), EINVAL);
	CHECK_EQ(memory[0], 1);
	CHECK(shmat(id, memory, SHM_REMAP) == memory);
	CHECK_EQ(memory[0], 0);
	memory[0] = 5;
	char *other = shmat(id, NULL, 0);
	CHECK(other != (char *)-1);
	CHECK_EQ(other[0], 5);
	CHECK(shmdt(other) == 0);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK_ERRNO(shmget(key, 1, 0), ENOENT);
	CHECK(shmdt(memory) == 0);
	say("mistakes");
}

int main(void)
{
	sharing();
	mistakes();
	return 0;
}
