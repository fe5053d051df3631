#!/bin/sh
# Builds the test programs, statically, into a folder: each C program NAME with glibc as NAME and with musl as
# NAME-musl, some also as position-independent executables (NAME-pie), the Rust programs under their names, and the
# shell's test as busybox.sh.
#
# usage: guests/tests/build.sh OUTDIR [NAME...]
set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 OUTDIR [NAME...]" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift

flags="-O2 -pthread -Wall -Wextra -Wno-clobbered"
pies="exec language procfs"

if [ $# -eq 0 ]; then
	set -- $(cd "$here" && ls ./*.c | sed 's|^\./||; s|\.c$||')
	(cd "$here/.." && cargo build --quiet --release --package hello-rust --package demo --package bench-basic)
	target=$(cd "$here/.." && cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
	for program in hello-rust demo bench-basic; do
		cp "$target/x86_64-unknown-linux-gnu/release/$program" "$out/"
	done
	cp "$here/busybox.sh" "$out/"
fi

have_musl=yes
if ! command -v musl-gcc >/dev/null; then
	have_musl=no
	echo "$0: there is no musl-gcc (Debian: apt install musl-tools); only the glibc programs are built" >&2
fi

# In the folder itself, so that a failure names just the file.
cd "$here"
for name; do
	${CC:-gcc} $flags -static -o "$out/$name" "$name.c"
	if [ $have_musl = yes ]; then
		musl-gcc $flags -static -o "$out/$name-musl" "$name.c"
	fi
	case " $pies " in
	*" $name "*) ${CC:-gcc} $flags -static-pie -fpie -o "$out/$name-pie" "$name.c" ;;
	esac
done
