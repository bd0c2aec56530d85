"""Builds the page: components, their events, and the options with which it is mounted in the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from starlette.middleware import Middleware
from starlette.routing import Route

from specrace.core.settings import MAX_QUESTION_CHARACTERS
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui.api.endpoints import add_endpoints
from specrace.ui.api.log_routes import log_routes
from specrace.ui.helper.gallery import Gallery
from specrace.ui.helper.other_work import OtherWork
from specrace.ui.helper.recording_routes import recording_route, share_routes
from specrace.ui.helper.shares import Shares
from specrace.ui.page import documents_panel, fetch_line, settings_panel
from specrace.ui.page.audience import Audience, audience_routes
from specrace.ui.page.events import PageEvents, read_link, shown_examples
from specrace.ui.page.fetch_line import FetchLine
from specrace.ui.page.gradio_page import CatchErrors, Page, explain_bad_body, upload_routes
from specrace.ui.page.gradio_private import EarlyHead, SignedIn, limit_overhead
from specrace.ui.page.question_lists import connect_lists
from specrace.ui.page.recommended import connect_recommended
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.stream import watch_route
from specrace.ui.server.guard import PagePolicy, WholeBody
from specrace.ui.server.proxy_path import picture_route
from specrace.ui.server.scripts import serve_scripts
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import Visitors
from specrace.ui.stage.constants import Constants
from specrace.ui.stage.html_file import export_route
from specrace.ui.stage.parts import ASKED, BRAND, describe_methods, read_static, stage_style
from specrace.ui.visitor_limits import MAX_UPLOAD_BYTES, MAX_UPLOAD_FILES
from specrace.ui.wire import StageSettings, to_values
from specrace.views.colours import hue_style

# How often the page asks for the status while the model loads.
STATUS_PERIOD_S = 0.5
# JavaScript that Gradio runs: calls of the functions that main.js offers.
DRAW_STAGE = "specrace.drawStage({ element, props, server, watch })"
DRAW_STATUS = "specrace.drawStatus({ element, props, watch })"
ANNOUNCE_REQUEST = "() => specrace.announceRequest()"
TOGGLE_SETTINGS = "() => specrace.toggleSettings()"
FOLLOW_LINK = "(failed) => specrace.followLink(failed)"
# The options of events that are not endpoints for programs, and that show no progress bar.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# The options of events without a limit on how many are handled at a time. Gradio's preprocessing is left out, because
# it would copy each upload to a temporary file.
UNLIMITED: dict[str, Any] = {**QUIET, "concurrency_limit": None, "preprocess": False}


@dataclass(frozen=True)
class Components:
    """The components that the page's events read and set, on a page that can race.

    `fetching`: the line about a model that is being fetched, and the button that races with this model.
    """

    question: gr.Textbox
    race: gr.Button
    stop: gr.Button
    documents_button: gr.Button
    documents: documents_panel.DocumentsPanel
    settings: gr.Button
    panel: settings_panel.Panel
    examples: list[gr.Button]
    status: gr.HTML
    fetching: tuple[gr.HTML, gr.Button]
    stage: gr.HTML


def build_page(
    backend: Backend,
    examples: Sequence[str],
    gallery: Gallery | None = None,
    opening_preset: settings_panel.Preset | None = None,
) -> gr.Blocks:
    """Build the page that races on `backend`, which may still be loading its model.

    `examples`: questions to try. `gallery`: recorded races to watch. `opening_preset`: fills the settings at first.
    """
    models, limits = backend.models, backend.visitors.limits
    events = PageEvents(backend, examples)
    # `delete_cache`: every 10 minutes Gradio deletes files that are older than an hour.
    with Page(title="specrace", fill_width=True, delete_cache=(600, 3600), analytics_enabled=False) as page:
        question, race, stop, documents_button, settings = _build_top_bar(takes_files=limits.uploads)
        documents = documents_panel.build_documents(visible=limits.uploads)
        panel = _build_settings(backend, opening_preset)
        with gr.Row(elem_id="second-row"):
            example_buttons = _build_examples(examples)
            gr.HTML(read_static("menu.html"), elem_id="menu")
            status = gr.HTML(
                html_template=read_static("stage/status.html"), js_on_load=DRAW_STATUS, elem_id="status-host"
            )
            fetching = fetch_line.build_line()
        stage = _build_stage(gallery or Gallery(), takes_files=limits.uploads)
        parts = Components(
            question, race, stop, documents_button, documents, settings, panel, example_buttons, status, fetching, stage
        )
        _connect_start(parts, events)
        fetcher = backend.worker.other_work.fetcher
        if fetcher is not None:
            line = FetchLine(fetcher, models, next(iter(examples), ""))
            _connect_fetching(page, parts, line, events)
        # Gradio's `cancels` is not used: it would cancel the race's event before the results so far have arrived.
        stop.click(events.stop, None, None, queue=False, **QUIET)
        documents_button.click(None, None, None, js=documents_panel.TOGGLE, **QUIET)
        _connect_settings(page, parts, events, has_servers=bool(backend.servers.names))
        _connect_address(page, parts, settings_panel.opening_values(opening_preset, limits.race_tokens))
        _connect_status(page, parts, events)
        page.unload(events.leave)
        add_endpoints(page, backend)
    page.queue(max_size=limits.queue, api_open=False)
    limit_overhead(page)
    return page


def _build_settings(backend: Backend, opening_preset: settings_panel.Preset | None) -> settings_panel.Panel:
    """The settings panel, with what this server offers."""
    models, servers = backend.models, backend.servers.names
    return settings_panel.build_panel(
        list(models.offered),
        models.dtypes,
        backend.visitors.limits,
        opening_preset,
        has_heads=models.has_heads,
        has_draft_model=models.has_draft_model,
        servers=servers,
    )


def _connect_start(parts: Components, events: PageEvents) -> None:
    """Let the race button, the Enter key in the question, the examples and lists of questions start a race."""
    inputs = [parts.question, parts.documents.files, *parts.panel.inputs]
    _, race_fetched = parts.fetching
    examples = [button.click for button in parts.examples]
    presses = [parts.race.click, parts.question.submit, race_fetched.click, *examples]
    gr.on(presses, None, None, None, js=ANNOUNCE_REQUEST, queue=False, **QUIET)
    gr.on([parts.race.click, parts.question.submit], events.start, inputs, parts.stage, **UNLIMITED)
    for button in parts.examples:
        copied = button.click(None, button, parts.question, js="(example) => [example]", **QUIET)
        copied.then(events.start, inputs, parts.stage, **UNLIMITED)
    connect_lists(events, inputs, parts.documents.files, parts.stage, UNLIMITED)
    connect_recommended(parts.question, parts.panel, UNLIMITED)


def _connect_settings(page: gr.Blocks, parts: Components, events: PageEvents, *, has_servers: bool) -> None:
    """Let a button open the settings. When the page loads, and at this button, it asks whether the servers answer."""
    parts.settings.click(None, None, None, js=TOGGLE_SETTINGS, **QUIET)
    if has_servers:
        moments = [page.load, parts.settings.click]
        gr.on(moments, events.describe_servers, None, parts.panel.health, queue=False, **QUIET)


def _connect_fetching(page: gr.Blocks, parts: Components, line: FetchLine, events: PageEvents) -> None:
    """Show a fetch's progress until it ends. Then let the line's button start a race with the fetched model."""
    clock = gr.Timer(fetch_line.PERIOD_S)
    shown = [*parts.fetching, parts.panel.model, clock]
    gr.on([page.load, clock.tick], line.update, None, shown, queue=False, **QUIET)
    outputs = [parts.question, parts.panel.model, *parts.fetching]
    _, race_fetched = parts.fetching
    chosen = race_fetched.click(line.choose, parts.question, outputs, queue=False, **QUIET)
    chosen.then(events.start, [parts.question, parts.documents.files, *parts.panel.inputs], parts.stage, **UNLIMITED)


def _connect_address(page: gr.Blocks, parts: Components, opening: Mapping[str, Any]) -> None:
    """Read settings from the page's address when the page loads, and write changed settings to the address.

    The address leaves out the values in `opening`, with which the page opens by default.
    """
    linked = [parts.question, *parts.panel.common]
    loaded = page.load(read_link, None, [*linked, parts.stage], queue=False, **QUIET)
    loaded.success(None, parts.stage, None, js=FOLLOW_LINK, **QUIET)
    defaults = {parameter: opening.get(name, "") for parameter, name in race_request.LINK.items()}
    update = f"(...values) => specrace.updateAddress({json.dumps(defaults)}, values)"
    changes = [component.change for component in linked]  # type: ignore[attr-defined]
    gr.on(changes, None, linked, None, js=update, queue=False, **QUIET)


def _connect_status(page: gr.Blocks, parts: Components, events: PageEvents) -> None:
    """Ask for the status until the model is loaded, and again when the visitor's files or choice of model change."""
    clock = gr.Timer(STATUS_PERIOD_S)
    # These requests do not go through the queue, where every visitor would take a place until the model is loaded.
    gr.on([page.load, clock.tick], events.first_status, None, [parts.status, clock], queue=False, **QUIET)
    files = parts.documents.files
    chosen = [files, parts.panel.model, parts.panel.dtype]
    changes = [component.change for component in chosen]  # type: ignore[attr-defined]
    shown = [parts.status, parts.documents_button, parts.documents.passages, *parts.examples]
    gr.on(changes, events.describe_choice, chosen, shown, **UNLIMITED)
    files.change(None, files, None, js=documents_panel.FILES_CHANGED, queue=False, **QUIET)


