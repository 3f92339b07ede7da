#!/usr/bin/env bash
# GPT-2 124M, 4×256 tokens, beside llm.c on the CPU: bench/llmc.sh FOLDER_OF_LLM.C [BUILD]
# FOLDER is a checkout of llm.c; nothing in it is changed. Weights and tokens are random, written in its file formats
# (the rate does not depend on them), its sequence length is set to 256, and both programs use the same threads in turn.
# THREADS (all cores), ROUNDS (2).
set -euo pipefail
cd "$(dirname "$0")/.."
source="${1:?usage: bench/llmc.sh FOLDER_OF_LLM.C [BUILD]}"
megatron="$PWD/${2:-build}/bin/megatron"
threads="${THREADS:-$(nproc)}"
[ -f "$source/train_gpt2.c" ] || { echo "$source: no train_gpt2.c there" >&2; exit 1; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

sed -E 's/int T = 64;.*/int T = 256;/; s/step <= 40/step <= 8/' "$source/train_gpt2.c" >"$work/train_gpt2.c"
grep -q 'int T = 256;' "$work/train_gpt2.c" || { echo "$source/train_gpt2.c: the sequence length is not where it was" >&2; exit 1; }
cp -r "$source/llmc" "$work/llmc"
gcc -Ofast -fno-finite-math-only -march=native -fopenmp -DOMP -o "$work/train_gpt2" "$work/train_gpt2.c" -lm

mkdir -p "$work/dev/data/tinyshakespeare"
python3 - "$work" <<'PYTHON'
import array, random, sys
work = sys.argv[1]
layers, width, positions, vocab, padded = 12, 768, 1024, 50257, 50304
header = array.array("i", [20240326, 3, positions, vocab, layers, 12, width, padded] + [0] * 248)
noise = array.array("f", (random.Random(1).gauss(0, 0.02) for _ in range(1 << 16)))

def weights(file, count):
    while count > 0:
        noise[: min(count, len(noise))].tofile(file)
        count -= len(noise)

def constant(file, count, value):
    array.array("f", [value] * count).tofile(file)

with open(work + "/gpt2_124M.bin", "wb") as file:
    header.tofile(file)
    weights(file, padded * width)
    weights(file, positions * width)
    constant(file, layers * width, 1.0)              # first norm
    constant(file, layers * width, 0.0)
    weights(file, layers * 3 * width * width)        # query, key, value
    constant(file, layers * 3 * width, 0.0)
    weights(file, layers * width * width)            # attention projection
    constant(file, layers * width, 0.0)
    constant(file, layers * width, 1.0)              # second norm
    constant(file, layers * width, 0.0)
    weights(file, layers * 4 * width * width)        # MLP
    constant(file, layers * 4 * width, 0.0)
    weights(file, layers * width * 4 * width)
    constant(file, layers * width, 0.0)
    constant(file, width, 1.0)                       # last norm
    constant(file, width, 0.0)
for name in "train", "val":
    tokens = array.array("H", (random.Random(2).randrange(vocab) for _ in range(40000)))
    with open(f"{work}/dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", "wb") as file:
        array.array("i", [20240520, 1, len(tokens)] + [0] * 253).tofile(file)
        tokens.tofile(file)
PYTHON

median() { sort -g | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
ours=() theirs=()
for ((round = 0; round < ${ROUNDS:-2}; round++)); do
  line="$("$megatron" bench step --preset gpt2-124m --threads-per-rank "$threads" --steps 8 --quick-peak --json)"
  ours+=("$(sed -n 's/.*"tokens_per_second":\([0-9.eE+-]*\).*/\1/p' <<<"$line")")
  mapfile -t took < <(cd "$work" && OMP_NUM_THREADS="$threads" timeout 900 ./train_gpt2 2>/dev/null |
    sed -n 's/^step [1-9].*took \([0-9.]*\) ms.*/\1/p')
  [ "${#took[@]}" -gt 0 ] || { echo "train_gpt2 of llm.c printed no step" >&2; exit 1; }
  theirs+=("$(printf '%s\n' "${took[@]}" | median | awk '{print 1024000 / $1}')")
  echo "megatron.cpp ${ours[-1]} tokens/s, llm.c ${theirs[-1]} tokens/s"
done
awk -v a="$(printf '%s\n' "${ours[@]}" | median)" -v b="$(printf '%s\n' "${theirs[@]}" | median)" \
  'BEGIN {printf "gpt2-124m, medians: %.0f and %.0f tokens/s, ratio %.2f\n", a, b, a / b}'
