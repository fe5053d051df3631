#!/usr/bin/env bash
# Builds cjson.elf and cjson-planted.elf again: cJSON 1.7.15 (MIT) as Debian 12 has its source, and the same with a bug planted.
#
#   apt-get install gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf; apt-get source --download-only cjson (with `deb-src` in apt's sources)
#   ./build.sh cjson_1.7.15.orig.tar.gz
set -euo pipefail
archive=$(realpath -- "$1")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
tar -xf "$archive" -C "$work" --strip-components 1

# The bug: a number longer than its buffer on the stack is copied all the same.
bound='(i < (sizeof(number_c_string) - 1)) \&\& '
sed "s/$bound//" "$work/cJSON.c" >"$work/planted.c"
if cmp -s "$work/cJSON.c" "$work/planted.c"; then
  echo 'the line that is to be changed is not there' >&2
  exit 1
fi

# No compressed instructions and no floating point: what the interpreter knows. Doubles are computed by libgcc.
build() { # SOURCE PROGRAM
  riscv64-unknown-elf-gcc --specs=picolibc.specs -march=rv64im -mabi=lp64 -mcmodel=medany -Os -ffunction-sections -fdata-sections \
    -fno-stack-protector -nostartfiles -static -I "$work" -Wl,--gc-sections,--build-id=none -T link.ld -s \
    harness.c "$1" -o "$2"
}
build "$work/cJSON.c" cjson.elf
build "$work/planted.c" cjson-planted.elf
