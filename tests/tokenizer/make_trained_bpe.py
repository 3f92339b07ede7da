#!/usr/bin/env python3
"""Prints what bpe_trainer_test.cc expects: merges of Hugging Face tokenizers' BpeTrainer on words made by rule.

Needs the Python package `tokenizers` (0.23.3 gave the committed numbers).
"""
from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def made_words():
    """The words of made_words() in bpe_trainer_test.cc: bytes with many equal and overlapping pairs."""
    state, words = 1, []
    for _ in range(4000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        length, bits = 1 + (state >> 60), state >> 8
        words.append("".join("aabcdeé "[bits >> 3 * i & 7] for i in range(length)))
    return words


def train(size, min_frequency, specials):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency, special_tokens=specials,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(made_words(), trainer)
    return tokenizer


def checksum(pairs):
    value = 0
    for a, b in pairs:
        value = (value * 1000003 + a * 65537 + b) % 2**64
    return value


if __name__ == "__main__":
    import json
    for size, min_frequency, specials in [(300, 0, []), (1000, 0, ["<s>", "aa"]), (8192, 3, [])]:
        model = json.loads(train(size, min_frequency, specials).to_str())["model"]
        vocab = model["vocab"]
        merges = [(vocab[a], vocab[b]) for a, b in model["merges"]]
        print(size, min_frequency, specials, len(vocab), len(merges), checksum(merges))
        print(merges[:12], sorted(vocab, key=vocab.get)[-3:])
