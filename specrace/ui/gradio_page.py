"""Gradio's page with what it lacks: errors that keep a visitor's words out of the log, and uploads with limits."""

from __future__ import annotations

import html
import logging
from pathlib import Path
from typing import Any

import anyio.to_thread
import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.exceptions import ComponentProcessingError
from gradio.processing_utils import save_bytes_to_cache
from gradio.route_utils import FnIndexInferError
from gradio.utils import get_upload_folder
from gradio_client import utils as gradio_client
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.core.errors import InputError, shorten
from specrace.ui import uploads
from specrace.ui.guard import API, READER, UPLOAD
from specrace.ui.helper_process import OUR_FAULT
from specrace.ui.telemetry import Telemetry
from specrace.ui.visitors import NOT_UPLOADED, TooManyError, Visitors

CALLS = tuple(f"{API}/{name}" for name in ("call/", "queue/join", "run/", "api/"))
LISTED = f"GET {API}/info lists endpoints and parameters."

log = logging.getLogger(__name__)


class Refusal(gr.Error):
    """A sentence for whoever has asked. Unlike Gradio's own, it is not quoted as text."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, print_exception=False)

    def __str__(self) -> str:
        """The sentence."""
        return str(self.message)


class Page(gr.Blocks):
    """Unlike Gradio's own, it prints no error of a component, which quotes its input, and fetches no address.

    On a Space it asks Hugging Face for no header and no fonts.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.space_id = None

    async def process_api(self, block_fn: Any, inputs: list[Any], *rest: Any, **named: Any) -> dict[str, Any]:
        """Handle an event. Raises gr.Error with a sentence for the visitor."""
        if isinstance(request := named.get("request"), Request):
            # A tool's, which has no session.
            named["request"] = gr.Request(request, session_hash=request.scope.get(READER))
        try:
            gradio_client.traverse(inputs, _check_file, _is_file)
            if block_fn.fn is None:
                raise InputError(
                    "This event belongs to the page; programs call race, retrieve, score or recommend "
                    "(GET /gradio_api/info)."
                )
            if len(inputs) < len(block_fn.inputs):
                raise InputError(f"{len(inputs)} values came of {len(block_fn.inputs)}; {LISTED}")
            return dict(await super().process_api(block_fn, inputs, *rest, **named))
        except InputError as error:
            # A toast is HTML; a visitor's own words in it stay words.
            words = str(error) if block_fn.api_visibility == "public" else html.escape(str(error), quote=False)
            raise Refusal(words) from None
        except (ComponentProcessingError, ValidationError):
            raise Refusal("A value is of another kind than this event takes.") from None
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:
            log.exception("an event failed")
            raise Refusal(OUR_FAULT) from None


class CatchErrors:
    """ASGI middleware: where a request makes Gradio's code fail, the answer is a sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        held: list[Message] = []
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            # Gradio looks for an event only after it has begun to answer.
            if not begun and message["type"] == "http.response.start":
                held.append(message)
                return
            begun = True
            while held:
                await send(held.pop())
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            status, sentence = _explain(scope["path"], error)
            if status == 500:
                log.exception("a request failed")
            if not begun:
                await JSONResponse({"error": sentence}, status)(scope, receive, send)


def _explain(path: str, error: Exception) -> tuple[int, str]:
    """The status and the sentence for a request over which Gradio stumbles: 500 where it is not the request's fault."""
    if isinstance(error.__cause__, HTTPException) and error.__cause__.status_code == 404:
        return 404, "There is no such event, or its answer has been read."
    if isinstance(error, KeyError | FnIndexInferError) and path.startswith(CALLS):
        return 400, f"There is no endpoint of this name; {LISTED}"
    if isinstance(error, TypeError) and str(error).startswith(("Parameter `", "No value provided")):
        return 400, f"{shorten(str(error).partition('. ')[0])}; {LISTED}"
    return 500, OUR_FAULT


async def explain_body(_: Request, error: Exception) -> Response:
    """What is wrong with a body. FastAPI's own answer repeats it, and fails where that has numbers like NaN."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()[0]
    place = ".".join(str(each) for each in found["loc"])
    return JSONResponse({"error": f"{shorten(place, 80)} cannot be used: {shorten(found['msg'])}."}, 422)


def upload_routes(page: gr.Blocks, visitors: Visitors, telemetry: Telemetry) -> list[Route]:
    """Where documents arrive, in place of Gradio's own routes: those take any number of files of any kind."""

    async def receive(request: Request) -> Response:
        address = request.client.host if request.client else None
        try:
            async with request.form(max_files=uploads.MAX_FILES, max_fields=0) as form:
                files = _documents(form)
                visitors.upload(address, len(files))
                paths = [await anyio.to_thread.run_sync(_keep, name, await file.read()) for name, file in files]
        except HTTPException as error:
            return PlainTextResponse(error.detail, error.status_code)
        except InputError as error:
            return PlainTextResponse(str(error), 429 if isinstance(error, TooManyError) else 400)
        except OSError:
            log.exception("an upload was not kept")
            return PlainTextResponse("The server has no room for files; try again later.", 507)
        # Gradio deletes these after a while.
        page.upload_file_set.update(paths)
        visitors.keep(address, paths)
        telemetry.uploaded(len(paths))
        return JSONResponse(paths)

    async def progress(_: Request) -> Response:
        """By the time that anybody asks, they are there."""
        return PlainTextResponse('data: {"msg": "done"}\n\n', media_type="text/event-stream")

    return [Route(UPLOAD, receive, methods=["POST"]), Route(f"{API}/upload_progress", progress)]


def _documents(form: FormData) -> list[tuple[str, UploadFile]]:
    """The files in a form, each with a name that is safe on disk; which of them can be used is found out later."""
    files = [file for file in form.getlist("files") if isinstance(file, UploadFile)]
    names = [gradio_client.strip_invalid_filename_characters(Path(file.filename or "").name) for file in files]
    return [(name if name.strip(". ") else "unnamed", file) for name, file in zip(names, files, strict=True)]


def _keep(name: str, data: bytes) -> str:
    return str(save_bytes_to_cache(data, name, get_upload_folder()))


def _is_file(value: Any) -> bool:
    # Gradio's own check fails where these are no texts.
    return isinstance(value, dict) and "path" in value and "meta" in value


def _check_file(file: dict[str, Any]) -> dict[str, Any]:
    # Gradio would download an address, and read any file of the server while its page is mounted, not launched.
    known = isinstance(file["path"], str) and isinstance(file["meta"], dict)
    if not known or not Path(file["path"]).resolve().is_relative_to(Path(get_upload_folder()).resolve()):
        raise InputError(NOT_UPLOADED)
    return file
