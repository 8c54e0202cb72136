#!/usr/bin/env bash
# The figures of docs/benchmarks.md, each beside its reference of the same run, as tables; the same for machines in build/bench/*.json.
# A benchmark that fails does not keep the others from running, but the whole fails.
#
#   scripts/bench.sh [NAME]...      apiserver, infer, up ...; all of them by default
set -euo pipefail
cd "$(dirname "$0")/.."
# Where a part hangs, the rest is still worth having.
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
  measured "$name" python3 "$program"
done
for program in build/release/bin/varda_bench_*; do
  [ -x "$program" ] || continue
  name=$(basename "$program" | sed 's/varda_bench_//')
  chosen "$name" || continue
  title "$name"
  case $name in
    apiserver) measured "$name" "$program" --json "$out/$name.json" ;;
    *) measured "$name" "$program" ;;
  esac
done
exit $failed
