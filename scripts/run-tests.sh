#!/usr/bin/env bash
# Runs every test program of a build folder and counts: passed, failed, skipped (for want of reference data and others).
#   scripts/run-tests.sh [BUILD] [filter of program names]
# In a sanitizer build the tests listed in tests/left_out.txt do not run; it says why.
set -uo pipefail
cd "$(dirname "$0")/.."
build="${1:-build}"
filter="${2:-}"
logs="$build/test-logs"
mkdir -p "$logs"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

sanitizer="$(sed -n 's/^MEGATRON_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")"
if [ -n "$sanitizer" ]; then
  # Suppressed is only what third-party libraries do.
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS:-}"
  export LSAN_OPTIONS="suppressions=$PWD/scripts/leaks.supp:print_suppressions=0:${LSAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
  export TSAN_OPTIONS="suppressions=$PWD/scripts/races.supp:second_deadlock_stack=1:${TSAN_OPTIONS:-}"
fi

# Programs that start others under mpirun: Open MPI closes its modules at the end with memory of theirs still in use, and
# no suppression can name a module that is gone.
starts_mpirun() { [[ "$1" == mpi_test || "$1" == parity_test ]]; }

# The GoogleTest patterns of one program that this kind of build leaves out; says on stderr which and why.
left_out() {
  local kind program patterns reason all=""
  while IFS='|' read -r kind program patterns reason; do
    kind="${kind// /}" program="${program// /}" patterns="${patterns// /}"
    [[ "$kind" == "$sanitizer" && "$program" == "$1" ]] || continue
    echo "left out of $1: $patterns:$reason" >&2
    all+=":$patterns"
  done < <(grep -v '^#' tests/left_out.txt)
  echo "${all#:}"
}

passed=0 failed=0 skipped=0 skipped_data=0
failed_programs=()
started=$SECONDS
for program in "$build"/tests/*_test; do
  name="$(basename "$program")"
  [[ -n "$filter" && "$name" != *"$filter"* ]] && continue
  log="$logs/$name.log"
  begin=$SECONDS
  without=""
  [ -n "$sanitizer" ] && without="$(left_out "$name")"
  [ "$without" = "*" ] && continue
  leaks=1; starts_mpirun "$name" && leaks=0
  ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=$leaks" \
    timeout 900 "$program" --gtest_color=no ${without:+"--gtest_filter=-$without"} >"$log" 2>&1 </dev/null
  status=$?
  p=$(grep -c '^\[       OK \]' "$log")
  s=$(grep -c '^\[  SKIPPED \] .*(' "$log")
  f=$(grep -c '^\[  FAILED  \] .* ([0-9]* ms)' "$log")
  d=$(grep -c 'no reference data:' "$log")
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi  # crashed or timed out
  passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s)); skipped_data=$((skipped_data + d))
  printf '%-22s %5d passed %3d failed %3d skipped %5d s\n' "$name" "$p" "$f" "$s" $((SECONDS - begin))
  if [ "$f" -ne 0 ]; then
    failed_programs+=("$name")
    echo "--- $log (exit status $status), its failures:"
    grep -nE 'Failure$|FAILED|ERROR: |SUMMARY: |WARNING: ThreadSanitizer|runtime error|terminate called' "$log" | head -40
    tail -n 25 "$log"
    echo "---"
  fi
done
echo "tests took $((SECONDS - started)) s; skipped for want of reference data: $skipped_data"
echo "$passed passed, $failed failed, $skipped skipped"
if [ $((passed + failed)) -eq 0 ]; then
  echo "no test ran" >&2
  exit 1
fi
[ "$failed" -eq 0 ]
