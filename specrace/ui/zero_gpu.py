"""Hugging Face's ZeroGPU: a GPU for the length of a call, in a process that is forked for it.

Everything before the model (retrieval, the prompt, counts) and after it (texts, the page) stays in the server's
process, where `spaces` imitates CUDA and no GPU is; a `PreparedRace` crosses on the way in, and events on the way out.
The source is `spaces` 0.51.3: zero/wrappers.py (the forked process), zero/client.py (the quota), zero/__init__.py (the
start).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from specrace.core.errors import InputError
from specrace.core.events import Event, Repeated

if TYPE_CHECKING:
    from specrace.model.target import Target
    from specrace.workbench import PreparedRace, Runner

VARIABLE = "SPACES_ZERO_GPU"
# Seconds that are asked for: to move the weights, record and warm up; and of each step, an eager forward's launches.
START_S, STEP_S = 10.0, 0.03
# Weights are read at half of a small card's bandwidth.
BYTES_PER_S = 3e11
# A visitor without an account has two minutes a day, and may be charged one and a half times what is asked for.
MAX_S = 60
# The race ends by itself so long before its time is over, with the figures so far.
MARGIN_S = 3.0
QUOTA = "ZeroGPU quota exceeded"


@dataclass(frozen=True)
class Refusal:
    """An InputError on its way out of the call: of an exception only its type would arrive."""

    sentence: str


def is_here() -> bool:
    """Whether this is a Space on ZeroGPU, as `spaces` sees it."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "t", "true")


def enter() -> None:
    """Imitate CUDA in this thread from now on. Call it before anything else asks for CUDA."""
    import spaces  # noqa: F401  importing it is what does that


def announce(page: Any, port: int) -> None:
    """Report that the app is up. Call it once the model is loaded, in the thread that has loaded it.

    `spaces` does that when Gradio's own `launch` is called, which this app does without. It also asks the page for its
    port: a forked process closes its copies of the visitors' connections.
    """
    import spaces.zero

    page.server = SimpleNamespace(config=SimpleNamespace(port=port), close=lambda: None)
    spaces.zero.startup()


def seconds(weight_bytes: int, prepared: PreparedRace) -> int:
    """The time to ask for: every lane may take as many steps as there are new tokens.

    >>> from types import SimpleNamespace as Some
    >>> seconds(0, Some(spec=Some(lanes=("vanilla", "trie"), max_new_tokens=100)))
    16
    """
    steps = len(prepared.spec.lanes) * prepared.spec.max_new_tokens
    return min(MAX_S, math.ceil(START_S + steps * (STEP_S + weight_bytes / BYTES_PER_S)))


def runner(target: Target) -> Runner:
    """What runs prepared races on ZeroGPU's GPU. `target` lies on "cuda", not `ready` yet.

    A race runs once, for repeats would take the visitor's quota.
    """
    import spaces

    from specrace.model.roofline import weight_bytes

    # Made before any process is forked, so that all of them share it.
    stopped = multiprocessing.get_context("fork").Event()
    duration = partial(seconds, weight_bytes(target.model))

    def on_gpu(prepared: PreparedRace) -> Iterator[Event | Refusal]:
        until = time.monotonic() + duration(prepared) - MARGIN_S
        yield from race_in_call(target, prepared, lambda: stopped.is_set() or time.monotonic() > until)

    call: Callable[[PreparedRace], Iterator[Event | Refusal]] = spaces.GPU(on_gpu, duration=duration)

    def run(prepared: PreparedRace, stop: Callable[[], bool], _again: Callable[[Repeated], bool]) -> Iterator[Event]:
        stopped.clear()
        return _watched(call(prepared), lambda: stopped.set() if stop() else None)

    return run


def race_in_call(target: Target, prepared: PreparedRace, stop: Callable[[], bool]) -> Iterator[Event | Refusal]:
    """The race in the forked process, where a GPU is. What it records and warms up ends with that process."""
    from specrace.model.loading import make_ready
    from specrace.model.machine import use_processors
    from specrace.workbench import run_prepared

    # Threads do not survive a fork, and a library that waits for those of its pool would wait for ever.
    use_processors(1, spare=0)
    try:
        make_ready(target)
        yield from run_prepared(target, prepared, stop, lambda _: False)
    except InputError as error:
        yield Refusal(str(error))


def _watched(events: Iterator[Event | Refusal], look: Callable[[], None]) -> Iterator[Event]:
    """The events of a call, `look` at each. Raises InputError for its refusal, or where there is no GPU."""
    import gradio as gr

    try:
        for event in events:
            look()
            if isinstance(event, Refusal):
                raise InputError(event.sentence)
            yield event
    except gr.Error as error:
        raise InputError(tell(error.title, str(error.message))) from None


def tell(title: str, message: str) -> str:
    """One sentence for what `spaces` raises, by its title and message."""
    reason = message.strip().rstrip(".")
    if title == QUOTA:
        return f"Your ZeroGPU quota is spent ({reason}): watch the recorded races, which need no GPU."
    return f"ZeroGPU gave this race no GPU to its end ({reason}): try again, or watch the recorded races."
