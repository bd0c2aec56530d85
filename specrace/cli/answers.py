"""`python -m specrace answers`: a model's answers, and which of them loop, stop and keep to the passages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from specrace.cli.arguments import add_documents_arguments, add_model_arguments, add_setting, open_workbench
from specrace.cli.bench import add_transcripts
from specrace.cli.questions import AUTO, FORMS, auto_count, own_questions, read_prompts
from specrace.cli.terminal import clean, console, print_json
from specrace.core.bundled import OPEN_QUESTIONS, QUESTIONS
from specrace.core.errors import InputError
from specrace.core.files import check_destination
from specrace.core.metrics import loop_tokens
from specrace.core.settings import SETTINGS
from specrace.engine.generate import generate
from specrace.engine.spec import RaceSpec, largest_draft
from specrace.lab.transcripts import write_transcripts
from specrace.retrieval.grounding import GROUNDED, groundedness
from specrace.retrieval.passages import count_words
from specrace.retrieval.prompt import Prompt
from specrace.retrieval.retriever import Hit
from specrace.retrieval.sentences import split_sentences

if TYPE_CHECKING:
    from specrace.workbench import Workbench

# A set's file, and the passages in a prompt: as many as suit the model, or none.
SETS: dict[str, tuple[Path, int | None]] = {"documents": (QUESTIONS, None), "open": (OPEN_QUESTIONS, 0)}


@dataclass(frozen=True)
class Answer:
    """A greedy answer. `end` is "eos" or "length"; `grounded` is None without passages.

    `documents`: (start, end, document) of the prompt's tokens that stand in a passage.
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
        """Whether a sentence of four words or more stands there twice; loops of long paragraphs have no other sign."""
        sentences = [self.text[start:end] for start, end in split_sentences(self.text)]
        long = [each for each in sentences if count_words(each) >= 4]
        return len(set(long)) < len(long)

    def as_json(self) -> dict[str, Any]:
        """The answer, with counts in place of ids."""
        found = {name: getattr(self, name) for name in ("id", "question", "end", "grounded", "repeats", "text")}
        counts = {"prompt_tokens": len(self.prompt), "tokens": len(self.output)}
        return found | counts | {"loop_tokens": loop_tokens(self.output)}


def add_parser(commands: Any) -> None:
    """Add `answers` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("answers", help="a model's answers: do they loop, stop, keep to the passages?")
    words = f"documents (30 on the corpus), open (30 without documents), {FORMS}, or a JSONL file of {{question}}"
    default = "default: documents, and auto of documents of your own"
    metavar = "SET|FILE|auto[:N]"
    parser.add_argument("--questions", "--prompts", metavar=metavar, help=f"{words}; {default}")
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_setting(parser, "max_new_tokens")
    add_transcripts(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Answer every question greedily; show the answers and the shares. Raises InputError."""
    given = options.questions or (AUTO if options.docs or options.index else "documents")
    file, passages = SETS.get(given, (Path(given), None))
    passages = SETTINGS["passages"].check(passages if options.passages is None else options.passages)
    noise = SETTINGS["noise"].check(options.noise)
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    count = auto_count(given)
    lines = [] if count else read_prompts(file)
    if not all("question" in line for line in lines):
        raise InputError(f'{file} has lines without a question; give lines of {{"question": ...}}.')
    if options.save_transcripts is not None:
        check_destination(options.save_transcripts)
    workbench = open_workbench(options)
    lines = lines or own_questions(workbench.documents, count or 0)
    out, found = console(), list[Answer]()
    out.quiet = options.json
    asked = [prepare(workbench, line["id"], line["question"], spec, passages, noise) for line in lines]
    for each in asked:
        found.append(answer(workbench, each, spec))
        _show(out, found[-1])
    if options.save_transcripts is not None:
        rows = ((each.id, each.prompt, each.output) for each in found)
        write_transcripts(options.save_transcripts, rows, file.stem)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype", "device", "versions")}
    shares = summarise(found)
    out.print(_summary(file.stem, shares), style="bold")
    if options.json:
        print_json(about | {"questions": file.name, **shares, "answers": [each.as_json() for each in found]})
    return 0


