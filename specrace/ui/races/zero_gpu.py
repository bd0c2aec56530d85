"""Races on Hugging Face's ZeroGPU, which lends a GPU for one function call, in a process forked for that call.

Everything around the race (retrieval, the prompt, limits, texts, the page) stays in the server's process, which has no
GPU, and in which the package `spaces` imitates CUDA. A `PreparedRace` goes into the call, and events come out.

Written against `spaces` 0.51.3: zero/wrappers.py (the forked process), zero/client.py (the quota), zero/__init__.py
(the start).
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
# Seconds of GPU time to ask for: START_S once, to move the weights, capture graphs and warm up; STEP_S for each step,
# to launch the kernels of an eager forward.
START_S, STEP_S = 10.0, 0.03
# The rate at which weights are read: half of a small card's bandwidth.
BYTES_PER_S = 3e11
# The most seconds to ask for: a visitor without an account has two minutes a day, and may be charged one and a half
# times what is asked for.
MAX_S = 60
# The race is stopped this long before its time is up, so that it can still report its results so far.
MARGIN_S = 3.0
# The title of the error that `spaces` raises for a visitor whose quota is spent.
QUOTA = "ZeroGPU quota exceeded"


@dataclass(frozen=True)
class Refusal:
    """Carries an InputError's sentence out of the call: of an exception raised there, only the type would come out."""

    sentence: str


def is_enabled() -> bool:
    """Whether this is a Space on ZeroGPU. `spaces` uses the same rule."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "t", "true")


def imitate_cuda() -> None:
    """Make torch behave as if this process had CUDA. Call this before anything else asks for CUDA."""
    import spaces  # noqa: F401  importing it has this effect


def report_started(page: Any, port: int) -> None:
    """Tell `spaces` that the app is up. Call this once the model is loaded, in the thread that loaded it.

    `spaces` does this itself in Gradio's `launch`, which this app does not call. `spaces` takes the port from the page,
    to close the forked process's copies of the visitors' connections.
    """
    import spaces.zero

    page.server = SimpleNamespace(config=SimpleNamespace(port=port), close=lambda: None)
    spaces.zero.startup()


def call_seconds(weight_bytes: int, prepared: PreparedRace) -> int:
    """The seconds of GPU time to ask for, if each lane takes one step for each new token. At most MAX_S.

    >>> from types import SimpleNamespace as Fake
    >>> call_seconds(0, Fake(spec=Fake(lanes=("vanilla", "trie"), max_new_tokens=100)))
    16
    """
    steps = len(prepared.spec.lanes) * prepared.spec.max_new_tokens
    return min(MAX_S, math.ceil(START_S + steps * (STEP_S + weight_bytes / BYTES_PER_S)))


def make_runner(target: Target) -> Runner:
    """A function that runs prepared races on ZeroGPU's GPU.

    `target` is on "cuda" and was loaded with `ready=False`: each call makes it ready, because only a call has a GPU.
    A race runs once, because repeats would use up the visitor's quota.
    """
    import spaces

    from specrace.model.machine.roofline import weight_bytes

    # Made before any process is forked, so that all share it.
    stopped = multiprocessing.get_context("fork").Event()
    duration = partial(call_seconds, weight_bytes(target.model))

    def on_gpu(prepared: PreparedRace) -> Iterator[Event | Refusal]:
        deadline = time.monotonic() + duration(prepared) - MARGIN_S
        yield from race_in_call(target, prepared, lambda: stopped.is_set() or time.monotonic() > deadline)

    call: Callable[[PreparedRace], Iterator[Event | Refusal]] = spaces.GPU(on_gpu, duration=duration)

    def run(prepared: PreparedRace, stop: Callable[[], bool], _again: Callable[[Repeated], bool]) -> Iterator[Event]:
        stopped.clear()

        def pass_on_stop() -> None:
            if stop():
                stopped.set()

        return _events_of(call(prepared), pass_on_stop)

    return run


def race_in_call(target: Target, prepared: PreparedRace, stop: Callable[[], bool]) -> Iterator[Event | Refusal]:
    """Run a race in the forked process, which has the GPU. Graphs that it captures end with that process."""
    from specrace.model.loading import make_ready
    from specrace.model.machine.memory import use_processors
    from specrace.workbench import run_prepared

    # Threads do not survive a fork, so a library that waited for its thread pool would wait forever.
    use_processors(1, spare=0)
    try:
        make_ready(target)
        yield from run_prepared(target, prepared, stop, lambda _: False)
    except InputError as error:
        yield Refusal(str(error))


def _events_of(items: Iterator[Event | Refusal], before_event: Callable[[], None]) -> Iterator[Event]:
    """Yield a call's events, each after a call of `before_event`. Raises InputError for a refusal, or without a GPU."""
    import gradio as gr

    try:
        for item in items:
            before_event()
            if isinstance(item, Refusal):
                raise InputError(item.sentence)
            yield item
    except gr.Error as error:
        raise InputError(explain_error(error.title, str(error.message))) from None


def explain_error(title: str, message: str) -> str:
    """A sentence about an error that `spaces` raised, from its title and message."""
    reason = message.strip().rstrip(".")
    if title == QUOTA:
        return f"Your ZeroGPU quota is spent ({reason}): watch the recorded races, which need no GPU."
    return f"ZeroGPU did not give this race a GPU until its end ({reason}): try again, or watch the recorded races."
