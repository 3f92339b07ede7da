#!/usr/bin/env python3
"""Writes data/huggingface_cases.json: small tokenizers of many kinds, and what the library `tokenizers` makes of texts.

  python3 -m venv V && V/bin/pip install tokenizers==0.23.3 sentencepiece
  V/bin/python tests/tokenizer/make_huggingface_cases.py [golden.jsonl with utf8_hex]

For each case the file holds the ids of fixed texts, with and without control tokens, and a CRC-32 for every 200 of
10 000 random texts (and every 30 golden texts, if given): of "ids joined by ,|decoded text\n", in UTF-8. The texts come
from a generator that the C++ test has too.
"""
import json
import os
import subprocess
import sys
import tempfile
import zlib

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ENDS = ["<|endoftext|>", "</s>", "[SEP]"]
NUM_RANDOM, BLOCK, GOLDEN_BLOCK = 10_000, 200, 30

TRAINING = (
    "The quick brown fox jumps over the lazy dog. The dog, who isn't amused, doesn't jump; he'll sleep until 12:45. "
    "Then he said: \"I've seen 1234567 foxes, and they're all quicker than we were in 2024!\" It was the best of times.\n"
    "def tokenize(text, max_length=128):\n    for i in range(10):\n        print(f'{i}: {text[i]}')\n\treturn None\n"
    "Le caf\u00e9 \u00e9tait d\u00e9j\u00e0 ferm\u00e9, na\u00efve fa\u00e7ade. Stra\u00dfe und B\u00e4ume, \u00dcbergr\u00f6\u00dfe. "
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043a\u0430\u043a \u0434\u0435\u043b\u0430? \u0425\u043e\u0440\u043e\u0448\u043e! "
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6211\u4eec\u5728\u5317\u4eac\u5b66\u4e60\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002 "
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 "
    "hello hello world world the the and and of of to to in in that that is is was was it it \U0001f600 \U0001f44d \u2014 \u201cquoted\u201d"
)

# Ranges of characters that Unicode has had for long: the library's tables are older than ours.
POOLS = [[0x20, 0x7E], [0x61, 0x7A], [0x61, 0x7A], [0x41, 0x5A], [0x30, 0x39], [0x20, 0x20], [0xA1, 0xFF], [0x100, 0x17F],
         [0x300, 0x345], [0x391, 0x3A1], [0x3B1, 0x3C9], [0x410, 0x44F], [0x5D0, 0x5EA], [0x621, 0x64A], [0x64B, 0x652],
         [0x905, 0x939], [0x93E, 0x94D], [0xE01, 0xE3A], [0x1100, 0x1112], [0x1161, 0x1175], [0x11A8, 0x11C2],
         [0xAC00, 0xD7A3], [0x3041, 0x3096], [0x30A1, 0x30FC], [0x4E00, 0x9FA5], [0x4E00, 0x4E40], [0xFF01, 0xFF5E],
         [0x2010, 0x2027], [0x2000, 0x200A], [0x200B, 0x200D], [0x2460, 0x2473], [0x24B6, 0x24BA], [0x1E00, 0x1EFF],
         [0x1F600, 0x1F64F], [0x20000, 0x20100], [0xF900, 0xFA0D], [0xA0, 0xA0], [0x9, 0xD], [0x85, 0x85],
         [0x3000, 0x3002], [0xB2, 0xB9], [0xBC, 0xBE], [0x2160, 0x2170], [0x2581, 0x2581], [0xFFFD, 0xFFFD], [0xFEFF, 0xFEFF],
         [0x1, 0x1F], [0x130, 0x131], [0xDF, 0xDF], [0x1E9E, 0x1E9E], [0x2126, 0x212B], [0xFB00, 0xFB06]]
WORDS = ["the", " the", "  ", "   ", " ", "\n", "\r\n", "\t", "hello", "world", "'s", "'ll", "n't", " .", "12345", "don't",
         "caf\u00e9", "cafe\u0301", "\u2581", "\u2581the", "<s>", "</s>", "<unk>", "<|endoftext|>", "[CLS]", "[MASK]", "<mask>", " <mask> ", "foo", "foobar",
         "barfoo", "FOO", "##ing", "</w>", "<0x41>", "|", "a-b", "_x_", "``", "''", "\u0130stanbul", "\u4f60\u597d", "\ud55c\uad6d",
         "e\u0301\u0323", "e\u0323\u0301", "\u1100\u1161\u11a8", "\U0001f468\u200d\U0001f469", " do not", "\u00a0", "1,000", "xx", "yy yy"]
