"""Opens the workbench that the page races on, and fetches its model first if necessary.

If the device or the default model fails, the workbench is opened on the CPU or with the bundled model instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import DeviceError, InputError
from specrace.model.weights.source import find_source
from specrace.retrieval.embedder import DEFAULT_EMBEDDER
from specrace.retrieval.rerank import LIGHT, NONE
from specrace.retrieval.store import read_header
from specrace.ui.config import ServerConfig
from specrace.ui.races import zero_gpu

if TYPE_CHECKING:
    from specrace.workbench import Workbench

# How often the status line gets the progress of a fetch.
FETCH_POLL_S = 0.5


def models_to_load(config: ServerConfig) -> list[str]:
    """The folders or hub ids of all models that the server may load."""
    reranker = None if config.reranker in (NONE, LIGHT) else config.reranker
    embedder = None if config.index is None else read_header(config.index).embedder
    # The default embedder is installed, never fetched.
    if embedder == DEFAULT_EMBEDDER:
        embedder = None
    sources = (config.model.source, *config.model.drafts)
    names = (reranker, embedder, *(config.models or ()))
    return [str(source.location) for source in sources] + [name for name in names if name is not None]


def stay_offline() -> None:
    """Make the Hugging Face library offline, even if it has been imported already."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if (constants := sys.modules.get("huggingface_hub.constants")) is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def loader(config: ServerConfig) -> Callable[[Callable[[str], None]], Workbench]:
    """The function that loads the worker's workbench; its argument is a callback for the progress.

    It imports torch only when it is called, so that the page is served before this slow import.
    """

    def load(on_progress: Callable[[str], None]) -> Workbench:
        on_progress("Loading the model")
        import transformers.utils.logging

        from specrace.model.machine.memory import use_processors
        from specrace.ui.races.model_choices import ModelChoices

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # One processor stays free for the page, and for a browser on this machine.
        use_processors(config.threads, spare=1)
        workbench, problem = _open_workbench(config, on_progress)
        if zero_gpu.is_enabled():
            workbench.runner = zero_gpu.make_runner(workbench.target)
        on_progress(ModelChoices().describe_ready(workbench) + problem)
        return workbench

    return load


def _open_workbench(config: ServerConfig, on_progress: Callable[[str], None]) -> tuple[Workbench, str]:
    """Open the workbench. If the device or the default model fails, open it on the CPU or with the bundled model.

    Returns the workbench, and what to add to the status line: why it is such a substitute, or "".
    """
    from specrace.workbench import Workbench

    open_default = partial(
        Workbench.open,
        documents=[config.corpus],
        index=config.index,
        reranker=config.reranker,
        keep_outputs=config.keep_outputs,
        # On ZeroGPU, which lends a GPU for single calls, each call makes the model ready (`zero_gpu.make_runner`).
        ready=not zero_gpu.is_enabled(),
        on_progress=on_progress,
    )
    choice = config.model
    try:
        for source in (choice.source, *choice.drafts):
            if source.is_missing:
                fetch(source.name, config.offline, on_progress)
        # Now the models that were missing have a folder.
        choice = choice.refresh()
        return open_default(choice), ""
    except DeviceError as error:
        # Races are slower on the CPU, but the page works.
        return open_default(replace(choice, device="cpu")), f". {error} Races run on the CPU instead."
    except InputError as error:
        # A model that the user named is never replaced by the bundled one.
        if not config.is_default_model or choice.source.location == BUNDLED_MODEL:
            raise
        return open_default(replace(choice, source=find_source(BUNDLED_MODEL))), f". {error}"


def fetch(name: str, offline: str, on_progress: Callable[[str], None]) -> None:
    """Fetch a model by its short name in another process, and wait for it. Raises InputError."""
    from specrace.ui.helper.fetcher import Fetcher

    fetcher = Fetcher(name, offline=offline)
    fetcher.start()
    try:
        while not fetcher.wait(FETCH_POLL_S):
            on_progress(fetcher.text)
        if not fetcher.ready:
            raise InputError(fetcher.text)
    finally:
        fetcher.close()
