"""Keys for the callers of endpoints, and a way to run their work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import gradio as gr

from specrace.ui.helper.pool import HelperPool
from specrace.ui.server.visitors import address_of

T = TypeVar("T")


def caller_key(request: gr.Request) -> str:
    """The key of an API client's jobs, in place of a visit's id. Clients are distinguished by their address."""
    return f"api {address_of(request)}"


def call_key(request: gr.Request) -> str:
    """The key of one call, by which `Visitors` knows whether its caller is still connected."""
    return request.session_hash or ""


async def run_in_thread(pool: HelperPool, work: Callable[[], T]) -> T:
    """Run `work`, which blocks, in one of the pool's threads, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(pool.threads, work)