TEXTS = ["", " ", "a", "Hello, world!", "  two  spaces  ", "The quick brown fox", " the foo bar foobar FOO", "I've  12345\n\n", "don't do not",
         "Caf\u00e9 d\u00e9j\u00e0 vu \u2014 123 \U0001f60a", "cafe\u0301 e\u0323\u0301", "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \u30fc", "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
         "<s>G", "a <mask> b", "a<mask>b <|endoftext|> c</s>", "[CLS] text [MASK]", "\u03d5\u2200", "tab\there\r\nnew", "\u2581\u2581x \u2581y", "<0x41><unk>", "\uff28\uff45\uff4c\uff4c\uff4f \ufb01", "\u0130I\u0131i", "naïve Straße"]


class Random:
    def __init__(self, seed):
        self.state = seed

    def next(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def random_text(index):
    r = Random(index)
    r.next(2)
    out = []
    for _ in range(1 + r.next(24)):
        if r.next(3) == 0:
            out.append(WORDS[r.next(len(WORDS))])
        else:
            first, last = POOLS[r.next(len(POOLS))]
            out.append(chr(first + r.next(last - first + 1)))
    return "".join(out)


# --- models -----------------------------------------------------------------------------------------------------------

def model_of(tokenizer):
    return json.loads(tokenizer.to_str())["model"]


def train(model, trainer, pre_tokenizer=None, normalizer=None):
    tokenizer = Tokenizer(model)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(TRAINING.splitlines(keepends=True), trainer)
    return model_of(tokenizer)


def with_front(model, tokens):
    """The BPE model with tokens in front of its vocabulary."""
    rest = [t for t, _ in sorted(model["vocab"].items(), key=lambda e: e[1]) if t not in tokens]
    return {**model, "vocab": {t: i for i, t in enumerate(tokens + rest)}}


def make_models():
    marks = ["<unk>", "<s>", "</s>"]
    fallback = [f"<0x{b:02X}>" for b in range(256)]
    byte_trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    metaspace = pre_tokenizers.Metaspace()
    out = {"bytes": train(models.BPE(), byte_trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))}
    chars = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=300, special_tokens=marks, show_progress=False), metaspace)
    out["chars"] = chars
    out["fallback"] = {**with_front(chars, marks + fallback), "byte_fallback": True, "fuse_unk": True}
    out["suffix"] = train(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                          trainers.BpeTrainer(vocab_size=300, special_tokens=marks, end_of_word_suffix="</w>", show_progress=False),
                          pre_tokenizers.Whitespace())
    out["prefix"] = train(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                          trainers.BpeTrainer(vocab_size=300, special_tokens=marks, continuing_subword_prefix="##", show_progress=False),
                          pre_tokenizers.Whitespace())
    unigram = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=220, special_tokens=marks, unk_token="<unk>", show_progress=False), metaspace)
    out["unigram"] = {**unigram, "vocab": [[p, round(s, 6)] for p, s in unigram["vocab"]]}
    out["unigram_fallback"] = {**out["unigram"], "byte_fallback": True,
                               "vocab": out["unigram"]["vocab"][:3] + [[b, 0.0] for b in fallback] + out["unigram"]["vocab"][3:]}
    out["wordpiece"] = train(models.WordPiece(unk_token="[UNK]"),
                             trainers.WordPieceTrainer(vocab_size=320, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False),
                             pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())
    for model in out.values():
        if "merges" in model:
            model["merges"] = [" ".join(m) for m in model["merges"]]  # the older spelling; cases use both
    return out


