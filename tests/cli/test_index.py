"""`index`, and the commands that search an index instead of documents."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.conftest import Run

NOTES = {
    "hall.md": (
        "# The hall\n\n## History\n\nThe hall was built in 1911 by the harbour board. It holds eight hundred people.\n"
    ),
    "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees. Black tea needs boiling water and four minutes.\n",
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text)
    return folder


def test_a_race_searches_an_index_and_documents_can_be_added(call_main: Run, notes: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    done = call_main("index", notes, "--out", out, "--json")
    index_json = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (index_json["kind"], index_json["documents"], index_json["passages"], index_json["dim"]) == (
        "exact",
        2,
        2,
        384,
    )
    question = ("race", "When was the hall built?", "--lanes", "trie", "--json")
    done = call_main(*question, "--index", out)
    result = json.loads(done.stdout)
    addresses = [(passage["document"], passage["place"]) for passage in result["passages"]]
    assert done.stderr == "" and addresses == [("hall.md", "History"), ("tea.md", "")]
    assert "1911" in result["lanes"][0]["text"]
    more = notes / "more.txt"
    more.write_text("Boats sail at noon on every day but Sunday.")
    done = call_main("index", notes, "--out", out, "--add")
    assert done.returncode == 0 and "3 documents, 3 passages, exact search" in " ".join(done.stdout.split())


def test_answers_draws_its_questions_from_given_documents(call_main: Run, tmp_path: Path) -> None:
    file = tmp_path / "boats.txt"
    file.write_text("Boats sail at noon on every day but Sunday.")
    done = call_main("answers", "--docs", file, "--max-new-tokens", "4", "--noise", ".5", "--json")
    result = json.loads(done.stdout)
    questions = [answer["question"] for answer in result["answers"]]
    assert (result["questions"], questions) == ("auto", ["Explain: “Boats sail at noon on every day but Sunday.”"])


def test_passages_measured_in_tokens_overlap(call_main: Run, notes: Path, tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {number} is in this file." for number in range(40))
    (notes / "long.txt").write_text(text)
    done = call_main(
        "index", notes / "long.txt", "--out", tmp_path / "i", "--passage-tokens", "40", "--overlap", "10", "--json"
    )
    lines = [json.loads(line) for line in (tmp_path / "i" / "passages.jsonl").read_text().splitlines()]
    index_json = json.loads(done.stdout)
    assert (index_json["passage_tokens"], index_json["overlap"], index_json["passages"]) == (
        40,
        10,
        len(lines),
    ) and len(lines) > 9
    spans = [(start, end) for _, _, start, end, *_ in lines]
    assert all(next_start < end for (_, end), (next_start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index", "{notes}", "--out", "{notes}"], "exists already"),
        (["index", "{notes}", "--out", "{notes}", "--add"], "holds no index"),
        (["index", "{notes}/none", "--out", "{notes}/i"], "does not exist"),
        (["index", "{notes}", "--out", "{notes}/i", "--passage-tokens", "31"], "--passage-tokens: 31"),
        (["index", "{notes}", "--out", "{notes}/i", "--passage-tokens", "999"], "reads 256"),
        (["index", "{notes}", "--out", "{notes}/i", "--overlap", "9"], "--overlap is 9"),
        (["index", "{notes}", "--out", "{notes}/i", "--add", "--embedder", "x"], "leave out --embedder"),
        (["index", "{notes}", "--out", "{notes}/i", "--embedder", "{notes}"], "cannot be loaded"),
        (["race", "Why?", "--index", "{notes}"], "holds no index"),
        (["race", "Why?", "--index", "{notes}", "--docs", "{notes}"], "not allowed with"),
        (["race", "Why?", "--noise", "0.95"], "Noise: 0.95"),
        (["race", "Why?", "--reranker", "{notes}"], "cannot be loaded"),
        (["answers", "--questions", "auto:0"], "auto:0"),
        (["app", "--index", "{notes}", "--no-fetch"], "holds no index"),
    ],
)
def test_bad_arguments_print_one_sentence(call_main: Run, notes: Path, arguments: list[str], message: str) -> None:
    done = call_main(*(argument.format(notes=notes) for argument in arguments))
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
    # Progress messages end with " ...".
    assert len([line for line in done.stderr.strip().splitlines() if not line.endswith(" ...")]) == 1
    assert sorted(file.name for file in notes.iterdir()) == sorted(NOTES)
