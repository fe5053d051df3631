/* Pseudo-terminals: making them, what passes from one side to the other and how it is changed on the way, job control,
 * and what the one side sees when the other is gone. */
#include "check.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

static int master_of_new(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(master >= 0);
	CHECK_EQ(grantpt(master), 0);
	CHECK_EQ(unlockpt(master), 0);
	return master;
}

static int slave_of(int master)
{
	char *name = ptsname(master);
	CHECK(name);
	int slave = open(name, O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	return slave;
}

/* Linux passes it on in a thread of the kernel: a moment later it has arrived. */
static void write_all(int fd, const char *text)
{
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	usleep(30000);
}

/* What one read returns, with control characters shown. */
static void say_read(const char *who, int fd)
{
	char bytes[200], shown[800];
	ssize_t length = read(fd, bytes, sizeof bytes);
	if (length < 0) {
		say("%s: errno %d", who, errno);
		return;
	}
	size_t at = 0;
	for (ssize_t i = 0; i < length; i++)
		if (bytes[i] >= ' ' && bytes[i] < 127)
			shown[at++] = bytes[i];
		else
			at += (size_t)snprintf(shown + at, 5, "\\x%02x", (unsigned char)bytes[i]);
	shown[at] = 0;
	say("%s: %zd bytes: %s", who, length, shown);
}

static int events(int fd)
{
	struct pollfd one = { fd, POLLIN | POLLOUT | POLLPRI, 0 };
	CHECK(poll(&one, 1, 0) >= 0);
	return one.revents;
}

static void making(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), number = -1, locked = -1;
	CHECK(master >= 0);
	CHECK_EQ(ioctl(master, TIOCGPTN, &number), 0);
	char name[32];
	snprintf(name, sizeof name, "/dev/pts/%d", number);
	CHECK_EQ(ioctl(master, TIOCGPTLCK, &locked), 0);
	CHECK_EQ(locked, 1);
	CHECK_ERRNO(open(name, O_RDWR | O_NOCTTY), EIO);
	CHECK_EQ(unlockpt(master), 0);
	CHECK(strcmp(ptsname(master), name) == 0);
	int slave = open(name, O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	CHECK(strcmp(ttyname(slave), name) == 0);
	CHECK(isatty(master) && isatty(slave));
	struct stat about;
	CHECK_EQ(fstat(master, &about), 0);
	say("master: type %o, device %u:%u", about.st_mode & S_IFMT, major(about.st_rdev), minor(about.st_rdev));
	CHECK_EQ(stat(name, &about), 0);
	CHECK_EQ(minor(about.st_rdev), number);
	say("slave: type %o, major %u", about.st_mode & S_IFMT, major(about.st_rdev));
	struct statfs system;
	CHECK_EQ(statfs("/dev/pts", &system), 0);
	say("file system %lx", (long)system.f_type);
	CHECK_ERRNO(unlink(name), EPERM);
	CHECK_ERRNO(mkdir("/dev/pts/folder", 0700), EPERM);
	CHECK_ERRNO(lseek(slave, 0, SEEK_SET), ESPIPE);
	int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	CHECK(peer >= 0);
	CHECK(strcmp(ttyname(peer), name) == 0);
	close(peer);

	struct termios settings;
	CHECK_EQ(tcgetattr(slave, &settings), 0);
	say("settings: %x %x %x %x", settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag);
	struct winsize size = { 25, 80, 0, 0 }, seen = { 1, 1, 1, 1 };
	CHECK_EQ(ioctl(slave, TIOCGWINSZ, &seen), 0);
	CHECK_EQ(seen.ws_row + seen.ws_col, 0);
	CHECK_EQ(ioctl(master, TIOCSWINSZ, &size), 0);
	CHECK_EQ(ioctl(slave, TIOCGWINSZ, &seen), 0);
	say("the window has %d rows of %d", seen.ws_row, seen.ws_col);

	/* Several at once have different numbers, and those that are free are used again. */
	int others[8];
	for (int i = 0; i < 8; i++) {
		int its = -1;
		others[i] = master_of_new();
		CHECK_EQ(ioctl(others[i], TIOCGPTN, &its), 0);
		CHECK(its != number);
		close(slave_of(others[i]));
	}
	for (int i = 0; i < 8; i++)
		close(others[i]);
	close(master);
	CHECK_ERRNO(stat(name, &about), ENOENT);
	close(slave);
}

static void through_a_line(void)
{
	int master = master_of_new(), slave = slave_of(master), waiting = -1;
	say("events at first: %x %x", events(master), events(slave));
	write_all(master, "hel");
	CHECK_EQ(ioctl(slave, FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 0);
	say("with part of a line: %x %x", events(master), events(slave));
	write_all(master, "x\177lo\n");
	CHECK_EQ(ioctl(slave, FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 6);
	say("with a line: %x %x", events(master), events(slave));
	say_read("echo", master);
	say_read("line", slave);
	write_all(master, "gone\025kept\rsecond\n");
	say_read("echo", master);
	say_read("line", slave);
	say_read("line", slave);
	write_all(master, "no newline\004");
	say_read("echo", master);
	say_read("line", slave);
	write_all(master, "\004");
	say_read("end of file", slave);
	write_all(slave, "out\n\tput");
	say_read("output", master);

	struct termios settings;
	CHECK_EQ(tcgetattr(master, &settings), 0);
	cfmakeraw(&settings);
	CHECK_EQ(tcsetattr(slave, TCSANOW, &settings), 0);
	write_all(master, "\003raw\r\n");
	say_read("raw input", slave);
	write_all(slave, "raw\n");
	say_read("raw output", master);
	write_all(master, "forgotten");
	CHECK_EQ(tcflush(slave, TCIFLUSH), 0);
	CHECK_EQ(fcntl(slave, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	CHECK_EQ(fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	say_read("nothing", slave);
	say_read("nothing", master);
	close(master), close(slave);
}

/* More than fits anywhere passes in both directions, and each side waits for the other. */
static void a_lot(void)
{
	enum { LOT = 200000 };
	int master = master_of_new(), slave = slave_of(master);
	struct termios settings;
	CHECK_EQ(tcgetattr(slave, &settings), 0);
	cfmakeraw(&settings);
	CHECK_EQ(tcsetattr(slave, TCSANOW, &settings), 0);
	for (int turn = 0; turn < 2; turn++) {
		int from = turn ? master : slave, to = turn ? slave : master;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			unsigned char bytes[1000];
			for (unsigned at = 0; at < LOT; at += sizeof bytes) {
				for (unsigned i = 0; i < sizeof bytes; i++)
					bytes[i] = (unsigned char)((at + i) * 7 >> 3);
				for (size_t done = 0; done < sizeof bytes;) {
					ssize_t now = write(from, bytes + done, sizeof bytes - done);
					CHECK(now > 0);
					done += (size_t)now;
				}
			}
			_exit(0);
		}
		unsigned char bytes[777];
		for (unsigned at = 0; at < LOT;) {
			size_t want = LOT - at < sizeof bytes ? LOT - at : sizeof bytes;
			ssize_t now = read(to, bytes, want);
			CHECK(now > 0);
			for (ssize_t i = 0; i < now; i++)
				CHECK_EQ(bytes[i], (unsigned char)((at + (unsigned)i) * 7 >> 3));
			at += (unsigned)now;
		}
		expect_exit(child, 0);
		say("%d bytes %s", LOT, turn ? "in" : "out");
	}
	close(master), close(slave);
}

static void closing(void)
{
	int master = master_of_new(), slave = slave_of(master);
	write_all(slave, "left");
	close(slave);
	say("without a slave: %x", events(master));
	say_read("what is left", master);
	say_read("then", master);
	slave = slave_of(master);
	say("with one again: %x", events(master));
	struct termios settings;
	int number = 0;
	close(master);
	say("without a master: %x", events(slave));
	say_read("hung up", slave);
	CHECK_ERRNO(write(slave, "x", 1), EIO);
	CHECK_ERRNO(tcgetattr(slave, &settings), EIO);
	CHECK_ERRNO(ioctl(slave, TIOCSPGRP, &number), ENOTTY);
	close(slave);
	/* Who waits is woken. */
	master = master_of_new();
	slave = slave_of(master);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(master);
		char byte;
		/* An end, or EIO: whichever it sees first. */
		_exit(read(slave, &byte, 1) <= 0 ? 7 : 1);
	}
	usleep(20000);
	close(master);
	expect_exit(child, 7);
	close(slave);
}

static volatile sig_atomic_t noted;

static void note(int signal)
{
	noted = noted * 100 + signal;
}

static void hear(int signal)
{
	struct sigaction action = { .sa_handler = note };
	CHECK_EQ(sigaction(signal, &action, NULL), 0);
}

/* A child that leads a session with the slave as its terminal. It says one byte at `ready` when it has begun. */
static pid_t leader(int master, int *ready, void (*work)(int slave, int ready))
{
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(ends[0]);
		CHECK_EQ(setsid(), getpid());
		CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
		char *name = ptsname(master);
		CHECK(name);
		int slave = open(name, O_RDWR);
		CHECK(slave >= 0);
		close(master);
		work(slave, ends[1]);
		_exit(0);
	}
	close(ends[1]);
	*ready = ends[0];
	return child;
}

static void await(int ready)
{
	char byte;
	CHECK_EQ(read(ready, &byte, 1), 1);
}

static void controls(int slave, int ready)
{
	CHECK_EQ(tcgetsid(slave), getpid());
	CHECK_EQ(tcgetpgrp(slave), getpid());
	int terminal = open("/dev/tty", O_RDWR);
	CHECK(terminal >= 0);
	CHECK(isatty(terminal));
	hear(SIGINT), hear(SIGQUIT), hear(SIGWINCH), hear(SIGTSTP);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(write(ready, "r", 1), 1);
		char byte;
		CHECK_ERRNO(read(slave, &byte, 1), EINTR);
	}
	say("signals: %d", noted);

	/* A group in the background that reads is stopped. */
	pid_t other = fork();
	CHECK(other >= 0);
	if (other == 0) {
		signal(SIGTTIN, SIG_DFL);
		CHECK_EQ(setpgid(0, 0), 0);
		char byte;
		ssize_t length = read(terminal, &byte, 1);
		_exit(length == 1 ? byte : 1);
	}
	setpgid(other, other);
	int status;
	CHECK_EQ(waitpid(other, &status, WUNTRACED), other);
	CHECK(WIFSTOPPED(status));
	say("stopped by signal %d", WSTOPSIG(status));
	signal(SIGTTOU, SIG_IGN);
	CHECK_EQ(tcsetpgrp(slave, other), 0);
	CHECK_EQ(kill(other, SIGCONT), 0);
	CHECK_EQ(write(ready, "r", 1), 1);
	CHECK_EQ(waitpid(other, &status, 0), other);
	say("in the foreground it reads %d", WEXITSTATUS(status));
	CHECK_EQ(tcsetpgrp(slave, getpid()), 0);
}

static void job_control(void)
{
	int master = master_of_new(), ready;
	pid_t child = leader(master, &ready, controls);
	await(ready);
	CHECK_EQ(tcgetpgrp(master), child);
	usleep(20000);
	write_all(master, "\003");
	await(ready);
	usleep(20000);
	write_all(master, "\034");
	await(ready);
	usleep(20000);
	struct winsize size = { 50, 100, 0, 0 };
	CHECK_EQ(ioctl(master, TIOCSWINSZ, &size), 0);
	await(ready);
	usleep(20000);
	write_all(master, "\032");
	await(ready);
	write_all(master, "A\n");
	expect_exit(child, 0);
	say_read("echo", master);
	close(master), close(ready);
}

static void waits_for_the_end(int slave, int ready)
{
	hear(SIGHUP);
	sigset_t hang_up, before;
	sigemptyset(&hang_up);
	sigaddset(&hang_up, SIGHUP);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &hang_up, &before), 0);
	CHECK_EQ(write(ready, "r", 1), 1);
	sigsuspend(&before);
	char byte;
	say("the leader: signal %d, read %zd", noted, read(slave, &byte, 1));
	CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
}

