"""`sweep`: its tables and plots, resuming after a kill, and bad arguments.

A sweep is stored cell by cell: one lane with one combination of settings, on a shard of 16 requests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specrace.answers import answer_question, prepare
from specrace.engine.spec import RaceSpec
from specrace.lab.scoring.sweep import CELLS
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import Passage
from specrace.retrieval.retriever import Retriever
from specrace.workbench import Workbench
from tests.cli.conftest import ROOT, Run
from tests.lab.parts import mostly_copying, write_log

GRID = ("--lanes", "prompt-lookup,trie", "--grid", "trie.n=3,5", "--grid", "num_draft=4,8")
# Stores as many cells as its first argument says, then kills itself in the middle of the next cell's line.
KILLED_SWEEP = """
import os, signal, sys
from specrace.lab.scoring import sweep
from specrace.cli.main import main
cells_left, append = int(sys.argv[1]), sweep.SweepFolder.append
def append_or_die(self, cell, scores):
    global cells_left
    if not cells_left:
        with (self.folder / sweep.CELLS).open("ab") as stream:
            stream.write(b'{"lane":1,"shard":0,"scores":[[[')
        os.kill(os.getpid(), signal.SIGKILL)
    cells_left -= 1
    append(self, cell, scores)
sweep.SweepFolder.append = append_or_die
main(sys.argv[2:])
"""
# Times differ between runs, so comparisons set them to 0.
TIMES = {"draft_ms_per_step": 0, "build_ms_per_output": 0}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", mostly_copying(40))


def groups(call_main: Run, *arguments: object) -> list[dict[str, Any]]:
    """The groups that `sweep --json` prints, with times set to 0."""
    done = call_main("sweep", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [row | TIMES for row in json.loads(done.stdout)["groups"]]


def test_a_killed_sweep_resumes_without_losing_or_repeating_cells(call_main: Run, log: Path, tmp_path: Path) -> None:
    expected = groups(call_main, log, *GRID, "--by", "category")
    out = tmp_path / "out"
    for num_cells in (0, 9):
        command = [sys.executable, "-c", KILLED_SWEEP, str(num_cells), "sweep", log, *GRID, "--out", out, "--resume"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL
    # Nine whole cells, and a part of the tenth.
    assert len((out / CELLS).read_bytes().splitlines()) == 9 + 1
    assert groups(call_main, log, *GRID, "--by", "category", "--out", out, "--resume") == expected
    rows = [json.loads(line) for line in (out / CELLS).read_text().splitlines()]
    cells = [(row["lane"], row["shard"]) for row in rows]
    # Seven lanes: vanilla, prompt-lookup with two draft sizes, the trie with two and two values of n. Three shards: 40
    # requests, 16 to a shard.
    assert len(cells) == len(set(cells)) == 7 * 3


def test_the_table_shows_only_the_settings_that_vary(call_main: Run, log: Path) -> None:
    done = call_main("sweep", log, *GRID, "--cost-curve", "assumed-gpu")
    assert done.returncode == 0
    for words in ("n=3 num_draft=4", "n=5 num_draft=8", "expected speedup"):
        assert words in done.stdout
    assert "prefix=" not in done.stdout


def test_a_resumed_sweep_reuses_the_models_answers(
    call_main: Run, tmp_path: Path, bundled: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specrace.cli.shared.sweeps.open_workbench", lambda _: bundled)
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "What is a trie?", "category": "words"}\n{"question": "What is RAG?"}\n')
    arguments = ("--questions", questions, "--max-new-tokens", "6", "--lanes", "trie", "--out", tmp_path / "out")
    first = groups(call_main, *arguments, "--by", "category")
    assert [(row["lane"], row["category"], row["outputs"]) for row in first] == [
        (lane, group, count) for group, count in (("all", 2), ("words", 1), ("none", 1)) for lane in ("vanilla", "trie")
    ]
    refused = call_main("sweep", *arguments)
    assert refused.returncode == 2 and "add --resume" in refused.stderr
    monkeypatch.setattr("specrace.answers.generate", lambda *_, **__: pytest.fail("an answer is made again"))
    answers = (tmp_path / "out" / "answers.jsonl").read_text()
    (tmp_path / "out" / "answers.jsonl").write_text(answers + '{"key": "cut o')
    assert groups(call_main, *arguments, "--by", "category", "--resume") == first
    assert (tmp_path / "out" / "answers.jsonl").read_text() == answers
    # With other documents the answers are generated again.
    extended = replace(bundled, documents=[*bundled.documents, Document("new.md", "New", "More.")])
    monkeypatch.setattr("specrace.cli.shared.sweeps.open_workbench", lambda _: extended)
    with pytest.raises(pytest.fail.Exception, match="made again"):
        call_main("sweep", *arguments, "--resume")


@pytest.mark.parametrize("change", ["embedder", "cut"])
def test_answers_are_made_again_if_the_embedder_or_the_passages_change(
    change: str, call_main: Run, tmp_path: Path, bundled: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workbenches have the same documents and equally many passages."""
    document = Document("a.md", "A", "A trie is a tree. It holds n-grams. A bigram is a pair.")
    embedder = bundled.embedder

    def workbench_split_at(ends: tuple[int, ...], embedder: Embedder) -> Workbench:
        passages = [Passage("a.md", "A", start, end, document.text[start:end]) for start, end in pairwise(ends)]
        index = PassageIndex(passages, embedder.embed([passage.text for passage in passages]))
        return replace(bundled, documents=[document], retriever=Retriever(index, embedder), embedder=embedder)

    renamed = copy(embedder)
    renamed.name = "another"
    first_workbench = workbench_split_at((0, 17, 55), embedder)
    changed_workbench = (
        workbench_split_at((0, 17, 55), renamed) if change == "embedder" else workbench_split_at((0, 35, 55), embedder)
    )
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "What is a trie?"}\n')
    arguments = ("--questions", questions, "--max-new-tokens", "4", "--lanes", "trie", "--out", tmp_path / "out")
    answers = tmp_path / "out" / "answers.jsonl"
    # The third sweep finds the answer that the first sweep made.
    for workbench, count in ((first_workbench, 1), (changed_workbench, 2), (first_workbench, 2)):
        monkeypatch.setattr("specrace.cli.shared.sweeps.open_workbench", lambda _, workbench=workbench: workbench)
        call_main("sweep", *arguments, *(["--resume"] if answers.exists() else []))
        assert len({json.loads(line)["key"] for line in answers.read_text().splitlines()}) == count