@dataclass(frozen=True)
class Asked:
    """A question with its prompt."""

    id: str
    question: str
    prompt: Prompt
    hits: list[Hit]


def prepare(
    workbench: Workbench, name: str, question: str, spec: RaceSpec, passages: int | None, noise: float = 0.0
) -> Asked:
    """The question's prompt. Raises InputError with the question's id."""
    try:
        hits = workbench.retrieve(question, passages, noise, spec.seed)
        prompt, hits = workbench.fitting_prompt(question, hits, spec, top=passages, noise=noise)
        largest = largest_draft(spec, workbench.target.device_type, workbench.curve)
        workbench.target.check_length(len(prompt.tokens), spec.max_new_tokens, largest)
    except InputError as error:
        raise InputError(f"Question {name}: {error}") from error
    return Asked(name, question, prompt, hits)


def answer(workbench: Workbench, asked: Asked, spec: RaceSpec) -> Answer:
    """The greedy answer. In 32 bits the trie decodes it, with vanilla's text; in 16 bits vanilla, for near ties."""
    target, prompt, hits, question = workbench.target, asked.prompt, asked.hits, asked.question
    lane = "trie" if target.dtype.itemsize == 4 else "vanilla"
    steps = list(generate(target, lane, prompt.tokens, max_new_tokens=spec.max_new_tokens, curve=workbench.curve))
    output = tuple(token for step in steps for token in step.emitted)
    text = target.tokenizer.decode(list(output), skip_special_tokens=True).strip()
    texts = [f"{hit.passage.title} {hit.passage.text}" for hit in hits]
    grounded = groundedness(text, question, texts) if hits else None
    documents = document_spans(prompt, hits)
    return Answer(asked.id, question, prompt.tokens, output, steps[-1].end, grounded, text, documents)


def document_spans(prompt: Prompt, hits: Sequence[Hit]) -> tuple[tuple[int, int, str], ...]:
    """(start, end, document) of the tokens of a prompt that stand in one of its passages, in order."""
    names = [None if each is None else hits[each.passage].passage.document for each in prompt.origins]
    spans, at = list[tuple[int, int, str]](), 0
    for name, run in groupby(names):
        end = at + sum(1 for _ in run)
        if name is not None:
            spans.append((at, end, name))
        at = end
    return tuple(spans)


def summarise(found: Sequence[Answer]) -> dict[str, Any]:
    """Shares (0 to 1) and means over the answers; `grounded` is null without passages."""
    grounded = [each.grounded >= GROUNDED for each in found if each.grounded is not None]
    return {
        "count": len(found),
        "loops": fmean(loop_tokens(each.output) > 0 for each in found),
        "repeats": fmean(each.repeats for each in found),
        "stops": fmean(each.end == "eos" for each in found),
        "grounded": fmean(grounded) if grounded else None,
        "mean_tokens": fmean(len(each.output) for each in found),
        "mean_prompt_tokens": fmean(len(each.prompt) for each in found),
    }


def _show(out: Any, found: Answer) -> None:
    facts = [f"{len(found.output)} tokens" + ("" if found.end == "eos" else ", cut at the limit")]
    facts += ["loops"] if loop_tokens(found.output) else ["repeats a sentence"] if found.repeats else []
    facts += [] if found.grounded is None else [f"grounded {found.grounded:.0%}"]
    out.print(f"{found.id}. {clean(found.question)}", style="bold")
    out.print(clean(found.text))
    out.print("; ".join(facts), style="dim")


def _summary(name: str, shares: dict[str, Any]) -> str:
    facts = [
        f"{shares[key]:.0%} {words}"
        for key, words in (("loops", "loop"), ("repeats", "repeat a sentence"), ("stops", "stop by themselves"))
    ]
    facts += [] if shares["grounded"] is None else [f"{shares['grounded']:.0%} are grounded"]
    sizes = f"{shares['mean_tokens']:.0f} tokens after {shares['mean_prompt_tokens']:.0f} on average"
    return f"{clean(name)}, {shares['count']} answers: {', '.join(facts)}; {sizes}."
