#!/usr/bin/env bash
# Compares every #include under src/ with floors.txt, and keeps third-party headers where they belong.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0
complain() { echo "$*"; bad=1; }

declare -A allowed
seen=" "
while IFS= read -r line; do
  [[ "$line" =~ ^([a-z_]+):(.*)$ ]] || continue
  floor="${BASH_REMATCH[1]}"
  allowed[$floor]=" $floor ${BASH_REMATCH[2]} "
  for dep in ${BASH_REMATCH[2]}; do
    [[ "$seen" == *" $dep "* ]] || complain "floors.txt: $floor lists $dep, which does not stand above it"
  done
  seen+="$floor "
done < floors.txt

while IFS=: read -r file line text; do
  folder="${file#src/}"; folder="${folder%%/*}"
  [[ -n "${allowed[$folder]:-}" ]] || { complain "$file: folder $folder is not in floors.txt"; continue; }
  if [[ "$text" =~ \#include\ *\"([a-z_]+)/ ]]; then
    target="${BASH_REMATCH[1]}"
    [[ "${allowed[$folder]}" == *" $target "* ]] || complain "$file:$line: $folder may not include $target"
  fi
  case "$text" in
    *mpi.h*) [[ "$file" == src/comm/mpi/*.cc ]] || complain "$file:$line: mpi.h belongs into src/comm/mpi/*.cc" ;;
    *hwy/*) [[ "$file" == src/kernels/cpu/* ]] || complain "$file:$line: Highway belongs into src/kernels/cpu" ;;
    *immintrin.h*) [[ "$file" == src/kernels/cpu/* || "$file" == src/base/thread_pool.cc || "$file" == src/comm/parker.h ]] ||
                     complain "$file:$line: intrinsics belong into src/kernels/cpu" ;;
  esac
  if [[ "$file" == *.h ]]; then
    case "$text" in
      *nlohmann*|*yaml-cpp*|*xxhash*|*spdlog*|*fmt/*|*simdjson*) complain "$file:$line: a public header includes a third-party header" ;;
    esac
  fi
done < <(grep -rnE '^ *# *include' src --include='*.h' --include='*.cc' --include='*.inl' || true)
[ "$bad" -eq 0 ] && echo "folder borders are as floors.txt says"
exit "$bad"
