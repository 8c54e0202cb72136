# Shared by .ci/run, scripts/test.sh and scripts/nightly.sh: stages with times, builds and ctest
# runs. Source this file at the root of the checkout.

jobs=${JOBS:-$(nproc)}
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
stage_file=build/stages.tsv

# stage NAME COMMAND…: runs the command and records the duration. The first failed stage ends the
# script.
stage() {
  local name=$1 begin=$SECONDS result=0
  shift
  echo "=== $name"
  "$@" || result=$?
  local took=$((SECONDS - begin))
  mkdir -p build
  printf '%s\t%s\t%s\n' "$name" "$took" "$([ "$result" = 0 ] && echo ok || echo FAILED)" >> "$stage_file"
  echo "=== $name took $took s"
  return "$result"
}

# build_in PRESET TARGET…
build_in() {
  local preset=$1
  shift
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" > /dev/null
  ninja -C "build/$preset" -j "$jobs" --quiet "$@"
}

# run_tests PRESET CTEST-OPTION…: runs ctest, lists the slowest cases and checks that only expected
# tests were skipped. The check runs as the user who ran the tests, since some skips depend on it.
run_tests() {
  local preset=$1 results="$PWD/build/$1/Testing" result=0
  shift
  local seed=${VARDA_SIM_SEED:-$(git rev-parse HEAD 2> /dev/null || true)}
  rm -rf "$results"
  local -x VARDA_TSAN=  # for tests/expected_skips.txt
  [ "$preset" != tsan ] || VARDA_TSAN=1
  echo "VARDA_SIM_SEED=$seed"
  VARDA_SIM_SEED=$seed \
    scripts/as_user.sh ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --output-junit "$results/ctest.xml" "$@" || result=$?
  scripts/as_user.sh python3 tests/skips.py junit --slowest 20 $(find "$results" -name '*.xml') || result=1
  return "$result"
}
