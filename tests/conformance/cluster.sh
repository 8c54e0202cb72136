#!/bin/sh
# Plays Varda's main job against the cluster of a kubeconfig, with kubectl only. `cluster.sh --help`
# and README.md describe the options. Exit code: 0 every step passed, 1 a step failed, 3 no step
# failed but some were skipped, 130 interrupted.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for python in "${PYTHON:-python3}" python3 python; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 7))' 2>/dev/null; then
    exec "$python" -B "$here/cluster/main.py" "$@"
  fi
done
echo "cluster.sh: python3 (3.7 or newer) is needed and was not found; PYTHON=... names one" >&2
exit 2
