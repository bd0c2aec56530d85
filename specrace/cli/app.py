"""`specrace app` and `python app.py`: serve the page. The arguments are checked before anything is loaded."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from specrace.cli import space
from specrace.cli.shared.arguments import (
    ADAPTER_HELP,
    DEVICES,
    DEVICES_HELP,
    MODEL_HELP,
    Parser,
    add_drafting_arguments,
    add_search_arguments,
    under_torchrun,
)
from specrace.cli.shared.networks import check_hosts, check_networks, check_origins, read_root_path
from specrace.cli.shared.servers import add_server_argument, check_together, named_servers
from specrace.cli.shared.terminal import complain, exit_code, standard_streams
from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.errors import InputError, shorten
from specrace.core.settings import SETTINGS
from specrace.lab.advice.exports.specrace import read_settings
from specrace.lab.advice.forecast import is_twin
from specrace.model.weights.names import PREFERRED
from specrace.model.weights.source import ModelChoice, ModelSource, find_source, named_source
from specrace.retrieval.documents import read_documents
from specrace.retrieval.store import StoredIndex
from specrace.ui.config import DTYPES, ServerConfig
from specrace.ui.races import zero_gpu
from specrace.ui.serve import serve
from specrace.ui.server.visitors import THIS_MACHINE
from specrace.ui.visitor_limits import VisitorLimits

MAX_THREADS = 1024  # against a typing error
MAX_SHARE_HOURS = 8760  # a year
LOG_FORMATS = ("text", "json")
# Field of `VisitorLimits` -> its flag, its maximum (a guess, except for tokens), and its help.
LIMITS = {
    "queue": ("--queue", 1000, "races that may wait"),
    "race_tokens": (
        "--race-tokens",
        int(SETTINGS["max_new_tokens"].bounds(shared=True)[1]),
        "new tokens that a race may ask for",
    ),
    "uploads_per_hour": (
        "--uploads-per-hour",
        10_000,
        "files that one visitor (IP address) may upload in an hour; the page uploads a log twice, to score it and to "
        "recommend settings",
    ),
    "races_per_minute": ("--races-per-minute", 10_000, "races that one visitor may start in a minute"),
    "races_at_once": (
        "--races-at-once",
        1000,
        "races that programs at one IP address may have in the queue; a page may have one",
    ),
}


class StartingModel(NamedTuple):
    """The model that the page starts with, whether it is a default, and the one to fetch in the background, if any."""

    source: ModelSource
    is_default: bool = False
    to_fetch: str | None = None


def add_parser(commands: Any) -> None:
    """Add `app` and its arguments to the subparsers `commands`."""
    add_arguments(commands.add_parser("app", help="serve the page"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python app.py`, and return its exit code: 2 for bad input, 1 for any other failure; both print a message."""
    with standard_streams():
        try:
            return run(parse(space.with_environment(sys.argv[1:] if arguments is None else arguments)))
        except (Exception, KeyboardInterrupt) as error:
            return exit_code(error, trace_command="python -m specrace --traceback app")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments of `python app.py`."""
    parser = Parser(prog="app.py", description="Race draft-and-verify decoders on your documents, on a page.")
    add_arguments(parser)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Serve the page until the process is interrupted. Raises InputError."""
    return serve(read_config(options))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `app.py` and `specrace app`, with other defaults on a Space; `--log` has its own there."""
    _add_race_arguments(parser)
    _add_model_arguments(parser)
    _add_server_arguments(parser)
    _add_visitor_arguments(parser)
    if space.is_here():
        parser.set_defaults(**{name: value for name, value in space.DEFAULTS.items() if name != "log"})


def _add_race_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose what the page races: documents, settings, or a recorded race."""
    sources = parser.add_mutually_exclusive_group()
    sources.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of documents")
    add_search_arguments(parser, sources, "--corpus")
    parser.add_argument(
        "--settings", type=read_settings, metavar="FILE.json", help="a file that recommend wrote: a page opens with it"
    )
    parser.add_argument(
        "--keep-outputs",
        action="store_true",
        help="fusion and suffix decoding (and recycling with recycling.warm) also draft from earlier answers to other "
        "questions, of any visitor; not for a public server",
    )
    add_server_argument(parser)
    parser.add_argument(
        "--replay",
        nargs="+",
        type=Path,
        metavar="FILE.jsonl",
        help="only play recorded races, one after the other, and the tour; loads no model",
    )


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the models and their device."""
    # The page has another default than the commands, so that of MODEL_HELP is cut off.
    default = f"default: {PREFERRED}, fetched in the background; until then the page races with the bundled model, tiny"
    parser.add_argument("--model", help=f"{MODEL_HELP.partition('; default')[0]}; {default}")
    parser.add_argument(
        "--no-fetch", action="store_true", help="use what is on this machine: fetch nothing, send no request to the hub"
    )
    parser.add_argument(
        "--models",
        nargs="*",
        metavar="NAME",
        help="further models that visitors may choose, which must be on this machine; default: the bundled ones, and "
        "the one fetched in the background",
    )
    add_drafting_arguments(parser)
    parser.add_argument("--device", default="cpu", choices=DEVICES, help=DEVICES_HELP)
    parser.add_argument(
        "--threads", type=int, help="threads for forwards on a CPU; default: all but one, which the page needs"
    )
    parser.add_argument("--adapter", default="auto", metavar="auto|none|DIR", help=ADAPTER_HELP)
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32 on a CPU, bfloat16 on a GPU")


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the page is served, and to whom."""
    parser.add_argument("--host", help="the address to serve on; default: this machine only")
    parser.add_argument("--port", type=int, help="default: the first free port from 7860")
    parser.add_argument(
        "--allowed-hosts",
        nargs="+",
        default=[],
        metavar="NAME",
        help="further names under which browsers may request the page, such as a proxy's; always allowed: localhost, "
        "--host, this machine's name, and a Space's name",
    )
    parser.add_argument(
        "--root-path",
        default=os.environ.get("GRADIO_ROOT_PATH", ""),
        metavar="/PATH",
        help="the path below which a proxy serves the page, such as /tools/specrace; default: the environment's "
        "GRADIO_ROOT_PATH, else none",
    )
    parser.add_argument(
        "--frame-ancestors",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help="sites whose pages may show the page in a frame, such as https://portal.example.com; default: none; on a "
        "Space, Hugging Face's",
    )
    parser.add_argument(
        "--proxies",
        nargs="+",
        default=[],
        metavar="NETWORK",
        help="addresses and networks of your proxies, which name the visitor in X-Forwarded-For and the page's address "
        "in X-Forwarded-Proto and -Host; not needed for a Space's proxy; behind a proxy that is not named, all "
        "visitors count as one",
    )
    _add_watching_arguments(parser)


