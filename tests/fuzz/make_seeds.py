#!/usr/bin/env python3
"""Writes the seeds of the fuzz entries, seeds/ENTRY/NAME: small files of every kind, made here from nothing.

  python3 tests/fuzz/make_seeds.py

Names beginning with "found_" are inputs that a fuzzer found; they stay.
"""
import base64
import json
import os
import struct

SEEDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def write(entry, name, data):
    os.makedirs(os.path.join(SEEDS, entry), exist_ok=True)
    with open(os.path.join(SEEDS, entry, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


# --- .idx and .bin -------------------------------------------------------------------------------------------------

CODES = {"B": 1, "b": 2, "h": 3, "i": 4, "q": 5, "d": 6, "f": 7, "H": 8}


def data_set(kind, documents, modes=False, cut=0):
    """`documents`: lists of sequences."""
    sequences = [s for d in documents for s in d]
    tokens = b"".join(struct.pack(f"<{len(s)}{kind}", *s) for s in sequences)
    boundaries, offsets, at = [0], [], 0
    for d in documents:
        boundaries.append(boundaries[-1] + len(d))
    for s in sequences:
        offsets.append(at)
        at += len(s) * struct.calcsize(kind)
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[kind], len(sequences), len(boundaries))
    index += struct.pack(f"<{len(sequences)}i", *map(len, sequences)) + struct.pack(f"<{len(offsets)}q", *offsets)
    index += struct.pack(f"<{len(boundaries)}q", *boundaries)
    if modes:
        index += bytes(range(len(sequences)))
    index = index[: len(index) - cut]
    return struct.pack("<I", len(index)) + index + tokens


def make_index_files():
    documents = [[[1, 2, 3]], [], [[4], [5, 6]], [[]], [[7, 8, 9, 10]]]
    for kind in CODES:
        write("index_file", f"type_{CODES[kind]}", data_set(kind, documents))
    write("index_file", "modes", data_set("i", documents, modes=True))
    write("index_file", "nothing", data_set("H", []))
    write("index_file", "cut", data_set("H", documents, cut=9))
    write("index_file", "negative", data_set("q", [[[-1, 2**62, -2**63]]]))


# --- tokenizers ----------------------------------------------------------------------------------------------------

def visible_bytes():
    """GPT-2's spelling of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, extra = {}, 0
    for b in range(256):
        out[b] = chr(b if b in plain else 256 + extra)
        extra += b not in plain
    return out


PAIRS = ["t h", "th e", "Ġ the", "i n", "a a", "aa aa", "Ġ Ġ", "Ã ©", "ä ½", "ä½ ł"]


def byte_vocabulary(ends=()):
    tokens = list(visible_bytes().values()) + [p.replace(" ", "") for p in PAIRS] + list(ends)
    return {t: i for i, t in enumerate(tokens)}


def added(content, number, **flags):
    token = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {**token, **flags}


def tokenizer_file(model, **parts):
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": model}
    return json.dumps({**file, **parts}, ensure_ascii=False)


def make_tokenizer_json():
    vocabulary = byte_vocabulary(["<|endoftext|>"])
    bpe = {"type": "BPE", "vocab": vocabulary, "merges": PAIRS}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    write("tokenizer_json", "byte_level", tokenizer_file(bpe, pre_tokenizer=level, decoder=level))
    split = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\d{1,3}|\\s+(?!\\S)|[^\\s\\p{L}]+"}, "behavior": "Isolated", "invert": False},
        {**level, "use_regex": False}]}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [266], "tokens": ["<|endoftext|>"]}}}
    write("tokenizer_json", "split", tokenizer_file(
        {**bpe, "merges": [p.split(" ") for p in PAIRS], "ignore_merges": True}, normalizer={"type": "NFC"}, pre_tokenizer=split, post_processor=template,
        decoder=level, added_tokens=[added("<|endoftext|>", 266), added(" x ", 267, lstrip=True, rstrip=True, normalized=True, special=False)]))

    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list("▁abcdefghinotxé") + ["▁a", "▁th", "▁the", "th", "the", "in"]
    numbers = {p: i for i, p in enumerate(pieces)}
    llama = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": {**numbers}, "merges": ["t h", "th e", "▁ a", "▁ th", "▁ the", "i n"]}
    back = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    front = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    write("tokenizer_json", "fallback", tokenizer_file(llama, normalizer=front, decoder=back, added_tokens=[added(t, i) for i, t in enumerate(pieces[:3])]))
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [[p, -float(i % 7) - 1] for i, p in enumerate(pieces)], "byte_fallback": False}
    write("tokenizer_json", "unigram", tokenizer_file(unigram, normalizer={"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]},
                                                      pre_tokenizer=metaspace, decoder=metaspace))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "a", "b", "##a", "##b", "##the", "fox", "##es", ",", "?", "."]
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    write("tokenizer_json", "bert", tokenizer_file(
        {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(words)}},
        normalizer=bert, pre_tokenizer={"type": "BertPreTokenizer"}, post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, added_tokens=[added(w, i) for i, w in enumerate(words[:4])]))
    suffix = {c: i for i, c in enumerate(["<unk>", "a", "b", "the", "a</w>", "b</w>", "t", "h", "e</w>", "th", "the</w>"])}
    write("tokenizer_json", "suffix", tokenizer_file(
        {"type": "BPE", "unk_token": "<unk>", "end_of_word_suffix": "</w>", "vocab": suffix, "merges": ["t h", "th e</w>"]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"}]},
        decoder={"type": "BPEDecoder", "suffix": "</w>"}))
    write("tokenizer_json", "ctc", tokenizer_file(
        {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "", "max_input_chars_per_word": 20,
         "vocab": {c: i for i, c in enumerate(["<unk>", "<pad>", "|", "a", "b", "c", "e", "h", "t"])}},
        normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": " "},
        decoder={"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}))


def make_ranks():
    pieces = [bytes([b]) for b in range(256)] + [b"th", b"the", b" the", b"in", b"aa", b"aaaa", b"  ", "é".encode(), "你".encode(), b"12"]
    lines = [base64.b64encode(p).decode() + f" {i}" for i, p in enumerate(pieces)]
    write("tiktoken_ranks", "ranks", "\n".join(lines) + "\n")
    write("tiktoken_ranks", "gap_crlf", "\r\n".join(lines[:260] + [lines[261].replace(" 261", " 270")]))
    write("tiktoken_ranks", "list", json.dumps([{"rank": i, "token_bytes": base64.b64encode(p).decode(), "token_str": "?"} for i, p in enumerate(pieces)]))
    write("tiktoken_ranks", "short", "\n".join(lines[:100]))


def make_merges():
    spelling = json.dumps(byte_vocabulary(["<|endoftext|>"]), ensure_ascii=False)
    write("gpt2_merges", "version", spelling + "\0#version: 0.2\n" + "\n".join(PAIRS) + "\n")
    write("gpt2_merges", "crlf", json.dumps(byte_vocabulary()) + "\0" + "\r\n".join(PAIRS))
    write("gpt2_merges", "unknown", spelling + "\0" + "q x\n")
    write("gpt2_merges", "no_merges", spelling)


# --- JSON Lines ----------------------------------------------------------------------------------------------------

def make_lines():
    write("json_lines", "good", '{"text": "one"}\n{"id": 1, "text": "zwei \\u00e4 \\ud83d\\ude00"}\n{"text": ""}\n')
    write("json_lines", "mark_crlf", b"\xef\xbb\xbf" + b'{"text": "a"}\r\n\r\n{"text":"b","n":[1,{"text":2}]}\r\n\xef\xbb\xbf{"text":"c"}')
    write("json_lines", "numbers", '{"n": -1.5e-300, "m": 123456789012345678901234567890, "text": "x", "e": 1e999}\n{"text": "y", "t": [true, false, null]}\n')
    write("json_lines", "bad", b'{"text": "cut\n["text"]\n{"txt": "a"}\n{"text": 5}\n{"text": "\xff"}\n{"text": "\\ud800"}\n{"text": "a\0b"}\nnull\n"text"\n{"text":"a"} x\n')
    write("json_lines", "deep", '{"x": ' + "[" * 1500 + "]" * 1500 + ', "text": "deep"}\n')
    write("json_lines", "keys", '{"text": "first", "text": "last"}\n{"te\\u0078t": "a"}\n{"text": 1, "text": "b"}\n{"text": "c", "text": null}\n')


make_index_files()
make_tokenizer_json()
make_ranks()
make_merges()
make_lines()
