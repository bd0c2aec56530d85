"""The page: components, their events, and the files that draw the stage in the browser."""

from __future__ import annotations

import asyncio
import html
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from starlette.middleware import Middleware

from specrace.core.errors import InputError
from specrace.core.events import Event
from specrace.core.rejection import MATCH
from specrace.drafters import METHODS
from specrace.engine.race import DEFAULT_LANES
from specrace.ui import asking, settings, uploads
from specrace.ui.early import EarlyScript
from specrace.ui.gallery import Answer, Gallery, open_recorded
from specrace.ui.models import Models
from specrace.ui.stream import outcome, watch_route
from specrace.ui.worker import Run, Worker
from specrace.views.colours import hue_number, hue_style

if TYPE_CHECKING:
    from specrace.workbench import Workbench

STATIC = Path(__file__).resolve().parent / "static"
SCRIPTS = (
    "passages.js",
    "panes.js",
    "results.js",
    "inspector.js",
    "plots.js",
    "explain.js",
    "podium.js",
    "player.js",
    "gallery.js",
    "share.js",
    "stage.js",
    "tools.js",
    "keys.js",
)
EXAMPLES_SHOWN = 4
STATUS_PERIOD_S = 0.25
QUEUE_PERIOD_S = 0.01
TAGLINE = "Draft-and-verify decoders, raced on your documents"


def build_page(
    worker: Worker, examples: Sequence[str], gallery: Gallery | None = None, models: Models | None = None
) -> gr.Blocks:
    """The page over a worker that need not be ready yet.

    `examples` are questions to try, `gallery` races to watch, `models` those that may be chosen.
    """
    benches, models = uploads.SessionBenches(), models or Models()
    with gr.Blocks(title="specrace", fill_width=True, delete_cache=(600, 3600), analytics_enabled=False) as page:
        question, buttons = _top_bar()
        panel = settings.build_panel(list(models.known), models.dtypes)
        inputs = [question, *panel.inputs]
        with gr.Row(elem_id="second-row"):
            chips = _examples(examples)
            gr.HTML(_read("menu.html"), elem_id="menu")
            status = gr.HTML(html_template=_read("status.html"), js_on_load=_read("status.js"), elem_id="status-host")
        stage = _stage(gallery or Gallery())
        start = _starter(worker, benches, models)
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        free: dict[str, Any] = {**quiet, "concurrency_limit": None}
        gr.on([buttons["race"].click, question.submit], start, inputs, stage, **free)
        for chip, text in zip(chips, examples, strict=False):
            fill = chip.click(lambda text=text: text, None, question, queue=False, **quiet)
            fill.then(start, inputs, stage, **free)
        # The race ends by itself once its flag is set, so that its last frame, with the figures so far, still arrives.
        buttons["stop"].click(_stopper(worker), None, None, queue=False, **quiet)
        buttons["settings"].click(None, None, None, js=_read("settings.js"), **quiet)
        # Before the status: one listener of an event waits for the one before, and the status watches the model load.
        linked = page.load(_read_link, None, [*inputs[: len(asking.LINK)], stage], queue=False, **quiet)
        linked.success(None, stage, None, js=_read("autorun.js"), **quiet)
        page.load(_status_watcher(worker), None, status, **free)
        page.unload(_leaver(worker, benches))
        gr.api(_result_endpoint(worker, models), api_name="race_result", concurrency_limit=None)
    page.queue(max_size=20)
    # Gradio looks a thousand times a second whether an event waits; the race in the same process pays for that.
    page._queue.sleep_when_free = QUEUE_PERIOD_S
    return page


def build_replay(gallery: Gallery) -> gr.Blocks:
    """A page without a model: it plays the first race of the gallery, and opens others."""
    with gr.Blocks(title="specrace", fill_width=True, analytics_enabled=False) as page:
        with gr.Row(elem_id="top-bar"):
            gr.HTML(f"<h1>specrace</h1><p>{TAGLINE}</p>", elem_id="brand")
            gr.HTML(_read("menu.html"), elem_id="menu")
        _stage(gallery, only_replay=True)
    return page


