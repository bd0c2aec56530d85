"""Scoring a visitor's log: scores as on the command line, the drafts of each request, and limits."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.model.chat.tokenizer import load_tokenizer
from specrace.ui.helper import log_scores
from specrace.ui.helper.log_scores import score_log
from tests.lab.logs.formats.written import SHAPES, chat_folder
from tests.lab.parts import COPYING, FRESH, run, write

LANES = ("prompt-lookup", "trie")
# In the logs of these tests, COPYING is a request whose output copies its prompt, FRESH one whose output does not.
TIMED_FIELDS = ("draft_ms_per_step", "build_ms_per_output")


def score(
    path: Path,
    lanes: Sequence[str] = LANES,
    *,
    decodes_ids: bool = False,
    columns: str = "",
    model: Path = BUNDLED_MODEL,
) -> Any:
    """Return the scores that the page gets for a file."""
    request = {"path": str(path), "lanes": lanes, "columns": columns}
    tokenizer = {"tokenizer": str(model), "name": model.name, "decodes_ids": decodes_ids}
    task = score_log("", json.dumps(request | tokenizer).encode())
    try:
        while True:
            assert set(json.loads(next(task))["progress"]) == {"requests", "share"}
    except StopIteration as finished:
        return json.loads(finished.value)["scores"]


def without_times(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups without their measured times, which differ between runs."""
    return [{name: value for name, value in row.items() if name not in TIMED_FIELDS} for row in groups]