def build_replay(gallery: Gallery, visitors: Visitors, num_offered: int) -> gr.Blocks:
    """A page without a model, which plays the first `num_offered` races of the gallery, and can open others."""
    with Page(title="specrace", fill_width=True, analytics_enabled=False) as page:
        with gr.Row(elem_id="top-bar", elem_classes="asked"):
            gr.HTML(BRAND, elem_id="brand")
            gr.HTML(ASKED, elem_id="asked")
            gr.HTML(read_static("tour.html"), elem_id="tour")
            gr.HTML(read_static("menu.html"), elem_id="menu")
        _build_stage(gallery, takes_files=visitors.limits.uploads, only_replay=True, num_offered=num_offered)
    limit_overhead(page)
    return page


def page_style() -> str:
    """The page's style element. Gradio's option `css` would rewrite selectors and drop container queries."""
    return f"<style>{stage_style()}{settings_panel.lane_style()}</style>"


def mount_options(
    page: gr.Blocks,
    visitors: Visitors,
    audience: Audience,
    telemetry: Telemetry,
    backend: Backend | None = None,
    *,
    mcp: bool = False,
    frame_ancestors: Sequence[str] = (),
    shares: Shares | None = None,
) -> dict[str, Any]:
    """The arguments of `mount_gradio_app` for `page`. Without a `backend` the page shows recorded races only.

    Pages of the sites `frame_ancestors` may show the page in a frame. `shares` keeps the races of short links.
    """
    scripts, script_tags, phone_page = serve_scripts()
    constants = Constants(audience.network_address, shares.hours if shares else 0).tag()
    routes = [
        *upload_routes(page, visitors, telemetry),
        scripts,
        *(_replay_routes(visitors, shares) if backend is None else _race_routes(backend, shares)),
        *audience_routes(audience, phone_page.replace("{constants}", constants).replace("{hues}", hue_style(""))),
        picture_route(),
        export_route(),
    ]
    return {
        "root_path": audience.root_path or None,
        "theme": _theme(),
        "head": page_style(),
        "footer_links": ["api"],
        "run_history": False,
        # Gradio rejects larger uploads. The page never sends one (limitUploads in gradio.js).
        "max_file_size": MAX_UPLOAD_FILES * MAX_UPLOAD_BYTES,
        "pwa": False,
        # A Space would turn this on; then a second server, in Node, would have to start before this one answers.
        "ssr_mode": False,
        "enable_monitoring": False,
        "mcp_server": mcp,
        "show_error": False,
        "app_kwargs": {
            "routes": routes,
            "exception_handlers": {RequestValidationError: explain_bad_body},
            "middleware": _middleware(visitors, audience, constants + script_tags, frame_ancestors),
        },
    }


