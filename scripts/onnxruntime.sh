#!/bin/sh
# Puts ONNX Runtime 1.21 where the build and the plug-in look for it: .deps/onnxruntime/{include,lib}. Called by `make deps`.
#
#   scripts/onnxruntime.sh [--force]
#
# Needs no root on Debian 12: the library comes out of the npm package onnxruntime-node (whose lock file names versions and hashes,
# the registry is whatever npm is set to), the headers out of Debian 13's libonnxruntime-dev, fetched from the mirror this machine
# already uses. On Debian 13 and later the packaged library is used; it is installed if this runs as root.
# Quick when everything is there already.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
deps=$root/.deps/onnxruntime
stamp=$deps/.complete
recipe=$(cat "$root/scripts/onnxruntime.sh" "$root/scripts/npm/package-lock.json" | cksum)

say() { echo "onnxruntime: $*"; }
fail() { echo "onnxruntime: $*" >&2; exit 1; }

present() { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$recipe" ]; }

if [ "${1:-}" != --force ]; then
  if present; then say "present in .deps/onnxruntime"; exit 0; fi
fi
mkdir -p "$root/.deps"
exec 9> "$root/.deps/.onnxruntime.lock"
flock 9  # two builds of one checkout: the second finds what the first made
if [ "${1:-}" != --force ] && present; then say "present in .deps/onnxruntime"; exit 0; fi
# Everything is made beside and renamed at the end, so that a break in the middle leaves nothing half there.
work=$(mktemp -d "$root/.deps/onnxruntime.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
out=$work/out
mkdir -p "$out/include" "$out/lib"

find_packaged() { ls -d /usr/include/onnxruntime /usr/include/onnxruntime/core/session 2>/dev/null | while read -r d; do
  if [ -f "$d/onnxruntime_c_api.h" ]; then echo "$d"; break; fi; done; }

use_packaged() {
  cp "$1"/onnxruntime_*.h "$out/include/"
  for lib in /usr/lib/*/libonnxruntime.so.1*; do ln -s "$lib" "$out/lib/"; done
}

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
  # Two names of the same bytes are in there: one file and a link do.
  cp "$work/npm/node_modules/onnxruntime-node/bin/"napi-v*"/linux/$arch/libonnxruntime.so.1.21.0" "$out/lib/"
  ln -s libonnxruntime.so.1.21.0 "$out/lib/libonnxruntime.so.1"
}

headers_from_debian() {
  say "headers from Debian 13's libonnxruntime-dev"
  mirror=$(apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(COMPONENT)' | grep '|bookworm|main$' | head -n 1 | cut -d '|' -f 1)
  [ -n "$mirror" ] || fail "apt knows no mirror of Debian 12 (bookworm) to take trixie from"
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -f "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring"
  apt=$work/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/download"
  printf 'deb [signed-by=%s] %s trixie main\n' "$keyring" "$mirror" > "$apt/sources.list"
  # A package list of its own: the machine's is neither read nor written.
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

release=$(sed -n 's/^VERSION_ID="\{0,1\}\([0-9]*\).*/\1/p' /etc/os-release)
packaged=$(find_packaged)
if [ -z "$packaged" ] && [ "${release:-0}" -ge 13 ] && [ "$(id -u)" = 0 ]; then
  say "installing Debian's libonnxruntime-dev"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libonnxruntime-dev > /dev/null
  packaged=$(find_packaged)
fi
if [ -n "$packaged" ]; then
  say "using the packaged one in $packaged"
  use_packaged "$packaged"
elif [ "${release:-0}" -ge 13 ]; then
  fail "install it as root: apt-get install libonnxruntime-dev"
else
  library_from_npm
  headers_from_debian
fi

echo "$recipe" > "$out/.complete"
rm -rf "$deps"
mv "$out" "$deps"
say "ready: $(ls "$deps/lib" | tr '\n' ' ')and $(ls "$deps/include" | wc -l) headers"