def test_plots_are_written_into_the_output_folder(call_main: Run, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (log, "--lanes", "trie", "--out", out, "--plots")
    files = json.loads(call_main("sweep", *arguments, "--json").stdout)["plots"]
    names = {"lanes", "accepted-lengths", "acceptance", "categories", "sources", "failures"}
    assert {Path(file).name for file in files} == {f"{name}.{kind}" for name in names for kind in ("csv", "svg", "png")}
    assert all(Path(file).stat().st_size > 100 for file in files)
    assert "trie" in (out / "plots" / "lanes.csv").read_text()


def test_an_answer_has_the_spans_of_documents_in_its_prompt(bundled: Workbench) -> None:
    spec = RaceSpec(("trie",), max_new_tokens=4)
    line = {"id": "a", "question": "What is the n-gram trie built from?"}
    answered = answer_question(bundled, prepare(bundled, line, spec, None, on_cuts=lambda *_: None), spec)
    assert "ngram-trie.md" in {name for *_, name in answered.documents}
    ends = [0, *(end for _, end, _ in answered.documents), len(answered.prompt)]
    assert all(before <= start < end for before, (start, end, _) in zip(ends, answered.documents, strict=False))
    start, end, name = max(answered.documents, key=lambda span: span[1] - span[0])
    text = bundled.target.tokenizer.decode(list(answered.prompt[start:end]))
    document = next(candidate for candidate in bundled.documents if candidate.name == name)
    assert "".join(text.split()[:8]) in "".join(document.text.split())


def test_plots_without_matplotlib_are_refused_before_scoring(
    call_main: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for arguments in (
        ("sweep", log, "--out", log.parent / "out", "--plots"),
        ("paper", "table3", log, "--out", log.parent),
    ):
        done = call_main(*arguments)
        assert done.returncode == 2 and "pip install 'specrace[plots]'" in done.stderr
        assert done.stderr.count("\n") == 1 and not (log.parent / "out").exists()


def test_the_old_name_of_plots_is_accepted_with_a_warning(call_main: Run, log: Path) -> None:
    done = call_main("sweep", log, "--pictures")
    warning, error = done.stderr.splitlines()
    assert done.returncode == 2 and "--pictures is now called --plots" in warning and "--plots needs --out" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of the two"),
        (("log.jsonl", "--questions", "q.jsonl"), "one of the two"),
        (("log.jsonl", "--resume"), "--resume needs the --out"),
        (("log.jsonl", "--plots"), "--plots needs --out"),
        (("log.jsonl", "--plots", "--out", "new", "--lanes", "vanilla"), "a lane besides vanilla"),
        (("log.jsonl", "--grid", "n=3"), "is not of the form"),
        (("log.jsonl", "--grid", "trie.n="), "is not of the form"),
        (("log.jsonl", "--grid", "num_draft=many"), "Draft tokens: 'many'"),
        (("log.jsonl", "--cost-curve", "b200"), "There is no cost curve 'b200'"),
        (("log.jsonl", "--lanes", "jacobi"), "cannot be scored without its model"),
        (("none.jsonl",), "none.jsonl cannot be read"),
        (("log.jsonl", "--processes", "-1", "--lanes", "trie"), "--processes is -1"),
    ],
)
def test_bad_arguments_print_one_sentence(call_main: Run, log: Path, arguments: tuple[str, ...], words: str) -> None:
    command = [str(log) if argument == "log.jsonl" else argument for argument in arguments]
    done = call_main("sweep", *command)
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1
