#!/usr/bin/env bash
# Builds the fuzz targets with clang and libFuzzer and runs each for FUZZ_SECONDS (default 60). What one finds is left in build/fuzz/findings/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
[ -f build/fuzz/build.ninja ] || cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" -DCMAKE_CXX_COMPILER=clang++-14 \
  -DVARDA_TESTS=OFF -DVARDA_FUZZ=ON -DVARDA_SANITIZE=address,undefined >/dev/null
ninja -C build/fuzz --quiet fuzz_targets
mkdir -p build/fuzz/findings
failed=0
for target in build/fuzz/tests/fuzz/fuzz_*; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  name=$(basename "$target")
  mkdir -p "build/fuzz/corpus/$name"
  echo "--- $name for $seconds s"
  seeds=()
  [ -d "tests/fuzz/corpus/${name#fuzz_}" ] && seeds=("tests/fuzz/corpus/${name#fuzz_}")
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/corpus/$name" "${seeds[@]}" || failed=1
done
exit $failed
