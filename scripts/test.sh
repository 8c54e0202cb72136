#!/usr/bin/env bash
# The test stages, each with its time: unit (with the API conformance cases and the include check), sanitize, fuzz (2,000 inputs for
# each target), e2e. With no argument: all four. `conformance` and `soak` on request.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

configure() { [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null; }

unit() { ctest --test-dir build/release --output-on-failure -j "$jobs"; }

sanitize() {
  # Else what UBSan sees is a line in a log of a test that passed.
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  configure asan
  ninja -C build/asan -j "$jobs" --quiet unit_tests
  ctest --test-dir build/asan --output-on-failure -j "$jobs" -L room
  configure tsan
  ninja -C build/tsan -j "$jobs" --quiet net_test store_test runtime_test gateway_test cascade_test serving_test linearizability_test
  ctest --test-dir build/tsan --output-on-failure -j "$jobs" -R '^(net|store|runtime|gateway|cascade|serving|linearizability)$'
}

# About a minute of one core in all: every seed, and the way from there that a fixed seed takes.
fuzz() { FUZZ_RUNS=2000 bash scripts/fuzz.sh; }

conformance() { ctest --test-dir build/release --output-on-failure -R '^conformance$'; }

e2e() { VARDA_BIN="$PWD/build/release/bin" python3 -W ignore -m unittest discover -s tests/e2e -p '*_test.py' -v; }

# Simulated schedules from a seed that no run had before; a failing one prints how to see it again.
soak_sim() {
  local seconds=${VARDA_SOAK_SECONDS:-600} first=${VARDA_SIM_FIRST:-$((1000000 + $(date +%s) % 1000000 * 1000))}
  echo "simulated schedules from $first (VARDA_SIM_FIRST), for $seconds s"
  build/release/tests/sim/sim --short 1 --first "$first" --seconds "$seconds" &
  local short=$! failed=0
  build/release/tests/sim/sim --first "$first" --seconds "$seconds" || failed=1
  wait "$short" && [ "$failed" = 0 ]
}

# More than a million crash states, on two cores in about ten minutes, then a thousand SIGKILLs. VARDA_CRASH_SEED begins elsewhere,
# VARDA_SOAK_SECONDS ends each campaign early; both tell how far they came.
soak() {
  VARDA_CRASH_STATES=${VARDA_CRASH_STATES:-700000} build/release/src/store/store_test --gtest_filter='StoreCrash.*:StoreFaults.*' &
  local store=$!
  VARDA_CRASH_STATES=${VARDA_CRASH_STATES:-500000} build/release/src/artifact/artifact_test --gtest_filter='ArtifactCrash.*:ArtifactFaults.*'
  wait "$store"
  VARDA_SOAK=1 build/release/tests/linearizability/linearizability_test
  soak_sim
  VARDA_SOAK=1 e2e
}

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(unit sanitize fuzz e2e)
for stage in "${stages[@]}"; do
  begin=$SECONDS
  echo "--- $stage"
  "$stage"
  echo "--- $stage took $((SECONDS - begin)) s"
done
