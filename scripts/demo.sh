#!/usr/bin/env bash
# Learns a BPE vocabulary from the King James text and trains a small Llama-style model on it: TP=2 × PP=2, stopped
# half-way, resumed at TP=1 × PP=2 × DP=2, then three samples. Prints the validation loss in bits per byte beside that
# of an order-3 Markov model.
set -euo pipefail
cd "$(dirname "$0")/.."
build="${1:-build}"
megatron="$build/bin/megatron"
run=demo-run
rm -rf "$run"
mkdir -p "$run"

echo "== the text (Debian packages bible-kjv and bible-kjv-text, public domain)"
bible -f gen1:1-rev22:21 </dev/null >"$run/kjv.txt"
ls -l "$run/kjv.txt" | awk '{print $5 " bytes"}'

echo "== a vocabulary of 1024 tokens, learned from the first 95 % of its lines; the rest is held out"
lines=$(wc -l <"$run/kjv.txt")
head -n $((lines * 95 / 100)) "$run/kjv.txt" >"$run/kjv-train.txt"
"$megatron" train-tokenizer --input "$run/kjv-train.txt" --vocab-size 1024 --special-tokens '<|endoftext|>' --output "$run/tokenizer"

echo "== preparing the text: one document per line"
tokenizer=(--tokenizer-type HuggingFaceTokenizer --tokenizer-model "$run/tokenizer")
"$megatron" preprocess --input "$run/kjv.txt" --output-prefix "$run/kjv" "${tokenizer[@]}" --append-eod --workers 2

common=(--config configs/demo.yaml "${tokenizer[@]}" --data-path "$run/kjv_text_document" --save "$run/checkpoints"
        --log-json "$run/log.jsonl")
half=$(awk '$1 == "save_interval:" {print $2}' configs/demo.yaml)

echo "== training, first half: tensor parallel 2 with sequence parallelism, pipeline parallel 2 (four ranks)"
"$megatron" train "${common[@]}" --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 \
  --exit-interval "$half"

echo "== training, second half: the same checkpoint at pipeline parallel 2, data parallel 2"
"$megatron" train "${common[@]}" --load "$run/checkpoints" --pipeline-model-parallel-size 2 --world-size 4

echo "== three samples"
for seed in 1 2 3; do
  "$megatron" generate --load "$run/checkpoints" --prompt "And God said," --num-tokens 64 --temperature 0.7 --seed "$seed"
  echo
done

exec "$build/bin/bits_per_byte" --text "$run/kjv.txt" --data "$run/kjv_text_document" --log "$run/log.jsonl" --held-out 0.05