def make_charsmap():
    """SentencePiece's compiled form of a few rules, in base64."""
    import base64
    import sentencepiece
    rules = {"\uff28": "H", "\uff45": "e", "\u00a0": " ", "\ufb01": "fi", "\u3000": " ", "\u00e9": "e\u0301", "e\u0301": "E", "\u200b": "", "\u2160": "I",
             "\t": " ", "\u4f60": "\u4f60\u4f60", "\u0130": "i", "\u00bd": "1/2", "\u1100\u1161": "\uac00", "\u0301": "", "``": "\""}
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/rules.tsv", "w") as file:
            for key, value in sorted(rules.items()):
                file.write(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n")
        with open(folder + "/text", "w") as file:
            file.write(TRAINING)
        sentencepiece.SentencePieceTrainer.Train(
            f"--input={folder}/text --model_prefix={folder}/m --vocab_size=150 --hard_vocab_limit=false "
            f"--normalization_rule_tsv={folder}/rules.tsv --minloglevel=2")
        model = open(folder + "/m.model", "rb").read()
        return base64.b64encode(field(field(model, 3), 2)).decode()  # normalizer_spec.precompiled_charsmap


def field(message, number):
    """The last value of a length-delimited field of a protobuf message."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift += 7
            at += 1
            if message[at - 1] < 128:
                return value, at
    at, found = 0, b""
    while at < len(message):
        tag, at = varint(at)
        if tag & 7 == 2:
            size, at = varint(at)
            if tag >> 3 == number:
                found = message[at:at + size]
            at += size
        elif tag & 7 == 5:
            at += 4
        else:
            _, at = varint(at)
    return found


# --- cases ------------------------------------------------------------------------------------------------------------

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = {**GPT2, "use_regex": False}
BYTE_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
MARK = "\u2581"
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
          "\\s+(?!\\S)|\\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|"
            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def seq(kind, *parts):
    return {"type": "Sequence", {"n": "normalizers", "p": "pretokenizers", "d": "decoders", "x": "processors"}[kind]: list(parts)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def rx(text):
    return {"Regex": text}


def st(text):
    return {"String": text}


def t(name, **more):
    return {"type": name, **more}


def added(content, token_id, special=True, **more):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special,
            "special": special, **more}


def template(before, after, ids):
    piece = lambda n: {"SpecialToken": {"id": n, "type_id": 0}}
    a = {"Sequence": {"id": "A", "type_id": 0}}
    b = {"Sequence": {"id": "B", "type_id": 1}}
    return {"type": "TemplateProcessing", "single": [piece(n) for n in before] + [a] + [piece(n) for n in after],
            "pair": [a, b], "special_tokens": {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in before + after}}


def meta(scheme="always", do_split=True):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": do_split}


def make_cases(charsmap):
    cases = []
    marks = [added("<unk>", 0), added("<s>", 1), added("</s>", 2)]
    bert = [added("[PAD]", 0), added("[UNK]", 1), added("[CLS]", 2), added("[SEP]", 3), added("[MASK]", 4)]
    end = [added("<|endoftext|>", 420)]
    llama_decoder = seq("d", t("Replace", pattern=st(MARK), content=" "), t("ByteFallback"), t("Fuse"), t("Strip", content=" ", start=1, stop=0))
    llama_normal = seq("n", t("Prepend", prepend=MARK), t("Replace", pattern=st(" "), content=MARK))
    precompiled = t("Precompiled", precompiled_charsmap=charsmap)

    def case(name, model, normalizer=None, pre=None, post=None, decoder=None, tokens=(), pairs=False, **overrides):
        cases.append({"name": name, "model": model, "pairs": pairs, "overrides": overrides, "normalizer": normalizer, "pre_tokenizer": pre,
                      "post_processor": post, "decoder": decoder, "added_tokens": list(tokens)})

    # The families.
    case("gpt2", "bytes", pre=GPT2, post=t("ByteLevel", add_prefix_space=True, trim_offsets=False, use_regex=True), decoder=BYTE_DECODER, tokens=end)
    case("roberta", "bytes", pre={**GPT2, "add_prefix_space": True},
         post=t("RobertaProcessing", sep=["</s>", 421], cls=["<s>", 420], trim_offsets=True, add_prefix_space=False), decoder=BYTE_DECODER,
         tokens=[added("<s>", 421, normalized=True), added("</s>", 422, normalized=True), added("<mask>", 423, lstrip=True)])
    case("gpt_neox", "bytes", normalizer=t("NFC"), pre=GPT2, decoder=BYTE_DECODER, pairs=True,
         tokens=end + [added("   ", 421, special=False), added("  ", 422, special=False)])
    case("phi", "bytes", pre=GPT2, decoder=BYTE_DECODER, tokens=end + [added(" " * n, 430 - n, special=False) for n in (4, 3, 2)])
    case("starcoder", "bytes", pre=seq("p", t("Digits", individual_digits=True), GPT2), decoder=BYTE_DECODER, tokens=end)
    case("falcon", "bytes", pre=seq("p", t("Punctuation", behavior="Contiguous"), GPT2, t("Digits", individual_digits=False),
                                    split(rx("[0-9][0-9][0-9]"), "Isolated")), decoder=BYTE_DECODER, tokens=end)
    case("llama3", "bytes", pre=seq("p", split(rx(LLAMA3), "Isolated"), BYTES),
         post=seq("x", t("ByteLevel", add_prefix_space=True, trim_offsets=False, use_regex=True), template(["<s>"], [], {"<s>": 421})),
         decoder=BYTE_DECODER, tokens=end + [added("<s>", 421)], ignore_merges=True)
    case("qwen2", "bytes", normalizer=t("NFC"), pre=seq("p", split(rx(QWEN2), "Isolated"), BYTES), decoder=BYTE_DECODER, pairs=True, tokens=end)
    case("deepseek", "bytes", normalizer=seq("n"), pre=seq("p", split(rx("\\p{N}{1,3}"), "Isolated"), split(rx("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "Isolated"),
                                       split(rx(DEEPSEEK), "Isolated"), BYTES), decoder=BYTE_DECODER, tokens=end)
    case("llama2", "fallback", normalizer=llama_normal, post=template(["<s>"], [], {"<s>": 1}), decoder=llama_decoder, tokens=marks)
    case("llama2_first", "fallback", pre=meta("first", False), post=template(["<s>"], ["</s>"], {"<s>": 1, "</s>": 2}), decoder=llama_decoder,
         tokens=marks, pairs=True)
    case("gemma", "fallback", normalizer=t("Replace", pattern=st(" "), content=MARK), pre=split(st(" "), "MergedWithPrevious"),
         decoder=seq("d", t("Replace", pattern=st(MARK), content=" "), t("ByteFallback"), t("Fuse")),
         tokens=marks + [added("\n", 700, special=False, normalized=False), added("\r\n", 701, special=False, normalized=False)])
    case("bert", "wordpiece", normalizer=t("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
         pre=t("BertPreTokenizer"), post=template(["[CLS]"], ["[SEP]"], {"[CLS]": 2, "[SEP]": 3}),
         decoder=t("WordPiece", prefix="##", cleanup=True), tokens=bert)
    case("bert_cased", "wordpiece", normalizer=t("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=False),
         pre=t("BertPreTokenizer"), post=t("BertProcessing", sep=["[SEP]", 3], cls=["[CLS]", 2]),
         decoder=t("WordPiece", prefix="##", cleanup=False), tokens=bert)
    case("xlm_roberta", "unigram", normalizer=precompiled, pre=seq("p", t("WhitespaceSplit"), meta()),
         post=template(["<s>"], ["</s>"], {"<s>": 1, "</s>": 2}), decoder=meta(), tokens=marks + [added("<mask>", 300, lstrip=True)])
    case("albert", "unigram", pre=meta(),
         normalizer=seq("n", t("Replace", pattern=st("``"), content="\""), t("Replace", pattern=st("''"), content="\""), t("NFKD"), t("StripAccents"),
                        t("Lowercase"), precompiled), decoder=meta(), tokens=marks)
    case("t5", "unigram_fallback", normalizer=precompiled, pre=meta("always"), decoder=seq("d", t("ByteFallback"), meta("always")), tokens=marks)
    case("clip", "suffix", normalizer=seq("n", t("NFC"), t("Replace", pattern=rx("\\s+"), content=" "), t("Lowercase")),
         pre=split(rx("'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"), "Removed", True), decoder=t("BPEDecoder", suffix="</w>"), tokens=marks)

    # The parts, each in other company.
    case("nmt_nfkc", "unigram", normalizer=seq("n", t("Nmt"), t("NFKC"), t("Replace", pattern=rx(" {2,}"), content=" ")), pre=meta("first"), decoder=meta("first"))
    case("nmt_nfd", "chars", normalizer=seq("n", t("NFD"), t("Nmt")), pre=t("Whitespace"))
    case("strip_both", "chars", normalizer=seq("n", t("Strip", strip_left=True, strip_right=True), t("NFKC")), pre=meta("first"), decoder=meta("first"))
    case("strip_left", "chars", normalizer=t("Strip", strip_left=True, strip_right=False), pre=meta("first", False), decoder=meta("never"), fuse_unk=True)
    case("strip_right", "chars", normalizer=seq("n", t("Strip", strip_left=False, strip_right=True), t("Prepend", prepend="x")), pre=meta("never"), decoder=t("Fuse"))
    case("nfkd_accents", "wordpiece", normalizer=seq("n", t("NFKD"), t("StripAccents"), t("Lowercase")), pre=t("Whitespace"), tokens=bert,
         decoder=seq("d", t("WordPiece", prefix="##", cleanup=True), t("Fuse"), t("Strip", content="t", start=2, stop=0)), max_input_chars_per_word=4)
    case("bert_bare", "wordpiece", normalizer=t("BertNormalizer", clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
         pre=seq("p", t("WhitespaceSplit"), t("Punctuation")), decoder=t("WordPiece", prefix="##", cleanup=True))
    case("nfd_bytes", "bytes", normalizer=t("NFD"), pre=GPT2, decoder=BYTE_DECODER, tokens=end)
    case("byte_normalizer", "bytes", normalizer=seq("n", t("NFC"), t("ByteLevel")), pre=split(rx("\u0120+"), "MergedWithNext"), decoder=BYTE_DECODER, tokens=end)
    case("byte_normalizer_added", "bytes", normalizer=t("ByteLevel"), decoder=BYTE_DECODER,
         tokens=end + [added("foo bar", 421, special=False), added("\u4f60\u597d", 422, special=False), added("\u010d", 423, special=False)])
    case("digits", "bytes", pre=seq("p", t("Digits", individual_digits=False), t("Digits", individual_digits=True), BYTES), decoder=BYTE_DECODER)
    case("delimiter", "chars", pre=seq("p", t("CharDelimiterSplit", delimiter="|"), t("CharDelimiterSplit", delimiter="e")))
    case("delimiter_bytes", "bytes", pre=seq("p", t("CharDelimiterSplit", delimiter="\u00e9"), {**GPT2, "add_prefix_space": True}), decoder=BYTE_DECODER)
    case("scripts", "unigram", pre=t("UnicodeScripts"), decoder=t("Fuse"))
    case("scripts_sequence", "wordpiece", pre=seq("p", t("UnicodeScripts"), t("Whitespace"), t("Punctuation", behavior="Removed")))
    for index, behavior in enumerate(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]):
        case("punctuation_" + behavior, "chars", pre=t("Punctuation", behavior=behavior), fuse_unk=index % 2 == 0)
        case("split_string_" + behavior, "chars", pre=split(st("the"), behavior, index % 2 == 0), decoder=t("Fuse"))
        case("split_regex_" + behavior, "bytes", pre=seq("p", split(rx("[aeiou ]"), behavior, index % 2 == 1), BYTES), decoder=BYTE_DECODER)
        case("split_known_" + behavior, "bytes", pre=seq("p", split(rx(LLAMA3), behavior, True), split(rx(QWEN2), behavior, False), BYTES), decoder=BYTE_DECODER)
    case("suffix_whitespace", "suffix", pre=t("WhitespaceSplit"), decoder=seq("d", t("BPEDecoder", suffix="</w>"), t("Replace", pattern=rx("[aeiou]+"), content="_")))
    case("prefix", "prefix", pre=t("Whitespace"), decoder=t("CTC", pad_token="##", word_delimiter_token="e", cleanup=True))
    case("prefix_suffix", "suffix", pre=t("BertPreTokenizer"), fuse_unk=True, pairs=True)
    case("ctc", "chars", pre=meta("never"), decoder=seq("d", t("CTC", pad_token="<pad>", word_delimiter_token=MARK, cleanup=False), t("Strip", content=MARK, start=0, stop=1)))
    case("fallback_pieces", "unigram_fallback", pre=meta("never", False), decoder=seq("d", t("ByteFallback"), t("Replace", pattern=st(MARK), content=" ")))
    case("no_fuse_fallback", "fallback", normalizer=t("Lowercase"), decoder=seq("d", t("ByteFallback"), t("Fuse")), fuse_unk=False)
    case("vanishing", "chars", pre=t("WhitespaceSplit"), unk_token=None)
    case("bare", "unigram")
    case("precompiled_bytes", "bytes", normalizer=seq("n", precompiled, t("Strip", strip_left=True, strip_right=True)), pre=GPT2, decoder=BYTE_DECODER)
    case("added", "bytes", normalizer=t("Lowercase"), pre=GPT2, decoder=BYTE_DECODER,
         tokens=[added("foo", 420, special=False, single_word=True), added("FOO", 421, special=False, normalized=False),
                 added("bar", 422, special=False, lstrip=True), added("the", 423, special=False, rstrip=True, normalized=False),
                 added("<mask>", 424, lstrip=True, rstrip=True), added(" ", 425, special=False, normalized=False, single_word=True),
                 added("yy", 426, special=False, lstrip=True, rstrip=True, single_word=True), added("foobar", 427, special=False)])
    case("added_words", "wordpiece", normalizer=seq("n", t("NFC"), t("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)),
         pre=t("BertPreTokenizer"), decoder=t("WordPiece", prefix="##", cleanup=False),
         tokens=bert + [added("Hello World", 400, special=False), added("caf\u00e9", 401, special=False), added("\u4f60", 402, special=False, single_word=True)])
    return cases


def number_added_tokens(case, model):
    """The library numbers added tokens by itself: after the vocabulary, in their order."""
    vocab = model["vocab"]
    known = vocab if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
    following = len(known)
    for token in case["added_tokens"]:
        token["id"] = known.get(token["content"], following)
        following += token["id"] == following


def tokenizer_of(case, all_models):
    model = {**all_models[case["model"]], **case["overrides"]}
    number_added_tokens(case, model)
    if case["pairs"]:
        model["merges"] = [m.split(" ") for m in model["merges"]]
    parts = {k: case[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens")}
    return Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, **parts, "model": model}))


def decode(case, tokenizer, ids):
    """As the library does, but each document on its own."""
    content = {token["content"]: token["id"] for token in case["added_tokens"] if token["special"]}
    end = next((name for name in ENDS if name in content), None)
    text, run = "", []
    for token_id in ids + [None]:
        if token_id is None or token_id == content.get(end):
            text += tokenizer.decode(run, skip_special_tokens=False) if run else ""
            text += end if token_id is not None else ""
            run = []
        else:
            run.append(token_id)
    return text


def checksums(case, tokenizer, texts, block):
    sums = []
    for begin in range(0, len(texts), block):
        crc = 0
        for text in texts[begin:begin + block]:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            line = ",".join(map(str, ids)) + "|" + decode(case, tokenizer, ids) + "\n"
            crc = zlib.crc32(line.encode("utf-8"), crc)
        sums.append(f"{crc:08x}")
    return " ".join(sums)


def main():
    golden = []
    if len(sys.argv) > 1:
        lines = [json.loads(line) for line in open(sys.argv[1])]
        golden = [bytes.fromhex(line["utf8_hex"]).decode("utf-8") for line in lines if line["cat"] not in ("unicode_new", "fuzz_cp")]
    all_models, charsmap = make_models(), make_charsmap()
    randoms = [random_text(i) for i in range(NUM_RANDOM)]
    cases = make_cases(charsmap)
    for case in cases:
        tokenizer = tokenizer_of(case, all_models)
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        case["with_ends"] = tokenizer.encode("the", add_special_tokens=True).ids
        case["ids"] = ids
        case["decoded"] = [decode(case, tokenizer, i) for i in ids]
        case["random"] = checksums(case, tokenizer, randoms, BLOCK)
        case["golden"] = checksums(case, tokenizer, golden, GOLDEN_BLOCK)
        print(case["name"], file=sys.stderr)
    head = {"random": NUM_RANDOM, "block": BLOCK, "golden": len(golden), "golden_block": GOLDEN_BLOCK, "pools": POOLS, "words": WORDS, "texts": TEXTS}
    with open(HERE + "/data/huggingface_cases.json", "w") as file:
        file.write(json.dumps(head, ensure_ascii=True, separators=(",", ":"))[:-1] + ',\n"models":{\n')
        file.write(",\n".join(json.dumps(n) + ":" + json.dumps(m, separators=(",", ":")) for n, m in all_models.items()) + '},\n"cases":[\n')
        file.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]}\n")


if __name__ == "__main__":
    main()
