"""Arguments that name hosts, sites, networks, or a proxy's path."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from specrace.core.errors import InputError, shorten

# A name or an IPv4 address, or an IPv6 address.
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-fA-F:]+")
# A site in a Content-Security-Policy: 'self', or http(s)://HOST[:PORT], where HOST may begin with "*." and PORT be "*".
ORIGIN = re.compile(r"'self'|https?://(?:\*\.)?[A-Za-z0-9.-]+(?::(?:\d{1,5}|\*))?")
# Any number of parts such as /tools.
ROOT_PATH = re.compile(r"(?:/[\w.~-]+)*", re.ASCII)


def read_root_path(text: str) -> str:
    """A proxy's path without a slash at its end; "" for none. Raises InputError."""
    path = text.strip().rstrip("/")
    if not ROOT_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise InputError(f"--root-path is {shorten(repr(text))}; give the proxy's path only, such as /tools/specrace.")
    return path


def check_hosts(flag: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that is not the name of a host, or that has a port."""
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise InputError(f"{flag} has {name!r}; give names only, such as demo.example.com, without a port.")


def check_origins(flag: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that is not the origin of a site."""
    for name in names:
        if not ORIGIN.fullmatch(name):
            raise InputError(f"{flag} has {shorten(repr(name))}; give origins, such as https://portal.example.com.")


def check_networks(flag: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that is neither an address nor a network."""
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise InputError(f"{flag} has {name!r}; give addresses or networks, such as 10.0.0.0/8.") from None
