"""How good the answers are, on titles that the training never saw.

"marked": the sentences to quote are given, as in training; what is measured is the copying. "asked" and
"paraphrased": questions made from a sentence go through the retriever, which marks what it thinks is the evidence.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformers import AutoModelForCausalLM, AutoTokenizer

from specrace.core.errors import InputError
from specrace.core.metrics import loop_tokens
from specrace.engine.race import generate
from specrace.model.target import Target
from specrace.retrieval.embedder import load_embedder
from specrace.retrieval.index import PassageIndex, embedded_text
from specrace.retrieval.passages import split_passages
from specrace.retrieval.prompt import build_prompt
from specrace.retrieval.retriever import Hit, Retriever
from specrace.tiny.export import load_checkpoint
from specrace.tiny.questions import Case, make_cases
from specrace.tiny.quoting import NO_ANSWER, QuotingTask, Source, answer
from specrace.tiny.vocabulary import prompt_ids

MAX_NEW_TOKENS = 400
PASSAGE_WORDS = 420
LANES = ("vanilla", "bigram", "trigram", "jacobi", "lookahead", "trie", "prompt-lookup")
LANE_ANSWERS = 12
_QUOTE = re.compile(r"<\|e\d\|> (.*?) \[(\d)\]", re.DOTALL)
Quote = tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """A generated answer: its text with markers, and what it should be and may quote."""

    question: str
    text: str
    ideal: str
    sentences: frozenset[Quote]
    wanted: str
    tokens: tuple[int, ...]
    stopped: bool
    tau: float

    @property
    def quotes(self) -> list[Quote]:
        """(sentence, passage number) of every quote with its citation."""
        return [(text, int(number)) for text, number in _QUOTE.findall(self.text)]


def say(target: Target, prompt: Sequence[int], lane: str = "trie") -> tuple[tuple[int, ...], bool, float]:
    """(tokens, whether it stopped by itself, tokens a step) of a greedy answer."""
    steps = list(generate(target, lane, prompt, max_new_tokens=MAX_NEW_TOKENS))
    tokens = tuple(token for step in steps for token in step.emitted)
    return tokens, steps[-1].end == "eos", len(tokens) / len(steps)


def marked_answers(target: Target, sources: Sequence[Source], count: int, seed: int) -> Iterator[Answer]:
    """Answers to the training's own task on `sources`."""
    task = QuotingTask(sources, seed)
    for _ in range(count):
        sample = task.sample(PASSAGE_WORDS)
        sentences = {(s["text"], n) for n, d in enumerate(sample.documents, 1) for s in d["sentences"]}
        tokens, stopped, tau = say(target, prompt_ids(target.tokenizer, sample.documents, sample.question))
        text = _text(target, tokens)
        yield Answer(sample.question, text, sample.answer, frozenset(sentences), "", tokens, stopped, tau)


def asked_answers(target: Target, cases: Sequence[Case], *, paraphrased: bool) -> Iterator[Answer]:
    """Answers to questions whose evidence the retriever marks."""
    embedder = load_embedder()
    for case in cases:
        passages = [piece for document in case.documents for piece in split_passages(document)]
        index = PassageIndex(passages, embedder.embed([embedded_text(piece) for piece in passages]))
        question = case.paraphrase if paraphrased else case.question
        hits = Retriever(index, embedder).retrieve(question, top=len(passages))
        sentences = {(s.text, n) for n, hit in enumerate(hits, 1) for s in hit.sentences}
        tokens, stopped, tau = say(target, build_prompt(target.tokenizer, question, hits).tokens)
        ideal = answer(question, marked_quotes(hits))
        text = _text(target, tokens)
        yield Answer(question, text, ideal, frozenset(sentences), case.sentence, tokens, stopped, tau)


def marked_quotes(hits: Sequence[Hit]) -> list[Quote]:
    """(sentence, passage number) of the evidence in `hits`, the best first."""
    ranked = [(s.evidence, s.text, n) for n, hit in enumerate(hits, 1) for s in hit.sentences if s.evidence]
    return [(text, number) for _, text, number in sorted(ranked)]


def _text(target: Target, tokens: Sequence[int]) -> str:
    return target.decode([token for token in tokens if token not in target.eos_ids])


def figures(found: Sequence[Answer]) -> dict[str, float]:
    """Shares (0 to 1) over quotes and over answers, and means a answer."""
    quotes = [(quote, each.sentences) for each in found for quote in each.quotes]
    known = [any(text == sentence for sentence, _ in sentences) for (text, _), sentences in quotes]
    cited = [quote in sentences for quote, sentences in quotes if any(quote[0] == each for each, _ in sentences)]
    wanted = [any(text == each.wanted for text, _ in each.quotes) for each in found if each.wanted]
    values = {
        "answers": float(len(found)),
        "quotes": float(len(quotes)),
        "quotes_verbatim": _mean(known),
        "citations_right": _mean(cited),
        "answers_exact": _mean([each.text == each.ideal for each in found]),
        "stopped": _mean([each.stopped for each in found]),
        "looping": _mean([bool(loop_tokens(each.tokens)) for each in found]),
        "says_no_answer": _mean([each.text == NO_ANSWER for each in found]),
        "tokens": _mean([len(each.tokens) for each in found]),
        "trie_tau": _mean([each.tau for each in found]),
    }
    return values | ({"wanted_sentence_quoted": _mean(wanted)} if wanted else {})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def lane_taus(target: Target, sources: Sequence[Source], seed: int) -> dict[str, float]:
    """Mean tokens a step of each lane on a few of the marked samples."""
    task = QuotingTask(sources, seed)
    prompts = []
    for _ in range(LANE_ANSWERS):
        sample = task.sample(PASSAGE_WORDS)
        prompts.append(prompt_ids(target.tokenizer, sample.documents, sample.question))
    return {lane: _mean([say(target, prompt, lane)[2] for prompt in prompts]) for lane in LANES}


def main(held_out: Sequence[Source], options: argparse.Namespace) -> None:
    """Evaluate the model of `options`; print its figures and the first answers that are not what they should be."""
    folder = options.model or options.work
    if not (folder / "tokenizer.json").exists():
        raise InputError(f"{folder} holds no tokenizer; give the folder of a trained model.")
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = (
        AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
        if options.model
        else load_checkpoint(options.work)
    )
    target = Target(model.float(), tokenizer, str(folder))
    cases = make_cases(held_out, options.samples, options.seed)
    found = {
        "marked": list(marked_answers(target, held_out, options.samples, options.seed)),
        "asked": list(asked_answers(target, cases, paraphrased=False)),
        "paraphrased": list(asked_answers(target, cases, paraphrased=True)),
    }
    groups = {name: figures(answers) for name, answers in found.items()}
    groups["tau"] = lane_taus(target, held_out, options.seed)
    if options.json:
        print(json.dumps(groups))
        return
    for name, values in groups.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:24} {value:8.3f}")
    for name, answers in found.items():
        for each in [each for each in answers if each.text != each.ideal][:4]:
            print(f"\n{name}: {each.question}\nshould be{each.ideal}\nis       {each.text}")
