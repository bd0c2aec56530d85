"""The page: components, their events, and the files that draw the stage in the browser."""

from __future__ import annotations

import html
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import gradio as gr
from fastapi.exceptions import RequestValidationError
from starlette.middleware import Middleware

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.engine.repeats import Until
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui import fetch_line, race_request, settings_panel, uploads
from specrace.ui.audience import Audience, routes
from specrace.ui.endpoints import Endpoints
from specrace.ui.gallery import Answer, Gallery
from specrace.ui.gradio_page import CatchErrors, Page, explain_body, upload_routes
from specrace.ui.gradio_private import EarlyHead, SignedIn, be_frugal
from specrace.ui.guard import PagePolicy
from specrace.ui.helper_process import HelperProcess
from specrace.ui.log_routes import log_routes
from specrace.ui.model_choices import ModelChoices
from specrace.ui.scripts import STATIC, serve_scripts
from specrace.ui.stream import recording_route, watch_route
from specrace.ui.tasks import racing
from specrace.ui.telemetry import Telemetry
from specrace.ui.visitors import Visitors, address_of
from specrace.ui.worker import Worker
from specrace.views.colours import hue_number, hue_style

EXAMPLES_SHOWN = 4
# In this order: of two equal selectors the later one counts.
STYLES = ("page.css", "stage.css", "inspector.css", "show.css", "present.css", "phone.css", "logs.css", "advice.css")
STATUS_PERIOD_S = 0.5
# A race is repeated off stage while it is shown, until its speedups hold.
REPEAT_S, REPEAT_RUNS = 20.0, 12
# What the page's scripts do for Gradio's hooks; see main.js.
DRAW_STAGE = "specrace.drawStage({ element, props, server, watch })"
DRAW_STATUS = "specrace.drawStatus({ element, props, watch })"
TOGGLE_SETTINGS = "() => specrace.toggleSettings()"
FOLLOW_LINK = "(failed) => specrace.followLink(failed)"
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# The values are taken as they came: Gradio's own reading makes a temporary file of each upload.
FREE: dict[str, Any] = {**QUIET, "concurrency_limit": None, "preprocess": False}
TAGLINE = "Draft-and-verify decoders, raced on your documents"


def build_page(
    worker: Worker,
    examples: Sequence[str],
    gallery: Gallery | None = None,
    models: ModelChoices | None = None,
    visitors: Visitors | None = None,
    first: settings_panel.Preset | None = None,
) -> gr.Blocks:
    """The page over a worker that need not be ready yet.

    `examples` are questions to try, `gallery` races to watch, `models` those that may be chosen, `first` the settings
    that the page opens with.
    """
    models, visitors = models or ModelChoices(), visitors or Visitors()
    benches = uploads.VisitWorkbenches(lambda files: worker.helper.run("uploads", "", files))
    with Page(title="specrace", fill_width=True, delete_cache=(600, 3600), analytics_enabled=False) as page:
        question, buttons = _top_bar()
        panel = settings_panel.build_panel(list(models.known), models.dtypes, visitors.limits, first)
        with gr.Row(elem_id="second-row"):
            chips = _examples(examples)
            gr.HTML(_read("menu.html"), elem_id="menu")
            status = gr.HTML(html_template=_read("status.html"), js_on_load=DRAW_STATUS, elem_id="status-host")
            fetching = fetch_line.build_line()
        stage = _stage(gallery or Gallery(), takes_files=visitors.limits.uploads)
        start, inputs = _starter(worker, benches, models, visitors), [question, *panel.inputs]
        gr.on([buttons["race"].click, question.submit], start, inputs, stage, **FREE)
        for chip in chips:
            chip.click(None, chip, question, js="(words) => [words]", **QUIET).then(start, inputs, stage, **FREE)
        if worker.fetcher is not None:
            fetch_line.keep_current(page, worker.fetcher, models, [*fetching, panel.model])
            choose = fetch_line.choose(worker.fetcher, next(iter(examples), ""))
            chosen = fetching[1].click(choose, question, [question, panel.model, *fetching], queue=False, **QUIET)
            chosen.then(start, inputs, stage, **FREE)
        # The race ends by itself once its flag is set, so that its last frame, with the figures so far, still arrives.
        buttons["stop"].click(_stopper(worker), None, None, queue=False, **QUIET)
        buttons["settings"].click(None, None, None, js=TOGGLE_SETTINGS, **QUIET)
        linked = page.load(_read_link, None, [question, *panel.common, stage], queue=False, **QUIET)
        linked.success(None, stage, None, js=FOLLOW_LINK, **QUIET)
        kept, keep = (
            [question, *panel.common],
            _keep_address(settings_panel.opening(first, visitors.limits.race_tokens)),
        )
        gr.on([each.change for each in kept], None, kept, None, js=keep, queue=False, **QUIET)  # type: ignore[attr-defined]
        _show_status(page, worker, models, benches, status)
        about = [panel.files, panel.model, panel.dtype]
        describe = _describer(worker, models, benches, visitors, examples)
        gr.on([each.change for each in about], describe, about, [status, *chips], **FREE)
        page.unload(_leaver(worker, benches))
        Endpoints(worker, benches, models, visitors).add_to(page)
    page.queue(max_size=visitors.limits.queue, api_open=False)
    be_frugal(page)
    return page


