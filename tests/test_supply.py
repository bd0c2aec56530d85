"""Dependencies: hashes in the container, versions in a Space, licences, and no unpickling or foreign code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.measure import licences
from tests.measure.lock import CUDA_LOCK, FOLDER, FOR_GPUS, LOCK

ROOT = Path(__file__).resolve().parents[1]
PINNED = {pin.name: str(pin.specifier) for pin in licences.pins()}
UNPICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
SOURCES = [*(ROOT / "specrace").rglob("*.py"), ROOT / "app.py"]


def locked(file: Path) -> dict[str, str]:
    """Package -> its version, in a file of requirements."""
    return {pin.name: str(pin.specifier) for pin in licences.pins(file)}


@pytest.mark.parametrize("file", [LOCK, CUDA_LOCK])
def test_every_package_of_the_container_has_a_hash(file: Path) -> None:
    entries = re.split(r"^(?=[a-z])", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(entries) > 10
    for entry in entries:
        name, *hashes = [line.rstrip("\\ ") for line in entry.strip().splitlines()]
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ;]+", name), name
        assert hashes and all(re.fullmatch(r" *--hash=sha256:[0-9a-f]{64}", file_hash) for file_hash in hashes), name


def test_the_container_has_the_pinned_versions_and_their_dependencies() -> None:
    on_any_machine, on_gpus = locked(LOCK), locked(CUDA_LOCK)
    assert PINNED.items() <= (on_any_machine | on_gpus).items()
    assert all(FOR_GPUS.match(f"{name}==") for name in on_gpus) and not set(on_any_machine) & set(on_gpus)
    needed = {package.name for package in licences.packages(licences.pins())}
    # The container has Python 3.12, which needs fewer packages than 3.11.
    assert {name for name in needed - set(on_any_machine) if not FOR_GPUS.match(f"{name}==")} == set()


# ZeroGPU offers a few versions of torch only.
@pytest.mark.parametrize(
    ("name", "torch"), [("space-cpu.txt", PINNED["torch"] + "+cpu"), ("space-zerogpu.txt", "==2.11.0")]
)
def test_a_space_differs_from_the_pins_in_torch_only(name: str, torch: str) -> None:
    assert locked(FOLDER / name) == {**PINNED, "torch": torch}
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert (index in (FOLDER / name).read_text(encoding="utf-8").splitlines()) == torch.endswith("+cpu")


def test_every_licence_is_known_and_permits_redistribution() -> None:
    all_packages = list(licences.packages(licences.pins()))
    assert len(all_packages) > 50 and set(PINNED) <= {package.name for package in all_packages}
    assert [package for package in all_packages if not package.is_permissive] == []
    for licence in (
        "",
        "GPL-3.0-or-later",
        "GNU Affero General Public License v3",
        "LGPL-2.1",
        "CC-BY-NC, non-commercial",
    ):
        assert not licences.Package("a", "1", licence).is_permissive, licence


def test_nothing_is_unpickled_and_no_models_code_is_run() -> None:
    num_loads = 0
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & UNPICKLERS, file
            if not isinstance(node, ast.Call):
                continue
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            where = f"{file}, line {node.lineno}"
            assert keywords.get("trust_remote_code", "False") == "False", where
            assert keywords.get("allow_pickle", "False") == "False", where
            called = ast.unparse(node.func)
            assert not called.endswith("read_pickle"), where
            if called == "torch.load":
                num_loads += 1
                assert keywords.get("weights_only") == "True", where
    assert num_loads