def _add_watching_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say who may sign in, who may read the metrics, and what is logged."""
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=THIS_MACHINE,
        metavar="NETWORK",
        help="addresses and networks that may read /metrics, but not through a proxy; default: this machine only",
    )
    parser.add_argument(
        "--log",
        default=os.environ.get("SPECRACE_LOG", space.DEFAULTS["log"] if space.is_here() else "text"),
        choices=LOG_FORMATS,
        help="what goes to standard error; text: failures; json: failures and each race's counts, one JSON object a "
        "line; default: the environment's SPECRACE_LOG, else text",
    )
    parser.add_argument(
        "--auth",
        default=os.environ.get("SPECRACE_AUTH"),
        metavar="USER:PASSWORD",
        help="what visitors sign in with; default: the environment's SPECRACE_AUTH, which other users of this machine "
        "do not see",
    )


def _add_visitor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that limit what visitors and programs may do."""
    parser.add_argument(
        "--no-uploads", dest="uploads", action="store_false", help="take no documents, logs or recordings from visitors"
    )
    parser.add_argument(
        "--keep-shares",
        type=int,
        default=0,
        metavar="HOURS",
        help="let visitors share a race by a short link: the server keeps the race for this many hours, or until the "
        "server ends; default: no short links, but long ones that contain the race",
    )
    parser.add_argument(
        "--mcp", action="store_true", help="offer the API's endpoints to agents as MCP tools; needs specrace[mcp]"
    )
    for name, (flag, _, meaning) in LIMITS.items():
        help_text, default = f"{meaning}; default: %(default)s", getattr(VisitorLimits, name)
        parser.add_argument(flag, dest=name, type=int, default=default, metavar="N", help=help_text)


