#!/usr/bin/env bash
# The campaigns that are too long for every commit. Prints a report, which stays in build/nightly/report.md with the logs beside it.
#
#   scripts/nightly.sh [CAMPAIGN…]     all of them by default, three hours at most
#
#   includes   the preset `dev`, file by file: each file includes what it uses, with and without optimisation
#   threads    TSan over all rooms
#   rooms      the rooms once more as the release has them, at -O2 by g++
#   repeat     rooms with threads, 20 times
#   crash      more than a million crash states; VARDA_CRASH_SEED begins elsewhere
#   sim        schedules from seeds that no run had before, at -O2, then some under ASan
#   histories  the linearizability checker at length
#   fuzz       every target, going on from its corpus, with the branches of the whole product in view
#   e2e        a thousand SIGKILLs and whatever else the tests keep for it; then the kill tests with the programs under ASan
#
# NIGHTLY_SCALE=0.1 makes every campaign that has a length of its own that much shorter. A campaign that fails does not keep the others from
# running; the whole fails. Seeds are in the report.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/stages.sh
out=build/nightly
rm -rf "$out"
mkdir -p "$out"
stage_file=$out/stages.tsv
report=$out/report.md
failed=0
scale=${NIGHTLY_SCALE:-1}
seed=${NIGHTLY_SEED:-$(date +%s)}

times() { awk -v n="$1" -v s="$scale" 'BEGIN { v = int(n * s); print v < 1 ? 1 : v }'; }

# part NAME COMMAND…: one part of a campaign, with its log.
part() {
  local name=$1
  shift
  if stage "$name" "$@" > "$out/$name.log" 2>&1; then
    echo "$name: ok"
  else
    echo "$name: FAILED, the last lines of $out/$name.log:"
    tail -n 40 "$out/$name.log"
    failed=1
  fi
}

includes() {
  part includes.dev build_in dev all
}

threads() {
  part threads.build build_in tsan unit_tests
  part threads.run run_tests tsan -L room -j $((jobs * 2))
}

rooms() {
  part rooms.build build_in release unit_tests
  part rooms.run run_tests release -L room -j $((jobs * 2))
}

repeat() {
  part repeat.build build_in release runtime_test net_test store_test gateway_test agent_test
  part repeat.run run_tests release -R '^(runtime|net|store|gateway|agent)(_[0-9]+)?$' --repeat "until-fail:$(times 20)" -j $((jobs * 2))
}

crash() {
  part crash.build build_in release store_test artifact_test
  part crash.store env VARDA_CRASH_STATES="$(times 700000)" VARDA_CRASH_SEED="${VARDA_CRASH_SEED:-$seed}" \
    build/release/src/store/store_test '--gtest_filter=StoreCrash.*:StoreFaults.*'
  part crash.artifact env VARDA_CRASH_STATES="$(times 500000)" VARDA_CRASH_SEED="${VARDA_CRASH_SEED:-$seed}" \
    build/release/src/artifact/artifact_test '--gtest_filter=ArtifactCrash.*:ArtifactFaults.*'
}

sim() {
  part sim.build build_in release sim sim_test
  part sim.full build/release/tests/sim/sim --schedules "$(times 1000)" --first "$seed"
  part sim.short build/release/tests/sim/sim --short "$(times 20000)" --first "$seed"
  part sim.asan_build build_in asan sim sim_test
  part sim.asan build/asan/tests/sim/sim --short "$(times 300)" --first "$seed"
  part sim.asan_test build/asan/tests/sim/sim_test
}

histories() {
  part histories.build build_in release linearizability_test
  part histories.run env VARDA_SOAK=1 build/release/tests/linearizability/linearizability_test
}

fuzz() {
  FUZZ_SECONDS=$(times 60) part fuzz.run bash scripts/fuzz.sh
}

e2e() {
  part e2e.build build_in release e2e_programs
  VARDA_SOAK=1 VARDA_KILLS=$(times 1000) VARDA_BIN="$PWD/build/release/bin" part e2e.run python3 -W ignore tests/e2e/run.py --limit 3600
  part e2e.asan_build build_in asan e2e_programs
  VARDA_E2E_SLOWNESS=4 VARDA_KILLS=10 VARDA_BIN="$PWD/build/asan/bin" part e2e.asan python3 -W ignore tests/e2e/run.py kill_test.py model_life_test.py
}

campaigns=("$@")
[ ${#campaigns[@]} -gt 0 ] || campaigns=(includes threads rooms repeat crash sim histories fuzz e2e)
begin=$SECONDS
for name in "${campaigns[@]}"; do "$name"; done

{
  echo "# Nightly run of $(git rev-parse --short HEAD 2> /dev/null || echo 'no commit'), $(date -u +%F)"
  echo
  echo "$jobs processors, first seed $seed, scale $scale"
  echo
  python3 scripts/stages.py "$stage_file" $((SECONDS - begin))
  echo
  if [ -f "$out/fuzz.run.log" ]; then
    echo '## Fuzz targets'
    echo
    grep -E '^fuzz_' "$out/fuzz.run.log" | sed 's/^/- /'
  fi
} > "$report"
cat "$report"
exit $failed
