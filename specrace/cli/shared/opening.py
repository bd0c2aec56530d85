"""Opens what a command's arguments name: the workbench, its models, and tokenizers. Missing models are fetched."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from specrace.cli.shared.terminal import CleanConsole, complain, console, quiet_model_library
from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.errors import InputError
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer
from specrace.model.weights.source import ModelChoice, ModelSource, find_source

if TYPE_CHECKING:
    from specrace.workbench import Workbench


def open_workbench(options: argparse.Namespace) -> Workbench:
    """Open the workbench that a command's arguments describe. Raises InputError.

    `options.followers`: the processes with the other parts of the model, if torchrun started several; else None.
    """
    # Imported here, because it imports torch, which other commands do not need.
    from specrace.workbench import Workbench

    quiet_model_library()
    stderr = console(stderr=True)
    stderr.quiet = options.json
    choice = read_model_choice(options)
    return Workbench.open(
        choice,
        documents=options.docs or (CORPUS,),
        index=options.index,
        reranker=options.reranker,
        followers=options.followers,
        on_progress=lambda message: stderr.print(f"{message} ...", style="dim"),
        on_skip=lambda sentence: complain(f"Left out: {sentence}"),
    )


def read_model_choice(options: argparse.Namespace) -> ModelChoice:
    """The model and draft models that a command's arguments name, and how to load them. Raises InputError.

    Models that are missing are fetched.
    """
    source = fetch_if_missing(find_source(options.model or BUNDLED_MODEL), quiet=options.json)
    drafts = [fetch_if_missing(find_source(draft), quiet=options.json) for draft in options.draft_model or ()]
    return ModelChoice(
        source,
        device=options.device,
        dtype=options.dtype,
        draft=drafts[0] if drafts else None,
        more_drafts=tuple(drafts[1:]),
        adapter=options.adapter,
        # Not every command has --head.
        heads=tuple(getattr(options, "head", ())),
    )


def find_tokenizer(name: str, *, quiet: bool) -> ChatTokenizer:
    """Load a model's tokenizer by short name, folder or hub id. Raises InputError.

    If the model is missing, `load_tokenizer` fetches its tokenizer alone; if that fails, the whole model is fetched.
    """
    source = find_source(name)
    # Converting a GGUF file takes minutes, too long for a tokenizer: `load_tokenizer` refuses it and says what to give.
    if source.is_missing and source.gguf is None:
        with suppress(InputError):
            return load_tokenizer(source.location)
        source = fetch_if_missing(source, quiet=quiet)
    return load_tokenizer(source.location)


def fetch_if_missing(source: ModelSource, *, quiet: bool) -> ModelSource:
    """Fetch the model if it is missing; returns its new source. Raises InputError."""
    return fetch_model(source, quiet=quiet) if source.is_missing else source


def fetch_model(source: ModelSource, *, quiet: bool) -> ModelSource:
    """Fetch a model, with a progress bar on standard error; returns the model's new source. Raises InputError.

    The decoder is compiled, too, so that the first race need not wait for it.
    """
    from specrace.model.forward.compiled.ahead import compile_decoder
    from specrace.model.weights.fetching import fetch

    # The console keeps the current stream, because `sys.stderr` is redirected while a library is silenced.
    out = CleanConsole(file=sys.stderr, markup=False, emoji=False, highlight=False, quiet=quiet)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out) as progress:
        task = progress.add_task(source.name, total=None)

        def show_progress(what: str, done: int, total: int) -> None:
            # None leaves a value of the bar unchanged.
            description = f"{source.name}: {what}"
            progress.update(task, description=description, completed=done if total else None, total=total or None)

        fetched = fetch(source, show_progress)
        compile_decoder(show_progress)
        return fetched
