#!/usr/bin/env bash
# Tokenizers beside PyPI's tiktoken and tokenizers: bench/tokenizers.sh ASSETS NAME=TEXT [NAME=TEXT …]
# ASSETS is a folder with any of gpt2-encoder.json + gpt2-vocab.bpe, cl100k_base.tiktoken, o200k_base.tiktoken,
# llama3-tokenizer.json, qwen3-tokenizer.json. MEGATRON (build/bin/megatron), PYTHON (one that has both packages; unset: a
# virtual environment is made outside the tree), MEGABYTES (100).
set -euo pipefail
cd "$(dirname "$0")/.."
assets="${1:?usage: bench/tokenizers.sh ASSETS NAME=TEXT [NAME=TEXT …]}"
shift
if [ -z "${PYTHON:-}" ]; then
  venv="${TMPDIR:-/tmp}/megatron-bench-tokenizers"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q tiktoken tokenizers
  PYTHON="$venv/bin/python"
fi
options=()
for text in "$@"; do options+=(--text "$text"); done
if [ -f "$assets/gpt2-encoder.json" ]; then options+=(--gpt2 "$assets/gpt2-encoder.json" "$assets/gpt2-vocab.bpe"); fi
for name in cl100k o200k; do
  file="$assets/${name}_base.tiktoken"
  if [ -f "$file" ]; then options+=(--tiktoken "$name=$file"); fi
done
for name in llama3 qwen3; do
  file="$assets/$name-tokenizer.json"
  if [ -f "$file" ]; then options+=(--huggingface "$name=$file"); fi
done
"$PYTHON" bench/tokenizer_speed.py --megatron "${MEGATRON:-build/bin/megatron}" --megabytes "${MEGABYTES:-100}" "${options[@]}"
