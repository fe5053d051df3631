#!/bin/sh
# Checks a kernel image for what the compiler does not: tests/image.sh IMAGE
#
# - no function keeps data below its stack pointer (the red zone): an interrupt in idle would overwrite it;
# - nothing of libc was linked, statically or for a dynamic linker: QEMU refuses such an image, or memory functions come from the wrong place;
# - the PVH note that QEMU enters by is there.
set -eu
image=$1
failed=0
fail() {
    echo "$image: $1" >&2
    failed=1
}

red_zone=$(objdump -d --no-show-raw-insn "$image" | awk '/^[0-9a-f]+ <.*>:$/ { name = $2 } /-0x[0-9a-f]+\(%rsp/ { print name, $0 }')
[ -z "$red_zone" ] || fail "uses the red zone:
$red_zone"

if readelf -SW "$image" | grep -Eq '\.(dynsym|dynstr|interp|gnu\.hash)'; then
    fail "has sections for a dynamic linker"
fi

readelf -nW "$image" | grep -q Xen || fail "has no PVH entry note"

undefined=$(readelf -sW "$image" | awk '$7 == "UND" && $8 != "" { print $8 }')
[ -z "$undefined" ] || fail "leaves symbols undefined: $undefined"

libc=$(cd "$(dirname "$0")" && cargo tree --quiet --package foldspace-kernel --target x86_64-unknown-linux-gnu --edges normal --invert libc 2>/dev/null || true)
[ -z "$libc" ] || fail "depends on the crate libc:
$libc"

exit $failed
