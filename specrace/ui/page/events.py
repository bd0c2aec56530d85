"""The handlers of the page's events: they start and stop races, and describe what the next race runs on."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from specrace.core.errors import InputError
from specrace.core.events import Repeated
from specrace.engine.repeats import RepeatUntilNarrow
from specrace.retrieval.suggestions import suggest_questions
from specrace.ui.helper.upload_reader import NUM_EXAMPLES, NUM_SUGGESTED, Upload
from specrace.ui.page import documents_panel, lane_choices, settings_panel
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.races.job import Job
from specrace.ui.races.tasks import race_task
from specrace.ui.server.visitors import address_of
from specrace.ui.wire import NoteMessage, Status, WatchMessage, to_json

# While the page shows a race, the server repeats it until its speedups are stable or one of these limits is reached:
# guesses of how long a visitor watches.
REPEAT_S, REPEAT_RUNS = 20.0, 12


class PageEvents:
    """The handlers of a racing page's events. Gradio's session hash identifies a visit (one opening of the page)."""

    def __init__(self, backend: Backend, examples: Sequence[str]) -> None:
        self._backend = backend
        self._examples = examples

    def start(
        self, question: Any, files: list[dict[str, Any]] | None, model: Any, dtype: Any, servers: Any, reference: Any,
        request: gr.Request, lanes: Any, *values: Any,
    ) -> str:  # fmt: skip
        """Put the requested race in the queue. Returns JSON with the key by which the page can watch it.

        The arguments are the values of the question, the files and `Panel.inputs`; Gradio inserts `request`. `values`
        are those of the settings, then of the lanes' options.
        """
        queue = self._backend.worker.queue
        until_stable = RepeatUntilNarrow(budget_s=REPEAT_S, max_runs=REPEAT_RUNS)

        def repeat(repeated: Repeated) -> bool:
            return not queue.others_wait() and until_stable(repeated)

        job = self.submit(request, files, (question, model, dtype, servers, reference, lanes, *values), repeat)
        return to_json(WatchMessage(job.number, job.key, self._backend.worker.server_id))

    def submit(
        self,
        request: gr.Request,
        files: list[dict[str, Any]] | None,
        fields: tuple[Any, ...],
        again: Callable[[Repeated], bool],
    ) -> Job:
        """Put a race in the queue; `fields` are the question and the settings panel's values.

        `again` decides after each run whether another run follows. If the visit's documents cannot be read, the
        returned job has ended, with the reason as its error. Raises InputError for a wrong value or over a limit.
        """
        question, model, dtype, servers, reference, lanes, *values = fields
        # The settings come first; the lanes' options follow.
        settings = dict(zip(race_request.OFFERED, values, strict=False))
        options = settings_panel.read_options(values[len(settings) :])
        race = self._backend.read_request(
            address_of(request), question, lanes, settings, options, model, dtype, servers, reference
        )
        visit, queue = _visit(request), self._backend.worker.queue
        # Reading documents may take a minute, in which the visitor may stop the race.
        with queue.starting(visit) as starting:
            try:
                upload = self._read(visit, files, request)
            except InputError as error:
                # The page shows the error: the race must not run on the server's documents instead.
                job = queue.refuse(visit, error)
            else:
                job = queue.submit(visit, race_task(race, self._backend, visit, upload, again))
            if starting.stopped:
                job.stop()
        queue.offer(job)
        return job

    def suggest(self, files: list[dict[str, Any]] | None, request: gr.Request) -> Sequence[str]:
        """Questions about the visit's documents, or else the server's. Raises InputError."""
        if upload := self._read(_visit(request), files, request):
            return upload.examples
        if self._examples:
            return self._examples[:NUM_SUGGESTED]
        workbench = self._backend.worker.loading.workbench
        if workbench is None:
            raise InputError("The server's documents are not read yet; try again when the model is ready.")
        # A sample of documents at equal distances, because there may be millions.
        documents = workbench.documents
        return suggest_questions(documents[:: max(1, len(documents) // NUM_SUGGESTED)][:NUM_SUGGESTED], NUM_SUGGESTED)

    def _read(self, visit: str, files: list[dict[str, Any]] | None, request: gr.Request) -> Upload | None:
        """Read the visit's files. Raises InputError."""
        address = address_of(request)
        return self._backend.workbenches.read(visit, self._backend.visitors.uploaded_paths(address, files), address)

    def stop(self, request: gr.Request) -> None:
        """Stop the visit's races."""
        self._backend.worker.queue.stop(_visit(request))

    def leave(self, request: gr.Request) -> None:
        """Stop the visit's races, and forget its documents."""
        self._backend.worker.queue.stop(_visit(request))
        self._backend.workbenches.forget(_visit(request))

    def describe_choice(
        self, files: list[dict[str, Any]] | None, model: Any, dtype: Any, request: gr.Request
    ) -> list[Any]:
        """The status line, the texts about the documents, and the examples, after files, model or dtype changed."""
        problem = ""
        try:
            upload = self._read(_visit(request), files, request)
            problem = " ".join(upload.skipped) if upload else ""
        except InputError as error:
            upload, problem = None, str(error)
        if problem:
            gr.Warning(html.escape(f"Left out: {problem}", quote=False))
        examples = shown_examples(upload.examples if upload else self._examples)
        buttons = [gr.Button(text, visible=bool(text)) for text in examples]
        num_passages = self._backend.workbenches.num_passages(_visit(request)) if upload else None
        status = self._status(num_passages, str(model or ""), str(dtype or ""))
        return [status, documents_panel.button_text(upload), documents_panel.list_passages(upload), *buttons]

    async def first_status(self, request: gr.Request) -> tuple[str, Any]:
        """The status line while the server's model loads, and the timer, which stops once loading has ended."""
        # `settled` is read before the status, so that the timer stops only after the last status was shown.
        clock = gr.Timer(active=False) if self._backend.worker.loading.settled else gr.skip()
        return self._status(self._backend.workbenches.num_passages(_visit(request))), clock

    def describe_servers(self) -> str:
        """HTML with a line on each of the operator's servers: whether it answers, and a sentence about it."""
        lines = [
            f"<p data-answers={str(health.answers).lower()}>{html.escape(health.sentence)}</p>"
            for health in self._backend.servers.health()
        ]
        return "".join(lines)

    def _status(self, num_passages: int | None, model: str = "", dtype: str = "") -> str:
        """The status line as JSON: what is being loaded, or what the next race runs on.

        `num_passages` is the number of the visitor's own passages; None if there are no documents of the visitor's own.
        """
        loading = self._backend.worker.loading
        workbench, text = loading.workbench, loading.status
        if workbench is None:
            if loading.failure:
                return to_json(Status("failed", text))
            return to_json(Status("loading", f"{text} …"))
        if num_passages is not None or model or dtype:
            text = self._backend.models.describe_ready(workbench, model, dtype, num_passages)
        return to_json(Status("ready", text))


def read_link(request: gr.Request) -> list[Any]:
    """The values that the page's address sets, in the order of `race_request.LINK`; then a note if one is invalid."""
    skip = gr.skip()
    values, problem = race_request.read_link(dict(request.query_params))
    if "lanes" in values:
        values["lanes"] = lane_choices.tick(values["lanes"])
    note = to_json(NoteMessage(0, "failed", problem)) if problem else skip
    return [*(values.get(name, skip) for name in race_request.LINK.values()), note]


def shown_examples(examples: Sequence[str]) -> list[str]:
    """The texts of the NUM_EXAMPLES example buttons; "" for a button that is not needed."""
    return [*examples, *[""] * NUM_EXAMPLES][:NUM_EXAMPLES]


def _visit(request: gr.Request) -> str:
    return request.session_hash or ""
