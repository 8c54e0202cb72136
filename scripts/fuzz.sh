#!/usr/bin/env bash
# Builds the fuzz targets with clang and libFuzzer and runs them, JOBS at once.
#
#   scripts/fuzz.sh [TARGET…]          each for FUZZ_SECONDS (default 60), going on from what earlier runs found interesting
#   FUZZ_TOTAL=60 scripts/fuzz.sh      all of them together for so many seconds, from the seeds alone and with a fixed seed: the
#                                      stage `fuzz` of scripts/test.sh, so that the same tree takes the same way again
#
# An input that breaks a target is left in build/fuzz/findings/; `build/fuzz/tests/fuzz/fuzz_TARGET FILE` shows it again (or those of
# build/fuzz-quick, where one minute was run).
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
jobs=${JOBS:-$(nproc)}
# What UBSan can tell that ASan does not, without the checks that double the code to compile.
checks=address,alignment,bool,bounds,enum,float-cast-overflow,integer-divide-by-zero,pointer-overflow,return,shift
checks+=,signed-integer-overflow,unreachable
# Unoptimised code runs slower and compiles in less than half the time, which is what counts for one minute.
if [ -n "${FUZZ_TOTAL:-}" ]; then build=build/fuzz-quick flags="-O0 -g1"; else build=build/fuzz flags="-O1 -g1"; fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_CXX_COMPILER=clang++-14 \
  -DVARDA_TESTS=OFF -DVARDA_FUZZ=ON -DVARDA_SANITIZE="$checks" >/dev/null

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for seeds in tests/fuzz/corpus/*/; do targets+=("$(basename "$seeds")"); done
fi
ninja -C "$build" -j "$jobs" --quiet "${targets[@]/#/fuzz_}"

if [ -n "${FUZZ_TOTAL:-}" ]; then
  # Each target has its share of the time of one core.
  seconds=$((FUZZ_TOTAL / ${#targets[@]}))
  [ "$seconds" -gt 0 ] || seconds=1
  corpus=$(mktemp -d)
  trap 'rm -rf "$corpus"' EXIT
  options=(-seed=1 -runs=20000)  # a faster machine does not go further
else
  seconds=${FUZZ_SECONDS:-60}
  corpus=build/fuzz/corpus
  options=()
fi
mkdir -p build/fuzz/findings build/fuzz/logs

run() {
  local name=$1 log=build/fuzz/logs/$1.log result=0
  shift
  mkdir -p "$corpus/$name"
  local dictionary=()
  [ -f "tests/fuzz/dictionaries/$name" ] && dictionary=(-dict="tests/fuzz/dictionaries/$name")
  # A parser that needs half a minute or half a gigabyte for a few kilobytes is broken too.
  "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$name-" "${dictionary[@]}" "$@" \
    "$corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || result=$?
  local executed
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ "$result" -ne 0 ]; then
    echo "fuzz_$name: BROKEN after ${executed:-?} inputs"
    tail -n 60 "$log"
    return 1
  fi
  echo "fuzz_$name: $executed inputs in $seconds s"
}
export -f run
export build corpus seconds

printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I TARGET bash -c 'run TARGET "$@"' run "${options[@]}"
