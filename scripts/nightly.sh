#!/usr/bin/env bash
# The campaigns that are too long for every commit. Prints a report, which stays with the logs in
# build/nightly/report.md.
#
#   scripts/nightly.sh [CAMPAIGN…]     default: all
#
# The run ends after NIGHTLY_HOURS (default 3). A part that runs then is killed and counts as
# failed, and so do campaigns that did not begin. Only builds and ctest runs may finish.
#
#   includes   the preset `dev`, file by file: each file includes what it uses
#   threads    TSan over all rooms
#   rooms      the rooms as in the release, at -O2 by g++
#   repeat     rooms with threads, 20 times
#   crash      more than a million crash states; VARDA_CRASH_SEED sets the first seed
#   sim        schedules from seeds unused before, at -O2, then some under ASan
#   histories  the linearizability checker at length
#   fuzz       every target, from its corpus, with the branches of the whole product in view
#   e2e        a thousand SIGKILLs and other long tests; then the kill tests under ASan
#
# NIGHTLY_SCALE=0.1 shortens every campaign of adjustable length by that factor. A failed campaign
# does not stop the others, but the script then fails. The report contains the seeds.
set -uo pipefail
cd "$(dirname "$0")/.."
source scripts/stages.sh
campaigns=("$@")
all=(includes threads rooms repeat crash sim histories fuzz e2e)
[ ${#campaigns[@]} -gt 0 ] || campaigns=("${all[@]}")
for name in "${campaigns[@]}"; do
  case " ${all[*]} " in
    *" $name "*) ;;
    *) echo "there is no campaign $name, only: ${all[*]}" >&2; exit 2 ;;
  esac
done

out=build/nightly
rm -rf "$out"
mkdir -p "$out"
stage_file=$out/stages.tsv
report=$out/report.md
failed=0
scale=${NIGHTLY_SCALE:-1}
seed=${NIGHTLY_SEED:-$(date +%s)}
deadline=$((SECONDS + $(awk -v h="${NIGHTLY_HOURS:-3}" 'BEGIN { print int(h * 3600) }')))

times() { awk -v n="$1" -v s="$scale" 'BEGIN { v = int(n * s); print v < 1 ? 1 : v }'; }

# within_time COMMAND…: kills the command and its children at the deadline.
within_time() {
  timeout --kill-after=60 $((deadline > SECONDS ? deadline - SECONDS : 1)) "$@"
}

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

# as_user PROGRAM…: without the rights of root.
as_user() { within_time scripts/as_user.sh "$@"; }

includes() {
  part includes.dev build_in dev -k 0 all
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
  part crash.store within_time env VARDA_CRASH_STATES="$(times 700000)" VARDA_CRASH_SEED="${VARDA_CRASH_SEED:-$seed}" \
    scripts/as_user.sh build/release/src/store/store_test '--gtest_filter=StoreCrash.*:StoreFaults.*'
  part crash.artifact within_time env VARDA_CRASH_STATES="$(times 500000)" VARDA_CRASH_SEED="${VARDA_CRASH_SEED:-$seed}" \
    scripts/as_user.sh build/release/src/artifact/artifact_test '--gtest_filter=ArtifactCrash.*:ArtifactFaults.*'
}

sim() {
  part sim.build build_in release sim sim_test
  part sim.full as_user build/release/tests/sim/sim --schedules "$(times 1000)" --first "$seed"
  part sim.short as_user build/release/tests/sim/sim --short "$(times 20000)" --first "$seed"
  part sim.rounds_build build_in release federated_test
  part sim.rounds within_time env VARDA_ROUND_SCHEDULES="$(times 100000)" VARDA_ROUND_SEED="$seed" \
    scripts/as_user.sh build/release/src/federated/federated_test '--gtest_filter=RoundSchedules.*'
  part sim.learning_build build_in release incremental_test
  part sim.learning within_time env VARDA_LEARNING_SCHEDULES="$(times 100000)" VARDA_LEARNING_SEED="$seed" \
    scripts/as_user.sh build/release/src/incremental/incremental_test '--gtest_filter=LearningSchedules.*'
  part sim.asan_build build_in asan sim sim_test
  part sim.asan as_user build/asan/tests/sim/sim --short "$(times 300)" --first "$seed"
  part sim.asan_test as_user build/asan/tests/sim/sim_test '--gtest_filter=Simulator.*'
}

histories() {
  part histories.build build_in release linearizability_test agent_test
  part histories.run within_time env VARDA_SOAK=1 VARDA_SEED="$seed" scripts/as_user.sh build/release/tests/linearizability/linearizability_test
  part histories.joint within_time env VARDA_TIER_SEEDS="$(times 200)" scripts/as_user.sh \
    build/release/src/agent/agent_test '--gtest_filter=TierCounterHistories.*'
}

fuzz() {
  FUZZ_SECONDS=$(times 60) part fuzz.run within_time bash scripts/fuzz.sh
}

e2e() {
  part e2e.build build_in release e2e_programs
  VARDA_SOAK=1 VARDA_SEED=$seed VARDA_KILLS=$(times 1000) VARDA_BIN="$PWD/build/release/bin" part e2e.run within_time python3 -W ignore tests/e2e/run.py --limit 3600
  part e2e.asan_build build_in asan e2e_programs
  VARDA_E2E_SLOWNESS=4 VARDA_KILLS=10 VARDA_BIN="$PWD/build/asan/bin" part e2e.asan within_time python3 -W ignore tests/e2e/run.py kill_test.py model_life_test.py
}

write_report() {
  {
    echo "# Nightly run of $(git rev-parse --short HEAD 2> /dev/null || echo 'no commit'), $(date -u +%F)"
    echo
    echo "$jobs processors, first seed $seed, scale $scale; campaigns: ${campaigns[*]}"
    echo
    [ ! -s "$stage_file" ] || python3 scripts/stages.py "$stage_file" $((SECONDS - begin)) plain
    if [ -f "$out/fuzz.run.log" ]; then
      printf '\n## Fuzz targets\n\n'
      grep -E '^fuzz_' "$out/fuzz.run.log" | sed 's/^/- /'
    fi
  } > "$report"
  cat "$report"
}
begin=$SECONDS
trap write_report EXIT
for name in "${campaigns[@]}"; do
  if [ "$SECONDS" -ge "$deadline" ]; then
    echo "$name: FAILED, the time is over"
    printf '%s\t0\tno time\n' "$name" >> "$stage_file"
    failed=1
  else
    "$name"
  fi
done
exit $failed
