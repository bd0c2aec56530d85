"""SGLang: the flags of `--speculative-algorithm NGRAM`, and a corpus file for it.

Names from sgl-project/sglang 0.5.23, under `python/sglang/srt`: `arg_groups/fields/spec.py` (options),
`arg_groups/speculative_hook.py` (what they rule out), `speculative/cpp_ngram/external_corpus.py` (one JSON string per
line), `speculative/spec_utils.py` and `eagle_utils.py` (simulated acceptance: its length counts the bonus token; to
accept the real draft tokens it needs a chain). `--speculative-num-draft-tokens` counts the root.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specrace.lab.advice.exports.base import (
    AS_MEASURED,
    AT_THE_END,
    IGNORED,
    OTHER_TEXT,
    REFUSED,
    SLOWER,
    Choice,
    Effect,
    Engine,
    Export,
)

CORPUS_FILE = "sglang-corpus.jsonl"
_OPTION = "--speculative-ngram-"
# What the simulated length counts, for a reader. SGLang's spec_accept_length is output tokens / steps:
# managers/tokenizer_manager.py.
_CONVENTION = (
    f"The length is the mean of all steps, with the bonus token; {AT_THE_END}. SGLang's own spec_accept_length counts "
    "what is emitted."
)
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
    first_flags = f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {choice.num_draft + 1}"
    simulated = {"LEN": choice.length, "METHOD": "match-expected", "TOKEN_MODE": "fixed"}
    environment = " ".join(f"SGLANG_SIMULATE_ACC_{name}={value}" for name, value in simulated.items())
    return Export(" ".join([first_flags, *flags]), environment, _CONVENTION, notes=(_PAGES,))


def corpus_flags(choice: Choice) -> str:
    """The flags to draft from CORPUS_FILE, too, with a budget of half the draft size (untested)."""
    budget = max(1, choice.num_draft // 2)
    return f"{_OPTION}external-corpus-path {CORPUS_FILE} {_OPTION}external-sam-budget {budget}"


def corpus_lines(texts: Iterable[str]) -> str:
    """The content of CORPUS_FILE for these documents: one JSON string per line."""
    return "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)


# From sgl-project/sglang 0.5.23, in python/sglang/srt: each entry names its file. NGRAM verifies by eagle_sample.
EFFECTS = (
    # beam_search/coordinator.py.
    Effect(("use_beam_search",), REFUSED, "refuses beam search while it drafts"),
    # speculative/eagle_utils.py, eagle_sample: the target's probabilities are cut by top_k and top_p only, and only
    # DFLASH calls apply_custom_logit_processor.
    Effect(("min_p", "logits_processors"), IGNORED, "ignores the option without a word while it drafts with NGRAM"),
    # speculative/eagle_utils.py, "a relaxed version of penalties"; sampling/penaltylib/min_new_tokens.py.
    Effect(
        ("presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens"),
        OTHER_TEXT,
        "applies the same penalty to all positions of a step, without the drafts before them: the output differs "
        "from that without drafts",
    ),
    # speculative/spec_utils.py, generate_token_bitmask; managers/schedule_batch.py, grammar_needs_sync. A required or
    # named tool is a schema: entrypoints/openai/serving_chat.py.
    Effect(
        ("structured_output", "tool_choice"),
        SLOWER,
        "walks the draft's tree on the CPU to mask each node, and does not overlap such batches, which the "
        "forecast leaves out",
    ),
    # speculative/ngram_worker.py, compute_spec_logprobs.
    Effect(("logprobs",), SLOWER, "computes the probabilities of accepted tokens, too, which the forecast leaves out"),
    # speculative/eagle_utils.py, _verify_coins; sampling/sampling_batch_info.py.
    Effect(
        ("seed",),
        OTHER_TEXT,
        "uses the seed only with --enable-deterministic-inference, and then draws differently than without drafts",
    ),
    # speculative/eagle_utils.py, tree_speculative_sampling_target_only and _verify_uses_greedy.
    Effect(
        ("temperature",),
        AS_MEASURED,
        "accepts a draft token with the probability that the model gives it, which is how often sampled answers go on "
        "with it: the forecast holds on average, if the log's answers were sampled at this temperature; on CPUs, and "
        "on Intel's and AMD's GPUs, it takes the likeliest token at every temperature",
    ),
    # speculative/eagle_utils.py, eagle_sample.
    Effect(
        ("logit_bias",), AS_MEASURED, "adds the bias at each draft position: the output is the same as without drafts"
    ),
    # entrypoints/openai/protocol.py has the field, and nothing reads it.
    Effect(("best_of",), AS_MEASURED, "does not read the option, with drafts or without"),
    # managers/tokenizer_manager.py, parallel_sample_num.
    Effect(("n",), AS_MEASURED, "decodes each choice as a request of its own: count them all in --batch"),
)

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    prefix="sglang-",
    nearest=("trie",),
    version="0.5.23",
    export=export,
    effects=EFFECTS,
    effects_version="0.5.23",
)
