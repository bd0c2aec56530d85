"""ZeroGPU's device API on loopback, as `spaces` calls it, and an app on "ZeroGPU" that talks to it.

`spaces` can be imported without torch. Here it finds no torch, so it imitates no GPU and moves no weights. The forked
process, the pickling and the quota errors are those of the real package.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests import processes

START = """
import sys
import torch
sys.modules["torch"] = None
import spaces
sys.modules["torch"] = torch
from specrace.ui.races import zero_gpu
# The requested time is for a GPU. A busy machine is far slower, so a race gets 600 s more.
zero_gpu.MARGIN_S = -600.0
from specrace.cli.app import main
sys.exit(main())
"""


@dataclass
class DeviceApi:
    """Answers like the API; `requests` lists (path, parameters).

    `idle`: a call reuses the process of the call before it. `quota_left`: the seconds of a quota that is too small.
    """

    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    idle: bool = False
    quota_left: int | None = None

    def answer(self, path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        """Return the status and body for a request."""
        self.requests.append((path, parameters))
        if path != "/schedule":
            return 200, ""
        if self.quota_left is not None:
            return 429, {"left": self.quota_left, "wait": 3600}
        return 200, {"idle": self.idle, "nvidiaIndex": 0, "nvidiaUUID": "GPU-0", "allowToken": "a-token"}

    def parameters_of(self, path: str) -> list[dict[str, str]]:
        """Return the parameters of the requests for a path."""
        return [parameters for requested, parameters in self.requests if requested == path]

    def pids(self) -> list[int]:
        """Return the ids of the processes that asked for the GPU."""
        return [int(parameters["pid"]) for parameters in self.parameters_of("/allow")]


@contextmanager
def device_api() -> Iterator[tuple[DeviceApi, str]]:
    """Run the API. Yields the API and its address."""
    api = DeviceApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            url = urlsplit(self.path)
            status, body = api.answer(url.path, {name: values[0] for name, values in parse_qs(url.query).items()})
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def app_on_zero_gpu(address: str, folder: Path, *flags: str) -> Iterator[tuple[processes.Process, int]]:
    """Run `python app.py` as on a Space with ZeroGPU. Yields its process and port."""
    (folder / "cgroup").write_text("0::/a-space")
    space = {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": address,
        "ZEROGPU_PROC_SELF_CGROUP_PATH": str(folder / "cgroup"),
        "SPECRACE_FLAGS": " ".join(flags),
        "OMP_NUM_THREADS": "1",
    }
    process = processes.start(["-c", START], env=os.environ | space)
    try:
        lines: list[str] = []
        while not (line := process.stdout.readline()).startswith("specrace serves"):
            assert line, "".join(lines)
            lines.append(line)
        # Read what the app prints, because it would wait if the pipe were full.
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield process, int(line.rpartition(":")[2])
    finally:
        process.terminate()
        process.wait()
