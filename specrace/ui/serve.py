"""Runs the server: it serves the page immediately, and loads the model in the background."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specrace.core.bundled import BUNDLED_MODEL, RECORDINGS
from specrace.core.errors import InputError
from specrace.ui.config import DTYPES, ServerConfig
from specrace.ui.greeting import address, greeting
from specrace.ui.loading import loader, models_to_load, stay_offline
from specrace.ui.offers import example_questions, offered_models
from specrace.ui.races import zero_gpu

if TYPE_CHECKING:
    import gradio as gr
    from starlette.applications import Starlette
    from starlette.routing import Route

    from specrace.ui.races.backend import Backend
    from specrace.ui.races.worker import Worker
    from specrace.ui.server.guard import Hosts
    from specrace.ui.server.telemetry import Telemetry
    from specrace.ui.server.visitors import Visitors

# How long to wait for a stopped race, which still finishes the current step of a lane.
JOIN_LIMIT_S = 3.0


def serve(config: ServerConfig) -> int:
    """Serve the page until SIGTERM or SIGINT, and return the exit code. Raises InputError for a taken address."""
    from specrace.ui.page.audience import find_network_address
    from specrace.ui.server.folder import upload_folder
    from specrace.ui.server.guard import Hosts
    from specrace.ui.server.http_server import LOG_FORMAT, Server, configure_logging, exit_on_sigterm, open_sockets, run

    if zero_gpu.is_enabled():
        zero_gpu.imitate_cuda()
    # The processes that parse visitors' files inherit the environment, and must not see the password.
    os.environ.pop("SPECRACE_AUTH", None)
    host = config.host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1"
    sockets = open_sockets(host, config.port)
    os.environ[LOG_FORMAT] = config.log
    configure_logging()
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    if config.no_fetch or all(Path(name).exists() for name in models_to_load(config)):
        stay_offline()
    with exit_on_sigterm(), upload_folder() as folder:
        # Whatever visitors send is stored in this folder.
        os.environ["GRADIO_TEMP_DIR"] = folder
        bound = [host, *(listening.getsockname()[0] for listening in sockets)]
        network_address = find_network_address(bound, sockets[0].getsockname()[1])
        app, worker, end_work = build_app(config, Hosts(bound, config.allowed_hosts), network_address)
        if worker is not None:
            if zero_gpu.is_enabled():
                # ZeroGPU's package must be told in the thread that loaded the model, and before the first visitor.
                worker.loading.run()
                zero_gpu.report_started(app.state.page, sockets[0].getsockname()[1])
            worker.start()
        print("\n".join(greeting(address(sockets), network_address, config.root_path)), flush=True)
        if config.mcp:
            print(f"MCP tools: {address(sockets)}/gradio_api/mcp/", flush=True)
        code = run(Server(app, end_work, config.proxies), sockets)
    if worker is not None and not worker.join(JOIN_LIMIT_S):
        # The thread still loads a model or computes; if the interpreter shut down now, that could crash.
        sys.stdout.flush()
        os._exit(code)
    return code


def build_app(
    config: ServerConfig, hosts: Hosts, network_address: str = ""
) -> tuple[Starlette, Worker | None, Callable[[], None]]:
    """Build the app, its worker (not started yet; None for a replay), and a function that ends the work of both.

    `network_address` is the server's URL on its network, for phones.
    """
    import gradio as gr

    from specrace.ui.api.schema import TOOL_TYPES
    from specrace.ui.helper.shares import Shares
    from specrace.ui.page.audience import Audience
    from specrace.ui.page.gradio_private import password_check, serve_tools
    from specrace.ui.page.page import mount_options
    from specrace.ui.server.telemetry import Telemetry, operator_routes
    from specrace.ui.server.visitors import Visitors

    visitors, telemetry = Visitors(config.limits), Telemetry()
    backend: Backend | None = None
    if config.replay is not None:
        page = _build_replay(config.replay, visitors)
    else:
        page, backend = _build_live(config, visitors, telemetry)
    worker = None if backend is None else backend.worker
    routes = operator_routes(telemetry, lambda: "ready" if worker is None else worker.state, config.metrics)
    app = _guarded_app(config, hosts, visitors, routes)
    audience = Audience(hosts, network_address, root_path=config.root_path)
    mounting = mount_options(
        page,
        visitors,
        audience,
        telemetry,
        backend,
        mcp=config.mcp,
        frame_ancestors=config.frame_ancestors,
        shares=Shares(config.keep_shares) if config.keep_shares else None,
    )
    gr.mount_gradio_app(app, page, "/", auth=password_check(config.auth), **mounting)  # type: ignore[arg-type]
    if config.mcp:
        serve_tools(page, TOOL_TYPES)
    # Gradio checks the paths of files that clients name only on a page that was launched, and this one is mounted.
    page.has_launched = True
    app.state.page = page
    # The last route is the page's app, which was mounted last.
    return app, worker, partial(_end_work, app.routes[-1].app, worker)  # type: ignore[attr-defined]


def _guarded_app(config: ServerConfig, hosts: Hosts, visitors: Visitors, routes: Sequence[Route]) -> Starlette:
    """An app with the operator's routes, behind the proxy's path and the guard. The page is mounted in it later."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    from specrace.ui.server.guard import Guard
    from specrace.ui.server.proxy_path import BelowPath

    below_path = Middleware(BelowPath, root_path=config.root_path)
    guard = Middleware(Guard, hosts=hosts, visitors=visitors, mcp=config.mcp)
    return Starlette(routes=routes, middleware=[below_path, guard])


