#!/usr/bin/env bash
# Tokenizers beside PyPI's tiktoken, tokenizers and sentencepiece: bench/tokenizers.sh ASSETS NAME=TEXT [NAME=TEXT …]
# ASSETS is a folder with any of gpt2-encoder.json + gpt2-vocab.bpe, cl100k_base.tiktoken, o200k_base.tiktoken,
# *-tokenizer.json, *.model. MEGATRON (build/bin/megatron), PYTHON (one that has the packages; unset: a virtual
# environment is made outside the tree), MEGABYTES (100) that this program encodes in a turn, OTHER_MEGABYTES (10) that
# each library does, ROUNDS (3) of turns, whose medians are printed, ONLY (names of tokenizers; all).
set -euo pipefail
cd "$(dirname "$0")/.."
assets="${1:?usage: bench/tokenizers.sh ASSETS NAME=TEXT [NAME=TEXT …]}"
shift
if [ -z "${PYTHON:-}" ]; then
  venv="${TMPDIR:-/tmp}/megatron-bench-tokenizers"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q tiktoken tokenizers sentencepiece
  PYTHON="$venv/bin/python"
fi
options=()
for text in "$@"; do options+=(--text "$text"); done
if [ -f "$assets/gpt2-encoder.json" ]; then options+=(--gpt2 "$assets/gpt2-encoder.json" "$assets/gpt2-vocab.bpe"); fi
for name in cl100k o200k; do
  file="$assets/${name}_base.tiktoken"
  if [ -f "$file" ]; then options+=(--tiktoken "$name=$file"); fi
done
for file in "$assets"/*-tokenizer.json; do
  if [ -f "$file" ]; then options+=(--huggingface "$(basename "$file" -tokenizer.json)=$file"); fi
done
for file in "$assets"/*.model; do
  if [ -f "$file" ]; then options+=(--sentencepiece "$(basename "$file")=$file"); fi
done
for name in ${ONLY:-}; do options+=(--only "$name"); done
"$PYTHON" bench/tokenizer_speed.py --megatron "${MEGATRON:-build/bin/megatron}" --megabytes "${MEGABYTES:-100}" \
  --other-megabytes "${OTHER_MEGABYTES:-10}" --rounds "${ROUNDS:-3}" "${options[@]}"
