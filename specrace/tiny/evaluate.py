"""Measures the quality of the answers on held-out titles, in three groups.

"marked": samples of the training task, in which the evidence is marked, so this group measures the copying. "asked" and
"paraphrased": questions are made from a sentence, and the retriever marks the evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from transformers import AutoModelForCausalLM, AutoTokenizer

from specrace.core.errors import InputError
from specrace.core.metrics import loop_tokens
from specrace.engine.generate import generate
from specrace.model.target import Target
from specrace.retrieval.embedder import load_embedder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import embedded_text, split_passages
from specrace.retrieval.prompt import build_prompt
from specrace.retrieval.retriever import Hit, Retriever
from specrace.tiny.questions import Case, make_cases
from specrace.tiny.quoting import NO_ANSWER, QuotingTask, Source, read_sources, split_titles
from specrace.tiny.quoting import answer as ideal_answer
from specrace.tiny.train import load_checkpoint
from specrace.tiny.vocabulary import prompt_ids

MAX_NEW_TOKENS = 400
# The passages of a marked sample have at most about this many words in total.
PASSAGE_WORDS = 420
LANES = ("vanilla", "bigram", "trigram", "jacobi", "lookahead", "trie", "prompt-lookup")
# How many samples each of these lanes decodes.
LANE_ANSWERS = 12
# The marker of a quote, its sentence (group 1), and the number of the cited passage (group 2).
_QUOTE = re.compile(r"<\|e\d\|> (.*?) \[(\d)\]", re.DOTALL)
# (sentence, passage number)
Quote = tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """An answer with its markers.

    `ideal` is the right answer, `sentences` are the sentences that an answer may quote, and `wanted` is the sentence
    that it should quote, if that is known. `stopped`: whether it ended with end-of-text. `tau`: its tokens per step.
    """

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
        """The (sentence, passage number) of every cited quote."""
        return [(text, int(number)) for text, number in _QUOTE.findall(self.text)]


def decode(target: Target, prompt: Sequence[int], lane: str = "trie") -> tuple[tuple[int, ...], bool, float]:
    """Decode an answer greedily. Returns its tokens, whether they end with end-of-text, and the tokens per step."""
    steps = list(generate(target, lane, prompt, max_new_tokens=MAX_NEW_TOKENS))
    tokens = tuple(token for step in steps for token in step.emitted)
    return tokens, steps[-1].end == "eos", len(tokens) / len(steps)


def make_answer(
    target: Target, prompt: Sequence[int], question: str, ideal: str, sentences: Iterable[Quote], wanted: str = ""
) -> Answer:
    """The model's answer, without end-of-text."""
    tokens, stopped, tau = decode(target, prompt)
    text = target.decode([token for token in tokens if token not in target.eos_ids])
    return Answer(question, text, ideal, frozenset(sentences), wanted, tokens, stopped, tau)


def marked_answers(target: Target, sources: Sequence[Source], count: int, seed: int) -> Iterator[Answer]:
    """Answers to samples of the training task on `sources`."""
    task = QuotingTask(sources, seed)
    for _ in range(count):
        sample = task.sample(PASSAGE_WORDS)
        sentences = {
            (sentence["text"], number)
            for number, document in enumerate(sample.documents, 1)
            for sentence in document["sentences"]
        }
        prompt = prompt_ids(target.tokenizer, sample.documents, sample.question)
        yield make_answer(target, prompt, sample.question, sample.answer, sentences)


def asked_answers(target: Target, cases: Sequence[Case], *, paraphrased: bool) -> Iterator[Answer]:
    """Answers to questions whose evidence the retriever marks."""
    embedder = load_embedder()
    for case in cases:
        passages = [piece for document in case.documents for piece in split_passages(document)]
        index = PassageIndex(passages, embedder.embed([embedded_text(piece) for piece in passages]))
        question = case.paraphrase if paraphrased else case.question
        hits = Retriever(index, embedder).retrieve(question, top=len(passages))
        sentences = {(sentence.text, number) for number, hit in enumerate(hits, 1) for sentence in hit.sentences}
        prompt = build_prompt(target.tokenizer, question, hits).tokens
        yield make_answer(
            target, prompt, question, ideal_answer(question, marked_quotes(hits)), sentences, case.sentence
        )


