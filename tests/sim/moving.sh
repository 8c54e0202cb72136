#!/usr/bin/env bash
# moving.sh SIM [ARGUMENT...]: runs the simulator with seeds of the commit under test, so that every
# commit explores other schedules. VARDA_SIM_SEED, any text, replaces the commit. Without git and
# without that variable the seeds are fixed.
set -euo pipefail
seed=${VARDA_SIM_SEED:-$(git -C "$(dirname "$0")" rev-parse HEAD 2>/dev/null || true)}
if [ -z "$seed" ]; then
  echo "no commit found and VARDA_SIM_SEED is not set: fixed seeds"
  exec "$@" --first 100001
fi
exec "$@" --seed-from "$seed"
