"""Arguments that several commands share, and what they describe: a race's spec, a log."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from specrace.cli.shared.opening import find_tokenizer
from specrace.cli.shared.outputs import add_output
from specrace.cli.shared.terminal import complain
from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS, find_method
from specrace.engine.lane_name import parse_lanes
from specrace.engine.spec import SPEC_SETTINGS, RaceSpec
from specrace.lab.advice.exports.specrace import read_settings
from specrace.lab.logs.files.tables import read_columns
from specrace.lab.logs.formats import FORMATS
from specrace.lab.logs.transcripts import TranscriptFile
from specrace.retrieval.rerank import LIGHT

# Lane -> the name of its option -> the value.
LaneOptions = dict[str, dict[str, str]]
MODEL_HELP = "a folder, a GGUF file, a hub id, or a short name that `models` lists; default: tiny, the bundled model"
ADAPTER_HELP = "a folder with a LoRA adapter to merge, in PEFT's format; auto (the default): the bundled one if it fits"
RERANKER_HELP = (
    "what reorders the best 100 passages: a cross-encoder (a folder, a hub id, or bge-reranker-v2-m3); light (the "
    "default): their exact vectors, in an approximate index; none: nothing"
)
LANE_OPTIONS_HELP = "a lane may have options of its own and race more than once, as trie:n=3,trie:n=13"
OPTION_HELP = "an option of a lane, such as trie.n=5; the command lanes lists them; may be repeated"
HEAD_HELP = (
    "a trained head for the lanes that draft with one (block, eagle, hybrid, hydra, medusa, space): a folder, or an id "
    "in the hub's cache; may be repeated"
)
DRAFT_MODEL_HELP = (
    "a smaller model with the same vocabulary, for the lanes draft-model and specinfer; may be repeated for specinfer"
)
KEEP_OUTPUTS_HELP = "let lanes also draft from the outputs of earlier requests"
FORMAT_HELP = f"the log's format: {', '.join(FORMATS)}; default: recognised from the log"
DEVICES = ("cpu", "cuda", "auto")
DEVICES_HELP = "auto: all GPUs, or the CPU if there is none; default: %(default)s"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message[:1].upper()}{message[1:]}; see {self.prog} --help.")
        self.exit(2)


def lane_names(text: str) -> tuple[str, ...]:
    """Parse "trie, rest" into ("trie", "rest"). Raises InputError for no lane, an unknown lane, and equal lanes."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InputError(f"--lanes names no lane; choose from {', '.join(METHODS)}.")
    return parse_lanes(names, {})


def lane_options(texts: Iterable[str]) -> LaneOptions:
    """Parse ["trie.n=13"] into {"trie": {"n": "13"}}. Raises InputError for a wrong form and for an unknown lane."""
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
    """Add `--reranker`; and `--index` to the exclusive group `sources`, whose other member is the flag `documents`."""
    sources.add_argument(
        "--index", type=Path, metavar="INDEX", help=f"a folder that `index` wrote, instead of {documents}"
    )
    parser.add_argument("--reranker", default=LIGHT, metavar="none|light|NAME", help=RERANKER_HELP)


def add_drafting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for models that draft: smaller ones, and trained heads."""
    parser.add_argument("--draft-model", action="append", help=DRAFT_MODEL_HELP)
    add_head_argument(parser)


def add_race_arguments(parser: argparse.ArgumentParser, lanes: Sequence[str]) -> None:
    """Add the arguments that choose a race's documents, model, lanes (by default `lanes`) and settings."""
    add_documents_arguments(parser)
    parser.add_argument(
        "--lanes",
        default=",".join(lanes),
        help="comma-separated; the command lanes lists all; vanilla always runs; "
        f"{LANE_OPTIONS_HELP}; default: %(default)s",
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE.json",
        help="a file that recommend wrote, instead of --lanes, --option and --num-draft",
    )
    add_drafting_arguments(parser)
    for name in (*SPEC_SETTINGS, "thinking"):
        add_setting(parser, name)
    parser.add_argument("--option", action="append", default=[], metavar="LANE.KEY=VALUE", help=OPTION_HELP)
    add_json_argument(parser)


def add_head_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--head`."""
    parser.add_argument("--head", action="append", default=[], metavar="[LANE=]FOLDER_OR_ID", help=HEAD_HELP)


def add_setting(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the argument of a setting. Its value stays text, which `RaceSpec` or `Setting.check` converts and checks."""
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


def add_transcripts_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--save-transcripts`."""
    add_output(
        parser,
        "--save-transcripts",
        metavar="FILE.jsonl",
        help="write the token ids of the prompts and of vanilla's outputs there, for score",
    )


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how logs are read."""
    parser.add_argument("--format", default="", choices=("", *FORMATS), metavar="NAME", help=FORMAT_HELP)
    parser.add_argument(
        "--columns",
        metavar="prompt=COLUMN,output=COLUMN",
        help="which columns of a table, or fields of a line, to read; in objects by dotted names, as "
        "prompt=request.body.messages,output=response.choices.0.message; A+B joins two texts",
    )
    parser.add_argument(
        "--tokenizer", metavar="NAME_OR_PATH", help="for logs of text: a model's short name, folder, or tokenizer.json"
    )
    parser.add_argument("--vocab-size", type=int, help="token ids must be below this; default: no bound")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad lines out instead of refusing the file")


def open_log(
    options: argparse.Namespace, path: Path, requests: Path | None = None, seen: set[str] | None = None
) -> TranscriptFile:
    """Open a log as the arguments of `add_log_arguments` say. Raises InputError.

    `requests`: the other file of a batch, whose requests and responses are two files; None if the log is one file.
    `seen`: keys of the answers in logs read so far, which are not read again; the keys of this log are added.
    """
    if options.vocab_size is not None and options.vocab_size < 1:
        raise InputError(f"--vocab-size is {options.vocab_size}; give at least 1.")
    tokenizer = None if options.tokenizer is None else find_tokenizer(options.tokenizer, quiet=options.json)
    return TranscriptFile(
        path,
        tokenize=tokenizer,
        chat=None if tokenizer is None else tokenizer.chat,
        vocab_size=options.vocab_size,
        skip_bad=options.skip_bad,
        format=options.format,
        columns=None if options.columns is None else read_columns(options.columns),
        requests=requests,
        seen=seen,
    )
