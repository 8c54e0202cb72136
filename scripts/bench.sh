#!/usr/bin/env bash
# The figures of docs/benchmarks.md, each beside its reference of the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "## varda up"
echo
python3 bench/up.py
echo
for program in build/release/bin/varda_bench_*; do
  [ -x "$program" ] || continue
  echo "## $(basename "$program" | sed 's/varda_bench_//')"
  echo
  "$program"
  echo
done
