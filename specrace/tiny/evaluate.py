"""How good the answers are, on titles that the training never saw: what is quoted, cited, stopped, repeated."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import AutoModelForCausalLM, AutoTokenizer

from specrace.errors import InputError
from specrace.metrics import loop_tokens
from specrace.race import generate
from specrace.target import Target
from specrace.tiny.export import load_checkpoint
from specrace.tiny.quoting import QuotingTask, Sample, Source
from specrace.tiny.vocabulary import prompt_ids

MAX_NEW_TOKENS = 400
PASSAGE_WORDS = 420
_QUOTE = re.compile(r"<\|e(\d)\|> (.*?) \[(\d)\]", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One generated answer beside what it should be."""

    sample: Sample
    text: str
    tokens: tuple[int, ...]
    stopped: bool
    tau: float

    @property
    def quotes(self) -> list[tuple[str, int]]:
        """(sentence, passage number) of every quote with its citation."""
        return [(text, int(number)) for _, text, number in _QUOTE.findall(self.text)]

    @property
    def expected(self) -> list[tuple[str, int]]:
        """The same of the marked sentences, in the order of their marks."""
        return [(text, int(number)) for _, text, number in _QUOTE.findall(self.sample.answer)]


def answers(target: Target, sources: Sequence[Source], count: int, seed: int) -> list[Answer]:
    """Greedy answers, drafted by the trie, to `count` samples from `sources`."""
    task = QuotingTask(sources, seed)
    found = []
    for _ in range(count):
        sample = task.sample(PASSAGE_WORDS)
        prompt = prompt_ids(target.tokenizer, sample.documents, sample.question)
        steps = list(generate(target, "trie", prompt, max_new_tokens=MAX_NEW_TOKENS))
        tokens = tuple(token for step in steps for token in step.emitted)
        text = target.tokenizer.decode([token for token in tokens if token not in target.eos_ids])
        found.append(Answer(sample, text, tokens, steps[-1].end == "eos", len(tokens) / len(steps)))
    return found


def figures(found: Sequence[Answer]) -> dict[str, float]:
    """Shares (0 to 1) over quotes and over answers, and means a answer."""
    quotes = [(answer, quote) for answer in found for quote in answer.quotes]
    expected = sum(len(answer.expected) for answer in found)
    passages = [" ".join(s["text"] for d in a.sample.documents for s in d["sentences"]) for a, _ in quotes]
    exact = [quote in answer.expected for answer, quote in quotes]
    return {
        "answers": len(found),
        "quotes_verbatim": _mean([text in passage for (_, (text, _)), passage in zip(quotes, passages, strict=True)]),
        "quotes_marked_and_cited": _mean(exact),
        "marked_sentences_quoted": sum(exact) / max(1, expected),
        "answers_exact": _mean([answer.text == answer.sample.answer for answer in found]),
        "stopped": _mean([answer.stopped for answer in found]),
        "looping": _mean([bool(loop_tokens(answer.tokens)) for answer in found]),
        "tokens": _mean([len(answer.tokens) for answer in found]),
        "trie_tau": _mean([answer.tau for answer in found]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def main(held_out: Sequence[Source], options: argparse.Namespace) -> None:
    """Evaluate the model of `options` and print its figures."""
    folder = options.model or options.work
    if not (folder / "tokenizer.json").exists():
        raise InputError(f"{folder} holds no tokenizer; give the folder of a trained model.")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder) if options.model else load_checkpoint(options.work)
    found = answers(Target(model.float(), tokenizer, str(folder)), held_out, options.samples, seed=1)
    values = figures(found)
    if options.json:
        print(json.dumps(values))
        return
    for name, value in values.items():
        print(f"{name:28} {value:8.3f}")
    for answer in [each for each in found if each.text != each.sample.answer][:5]:
        print(f"\nasked    {answer.sample.question}\nexpected{answer.sample.answer}\nsaid    {answer.text}")
