#!/bin/sh
# Runs each test program here, on the Linux of this machine, and with a command that runs it elsewhere; both must exit
# with 0 and print the same.
#
# usage: guests/tests/compare.sh OUTDIR [-o LOGDIR] [-b BUSYBOX] [-n NAME]... RUNNER [ARGUMENT...]
#
#   guests/tests/compare.sh /tmp/tests ./x run --             on Foldspace
#   guests/tests/compare.sh /tmp/tests ./x run --linux --     on Linux in the same QEMU
#
# OUTDIR is what build.sh has made. What each program printed is kept in LOGDIR (OUTDIR/log). With -n only these.
set -u

usage() {
	sed -n '5,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

[ $# -ge 2 ] || usage
out=$1
shift
log=$out/log
busybox=$(command -v busybox || true)
names=
while getopts o:b:n: option; do
	case $option in
	o) log=$OPTARG ;;
	b) busybox=$OPTARG ;;
	n) names="$names $OPTARG" ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
mkdir -p "$log"

if [ -z "$names" ]; then
	for file in "$out"/*; do
		name=${file##*/}
		case $name in
		demo | bench-basic | busybox.sh) continue ;;
		esac
		[ -f "$file" ] && [ -x "$file" ] && names="$names $name"
	done
	[ -n "$busybox" ] && names="$names busybox.sh"
fi

failed=0
passed=0
for name in $names; do
	if [ "$name" = busybox.sh ]; then
		"$busybox" sh -c "$(cat "$out/busybox.sh")" sh </dev/null >"$log/$name.here" 2>&1
		here=$?
		"$@" "$busybox" sh -c "$(cat "$out/busybox.sh")" sh </dev/null >"$log/$name.there" 2>"$log/$name.error"
		there=$?
	else
		"$out/$name" </dev/null >"$log/$name.here" 2>/dev/null
		here=$?
		"$@" "$out/$name" </dev/null >"$log/$name.there" 2>"$log/$name.error"
		there=$?
	fi
	if [ $here -ne 0 ]; then
		result="fails here, with $here: $(tail -n 1 "$log/$name.here")"
	elif [ $there -ne 0 ]; then
		result="exit status $there: $(tail -n 1 "$log/$name.there")"
	elif ! cmp -s "$log/$name.here" "$log/$name.there"; then
		result="prints something else: $(diff "$log/$name.here" "$log/$name.there" | sed -n 2p)"
	else
		passed=$((passed + 1))
		echo "ok      $name"
		continue
	fi
	failed=$((failed + 1))
	echo "FAILED  $name: $result"
done
echo "$passed passed, $failed failed (what they printed: $log)"
[ $failed -eq 0 ]
