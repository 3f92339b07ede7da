#!/usr/bin/env bash
# Measures this build: bench/run.sh [BUILD]
# With TORCH_PYTHON (an interpreter that has torch) and TORCH_SCRIPT (a script that prints one JSON line with
# tokens_per_s_median), the two trainers alternate, and the ratio of the medians is printed. Where that line also has
# gemm_peak_gflops, the best peaks of both follow: ours below 0.97 of PyTorch's makes the comparison void.
set -euo pipefail
cd "$(dirname "$0")/.."
megatron="${1:-build}/bin/megatron"
threads="${THREADS:-$(nproc)}"
rounds="${ROUNDS:-3}"
presets="${PRESETS:-tiny gpt2-124m gpt2-124m-s1024}"

field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -1; }
best() { sort -g | tail -1; }
median() { sort -g | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

for preset in $presets; do
  ours=() theirs=() our_peaks=() their_peaks=()
  steps=8; [ "$preset" = tiny ] && steps=40
  for ((round = 0; round < rounds; round++)); do
    line="$("$megatron" bench step --preset "$preset" --threads-per-rank "$threads" --steps "$steps" --json)"
    echo "$line"
    ours+=("$(echo "$line" | field tokens_per_second)")
    our_peaks+=("$(echo "$line" | field matmul_peak_flops_per_second)")
    if [ -n "${TORCH_PYTHON:-}" ] && [ -n "${TORCH_SCRIPT:-}" ]; then
      # That variable may hold OpenBLAS, which PyTorch may use, to the kernels of another processor.
      line="$(env -u OPENBLAS_CORETYPE "$TORCH_PYTHON" "$TORCH_SCRIPT" --preset "$preset" --threads "$threads" --steps "$steps")"
      echo "$line"
      theirs+=("$(echo "$line" | field tokens_per_s_median)")
      peak="$(echo "$line" | field gemm_peak_gflops)"
      [ -z "$peak" ] || their_peaks+=("$peak")
    fi
  done
  ours_median="$(printf '%s\n' "${ours[@]}" | median)"
  if [ ${#theirs[@]} -gt 0 ]; then
    printf '%s\n' "${theirs[@]}" | median | awk -v o="$ours_median" -v p="$preset" \
      '{printf "%s: %.0f tokens/s, PyTorch %.0f, ratio %.2f\n", p, o, $1, o / $1}'
  else
    echo "$preset: $ours_median tokens/s"
  fi
  if [ ${#their_peaks[@]} -gt 0 ]; then
    printf '%s\n' "${their_peaks[@]}" | best | awk -v o="$(printf '%s\n' "${our_peaks[@]}" | best)" -v p="$preset" \
      '{o /= 1e9; printf "%s: peak %.0f GFLOP/s, PyTorch %.0f, ratio %.2f%s\n", p, o, $1, o / $1,
        o < 0.97 * $1 ? " (void: the two did not have the same machine)" : ""}'
  fi
done
