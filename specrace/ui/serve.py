"""Serve the page at once, and load the model behind it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.bundled import ASSETS, BUNDLED_MODEL, CORPUS, QUESTIONS, RECORDINGS
from specrace.core.errors import DeviceError, InputError
from specrace.lab.exports.specrace import read_settings
from specrace.model.names import must_fetch
from specrace.retrieval.embedder import DEFAULT_EMBEDDER
from specrace.retrieval.rerank import LIGHT, NONE
from specrace.retrieval.store import read_head
from specrace.ui import zero_gpu

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from specrace.ui.guard import Hosts
    from specrace.ui.worker import Worker
    from specrace.workbench import Workbench

# A race that is told to stop ends within a step of its slowest lane.
JOIN_LIMIT_S = 3.0
FETCH_LOOK_S = 0.5
DTYPES = ("float32", "bfloat16", "float16", "int8")
FIRST_QUESTIONS = (
    "What is the n-gram trie built from?",
    "Explain how Jacobi decoding works.",
    "Why does bread rise?",
    "What causes the tides?",
)


def serve(options: argparse.Namespace) -> int:
    """Serve the page until SIGTERM or SIGINT; the exit code. Raises InputError for what cannot be served."""
    from specrace.ui.audience import reach
    from specrace.ui.folder import upload_folder
    from specrace.ui.guard import Hosts
    from specrace.ui.http_server import LOG_FORMAT, Server, ending_on_sigterm, log_discreetly, open_sockets, run

    if zero_gpu.is_here():
        zero_gpu.enter()
    # Parsers of visitors' files inherit the environment.
    os.environ.pop("SPECRACE_AUTH", None)
    host = options.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    sockets = open_sockets(host, options.port)
    os.environ[LOG_FORMAT] = options.log
    log_discreetly()
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    reranker = None if options.reranker in (NONE, LIGHT) else options.reranker
    embedder = None if options.index is None else read_head(options.index).embedder
    made_by = None if embedder == DEFAULT_EMBEDDER else embedder
    used = (options.model, options.draft_model, reranker, made_by, *(options.models or ()))
    if options.no_fetch or all(Path(name).exists() for name in used if name is not None):
        stay_offline()
    with ending_on_sigterm(), upload_folder() as folder:
        # Whatever visitors send is kept there, and nowhere else.
        os.environ["GRADIO_TEMP_DIR"] = folder
        bound = [host, *(each.getsockname()[0] for each in sockets)]
        reached = reach(bound, sockets[0].getsockname()[1])
        app, worker, leave = build_app(options, Hosts(bound, options.allowed_hosts), reached)
        if worker is not None:
            if zero_gpu.is_here():
                worker.open()
                zero_gpu.announce(app.state.page, sockets[0].getsockname()[1])
            worker.start()
        print(f"specrace serves {address(sockets)}", flush=True)
        if options.mcp:
            print(f"MCP tools: {address(sockets)}/gradio_api/mcp/", flush=True)
        code = run(Server(app, leave, options.proxies), sockets)
    if worker is not None and not worker.join(JOIN_LIMIT_S):
        # A model that loads or computes in a thread would bring the interpreter down as it ends.
        sys.stdout.flush()
        os._exit(code)
    return code


def stay_offline() -> None:
    """Ask no hub, also where its library has been imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def build_app(
    options: argparse.Namespace, hosts: Hosts, reached: str = ""
) -> tuple[Starlette, Worker | None, Callable[[], None]]:
    """The whole app, the worker behind it, which is not started yet, and what ends the work of both.

    `reached` is the server's address on its network, for phones.
    """
    import gradio as gr
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    from specrace.ui.audience import Audience
    from specrace.ui.endpoints import TOOL_TYPES
    from specrace.ui.fetcher import Fetcher
    from specrace.ui.gallery import Gallery
    from specrace.ui.gradio_private import password_check, serve_tools
    from specrace.ui.guard import Guard
    from specrace.ui.model_choices import ModelChoices
    from specrace.ui.page import build_page, build_replay, mount_options
    from specrace.ui.settings_panel import recommended
    from specrace.ui.telemetry import Telemetry, operator_routes
    from specrace.ui.visitors import VisitorLimits, Visitors
    from specrace.ui.worker import Worker
    from specrace.views.recording_check import read_recording

    limits = VisitorLimits(**{each.name: getattr(options, each.name) for each in dataclasses.fields(VisitorLimits)})
    visitors, telemetry, worker, models = Visitors(limits), Telemetry(), None, None
    if options.replay is not None:
        read_recording(options.replay)
        page = build_replay(Gallery([options.replay]), visitors)
    else:
        models = ModelChoices(offered_models(options), () if zero_gpu.is_here() else DTYPES)
        fetcher = None if options.beside is None else Fetcher(options.beside, models.offer, options.offline)
        worker = Worker(loader(options), limits, fetcher, telemetry)
        first = None if options.settings is None else recommended(read_settings(options.settings))
        page = build_page(worker, example_questions(options), Gallery.in_folder(RECORDINGS), models, visitors, first)
    own = operator_routes(telemetry, lambda: "ready" if worker is None else worker.state, options.metrics)
    app = Starlette(routes=own, middleware=[Middleware(Guard, hosts=hosts, visitors=visitors, mcp=options.mcp)])
    mounting = mount_options(page, visitors, Audience(hosts, reached), telemetry, worker, models, mcp=options.mcp)
    gr.mount_gradio_app(app, page, "/", auth=password_check(options.auth), **mounting)  # type: ignore[arg-type]
    if options.mcp:
        serve_tools(page, TOOL_TYPES)
    # Gradio checks the paths of files only in a page that was launched.
    page.has_launched = True
    app.state.page = page
    mounted = app.routes[-1].app  # type: ignore[attr-defined]

    def leave() -> None:
        mounted.stop_event.set()
        if worker is not None:
            worker.close()

    return app, worker, leave