def read_config(options: argparse.Namespace) -> ServerConfig:
    """Check the arguments as far as possible without loading a model, and choose the models. Raises InputError."""
    if under_torchrun():
        raise InputError("The page runs in one process: start it without torchrun; --device auto takes all GPUs.")
    _check_server(options)
    check_together(options)
    space.check_zero_gpu(options)
    if options.mcp and find_spec("mcp") is None:
        raise InputError("--mcp needs the package mcp; install specrace[mcp], or leave it out.")
    if options.replay is None:
        return _race_config(options)
    if options.server:
        raise InputError("--server races beside a model, and --replay loads none; leave out one of the two.")
    if options.mcp:
        raise InputError("--mcp offers nothing with --replay, which loads no model; leave out one of the two.")
    # The bundled model only fills the field: a recording is played without a model.
    return _config(options, StartingModel(find_source(BUNDLED_MODEL)))


def _race_config(options: argparse.Namespace) -> ServerConfig:
    """Check the arguments of a page that races: its settings, models and documents. Raises InputError."""
    lane = None if options.settings is None else options.settings["method"]
    # A twin reproduces another engine's drafter, for forecasts.
    if lane is not None and is_twin(lane):
        raise InputError(f"The page has no lane {lane}; race it on the command line.")
    model = choose_starting_model(options)
    drafts = [find_model(name, options) for name in options.draft_model or ()]
    # None: the default of --models. On ZeroGPU (see `choose_starting_model`) visitors may choose no other model.
    names = () if zero_gpu.is_enabled() else options.models
    models = None if names is None else [str(find_present(name).location) for name in names]
    if options.index is None:
        check_corpus(options.corpus)
    else:
        StoredIndex(options.index)  # raises InputError for a folder that is not an index
    return _config(options, model, drafts, models, options.settings)


