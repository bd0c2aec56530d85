"""Every log format is recognised, can be scored, and gives the same metrics as every other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.formats import FORMATS, find_format
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import SHAPES, chat_folder
from tests.lab.parts import run, write

# Enough lanes for wrong ids to change some metric.
LANES = ("--lanes", "prompt-lookup,trie")
# Fields that are measured times, which differ from run to run.
TIMED = ("draft_ms_per_step", "build_ms_per_output")


def scored(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What --json prints, without the times."""
    assert run(*arguments, "--json") == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    for group in result["groups"]:
        for name in TIMED:
            del group[name]
    return result


@pytest.mark.slow
def test_all_formats_give_the_same_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = chat_folder(tmp_path / "chat")
    groups_of = {}
    for shape, make in SHAPES.items():
        folder = tmp_path / shape
        folder.mkdir()
        result = scored(capsys, *make(folder), "--tokenizer", tokenizer, *LANES)
        assert (result["format"], result["outputs"], result["skipped"]) == (shape.split()[0], 20, 0), shape
        groups_of[shape] = result["groups"]
    first = groups_of["specrace ids"]
    assert len({group["tau"] for group in first}) > 1
    for shape, groups in groups_of.items():
        assert groups == first, shape
    assert {shape.split()[0] for shape in SHAPES} == {*FORMATS, "csv"}


def test_logs_with_token_ids_need_no_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for shape in ("specrace ids", "openai-response"):
        assert scored(capsys, *SHAPES[shape](tmp_path), *LANES)["outputs"] == 20


@pytest.mark.parametrize("shape", ["openai-chat", "codex"])
def test_the_printed_table_has_the_format_title(shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SHAPES[shape](tmp_path), "--tokenizer", chat_folder(tmp_path / "chat"), "--lanes", "vanilla") == 0
    assert FORMATS[shape].title in capsys.readouterr().out


def test_a_requested_format_is_not_second_guessed(tmp_path: Path) -> None:
    path = SHAPES["openai-chat"](tmp_path)[0]
    with pytest.raises(InputError, match="line 1: conversations is not a list"):
        list(TranscriptFile(path, format="sharegpt"))
    with pytest.raises(InputError, match="no format 'word'; the formats are openai-batch"):
        find_format("word")


def test_text_and_messages_ask_for_a_tokenizer(tmp_path: Path) -> None:
    for shape, word in (("specrace text", "text"), ("openai-chat", "messages")):
        with pytest.raises(InputError, match=f"line 1: this has {word} and no ids; give --tokenizer"):
            list(TranscriptFile(SHAPES[shape](tmp_path)[0]))


def test_a_trace_of_lengths_is_refused(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
    with pytest.raises(InputError, match=r"t\.jsonl is a trace of lengths and block hashes"):
        list(TranscriptFile(write(tmp_path / "t.jsonl", row), skip_bad=True))
    with_ids = row | {"prompt_ids": [1], "output_ids": [2]}
    assert len(list(TranscriptFile(write(tmp_path / "t.jsonl", with_ids)))) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [({"content": ""}, "the answer is empty"), ({"content": None, "tool_calls": [{}]}, "the function of a tool call")],
)
def test_an_empty_answer_is_refused(tmp_path: Path, answer: dict[str, Any], reason: str) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant"} | answer]}
    path = write(tmp_path / "t.jsonl", row)
    with pytest.raises(InputError, match=f"line 1: {reason}"):
        list(TranscriptFile(path, chat=lambda *_: ([1], [2], ())))


def test_a_file_may_begin_with_unrecognised_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        b"?",
        {"title": "a"},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    ]
    path = write(tmp_path / "t.jsonl", *lines)
    arguments = ("--tokenizer", chat_folder(tmp_path / "chat"), "--skip-bad", "--lanes", "vanilla", "--json")
    assert run(path, *arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["format"], result["outputs"], result["skipped"]) == ("openai-chat", 1, 2)
