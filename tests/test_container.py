"""The Dockerfile does what the README says, and copies only the files that the app needs."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from specrace.cli import app

ROOT = Path(__file__).resolve().parents[1]
# (instruction, arguments) of each line; continued lines are joined.
LINES = [
    tuple(line.split(maxsplit=1))
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]
COMMAND = json.loads(next(arguments for name, arguments in LINES if name == "ENTRYPOINT"))


def build_context() -> list[str]:
    """The tracked files that a build sees. The last rule of .dockerignore that matches a file decides."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    names = []
    for name in done.stdout.splitlines():
        name_and_parents = [name, *map(str, Path(name).parents)]
        included = True
        for rule in rules:
            if any(fnmatch.fnmatch(path, rule.lstrip("!").removeprefix("**/")) for path in name_and_parents):
                included = rule.startswith("!")
        if included:
            names.append(name)
    return names


def test_the_container_starts_as_the_readme_says_and_pip_checks_hashes() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^(python3 -m venv .* app\.py)$", readme, re.MULTILINE)
    assert COMMAND[:2] == line.split(" && ")[-1].split()
    options = app.parse(COMMAND[2:])
    assert (options.host, options.port, options.device) == ("0.0.0.0", 7860, "auto")
    installs = [command for name, command in LINES if name == "RUN" and "requirements/container.txt" in command]
    assert installs and all("--require-hashes -r requirements/container.txt" in command for command in installs)


def test_the_container_has_the_pinned_torch() -> None:
    pinned = re.search(r"^torch==\S+", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned and any(f"{pinned[0]}+cpu" in variables for name, variables in LINES if name == "ENV")


# A server that still loads its model is healthy: the container must not be restarted.
@pytest.mark.parametrize(("status", "code"), [("ready", 0), ("loading", 0), ("failed", 1)])
def test_the_health_check_asks_the_server_and_no_proxy(status: str, code: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"status": status}).encode())

        def log_message(self, *_: object) -> None:
            pass

    health_check = next(arguments for name, arguments in LINES if name == "HEALTHCHECK")
    check = json.loads(health_check.partition("CMD ")[2])
    assert check[:2] == [COMMAND[0], "-c"] and "//127.0.0.1:7860/" in check[2]
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        script = check[2].replace(":7860/", f":{server.server_port}/")
        # A proxy that nobody can reach: 192.0.2.0/24 is reserved for examples.
        environment = os.environ | {"http_proxy": "http://192.0.2.1:9", "no_proxy": ""}
        assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == code


def test_the_app_starts_from_the_copied_files_and_no_others_are_copied(tmp_path: Path) -> None:
    names = build_context()
    top_names = {Path(name).parts[0] for name in names}
    assert top_names == {"app.py", "assets", "corpus", "requirements", "specrace", "LICENSE"}
    assert not any(name.startswith(("assets/screenshots", "assets/results")) for name in names)
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script = (
        "import app, specrace; from specrace.cli import app as command; "
        "config = command.read_config(command.parse(['--model', 'tiny'])); "
        "from specrace.ui.offers import example_questions, offered_models; "
        "assert example_questions(config) and len(offered_models(config)) > 2; print(specrace.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
