"""Serves the page immediately, and loads the model in the background."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specrace.core.bundled import ASSETS, BUNDLED_MODEL, CORPUS, QUESTIONS, RECORDINGS
from specrace.core.errors import DeviceError, InputError
from specrace.lab.advice.exports.specrace import read_settings
from specrace.model.weights.names import must_fetch
from specrace.retrieval.embedder import DEFAULT_EMBEDDER
from specrace.retrieval.rerank import LIGHT, NONE
from specrace.retrieval.store import read_head
from specrace.ui.races import zero_gpu

if TYPE_CHECKING:
    import gradio as gr
    from starlette.applications import Starlette

    from specrace.ui.races.model_choices import ModelChoices
    from specrace.ui.races.worker import Worker
    from specrace.ui.server.guard import Hosts
    from specrace.ui.server.telemetry import Telemetry
    from specrace.ui.server.visitors import Visitors
    from specrace.workbench import Workbench

# Time for a stopped race to end: it takes at most a step of its slowest lane.
JOIN_LIMIT_S = 3.0
FETCH_POLL_S = 0.5
DTYPES = ("float32", "bfloat16", "float16", "int8")
FIRST_QUESTIONS = (
    "What is the n-gram trie built from?",
    "Explain how Jacobi decoding works.",
    "Why does bread rise?",
    "What causes the tides?",
)


def serve(options: argparse.Namespace) -> int:
    """Serve the page until SIGTERM or SIGINT, and return the exit code. Raises InputError for unusable options."""
    from specrace.ui.page.audience import find_network_address
    from specrace.ui.server.folder import upload_folder
    from specrace.ui.server.guard import Hosts
    from specrace.ui.server.http_server import LOG_FORMAT, Server, configure_logging, exit_on_sigterm, open_sockets, run

    if zero_gpu.is_enabled():
        zero_gpu.imitate_cuda()
    # The processes that parse visitors' files inherit the environment, and must not see the password.
    os.environ.pop("SPECRACE_AUTH", None)
    host = options.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    sockets = open_sockets(host, options.port)
    os.environ[LOG_FORMAT] = options.log
    configure_logging()
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    if options.no_fetch or all(Path(name).exists() for name in _model_names(options)):
        stay_offline()
    with exit_on_sigterm(), upload_folder() as folder:
        # All that visitors send is stored in this folder.
        os.environ["GRADIO_TEMP_DIR"] = folder
        bound = [host, *(listening.getsockname()[0] for listening in sockets)]
        network_address = find_network_address(bound, sockets[0].getsockname()[1])
        app, worker, end_work = build_app(options, Hosts(bound, options.allowed_hosts), network_address)
        if worker is not None:
            if zero_gpu.is_enabled():
                worker.open()
                zero_gpu.report_started(app.state.page, sockets[0].getsockname()[1])
            worker.start()
        print("\n".join(greeting(address(sockets), network_address, options.root_path)), flush=True)
        if options.mcp:
            print(f"MCP tools: {address(sockets)}/gradio_api/mcp/", flush=True)
        code = run(Server(app, end_work, options.proxies), sockets)
    if worker is not None and not worker.join(JOIN_LIMIT_S):
        # The interpreter would crash at its end under a thread that still loads a model or computes.
        sys.stdout.flush()
        os._exit(code)
    return code


def _model_names(options: argparse.Namespace) -> list[str]:
    """The folders or hub names of all models that may be loaded."""
    reranker = None if options.reranker in (NONE, LIGHT) else options.reranker
    embedder = None if options.index is None else read_head(options.index).embedder
    if embedder == DEFAULT_EMBEDDER:
        embedder = None
    names = (options.model, options.draft_model, reranker, embedder, *(options.models or ()))
    return [name for name in names if name is not None]


def stay_offline() -> None:
    """Make the Hugging Face library offline, even if it has been imported already."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def build_app(
    options: argparse.Namespace, hosts: Hosts, network_address: str = ""
) -> tuple[Starlette, Worker | None, Callable[[], None]]:
    """Build the app, its worker (not started yet; None for a replay), and a function that ends the work of both.

    `network_address` is the server's URL on its network, for phones.
    """
    import gradio as gr
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    from specrace.ui.api.endpoints import TOOL_TYPES
    from specrace.ui.page.audience import Audience
    from specrace.ui.page.gradio_private import password_check, serve_tools
    from specrace.ui.page.page import mount_options
    from specrace.ui.server.guard import Guard
    from specrace.ui.server.proxy_path import BelowPath
    from specrace.ui.server.telemetry import Telemetry, operator_routes
    from specrace.ui.server.visitors import VisitorLimits, Visitors

    limits = {field.name: getattr(options, field.name) for field in dataclasses.fields(VisitorLimits)}
    visitors, telemetry = Visitors(VisitorLimits(**limits)), Telemetry()
    worker: Worker | None = None
    models: ModelChoices | None = None
    if options.replay is not None:
        page = _build_replay(options.replay, visitors)
    else:
        page, worker, models = _build_live(options, visitors, telemetry)
    routes = operator_routes(telemetry, lambda: "ready" if worker is None else worker.state, options.metrics)
    place = {"root_path": options.root_path, "frame_ancestors": options.frame_ancestors}
    below_path = Middleware(BelowPath, root_path=options.root_path)
    guard = Middleware(Guard, hosts=hosts, visitors=visitors, mcp=options.mcp)
    app = Starlette(routes=routes, middleware=[below_path, guard])
    audience = Audience(hosts, network_address, root_path=options.root_path)
    mounting = mount_options(page, visitors, audience, telemetry, worker, models, mcp=options.mcp, **place)
    gr.mount_gradio_app(app, page, "/", auth=password_check(options.auth), **mounting)  # type: ignore[arg-type]
    if options.mcp:
        serve_tools(page, TOOL_TYPES)
    # Gradio checks the paths of files only on a page that was launched.
    page.has_launched = True
    app.state.page = page
    return app, worker, partial(_end_work, app.routes[-1].app, worker)  # type: ignore[attr-defined]