def _config(
    options: argparse.Namespace,
    model: StartingModel,
    drafts: Sequence[ModelSource] = (),
    models: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """The checked arguments, the chosen models (`lean`: no weights are kept twice) and the settings file's content."""
    draft = drafts[0] if drafts else None
    choice = ModelChoice(model.source, options.device, options.dtype, draft, options.adapter)
    return ServerConfig(
        model=replace(choice, lean=True, heads=tuple(options.head), more_drafts=tuple(drafts[1:])),
        is_default_model=model.is_default,
        model_to_fetch=model.to_fetch,
        models=models,
        threads=options.threads,
        no_fetch=options.no_fetch,
        offline=os.environ.get("HF_HUB_OFFLINE", ""),
        corpus=options.corpus,
        index=options.index,
        reranker=options.reranker,
        keep_outputs=options.keep_outputs,
        settings=settings,
        servers=named_servers(options.server, together=options.together),
        replay=options.replay,
        host=options.host,
        port=options.port,
        allowed_hosts=options.allowed_hosts,
        root_path=read_root_path(options.root_path),
        frame_ancestors=options.frame_ancestors,
        proxies=options.proxies,
        metrics=options.metrics,
        log=options.log,
        auth=options.auth,
        keep_shares=options.keep_shares,
        limits=VisitorLimits(**{limit.name: getattr(options, limit.name) for limit in fields(VisitorLimits)}),
        mcp=options.mcp,
    )


def _check_server(options: argparse.Namespace) -> None:
    """Raise InputError for numbers out of range and for malformed names and addresses."""
    if options.threads is not None and not 1 <= options.threads <= MAX_THREADS:
        raise InputError(f"--threads is {options.threads}; give 1 to {MAX_THREADS}.")
    for name, (flag, maximum, _) in LIMITS.items():
        if not 1 <= getattr(options, name) <= maximum:
            raise InputError(f"{flag} is {getattr(options, name)}; give 1 to {maximum}.")
    if not 0 <= options.keep_shares <= MAX_SHARE_HOURS:
        raise InputError(f"--keep-shares is {options.keep_shares}; give 0 to {MAX_SHARE_HOURS} hours.")
    if options.keep_shares and not options.uploads:
        raise InputError("--keep-shares takes visitors' races, --no-uploads takes nothing; leave out one of the two.")
    if options.log not in LOG_FORMATS:
        raise InputError(f"SPECRACE_LOG is {shorten(options.log)}; set it to {' or '.join(LOG_FORMATS)}.")
    check_hosts("--allowed-hosts", options.allowed_hosts)
    # Only checked here, where its turn is: the message must name the first wrong flag. `_config` reads the value.
    read_root_path(options.root_path)
    check_origins("--frame-ancestors", options.frame_ancestors)
    for flag, names in (("--metrics", options.metrics), ("--proxies", options.proxies)):
        check_networks(flag, names)
    if options.auth is not None and not all(part.strip() for part in options.auth.partition(":")):
        raise InputError("--auth takes USER:PASSWORD; give both.")


def choose_starting_model(options: argparse.Namespace) -> StartingModel:
    """The model of --model; without it the preferred model if it is on this machine, else the bundled one.

    While the page races with the bundled model, the other may be fetched. With --draft-model the bundled model is
    chosen, which has the draft model's vocabulary. On ZeroGPU (GPUs that Spaces share) the preferred model is fetched
    before the page is served. Raises InputError for an unusable model, and for an adapter or head of an unnamed one.
    """
    if options.model is not None:
        return StartingModel(find_model(options.model, options))
    may_fetch = options.draft_model is None and not options.no_fetch
    # Not `find_source`, which would prefer a folder of that name in the current folder.
    preferred = named_source(PREFERRED)
    if zero_gpu.is_enabled() and may_fetch and preferred.is_missing:
        return StartingModel(preferred, is_default=True)
    if options.adapter not in ("auto", "none"):
        raise InputError(f"--adapter {options.adapter} was made for one model; name that model with --model.")
    if options.head:
        raise InputError("A head was trained for one model; name the model of --head with --model.")
    if options.draft_model is None and not preferred.is_missing:
        return StartingModel(check_files(preferred), is_default=True)
    fetches = may_fetch and options.models is None and not zero_gpu.is_enabled()
    bundled = check_files(find_source(BUNDLED_MODEL))
    return StartingModel(bundled, is_default=True, to_fetch=PREFERRED if fetches else None)


def find_model(name: str, options: argparse.Namespace) -> ModelSource:
    """Look up a model; one that must be fetched is allowed unless --no-fetch is given. Raises InputError."""
    source = find_source(name)
    if not source.is_missing:
        return check_files(source)
    if options.no_fetch and source.gguf is None:
        raise InputError(
            f"{name} is not on this machine; leave out --no-fetch, or run: python -m specrace models get {name}."
        )
    return source


def find_present(name: str) -> ModelSource:
    """Look up a model by short name, folder or hub id. Raises InputError if it must be fetched first."""
    source = find_source(name)
    if source.is_missing:
        raise InputError(f"{name} is not on this machine; run: python -m specrace models get {name}.")
    return check_files(source)


def check_files(source: ModelSource) -> ModelSource:
    """Return the source. Raises InputError for a path without a model; a hub id is checked when its model is loaded."""
    if source.is_folder and not (Path(source.location) / "config.json").is_file():
        raise InputError(f"There is no model at {source.location}; give a folder with config.json, or a hub id.")
    return source


def check_corpus(folder: Path) -> None:
    """Raise InputError if no document can be read; print a message about each document that is left out."""
    read_documents([folder], on_skip=lambda sentence: complain(f"Left out: {sentence}"))
