"""`score`: its arguments, its JSON, table and CSV, and the errors for bad logs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrace.cli.shared import opening
from specrace.core.errors import InputError
from specrace.lab.scoring.score import scorable_lanes
from specrace.model.weights.source import ModelSource, named_source
from tests.lab.parts import COPYING, FRESH, run, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A log of two requests: the output of COPYING copies its prompt, that of FRESH does not."""
    return write(tmp_path / "t.jsonl.gz", COPYING, FRESH)


def score_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The object that `score --json` prints; asserts that it prints nothing else."""
    assert run(*arguments, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.count("\n") == 1
    parsed: dict[str, Any] = json.loads(printed.out)
    return parsed


def test_json_has_a_group_for_each_lane(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = score_json(capsys, file)
    assert [group["lane"] for group in scores["groups"]] == list(scorable_lanes())
    assert {group["category"] for group in scores["groups"]} == {"all"}
    vanilla = scores["groups"][0]
    assert vanilla | {"draft_ms_per_step": 0, "build_ms_per_output": 0} == {
        "lane": "vanilla",
        "category": "all",
        "outputs": 2,
        "looping": 0,
        "tokens": 11,
        "steps": 11,
        "tau": 1.0,
        "tau_without_looping": 1.0,
        "drafted_per_step": 0.0,
        "acceptance_rate": 0.0,
        "draft_ms_per_step": 0,
        "build_ms_per_output": 0,
        "num_draft": 0,
        "scored": "whole",
    }
    assert (scores["outputs"], scores["skipped"]) == (2, 0)
    assert "jacobi" in [lane["lane"] for lane in scores["not_scored"]]


def test_lanes_options_and_num_draft_follow_the_arguments(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A static trie holds the prompt only.
    arguments = ("--lanes", "trie, prompt-lookup,", "--option", "trie.static=true", "--num-draft", 3)
    scores = score_json(capsys, file, *arguments)
    lanes = scores["settings"]["lanes"]
    assert [(lane["lane"], lane["num_draft"]) for lane in lanes] == [("trie:static=true", 3), ("prompt-lookup", 3)]
    assert lanes[0]["options"]["static"] is True
    lookup = scores["groups"][1]
    # COPYING takes four steps, FRESH three.
    assert (lookup["tokens"], lookup["steps"]) == (11, 4 + 3)


def test_a_method_is_scored_twice_with_other_options(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = score_json(capsys, file, "--lanes", "trie:n=2,trie", "--option", "trie.n=5", "--option", "trie.prefix=2")
    options = {lane["lane"]: lane["options"] for lane in scores["settings"]["lanes"]}
    assert options == {
        "trie:n=2:prefix=2": {"n": 2, "prefix": 2, "static": False},
        "trie:n=5:prefix=2": {"n": 5, "prefix": 2, "static": False},
    }
    assert [row["lane"] for row in scores["groups"]] == list(options)


def test_by_category_adds_a_group_for_each_category(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = score_json(capsys, file, "--lanes", "prompt-lookup", "--num-draft", 3, "--by", "category")
    rows = {group["category"]: (group["outputs"], group["tokens"], group["steps"]) for group in scores["groups"]}
    assert rows == {"all": (2, 11, 7), "copy": (1, 8, 4), "fresh": (1, 3, 3)}


def test_the_table_says_what_was_scored(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for words in ("tokens/step", "trie 32", "prompt-lookup 10", "default on a GPU", "pool from prompt and output"):
        assert words in printed.out
    assert "jacobi cannot be scored" in printed.out


def test_csv_has_the_same_rows(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.csv"
    groups = score_json(capsys, file, "--by", "category", "--csv", path)["groups"]
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert rows == [{key: str(value) for key, value in group.items()} for group in groups]


def test_a_cost_curve_gives_an_expected_speedup(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve = write(tmp_path / "curve.json", {"rows": [1, 4], "ratio": [1.0, 1.6], "device": "a test's"})
    arguments = ("--lanes", "vanilla,prompt-lookup", "--num-draft", 3, "--cost-curve", curve)
    vanilla, lookup = score_json(capsys, file, *arguments)["groups"]
    # Three of the seven steps draft 3 tokens, the other four none.
    assert vanilla["expected_speedup"] == 1.0
    assert lookup["expected_speedup"] == pytest.approx(11 / (3 * 1.6 + 4))
    assert run(file, *arguments) == 0
    assert "expected speedup" in capsys.readouterr().out


def test_a_log_of_text_needs_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", {"prompt": "the cat saw the", "output": " cat saw"})
    with pytest.raises(InputError, match=r"line 1: .*--tokenizer"):
        run(path)
    scores = score_json(capsys, path, "--tokenizer", word_tokenizer(tmp_path / "words"), "--lanes", "prompt-lookup")
    assert (scores["groups"][0]["tokens"], scores["groups"][0]["steps"]) == (2, 1)
    with pytest.raises(InputError, match="tokenizer 'nowhere/at-all' cannot be loaded"):
        run(path, "--tokenizer", "nowhere/at-all")


def test_only_the_tokenizer_is_fetched_unless_the_hub_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def load(name: str) -> object:
        calls.append(str(name))
        if name == "Qwen/Qwen3-8B" and len(calls) > 1:
            raise InputError("no hub")
        return name

    def fetch(source: ModelSource, *, quiet: bool) -> ModelSource:
        calls.append(f"fetched {source.name} {quiet}")
        return replace(source, location="folder", is_missing=False)

    missing = replace(named_source("qwen3-8b"), location="Qwen/Qwen3-8B", is_missing=True)
    monkeypatch.setattr(opening, "find_source", lambda _: missing)
    monkeypatch.setattr(opening, "load_tokenizer", load)
    monkeypatch.setattr(opening, "fetch_model", fetch)
    assert opening.find_tokenizer("qwen3-8b", quiet=True) == "Qwen/Qwen3-8B"
    assert opening.find_tokenizer("qwen3-8b", quiet=True) == "folder"
    assert calls == ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "fetched qwen3-8b True", "folder"]


def word_tokenizer(folder: Path) -> Path:
    """Save a real tokenizer of three words in `folder`, as in a model's folder; return the folder."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({"?": 0, "the": 1, "cat": 2, "saw": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
    return folder


