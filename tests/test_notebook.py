"""Races as objects: their table, files and frame, and the notebook of the docs."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import specrace
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started, Step
from specrace.notebook import RecordedRace

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "assets" / "recordings" / "tides.jsonl"
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
KERNEL = ("-m", "tests.fork", "-m", "ipykernel_launcher", "-f", "{connection_file}")


@pytest.fixture
def recorded() -> RecordedRace:
    """A race read from a recording that ships."""
    return specrace.show(RECORDING)


def test_a_question_is_raced_on_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "owls.md").write_text("# Owls\n\nOwls hear mice under the snow. Owls fly without a sound.\n")
    race = specrace.race(
        "What do owls hear?", documents=tmp_path, lanes=["trie"], max_new_tokens=12, passages=1, runs=2
    )
    assert list(race.table.index) == ["vanilla", "trie"] and race.table["identical"].all()
    assert race.texts["vanilla"] == race.texts["trie"] and "Owls" in race.started.about["passages"][0]["text"]
    assert race.headline in repr(race) and capsys.readouterr().out == ""
    assert isinstance(race.events[0], Started) and isinstance(race.events[-2], Finished)


def test_a_race_is_saved_and_shown_again(recorded: RecordedRace, tmp_path: Path) -> None:
    recorded.save(tmp_path / "race.jsonl")
    assert specrace.show(str(tmp_path / "race.jsonl")).events == recorded.events


def test_the_table_has_the_recordings_figures(recorded: RecordedRace) -> None:
    finished = next(event for event in recorded.events if isinstance(event, Finished))
    assert list(recorded.table.index) == [lane.lane for lane in finished.lanes]
    steps = [
        sum(isinstance(event, Step) and event.lane == lane for event in recorded.events)
        for lane in recorded.table.index
    ]
    assert recorded.table["steps"].tolist() == steps


def test_a_race_shows_itself_in_a_frame_without_rights(recorded: RecordedRace, tmp_path: Path) -> None:
    recorded.export(tmp_path / "race.html")
    frame = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts allow-downloads" [^>]*></iframe>', recorded._repr_html_()
    )
    assert frame and html.unescape(frame[1]) == (tmp_path / "race.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runs": 0}, "runs is 0"),
        ({"lanes": ["none"]}, "none"),
        ({"documents": "no-such-folder"}, "no-such-folder"),
    ],
)
def test_what_cannot_be_raced_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        specrace.race("Why?", progress=False, **arguments)


def test_the_notebook_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is a process of its own, and runs in the folder to which the notebook writes.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook, kernel = nbformat.read(NOTEBOOK, as_version=4), AsyncKernelManager()
    kernel._kernel_spec = KernelSpec(argv=[sys.executable, *KERNEL], language="python")
    NotebookClient(notebook, kernel, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output["data"] for output in outputs if output["output_type"] == "execute_result"]
    assert any("srcdoc" in shown.get("text/html", "") for shown in data)
    assert any("<table" in shown.get("text/html", "") for shown in data)
    assert (tmp_path / "race.jsonl").is_file() and (tmp_path / "race.html").is_file()
