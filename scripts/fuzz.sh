#!/usr/bin/env bash
# Runs the libFuzzer program of every fuzz entry (or of the named ones), one after the other, on the seeds of the tree:
#   scripts/fuzz.sh SECONDS [entry ...]
# Builds them with clang under AddressSanitizer in build-fuzz. What is found stays there, in found/ENTRY, and ends the run
# with status 1; a fixed one belongs into tests/fuzz/seeds/ENTRY/found_NAME.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds="${1:?scripts/fuzz.sh SECONDS [entry ...]}"
shift
entries=("$@")
[ "${#entries[@]}" -gt 0 ] || entries=(tokenizer_json tiktoken_ranks gpt2_merges json_lines index_file)
build=build-fuzz
CXX="${MEGATRON_FUZZ_CXX:-clang++-14}" cmake -S . -B "$build" -G Ninja -DMEGATRON_FUZZ=ON -DMEGATRON_SANITIZE=address \
  -DMEGATRON_MPI=OFF >/dev/null || exit 1

export ASAN_OPTIONS="detect_stack_use_after_return=1:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/scripts/leaks.supp:print_suppressions=0:${LSAN_OPTIONS:-}"
[ -d /dev/shm ] && export TMPDIR=/dev/shm  # every input becomes a file
status=0
for entry in "${entries[@]}"; do
  cmake --build "$build" -j "${JOBS:-$(nproc)}" --target "fuzz_$entry" || exit 1
  mkdir -p "$build/corpus/$entry" "$build/found/$entry"
  log="$build/fuzz-$entry.log"
  "$build/tests/fuzz_$entry" -max_total_time="$seconds" -max_len=20000 -rss_limit_mb=2000 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$build/found/$entry/" "$build/corpus/$entry" "tests/fuzz/seeds/$entry" >"$log" 2>&1
  code=$?
  inputs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  echo "$entry: ${inputs:-0} inputs, $([ "$code" -eq 0 ] && echo "nothing found" || echo "found something, see $log")"
  [ "$code" -eq 0 ] || status=1
done
exit "$status"
