/* Pipes between processes: order, blocking, end of file, broken pipes, atomic small writes. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

/* 8 MiB of a known sequence through a pipe of 64 KiB. */
static void much_data(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		static unsigned char block[10000];
		uint32_t state = 1;
		close(ends[0]);
		for (size_t sent = 0; sent < 8 * MIB;) {
			for (size_t i = 0; i < sizeof block; i++)
				block[i] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
			for (size_t at = 0; at < sizeof block;) {
				ssize_t n = write(ends[1], block + at, sizeof block - at);
				CHECK(n > 0);
				at += (size_t)n;
			}
			sent += sizeof block;
		}
		_exit(0);
	}
	close(ends[1]);
	static unsigned char buffer[7777];
	uint32_t state = 1;
	size_t total = 0;
	for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) != 0;) {
		CHECK(n > 0);
		for (ssize_t i = 0; i < n; i++)
			CHECK(buffer[i] == (unsigned char)((state = state * 1664525 + 1013904223) >> 24));
		total += (size_t)n;
	}
	close(ends[0]);
	expect_exit(child, 0);
	say("%zu bytes in order", total);
}

static void broken(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	close(ends[0]);
	signal(SIGPIPE, SIG_DFL); /* whoever started the test may have ignored it */
	KILLED_BY(SIGPIPE, { ssize_t ignored = write(ends[1], "x", 1); (void)ignored; });
	IN_CHILD(0, {
		signal(SIGPIPE, SIG_IGN);
		CHECK_ERRNO(write(ends[1], "x", 1), EPIPE);
	});
	close(ends[1]);
	say("broken pipe: SIGPIPE, EPIPE");
}

static void nonblocking(void)
{
	int ends[2];
	char byte;
	CHECK(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
	CHECK_EQ(fcntl(ends[0], F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_RDONLY);
	CHECK_EQ(fcntl(ends[1], F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_NONBLOCK | O_WRONLY);
	CHECK_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
	CHECK_ERRNO(read(ends[0], &byte, 1), EAGAIN);
	size_t room = 0;
	static char block[4096];
	while (write(ends[1], block, sizeof block) == (ssize_t)sizeof block)
		room += sizeof block;
	int why = errno;
	CHECK_EQ(why, EAGAIN);
	say("a pipe holds %zu bytes", room);
	CHECK_EQ(read(ends[0], block, sizeof block), sizeof block);
	CHECK_EQ(write(ends[1], block, sizeof block), sizeof block);
	CHECK_ERRNO(read(ends[1], &byte, 1), EBADF);
	CHECK_ERRNO(write(ends[0], &byte, 1), EBADF);
	CHECK_ERRNO(lseek(ends[0], 0, SEEK_SET), ESPIPE);
	close(ends[0]), close(ends[1]);
}

/* Writers of whole records never mix them, as long as a record fits PIPE_BUF. */
static void atomic_records(void)
{
	enum { WRITERS = 8, RECORDS = 200, SIZE = 512 };
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t children[WRITERS];
	for (int i = 0; i < WRITERS; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			char record[SIZE];
			memset(record, 'a' + i, SIZE);
			for (int n = 0; n < RECORDS; n++)
				CHECK_EQ(write(ends[1], record, SIZE), SIZE);
			_exit(0);
		}
	}
	close(ends[1]);
	int counts[WRITERS] = { 0 };
	FILE *stream = fdopen(ends[0], "r");
	char record[SIZE];
	while (fread(record, SIZE, 1, stream) == 1) {
		for (int i = 1; i < SIZE; i++)
			CHECK_EQ(record[i], record[0]);
		counts[record[0] - 'a']++;
	}
	fclose(stream);
	for (int i = 0; i < WRITERS; i++) {
		CHECK_EQ(counts[i], RECORDS);
		expect_exit(children[i], 0);
	}
	say("%d writers, records whole", WRITERS);
}

/* A ring of processes hands a number round. */
static void ring(void)
{
	enum { LENGTH = 10, ROUNDS = 100 };
	int first[2], last[2], previous, number = 0;
	CHECK(pipe(first) == 0);
	previous = first[0];
	for (int i = 0; i < LENGTH; i++) {
		CHECK(pipe(last) == 0);
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			close(first[1]), close(last[0]);
			while (read(previous, &number, sizeof number) == sizeof number) {
				number++;
				CHECK(write(last[1], &number, sizeof number) == sizeof number);
			}
			_exit(0);
		}
		close(previous), close(last[1]);
		previous = last[0];
	}
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(write(first[1], &number, sizeof number) == sizeof number);
		CHECK(read(previous, &number, sizeof number) == sizeof number);
	}
	close(first[1]);
	char byte;
	CHECK_EQ(read(previous, &byte, 1), 0);
	close(previous);
	while (wait(NULL) > 0) {
	}
	say("a ring of %d: %d", LENGTH, number);
}