def _show_status(
    page: gr.Blocks, worker: Worker, models: ModelChoices, benches: uploads.VisitWorkbenches, status: gr.HTML
) -> None:
    """Ask for the status until the model is loaded.

    Not through the queue, in which each visitor would hold a place for as long as that takes.
    """
    clock = gr.Timer(STATUS_PERIOD_S)
    gr.on([page.load, clock.tick], _status_of(worker, models, benches), None, [status, clock], queue=False, **QUIET)


def build_replay(gallery: Gallery, visitors: Visitors) -> gr.Blocks:
    """A page without a model: it plays the first race of the gallery, and opens others."""
    with Page(title="specrace", fill_width=True, analytics_enabled=False) as page:
        with gr.Row(elem_id="top-bar"):
            gr.HTML(f"<h1>specrace</h1><p>{TAGLINE}</p>", elem_id="brand")
            gr.HTML(_read("menu.html"), elem_id="menu")
        _stage(gallery, takes_files=visitors.limits.uploads, only_replay=True)
    return page


def page_style() -> str:
    """A style element of our own: Gradio's css option rewrites selectors and drops container queries."""
    files = "".join(map(_read, STYLES))
    return f"<style>{files}{hue_style('#stage-host')}{settings_panel.lane_style()}</style>"


def mount_options(
    page: gr.Blocks,
    visitors: Visitors,
    audience: Audience,
    telemetry: Telemetry,
    worker: Worker | None = None,
    models: ModelChoices | None = None,
    *,
    mcp: bool = False,
) -> dict[str, Any]:
    """What `mount_gradio_app` needs for the page to look and behave as it should; with a `worker`, to show races.

    `models` has the tokenizers for visitors' logs.
    """
    # The theme's own semi-bold font file has no lower-case letters; these two weights are whole.
    sans = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))
    mono = gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700))
    theme = gr.themes.Default(
        primary_hue="slate",
        neutral_hue="slate",
        font=[sans, "system-ui", "sans-serif"],
        font_mono=[mono, "monospace"],
    )
    scripts, head, phone = serve_scripts()
    helper, scorer = (worker.helper, worker.scorer) if worker else (HelperProcess(), HelperProcess())

    def measured() -> CostCurve | None:
        return worker.workbench.curve if worker and worker.workbench else None

    files = [recording_route(helper), *log_routes(scorer, models or ModelChoices(), visitors, measured)]
    watch = [watch_route(worker)] if worker else []
    own = [*upload_routes(page, visitors, telemetry), scripts, *files, *watch, *routes(audience, phone)]
    return {
        "theme": theme,
        "head": page_style() + audience.meta(),
        "footer_links": ["api"],
        "run_history": False,
        # Far more than is read, and than the page sends (fitUploads in gradio.js): beyond it no file would arrive.
        "max_file_size": uploads.MAX_FILES * uploads.MAX_BYTES,
        "pwa": False,
        # A Space asks for it; then a second server, of Node, would start before this one answers.
        "ssr_mode": False,
        "enable_monitoring": False,
        "mcp_server": mcp,
        "show_error": False,
        "app_kwargs": {
            "routes": own,
            "exception_handlers": {RequestValidationError: explain_body},
            "middleware": [
                Middleware(SignedIn, visitors=visitors),
                Middleware(PagePolicy),
                Middleware(EarlyHead, html=head),
                Middleware(CatchErrors),
            ],
        },
    }