/* In the foreground, beside a leader that ends. */
static void ends_before_another(int slave, int ready)
{
	(void)slave;
	if (fork() == 0) {
		hear(SIGHUP);
		sigset_t hang_up, before;
		sigemptyset(&hang_up);
		sigaddset(&hang_up, SIGHUP);
		CHECK_EQ(sigprocmask(SIG_BLOCK, &hang_up, &before), 0);
		CHECK_EQ(write(ready, "r", 1), 1);
		sigsuspend(&before);
		say("who is left: signal %d", noted);
		CHECK_EQ(write(ready, "r", 1), 1);
		_exit(0);
	}
	usleep(50000);
}

static void hanging_up(void)
{
	int master = master_of_new(), ready;
	pid_t child = leader(master, &ready, waits_for_the_end);
	await(ready);
	close(master);
	expect_exit(child, 0);
	close(ready);

	master = master_of_new();
	child = leader(master, &ready, ends_before_another);
	await(ready);
	expect_exit(child, 0);
	await(ready);
	close(master), close(ready);
}

/* Settings as older and newer programs move them. */
static void forms_of_settings(void)
{
	struct { uint16_t input, output, control, local; uint8_t line, characters[8]; } __attribute__((aligned(2))) old;
	struct { uint32_t input, output, control, local; uint8_t line, characters[19]; uint32_t speeds[2]; } new;
	int master = master_of_new(), slave = slave_of(master);
	memset(&old, 0xff, sizeof old);
	CHECK_EQ(ioctl(slave, 0x5405 /* TCGETA */, &old), 0);
	CHECK_EQ(ioctl(slave, 0x802c542a /* TCGETS2 */, &new), 0);
	CHECK(old.input == (uint16_t)new.input && old.local == (uint16_t)new.local && !memcmp(old.characters, new.characters, 8));
	say("speeds %u %u, of character 4 %d", new.speeds[0], new.speeds[1], old.characters[4]);
	old.local &= (uint16_t)~ECHO;
	old.characters[4] = 5;
	CHECK_EQ(ioctl(slave, 0x5407 /* TCSETAW */, &old), 0);
	CHECK_EQ(ioctl(slave, 0x802c542a, &new), 0);
	CHECK(!(new.local & ECHO) && (new.local & IEXTEN) && new.characters[4] == 5 && new.characters[10] == 0x1a);
	static const struct { uint32_t code, speed; } speeds[] = {{0x1002, 115200}, {13, 9600}, {0x100f, 4000000}, {0x1000, 31250}};
	for (int i = 0; i < 4; i++) {
		new.control = (new.control & ~0x100fu) | speeds[i].code;
		new.speeds[0] = new.speeds[1] = speeds[i].speed;
		CHECK_EQ(ioctl(slave, 0x402c542b /* TCSETS2 */, &new), 0);
		CHECK_EQ(ioctl(slave, 0x802c542a, &new), 0);
		say("code %x: %u baud", new.control & 0x100f, new.speeds[1]);
	}
	close(slave);
	close(master);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	making();
	through_a_line();
	a_lot();
	closing();
	job_control();
	hanging_up();
	forms_of_settings();
	say("pty: ok");
	return 0;
}
