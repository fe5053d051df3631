/* What the fuzz loop runs: cJSON, told to parse `a1` bytes at `a0`. Static, RV64IM, Linux's number for exit. */

#include <stddef.h>
#include <stdint.h>

#include "cJSON.h"

/* A heap of one pass: whoever runs this goes back to the snapshot afterwards. */
static unsigned char heap[1 << 20];
static size_t used;

static void *allocate(size_t size) {
  size_t at = (used + 15) & ~(size_t)15;
  if (size > sizeof heap - at) return NULL;
  used = at + size;
  return heap + at;
}

static void leave(void *memory) { (void)memory; }

/* Thread-local variables of the C library (errno). */
__attribute__((aligned(64))) unsigned char thread_block[512];

long run(void) {
  cJSON_Hooks hooks = {allocate, leave};
  cJSON_InitHooks(&hooks);
  register const char *input __asm__("a0");
  register size_t len __asm__("a1");
  /* The emulator takes its snapshot here, and sets both for each execution. */
  __asm__ volatile("ebreak" : "=r"(input), "=r"(len) : : "memory");
  return cJSON_ParseWithLength(input, len) != NULL;
}

__asm__(
    ".globl _start\n"
    "_start:\n"
    ".option push\n"
    ".option norelax\n"
    "  la gp, __global_pointer$\n"
    ".option pop\n"
    "  la tp, thread_block\n"
    "  call run\n"
    "  li a7, 93\n"
    "  ecall\n");
