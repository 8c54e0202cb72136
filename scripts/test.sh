#!/usr/bin/env bash
# The test stages of `make test`, in this order. Arguments select stages.
#
#   unit       the tests of every room and of the programs' parts, with ASan and UBSan
#   fuzz       every fuzz target: its corpus, then FUZZ_RUNS new inputs, with the same sanitizers
#   checks     the release build: simulator, crash campaigns, API conformance, validation,
#              generated files
#   threads    TSan over the rooms with many threads
#   e2e        real processes and clients
#
# `conformance` alone runs on request; scripts/nightly.sh has longer campaigns. Each stage reports
# the duration of its build and its run. build/stages.tsv keeps the lines, from which
# scripts/stages.py makes the table at the end of .ci/run.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/stages.sh

# Rooms that share memory between threads. The nightly run covers all of them.
threaded=(net store runtime gateway tiers serving linearizability)

unit() {
  stage unit.build build_in asan unit_tests
  stage unit.run run_tests asan -L room -j $((jobs * 2))
}

fuzz() {
  stage fuzz.build build_in asan fuzz_targets
  FUZZ_RUNS=${FUZZ_RUNS:-2000} stage fuzz.run bash scripts/fuzz.sh
}

checks() {
  stage checks.build build_in release checks
  stage checks.run run_tests release -LE room -j "$jobs"
}

threads() {
  stage threads.build build_in tsan "${threaded[@]/%/_test}"
  stage threads.run run_tests tsan -L room -R "^($(IFS='|'; echo "${threaded[*]}"))(_[0-9]+)?\$" -j $((jobs * 2))
}

conformance() {
  stage conformance.build build_in release checks
  stage conformance.run run_tests release -R '^conformance$'
}

e2e() {
  stage e2e.build build_in release e2e_programs
  VARDA_BIN="$PWD/build/release/bin" stage e2e.run python3 -W ignore tests/e2e/run.py
}

[ -n "${VARDA_CI:-}" ] || rm -f "$stage_file"
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(unit fuzz checks threads e2e)
for name in "${stages[@]}"; do "$name"; done
