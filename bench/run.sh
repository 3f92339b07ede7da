#!/usr/bin/env bash
# Measures this build: bench/run.sh [BUILD]
# With TORCH_PYTHON (an interpreter that has torch) and TORCH_SCRIPT (a script that prints one JSON line with
# tokens_per_s_median and gemm_peak_gflops), the two trainers alternate, and the ratio of the medians is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
megatron="${1:-build}/bin/megatron"
threads="${THREADS:-$(nproc)}"
rounds="${ROUNDS:-3}"
presets="${PRESETS:-tiny gpt2-124m gpt2-124m-s1024}"

field() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" | head -1; }
median() { sort -g | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

for preset in $presets; do
  ours=() theirs=()
  steps=8; [ "$preset" = tiny ] && steps=40
  for ((round = 0; round < rounds; round++)); do
    line="$("$megatron" bench step --preset "$preset" --threads-per-rank "$threads" --steps "$steps" --json)"
    echo "$line"
    ours+=("$(echo "$line" | field tokens_per_second)")
    if [ -n "${TORCH_PYTHON:-}" ] && [ -n "${TORCH_SCRIPT:-}" ]; then
      line="$(env -u OPENBLAS_CORETYPE "$TORCH_PYTHON" "$TORCH_SCRIPT" --preset "$preset" --threads "$threads" --steps "$steps")"
      echo "$line"
      theirs+=("$(echo "$line" | field tokens_per_s_median)")
    fi
  done
  ours_median="$(printf '%s\n' "${ours[@]}" | median)"
  if [ ${#theirs[@]} -gt 0 ]; then
    printf '%s\n' "${theirs[@]}" | median | awk -v o="$ours_median" -v p="$preset" \
      '{printf "%s: %.0f tokens/s, PyTorch %.0f, ratio %.2f\n", p, o, $1, o / $1}'
  else
    echo "$preset: $ours_median tokens/s"
  fi
done