def _top_bar() -> tuple[gr.Textbox, dict[str, gr.Button]]:
    with gr.Row(elem_id="top-bar"):
        gr.HTML(f"<h1>specrace</h1><p>{TAGLINE}</p>", elem_id="brand")
        question = gr.Textbox(
            label="Question",
            placeholder="Ask about the documents, then race",
            show_label=False,
            container=False,
            lines=1,
            max_lines=1,
            elem_id="question",
            max_length=race_request.MAX_QUESTION_CHARACTERS,
        )
        race = gr.Button("Race", variant="primary", elem_id="race")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
        settings = gr.Button("Lanes and settings", variant="secondary", elem_id="settings-button")
    return question, {"race": race, "stop": stop, "settings": settings}


def _examples(examples: Sequence[str]) -> list[gr.Button]:
    with gr.Row(elem_id="examples"):
        gr.HTML("<span>Try</span>", elem_id="examples-label")
        return [gr.Button(text, visible=bool(text), size="sm", elem_classes="example") for text in _shown(examples)]


def _shown(examples: Sequence[str]) -> list[str]:
    """As many examples as there are buttons; "" for one that is not needed."""
    return [*examples, *[""] * EXAMPLES_SHOWN][:EXAMPLES_SHOWN]


def _stage(gallery: Gallery, *, takes_files: bool, only_replay: bool = False) -> gr.HTML:
    return gr.HTML(
        html_template=_read("stage.html"),
        js_on_load=DRAW_STAGE,
        elem_id="stage-host",
        methods=[_describe_method(number) for number in range(len(METHODS))],
        lanes=list(DEFAULT_LANES),
        gallery=gallery.cards,
        only_replay=only_replay,
        takes_files=takes_files,
        server_functions=[_player(gallery)],
    )


def _player(gallery: Gallery) -> Callable[[Any], Answer]:
    # Gradio marks what the page may call, and a bound method takes no mark.
    def play_recorded(name: Any) -> Answer:
        return gallery.play_recorded(name)

    return play_recorded


def _describe_method(number: int) -> dict[str, Any]:
    """What the stage knows of a method before a race; its place in the registry is its colour."""
    method = list(METHODS.values())[number]
    return {"lane": method.name, "title": method.title, "summary": method.summary, "hue": hue_number(number)}


def _starter(
    worker: Worker, benches: uploads.VisitWorkbenches, models: ModelChoices, visitors: Visitors
) -> Callable[..., str]:
    def start(
        question: Any, files: list[dict[str, Any]] | None, model: Any, dtype: Any, request: gr.Request, lanes: Any,
        *values: Any,
    ) -> str:  # fmt: skip
        """Where the page can watch the race that it has asked for."""
        given = dict(zip(race_request.OFFERED, values, strict=False))
        options = settings_panel.read_options(values[len(given) :])
        with worker.telemetry.refusals():
            asked = race_request.parse_request(question, lanes, given, options, model, dtype)
            models.check(asked.model, asked.dtype)
            visitors.race(address_of(request), asked.spec.max_new_tokens)
        session = request.session_hash or ""
        # Documents may take a minute to be read.
        with worker.starting(session) as begun:
            try:
                upload = benches.read(session, visitors.own_files(address_of(request), files))
            except InputError as error:
                # On the stage, where a race was expected: it does not run on the server's documents instead.
                job = worker.refuse(session, error)
            else:
                enough = Until(REPEAT_S, REPEAT_RUNS)
                run = racing(asked, benches, models, session, upload, lambda found: worker.idle and enough(found))
                job = worker.submit(session, run)
            if begun.stopped:
                job.stop()
        worker.offer(job)
        return json.dumps({"race": job.number, "kind": "watch", "key": job.key, "server": worker.name})

    return start


