"""What the commands that run a model have in common: their arguments, and what these make."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specrace.cli.models import fetched
from specrace.cli.terminal import complain, console, quiet_model_library
from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.spec import SPEC_SETTINGS, RaceSpec
from specrace.lab.exports.specrace import read_settings
from specrace.model.names import NAMES
from specrace.retrieval.rerank import LIGHT

if TYPE_CHECKING:
    from specrace.workbench import Workbench

LaneOptions = dict[str, dict[str, str]]
MODEL_HELP = f"a folder, a hub id, or one of {', '.join(NAMES)}; default: tiny, the bundled model"
ADAPTER_HELP = "a LoRA adapter to merge, a folder in PEFT's format; default: the shipped one, where it fits the model"
RERANKER_HELP = (
    "a cross-encoder (a folder, a hub id, or bge-reranker-v2-m3) orders the best 100 passages; light (the default) "
    "re-scores an approximate index's by their vectors, none leaves them"
)
OPTION_HELP = "an option of a lane, such as trie.n=5; the command lanes lists them"
DEVICES = ("cpu", "cuda", "auto")
DEVICES_HELP = "auto: the GPU if there is one; with several the model is spread over them (default %(default)s)"


class Parser(argparse.ArgumentParser):
    """Unlike argparse's own, an error is one sentence."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")
        self.exit(2)


def lane_names(given: str) -> tuple[str, ...]:
    """The names in "trie, rest": ("trie", "rest"), each once. Raises InputError for an unknown lane or none at all."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise InputError(f"--lanes names no lane; choose from {', '.join(METHODS)}.")
    for name in names:
        find_method(name)
    return names


def lane_options(given: Iterable[str]) -> LaneOptions:
    """["trie.n=13"] as {"trie": {"n": "13"}}. Raises InputError for another form or an unknown lane."""
    found: LaneOptions = {}
    for text in given:
        key, equals, value = text.partition("=")
        lane, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise InputError(f"--option {text!r} is not of the form LANE.KEY=VALUE, for instance trie.n=13.")
        find_method(lane)
        found.setdefault(lane, {})[name] = value
    return found


def under_torchrun() -> bool:
    """Whether torchrun started this process as one of several: then they hold a model together."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it runs."""
    parser.add_argument("--model", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", choices=DEVICES, help=DEVICES_HELP)
    parser.add_argument(
        "--dtype", help="float32 (default on a CPU), bfloat16 (default on a GPU), float16, or int8 on a CPU"
    )
    parser.add_argument("--adapter", default="auto", metavar="auto|none|DIR", help=ADAPTER_HELP)


def add_documents_arguments(parser: argparse.ArgumentParser) -> None:
    """Which documents, and what of them is in a prompt."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--docs", type=Path, nargs="+", help="files or folders; default: the bundled documents")
    add_search_arguments(parser, given, "--docs")
    for name in ("passages", "noise"):
        add_setting(parser, name)


def add_search_arguments(parser: argparse.ArgumentParser, given: Any, documents: str) -> None:
    """The index instead of documents, in the group `given`, and how is searched."""
    given.add_argument("--index", type=Path, metavar="INDEX", help=f"what `index` made, instead of {documents}")
    parser.add_argument("--reranker", default=LIGHT, metavar="none|light|NAME", help=RERANKER_HELP)


def add_race_arguments(parser: argparse.ArgumentParser, lanes: Sequence[str]) -> None:
    """What is raced on which documents; `lanes` are the default."""
    add_documents_arguments(parser)
    parser.add_argument(
        "--lanes", default=",".join(lanes), help=f"comma-separated, of {', '.join(METHODS)}; vanilla always runs"
    )
    add_model_arguments(parser)
    parser.add_argument("--settings", type=Path, metavar="FILE.json", help="in place of --lanes: what recommend wrote")
    parser.add_argument("--draft-model", help="for the lane draft-model: a smaller model with the same vocabulary")
    for name in SPEC_SETTINGS:
        add_setting(parser, name)
    parser.add_argument("--option", action="append", default=[], metavar="LANE.KEY=VALUE", help=OPTION_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """The argument of one setting. It stays the text that was given: `RaceSpec` reads and checks it."""
    setting = SETTINGS[name]
    default = "auto" if setting.default is None else setting.default
    words = f"{setting.help[:1].lower()}{setting.help.rstrip('.')[1:]} ({setting.range()}; default {default})"
    parser.add_argument(f"--{name.replace('_', '-')}", default=setting.default, help=words.replace("%", "%%"))


def race_spec(options: argparse.Namespace) -> RaceSpec:
    """The spec of a command's arguments. Raises InputError."""
    given = {name: getattr(options, name) for name in SPEC_SETTINGS}
    if options.settings is None:
        return RaceSpec(lane_names(options.lanes), options=lane_options(options.option), **given)
    found = read_settings(options.settings)
    name, number = found.pop("method"), found.pop("num_draft")
    return RaceSpec((name,), options={name: found}, **given | {"num_draft": number})


def open_workbench(options: argparse.Namespace) -> Workbench:
    """The workbench of a command's arguments. Its import brings torch, which other commands can do without."""
    from specrace.workbench import Workbench

    quiet_model_library()
    notes = console(stderr=True)
    notes.quiet = options.json
    return Workbench.open(
        model=fetched(options.model, quiet=options.json) or BUNDLED_MODEL,
        documents=options.docs or (CORPUS,),
        index=options.index,
        reranker=options.reranker,
        device=options.device,
        dtype=options.dtype,
        draft_model=fetched(options.draft_model, quiet=options.json),
        adapter=options.adapter,
        followers=options.followers,
        on_progress=lambda message: notes.print(f"{message} ...", style="dim"),
        skip=lambda sentence: complain(f"Left out: {sentence}"),
    )
