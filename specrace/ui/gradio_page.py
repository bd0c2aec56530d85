"""Gradio's page with what it lacks: errors that keep a visitor's words out of the log, and uploads with limits."""

from __future__ import annotations

import html
import logging
from pathlib import Path
from typing import Any

import anyio.to_thread
import gradio as gr
from gradio.processing_utils import save_bytes_to_cache
from gradio.utils import get_upload_folder
from gradio_client import utils as gradio_client
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.core.errors import InputError
from specrace.ui import uploads
from specrace.ui.file_reader import OUR_FAULT
from specrace.ui.guard import API, UPLOAD
from specrace.ui.telemetry import Telemetry
from specrace.ui.visitors import NOT_UPLOADED, TooManyError, Visitors

log = logging.getLogger(__name__)


class Page(gr.Blocks):
    """Unlike Gradio's own, it prints no error of a component, which quotes its input, and fetches no address.

    On a Space it asks Hugging Face for no header and no fonts.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.space_id = None

    async def process_api(self, block_fn: Any, inputs: list[Any], *rest: Any, **named: Any) -> dict[str, Any]:
        """Handle an event. Raises gr.Error with a sentence for the visitor."""
        try:
            gradio_client.traverse(inputs, _check_file, gradio_client.is_file_obj_with_meta)
            return dict(await super().process_api(block_fn, inputs, *rest, **named))
        except InputError as error:
            # A toast is HTML; a visitor's own words in it stay words.
            raise gr.Error(html.escape(str(error), quote=False), print_exception=False) from None
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception:
            log.exception("an event failed")
            raise gr.Error(OUR_FAULT, print_exception=False) from None


class CatchErrors:
    """ASGI middleware: where a request makes Gradio's code fail, the answer is a sentence."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception:
            log.exception("a request failed")
            if not begun:
                await JSONResponse({"error": OUR_FAULT}, 500)(scope, receive, send)


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


def _check_file(file: dict[str, Any]) -> dict[str, Any]:
    # Gradio would download an address, and read any file of the server while its page is mounted, not launched.
    if not Path(str(file.get("path"))).resolve().is_relative_to(Path(get_upload_folder()).resolve()):
        raise InputError(NOT_UPLOADED)
    return file
