"""`paper`: tables and figures from logs, and the table of noisy retrieval."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrace.workbench import Workbench
from tests.cli.conftest import Run
from tests.lab.parts import mostly_copying, write_log


def test_tables_and_figures_are_made_from_logs(call_main: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", mostly_copying(8))
    printed = json.loads(call_main("paper", "table3", log, "--json").stdout)
    assert printed["table"] == "table3" and printed["tables"][0]["columns"][0] == "category"
    drawn = call_main("paper", "figure4", log, "--out", tmp_path / "plots")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"figure4.csv", "figure4.svg", "figure4.png"}
    assert drawn.returncode == 0 and "12 or more" in drawn.stdout and "8 requests" in drawn.stdout
    refused = call_main("paper", "table4", log)
    assert refused.returncode == 2 and "two retrievals" in refused.stderr


def test_table_4_compares_clean_and_noisy_retrieval(
    call_main: Run, tmp_path: Path, bundled: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specrace.cli.shared.sweeps.open_workbench", lambda _: bundled)
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "What is a trie?"}\n{"question": "What causes the tides?"}\n')
    done = call_main("paper", "table4", "--questions", questions, "--max-new-tokens", "6", "--json")
    assert done.returncode == 0, done.stderr
    assert [row[0] for row in json.loads(done.stdout)["tables"][0]["rows"]] == ["all", "clean", "noisy"]
