"""The hub: fetches a model, or one of its files, into the hub library's cache, and checks what was fetched."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from specrace.core.errors import InputError, first_line, shorten
from specrace.model.weights.names import WEIGHTS, NamedModel, hub_home
from specrace.model.weights.source import GgufFile
from specrace.model.weights.storage import (
    HUB_VARIABLE,
    OnProgress,
    UnreachableError,
    check_hash,
    check_space,
    disk_errors,
)

# How long the hub may take to answer.
HUB_LIMIT_S = 5.0
CONFIGS = ("*.json", "*.model", "*.txt", "*.jinja")
# A killed download leaves ETAG.RANDOM.incomplete in the hub's cache. Older versions of the hub's library write
# ETAG.incomplete, which they can resume.
_PARTIAL = re.compile(r"([^.]+)\.[0-9a-f]{8}\.incomplete")


def fetch_snapshot(model: NamedModel, unchecked: Path, on_progress: OnProgress) -> None:
    """Fetch the files that the hub's cache lacks, and check every large file's hash.

    The marker file `unchecked` exists until the hashes are checked, so that after an interruption the next fetch checks
    them.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    hub, cache = str(model.source), Path(constants.HF_HUB_CACHE)
    with _hub_errors(cache):
        info = HfApi().model_info(hub, timeout=HUB_LIMIT_S, files_metadata=True)
        files, patterns = _files_to_fetch(info.siblings or [])
        cache.mkdir(parents=True, exist_ok=True)
        _drop_partial(cache, hub)
        _check_tokenizer({file.rfilename for file in files})
        snapshot = hub_home(hub) / "snapshots" / str(info.sha)
        missing_bytes = sum(file.size or 0 for file in files if not (snapshot / file.rfilename).is_file())
        check_space(cache, missing_bytes, HUB_VARIABLE)
    unchecked.touch()
    with _hub_errors(cache):
        if missing_bytes:
            on_progress("fetching", 0, missing_bytes)
        bar = _progress(on_progress, missing_bytes)
        downloaded = Path(snapshot_download(hub, allow_patterns=patterns, tqdm_class=bar))
    on_progress("checking", 0, 0)
    with disk_errors(cache, HUB_VARIABLE):
        for file in files:
            if file.lfs is not None:
                check_hash(downloaded / file.rfilename, file.lfs.sha256, f"{file.rfilename} of {hub}")
    unchecked.unlink(missing_ok=True)


@contextmanager
def _hub_errors(cache: Path) -> Iterator[None]:
    """Turn disk errors and a licence that was not accepted into InputErrors, any other error into UnreachableError."""
    from huggingface_hub.errors import GatedRepoError

    try:
        with disk_errors(cache, HUB_VARIABLE):
            yield
    except InputError:
        raise
    except GatedRepoError as error:
        raise InputError(
            "The hub gives this model only to those who accepted its licence: accept it on the model's page there, and "
            "set HF_TOKEN to your token."
        ) from error
    except Exception as error:  # the library and its transports raise many kinds
        raise UnreachableError(first_line(getattr(error, "reason", "") or error)) from error


def _files_to_fetch(files: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """The files to fetch of a hub model, and the patterns that match them."""
    # Pickled weights are fetched only if there are no others; transformers reads them without running code in them.
    weights = next((name for name in WEIGHTS if any(_is_weights(file.rfilename, name) for file in files)), "")
    # "model*.safetensors" also matches shards, such as model-00001-of-00002.safetensors, and their index is a CONFIG.
    patterns = [*CONFIGS, weights.replace(".", "*.")]
    return [file for file in files if any(fnmatch(file.rfilename, pattern) for pattern in patterns)], patterns


def _check_tokenizer(files: Set[str]) -> None:
    """Raises InputError, before gigabytes are fetched, if this machine lacks packages to read the tokenizer."""
    missing = [name for name in ("sentencepiece", "google.protobuf") if not _is_installed(name)]
    if "tokenizer.model" in files and "tokenizer.json" not in files and missing:
        raise InputError("This model's tokenizer needs two more packages; run: pip install sentencepiece protobuf.")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package, google, is missing
        return False


def _drop_partial(cache: Path, hub: str) -> None:
    """Delete partial files of killed downloads; the hub's library would download each again under a new name.

    Files that are being downloaded are locked by the library and not deleted.
    """
    home = hub_home(hub)
    for file in home.glob("blobs/*.incomplete"):
        if match := _PARTIAL.fullmatch(file.name):
            # The lock file gets the mode that the library gives it, because users may share a cache.
            lock = FileLock(cache / ".locks" / home.name / f"{match[1]}.lock", timeout=0, mode=0o664)
            with suppress(Timeout), lock:
                file.unlink(missing_ok=True)


def _is_weights(file: str, name: str) -> bool:
    """Whether `file` is the weights file `name`, or one of its shards."""
    stem, suffix = name.split(".")
    return re.fullmatch(rf"{stem}(-\d+-of-\d+)?\.{suffix}", file) is not None


def _progress(on_progress: OnProgress, total: int) -> Any:
    """A progress bar class for the hub's library that prints nothing and reports the bytes to `on_progress`."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            # An argument of the hub's library, which tqdm does not know.
            options.pop("name", None)
            super().__init__(*args, **(options | {"file": io.StringIO(), "disable": False}))

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            if self.unit == "B":
                on_progress("fetching", min(int(self.n), total), total)

    return Bar


def fetch_file(gguf: GgufFile, on_progress: OnProgress) -> Path:
    """Fetch one file of a hub model, unless the hub's cache has it. Raises InputError."""
    from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(gguf.hub, gguf.file)
    if isinstance(cached, str):
        return Path(cached)
    cache = Path(constants.HF_HUB_CACHE)
    try:
        with _hub_errors(cache):
            on_progress("asking the hub", 0, 0)
            info = HfApi().model_info(gguf.hub, timeout=HUB_LIMIT_S, files_metadata=True)
            sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
            if gguf.file not in sizes:
                files = ", ".join(name for name in sizes if name.endswith(".gguf")) or "none"
                raise InputError(
                    f"{gguf.hub} has no file {shorten(gguf.file)}; give one of its GGUF files: {shorten(files)}."
                )
            cache.mkdir(parents=True, exist_ok=True)
            bar = _progress(on_progress, sizes[gguf.file])
            check_space(cache, sizes[gguf.file], HUB_VARIABLE)
            return Path(hf_hub_download(gguf.hub, gguf.file, tqdm_class=bar))
    except UnreachableError as error:
        raise InputError(
            f"{gguf.hub}:{gguf.file} cannot be fetched: the hub does not answer ({error}); connect this machine to the "
            "hub, or give --model a GGUF file."
        ) from error
