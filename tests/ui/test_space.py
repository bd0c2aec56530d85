"""On a Hugging Face Space: its card, the defaults of `python app.py`, and which hosts and origins are accepted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specrace.cli import app as app_command
from specrace.cli import main, space
from specrace.core.errors import InputError
from specrace.model.weights.names import NAMES, PREFERRED
from specrace.ui.server.guard import SPACES_SITE
from tests.measure import licences
from tests.ui.served import serving

ROOT = Path(__file__).resolve().parents[2]
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
HOST = "someone-race.hf.space"


def card() -> dict[str, object]:
    """The README's front matter."""
    matter = re.match(r"---\n(.*?)\n---\n", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert matter
    fields: dict[str, object] = yaml.safe_load(matter[1])
    return fields


def on_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables of a Space."""
    for name, value in {"SYSTEM": "spaces", "SPACE_ID": "someone/race", "SPACE_HOST": HOST}.items():
        monkeypatch.setenv(name, value)
    # Another test's server may have set this variable.
    monkeypatch.delenv("SPECRACE_LOG", raising=False)


def test_the_card_is_complete_and_names_existing_files_and_versions() -> None:
    fields = card()
    pins = {pin.name: str(pin.specifier) for pin in licences.pins()}
    assert fields["sdk"] == "gradio" and f"=={fields['sdk_version']}" == pins["gradio"]
    assert (ROOT / str(fields["app_file"])).is_file() and fields["python_version"] == "3.12"
    assert {fields["colorFrom"], fields["colorTo"]} <= COLOURS and not str(fields["emoji"]).isascii()
    assert len(str(fields["short_description"])) <= 60 and fields["license"] == "apache-2.0" and fields["title"]
    assert fields["suggested_hardware"] == "cpu-basic" and fields["disable_embedding"] is True
    assert re.fullmatch(r"\d+m", str(fields["startup_duration_timeout"]))
    (preloaded,) = fields["preload_from_hub"]  # type: ignore[misc]
    hub, files = preloaded.split()
    assert hub == NAMES[PREFERRED].source and hub in fields["models"]  # type: ignore[operator]
    # `is_complete` and the loaders look for these files.
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files.split(","))


def test_a_space_has_stricter_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPACE_ID", space.FLAGS):
        monkeypatch.delenv(name, raising=False)
    at_home = app_command.parse([])
    assert (at_home.host, at_home.port, at_home.device) == (None, None, "cpu")
    on_a_space(monkeypatch)
    options = app_command.parse([])
    app_command.read_config(options)
    assert {name: getattr(options, name) for name in space.DEFAULTS} == space.DEFAULTS
    assert options.races_per_minute < at_home.races_per_minute and options.race_tokens < at_home.race_tokens
    assert app_command.parse(["--race-tokens", "99"]).race_tokens == 99


def test_flags_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(space.FLAGS, "--queue 3 --no-uploads --model 'a model'")
    options = app_command.parse(space.with_environment(["--queue", "4"]))
    assert (options.queue, options.uploads, options.model) == (4, False, "a model")
    monkeypatch.setenv(space.FLAGS, "--model 'a model")
    with pytest.raises(InputError, match="SPECRACE_FLAGS cannot be read"):
        space.with_environment([])


def test_app_py_reads_flags_from_the_environment() -> None:
    env = os.environ | {space.FLAGS: "--queue 0"}
    done = subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--queue is 0" in done.stderr


def test_the_app_command_reads_flags_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(space.FLAGS, "--queue 0")
    assert main.main(["app"]) == 2 and "--queue is 0" in capsys.readouterr().err
    flags = main.add_environment_flags(["--traceback", "app", "--mcp"])
    assert flags == ["--traceback", "app", "--queue", "0", "--mcp"]
    for arguments in ([], ["--help"], ["race", "app"], ["lanes"]):
        assert main.add_environment_flags(arguments) == arguments
    monkeypatch.setenv(space.FLAGS, "'")
    assert main.main(["app"]) == 2 and "SPECRACE_FLAGS cannot be read" in capsys.readouterr().err


def test_only_hugging_face_may_frame_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_space(monkeypatch)
    with serving() as served:
        # Hugging Face's frame opens the page, and the page sends requests to its own server only.
        framed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
        answer = served.ask("GET", "/?__theme=light", Host=HOST, **framed)
        assert answer.status == 200 and "x-frame-options" not in answer.headers
        assert answer.headers["content-security-policy"].endswith(f"frame-ancestors {SPACES_SITE}")
        assert "huggingface.co" not in answer.headers["content-security-policy"].partition("frame-ancestors")[0]
        # No event has this number, so the answer of a request that the guard lets through says so.
        join = {"data": [], "fn_index": 10**6, "session_hash": "a"}
        same_site = {"Host": HOST, "Origin": f"https://{HOST}", "Sec_Fetch_Site": "same-origin"}
        assert "no endpoint of this name" in served.ask("POST", "/gradio_api/queue/join", join, **same_site).text
        for origin in (SPACES_SITE, "https://someone-else.hf.space", "https://evil.example"):
            foreign = {"Host": HOST, "Origin": origin, "Sec_Fetch_Site": "cross-site"}
            assert served.ask("POST", "/gradio_api/queue/join", join, **foreign).status == 403
        for host in ("someone-else.hf.space", "huggingface.co"):
            assert served.ask("GET", "/", Host=host).status == 400
        # Without a Space's id, Gradio's scripts load no page header, fonts or news from Hugging Face.
        config = served.ask("GET", "/config", Host=HOST).json()
        assert config["space_id"] is None