def _end_work(mounted: Any, worker: Worker | None) -> None:
    """End the work of the page's app, and of its worker."""
    mounted.stop_event.set()
    if worker is not None:
        worker.close()


def _build_replay(recording: Path, visitors: Visitors) -> gr.Blocks:
    """A page that plays one recording. Raises InputError if the recording cannot be shown."""
    from specrace.ui.helper.gallery import Gallery
    from specrace.ui.page.page import build_replay
    from specrace.views.recording_check import read_recording

    # A gallery would leave a bad recording out without an error.
    read_recording(recording)
    return build_replay(Gallery([recording]), visitors)


def _build_live(
    options: argparse.Namespace, visitors: Visitors, telemetry: Telemetry
) -> tuple[gr.Blocks, Worker, ModelChoices]:
    """A page that races, with the worker behind it and the models on offer."""
    from specrace.ui.helper.fetcher import Fetcher
    from specrace.ui.helper.gallery import Gallery
    from specrace.ui.page.page import build_page
    from specrace.ui.page.settings_panel import recommended_preset
    from specrace.ui.races.model_choices import ModelChoices
    from specrace.ui.races.worker import Worker

    models = ModelChoices(offered_models(options), () if zero_gpu.is_enabled() else DTYPES)
    fetcher = None if options.model_to_fetch is None else Fetcher(options.model_to_fetch, models.offer, options.offline)
    worker = Worker(loader(options), visitors.limits, fetcher, telemetry)
    preset = None if options.settings is None else recommended_preset(read_settings(options.settings))
    page = build_page(worker, example_questions(options), Gallery.in_folder(RECORDINGS), models, visitors, preset)
    return page, worker, models


def greeting(local_address: str, network_address: str, root_path: str = "") -> list[str]:
    """What the server prints at its start: its address for this machine, and the one for others, if that differs."""
    lines = [f"specrace serves {local_address}{root_path}"]
    if network_address not in ("", local_address):
        lines.append(f"Others on this network open {network_address}{root_path}")
    return lines


