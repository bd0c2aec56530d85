"""`python -m specrace answers`: a model's answers, and how many loop, end by themselves, and keep to the passages."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specrace.cli.shared.arguments import (
    add_documents_arguments,
    add_json_argument,
    add_model_arguments,
    add_setting,
    add_transcripts_argument,
)
from specrace.cli.shared.opening import open_workbench
from specrace.cli.shared.questions import AUTO, FORMS, auto_count, draw_questions, read_questions, report_cuts
from specrace.cli.shared.servers import AnswerQuestion, answering, server_of
from specrace.cli.shared.terminal import clean, console, print_json
from specrace.core.bundled import OPEN_QUESTIONS, QUESTIONS
from specrace.core.metrics import loop_tokens
from specrace.core.settings import SETTINGS
from specrace.engine.spec import RaceSpec
from specrace.lab.logs.transcripts import write_transcripts
from specrace.servers.address import KEY_VARIABLE, parse_server
from specrace.views.thoughts import describe_thoughts

if TYPE_CHECKING:
    from specrace.answers import Answer

# Question set -> its file, and how many passages go into a prompt (None: as many as the model's prompt style says).
SETS: dict[str, tuple[Path, int | None]] = {"documents": (QUESTIONS, None), "open": (OPEN_QUESTIONS, 0)}


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
    parser.add_argument(
        "--server",
        metavar="NAME=URL",
        help="let a running vLLM, SGLang or llama.cpp server answer, which must serve this model; its key is in "
        f"{KEY_VARIABLE}",
    )
    add_transcripts_argument(parser)
    add_json_argument(parser)
    # `open_workbench` reads `draft_model`, and this command has no --draft-model.
    parser.set_defaults(draft_model=None)


def run(options: argparse.Namespace) -> int:
    """Answer every question greedily; show the answers and a summary. Raises InputError."""
    # Imported here, because it imports torch, which other commands do not need.
    from specrace.answers import answer_question, prepare, summarise

    source = options.questions or (AUTO if options.docs or options.index else "documents")
    file, passages = SETS.get(source, (Path(source), None))
    passages = SETTINGS["passages"].check(passages if options.passages is None else options.passages)
    noise = SETTINGS["noise"].check(options.noise)
    # `answer_question` may decode with the lane trie, so the context must have room for its drafts.
    spec = RaceSpec(("trie",), max_new_tokens=options.max_new_tokens)
    address = None if options.server is None else parse_server(options.server)
    count = auto_count(source)
    # With "auto", questions are drawn below, once the workbench has read the documents.
    questions = [] if count else read_questions(file)
    workbench = open_workbench(options)
    # No question was read only if there is a `count`; `or 0` is for the type checker.
    questions = questions or draw_questions(workbench.documents, count or 0)
    out = console()
    answers: list[Answer] = []
    out.quiet = options.json
    # All prompts are built first, so that a bad question ends the command before any answer is generated.
    prepared = [prepare(workbench, question, spec, passages, noise, on_cuts=report_cuts) for question in questions]
    with ExitStack() as stack:
        answer: AnswerQuestion = partial(answer_question, workbench, spec=spec)
        if address is not None:
            answer = stack.enter_context(answering(address, workbench, spec))
        for question in prepared:
            answers.append(answer(question))
            _show(out, answers[-1])
    if options.save_transcripts is not None:
        rows = ((answer.id, answer.prompt, answer.output, answer.measured) for answer in answers)
        write_transcripts(options.save_transcripts, rows, file.stem)
    about = {name: workbench.target.describe()[name] for name in ("model", "dtype", "device", "versions")} | server_of(
        answers[0]
    )
    summary = summarise(answers)
    out.print(_summary_sentence(file.stem, summary), style="bold")
    if options.json:
        print_json(about | {"questions": file.name, **summary, "answers": [answer.as_json() for answer in answers]})
    return 0


def _show(out: Any, answer: Answer) -> None:
    """Print a question, its answer, and the answer's size and faults."""
    facts = [f"{len(answer.output)} tokens" + ("" if answer.end == "eos" else ", cut at the limit")]
    if loop_tokens(answer.output):
        facts.append("loops")
    elif answer.repeats:
        facts.append("repeats a sentence")
    if answer.grounded is not None:
        facts.append(f"groundedness {answer.grounded:.0%}")
    out.print(f"{answer.id}. {clean(answer.question)}", style="bold")
    if answer.thoughts:
        out.print(describe_thoughts(answer.thoughts), style="dim")
    out.print(clean(answer.text))
    out.print("; ".join(facts), style="dim")


def _summary_sentence(name: str, summary: dict[str, Any]) -> str:
    facts = [
        f"{summary[key]:.0%} {words}"
        for key, words in (("loops", "loop"), ("repeats", "repeat a sentence"), ("stops", "stop by themselves"))
    ]
    if summary["grounded"] is not None:
        facts.append(f"{summary['grounded']:.0%} keep to the passages")
    sizes = f"on average {summary['mean_tokens']:.0f} tokens after a prompt of {summary['mean_prompt_tokens']:.0f}"
    return f"{clean(name)}, {summary['count']} answers: {', '.join(facts)}; {sizes}."
