"""`python -m specrace compare`: measures servers on the same questions, in turn, and says whether drafts pay there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import specrace
from specrace.cli.shared.arguments import (
    add_documents_arguments,
    add_json_argument,
    add_log_arguments,
    add_model_arguments,
    add_setting,
)
from specrace.cli.shared.comparing import Plan, Server, measure
from specrace.cli.shared.comparisons import show_comparison, show_load_tests
from specrace.cli.shared.outputs import check_folder
from specrace.cli.shared.questions import FORMS, check_question_arguments
from specrace.cli.shared.served_questions import read_served_questions
from specrace.cli.shared.terminal import print_json
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, write_atomically
from specrace.core.settings import SETTINGS
from specrace.lab.advice.exports.specrace import read_settings
from specrace.lab.advice.presets import NAMES, describe_curve, find_curve
from specrace.lab.compare.forecasts import Forecaster
from specrace.lab.compare.journal import Journal
from specrace.lab.compare.launch_flags import drafting_flags
from specrace.lab.compare.load_tests import as_rows, read_load_tests
from specrace.lab.compare.samples import Block
from specrace.lab.compare.summary import Comparison, summarise
from specrace.lab.compare.verdict import notes, verdict
from specrace.lab.plots.comparison import comparison_plots
from specrace.lab.plots.drawing import require_matplotlib, write_plots
from specrace.lab.scoring.score import ScoredLane
from specrace.servers.address import KEY_VARIABLE, PORT, Launch, parse_launch, parse_server

# The cost curve without --cost-curve.
DEFAULT_CURVE = "assumed-gpu"
MAX_REPETITIONS = 100  # against a typing error
# The file and the folder that are written into --out.
RESULT, PLOTS = "result.json", "plots"


def add_parser(commands: Any) -> None:
    """Add `compare` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("compare", help="measure servers on the same questions: do drafts pay there?")
    _add_server_arguments(parser)
    _add_question_arguments(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE.json",
        help="the second server's settings, as recommend wrote them",
    )
    parser.add_argument(
        "--cost-curve",
        default=DEFAULT_CURVE,
        metavar="NAME|FILE",
        help=f"for the forecast speedup: {NAMES}, or a file; default: {DEFAULT_CURVE}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="the comparison's folder; default: comparison",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the comparison in --out")
    parser.add_argument("--plots", action="store_true", help="draw the figures into --out/plots")
    parser.add_argument(
        "--results",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a result of vllm bench serve, guidellm or aiperf, shown beside; may be repeated, and needs no server",
    )
    add_documents_arguments(parser)
    add_model_arguments(parser)
    add_log_arguments(parser)
    add_setting(parser, "max_new_tokens")
    add_setting(parser, "seed")
    add_json_argument(parser)
    # `open_workbench` reads `draft_model`, and this command has no --draft-model.
    parser.set_defaults(draft_model=None)


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name servers, the baseline first."""
    # --server and --launch fill one list, because its first server is the baseline.
    parser.add_argument(
        "--server",
        dest="servers",
        action="append",
        type=parse_server,
        metavar="NAME=URL",
        help=f"a running vLLM, SGLang or llama.cpp server; the one without drafts first; its key in {KEY_VARIABLE}",
    )
    parser.add_argument(
        "--launch",
        dest="servers",
        action="append",
        type=parse_launch,
        metavar="NAME=COMMAND",
        help=f"a server that is started anew whenever its turn comes, with {PORT} in its command, such as "
        f'plain="vllm serve MODEL --port {PORT}"; the second one gets the flags of --settings',
    )


def _add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which questions are sent, how many at a time, and how many times."""
    parser.add_argument(
        "--prompts",
        "--questions",
        dest="questions",
        metavar="FILE|auto[:N]",
        help=f"{FORMS}; a .jsonl file of {{question}}, {{prompt}} or {{prompt_ids}}, with a category if wanted; or a "
        "log, whose prompts are sent; default: the bundled questions, or auto with --docs or --index",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="read only the first N questions")
    parser.add_argument(
        "--concurrency", default="1", metavar="N,N", help="requests at a time, such as 1,4,16; default 1"
    )
    parser.add_argument("--repetitions", type=int, default=3, help="how often the servers take turns; default 3")
    parser.add_argument(
        "--ask-once",
        action="store_true",
        help="send each question to each server only once: for drafters that keep earlier answers",
    )


def run(options: argparse.Namespace) -> int:
    """Measure the servers, show the comparison and write it. Raises InputError."""
    load_tests = as_rows([test for text in options.results for test in read_load_tests(text)])
    if load_tests and not options.servers:
        if options.json:
            print_json({"load_tests": load_tests})
        else:
            show_load_tests(load_tests)
        return 0
    check_folder(options.out, (RESULT,), options)
    if options.plots:
        require_matplotlib()
    curve, seed = find_curve(options.cost_curve), SETTINGS["seed"].check(options.seed)
    plan = read_plan(options)
    with Journal(options.out, plan.as_json(), resume=options.resume) as journal:
        measure(plan, journal, quiet=options.json)
        comparison = plan.comparison(journal)
    result = summarise(comparison, make_forecaster(plan, comparison, curve), seed)
    result |= {
        "verdict": verdict(result),
        "notes": list(notes(result)),
        "load_tests": load_tests,
        "settings": plan.as_json() | {"seed": seed, "forecast": plan.lane and plan.lane.describe()},
        "cost_curve": describe_curve(curve),
        "version": specrace.__version__,
    }
    with as_input_error(options.out, "--out"):
        write_atomically(options.out / RESULT, (json.dumps(result, ensure_ascii=False, indent=1) + "\n").encode())
        if options.plots:
            (options.out / PLOTS).mkdir(exist_ok=True)
    if options.plots:
        write_plots(options.out / PLOTS, list(comparison_plots(result)), {})
    if options.json:
        print_json(result)
    else:
        show_comparison(result)
    return 0


def make_forecaster(plan: Plan, comparison: Comparison, curve: CostCurve) -> Forecaster | None:
    """The forecasts for the second server; None without --settings."""
    if plan.lane is None:
        return None
    name = plan.names[1]
    return Forecaster(
        name,
        plan.lane,
        curve,
        comparison.questions,
        [sample for sample in comparison.samples if sample.block.server == name],
        comparison.blocks,
        vocab_size=plan.questions.vocab_size,
        restarted=name in plan.launched,
    )


def read_plan(options: argparse.Namespace) -> Plan:
    """Check the arguments, and read the questions. Raises InputError."""
    check_question_arguments(options, MAX_REPETITIONS)
    max_new_tokens = SETTINGS["max_new_tokens"].check(options.max_new_tokens)
    concurrencies = read_concurrency(options.concurrency)
    lane = None
    if options.settings is not None:
        settings = read_settings(options.settings)
        method, num_draft = settings.pop("method"), settings.pop("num_draft")
        lane = ScoredLane.of(method, settings, num_draft)
    servers = read_servers(options.servers or [], lane)
    questions = read_served_questions(options)
    plan = Plan(servers, questions, concurrencies, options.repetitions, max_new_tokens, options.ask_once, lane)
    _check_enough_questions(plan)
    return plan


def read_servers(given: Sequence[Server], lane: ScoredLane | None) -> tuple[Server, ...]:
    """The servers that were `given`, with flags added to the commands of those to launch.

    Every command gets the flags with which the server counts its steps; that of the second server also gets the
    settings of its drafter `lane`, unless it has some already. Raises InputError for fewer than two servers, two with
    one name, and what `drafting_flags` refuses.
    """
    names = [server.name for server in given]
    if len(given) < 2:
        raise InputError(
            "Give two servers or more, the one without drafts first: --server plain=URL --server spec=URL."
        )
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two servers are called {name}; give each its own name.")
    # Only the second server (index 1) drafts with `lane`.
    return tuple(
        server.with_flags(*drafting_flags(server.name, server.command, lane if index == 1 else None))
        if isinstance(server, Launch)
        else server
        for index, server in enumerate(given)
    )


def read_concurrency(text: str) -> tuple[int, ...]:
    """Parse "1,4,16". Raises InputError."""
    # Imported here, because other commands need no HTTP.
    from specrace.servers.load import MAX_CONCURRENCY

    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_CONCURRENCY for word in words):
        raise InputError(
            f"--concurrency is {shorten(text)!r}; give numbers from 1 to {MAX_CONCURRENCY} with commas, such as 1,4,16."
        )
    return tuple(dict.fromkeys(map(int, words)))


def _check_enough_questions(plan: Plan) -> None:
    """Raise InputError if a block has fewer questions than requests at a time.

    A block: the questions that a server answers in one repetition, at one concurrency.
    """
    for concurrency in plan.concurrencies:
        for repetition in range(plan.repetitions):
            count = len(plan.question_numbers(Block(plan.names[0], concurrency, repetition)))
            if count < concurrency:
                raise InputError(
                    f"--concurrency {concurrency} needs {concurrency} questions or more at a time, and there are "
                    f"{count}{' for it with --ask-once' if plan.ask_once else ''}; give more, or a lower --concurrency."
                )
