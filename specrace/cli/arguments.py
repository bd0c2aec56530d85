"""Arguments that several commands share, and what they describe: a race's spec and a workbench."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specrace.cli.models import fetch_if_missing
from specrace.cli.terminal import complain, console, quiet_model_library
from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.spec import SPEC_SETTINGS, RaceSpec
from specrace.lab.advice.exports.specrace import read_settings
from specrace.model.weights.names import NAMES
from specrace.retrieval.rerank import LIGHT

if TYPE_CHECKING:
    from specrace.workbench import Workbench

LaneOptions = dict[str, dict[str, str]]
MODEL_HELP = f"a folder, a hub id, or one of {', '.join(NAMES)}; default: tiny, the bundled model"
ADAPTER_HELP = "a folder with a LoRA adapter to merge, in PEFT's format; auto (the default): the bundled one if it fits"
RERANKER_HELP = (
    "what reorders the best 100 passages: a cross-encoder (a folder, a hub id, or bge-reranker-v2-m3); light (the "
    "default): their exact vectors, in an approximate index; none: nothing"
)
OPTION_HELP = "an option of a lane, such as trie.n=5; the command lanes lists them; may be repeated"
DEVICES = ("cpu", "cuda", "auto")
DEVICES_HELP = "auto: the GPU if there is one, or all of them; default: %(default)s"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")
        self.exit(2)


def lane_names(text: str) -> tuple[str, ...]:
    """Parse "trie, rest" into ("trie", "rest"), without repeats. Raises InputError for an unknown lane or no lane."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InputError(f"--lanes names no lane; choose from {', '.join(METHODS)}.")
    for name in names:
        find_method(name)
    return names


def lane_options(texts: Iterable[str]) -> LaneOptions:
    """Parse ["trie.n=13"] into {"trie": {"n": "13"}}. Raises InputError for another form, and for an unknown lane."""
    options: LaneOptions = {}
    for text in texts:
        key, equals, value = text.partition("=")
        lane, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise InputError(f"--option {text!r} is not of the form LANE.KEY=VALUE, for instance trie.n=13.")
        find_method(lane)
        options.setdefault(lane, {})[name] = value
    return options


def under_torchrun() -> bool:
    """Whether torchrun started this process as one of several, which share a model."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the model and its device."""
    parser.add_argument("--model", help=MODEL_HELP)
    parser.add_argument("--device", default="cpu", choices=DEVICES, help=DEVICES_HELP)
    parser.add_argument(
        "--dtype", help="float32 (default on a CPU), bfloat16 (default on a GPU), float16, or int8 on a CPU"
    )
    parser.add_argument("--adapter", default="auto", metavar="auto|none|DIR", help=ADAPTER_HELP)


def add_documents_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the documents, and the passages in a prompt."""
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument("--docs", type=Path, nargs="+", help="files or folders; default: the bundled documents")
    add_search_arguments(parser, sources, "--docs")
    for name in ("passages", "noise"):
        add_setting(parser, name)


def add_search_arguments(parser: argparse.ArgumentParser, sources: Any, documents: str) -> None:
    """Add `--reranker`, and to the exclusive group `sources` `--index`, which replaces the flag `documents`."""
    sources.add_argument(
        "--index", type=Path, metavar="INDEX", help=f"a folder that `index` wrote, instead of {documents}"
    )
    parser.add_argument("--reranker", default=LIGHT, metavar="none|light|NAME", help=RERANKER_HELP)


def add_race_arguments(parser: argparse.ArgumentParser, lanes: Sequence[str]) -> None:
    """Add the arguments that choose a race's documents, model, lanes (by default `lanes`) and settings."""
    add_documents_arguments(parser)
    parser.add_argument(
        "--lanes", default=",".join(lanes), help=f"comma-separated: {', '.join(METHODS)}; vanilla always runs"
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--settings", type=Path, metavar="FILE.json", help="a file that recommend wrote, instead of --lanes"
    )
    parser.add_argument("--draft-model", help="for the lane draft-model: a smaller model with the same vocabulary")
    for name in SPEC_SETTINGS:
        add_setting(parser, name)
    parser.add_argument("--option", action="append", default=[], metavar="LANE.KEY=VALUE", help=OPTION_HELP)
    add_json_argument(parser)


def add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the argument of a setting. Its value stays text, which `RaceSpec` converts and checks."""
    setting = SETTINGS[name]
    default = "auto" if setting.default is None else setting.default
    sentence = f"{setting.help[:1].lower()}{setting.help.rstrip('.')[1:]} ({setting.range()}; default {default})"
    parser.add_argument(f"--{name.replace('_', '-')}", default=setting.default, help=sentence.replace("%", "%%"))


def race_spec(options: argparse.Namespace) -> RaceSpec:
    """Make the spec of a race from a command's arguments. Raises InputError."""
    values = {name: getattr(options, name) for name in SPEC_SETTINGS}
    if options.settings is None:
        return RaceSpec(lane_names(options.lanes), options=lane_options(options.option), **values)
    lane_settings = read_settings(options.settings)
    name, num_draft = lane_settings.pop("method"), lane_settings.pop("num_draft")
    return RaceSpec((name,), options={name: lane_settings}, **values | {"num_draft": num_draft})


def open_workbench(options: argparse.Namespace) -> Workbench:
    """Open the workbench that a command's arguments describe. Raises InputError."""
    # Imported here, because it imports torch, which other commands do not need.
    from specrace.workbench import Workbench

    quiet_model_library()
    notes = console(stderr=True)
    notes.quiet = options.json
    return Workbench.open(
        model=fetch_if_missing(options.model, quiet=options.json) or BUNDLED_MODEL,
        documents=options.docs or (CORPUS,),
        index=options.index,
        reranker=options.reranker,
        device=options.device,
        dtype=options.dtype,
        draft_model=fetch_if_missing(options.draft_model, quiet=options.json),
        adapter=options.adapter,
        followers=options.followers,
        on_progress=lambda message: notes.print(f"{message} ...", style="dim"),
        skip=lambda sentence: complain(f"Left out: {sentence}"),
    )