def address(sockets: Sequence[socket.socket]) -> str:
    """Where a browser on this machine finds the page."""
    host, port = sockets[0].getsockname()[:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def loader(options: argparse.Namespace) -> Callable[[Callable[[str], None]], Workbench]:
    """What the worker runs first. It brings torch, so it is not imported before the page is up."""

    def load(on_progress: Callable[[str], None]) -> Workbench:
        on_progress("Loading the model")
        import transformers.utils.logging

        from specrace.model.machine import use_processors
        from specrace.ui.model_choices import ModelChoices
        from specrace.workbench import Workbench

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # One processor is for the page, and for a browser on this machine.
        use_processors(options.threads, spare=1)
        settings = {
            "documents": [options.corpus],
            "index": options.index,
            "reranker": options.reranker,
            "device": options.device,
            "dtype": options.dtype,
            "adapter": options.adapter,
            "draft_model": options.draft_model,
            "keep_outputs": options.keep_outputs,
            "ready": not zero_gpu.is_here(),
            "lean": True,
            "on_progress": on_progress,
        }
        try:
            for name in (options.model, options.draft_model):
                if name is not None and must_fetch(name):
                    fetch(name, options.offline, on_progress)
            workbench, problem = Workbench.open(model=options.model, **settings), ""
        except DeviceError as error:
            # Slower, but the page is there for those who wait for it.
            settings["device"], problem = "cpu", f". {error} It races on the CPU meanwhile."
            workbench = Workbench.open(model=options.model, **settings)
        except InputError as error:
            # Nobody asked for this model, so the bundled one may stand in.
            if not options.by_default or Path(options.model) == BUNDLED_MODEL:
                raise
            workbench, problem = Workbench.open(**settings), f". {error}"
        if zero_gpu.is_here():
            workbench.runner = zero_gpu.runner(workbench.target)
        on_progress(ModelChoices().ready(workbench) + problem)
        return workbench

    return load


def fetch(name: str, offline: str, on_progress: Callable[[str], None]) -> None:
    """Fetch the model that was asked for before anything is loaded. Raises InputError."""
    from specrace.ui.fetcher import Fetcher

    fetcher = Fetcher(name, offline=offline)
    fetcher.start()
    try:
        while not fetcher.wait(FETCH_LOOK_S):
            on_progress(fetcher.text)
        if not fetcher.ready:
            raise InputError(fetcher.text)
    finally:
        fetcher.close()


def offered_models(options: argparse.Namespace) -> dict[str, str | Path]:
    """What a visitor may choose: the model that was given, and those of --models or else those that ship.

    A folder is called by its name, with as many of its parents' as it takes to tell it from the others.
    """
    shipped = [str(path.parent) for path in sorted(ASSETS.glob("*/config.json"))]
    given = [options.model, *(shipped if options.models is None else options.models)]
    offered: dict[Path, str] = {}
    for name in given:
        # Each folder once, however it was written.
        offered.setdefault(Path(name).resolve(), name)
    ways = [Path(name).absolute().parts if Path(name).exists() else (name,) for name in offered.values()]
    return {_last_parts(way, ways): name for way, name in zip(ways, offered.values(), strict=True)}


def _last_parts(way: tuple[str, ...], ways: Sequence[tuple[str, ...]]) -> str:
    """The shortest end of a path that no other path has."""
    ends = (way[-count:] for count in range(1, len(way)))
    alone = (end for end in ends if sum(each[-len(end) :] == end for each in ways) == 1)
    return str(Path(*next(alone, way)))


def example_questions(options: argparse.Namespace) -> list[str]:
    """Questions that our own documents answer; none for another corpus."""
    if options.index or options.corpus.resolve() != CORPUS or not QUESTIONS.is_file():
        return []
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    known = [json.loads(line)["question"] for line in lines if line.strip()]
    first = [question for question in FIRST_QUESTIONS if question in known]
    return first + [question for question in known if question not in first]
