#!/usr/bin/env bash
# Lines of each room that the tests run, as a table: the rooms' own tests, the simulator, the conformance and validation cases.
# End-to-end tests are not counted: they kill programs, which then write no profile.
#
#   scripts/coverage.sh [TABLE]     with the table of an earlier run: exit 1 where a room lost lines
#
# Needs llvm-14 (apt-get install --no-install-recommends llvm-14). The table stays in build/coverage/table.tsv.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/stages.sh
command -v llvm-cov-14 > /dev/null || { echo "llvm-cov-14 is missing: apt-get install --no-install-recommends llvm-14" >&2; exit 1; }
flags='-fprofile-instr-generate -fcoverage-mapping'
cmake -S . -B build/coverage -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER=clang++-14 -DVARDA_UNITY=ON \
  -DCMAKE_CXX_FLAGS="-O0 -g1 $flags" > /dev/null
ninja -C build/coverage -j "$jobs" --quiet unit_tests checks
rm -rf build/coverage/profiles
mkdir -p build/coverage/profiles
chmod 1777 build/coverage/profiles  # the tests run as another user than root
result=0
LLVM_PROFILE_FILE="$PWD/build/coverage/profiles/%p-%m.profraw" scripts/as_user.sh \
  ctest --test-dir build/coverage --output-on-failure -j $((jobs * 2)) -E 'cli_reference|manifests|include_direction' || result=$?
find build/coverage/profiles -name '*.profraw' -size +0 > build/coverage/profiles.txt
llvm-profdata-14 merge -sparse -f build/coverage/profiles.txt -o build/coverage/all.profdata
objects=()
while read -r program; do objects+=(-object "$program"); done < <(find build/coverage -type f -perm -u+x \( -name '*_test' -o -name sim -o -name conformance_apiserver -o -name 'varda-engine-*.so' \))
llvm-cov-14 export -summary-only -instr-profile build/coverage/all.profdata "${objects[@]}" > build/coverage/summary.json
python3 scripts/coverage.py build/coverage/summary.json build/coverage/table.tsv "$@"
exit "$result"  # a table of tests that failed is worth little
