#!/bin/sh
# Puts ONNX Runtime 1.30 where build and plug-in look: .deps/onnxruntime/{include,lib}. `make deps`
# calls it.
#
#   scripts/onnxruntime.sh [--check|--force]    --check: exit 1 if it is missing or out of date
#
# Needs no root. The library comes from the npm package onnxruntime-node: its lock file names
# versions and hashes, and npm's configuration names the registry. The headers come from Debian 13's
# libonnxruntime-dev, from the mirror of this machine. Debian's own library is too old: before 1.30
# a model could read any file of the machine. Quick when everything is present.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
deps=$root/.deps/onnxruntime
stamp=$deps/.complete
recipe=$(cat "$root/scripts/onnxruntime.sh" "$root/scripts/npm/package-lock.json" | cksum)

say() { echo "onnxruntime: $*"; }
fail() { echo "onnxruntime: $*" >&2; exit 1; }

present() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$recipe" ]; }

if [ "${1:-}" = --check ]; then present; exit; fi
if [ "${1:-}" != --force ]; then
  if present; then say "present in .deps/onnxruntime"; exit 0; fi
fi
mkdir -p "$root/.deps"
exec 9> "$root/.deps/.onnxruntime.lock"
flock 9  # the second of two parallel builds finds the result of the first
if [ "${1:-}" != --force ] && present; then say "present in .deps/onnxruntime"; exit 0; fi
# All files are made in another directory and renamed at the end, so that an interruption leaves no
# partial result.
work=$(mktemp -d "$root/.deps/onnxruntime.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
out=$work/out
mkdir -p "$out/include" "$out/lib"

library_from_npm() {
  case $(uname -m) in
    x86_64) arch=x64 ;;
    aarch64) arch=arm64 ;;
    *) fail "no library for $(uname -m): put libonnxruntime.so.1 into $deps/lib, or set VARDA_ONNXRUNTIME when the server runs" ;;
  esac
  command -v npm > /dev/null || fail "npm is missing: apt-get install npm"
  say "library from the npm package onnxruntime-node"
  mkdir "$work/npm"
  cp "$root/scripts/npm/package.json" "$root/scripts/npm/package-lock.json" "$work/npm/"
  (cd "$work/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) > "$work/npm.log" 2>&1 || {
    cat "$work/npm.log" >&2
    fail "npm ci failed"
  }
  # The same bytes may have several names; one is enough.
  library=$(find "$work/npm/node_modules/onnxruntime-node/bin" -path "*/linux/$arch/libonnxruntime.so.1*" | sort | head -n 1)
  [ -n "$library" ] || fail "onnxruntime-node holds no libonnxruntime.so.1 for linux/$arch"
  cp "$library" "$out/lib/libonnxruntime.so.1"
}

headers_from_debian() {
  say "headers from Debian 13's libonnxruntime-dev"
  mirror=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(COMPONENT)' | grep -E '\|(bookworm|trixie)\|main$' | head -n 1 | cut -d '|' -f 1)
  [ -n "$mirror" ] || fail "apt knows no mirror of Debian 12 or 13 (bookworm, trixie)"
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -f "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring"
  apt=$work/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/download"
  printf 'deb [signed-by=%s] %s trixie main\n' "$keyring" "$mirror" > "$apt/sources.list"
  # A private package list: the machine's list is neither read nor changed.
  set -- -qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" \
    -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o APT::Get::List-Cleanup=0
  apt-get "$@" update > "$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; fail "no package list of trixie from $mirror"; }
  (cd "$apt/download" && apt-get "$@" download libonnxruntime-dev) >> "$work/apt.log" 2>&1 || {
    cat "$work/apt.log" >&2
    fail "libonnxruntime-dev could not be downloaded"
  }
  dpkg-deb -x "$apt/download/"libonnxruntime-dev_*.deb "$apt/tree"
  header=$(find "$apt/tree" -name onnxruntime_c_api.h | head -n 1)
  [ -n "$header" ] || fail "libonnxruntime-dev holds no onnxruntime_c_api.h"
  cp "$(dirname "$header")"/onnxruntime_*.h "$out/include/"
}

library_from_npm
headers_from_debian

echo "$recipe" > "$out/.complete"
rm -rf "$deps"
mv "$out" "$deps"
say "ready: $(ls "$deps/lib" | tr '\n' ' ')and $(ls "$deps/include" | wc -l) headers"
