#!/usr/bin/env bash
# Prints the figures of docs/benchmarks.md as tables, each beside its reference of the same run.
# build/bench/*.json has the same for machines. A failed benchmark does not stop the others, but the
# script then fails.
#
#   scripts/bench.sh [NAME]...      apiserver, infer, up ...; default: all
set -euo pipefail
cd "$(dirname "$0")/.."
# A time limit for each part: if one hangs, the others still run.
limit_seconds=420
out=build/bench
mkdir -p "$out"
wanted=("$@")
failed=0

title() { printf '## %s\n\n' "$1"; }
chosen() { [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]]; }
measured() {
  if ! timeout "$limit_seconds" "${@:2}"; then
    echo "the benchmark $1 failed" >&2
    failed=1
  fi
  echo
}

if [ ! -x /usr/sbin/nginx ]; then echo "nginx is not installed: its figures are left out (bash scripts/deps.sh bench)" >&2; fi
echo "$(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg) at the beginning, kernel $(uname -r), $(date -u +%F)"
echo
for program in bench/*.py; do
  name=$(basename "$program" .py)
  chosen "$name" || continue
  title "$name"
  # Without -P, bench/operator.py would hide the module of the library.
  measured "$name" python3 -P "$program"
done
for program in build/release/bin/varda_bench_*; do
  [ -x "$program" ] || continue
  name=$(basename "$program" | sed 's/varda_bench_//')
  chosen "$name" || continue
  [ -f "bench/$name.py" ] && continue # the script above ran the program
  title "$name"
  case $name in
    apiserver) measured "$name" "$program" --json "$out/$name.json" ;;
    *) measured "$name" "$program" ;;
  esac
done
exit $failed
