/* System V semaphores and message queues, and what shmctl tells of the machine. */
#include "check.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

union semun {
	int val;
	struct semid_ds *buf;
	unsigned short *array;
	struct seminfo *info;
};

static int op(int id, int number, int change, int flags)
{
	struct sembuf one = { (unsigned short)number, (short)change, (short)flags };
	return semop(id, &one, 1);
}

static int value(int id, int number)
{
	return semctl(id, number, GETVAL);
}

static void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0)
		;
}

static void on_signal(int signal)
{
	(void)signal;
}

static void semaphores(void)
{
	struct semid_ds status;
	unsigned short values[3] = { 1, 2, 3 }, seen[3];
	CHECK_ERRNO(semget(IPC_PRIVATE, 0, 0600), EINVAL);
	CHECK_ERRNO(semget(IPC_PRIVATE, -1, 0600), EINVAL);
	CHECK_ERRNO(semget(IPC_PRIVATE, 32001, 0600), EINVAL);
	CHECK_ERRNO(semget(0x46534d31, 1, 0600), ENOENT);
	int id = semget(0x46534d31, 3, IPC_CREAT | IPC_EXCL | 0640);
	CHECK(id >= 0);
	CHECK_EQ(semget(0x46534d31, 2, 0), id);
	CHECK_ERRNO(semget(0x46534d31, 4, 0), EINVAL);
	CHECK_ERRNO(semget(0x46534d31, 3, IPC_CREAT | IPC_EXCL), EEXIST);
	CHECK_EQ(semctl(id, 0, SETALL, (union semun){ .array = values }), 0);
	CHECK_EQ(semctl(id, 0, GETALL, (union semun){ .array = seen }), 0);
	CHECK(memcmp(values, seen, sizeof seen) == 0);
	CHECK_EQ(semctl(id, 1, GETPID), getpid());
	CHECK_EQ(semctl(id, 0, IPC_STAT, (union semun){ .buf = &status }), 0);
	CHECK(status.sem_nsems == 3 && (status.sem_perm.mode & 0777) == 0640 && status.sem_otime == 0 && status.sem_ctime != 0);
	CHECK_ERRNO(semctl(id, 3, GETVAL), EINVAL);
	CHECK_ERRNO(semctl(id, 0, SETVAL, (union semun){ .val = 32768 }), ERANGE);
	CHECK_ERRNO(semctl(id, 0, 99), EINVAL);
	CHECK_ERRNO(semctl(id + 999999, 0, GETVAL), EINVAL);
	CHECK_ERRNO(op(id, 0, -2, IPC_NOWAIT), EAGAIN);
	CHECK_ERRNO(op(id, 3, 1, 0), EFBIG);
	CHECK_ERRNO(op(id, 0, 32767, 0), ERANGE);
	CHECK_ERRNO(op(id, 0, 0, IPC_NOWAIT), EAGAIN);
	CHECK_ERRNO(op(-1, 0, 0, 0), EINVAL);
	CHECK_ERRNO(semop(id, (void *)nowhere, 1), EFAULT);
	CHECK_ERRNO(semop(id, (void *)nowhere, 0), EINVAL);
	CHECK_ERRNO(semop(id, (void *)nowhere, 501), E2BIG);
	/* All or none. */
	struct sembuf both[2] = { { 0, -1, 0 }, { 1, -3, IPC_NOWAIT } };
	CHECK_ERRNO(semop(id, both, 2), EAGAIN);
	CHECK_EQ(value(id, 0), 1);
	both[1].sem_op = -2;
	CHECK_EQ(semop(id, both, 2), 0);
	say("values: %d %d %d", value(id, 0), value(id, 1), value(id, 2));
	/* Too late, interrupted. */
	struct timespec soon = { 0, 20000000 }, bad = { 0, 1000000000 };
	both[0] = (struct sembuf){ 0, -1, 0 };
	CHECK_ERRNO(semtimedop(id, both, 1, &soon), EAGAIN);
	CHECK_ERRNO(semtimedop(id, both, 1, &bad), EINVAL);
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
	alarm(1);
	CHECK_ERRNO(op(id, 0, -1, 0), EINTR);
	/* What a process leaves is undone; who waits is told. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(op(id, 2, -3, SEM_UNDO), 0);
		CHECK_EQ(op(id, 0, -1, 0), 0);
		_exit(0);
	}
	while (semctl(id, 0, GETNCNT) == 0)
		sleep_ms(5);
	CHECK_EQ(value(id, 2), 0);
	CHECK_EQ(op(id, 0, 1, 0), 0);
	expect_exit(child, 0);
	say("values: %d %d %d", value(id, 0), value(id, 1), value(id, 2));
	/* Waiting for zero, and for a set that goes. */
	CHECK_EQ(op(id, 1, 1, 0), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK_EQ(op(id, 1, 0, 0), 0);
		CHECK_ERRNO(op(id, 1, -1, 0), EIDRM);
		_exit(0);
	}
	while (semctl(id, 1, GETZCNT) == 0)
		sleep_ms(5);
	CHECK_EQ(op(id, 1, -1, 0), 0);
	while (semctl(id, 1, GETNCNT) == 0)
		sleep_ms(5);
	IN_CHILD(0, CHECK_EQ(setresuid(1234, 1234, 1234), 0); CHECK_ERRNO(op(id, 0, 1, 0), EACCES);
		CHECK_ERRNO(semctl(id, 0, IPC_RMID), EPERM));
	CHECK_EQ(semctl(id, 0, IPC_RMID), 0);
	expect_exit(child, 0);
	CHECK_ERRNO(op(id, 0, 1, 0), EINVAL);
	struct seminfo info;
	CHECK(semctl(0, 0, IPC_INFO, (union semun){ .info = &info }) >= 0);
	CHECK(info.semvmx == 32767 && info.semmsl == 32000 && info.semopm == 500);
	say("semaphores");
}

