#!/usr/bin/env python3
"""Writes data/post_processor_cases.json: what the library `tokenizers` puts around texts for post-processors of every kind,
alone and in sequences, on the models of data/huggingface_cases.json.

  V/bin/python tests/tokenizer/make_post_processor_cases.py      (V as in make_huggingface_cases.py)
"""
import json
import os

from make_huggingface_cases import seq, t, template, tokenizer_of

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["", "the", "Hello, world!", "  two  spaces ", "a <mask> b", "caf\u00e9 \u4f60\u597d"]


def bert(sep, cls):
    return t("BertProcessing", sep=list(sep), cls=list(cls))


def roberta(sep, cls, trim, prefix):
    return t("RobertaProcessing", sep=list(sep), cls=list(cls), trim_offsets=trim, add_prefix_space=prefix)


def level(trim):
    return t("ByteLevel", add_prefix_space=True, trim_offsets=trim, use_regex=True)


def post_processors():
    cls, sep, pad, mask = ("[CLS]", 2), ("[SEP]", 3), ("[PAD]", 0), ("[MASK]", 4)
    s, e = ("<s>", 420), ("</s>", 421)
    ids = {"<s>": 1, "</s>": 2, "<unk>": 0}
    several = template(["<s>"], ["</s>"], ids)
    several["special_tokens"]["<s>"] = {"id": "<s>", "ids": [1, 0, 1], "tokens": ["<s>", "<unk>", "<s>"]}
    return {
        "bert": [bert(sep, cls), bert(mask, pad), seq("x", bert(sep, cls)), seq("x", level(True), bert(sep, cls)),
                 seq("x", bert(sep, cls), template(["[MASK]"], ["[PAD]"], {"[MASK]": 4, "[PAD]": 0})), seq("x", seq("x", bert(mask, pad))),
                 seq("x", bert(sep, cls), bert(mask, pad))],
        "roberta": [roberta(e, s, False, True), roberta(s, e, True, True), seq("x", roberta(e, s, True, False)),
                    seq("x", level(False), roberta(e, s, False, False)), seq("x", roberta(e, s, True, True), level(True))],
        "llama2": [template(["<s>", "<s>"], ["</s>"], ids), template([], ["</s>", "<unk>"], ids), template([], [], ids), several,
                   seq("x"), seq("x", template(["<s>"], ["</s>"], ids), level(True)), seq("x", level(True), template(["<s>"], [], ids)), None],
        "gpt2": [level(True), seq("x", level(False), level(True)), None],
    }


def main():
    with open(HERE + "/data/huggingface_cases.json") as file:
        known = json.load(file)
    by_name = {case["name"]: case for case in known["cases"]}
    cases = []
    for base, posts in post_processors().items():
        for post in posts:
            tokenizer = tokenizer_of({**by_name[base], "post_processor": post}, known["models"])
            ids = [tokenizer.encode(text, add_special_tokens=True).ids for text in TEXTS]
            cases.append({"base": base, "post_processor": post, "ids": ids})
    with open(HERE + "/data/post_processor_cases.json", "w") as file:
        file.write(json.dumps({"texts": TEXTS})[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]}\n")


if __name__ == "__main__":
    main()