static void vectors_and_poll(void)
{
	int ends[2];
	char a[4] = "", b[6] = "";
	CHECK(pipe(ends) == 0);
	struct pollfd waiting[2] = { { .fd = ends[0], .events = POLLIN }, { .fd = ends[1], .events = POLLOUT } };
	CHECK_EQ(poll(waiting, 2, 0), 1);
	CHECK_EQ(waiting[0].revents, 0);
	CHECK_EQ(waiting[1].revents, POLLOUT);
	struct iovec out[3] = { { "ab", 2 }, { "", 0 }, { "cdefgh", 6 } };
	CHECK_EQ(writev(ends[1], out, 3), 8);
	CHECK_EQ(poll(waiting, 1, 1000), 1);
	CHECK_EQ(waiting[0].revents, POLLIN);
	struct iovec in[2] = { { a, 3 }, { b, 5 } };
	CHECK_EQ(readv(ends[0], in, 2), 8);
	CHECK(strcmp(a, "abc") == 0 && strcmp(b, "defgh") == 0);
	close(ends[1]);
	CHECK_EQ(poll(waiting, 1, 1000), 1);
	CHECK_EQ(waiting[0].revents, POLLHUP);
	close(ends[0]);
	/* A reader that waits in poll is woken by a writer. */
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		usleep(10000);
		CHECK_EQ(write(ends[1], "!", 1), 1);
		_exit(0);
	}
	waiting[0].fd = ends[0];
	CHECK_EQ(poll(waiting, 1, -1), 1);
	CHECK_EQ(waiting[0].revents & POLLIN, POLLIN);
	expect_exit(child, 0);
	CHECK_EQ(poll(waiting, 0, 5), 0);
	close(ends[0]), close(ends[1]);
	say("readv, writev, poll");
}

static void packets(void)
{
	int ends[2];
	char seen[8192];
	CHECK(pipe2(ends, O_DIRECT) == 0);
	CHECK_EQ(fcntl(ends[0], F_GETFL), O_RDONLY);
	CHECK_EQ(fcntl(ends[1], F_GETFL), O_WRONLY | O_DIRECT);
	/* One read has one packet; what it has no room for is lost. */
	CHECK_EQ(write(ends[1], "one", 3), 3);
	CHECK_EQ(write(ends[1], "second", 6), 6);
	CHECK_EQ(write(ends[1], "three", 5), 5);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 3);
	CHECK_EQ(read(ends[0], seen, 2), 2);
	CHECK(memcmp(seen, "se", 2) == 0);
	int left = -1;
	CHECK(ioctl(ends[0], FIONREAD, &left) == 0);
	CHECK_EQ(left, 5);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 5);
	CHECK(memcmp(seen, "three", 5) == 0);
	/* What is longer than a page is several. */
	memset(seen, 'x', sizeof seen);
	CHECK_EQ(write(ends[1], seen, 5000), 5000);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 4096);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 904);
	/* What is not a packet does not become part of one; a packet may follow bytes in their block. */
	CHECK_EQ(write(ends[1], "p", 1), 1);
	CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
	CHECK_EQ(write(ends[1], "ab", 2), 2);
	CHECK_EQ(write(ends[1], "cd", 2), 2);
	CHECK(fcntl(ends[1], F_SETFL, O_DIRECT) == 0);
	CHECK_EQ(write(ends[1], "e", 1), 1);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 1);
	CHECK_EQ(read(ends[0], seen, sizeof seen), 5);
	CHECK(memcmp(seen, "abcde", 5) == 0);
	close(ends[0]), close(ends[1]);
	say("packets");
}

int main(void)
{
	much_data();
	broken();
	nonblocking();
	atomic_records();
	ring();
	vectors_and_poll();
	packets();
	return 0;
}
