// gcc -O0 -o sequence sequence.c && setarch -R ./sequence
// What Linux does at each step; what Foldspace said is in the comments.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const unsigned long base = WINDOW_BASE, end = WINDOW_END;
static volatile int *turn;  // shared by all processes: the step that is done now
static volatile int *pids;  // of all processes
static int me;
static unsigned long data_outside;
static sigjmp_buf back;
static volatile int signal_number, signal_code;

static void handler(int number, siginfo_t *info, void *context) {
  signal_number = number;
  signal_code = info->si_code;
  siglongjmp(back, 1);
}

static long store(unsigned long at, unsigned long value, long pages) {
  volatile long done = 0;
  if (sigsetjmp(back, 1) == 0)
    for (; done < pages; done++) *(volatile unsigned long *)(at + done * 4096) = value + done;
  return done;
}

static long load(unsigned long at, long pages) {
  volatile long done = 0;
  if (sigsetjmp(back, 1) == 0)
    for (; done < pages; done++) printf("   read %016lx\n", *(volatile unsigned long *)(at + done * 4096));
  return done;
}

static long create(int fd, const char *name, unsigned flags, int read_only) {
  long made = syscall(SYS_memfd_create, name, flags);
  if (made < 0) return made;
  if (read_only) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%ld", made);
    int again = open(path, O_RDONLY);
    close(made);
    made = again;
  }
  long placed = dup2(made, fd);
  close(made);
  return placed < 0 ? placed : 0;
}

static long read_file(int fd, long offset) {
  unsigned long word = 0;
  long got = pread(fd, &word, 8, offset);
  printf("   read %016lx\n", word);
  return got;
}

static long write_file(int fd, long offset, unsigned long word) { return pwrite(fd, &word, 8, offset); }

static unsigned long used(const char *name) {
  char line[256];
  unsigned long bytes = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status))
    if (strncmp(line, name, strlen(name)) == 0) bytes = strtoul(line + strlen(name), 0, 10) * 1024;
  fclose(status);
  return bytes;
}

static long limit(int resource, unsigned long more) {
  const char *name = resource == RLIMIT_AS ? "VmSize:" : resource == RLIMIT_DATA ? "VmData:" : "none";
  struct rlimit limits;
  if (getrlimit(resource, &limits) != 0) return -1;
  if (resource == RLIMIT_MEMLOCK) {  // without CAP_IPC_LOCK
    unsigned head[2] = {0x20080522, 0}, sets[6] = {0};
    syscall(SYS_capget, head, sets);
    sets[0] &= ~(1u << 14);
    sets[1] &= ~(1u << 14);
    syscall(SYS_capset, head, sets);
  }
  limits.rlim_cur = more == RLIM_INFINITY ? limits.rlim_max : used(name) + more;
  return setrlimit(resource, &limits);
}

static long set_heap(unsigned long at) {
  const unsigned long else_where = 0x700000000000;
  unsigned long map[13];
  for (int i = 0; i < 11; i++) map[i] = i == 4 || i == 5 ? at : else_where;
  map[1]++;                // code there must be
  map[3] += data_outside;  // brk holds heap and data against a limit that counts it
  map[11] = 0;
  map[12] = 0xfffffffful << 32;
  return prctl(PR_SET_MM, PR_SET_MM_MAP, map, sizeof map, 0);
}

static long advise_other(int other, unsigned long a, unsigned long a_len, unsigned long b, unsigned long b_len, int advice, unsigned flags) {
  unsigned long ranges[] = {a, a_len, b, b_len};
  int pidfd = syscall(SYS_pidfd_open, other == me ? getpid() : pids[other], 0);
  long done = syscall(SYS_process_madvise, pidfd, ranges, 2, advice, flags);
  close(pidfd);
  return done;
}

static long copy(long number, int other, unsigned long here, unsigned long there, unsigned long len) {
  unsigned long local[] = {here, len}, remote[] = {there, len};
  return syscall(number, other == me ? getpid() : pids[other], local, 1, remote, 1, 0);
}

static long load_everything(void) {
  char line[256];
  FILE *maps = fopen("/proc/self/maps", "r");
  unsigned long from, to;
  char access;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %c", &from, &to, &access) == 3 && base <= from && to <= end && access == 'r')
      for (unsigned long page = from; page < to; page += 4096)
        if (sigsetjmp(back, 1) == 0)
          for (unsigned long at = page; at < page + 4096; at += 8)
            if (*(volatile unsigned long *)at) printf("   %lx: %016lx\n", at, *(volatile unsigned long *)at);
  fclose(maps);
  return 0;
}

// Everywhere but in the window something is mapped, so that searches for free places end in the window.
static void fill(void) {
  char line[256];
  int fd = memfd_create("filler", 0);
  FILE *maps = fopen("/proc/self/maps", "r");
  unsigned long from, to, at = 0x10000, starts[200], ends[200];
  int count = 0;
  while (fgets(line, sizeof line, maps) && count < 198)
    if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from < 0x7ffffffff000) {
      starts[count] = strstr(line, "[stack]") ? from - 0x100000 : from;
      ends[count++] = to;
    }
  fclose(maps);
  starts[count] = 0x7ffffffff000;
  ends[count++] = 0;
  for (int i = 0; i < count; at = ends[i++])
    for (int half = 0; half < 2; half++) {
      unsigned long low = at, high = starts[i];
      if (low < base && high > end) half == 0 ? (high = base) : (low = end);
      else if (half) break;
      if (low < high) mmap((void *)low, high - low, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0);
    }
  close(fd);
}

static void show(long result) {
  char line[256];
  if (result == -1) printf("   -1 %s\n", strerror(errno));
  else printf("   %#lx\n", result);
  if (signal_number) printf("   signal %d code %d\n", signal_number, signal_code);
  signal_number = 0;
  FILE *smaps = fopen("/proc/self/smaps", "r");
  unsigned long from, to;
  int inside = 0;
  while (fgets(line, sizeof line, smaps)) {
    if (line[0] >= 'a' || (line[0] >= '0' && line[0] <= '9')) {
      inside = sscanf(line, "%lx-%lx", &from, &to) == 2 && base <= from && to <= end;
      if (inside) printf("   %s", line);
    } else if (inside) {
      const char *names[] = {"Rss:", "Private_Dirty:", "Anonymous:", "Locked:", "VmFlags:"};
      for (int i = 0; i < 5; i++)
        if (strncmp(line, names[i], strlen(names[i])) == 0 && !strstr(line, " 0 kB")) printf("       %s", line);
    }
    if (inside && strncmp(line, "VmFlags:", 8) == 0) {
      unsigned char pages[4096];
      if (mincore((void *)from, to - from, pages) == 0) {
        printf("       in core: ");
        for (unsigned long page = 0; page < (to - from) / 4096; page++) putchar('0' + (pages[page] & 1));
        putchar('\n');
      }
    }
  }
  fclose(smaps);
  fflush(stdout);
}

#define STEP(number, who, text, what)                       \
  while (*turn < number) sched_yield();                     \
  if (me == who) {                                          \
    printf("%d, process %d: %s\n", number, who, text);      \
    long result = (long)(what);                             \
    show(result);                                           \
    *turn = number + 1;                                     \
  }

int main(void) {
  turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pids = turn + 1;
  pids[0] = getpid();
  fill();
  data_outside = used("VmData:");
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, 0);
  sigaction(SIGBUS, &action, 0);