def _end_work(mounted: Any, worker: Worker | None) -> None:
    """End the work of the page's app (`mounted`), and of its worker."""
    mounted.stop_event.set()
    if worker is not None:
        worker.close()


def _build_replay(recordings: Sequence[Path], visitors: Visitors) -> gr.Blocks:
    """A page that plays recordings, and the tour. Raises InputError if a recording cannot be shown."""
    from specrace.ui.helper.gallery import Gallery
    from specrace.ui.page.page import build_replay
    from specrace.ui.stage.html_file import TOUR
    from specrace.views.recording_check import read_recording

    for recording in recordings:
        # Raises for a bad recording, which a gallery would only leave out.
        read_recording(recording)
    names = [recording.stem for recording in recordings]
    if len(set(names)) < len(names):
        raise InputError("--replay has two files of the same name; rename one of them.")
    tour = [RECORDINGS / f"{name}.jsonl" for name in TOUR if name not in names]
    return build_replay(Gallery([*recordings, *tour], in_order=True), visitors, len(recordings))


def _build_live(config: ServerConfig, visitors: Visitors, telemetry: Telemetry) -> tuple[gr.Blocks, Backend]:
    """A page that races, and its backend."""
    from specrace.model.weights.names import PREFERRED
    from specrace.ui.helper.fetcher import Fetcher
    from specrace.ui.helper.gallery import Gallery
    from specrace.ui.helper.other_work import OtherWork
    from specrace.ui.page.page import build_page
    from specrace.ui.page.settings_panel import recommended_preset
    from specrace.ui.races.backend import Backend
    from specrace.ui.races.model_choices import ModelChoices
    from specrace.ui.races.worker import Worker

    offered = offered_models(config)
    # The package has a head for the model that the page prefers to the bundled one.
    has_heads = bool(config.model.heads) or PREFERRED in offered
    # It also has a draft model for the bundled model.
    default = Path(config.model.source.location)
    has_draft_model = bool(config.model.drafts) or default.resolve() == BUNDLED_MODEL
    dtypes = () if zero_gpu.is_enabled() else DTYPES
    models = ModelChoices(offered, dtypes, has_heads=has_heads, has_draft_model=has_draft_model)
    fetcher = None if config.model_to_fetch is None else Fetcher(config.model_to_fetch, models.offer, config.offline)
    worker = Worker(loader(config), visitors.limits, OtherWork(fetcher), telemetry)
    preset = None if config.settings is None else recommended_preset(config.settings)
    backend = Backend.of(worker, models, visitors, config.servers)
    return build_page(backend, example_questions(config), Gallery.in_folder(RECORDINGS), preset), backend
