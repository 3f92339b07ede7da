#!/usr/bin/env bash
# What a change must pass besides the tests: folder borders, format, file sizes, clang-tidy, a warning-free clang build.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
scripts/check-floors.sh || status=1

mapfile -d '' sources < <(git ls-files -z '*.cc' '*.h')
if ! clang-format-14 --dry-run --Werror "${sources[@]}" >/tmp/megatron-format.$$ 2>&1; then
  grep -E 'warning|error' /tmp/megatron-format.$$ | cut -d: -f1 | sort | uniq -c | head -40
  echo "format: run make format"
  status=1
else
  echo "format is clean"
fi
rm -f /tmp/megatron-format.$$

long=$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 800 {print "  " $2 ": " $1 " lines"}')
if [ -n "$long" ]; then
  echo "files over 800 lines:"; echo "$long"
  status=1
fi

# Without optimization: clang's warnings come from its front end. -Wreserved-identifier is clang-tidy's check, much faster.
mkdir -p build-clang
if cmake -S . -B build-clang -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Debug \
     -DCMAKE_CXX_FLAGS=-Wreserved-identifier -DMEGATRON_TESTS=ON >build-clang/configure.log 2>&1 &&
   cmake --build build-clang -j "$(nproc)" >build-clang/build.log 2>&1; then
  echo "clang 14 builds without warnings"
else
  grep -E 'error|warning' build-clang/build.log | head -20
  echo "clang build failed: build-clang/build.log"
  status=1
fi

if git ls-files -z 'src/*.cc' ':!src/kernels/cpu/*' | xargs -0 -P "$(nproc)" -n 4 clang-tidy-14 --quiet -p build-clang \
     >build-clang/tidy.log 2>/dev/null; then
  echo "clang-tidy is clean"
else
  grep -E '(warning|error):' build-clang/tidy.log | sort -u | head -40
  echo "clang-tidy: build-clang/tidy.log"
  status=1
fi
exit "$status"
