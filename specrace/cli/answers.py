"""`python -m specrace answers`: shows a model's answers, and how many loop, end by themselves and are grounded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from specrace.cli.arguments import (
    add_documents_arguments,
    add_json_argument,
    add_model_arguments,
    add_setting,
    open_workbench,
)
from specrace.cli.bench import add_transcripts_argument
from specrace.cli.questions import AUTO, FORMS, auto_count, draw_questions, read_questions, report_cuts
from specrace.cli.terminal import clean, console, print_json
from specrace.core.bundled import OPEN_QUESTIONS, QUESTIONS
from specrace.core.errors import InputError
from specrace.core.files import check_destination
from specrace.core.metrics import loop_tokens
from specrace.core.settings import SETTINGS
from specrace.engine.generate import generate
from specrace.engine.spec import RaceSpec, largest_draft
from specrace.lab.logs.transcripts import write_transcripts
from specrace.retrieval.grounding import GROUNDED, groundedness
from specrace.retrieval.passages import count_words
from specrace.retrieval.prompt import Prompt
from specrace.retrieval.retriever import Hit
from specrace.retrieval.sentences import split_sentences

if TYPE_CHECKING:
    from specrace.workbench import Workbench

# The file of each question set, and how many passages go into a prompt; None lets the model's style decide.
SETS: dict[str, tuple[Path, int | None]] = {"documents": (QUESTIONS, None), "open": (OPEN_QUESTIONS, 0)}


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `end` is "eos" or "length"; `grounded` is the groundedness, None without passages.

    `documents` says which tokens of the prompt come from which document: (start, end, document's name).
    """

    id: str
    question: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    end: str
    grounded: float | None
    text: str
    documents: tuple[tuple[int, int, str], ...] = ()

    @property
    def repeats(self) -> bool:
        """Whether a sentence of four words or more occurs twice. `loop_tokens` misses loops of long paragraphs."""
        sentences = [self.text[start:end] for start, end in split_sentences(self.text)]
        long_sentences = [sentence for sentence in sentences if count_words(sentence) >= 4]
        return len(set(long_sentences)) < len(long_sentences)

    def as_json(self) -> dict[str, Any]:
        """The answer, with the numbers of tokens instead of their ids."""
        facts = {name: getattr(self, name) for name in ("id", "question", "end", "grounded", "repeats", "text")}
        counts = {"prompt_tokens": len(self.prompt), "tokens": len(self.output)}
        return facts | counts | {"loop_tokens": loop_tokens(self.output)}


def add_parser(commands: Any) -> None:
    """Add `answers` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("answers", help="show a model's answers: do they loop, stop, keep to the passages?")
    parser.add_argument(
        "--questions",
        "--prompts",
        metavar="SET|FILE|auto[:N]",
        help=f"documents: 30 about the corpus; open: 30 without documents; {FORMS}; a .jsonl file of {{question}}; "
        "default: documents, or auto with --docs or --index",
    )
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    add_transcripts_argument(parser)
    add_json_argument(parser)
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Answer every question greedily; show the answers and a summary. Raises InputError."""
    source = options.questions or (AUTO if options.docs or options.index else "documents")
    file, passages = SETS.get(source, (Path(source), None))
    passages = SETTINGS["passages"].check(passages if options.passages is None else options.passages)
    noise = SETTINGS["noise"].check(options.noise)
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    count = auto_count(source)
    lines = [] if count else read_questions(file)
    if options.save_transcripts is not None:
        check_destination(options.save_transcripts)
    workbench = open_workbench(options)
    lines = lines or draw_questions(workbench.documents, count or 0)
    out, answers = console(), list[Answer]()
    out.quiet = options.json
    # All prompts are built first, so that a bad question ends the command before the model has worked for long.
    prepared = [prepare(workbench, line["id"], line["question"], spec, passages, noise) for line in lines]
    for question in prepared:
        answers.append(answer_question(workbench, question, spec))
        _show(out, answers[-1])
    if options.save_transcripts is not None:
        rows = ((answer.id, answer.prompt, answer.output) for answer in answers)
        write_transcripts(options.save_transcripts, rows, file.stem)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype", "device", "versions")}
    summary = summarise(answers)
    out.print(_summary_sentence(file.stem, summary), style="bold")
    if options.json:
        print_json(about | {"questions": file.name, **summary, "answers": [answer.as_json() for answer in answers]})
    return 0


