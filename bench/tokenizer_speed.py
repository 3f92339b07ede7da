"""Speed of tokenizers, one thread against one thread, ids compared in the same run; bench/tokenizers.sh calls it.

Texts are cut at line ends into documents of 1 KiB and more, which are repeated up to --megabytes. This program starts
cold in every turn and encodes each document anew; tiktoken by encode_ordinary, tokenizers by encode without its
post-processor, sentencepiece by encode.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def documents_of(path):
    documents, text = [], ""
    with open(path, encoding="utf-8", newline="") as file:
        for line in file:
            text += line
            if len(text.encode()) >= 1024:
                documents.append(text)
                text = ""
    return documents + ([text] if text else [])


def tiktoken_encode(arguments, name):
    import base64
    import tiktoken

    if name == "gpt2":
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks

        ranks = data_gym_to_mergeable_bpe_ranks(
            vocab_bpe_file=os.path.abspath(arguments.gpt2[1]), encoder_json_file=os.path.abspath(arguments.gpt2[0]))
        pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    else:
        with open(dict(arguments.tiktoken)[name], "rb") as file:
            ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in file if line.strip())}
        tail = r"\s*[\r\n]+|\s+(?!\S)|\s+"
        suffix = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
        pattern = {
            "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
                      r"\s*[\r\n]|\s+(?!\S)|\s",
            "o200k": r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + "+" + suffix + r"|[^\r\n\p{L}\p{N}]?" + upper + "+" +
                     lower + "*" + suffix + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + tail,
        }[name]
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary


def tokenizers_encode(arguments, name):
    import tokenizers

    if name == "gpt2":
        tokenizer = tokenizers.ByteLevelBPETokenizer(arguments.gpt2[0], arguments.gpt2[1])
    else:
        tokenizer = tokenizers.Tokenizer.from_file(dict(arguments.huggingface)[name])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentencepiece_encode(arguments, name):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=dict(arguments.sentencepiece)[name]).encode


def libraries_of(arguments, name):
    """Those that know a tokenizer, by name: functions from text to ids."""
    if name == "gpt2":
        return {"tiktoken": tiktoken_encode(arguments, name), "tokenizers": tokenizers_encode(arguments, name)}
    if name in dict(arguments.tiktoken):
        return {"tiktoken": tiktoken_encode(arguments, name)}
    if name in dict(arguments.sentencepiece):
        return {"sentencepiece": sentencepiece_encode(arguments, name)}
    return {"tokenizers": tokenizers_encode(arguments, name)}


def own_options(arguments, name):
    if name == "gpt2":
        return ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", arguments.gpt2[0], "--merge-file", arguments.gpt2[1]]
    if name in dict(arguments.tiktoken):
        return ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", dict(arguments.tiktoken)[name],
                "--tiktoken-pattern", name]
    if name in dict(arguments.sentencepiece):
        return ["--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", dict(arguments.sentencepiece)[name]]
    # The library takes markers in documents for what they mean.
    return ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", dict(arguments.huggingface)[name], "--parse-special"]


def own_ids(arguments, name, lines):
    command = [arguments.megatron, "tokenize", *own_options(arguments, name), "--input", lines]
    return [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]


def own_speed(arguments, name, lines):
    command = [arguments.megatron, "bench", "data", *own_options(arguments, name), "--input", lines, "--threads", "1",
               "--megabytes", str(arguments.megabytes), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["megabytes_per_second"]


def speed(encode, documents, megabytes):
    once = sum(len(d.encode()) for d in documents)
    rounds = max(1, megabytes * 1_000_000 // once)
    begin = time.perf_counter()
    for _ in range(rounds):
        for document in documents:
            encode(document)
    return rounds * once / 1e6 / (time.perf_counter() - begin)


def compare(arguments, text, name, documents, lines):
    """One row: the medians of alternating turns, behind a comparison of all ids."""
    libraries = libraries_of(arguments, name)
    ours = own_ids(arguments, name, lines)
    note = ""
    for library, encode in libraries.items():
        different = sum(encode(d) != ids for d, ids in zip(documents, ours, strict=True))
        # Versions of sentencepiece round sums of scores in different ways; this program follows the one it is built with.
        if different and library != "sentencepiece":
            raise SystemExit(f"{text}, {name}: the ids of {different} documents differ from those of {library}")
        if different:
            note = f" ({different} of {len(documents)} documents differ)"
    rates = {library: [] for library in ["megatron", *libraries]}
    for _ in range(arguments.rounds):
        rates["megatron"].append(own_speed(arguments, name, lines))
        for library, encode in libraries.items():
            rates[library].append(speed(encode, documents, arguments.other_megabytes))
    medians = {library: statistics.median(values) for library, values in rates.items()}
    own = medians.pop("megatron")
    others = ", ".join(f"{library} {rate:.1f}" for library, rate in medians.items())
    ratios = ", ".join(f"{own / rate:.1f}" for rate in medians.values())
    print(f"| {text} | {name} | {own:.0f} | {others} | {ratios}{note} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    named = lambda text: tuple(text.split("=", 1))
    parser.add_argument("--megatron", required=True)
    parser.add_argument("--text", type=named, action="append", required=True, help="NAME=FILE")
    parser.add_argument("--gpt2", nargs=2, metavar=("VOCAB", "MERGES"))
    parser.add_argument("--tiktoken", type=named, action="append", default=[], help="cl100k=FILE or o200k=FILE")
    parser.add_argument("--huggingface", type=named, action="append", default=[], help="NAME=tokenizer.json")
    parser.add_argument("--sentencepiece", type=named, action="append", default=[], help="NAME=FILE.model")
    parser.add_argument("--only", action="append", help="names of tokenizers; all")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--other-megabytes", type=int, default=10, help="that a library encodes in a turn")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    given = [*arguments.tiktoken, *arguments.huggingface, *arguments.sentencepiece]
    names = (["gpt2"] if arguments.gpt2 else []) + [name for name, _ in given]
    if arguments.only:
        names = [name for name in names if name in arguments.only]
    print("| text | tokenizer | megatron MB/s | libraries MB/s | ratios |\n|---|---|---|---|---|")
    for text, path in arguments.text:
        documents = documents_of(path)
        with tempfile.TemporaryDirectory() as folder:
            lines = os.path.join(folder, "documents.jsonl")
            with open(lines, "w", encoding="utf-8") as file:
                for document in documents:
                    file.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            for name in names:
                compare(arguments, text, name, documents, lines)


main()
