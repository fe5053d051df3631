# Counts the primes below a0 and prints the number: what examples/riscv executes. Static, RV64IM, Linux's calls.
#
# llvm-mc -triple=riscv64 -mattr=+m -filetype=obj primes.S -o primes.o && ld.lld -o primes.elf primes.o

        .globl _start
        .text
_start:
        ebreak                          # the emulator takes its snapshot here, and sets a0 in each guest
        mv      s0, a0
        la      s1, sieve
        li      t0, 2
outer:
        mul     t1, t0, t0
        bgeu    t1, s0, count
        add     t2, s1, t0
        lbu     t3, 0(t2)
        bnez    t3, next
inner:
        add     t2, s1, t1
        li      t3, 1
        sb      t3, 0(t2)
        add     t1, t1, t0
        bltu    t1, s0, inner
next:
        addi    t0, t0, 1
        j       outer
count:
        li      t0, 2
        li      s2, 0
each:
        bgeu    t0, s0, print
        add     t2, s1, t0
        lbu     t3, 0(t2)
        seqz    t3, t3
        add     s2, s2, t3
        addi    t0, t0, 1
        j       each
print:                                  # s2 in decimal, from the end of the buffer
        la      s3, buffer_end
        mv      s4, s3
        li      t0, 10
digit:
        remu    t1, s2, t0
        divu    s2, s2, t0
        addi    t1, t1, '0'
        addi    s4, s4, -1
        sb      t1, 0(s4)
        bnez    s2, digit
        li      a0, 1                   # write(1, s4, s3 + 1 - s4): the newline is there already
        mv      a1, s4
        sub     a2, s3, s4
        addi    a2, a2, 1
        li      a7, 64
        ecall
        li      a0, 0                   # exit(0)
        li      a7, 93
        ecall

        .data
        .space  32
buffer_end:
        .byte   '\n'

        .bss
        .balign 4096
sieve:
        .space  1048576
