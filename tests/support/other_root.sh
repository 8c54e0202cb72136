#!/usr/bin/env bash
# Runs a command that also sees the folders of EXTRA at the root: EXTRA/code as /code.
#
#   other_root.sh EXTRA COMMAND…
#
# The command runs in its own user and mount namespaces, as root of these. Network and processes are
# those of the machine.
set -euo pipefail
if [ "$1" != --inside ]; then
  exec unshare --user --map-root-user --mount bash "$0" --inside "$@"
fi
shift
extra=$1
shift
root=$(mktemp -d)
mount -t tmpfs tmpfs "$root"
for one in /*; do
  if [ -L "$one" ]; then
    cp -P "$one" "$root$one"
  elif [ -d "$one" ]; then
    mkdir "$root$one"
    mount --rbind "$one" "$root$one"
  fi
done
for one in "$extra"/*; do
  mkdir -p "$root/${one##*/}"
  mount --bind "$one" "$root/${one##*/}"
done
here=$PWD
mkdir "$root/.before"
cd "$root"
pivot_root . .before
umount -l /.before
cd "$here"
exec "$@"
