"""Replaces parts of Gradio's page, so that no error logs what a visitor sent, and uploads have limits."""

from __future__ import annotations

import hashlib
import html
import logging
import shutil
from pathlib import Path
from typing import Any

import anyio.to_thread
import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.exceptions import ComponentProcessingError
from gradio.route_utils import FnIndexInferError
from gradio.utils import get_upload_folder
from gradio_client import utils as gradio_client
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.core.errors import InputError, shorten
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.page.gradio_private import is_pending
from specrace.ui.server.guard import API, READER, UPLOAD
from specrace.ui.server.stored_body import NO_ROOM
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import NOT_UPLOADED, TooManyError, Visitors, address_of
from specrace.ui.visitor_limits import MAX_UPLOAD_FILES

CALL_PATHS = tuple(f"{API}/{name}" for name in ("call/", "queue/join", "run/", "api/"))
NO_EVENT = "There is no such event, or its answer was read already; start another."
WHERE_LISTED = f"GET {API}/info lists endpoints and parameters."

log = logging.getLogger(__name__)


class Refusal(gr.Error):
    """An error whose text is the bare sentence; that of `gr.Error` puts it in quotation marks."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, print_exception=False)

    def __str__(self) -> str:
        return str(self.message)


class Page(gr.Blocks):
    """Gradio's page, but it never logs a component's error, which would quote the input, and never fetches a URL.

    On a Space it requests neither a header nor fonts from Hugging Face (`space_id` makes Gradio do so).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.space_id = None

    async def process_api(self, block_fn: Any, inputs: list[Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Handle an event. Raises gr.Error with a sentence for the client."""
        if isinstance(request := kwargs.get("request"), Request):
            # A tool's call has no Gradio session: its reader's key (`guard.reader_of`) takes the session hash's place.
            kwargs["request"] = gr.Request(request, session_hash=request.scope.get(READER))
        try:
            # Check each value, at any depth, that stands for a file.
            gradio_client.traverse(inputs, _check_file, _is_file)
            if block_fn.fn is None:
                raise InputError(
                    "This event belongs to the page; programs call race, retrieve, score or recommend "
                    "(GET /gradio_api/info)."
                )
            if len(inputs) < len(block_fn.inputs):
                raise InputError(
                    f"This endpoint takes {len(block_fn.inputs)} values and got {len(inputs)}; {WHERE_LISTED}"
                )
            return dict(await super().process_api(block_fn, inputs, *args, **kwargs))
        except InputError as error:
            # The sentence may quote a visitor's text. The page shows it as HTML, so it is escaped; programs get plain
            # text.
            sentence = str(error) if block_fn.api_visibility == "public" else html.escape(str(error), quote=False)
            raise Refusal(sentence) from None
        except (ComponentProcessingError, ValidationError):
            raise Refusal("A value has a type that this event does not take.") from None
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:
            log.exception("an event failed")
            raise Refusal(OUR_FAULT) from None


class CatchErrors:
    """ASGI middleware that answers with a sentence when a request makes Gradio's code fail."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if not _may_read(scope):
            await JSONResponse({"error": NO_EVENT}, 404)(scope, receive, send)
            return
        held: list[Message] = []
        body_sent = False

        async def hold_start(message: Message) -> None:
            nonlocal body_sent
            # Gradio sends the start of its answer before it looks up the event, which may not exist.
            if not body_sent and message["type"] == "http.response.start":
                held.append(message)
                return
            body_sent = True
            while held:
                await send(held.pop())
            await send(message)

        try:
            await self._app(scope, receive, hold_start)
        except Exception as error:
            status, sentence = _explain(scope["path"], error)
            if status == 500:
                log.exception("a request failed")
            if not body_sent:
                await JSONResponse({"error": sentence}, status)(scope, receive, send)


def _may_read(scope: Scope) -> bool:
    """Whether a request may be passed to Gradio. One for an event's answer may not if no answer will come.

    If the answer was read before, Gradio would keep the connection open without end; if there is no such event, it
    would cut the connection off.
    """
    is_read = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith(f"{API}/call/")
    return not is_read or is_pending(scope["app"], scope["path"].rstrip("/").rpartition("/")[2])


def _explain(path: str, error: Exception) -> tuple[int, str]:
    """The status and the sentence for a request that made Gradio fail; the status is 500 if the fault is ours."""
    if isinstance(error.__cause__, HTTPException) and error.__cause__.status_code == 404:
        return 404, NO_EVENT
    if isinstance(error, KeyError | FnIndexInferError) and path.startswith(CALL_PATHS):
        return 400, f"There is no endpoint of this name; {WHERE_LISTED}"
    if isinstance(error, TypeError) and str(error).startswith(("Parameter `", "No value provided")):
        return 400, f"{shorten(str(error).partition('. ')[0])}; {WHERE_LISTED}"
    return 500, OUR_FAULT


async def explain_bad_body(_: Request, error: Exception) -> Response:
    """Say what is wrong with a request's body. FastAPI's own answer repeats the body, and fails if it contains NaN."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    field = ".".join(str(part) for part in problem["loc"])
    return JSONResponse({"error": f"{shorten(field, 80)} cannot be used: {shorten(problem['msg'])}."}, 422)


def upload_routes(page: gr.Blocks, visitors: Visitors, telemetry: Telemetry) -> list[Route]:
    """Routes that receive uploaded files. Those of Gradio that they replace accept any number of files."""

    async def receive(request: Request) -> Response:
        address = address_of(request)
        try:
            visitors.count_upload_request(address)
            form = await DiskForm.read(request)
            try:
                files = _documents(form)
                visitors.count_upload(address, len(files))
                paths = [await anyio.to_thread.run_sync(_save, name, file.file) for name, file in files]
            finally:
                await form.close()
        except HTTPException as error:
            return PlainTextResponse(error.detail, error.status_code)
        except MultiPartException as error:
            return PlainTextResponse(error.message, 400)
        except ClientDisconnect:
            return PlainTextResponse("The rest of the request did not arrive.", 400)
        except InputError as error:
            return PlainTextResponse(str(error), 429 if isinstance(error, TooManyError) else 400)
        except OSError:
            log.exception("an upload was not stored")
            return PlainTextResponse(NO_ROOM, 507)
        # Gradio deletes the files in this set after a while.
        page.upload_file_set.update(paths)
        visitors.remember_files(address, paths)
        telemetry.uploaded(len(paths))
        return JSONResponse(paths)

    async def progress(_: Request) -> Response:
        """Report that the upload is complete, since `receive` answers only once the files are stored."""
        return PlainTextResponse('data: {"msg": "done"}\n\n', media_type="text/event-stream")

    return [Route(UPLOAD, receive, methods=["POST"]), Route(f"{API}/upload_progress", progress)]


class DiskForm(MultiPartParser):
    """Writes a form's files to disk; Starlette's own parser keeps up to 1 MB of each in memory."""

    # In bytes: a larger file is on disk, not in memory.
    spool_max_size = 1

    @classmethod
    async def read(cls, request: Request) -> FormData:
        """The files of a request. Raises MultiPartException."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise MultiPartException("Send the files as multipart/form-data.")
        return await cls(request.headers, request.stream(), max_files=MAX_UPLOAD_FILES, max_fields=0).parse()


def _documents(form: FormData) -> list[tuple[str, UploadFile]]:
    """(name that is safe on disk, file) for each file in a form. Contents are checked later."""
    files = [file for file in form.getlist("files") if isinstance(file, UploadFile)]
    names = [gradio_client.strip_invalid_filename_characters(Path(file.filename or "").name) for file in files]
    return [(name if name.strip(". ") else "unnamed", file) for name, file in zip(names, files, strict=True)]


def _save(name: str, file: Any) -> str:
    """Store an open file in a folder that is named after its content, and return its path."""
    folder = Path(get_upload_folder(), hashlib.file_digest(file, "sha256").hexdigest())
    folder.mkdir(exist_ok=True, parents=True)
    file.seek(0)
    with (folder / name).open("wb") as stored:
        shutil.copyfileobj(file, stored)
    return str((folder / name).resolve())


def _is_file(value: Any) -> bool:
    # Wider than Gradio's own check, which fails if "meta" is not an object; `_check_file` refuses what is invalid.
    return isinstance(value, dict) and "path" in value and "meta" in value


def _check_file(file: dict[str, Any]) -> dict[str, Any]:
    # Without this check Gradio would download a URL and, on a page that is mounted instead of launched, read any file
    # of the server.
    is_valid = isinstance(file["path"], str) and isinstance(file["meta"], dict)
    if not is_valid or not Path(file["path"]).resolve().is_relative_to(Path(get_upload_folder()).resolve()):
        raise InputError(NOT_UPLOADED)
    return file
