#!/usr/bin/env bash
# Prints the lines of each room that the tests run, as a table. The tests are the rooms' own tests,
# a few schedules of the simulator, the conformance and validation cases. Long campaigns are left
# out: they are slow without optimisation, and repeat the same lines. End-to-end tests are not counted: they kill
# programs, and a killed program writes no profile.
#
#   scripts/coverage.sh [TABLE]     with an earlier table: exit 1 if a room lost lines
#
# The table stays in build/coverage/table.tsv.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/stages.sh
cmake -S . -B build/coverage -G Ninja -DCMAKE_BUILD_TYPE=None -DVARDA_UNITY=ON -DCMAKE_CXX_FLAGS="-O0 --coverage" > /dev/null
ninja -C build/coverage -j "$jobs" --quiet unit_tests checks
counts=$PWD/build/coverage/counts
rm -rf "$counts"
mkdir -m 1777 "$counts"  # the tests run as another user than root
result=0
GCOV_PREFIX=$counts scripts/as_user.sh \
  ctest --test-dir build/coverage --output-on-failure -j $((jobs * 2)) -E 'cli_reference|manifests|include_direction|prose|^sim(_short)?(_moving)?$|_crash$|_simulator$' || result=$?
for run in "--schedules 8" "--short 400"; do
  GCOV_PREFIX=$counts scripts/as_user.sh build/coverage/tests/sim/sim $run || result=$?
done
# gcov needs the counts of a source beside the notes of the source.
(cd "$counts/$PWD" && find . -name '*.gcda') | while read -r file; do cp "$counts/$PWD/$file" "$file"; done
find build/coverage -name '*.gcda' -print0 | xargs -0 gcov --json-format --stdout 2> /dev/null |
  python3 scripts/coverage.py build/coverage/table.tsv "$@"
exit "$result"  # the table is unreliable after failed tests