def _middleware(visitors: Visitors, audience: Audience, head: str, frame_ancestors: Sequence[str]) -> list[Middleware]:
    """The middleware of the page, the outermost first. `head` is HTML for the start of the page's head.

    It holds constants that the page's scripts read as they start, before Gradio has added its option `head`.
    """
    return [
        Middleware(SignedIn, visitors=visitors),
        Middleware(WholeBody),
        Middleware(PagePolicy, ancestors=frame_ancestors),
        Middleware(EarlyHead, html=head, root_path=audience.root_path),
        Middleware(CatchErrors),
    ]


def _theme() -> gr.themes.Base:
    # The theme's own semi-bold font file has no lower-case letters; these two weights are complete.
    sans = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))
    mono = gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700))
    return gr.themes.Default(
        primary_hue="slate",
        neutral_hue="slate",
        font=[sans, "system-ui", "sans-serif"],
        font_mono=[mono, "monospace"],
    )


def _race_routes(backend: Backend, shares: Shares | None) -> list[Route]:
    """Routes for live races, recordings and logs."""
    worker, visitors = backend.worker, backend.visitors
    scoring = log_routes(worker.other_work.logs, backend.models, visitors, worker.loading.measured_curve)
    return [watch_route(worker), *_recording_routes(worker.other_work, visitors, shares), *scoring]