def launch_options(worker: Worker | None = None) -> dict[str, Any]:
    """What `launch` needs for the page to look and behave as it should; with a `worker`, to show its races."""
    # The theme's own semi-bold font file has no lower-case letters; these two weights are whole.
    sans = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700))
    mono = gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700))
    theme = gr.themes.Default(
        primary_hue="slate",
        neutral_hue="slate",
        font=[sans, "system-ui", "sans-serif"],
        font_mono=[mono, "monospace"],
    )
    # As a style element of our own: Gradio's css option rewrites selectors and drops container queries.
    files = "".join(map(_read, ("page.css", "stage.css", "inspector.css")))
    style = f"<style>{files}{hue_style('#stage-host')}{settings.lane_style()}</style>"
    return {
        "theme": theme,
        "head": style,
        "footer_links": ["api"],
        "run_history": False,
        "max_file_size": uploads.MAX_BYTES,
        "pwa": False,
        "app_kwargs": {
            "routes": [watch_route(worker)] if worker else [],
            "middleware": [Middleware(EarlyScript, script=_read("idle.js"))],
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
            max_length=asking.MAX_QUESTION_CHARACTERS,
        )
        race = gr.Button("Race", variant="primary", elem_id="race")
        stop = gr.Button("Stop", variant="secondary", elem_id="stop")
        settings = gr.Button("Lanes and settings", variant="secondary", elem_id="settings-button")
    return question, {"race": race, "stop": stop, "settings": settings}


def _examples(examples: Sequence[str]) -> list[gr.Button]:
    with gr.Row(elem_id="examples"):
        gr.HTML("<span>Try</span>" if examples else "", elem_id="examples-label")
        return [gr.Button(text, size="sm", elem_classes="example") for text in examples[:EXAMPLES_SHOWN]]


def _stage(gallery: Gallery, *, only_replay: bool = False) -> gr.HTML:
    return gr.HTML(
        html_template=_read("stage.html"),
        js_on_load="\n".join(map(_read, SCRIPTS)),
        elem_id="stage-host",
        methods=[_describe_method(number) for number in range(len(METHODS))],
        lanes=list(DEFAULT_LANES),
        gallery=gallery.cards,
        only_replay=only_replay,
        server_functions=[_player(gallery), open_recorded],
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


def _starter(worker: Worker, benches: uploads.SessionBenches, models: Models) -> Callable[..., str]:
    def start(
        question: Any, lanes: Any, length: Any, heat: Any, top_p: Any, seed: Any, draft: Any, top: Any, verifier: Any,
        files: list[str] | None, model: Any, dtype: Any, request: gr.Request, *values: Any,
    ) -> str:  # fmt: skip
        """Where the page can watch the race that it has asked for."""
        session = request.session_hash or ""
        try:
            options = settings.read_options(values)
            asked = asking.read_asking(
                question, lanes, length, heat, top_p, seed, draft, top, verifier, options, model, dtype
            )
            models.check(asked.model, asked.dtype)
            job = worker.submit(session, _racing(asked, benches, models, session, files or []))
        except InputError as error:
            raise toast(error) from error
        worker.offer(job)
        return json.dumps({"race": job.number, "kind": "watch", "key": job.key})

    return start


def _read_link(request: gr.Request) -> list[Any]:
    """What the page's address sets, in the order of `read_asking`; the rest stays as it is. Last, a note of failure."""
    skip = gr.skip()
    try:
        given = asking.read_link(dict(request.query_params))
    except InputError as error:
        note = {"race": 0, "kind": "note", "phase": "failed", "message": str(error)}
        return [*(skip for _ in asking.LINK), json.dumps(note)]
    return [*(given.get(name, skip) for name in asking.LINK.values()), skip]


def _racing(
    asked: asking.Asking, benches: uploads.SessionBenches, models: Models, session: str, files: Sequence[str]
) -> Run:
    def run(bench: Workbench, stop: Callable[[], bool]) -> Iterator[Event]:
        own = models.bench(benches.get(session, bench, files), asked.model, asked.dtype)
        return own.ask(asked.question, asked.spec, top=asked.top, stop=stop)

    return run


def _stopper(worker: Worker) -> Callable[[gr.Request], None]:
    def stop(request: gr.Request) -> None:
        worker.stop(request.session_hash or "")

    return stop


def _leaver(worker: Worker, benches: uploads.SessionBenches) -> Callable[[gr.Request], None]:
    def leave(request: gr.Request) -> None:
        worker.stop(request.session_hash or "")
        benches.forget(request.session_hash or "")

    return leave


def _status_watcher(worker: Worker) -> Callable[[], AsyncIterator[str]]:
    async def watch() -> AsyncIterator[str]:
        """The worker's status whenever it changes, until the model is loaded."""
        shown = ""
        while True:
            settled = worker.settled
            if worker.status != shown:
                shown = worker.status
                state = "failed" if worker.failure else "ready" if settled else "loading"
                yield json.dumps({"state": state, "text": f"{shown} …" if state == "loading" else shown})
            if settled:
                return
            await asyncio.sleep(STATUS_PERIOD_S)

    return watch


def _result_endpoint(worker: Worker, models: Models) -> Callable[..., Any]:
    async def race_result(
        question: str,
        lanes: list[str] = list(DEFAULT_LANES),  # noqa: B006  gradio reads the default for its documentation
        max_new_tokens: int = 160,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        num_draft: str = "auto",
        passages: int = 4,
        verifier: str = MATCH,
        options: dict[str, Any] | None = None,
        model: str = "",
        dtype: str = "",
    ) -> dict[str, Any]:
        """Race on the server's documents and return every lane's figures and text, without streaming."""
        try:
            asked = asking.read_asking(
                question, lanes, max_new_tokens, temperature, top_p, seed, num_draft, passages, verifier,
                options, model, dtype,
            )  # fmt: skip
            models.check(asked.model, asked.dtype)
            session = f"api-{uuid.uuid4()}"
            return await outcome(worker.submit(session, _racing(asked, uploads.SessionBenches(), models, session, [])))
        except InputError as error:
            raise toast(error) from error

    return race_result


def toast(error: InputError) -> gr.Error:
    """The sentence as a toast; a visitor's own words in it stay words."""
    return gr.Error(html.escape(str(error), quote=False), print_exception=False)


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