def test_bad_lines_are_counted_with_skip_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", *[FRESH] * 6, b"{", FRESH)
    with pytest.raises(InputError, match=r"t\.jsonl, line 7: this is not JSON"):
        run(path)
    assert run(path, "--skip-bad", "--lanes", "vanilla", "--json") == 0
    printed = capsys.readouterr()
    scores = json.loads(printed.out)
    assert (scores["outputs"], scores["skipped"]) == (7, 1)
    ((reason, count),) = scores["skipped_by_reason"].items()
    assert reason.startswith("this is not JSON") and count == 1
    assert "Left out:" in printed.err and "line 7" in printed.err
    assert run(path, "--skip-bad") == 0
    assert "1 bad lines were left out" in capsys.readouterr().out


def test_looping_outputs_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", FRESH, {"prompt_ids": [1], "output_ids": [5, 6] * 30 + [2]})
    scores = score_json(capsys, path, "--lanes", "trie")
    assert [(group["category"], group["outputs"], group["looping"]) for group in scores["groups"]] == [
        ("all", 2, 1),
        ("looping", 1, 1),
    ]
    assert scores["looping"] == {"outputs": 1, "in_figures": True, "without_them": "tau_without_looping"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--lanes", "jacobi"), "jacobi cannot be scored"),
        (("--lanes", "tree"), "no lane 'tree'"),
        (("--lanes", ","), "names no lane"),
        (("--num-draft", "-1"), "Draft tokens: -1"),
        (("--num-draft", "9999"), "Draft tokens: 9999"),
        (("--option", "trie.n"), "LANE.KEY=VALUE"),
        (("--option", "trie.n=1"), "trie.n is '1'"),
        (("--vocab-size", "0"), "--vocab-size is 0"),
        (("--vocab-size", "9"), "line 1: prompt_ids has the id 9"),
        (("--cost-curve", "/no/such/file"), "cannot be read"),
    ],
)
def test_bad_arguments_raise_one_sentence(file: Path, arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(file, *arguments)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"rows": [1]}', b'{"rows": 1, "ratio": 1}'])
def test_a_file_that_is_not_a_cost_curve_is_refused(file: Path, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "curve.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a cost curve"):
        run(file, "--cost-curve", path)


@pytest.mark.parametrize("lines", [(), (b"{",)])
def test_a_file_without_transcripts_is_refused(tmp_path: Path, lines: tuple[bytes, ...]) -> None:
    with pytest.raises(InputError, match="holds no transcript"):
        run(write(tmp_path / "t.jsonl", *lines), "--skip-bad")


def test_scoring_loads_no_model_library(file: Path) -> None:
    code = (
        "import sys; from tests.lab.parts import run; run(sys.argv[1], '--json'); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'gradio')))"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, stdout=subprocess.DEVNULL)
