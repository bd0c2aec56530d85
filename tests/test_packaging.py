"""The wheel holds every file that ships, and its commands work in an empty folder, without the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import processes

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GENERATE = """
import specrace, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from specrace.core.bundled import BUNDLED_MODEL
tokenizer, model = AutoTokenizer.from_pretrained(BUNDLED_MODEL), AutoModelForCausalLM.from_pretrained(BUNDLED_MODEL)
ids = tokenizer("Bread rises. Bread rises. Bread", return_tensors="pt").input_ids
plain = model.generate(ids, max_new_tokens=12, do_sample=False)
ours = model.generate(
    ids, max_new_tokens=12, do_sample=False, custom_generate=specrace.hf.custom_generate, method="trie"
)
print(torch.equal(plain, ours), specrace.__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files, as an installer would unpack them."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, empty: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the unpacked wheel in an empty folder; proxies that refuse connections cut off the network."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    env = os.environ | proxies | {"PYTHONPATH": str(installed)}
    return processes.run(command, cwd=empty, env=env, short=False)


def test_a_race_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    command = ("race", "Why does bread rise?", "--lanes", "trie", "--max-new-tokens", "24", "--json")
    done = run(installed, tmp_path, "-m", "specrace", *command)
    assert done.returncode == 0, done.stderr
    lanes = json.loads(done.stdout)["lanes"]
    assert [lane["identical"] for lane in lanes] == [True, True] and "yeast" in lanes[0]["text"].lower()
    assert list(tmp_path.iterdir()) == []


def test_other_commands_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    recording = next((installed / "specrace" / "assets" / "recordings").glob("*.jsonl"))
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt_ids": [1, 2, 3, 1, 2], "output_ids": [3, 1, 2, 3]}\n')
    for command in (("lanes",), ("replay", str(recording), "--json"), ("score", str(log), "--json"), ("app", "--help")):
        done = run(installed, tmp_path, "-m", "specrace", *command)
        assert done.returncode == 0 and done.stdout, (command, done.stderr)


def test_transformers_generate_runs_a_method_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", GENERATE)
    assert done.returncode == 0, done.stderr
    are_equal, file = done.stdout.split()
    assert are_equal == "True" and Path(file).is_relative_to(installed)


def test_the_wheel_holds_the_files_that_ship_and_no_others(installed: Path) -> None:
    package = installed / "specrace"
    assert (package / "py.typed").exists() and (package / "ui" / "static" / "stage" / "stage.html").exists()
    folders = ("tiny", "tiny-draft", "adapters/smollm2-135m", "heads/smollm2-135m-eagle", "recordings")
    for name in (*(f"assets/{folder}" for folder in folders), "corpus"):
        shipped = {file.name for file in (ROOT / name).iterdir()}
        assert {file.name for file in (package / name).iterdir()} == shipped
    metadata = next(installed.glob("*.dist-info"))
    version = re.search(r'__version__ = "(.+)"', (ROOT / "specrace" / "__init__.py").read_text(encoding="utf-8"))
    assert version and f"\nVersion: {version[1]}\n" in (metadata / "METADATA").read_text(encoding="utf-8")
    assert "specrace = specrace.__main__:main" in (metadata / "entry_points.txt").read_text(encoding="utf-8")


def test_the_pins_lie_within_the_packages_ranges() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    pinned = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}
    ranges = {dependency.name: dependency.specifier for dependency in map(Requirement, PROJECT["dependencies"])}
    assert set(pinned) == set(ranges)
    assert all(ranges[name].contains(version) for name, version in pinned.items())
