# A table from an lcov report: lines, those that no test has run, and the share of the others, for each file of the memory
# manager and of Linux's calls, tests left out. Files below
# `wanted` percent come with the numbers of the lines that were not run; ends with 1 if an operation is one of them.

/^SF:/ {
  file = substr($0, 4)
  counts = index(file, root "crates/") == 1
  file = substr(file, length(root) + 1)
  counts = counts && file ~ /^crates\/(foldspace|linux)\/src\// && file !~ /\/tests(\/|\.rs$)/
  if (counts) files[++count] = file
}

# lcov names a line once for each program that has it.
counts && /^DA:/ {
  split(substr($0, 4), part, ",")
  key = file SUBSEP part[1]
  if (!(key in runs)) {
    lines[file]++
    order[file, lines[file]] = part[1] + 0
  }
  runs[key] += part[2]
}

function missed_lines(file,    i, line, from, last, text) {
  for (i = 1; i <= lines[file] + 1; i++) {
    line = order[file, i]
    if (i <= lines[file] && runs[file, line] == 0) {
      if (!from) from = line
      last = line
    } else if (from) {
      text = text (text == "" ? "" : ", ") (from == last ? from : from "-" last)
      from = 0
    }
  }
  return text
}

END {
  printf "%-52s %7s %7s %8s\n", "file", "lines", "missed", "run"
  bad = 0
  for (i = 1; i <= count; i++) {
    file = files[i]
    if (!lines[file] || file in done) continue
    done[file] = 1
    missed = 0
    for (j = 1; j <= lines[file]; j++) missed += runs[file, order[file, j]] == 0
    share = 100 * (lines[file] - missed) / lines[file]
    printf "%-52s %7d %7d %7.1f%%\n", file, lines[file], missed, share
    all += lines[file]
    all_missed += missed
    if (share < wanted) {
      low[++lows] = file
      if (file ~ /^crates\/foldspace\/src\/space\//) bad = 1
    }
  }
  printf "%-52s %7d %7d %7.1f%%\n", "all", all, all_missed, all ? 100 * (all - all_missed) / all : 0
  if (lows) printf "\nbelow %d %%, lines that no test runs:\n", wanted
  for (i = 1; i <= lows; i++) printf "  %s: %s\n", low[i], missed_lines(low[i])
  if (bad) print "an operation of the memory manager is below " wanted " %" > "/dev/stderr"
  if (!all) print "nothing was counted" > "/dev/stderr"
  exit bad || !all
}