struct letter {
	long kind;
	char text[16];
};

static long take(int id, long kind, int flags)
{
	struct letter letter;
	ssize_t got = msgrcv(id, &letter, sizeof letter.text, kind, flags | IPC_NOWAIT);
	return got < 0 ? -errno : letter.kind * 100 + got;
}

static void messages(void)
{
	struct letter letter = { 1, "0123456789" };
	struct msqid_ds status;
	CHECK_ERRNO(msgget(0x46534d31, 0600), ENOENT);
	int id = msgget(0x46534d31, IPC_CREAT | 0600);
	CHECK(id >= 0);
	CHECK_ERRNO(msgsnd(id, &letter, 8193, 0), EINVAL);
	CHECK_ERRNO(msgsnd(id + 999999, &letter, 1, 0), EINVAL);
	CHECK_ERRNO(msgsnd(id, (void *)nowhere, 1, 0), EFAULT);
	letter.kind = 0;
	CHECK_ERRNO(msgsnd(id, &letter, 1, 0), EINVAL);
	for (letter.kind = 5; letter.kind > 0; letter.kind--)
		CHECK_EQ(msgsnd(id, &letter, (size_t)letter.kind, 0), 0);
	CHECK_EQ(msgctl(id, IPC_STAT, &status), 0);
	CHECK(status.msg_qnum == 5 && status.msg_lspid == getpid() && status.msg_lrpid == 0 && status.msg_qbytes == 16384);
	say("received: %ld, %ld, %ld, %ld", take(id, 0, 0), take(id, 2, 0), take(id, -3, 0), take(id, 3, MSG_EXCEPT));
	CHECK_ERRNO(msgrcv(id, &letter, 1, 0, 0), E2BIG);
	CHECK_EQ(msgrcv(id, &letter, 1, 0, MSG_NOERROR), 1);
	CHECK_ERRNO(msgrcv(id, &letter, 1, 0, IPC_NOWAIT), ENOMSG);
	CHECK_ERRNO(msgrcv(id, &letter, (size_t)-1, 0, IPC_NOWAIT), EINVAL);
	/* Full, and somebody who makes room. */
	static struct { long kind; char text[8000]; } big = { 7, "" };
	CHECK_EQ(msgsnd(id, &big, sizeof big.text, 0), 0);
	CHECK_EQ(msgsnd(id, &big, sizeof big.text, 0), 0);
	CHECK_ERRNO(msgsnd(id, &big, sizeof big.text, IPC_NOWAIT), EAGAIN);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sleep_ms(50);
		CHECK_EQ(msgrcv(id, &big, sizeof big.text, 0, 0), 8000);
		_exit(0);
	}
	CHECK_EQ(msgsnd(id, &big, sizeof big.text, 0), 0);
	expect_exit(child, 0);
	CHECK_EQ(msgctl(id, IPC_RMID, NULL), 0);
	CHECK_ERRNO(msgrcv(id, &letter, 1, 0, 0), EINVAL);
	say("messages");
}

static void shared_memory(void)
{
	struct shminfo limits;
	struct shm_info used;
	struct shmid_ds status;
	int id = shmget(IPC_PRIVATE, 5 * PAGE, 0600);
	CHECK(id >= 0);
	CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits) >= 0);
	CHECK(limits.shmmin == 1 && limits.shmmni == 4096);
	int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)&used);
	CHECK(highest >= 0 && used.used_ids >= 1 && used.shm_tot >= 5);
	int found = 0;
	for (int i = 0; i <= highest; i++)
		found += shmctl(i, SHM_STAT, &status) == id && status.shm_segsz == 5 * PAGE;
	CHECK_EQ(found, 1);
	CHECK_ERRNO(shmctl(-1, SHM_STAT, &status), EINVAL);
	CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
	say("shmctl");
}

int main(void)
{
	semaphores();
	messages();
	shared_memory();
	return 0;
}
