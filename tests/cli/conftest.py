"""Fixtures that run the command line: in a new process, as a user does, or in this process."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from specrace import workbench
from specrace.cli.main import main
from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.target import Target
from specrace.model.weights.source import ModelChoice
from specrace.retrieval.documents import Document
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.token_limits import TokenLimit
from specrace.workbench import Workbench
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
# No proxy listens here, so any request to the network fails immediately.
REFUSING_PROXY = "http://127.0.0.1:9"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run() -> Run:
    """A function that runs the command line in a new process, forked from one that has imported the libraries."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return processes.run(["-m", "specrace", *arguments], env=os.environ | {"HTTPS_PROXY": REFUSING_PROXY})

    return run


def load_once(load: Callable[..., Target]) -> Callable[..., Target]:
    """A loader that caches the bundled model for each set of options, and loads any other model each time."""
    cached = functools.cache(load)

    def load_chosen(choice: ModelChoice, **options: Any) -> Target:
        return (cached if choice.source.location == BUNDLED_MODEL else load)(choice, **options)

    return load_chosen


def index_once(index: Callable[..., PassageIndex]) -> Callable[..., PassageIndex]:
    """A function that indexes documents, which takes half a second, only once for an embedder and a target.

    `limits` stands for both models: the cached `token_limits` in `LOADERS` returns the same list for the same models.
    """
    indexes: dict[tuple[object, ...], PassageIndex] = {}

    def index_new(documents: list[Document], embedder: object, cache_dir: object, limits: list[TokenLimit]) -> Any:
        key = (*documents, cache_dir, os.environ.get("XDG_CACHE_HOME"), id(limits))
        if key not in indexes:
            indexes[key] = index(documents, embedder, cache_dir, limits)
        return indexes[key]

    return index_new


LOADERS: dict[str, Callable[..., Any]] = {
    "load_choice": load_once(workbench.load_choice),
    "load_embedder": functools.cache(workbench.load_embedder),
    "token_limits": functools.cache(workbench.token_limits),
    "open_index": index_once(workbench.open_index),
}


@pytest.fixture(scope="module", autouse=True)
def shared_models() -> Iterator[None]:
    """Make all commands in this process share the models and indexes that they load; no command changes them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, load in LOADERS.items():
            patch.setattr(workbench, name, load)
        yield


@pytest.fixture(scope="session")
def bundled(cache_folder: Path) -> Workbench:  # noqa: ARG001  the cache holds the documents' vectors
    """The bundled model on the bundled documents, shared with the commands; no test may change it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, load in LOADERS.items():
            patch.setattr(workbench, name, load)
        return Workbench.open()


@pytest.fixture
def call_main(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that calls `main` in this process, which takes less time than a new process."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HTTPS_PROXY", REFUSING_PROXY)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = list(map(str, arguments))
        try:
            code = main(command)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else -1
        return subprocess.CompletedProcess(command, code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def recorded_race(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    """A race of the default lanes: its JSON and the file of its recording."""
    path = tmp_path_factory.mktemp("race") / "race.jsonl"
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setenv("HTTPS_PROXY", REFUSING_PROXY)
        code = main(["race", "What is the n-gram trie built from?", "--json", "--save", str(path)])
    assert (code, errors.getvalue()) == (0, "")
    return json.loads(output.getvalue()), path
