# For busybox's shell, with busybox's own tools: `busybox sh busybox.sh`. The output is the same on every kernel: no
# process numbers, no addresses, no times. Errors of the tools go to the output, too, so that none is overlooked.
exec 2>&1
umask 022
LC_ALL=C
export LC_ALL
# Only busybox's own: its shell finds them without a path.
PATH=/no-such-directory
export PATH

work=${TMPDIR:-/tmp}/busybox-test
rm -rf "$work"
mkdir -p "$work" || exit 1
cd "$work" || exit 1

section() { echo; echo "== $1"; }

section "pipelines"
seq 1 1000 | grep 7 | sort -rn | head -n 5 | tr '\n' ' '; echo
printf '%s\n' pear apple fig apple pear apple | sort | uniq -c | sort -k1,1nr -k2 | awk '{print $1, $2}'
seq 100000 | tail -n 1
seq 200 | sed -n '/5$/p' | wc -l
yes | head -n 3
echo abc | cat | cat | cat | cat | cat | cat | cat | cat | tr a-c x-z
false | true; echo "status $?"
true | false; echo "status $?"
! true; echo "negated $?"
seq 10 | tee copy | wc -c; cmp copy copy && cat copy | paste -s -d+ -

section "loops"
for i in 1 2 3; do for j in a b; do printf '%s%s ' $i $j; done; done; echo
n=0; while [ $n -lt 5 ]; do n=$((n + 1)); [ $n = 3 ] && continue; printf '%d ' $n; done; echo
until [ $n -eq 0 ]; do n=$((n - 1)); done; echo "n $n"
seq 5 | while read -r line; do echo "line $line"; [ "$line" = 3 ] && break; done
while IFS=: read -r name value rest; do echo "$value-$name ($rest)"; done <<END
one:1:x:y
two:2:
END
i=0; while :; do i=$((i + 1)); case $i in 2) continue ;; 5) break ;; *) echo "case $i" ;; esac; done

