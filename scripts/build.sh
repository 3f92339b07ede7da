#!/usr/bin/env bash
# Configures (when needed) and builds: scripts/build.sh FOLDER [cmake options]
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1"; shift
log="$folder/configure.log"
mkdir -p "$folder"
if ! cmake -S . -B "$folder" -G Ninja "$@" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
exec cmake --build "$folder" -j "${JOBS:-$(nproc)}"
