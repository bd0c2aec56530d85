"""The address of a server, or the command that starts it, as its operator gives them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from specrace.core.errors import InputError, shorten
from specrace.engine.spec import RaceSpec

# The environment variable with the key for all servers that need one; process lists would show a key in an argument.
KEY_VARIABLE = "SPECRACE_SERVER_KEY"
# Stands for the port in the command of a server.
PORT = "{port}"
# What a server may be called.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True)
class ServerAddress:
    """A server's name in a race, its base URL without a final slash or "/v1", and its API key, if it needs one.

    `model`: the model to ask for, if the server has several.
    """

    name: str
    url: str
    key: str = field(default="", repr=False)
    model: str = ""


def parse_server(text: str) -> ServerAddress:
    """Parse "NAME=URL" or "NAME=URL#MODEL". Raises InputError.

    >>> server = parse_server("fast=http://127.0.0.1:8000/v1#llama")
    >>> server.url, server.model
    ('http://127.0.0.1:8000', 'llama')
    """
    name, equals, address = text.partition("=")
    url, _, model = address.partition("#")
    if not equals or not _NAME.fullmatch(name):
        raise InputError(
            f"--server {shorten(text)!r} is not of the form NAME=URL, for instance vllm=http://127.0.0.1:8000; "
            "a name has letters, digits, dots and hyphens."
        )
    return ServerAddress(name, check_url(url), os.environ.get(KEY_VARIABLE, ""), model)


@dataclass(frozen=True)
class Launch:
    """A server's name, and the words of the command that starts it; PORT stands for its port."""

    name: str
    command: tuple[str, ...]

    def with_flags(self, *flags: str) -> Launch:
        """This server with more flags at the end of its command."""
        return Launch(self.name, (*self.command, *flags))


def parse_launch(text: str) -> Launch:
    """Parse 'NAME=COMMAND'; the command is split as a shell would split it, but no shell runs. Raises InputError.

    >>> parse_launch('plain=vllm serve m --port {port}').command[-1]
    '{port}'
    """
    name, _, line = text.partition("=")
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise InputError(f"--launch {shorten(name)}: the command's quotes do not match ({error}).") from error
    if not _NAME.fullmatch(name) or not any(PORT in word for word in words):
        raise InputError(
            f"--launch {shorten(text)!r} is not of the form NAME=COMMAND with {PORT} in the command, for instance "
            f'plain="vllm serve MODEL --port {PORT}".'
        )
    return Launch(name, words)


def check_url(url: str) -> str:
    """The base URL of a server, without "/v1" and without a final slash. Raises InputError."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{shorten(url)!r} is no address of a server; give one such as http://127.0.0.1:8000.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InputError(
            f"The address of {shorten(parts.hostname)} holds a password or a query; give only scheme, host, "
            f"port and path, and a key in {KEY_VARIABLE}."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")


def check_spec(spec: RaceSpec, addresses: Sequence[ServerAddress], taken: Callable[[str], bool]) -> None:
    """Raise InputError unless the race is greedy, and the servers' names differ and are not `taken` by lanes."""
    if spec.temperature:
        raise InputError(
            "--server needs --temperature 0: at a higher one a server draws other tokens, and nothing can be compared."
        )
    names = [address.name for address in addresses]
    for name in names:
        if taken(name) or names.count(name) > 1:
            raise InputError(f"--server {name}: a lane has this name already; choose another, for instance my-{name}.")
