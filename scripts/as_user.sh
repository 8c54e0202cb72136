#!/usr/bin/env bash
# Runs a command without root's power to ignore file permissions.
#
#   scripts/as_user.sh COMMAND...
#
# An ordinary user simply runs the command. Root becomes the user `nobody`, with a fresh HOME and
# TMPDIR which are removed afterwards. The folders build/*/Testing, where ctest writes, then belong
# to that user. That user cannot reach a checkout in a closed directory. There the command stays
# root but loses the capabilities that override file permissions.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: as_user.sh COMMAND..." >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || exec "$@"
checkout=$(cd "$(dirname "$0")/.." && pwd)

user=$(id -u nobody) group=$(id -g nobody)
become=(setpriv --reuid "$user" --regid "$group" --clear-groups --inh-caps=-all)
scratch=$(mktemp -d /tmp/varda-user.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tmp"

reaches() { "${become[@]}" test -x "$scratch" -a -w "$scratch/tmp" -a -x "$checkout" -a -r "$checkout/Makefile" -a -x "$PWD"; }

chown -R "$user:$group" "$scratch"
if reaches 2>/dev/null; then
  echo "as_user: running as nobody" >&2
  export USER=nobody LOGNAME=nobody
else
  echo "as_user: the user nobody cannot reach $checkout: running as root without the capabilities that override file permissions" >&2
  user=0 group=0
  chown -R 0:0 "$scratch"
  become=(setpriv --bounding-set=-dac_override,-dac_read_search,-fowner --inh-caps=-all)
fi
for build in "$checkout"/build/*/; do
  [ -f "$build/CTestTestfile.cmake" ] || continue
  mkdir -p "$build/Testing"
  chown -R "$user:$group" "$build/Testing"
done

# git refuses a checkout of another user unless the user's configuration names it.
printf '[safe]\n\tdirectory = %s\n' "$checkout" > "$scratch/.gitconfig"
unset "${!XDG_@}" KUBECONFIG
export HOME="$scratch" TMPDIR="$scratch/tmp" GIT_CONFIG_GLOBAL="$scratch/.gitconfig"
# setpriv keeps root's capabilities until it starts a program. env is that program and finds the
# command with the user's rights.
"${become[@]}" env "$@"
