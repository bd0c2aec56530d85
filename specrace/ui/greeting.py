"""The addresses of the page, and what the server prints at its start."""

from __future__ import annotations

import socket
from collections.abc import Sequence


def greeting(local_address: str, network_address: str, root_path: str = "") -> list[str]:
    """What the server prints at its start: its address for this machine, and the one for others, if that differs."""
    lines = [f"specrace serves {local_address}{root_path}"]
    if network_address not in ("", local_address):
        lines.append(f"Others on this network open {network_address}{root_path}")
    return lines


def address(sockets: Sequence[socket.socket]) -> str:
    """The page's URL for a browser on this machine."""
    host, port = sockets[0].getsockname()[:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
