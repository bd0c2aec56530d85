"""SGLang: the flags of `--speculative-algorithm NGRAM`, and a corpus file for it.

Names from sgl-project/sglang 0.5.23, under `python/sglang/srt`: `arg_groups/fields/spec.py` (options),
`arg_groups/speculative_hook.py` (what they rule out), `speculative/cpp_ngram/external_corpus.py` (one JSON string
per line), `speculative/spec_utils.py` and `eagle_utils.py` (simulated acceptance, whose length counts the bonus
token, and whose real draft tokens need a chain). `--speculative-num-draft-tokens` counts the root.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specrace.lab.exports.base import Choice, Engine, Export

CORPUS_FILE = "sglang-corpus.jsonl"
_OPTION = "--speculative-ngram-"
# `_handle_ngram` refuses a tree on pages of several tokens.
_PAGES = "Trees need --page-size 1 or --attention-backend flashinfer."


def export(choice: Choice) -> Export:
    """The flags, and the environment variables that simulate the measured acceptance."""
    if choice.lane == "trie":
        # Our trie ranks by frequency, as SGLang's type PROB does; type BFS ranks by recency.
        options: dict[str, Any] = {"max_trie_depth": choice.options["n"], "match_type": "PROB"}
    else:
        options = {name: choice.options[name] for name in ("max_trie_depth", "min_bfs_breadth", "max_bfs_breadth")}
        options["match_type"] = "PROB" if choice.options["match_type_prob"] else "BFS"
    flags = [f"{_OPTION}{name.replace('_', '-')} {value}" for name, value in options.items()]
    head = f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {choice.num_draft + 1}"
    simulated = {"LEN": choice.length, "METHOD": "match-expected", "TOKEN_MODE": "fixed"}
    environment = " ".join(f"SGLANG_SIMULATE_ACC_{name}={value}" for name, value in simulated.items())
    return Export(" ".join([head, *flags]), environment, notes=(_PAGES,))


def corpus_flags(choice: Choice) -> str:
    """The flags to draft from CORPUS_FILE, too, with a budget of half the draft size (untested)."""
    budget = max(1, choice.num_draft // 2)
    return f"{_OPTION}external-corpus-path {CORPUS_FILE} {_OPTION}external-sam-budget {budget}"


def corpus_lines(texts: Iterable[str]) -> str:
    """The corpus file of documents: one JSON string per line."""
    return "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)


ENGINE = Engine("sglang", "sglang-", ("trie",), "0.5.23", export)
