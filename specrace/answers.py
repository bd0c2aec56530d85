"""Answers questions about documents with a model, judges the answers, and keeps them in a file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, read_text
from specrace.core.metrics import loop_tokens
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec, largest_draft
from specrace.lab.logs.transcripts import Transcript
from specrace.retrieval.grounding import GROUNDED, groundedness
from specrace.retrieval.passages import count_words
from specrace.retrieval.prompt import Prompt
from specrace.retrieval.retriever import Hit
from specrace.retrieval.sentences import split_sentences
from specrace.retrieval.store import IndexHeader
from specrace.views.detokenize import text_decoder
from specrace.views.thoughts import split_thoughts
from specrace.workbench import Workbench

# Receives a question's id and its passages, some of which may have been cut to fit into the context.
OnCuts = Callable[[str, Sequence[Hit]], object]

ANSWERS = "answers.jsonl"
_MAX_ANSWERS_BYTES = 1_000_000_000  # a guess, for a file of our own


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `prompt` and `output` are token ids. `end`: "eos" or "length".

    `grounded`: how much of the answer's wording comes from the passages (0 to 1; see `groundedness`), None without any.
    `thoughts`: what a thinking model wrote before its answer `text`; they are tokens of the output.
    `documents`: which tokens of the prompt come from which document, as (start, end, document's name). `measured`: what
    a server counted of its draft tokens; None for an answer of the workbench's own model.
    """

    id: str
    question: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    end: str
    grounded: float | None
    text: str
    documents: tuple[tuple[int, int, str], ...] = ()
    measured: Mapping[str, Any] | None = None
    thoughts: str = ""

    @property
    def repeats(self) -> bool:
        """Whether a sentence of four words or more occurs twice, as in loops too long for `loop_tokens`.

        Shorter ones, such as "Yes.", may well come twice.
        """
        sentences = [self.text[start:end] for start, end in split_sentences(self.text)]
        long_sentences = [sentence for sentence in sentences if count_words(sentence) >= 4]
        return len(set(long_sentences)) < len(long_sentences)

    def as_json(self) -> dict[str, Any]:
        """The answer, with the numbers of tokens instead of their ids."""
        facts = {name: getattr(self, name) for name in ("id", "question", "end", "grounded", "repeats", "text")}
        facts |= {"thoughts": self.thoughts} if self.thoughts else {}
        counts = {"prompt_tokens": len(self.prompt), "tokens": len(self.output)}
        return facts | counts | {"loop_tokens": loop_tokens(self.output)}


@dataclass(frozen=True)
class PreparedQuestion:
    """A question with its prompt, and the passages in it."""

    id: str
    question: str
    prompt: Prompt
    hits: list[Hit]


def prepare(
    workbench: Workbench,
    line: Mapping[str, Any],
    spec: RaceSpec,
    passages: int | None,
    noise: float = 0.0,
    *,
    on_cuts: OnCuts,
) -> PreparedQuestion:
    """Retrieve passages for a question {id, question}, and build its prompt. Raises an InputError that names the id.

    `passages` and `noise` are as in `Workbench.retrieve`.
    """
    question_id, question = line["id"], line["question"]
    try:
        prompt, hits = workbench.make_prompt(RaceRequest(question, spec, passages, noise))
        on_cuts(question_id, hits)
        largest = largest_draft(
            spec, workbench.target.device_type, workbench.curve, chains_only=workbench.target.chains_only
        )
        workbench.target.check_length(len(prompt.tokens), spec.max_new_tokens, largest)
    except InputError as error:
        raise InputError(f"Question {question_id}: {error}") from error
    return PreparedQuestion(question_id, question, prompt, hits)


def answer_question(workbench: Workbench, prepared: PreparedQuestion, spec: RaceSpec) -> Answer:
    """Answer a question greedily.

    In 32 bits the lane `trie` decodes, because it prints vanilla's text and is faster. In 16 bits vanilla decodes,
    because near ties might change the text of other lanes.
    """
    target, prompt = workbench.target, prepared.prompt
    lane = "trie" if target.dtype.itemsize == 4 else "vanilla"
    steps = list(generate(target, lane, prompt.tokens, max_new_tokens=spec.max_new_tokens, curve=workbench.curve))
    output = tuple(token for step in steps for token in step.emitted)
    return make_answer(workbench, prepared, output, steps[-1].end)