# Forms of logs, each of the same 20 requests.
@pytest.mark.parametrize("shape", ["openai-chat", "openai-response", "openai-batch one", "csv"])
def test_the_pages_scores_equal_the_command_lines(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = SHAPES[shape](tmp_path)
    model = chat_folder(tmp_path / "model")
    arguments = ("--tokenizer", model, "--by", "category", "--lanes", ",".join(LANES), "--json")
    assert run(path, *arguments) == 0
    expected, scores = json.loads(capsys.readouterr().out), score(path, model=model)
    assert without_times(scores["groups"]) == without_times(expected["groups"])
    assert (scores["format"], scores["title"]) == (expected["format"], expected["format_title"])
    assert (scores["outputs"], scores["skipped"], scores["left_out"]) == (20, 0, "")
    # This form has token ids, so no tokenizer is needed.
    assert scores["tokenizer"] == ("" if shape == "openai-response" else "model")
    assert expected["measured"] == scores["measured"] == scores["measured_text"] == []
    for lane in scores["lanes"]:
        row = next(group for group in scores["groups"] if (group["lane"], group["category"]) == (lane["lane"], "all"))
        # `emitted[n]` counts the steps that emitted n tokens.
        tokens = sum(length * count for length, count in enumerate(lane["emitted"]))
        assert (sum(lane["emitted"]), tokens) == (row["steps"], row["tokens"])
        # Each tenth of the output has three counts of steps: all, those whose whole draft was rejected, those without
        # a draft.
        steps, rejected, without_draft = map(sum, zip(*lane["tenths"], strict=True))
        # A step that emitted one token had nothing accepted, except that an output's last step may lack a bonus token.
        assert steps == row["steps"] and 0 <= lane["emitted"][1] - rejected - without_draft <= scores["outputs"]
        assert lane["tau_low"] < row["tau"] < lane["tau_high"]
        assert sum(lane["accepted"]) == pytest.approx(row["acceptance_rate"] * row["drafted_per_step"] * row["steps"])


def test_conversations_are_not_scored_by_the_bundled_models_template(tmp_path: Path) -> None:
    turns = [{"role": role, "content": "the sea"} for role in ("user", "assistant", "user", "assistant")]
    path = write(
        tmp_path / "t.jsonl", {"messages": turns[2:]}, {"messages": [{"role": "system", "content": "a"}, *turns[2:]]}
    )
    scores = score(path)
    assert (scores["outputs"], scores["skipped"]) == (1, 1)
    assert "the bundled model's template shows the last message only; name the tokenizer" in json.dumps(scores)
    with pytest.raises(InputError, match="shows the last message only"):
        score(write(tmp_path / "s.jsonl", {"messages": [{"role": "system", "content": "a"}, *turns[2:]]}))


def test_a_request_lists_every_step_of_every_lane(tmp_path: Path) -> None:
    scores = score(write(tmp_path / "t.jsonl", COPYING, FRESH | {"output_ids": [4]}), ["prompt-lookup", "vanilla"])
    # Some resamples consist of the second request alone, whose only token takes one step.
    assert [lane["tau_low"] for lane in scores["lanes"]] == [1.0, 1.0]
    first, second = scores["requests"]
    assert {name: first[name] for name in ("number", "id", "category", "tokens", "prompt_tokens", "looping")} == {
        "number": 1, "id": "a", "category": "copy", "tokens": 8, "prompt_tokens": 8, "looping": False,
    }  # fmt: skip
    assert first["texts"] == [" #3", " #4", " #5", " #9", " #7", " #3", " #4", " #8"]
    assert first["prompt"] == " #1 #2 #3 #4 #5 #9 #1 #2"
    lookup, vanilla = first["lanes"]
    # In the prompt, 1 2 is followed by 3 4 5 9 1 2. The output begins with 3 4 5 9 but not 1, so that four of the six
    # drafted tokens are accepted. A step is (accepted tokens, drafted tokens, the rejected ones' texts).
    assert lookup[0] == [4, 6, [" #1", " #2"]] and vanilla == [[0, 0, []]] * 8
    assert sum(accepted for accepted, *_ in lookup) + len(lookup) == 8
    assert first["tau"] == [8 / len(lookup), 1.0]
    # Even a short output comes with its prompt.
    assert (second["number"], second["prompt"]) == (2, " #1 #2 #3")


def test_ids_become_text_only_if_the_tokenizer_made_them(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    ids = {"prompt_ids": list(tokenizer("The moon pulls")), "output_ids": list(tokenizer(" the sea, Größe 🦉."))}
    path = write(tmp_path / "t.jsonl", ids, {"prompt": "The moon pulls", "output": " the sea, Größe 🦉."})
    from_ids, from_text = score(path)["requests"]
    assert from_ids["prompt"].startswith(" #") and "".join(from_text["texts"]) == " the sea, Größe 🦉."
    assert from_text["prompt"] == "The moon pulls"
    # If the visitor names a tokenizer, the log's ids are assumed to be that tokenizer's.
    assert "".join(score(path, decodes_ids=True)["requests"][0]["texts"]).endswith("Größe 🦉.")


# A session whose only answer is an error message that Claude Code wrote.
API_ERROR = (
    {"type": "user", "sessionId": "s", "uuid": "1", "parentUuid": None, "message": {"role": "user", "content": "a"}},
    {
        "type": "assistant",
        "sessionId": "s",
        "uuid": "2",
        "parentUuid": "1",
        "isApiErrorMessage": True,
        "message": {"role": "assistant", "content": [{"type": "text", "text": "API Error: 529"}]},
    },
)


def test_unusable_lines_are_counted_by_reason(tmp_path: Path) -> None:
    scores = score(write(tmp_path / "t.jsonl", FRESH, b"{", {"prompt_ids": [1]}, {"prompt_ids": [1]}))
    (first_reason, first_count), (second_reason, second_count) = scores["skipped_by_reason"]
    assert (scores["skipped"], first_count, second_count) == (3, 2, 1)
    assert first_reason.startswith("there is no output_ids") and second_reason.startswith("this is not JSON")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ((b"hello",), r"^t\.jsonl holds no request that can be scored; this is not JSON .* \(1 line\)\.$"),
        ((), r"^t\.jsonl holds no request that can be scored; it is empty; .* \(1 line\)\.$"),
        (API_ERROR, r"^t\.jsonl holds no request that can be scored; Claude Code wrote it, .* \(1 answer\)\.$"),
        (({"input_length": 1, "output_length": 2},), r"^t\.jsonl is a trace of lengths and block hashes"),
    ],
)
def test_a_bad_file_gets_one_sentence_without_the_servers_paths(tmp_path: Path, lines: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        score(write(tmp_path / "t.jsonl", *lines))
    assert str(tmp_path) not in str(caught.value)


def test_a_tables_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("q,a\nthe moon, pulls\n")
    assert score(tmp_path / "t.csv", columns="prompt=q,output=a")["outputs"] == 1
    with pytest.raises(InputError, match=r"^t\.csv has no column 'z'"):
        score(tmp_path / "t.csv", columns="prompt=z,output=a")


def test_requests_and_seconds_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.jsonl", *[FRESH] * 4)
    monkeypatch.setattr(log_scores, "MAX_REQUESTS", 3)
    scores = score(path)
    assert (scores["outputs"], scores["left_out"]) == (3, "the page scores 3 requests")
    monkeypatch.setattr(log_scores, "TIME_LIMIT_S", -1.0)
    with pytest.raises(InputError, match="too long for the page"):
        score(path)


def test_the_number_of_requests_kept_for_viewing_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, best and worst requests are kept; while the log is scored, all other requests are dropped."""
    monkeypatch.setattr(log_scores, "NUM_FIRST_KEPT", 2)
    monkeypatch.setattr(log_scores, "NUM_EXTREMES_KEPT", 1)
    monkeypatch.setattr(log_scores, "MAX_IN_MEMORY", 4)
    rows = [FRESH] * 5 + [COPYING] + [FRESH] * 6
    scores = score(write(tmp_path / "t.jsonl", *rows), ["prompt-lookup"])
    # Request 6 is the only one whose output copies its prompt, so it is the best one.
    numbers = [request["number"] for request in scores["requests"]]
    assert scores["outputs"] == 12 and numbers[:2] == [1, 2] and 6 in numbers and len(numbers) <= 4


def test_a_long_request_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scores, "MAX_SHOWN_BYTES", 6000)
    row = {"prompt_ids": list(range(5000)), "output_ids": list(range(3000, 7000))}
    (request,) = score(write(tmp_path / "t.jsonl", row))["requests"]
    assert request["tokens"] == 4000 and 10 < len(request["texts"]) < 1000
    # The last 400 tokens of the prompt are shown.
    assert len(json.dumps(request)) < 6500 and request["prompt"].split() == [f"#{token}" for token in range(4600, 5000)]


def test_the_number_of_categories_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scores, "MAX_CATEGORIES", 2)
    rows = [FRESH | {"category": name} for name in ("a" * 500, "b", "c", "d", "b")]
    groups = score(write(tmp_path / "t.jsonl", *rows), ["trie"])["groups"]
    # The name of the first category, of 500 letters, is shortened; the third and the fourth are counted together.
    counts = [(row["category"], row["outputs"]) for row in groups]
    assert counts[0] == ("all", 5) and counts[2:] == [("b", 2), (log_scores.OTHERS, 2)] and len(counts[1][0]) < 100


def test_a_gzipped_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(FRESH).encode()))
    assert score(path)["outputs"] == 1


def test_what_an_engine_counted_is_that_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In two steps vLLM accepted 2 and 0 of 4 drafted tokens.
    counts = {"engine": "vLLM 0.32.0", "per_step_accepted": [2, 0], "per_step_drafted": [4, 4]}
    rows = [{"prompt_ids": [2, 3, 4], "output_ids": [5, 2, 3, 4, 5], "category": "a", "measured": counts}, FRESH]
    path = write(tmp_path / "t.jsonl", *rows)
    assert run(path, "--lanes", "vllm-ngram,trie", "--by", "category", "--json") == 0
    expected, scores = json.loads(capsys.readouterr().out), score(path, ["vllm-ngram", "trie"])
    shown = ("category", "outputs", "tau", "tau_high")
    assert scores["measured"] == [{name: row[name] for name in shown} for row in expected["measured"]]
    assert [row["category"] for row in scores["measured"]] == ["all", "a"] and scores["measured"][0]["outputs"] == 1
    assert scores["measured_text"] == expected["measured_text"]
    assert any(
        "vllm-ngram drafts differently from the engine in 1 of 1 outputs" in line for line in scores["measured_text"]
    )