section "command substitution"
echo "nested: $(echo $(echo $(echo deep)))"
files=$(for f in c a b; do echo $f; done | sort); echo $files
echo "old style: `echo one \`echo two\``"
long=$(seq 5000); echo ${#long}
set -- $(seq 100); echo "$# arguments, last ${100}"

section "arithmetic"
echo $((1 + 2 * 3)) $((17 % 5)) $((1 << 40)) $((0x10 + 010)) $((5 > 3 && 2 > 1)) $((7 ? 8 : 9)) $((-7 / 2))
x=5; echo $((x++ + ++x)) $x $((x *= 2)) $x
expr 6 \* 7; expr length hello; expr abcdef : 'abc\(.*\)'
awk 'BEGIN { printf "%.3f %d %s\n", 22 / 7, 2 * 1024, substr("memory", 2, 3) }'
echo '2 3 + 4 * p' | dc

section "variables"
v=/usr/lib/libfold.so.1
echo "${v##*/} ${v%/*} ${v%%.*} ${#v} ${unset_one:-default} ${v:+set} ${v:5:3} ${v/lib/LIB}"
a="two  words"; echo $a; echo "$a"
IFS=,; set -- a,b,,c; set -- $1; echo "$#"; unset IFS
f() { local v=inner; echo "$v $1 $#"; return 3; }; f x y; echo "$? $v"
readonly fixed=1; (fixed=2) 2>/dev/null; echo "readonly $?"
env -i A=1 B='two words' sh -c 'echo "$A $B"; env | grep -c =' | head -n 1
A=temporary sh -c 'echo $A'; echo "[$A]"
export A=exported; sh -c 'echo $A'
while getopts ab:c option -a -b value -c; do echo "option $option $OPTARG"; done

section "redirections"
echo one > out; echo two >> out; cat < out
{ echo to-output; echo to-error >&2; } 2> errors > output; cat output errors
sh -c 'echo e >&2; echo o' 2>&1 >/dev/null | sed 's/^/error: /'
exec 3> third; echo through three >&3; exec 3>&-; cat third
exec 4< out; read first <&4; read second <&4; echo "$second $first"; exec 4<&-
cat no-such-file; echo "status $?"
: > empty; [ -s empty ] || echo "empty is empty"
echo x > /dev/null; cat /dev/null | wc -c
sh -c 'set -C; echo y > out'; echo "noclobber $?"

section "here-documents"
cat <<END
$((6 * 7)) ${v##*/} $(echo substituted)
END
cat <<'END'
$((6 * 7)) stays
END
cat <<-END
	tab removed
END
sh <<'END'
echo from a here-document
END
seq 20000 > numbers; cat <<END | md5sum
$(cat numbers)
END

section "background jobs"
(exit 7) & wait $!; echo "waited $?"
sleep 0.3 & first=$!; sleep 0.1 & second=$!; wait $second; echo "second $?"; wait $first; echo "first $?"
for i in 1 2 3 4 5; do (sleep 0.$((6 - i)); echo "job $i" >> jobs) & done; wait; cat jobs
sleep 100 & kill $!; wait $! 2>/dev/null; echo "killed $?"
sleep 100 & kill -9 $!; wait $! 2>/dev/null; echo "killed $?"
(trap 'echo caught; exit 5' TERM; sleep 0.1; kill -TERM $(sh -c 'echo $PPID'); sleep 1); echo "trapped $?"
timeout 1 sleep 10; echo "timeout $?"
{ sleep 0.1; echo late; } | cat; echo after
wait; echo "nothing left $?"

section "traps"
sh -c 'trap "echo on exit" EXIT; echo body'
sh -c 'trap "echo got USR1" USR1; kill -USR1 $$; echo after'
sh -c 'trap "" TERM; kill -TERM $$; echo survived'
sh -c 'kill -TERM $$; echo not reached'; echo "status $?"
sh -c 'kill -SEGV $$'; echo "status $?"
sh -c 'set -e; false; echo not reached'; echo "status $?"
sh -c 'exit 300'; echo "status $?"
sh -c 'no-such-command'; echo "status $?"

section "300 processes in a row"
i=0; sum=0
while [ $i -lt 300 ]; do sh -c "exit $((i % 7))"; sum=$((sum + $?)); i=$((i + 1)); done
echo "sum of statuses $sum"
i=0; while [ $i -lt 300 ]; do (exit 1) || i=$((i + 1)); done; echo "$i subshells"

section "100 at once"
i=0
while [ $i -lt 100 ]; do { sleep 0.5; echo $i; } & i=$((i + 1)); done > numbers-of-100
wait
sort -n numbers-of-100 | md5sum; wc -l < numbers-of-100

section "text tools"
printf '%5d|%-5s|%05.1f|%x|%c|%s\n' 42 ab 3.14159 255 z 'a b'
printf '%b' 'tab\there\n'
echo "Hello World" | sed -e 's/\(.*\) \(.*\)/\2 \1/' -e y/lo/01/
seq 12 | sed -n '3,5p;$p'; seq 6 | sed '2d;4s/4/four/' | tr '\n' ' '; echo
printf 'b 2\na 10\nc 1\n' > table
sort -k2n table; sort -r table | cut -d' ' -f1 | tr -d '\n'; echo
awk '{ sum += $2; names = names $1 } END { print names, sum, NR }' table
awk 'BEGIN { while (i++ < 1000) t[i % 10] += i; for (k = 0; k < 10; k++) printf "%d ", t[k]; print "" }'
grep -n 'a' table; grep -c . table; grep -v 1 table; grep -E '^(a|b)' table | wc -l; grep -q z table; echo $?
echo one two three | xargs -n 1 echo item; seq 1000 | xargs echo | wc -w; seq 30 | xargs -n 10 sh -c 'echo $#' _
echo a:b:c | cut -d: -f2-; rev table | head -n 1; tac table | head -n 1; nl table | tail -n 1 | tr -s ' \t' ' '
od -An -tx1 -N8 numbers; hexdump -C -n 16 numbers | head -n 1; base64 table; base64 table | base64 -d | cmp - table && echo same
seq 5 | shuf | sort -n | tr '\n' ' '; echo; fold -w 10 numbers | head -n 2; expand table | head -n 1
date -u -d @86400 '+%Y-%m-%d %H:%M:%S'; basename /a/b.c .c; dirname /a/b.c; seq -s, 3
diff table numbers | head -n 2; comm 2>/dev/null; cal 2 2024 | tail -n +2 | head -n 3

section "files"
mkdir -p tree/a/b/c tree/d && seq 100 > tree/a/numbers && echo text > tree/a/b/text && : > tree/d/empty
ln -s ../a/numbers tree/d/link && ln tree/a/b/text tree/hard && chmod 750 tree/a/b && chmod u=rw,go= tree/hard
find tree | sort
find tree -type f -name '*t*' | sort; find tree -type l; find tree -size 0 -type f; find tree -type d -exec echo dir {} \; | sort
find tree -type f | sort | xargs cat | md5sum
stat -c '%A %h %s %n' tree/a/numbers tree/a/b/text tree/d/empty; stat -c '%F' tree/d/link tree
ls tree tree/a; readlink tree/d/link; [ -L tree/d/link ] && [ -d tree ] && [ ! -e none ] && [ tree/hard -ef tree/a/b/text ] && echo tests
cp -r tree copied && diff -r tree copied && echo "copied the same"
mv copied moved && [ ! -d copied ] && rm -r moved/a && find moved | sort
touch -d '2020-01-02 03:04:05' tree/d/empty && date -u -r tree/d/empty +%Y-%m-%d
echo tree/*/* tree/?/b/* [t]ree; cd tree/a/b && pwd | sed 's|.*/busybox-test/||'; cd ../../..
dd if=/dev/zero of=zeroes bs=1000 count=50 2>/dev/null; wc -c < zeroes; md5sum < zeroes
dd if=numbers of=part bs=10 skip=2 count=3 2>/dev/null; cat part; echo
printf 'XY' | dd of=numbers bs=1 seek=4 conv=notrunc 2>/dev/null; head -n 4 numbers
truncate -s 5 part; wc -c < part; cat no/such/file; rmdir tree; mkdir tree; rm none; ls none

section "tar"
tar cf archive.tar tree && tar tf archive.tar | sort && mkdir extracted && tar xf archive.tar -C extracted
diff -r tree extracted/tree && echo "extracted the same"
stat -c '%A %n' extracted/tree/a/b; readlink extracted/tree/d/link
mkdir piped && tar cf - tree | (cd piped && tar xf -) && diff -r tree piped/tree && echo "through a pipe the same"
tar czf archive.tar.gz tree && mkdir zipped && tar xzf archive.tar.gz -C zipped && diff -r tree zipped/tree && echo "compressed the same"
seq 50000 > plain && gzip -c plain | gzip -dc | cmp - plain && bzip2 -c plain | bzip2 -dc | cmp - plain && echo "gzip and bzip2"
find tree | sort | cpio -o -H newc 2>/dev/null | cpio -it 2>/dev/null | wc -l

section "proc"
[ "$(cat /proc/self/maps | wc -l)" -gt 5 ] && echo "maps has lines"
cat /proc/self/maps | grep -c '\[stack\]'; grep -c '\[heap\]' /proc/self/maps
cut -d' ' -f2 /proc/self/stat; cat /proc/self/cmdline | tr '\0' ' '; echo
grep -E '^(Name|State|Threads)' /proc/self/status
sleep 5 & sleeper=$!
until grep -q sleep /proc/$sleeper/comm; do sleep 0.01; done
ps -o pid,comm | grep "^ *$sleeper " | awk '{print $2}'; ps | grep -v grep | grep -c "^ *$sleeper "
[ "$(cat /proc/$sleeper/comm 2>/dev/null)" = sleep ] && echo "its name"; ls -d /proc/$sleeper | sed 's/[0-9]*$/PID/'
kill $sleeper; wait $sleeper 2>/dev/null; [ -d /proc/$sleeper ] || echo gone
[ -e /proc/self/exe ] && [ -e /proc/self/fd/1 ] && echo "exe and fd"

section "50 MB"
yes 'All that is shared stays shared until it is written.' | head -c 50000000 > big
wc -c < big; sha256sum big
dd if=big bs=64k skip=700 2>/dev/null | wc -c; tail -c 53 big
rm big

section "many files"
mkdir many; i=0; while [ $i -lt 1000 ]; do echo $i > many/file$i; i=$((i + 1)); done
ls many | wc -l; cat many/* | sort -n | md5sum; find many -name '*99' | sort | tr '\n' ' '; echo
rm -r many; ls -a | wc -l

cd / && rm -rf "$work" && echo && echo "done"
