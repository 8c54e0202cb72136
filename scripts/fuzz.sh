#!/usr/bin/env bash
# Builds the fuzz targets with clang and libFuzzer and runs them, JOBS at once.
#
#   scripts/fuzz.sh [TARGET…]          each for FUZZ_SECONDS (default 60), from the inputs of
#                                      earlier runs
#   FUZZ_RUNS=2000 scripts/fuzz.sh     each for that many inputs or 20 s, from inputs in git, with
#                                      a fixed seed and fixed addresses: nearly repeatable; the
#                                      stage `fuzz` of scripts/test.sh
#   scripts/fuzz.sh --keep [TARGET…]   like the first; then packs inputs that reach code beyond the
#                                      seeds into tests/fuzz/grown.tar.zst: small ones, at most
#                                      KEEP_BYTES (default 24576) a target
#
# build/fuzz/findings/ has each input that breaks a target. `build/fuzz/tests/fuzz/fuzz_TARGET FILE`
# repeats the failure; after a run with FUZZ_RUNS, use the programs of build/asan.
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
jobs=${JOBS:-$(nproc)}
keep=
if [ "${1:-}" = --keep ]; then
  keep=yes
  shift
fi
start=
# Checks of UBSan that ASan lacks, except those that double the code to compile.
checks=address,alignment,bool,bounds,enum,float-cast-overflow,integer-divide-by-zero,pointer-overflow,return,shift
checks+=,signed-integer-overflow,unreachable
if [ -n "${FUZZ_RUNS:-}" ]; then
  # The build of the unit tests contains the targets. Its fuzzer sees only the branches of the
  # target itself, so the corpus leads the way.
  build=build/asan
  [ -f "$build/build.ninja" ] || cmake --preset asan >/dev/null
else
  build=build/fuzz
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" -DCMAKE_CXX_COMPILER=clang++-14 -DVARDA_UNITY=ON \
    -DVARDA_TESTS=OFF -DVARDA_FUZZ=ON -DVARDA_FUZZ_COVERAGE=ON -DVARDA_SANITIZE="$checks" >/dev/null
fi

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for seeds in tests/fuzz/corpus/*/; do targets+=("$(basename "$seeds")"); done
fi
ninja -C "$build" -j "$jobs" --quiet "${targets[@]/#/fuzz_}"

if [ -n "${FUZZ_RUNS:-}" ]; then
  corpus=$build/fuzz-corpus
  rm -rf "$corpus"
  # The run ends at the first of the two limits: some targets run whole controllers for each input.
  options=(-seed=1 "-runs=$FUZZ_RUNS" -max_total_time=20)
  # libFuzzer's choices depend on addresses, and addresses depend on the environment. Some
  # containers refuse to fix them.
  start="env -i PATH=$PATH"
  if setarch -R true 2>/dev/null; then start+=" setarch -R"; fi
else
  corpus=build/fuzz/corpus
  options=("-max_total_time=${FUZZ_SECONDS:-60}")
fi
mkdir -p build/fuzz/findings build/fuzz/logs

run() {
  local name=$1 log=build/fuzz/logs/$1.log result=0 begin=$SECONDS
  shift
  local dictionary=()
  [ -f "tests/fuzz/dictionaries/$name" ] && dictionary=(-dict="tests/fuzz/dictionaries/$name")
  # A parser that needs half a minute or half a gigabyte for a few kilobytes counts as broken.
  # shellcheck disable=SC2086  # $start is words
  $start "$build/tests/fuzz/fuzz_$name" -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$name-" "${dictionary[@]}" "$@" \
    "$corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1 || result=$?
  local executed
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if [ "$result" -ne 0 ]; then
    echo "fuzz_$name: BROKEN after ${executed:-?} inputs"
    tail -n 60 "$log"
    return 1
  fi
  local ended=
  [ -z "${FUZZ_RUNS:-}" ] || [ "$executed" -ge "$FUZZ_RUNS" ] || ended=', ended by its time'
  echo "fuzz_$name: $executed inputs in $((SECONDS - begin)) s$ended"
}
export -f run
export build corpus start

# Formerly kept inputs and those of this machine share one size limit, the smallest first, so the
# archive stays small. libFuzzer names files by SHA-1 digest.
keep() {
  local name=$1 found=build/fuzz/kept/$1 log=build/fuzz/logs/$1.keep.log left=${KEEP_BYTES:-24576} count=0 file size
  rm -rf "$found" "$grown/$name"
  mkdir -p "$found" "$grown/$name"
  cp "tests/fuzz/corpus/$name"/* "$found"
  "$build/tests/fuzz/fuzz_$name" -merge=1 -max_len=4096 -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    "$found" "$corpus/$name" >"$log" 2>&1 || { tail -n 20 "$log"; return 1; }
  while read -r size file; do
    left=$((left - size))
    [ "$left" -ge 0 ] || break
    cp "$file" "$grown/$name"
    count=$((count + 1))
  done < <(find "$found" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -printf '%s %p\n' | sort -n)
  echo "fuzz_$name: keeps $count inputs"
}

# Adds the inputs of earlier campaigns to those of this machine.
grown=build/fuzz/grown
rm -rf "$grown"
mkdir -p "$grown"
[ ! -f tests/fuzz/grown.tar.zst ] || tar -C "$grown" --zstd -xf tests/fuzz/grown.tar.zst
for name in "${targets[@]}"; do
  mkdir -p "$corpus/$name"
  [ ! -d "$grown/$name" ] || cp -r "$grown/$name/." "$corpus/$name"
done

printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I TARGET bash -c 'run TARGET "$@"' run "${options[@]}"
if [ -n "$keep" ]; then
  for name in "${targets[@]}"; do keep "$name"; done
  tar -C "$grown" --zstd --sort=name --owner=0 --group=0 --mtime=@0 -cf tests/fuzz/grown.tar.zst .
fi
