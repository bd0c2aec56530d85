"""The endpoints `race` and `retrieve`, on the server's documents or the caller's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import gradio as gr

from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.engine.request import check_question
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui.api.callers import call_key, caller_key, run_in_thread
from specrace.ui.api.schema import documented
from specrace.ui.helper import upload_reader
from specrace.ui.races.backend import Backend
from specrace.ui.races.job import Job
from specrace.ui.races.stream import race_report, wait_until_done
from specrace.ui.races.tasks import race_task, retrieval_task
from specrace.ui.server.visitors import address_of

if TYPE_CHECKING:
    from specrace.retrieval.retriever import Hit


class RaceEndpoints:
    """The endpoints that need the model or its documents. When a caller disconnects, its work is stopped."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @documented
    async def race(
        self,
        request: gr.Request,
        question: str,
        lanes: list[str] = list(DEFAULT_LANES),  # noqa: B006  Gradio reads the default for its documentation
        max_new_tokens: int = SETTINGS["max_new_tokens"].default,
        temperature: float = SETTINGS["temperature"].default,
        top_p: float = SETTINGS["top_p"].default,
        seed: int = SETTINGS["seed"].default,
        num_draft: int | Literal["auto"] = "auto",
        passages: int | Literal["auto"] = "auto",
        verifier: str = SETTINGS["verifier"].default,
        thinking: str = SETTINGS["thinking"].default,
        options: dict[str, dict[str, Any]] | None = None,
        model: str = "",
        dtype: str = "",
        files: Any = None,
    ) -> dict[str, Any]:
        """Race draft-and-verify decoders on a question about the documents.

        Vanilla, one token a step, always runs too: it is the baseline for speed and text.

        Returns:
            The question's passages, and for each lane its text, tokens per step, speedup, whether it printed vanilla's
            text, and its other figures, as `race --json` prints them.
        """
        settings = {
            "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p, "seed": seed,
            "num_draft": num_draft, "passages": passages, "verifier": verifier, "thinking": thinking,
        }  # fmt: skip
        race = self._backend.read_request(address_of(request), question, lanes, settings, options, model, dtype)
        caller = caller_key(request)
        upload = await self._upload(request, files)
        task = race_task(race, self._backend, caller, upload)
        job = self._backend.worker.queue.submit(caller, task, for_page=False)
        return await self._backend.visitors.run_while_wanted(call_key(request), race_report(job))

    @documented
    async def retrieve(
        self, request: gr.Request, question: str, passages: int | Literal["auto"] = "auto", files: Any = None
    ) -> list[dict[str, Any]]:
        """Find the passages of the documents that answer a question, best first.

        Returns:
            Passages with document, title, place, start and end (characters in the document's text), score (cosine to
            the question), text, and evidence: start and end in that text of the sentences that answer.
        """
        check_question(question)
        top = SETTINGS["passages"].check(passages, shared=True)
        self._backend.visitors.count_retrieval(address_of(request))
        caller = caller_key(request)
        hits: list[Hit] = []
        upload = await self._upload(request, files)
        task = retrieval_task(question, top, self._backend, caller, upload, hits)
        job = self._backend.worker.queue.submit(caller, task, for_page=False, is_race=False)
        await self._backend.visitors.run_while_wanted(call_key(request), _wait_for_success(job))
        return [_describe_hit(hit) for hit in hits]

    async def _upload(self, request: gr.Request, files: Any) -> upload_reader.Upload | None:
        """Read the caller's documents; returns None if there are none. Raises InputError."""
        address = address_of(request)
        paths = self._backend.visitors.uploaded_paths(address, files)
        if not paths:
            return None
        read = partial(self._backend.workbenches.read, caller_key(request), paths, address, call_key(request))
        return await run_in_thread(self._backend.worker.other_work.files, read)


async def _wait_for_success(job: Job) -> None:
    """Wait for a job. Raises InputError if it failed."""
    await wait_until_done(job)
    if job.error:
        raise InputError(job.error)


def _describe_hit(hit: Hit) -> dict[str, Any]:
    """A retrieved passage as JSON values. Its evidence is sorted by the sentences' rank, the best first."""
    evidence = [sentence for sentence in hit.sentences if sentence.evidence]
    ranked = sorted(evidence, key=lambda sentence: sentence.evidence)
    passage = hit.passage
    return {
        "document": passage.document,
        "title": passage.title,
        "place": passage.place,
        "start": passage.start,
        "end": passage.end,
        "score": round(float(hit.score), 4),
        "text": passage.text,
        "evidence": [[sentence.start, sentence.end] for sentence in ranked],
    }
