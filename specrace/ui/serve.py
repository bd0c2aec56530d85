"""Serve the page at once, and load the model behind it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.shipped import ASSETS, CORPUS, QUESTIONS, RECORDINGS

if TYPE_CHECKING:
    from specrace.workbench import Workbench

DTYPES = ("float32", "bfloat16", "float16")
FIRST_QUESTIONS = (
    "What is the n-gram trie built from?",
    "Explain how Jacobi decoding works.",
    "Why does bread rise?",
    "What causes the tides?",
)


def serve(options: argparse.Namespace) -> None:
    """Serve the page until it is interrupted."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    if all(Path(name).exists() for name in (options.model, options.draft_model) if name is not None):
        os.environ["HF_HUB_OFFLINE"] = "1"
    from specrace.ui.gallery import Gallery
    from specrace.ui.models import Models
    from specrace.ui.page import build_page, build_replay, launch_options
    from specrace.ui.worker import Worker
    from specrace.views.audit import read_recording

    where = {"server_name": options.host, "server_port": options.port, "prevent_thread_lock": True}
    if options.replay is not None:
        read_recording(options.replay)
        page = build_replay(Gallery([options.replay]))
        page.launch(**where, **launch_options())
    else:
        worker = Worker(loader(options))
        models = Models(options.model, offered_models(options), DTYPES)
        page = build_page(worker, example_questions(options), Gallery.in_folder(RECORDINGS), models)
        page.launch(**where, **launch_options(worker))
        worker.start()
    page.block_thread()


def loader(options: argparse.Namespace) -> Callable[[Callable[[str], None]], Workbench]:
    """What the worker runs first. It brings torch, so it is not imported before the page is up."""

    def load(report: Callable[[str], None]) -> Workbench:
        report("Loading the model")
        import transformers.utils.logging

        from specrace.model.target import use_processors
        from specrace.workbench import Workbench

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # One processor is for the page, and for a browser on this machine.
        use_processors(options.threads, spare=1)
        bench = Workbench.open(
            model=options.model,
            documents=[options.corpus],
            device=options.device,
            dtype=options.dtype,
            draft_model=options.draft_model,
            keep_outputs=options.keep_outputs,
            report=report,
        )
        report(describe(bench))
        return bench

    return load


def describe(bench: Workbench) -> str:
    """The model and the documents in a few words."""
    about = bench.target.describe()
    return f"Ready: {about['model']}, {about['dtype']}, {about['device']}, {bench.num_passages} passages"


def offered_models(options: argparse.Namespace) -> dict[str, str | Path]:
    """What a visitor may choose: the model that was given, and those that ship with the repository."""
    shipped = {path.parent.name: path.parent for path in sorted(ASSETS.glob("*/config.json"))}
    return {Path(options.model).name if Path(options.model).exists() else options.model: options.model, **shipped}


def example_questions(options: argparse.Namespace) -> list[str]:
    """Questions that our own documents answer; none for another corpus."""
    if options.corpus.resolve() != CORPUS or not QUESTIONS.is_file():
        return []
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    known = [json.loads(line)["question"] for line in lines if line.strip()]
    first = [question for question in FIRST_QUESTIONS if question in known]
    return first + [question for question in known if question not in first]