def make_answer(
    workbench: Workbench,
    prepared: PreparedQuestion,
    output: tuple[int, ...],
    end: str,
    measured: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer with these output token ids: decodes its text, and measures its groundedness.

    `end`: why the output ends, "eos" or "length".
    """
    question, prompt, hits = prepared.question, prepared.prompt, prepared.hits
    marks = workbench.find_thoughts(prompt)
    thoughts, text = split_thoughts(text_decoder(workbench.target.tokenizer, marks)(list(output)).strip(), marks)
    texts = [f"{hit.passage.title} {hit.passage.text}" for hit in hits]
    grounded = groundedness(text, question, texts) if hits else None
    documents = document_spans(prompt, hits)
    return Answer(prepared.id, question, prompt.tokens, output, end, grounded, text, documents, measured, thoughts)


def document_spans(prompt: Prompt, hits: Sequence[Hit]) -> tuple[tuple[int, int, str], ...]:
    """(start, end, document's name) of each stretch of a prompt's tokens that comes from one document, in order."""
    documents = [None if origin is None else hits[origin.passage].passage.document for origin in prompt.origins]
    spans = list[tuple[int, int, str]]()
    start = 0
    for document, stretch in groupby(documents):
        end = start + sum(1 for _ in stretch)
        if document is not None:
            spans.append((start, end, document))
        start = end
    return tuple(spans)


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Shares (0 to 1) and means over the answers; `grounded` is None without passages."""
    grounded = [answer.grounded >= GROUNDED for answer in answers if answer.grounded is not None]
    return {
        "count": len(answers),
        "loops": fmean(loop_tokens(answer.output) > 0 for answer in answers),
        "repeats": fmean(answer.repeats for answer in answers),
        "stops": fmean(answer.end == "eos" for answer in answers),
        "grounded": fmean(grounded) if grounded else None,
        "mean_tokens": fmean(len(answer.output) for answer in answers),
        "mean_prompt_tokens": fmean(len(answer.prompt) for answer in answers),
    }


def answer_once(
    workbench: Workbench,
    lines: Sequence[Mapping[str, Any]],
    spec: RaceSpec,
    passages: int | None,
    noise: float,
    *,
    about: Mapping[str, Any],
    out: Path | None,
    resume: bool,
    on_cuts: OnCuts,
) -> list[Transcript]:
    """The answers to questions {id, question, category} as transcripts, in the same order. Raises InputError.

    `about`: what else the answers depend on, such as the model and the documents. Every answer is written into the
    folder `out`, if given; with `resume`, an answer there is reused if its question and all these settings are the
    same. `passages` and `noise` are as in `Workbench.retrieve`.
    """
    file = None if out is None else out / ANSWERS
    rows = _read_answers(file) if file is not None and resume else {}
    keys = [json.dumps([line["question"], (passages, noise), about]) for line in lines]
    # All prompts are built first, so that a bad question is refused before any answer is generated.
    prepared = {
        key: prepare(workbench, line, spec, passages, noise, on_cuts=on_cuts)
        for key, line in zip(keys, lines, strict=True)
        if key not in rows
    }
    for key, line in zip(keys, lines, strict=True):
        if key not in rows:
            answer = answer_question(workbench, prepared[key], spec)
            rows[key] = {
                "id": line["id"],
                "category": str(line.get("category", "none")),
                "prompt_ids": answer.prompt,
                "output_ids": answer.output,
                "documents": answer.documents,
            }
            if file is not None:
                with as_input_error(file, "--out"), file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps({"key": key, **rows[key]}) + "\n")
    return [_transcript(rows[key], workbench.target.vocab_size) for key in keys]


def _transcript(row: Mapping[str, Any], vocab_size: int) -> Transcript:
    """The transcript in a row of the file ANSWERS."""
    prompt, output = tuple(row["prompt_ids"]), tuple(row["output_ids"])
    documents = tuple((start, end, str(name)) for start, end, name in row.get("documents", ()))
    return Transcript(row["id"], row["category"], prompt, output, vocab_size, documents)


def documents_digest(workbench: Workbench, stored: IndexHeader | None) -> str:
    """A digest of everything that retrieval depends on: the documents, how they are cut, and the embedder.

    `stored`: the header of the index on disk, if one is used. The digest then covers the header instead of the
    passages. The header has a date, so an index that was built again has another digest.
    """
    digest = hashlib.sha256(workbench.embedder.name.encode())
    for document in workbench.documents:
        digest.update(f"\0{document.name}\0{document.text}".encode("utf-8", "surrogatepass"))
    if stored is not None:
        digest.update(json.dumps(asdict(stored)).encode())
    else:
        for passage in workbench.retriever.index.passages:
            digest.update(f"\0{passage.start} {passage.end} {passage.document}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_answers(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of answers that an earlier sweep kept, by their key; an incomplete last line is removed from the file.

    Raises InputError for a file of another kind.
    """
    if not file.exists():
        return {}
    text = read_text(file, _MAX_ANSWERS_BYTES, "give another --out")
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        with as_input_error(file, "--out"):
            os.truncate(file, len(complete.encode()))
    try:
        rows = [json.loads(line) for line in complete.splitlines()]
        return {row.pop("key"): row for row in rows}
    except (ValueError, AttributeError, KeyError) as error:
        raise InputError(f"{shorten(file)} holds no answers of a sweep; give another --out.") from error