@dataclass(frozen=True)
class PreparedQuestion:
    """A question with its prompt, and the passages in it."""

    id: str
    question: str
    prompt: Prompt
    hits: list[Hit]


def prepare(
    workbench: Workbench, question_id: str, question: str, spec: RaceSpec, passages: int | None, noise: float = 0.0
) -> PreparedQuestion:
    """Retrieve passages for a question, and build its prompt. Raises InputError that names `question_id`."""
    try:
        hits = workbench.retrieve(question, passages, noise, spec.seed)
        prompt, hits = workbench.fitting_prompt(question, hits, spec, top=passages, noise=noise)
        report_cuts(question_id, hits)
        largest = largest_draft(spec, workbench.target.device_type, workbench.curve)
        workbench.target.check_length(len(prompt.tokens), spec.max_new_tokens, largest)
    except InputError as error:
        raise InputError(f"Question {question_id}: {error}") from error
    return PreparedQuestion(question_id, question, prompt, hits)


def answer_question(workbench: Workbench, prepared: PreparedQuestion, spec: RaceSpec) -> Answer:
    """Answer a question greedily.

    In 32 bits the lane `trie` decodes, which gives vanilla's text faster. In 16 bits vanilla decodes, because near ties
    might change the text of other lanes.
    """
    target = workbench.target
    question, prompt, hits = prepared.question, prepared.prompt, prepared.hits
    lane = "trie" if target.dtype.itemsize == 4 else "vanilla"
    steps = list(generate(target, lane, prompt.tokens, max_new_tokens=spec.max_new_tokens, curve=workbench.curve))
    output = tuple(token for step in steps for token in step.emitted)
    text = target.tokenizer.decode(list(output), skip_special_tokens=True).strip()
    texts = [f"{hit.passage.title} {hit.passage.text}" for hit in hits]
    grounded = groundedness(text, question, texts) if hits else None
    documents = document_spans(prompt, hits)
    return Answer(prepared.id, question, prompt.tokens, output, steps[-1].end, grounded, text, documents)


def document_spans(prompt: Prompt, hits: Sequence[Hit]) -> tuple[tuple[int, int, str], ...]:
    """(start, end, document's name) of the runs of a prompt's tokens that come from one document, in order."""
    documents = [None if origin is None else hits[origin.passage].passage.document for origin in prompt.origins]
    spans = list[tuple[int, int, str]]()
    start = 0
    for document, run in groupby(documents):
        end = start + sum(1 for _ in run)
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


def _show(out: Any, answer: Answer) -> None:
    facts = [f"{len(answer.output)} tokens" + ("" if answer.end == "eos" else ", cut at the limit")]
    if loop_tokens(answer.output):
        facts.append("loops")
    elif answer.repeats:
        facts.append("repeats a sentence")
    if answer.grounded is not None:
        facts.append(f"grounded {answer.grounded:.0%}")
    out.print(f"{answer.id}. {clean(answer.question)}", style="bold")
    out.print(clean(answer.text))
    out.print("; ".join(facts), style="dim")


def _summary_sentence(name: str, summary: dict[str, Any]) -> str:
    facts = [
        f"{summary[key]:.0%} {words}"
        for key, words in (("loops", "loop"), ("repeats", "repeat a sentence"), ("stops", "stop by themselves"))
    ]
    if summary["grounded"] is not None:
        facts.append(f"{summary['grounded']:.0%} are grounded")
    sizes = f"{summary['mean_tokens']:.0f} tokens after {summary['mean_prompt_tokens']:.0f} on average"
    return f"{clean(name)}, {summary['count']} answers: {', '.join(facts)}; {sizes}."