def marked_quotes(hits: Sequence[Hit]) -> list[Quote]:
    """The (sentence, passage number) of the evidence in `hits`, the best evidence first."""
    ranked = [
        (sentence.evidence, sentence.text, number)
        for number, hit in enumerate(hits, 1)
        for sentence in hit.sentences
        if sentence.evidence
    ]
    return [(text, number) for _, text, number in sorted(ranked)]


def summarise(answers: Sequence[Answer]) -> dict[str, float]:
    """Metrics by name: counts, shares (0 to 1) of quotes and of answers, and means over answers."""
    quotes = [(quote, answer.sentences) for answer in answers for quote in answer.quotes]
    verbatim = [any(text == sentence for sentence, _ in sentences) for (text, _), sentences in quotes]
    # Only the citation of a verbatim quote can be right.
    cited = [quote in sentences for (quote, sentences), exists in zip(quotes, verbatim, strict=True) if exists]
    wanted = [any(text == answer.wanted for text, _ in answer.quotes) for answer in answers if answer.wanted]
    values = {
        "answers": float(len(answers)),
        "quotes": float(len(quotes)),
        "quotes_verbatim": _mean(verbatim),
        "citations_right": _mean(cited),
        "answers_exact": _mean([answer.text == answer.ideal for answer in answers]),
        "stopped": _mean([answer.stopped for answer in answers]),
        "looping": _mean([bool(loop_tokens(answer.tokens)) for answer in answers]),
        "says_no_answer": _mean([answer.text == NO_ANSWER for answer in answers]),
        "tokens": _mean([len(answer.tokens) for answer in answers]),
        "trie_tau": _mean([answer.tau for answer in answers]),
    }
    return values | ({"wanted_sentence_quoted": _mean(wanted)} if wanted else {})


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def lane_taus(target: Target, sources: Sequence[Source], seed: int) -> dict[str, float]:
    """The mean tokens per step of each lane on a few marked samples."""
    task = QuotingTask(sources, seed)
    samples = [task.sample(PASSAGE_WORDS) for _ in range(LANE_ANSWERS)]
    prompts = [prompt_ids(target.tokenizer, sample.documents, sample.question) for sample in samples]
    return {lane: _mean([decode(target, prompt, lane)[2] for prompt in prompts]) for lane in LANES}


def main(model_folder: Path | None, work: Path, text: Path, *, samples: int, seed: int, as_json: bool) -> None:
    """Evaluate a model; print a summary, and the first answers that differ from the ideal ones.

    Without `model_folder`, the model is the checkpoint in `work`. `text`: the training text, see `read_sources`. Raises
    InputError.
    """
    folder = model_folder or work
    if not (folder / "tokenizer.json").exists():
        raise InputError(f"{folder} holds no tokenizer; give the folder of a trained model.")
    _, held_out = split_titles(read_sources(text))
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if model_folder:
        model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    else:
        model = load_checkpoint(folder)
    target = Target(model.float(), tokenizer, str(folder))
    cases = make_cases(held_out, samples, seed)
    answers = {
        "marked": list(marked_answers(target, held_out, samples, seed)),
        "asked": list(asked_answers(target, cases, paraphrased=False)),
        "paraphrased": list(asked_answers(target, cases, paraphrased=True)),
    }
    groups = {name: summarise(group) for name, group in answers.items()}
    groups["tau"] = lane_taus(target, held_out, seed)
    if as_json:
        print(json.dumps(groups))
        return
    for name, values in groups.items():
        print(name)
        for key, value in values.items():
            print(f"  {key:24} {value:8.3f}")
    for name, group in answers.items():
        for wrong in [answer for answer in group if answer.text != answer.ideal][:4]:
            # Answers begin with a space.
            print(f"\n{name}: {wrong.question}\nshould be{wrong.ideal}\nis       {wrong.text}")