def _replay_routes(visitors: Visitors, shares: Shares | None) -> list[Route]:
    """Routes for recordings and logs, on a server that has no model."""
    work = OtherWork()
    scoring = log_routes(work.logs, ModelChoices(), visitors, lambda: None)
    return [*_recording_routes(work, visitors, shares), *scoring]


def _recording_routes(work: OtherWork, visitors: Visitors, shares: Shares | None) -> list[Route]:
    """Routes for visitors' recordings and, if the server keeps races, for short links."""
    short_links = [] if shares is None else share_routes(work.files, visitors, shares)
    return [recording_route(work.files, visitors), *short_links]


def _build_top_bar(*, takes_files: bool) -> tuple[gr.Textbox, gr.Button, gr.Button, gr.Button, gr.Button]:
    with gr.Row(elem_id="top-bar"):
        gr.HTML(BRAND, elem_id="brand")
        question = gr.Textbox(
            label="Question",
            placeholder="Ask about the documents, then race",
            show_label=False,
            container=False,
            lines=1,
            max_lines=1,
            elem_id="question",
            max_length=MAX_QUESTION_CHARACTERS,
        )
        race = gr.Button("Race", variant="primary", elem_id="race")
        gr.HTML(read_static("tour.html"), elem_id="tour")
        stop = gr.Button("Stop", variant="secondary", interactive=False, elem_id="stop")
        documents = gr.Button(
            documents_panel.BUTTON, variant="secondary", visible=takes_files, elem_id="documents-button"
        )
        settings = gr.Button("Lanes and settings", variant="secondary", elem_id="settings-button")
    return question, race, stop, documents, settings


def _build_examples(examples: Sequence[str]) -> list[gr.Button]:
    with gr.Row(elem_id="examples"):
        gr.HTML("<span>Try</span>", elem_id="examples-label")
        return [
            gr.Button(text, visible=bool(text), size="sm", elem_classes="example") for text in shown_examples(examples)
        ]


def _build_stage(
    gallery: Gallery, *, takes_files: bool, only_replay: bool = False, num_offered: int | None = None
) -> gr.HTML:
    """The stage, where races are shown. `only_replay`: whether there is no model to race with.

    `takes_files`: whether visitors may open recordings. While no visitor acts, the first `num_offered` races of the
    gallery play; None: all.
    """
    offered = len(gallery.cards) if num_offered is None else num_offered
    settings = StageSettings(describe_methods(), list(DEFAULT_LANES), gallery.cards, only_replay, takes_files, offered)
    return gr.HTML(
        html_template=read_static("stage/stage.html"),
        js_on_load=DRAW_STAGE,
        elem_id="stage-host",
        **to_values(settings),
        server_functions=[_player(gallery)],
    )


def _player(gallery: Gallery) -> Callable[[Any], dict[str, str]]:
    """`gallery.play_recorded` as a plain function: Gradio sets an attribute on it, as it cannot on a bound method."""

    def play_recorded(name: Any) -> dict[str, str]:
        return to_values(gallery.play_recorded(name))  # type: ignore[no-any-return]

    return play_recorded