def _keep_address(opening: Mapping[str, Any]) -> str:
    """What keeps the settings in the page's address, but for those with which it opens: a reload brings these back."""
    usual = {link: opening.get(name, "") for link, name in race_request.LINK.items()}
    return f"(...values) => specrace.keepAddress({json.dumps(usual)}, values)"


def _read_link(request: gr.Request) -> list[Any]:
    """What the page's address sets, in the order of `race_request.LINK`; last, a note of failure."""
    skip = gr.skip()
    try:
        given = race_request.read_link(dict(request.query_params))
    except InputError as error:
        note = {"race": 0, "kind": "note", "phase": "failed", "message": str(error)}
        return [*(skip for _ in race_request.LINK), json.dumps(note)]
    return [*(given.get(name, skip) for name in race_request.LINK.values()), skip]


def _stopper(worker: Worker) -> Callable[[gr.Request], None]:
    def stop(request: gr.Request) -> None:
        worker.stop(request.session_hash or "")

    return stop


def _leaver(worker: Worker, benches: uploads.VisitWorkbenches) -> Callable[[gr.Request], None]:
    def leave(request: gr.Request) -> None:
        worker.stop(request.session_hash or "")
        benches.forget(request.session_hash or "")

    return leave


def _describer(
    worker: Worker, models: ModelChoices, benches: uploads.VisitWorkbenches, visitors: Visitors, examples: Sequence[str]
) -> Callable[..., list[Any]]:
    def describe(files: list[dict[str, Any]] | None, model: Any, dtype: Any, request: gr.Request) -> list[Any]:
        """Status and examples once the visitor's files, or the choice of a model, have changed."""
        session, problem = request.session_hash or "", ""
        try:
            upload = benches.read(session, visitors.own_files(address_of(request), files))
            problem = " ".join(upload.skipped) if upload else ""
        except InputError as error:
            upload, problem = None, str(error)
        if problem:
            gr.Warning(html.escape(f"Left out: {problem}", quote=False))
        shown = _shown(upload.examples if upload else examples)
        buttons = [gr.Button(text, visible=bool(text)) for text in shown]
        return [_status(worker, models, upload, str(model or ""), str(dtype or "")), *buttons]

    return describe


def _status_of(
    worker: Worker, models: ModelChoices, benches: uploads.VisitWorkbenches
) -> Callable[[gr.Request], Awaitable[tuple[str, Any]]]:
    async def look(request: gr.Request) -> tuple[str, Any]:
        """The status before a model is chosen; the clock that asks for it stops when the server's own is loaded."""
        # Asked before the status, which is the last one then.
        ended = gr.Timer(active=False) if worker.settled else gr.skip()
        return _status(worker, models, benches.known(request.session_hash or "")), ended

    return look


def _status(
    worker: Worker, models: ModelChoices, upload: uploads.Upload | None, model: str = "", dtype: str = ""
) -> str:
    """The status line's JSON: what is being loaded, or what the next race runs on."""
    workbench, text = worker.workbench, worker.status
    if workbench is None:
        failed = bool(worker.failure)
        return json.dumps({"state": "failed" if failed else "loading", "text": text if failed else f"{text} …"})
    if upload or model or dtype:
        text = models.ready(workbench, model, dtype, upload.num_passages if upload else None)
    return json.dumps({"state": "ready", "text": text})


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