def address(sockets: Sequence[socket.socket]) -> str:
    """The page's URL for a browser on this machine."""
    host, port = sockets[0].getsockname()[:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def loader(options: argparse.Namespace) -> Callable[[Callable[[str], None]], Workbench]:
    """The function with which the worker loads its workbench; its argument is a callback for the progress.

    It imports torch itself, so that the page is served before this slow import.
    """

    def load(on_progress: Callable[[str], None]) -> Workbench:
        on_progress("Loading the model")
        import transformers.utils.logging

        from specrace.model.machine.memory import use_processors
        from specrace.ui.races.model_choices import ModelChoices

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # One processor stays free for the page, and for a browser on this machine.
        use_processors(options.threads, spare=1)
        workbench, problem = _open_workbench(options, on_progress)
        if zero_gpu.is_enabled():
            workbench.runner = zero_gpu.make_runner(workbench.target)
        on_progress(ModelChoices().describe_ready(workbench) + problem)
        return workbench

    return load


def _open_workbench(options: argparse.Namespace, on_progress: Callable[[str], None]) -> tuple[Workbench, str]:
    """Open the workbench; if that fails on the device, or with a default model, open a substitute.

    Returns the workbench and what to add to the status: "" or the reason for the substitute.
    """
    from specrace.workbench import Workbench

    settings = {
        "documents": [options.corpus],
        "index": options.index,
        "reranker": options.reranker,
        "device": options.device,
        "dtype": options.dtype,
        "adapter": options.adapter,
        "draft_model": options.draft_model,
        "keep_outputs": options.keep_outputs,
        "ready": not zero_gpu.is_enabled(),
        "lean": True,
        "on_progress": on_progress,
    }
    try:
        for name in (options.model, options.draft_model):
            if name is not None and must_fetch(name):
                fetch(name, options.offline, on_progress)
        return Workbench.open(model=options.model, **settings), ""
    except DeviceError as error:
        # Races are slower on the CPU, but the page works.
        settings["device"] = "cpu"
        return Workbench.open(model=options.model, **settings), f". {error} It races on the CPU meanwhile."
    except InputError as error:
        # A model that the user named is never replaced by the bundled one.
        if not options.is_default_model or Path(options.model) == BUNDLED_MODEL:
            raise
        return Workbench.open(**settings), f". {error}"


def fetch(name: str, offline: str, on_progress: Callable[[str], None]) -> None:
    """Fetch a model, and wait until it is there. Raises InputError."""
    from specrace.ui.helper.fetcher import Fetcher

    fetcher = Fetcher(name, offline=offline)
    fetcher.start()
    try:
        while not fetcher.wait(FETCH_POLL_S):
            on_progress(fetcher.text)
        if not fetcher.ready:
            raise InputError(fetcher.text)
    finally:
        fetcher.close()


def offered_models(options: argparse.Namespace) -> dict[str, str | Path]:
    """The models that a visitor may choose: the server's default, and those of --models or else the bundled ones.

    A folder is offered under its name, preceded by as many parent folders as make it differ from the others.
    """
    bundled = [str(path.parent) for path in sorted(ASSETS.glob("*/config.json"))]
    models = [options.model, *(bundled if options.models is None else options.models)]
    unique: dict[Path, str] = {}
    for model in models:
        # The same folder may be written in several ways.
        unique.setdefault(Path(model).resolve(), model)
    paths = [Path(model).absolute().parts if Path(model).exists() else (model,) for model in unique.values()]
    return {_shortest_unique_end(path, paths): model for path, model in zip(paths, unique.values(), strict=True)}


def _shortest_unique_end(path: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> str:
    """The shortest end of a path that is not the end of another path."""
    for count in range(1, len(path)):
        end = path[-count:]
        if sum(other[-count:] == end for other in paths) == 1:
            return str(Path(*end))
    return str(Path(*path))


def example_questions(options: argparse.Namespace) -> list[str]:
    """Questions that the bundled documents answer; none for other documents."""
    if options.index or options.corpus.resolve() != CORPUS or not QUESTIONS.is_file():
        return []
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines if line.strip()]
    first = [question for question in FIRST_QUESTIONS if question in questions]
    return first + [question for question in questions if question not in first]
