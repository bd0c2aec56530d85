"""An engine's counts of its draft tokens in a log: what follows from them, and when they are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.lab.logs.formats.measured import CONTRADICTION, Measured, read_measured
from specrace.lab.logs.transcripts import Transcript, TranscriptFile, write_transcripts
from tests.lab.parts import write
from tests.servers.replies import recorded

# Ten tokens in steps of 1, 4 and 5 tokens; the last step accepted 6 draft tokens, of which one is past the end.
CUT = {"per_step_accepted": [3, 6], "per_step_drafted": [4, 6], "step_sizes": [1, 4, 5]}


def only(file: TranscriptFile) -> Transcript:
    """The only transcript of a log."""
    (transcript,) = file
    return transcript


def test_sizes_of_steps_tell_which_accepted_tokens_are_past_the_end() -> None:
    counts = read_measured(CUT, 10)
    # Ten tokens, two drafts, ten draft tokens, nine of them accepted; the number of steps is 3 at least and at most.
    assert counts == Measured("vLLM", 10, 2, 10, 9, (3, 3)) and counts.in_text == (8, 8)
    whole = read_measured(CUT | {"step_sizes": [1, 4, 7]}, 12)
    assert whole is not None and whole.in_text == (9, 9)


def test_without_sizes_the_last_draft_bounds_the_steps() -> None:
    counts = read_measured({"per_step_accepted": [3, 6], "per_step_drafted": [4, 6]}, 10)
    # One step of 10 tokens at the least, and at the most 7 steps, of which the last printed one token.
    assert counts is not None and (counts.steps, counts.in_text) == ((1, 7), (4, 9))
    exact = read_measured(CUT, 10)
    assert exact is not None and counts.steps[0] <= exact.steps[0] <= counts.steps[1]
    # The histogram has one draft with three accepted tokens, and one with six.
    histogram = {"num_draft_tokens": 10, "num_accepted_draft_tokens": 9, "num_spec_steps": 2}
    assert read_measured(histogram | {"acceptance_histogram": [0, 0, 0, 1, 0, 0, 1]}, 10) == counts


def test_an_answer_without_a_draft_takes_a_step_a_token() -> None:
    counts = read_measured({"num_draft_tokens": 0, "num_accepted_draft_tokens": 0}, 7)
    assert counts == Measured("vLLM", 7, 0, 0, 0, (7, 7)) and counts.in_text == (0, 0)


@pytest.mark.parametrize("counts", [None, {}, {"num_draft_tokens": 3}, {"mean_acceptance_length": 2.0}])
def test_incomplete_counts_are_not_read(counts: dict[str, Any] | None) -> None:
    assert read_measured(counts, 10) is None


@pytest.mark.parametrize(
    "changed",
    [
        # Sizes that are not ten tokens, too few steps for two drafts, an empty step, and too many steps.
        {"step_sizes": [1, 4, 4]},
        {"step_sizes": [10]},
        {"step_sizes": [0, 5, 5]},
        {"step_sizes": [1] * 10},
        # Fewer draft tokens than accepted ones, and fewer drafts.
        {"per_step_drafted": [4, 5]},
        {"per_step_drafted": [10]},
        {"per_step_accepted": [3, 6.0]},
        {"per_step_accepted": [3, True]},
        {"per_step_accepted": [3, -6]},
        # Totals that are not the sums of the steps, or no numbers.
        {"num_accepted_draft_tokens": 8},
        {"num_draft_tokens": "10"},
        {"num_spec_steps": 3},
    ],
)
def test_counts_that_contradict_the_answer_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="contradict"):
        read_measured(CUT | changed, 10)


def test_contradictory_counts_are_reported_and_the_answer_is_scored(tmp_path: Path) -> None:
    line = {"prompt_ids": [1, 2], "output_ids": list(range(10)), "measured": CUT | {"step_sizes": [1] * 10}}
    file = TranscriptFile(write(tmp_path / "t.jsonl", line))
    assert only(file).measured is None
    assert file.remarks.sentences() == [f"1 of 1 requests (100 %): {CONTRADICTION}."]


def test_written_counts_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [
        ("a", (1, 2), tuple(range(10)), CUT | {"engine": "vLLM 0.32.0", "num_steps": None}),
        ("b", (1,), (2,), None),
    ]
    write_transcripts(path, rows, "open")
    first, second = TranscriptFile(path)
    assert first.measured == Measured("vLLM 0.32.0", 10, 2, 10, 9, (3, 3)) and second.measured is None


def chat_chunks() -> list[dict[str, Any]]:
    """The recorded completion of vLLM as the chunks of a chat, with the prompt's ids beside the choices."""
    chunks = []
    for data in recorded("vllm")["post"]["events"][:-1]:
        chunk = json.loads(data) | {"object": "chat.completion.chunk"}
        for choice in chunk["choices"]:
            choice["delta"] = {"content": choice.pop("text")}
            chunk["prompt_token_ids"] = choice.pop("prompt_token_ids", None)
        chunks.append(chunk)
    return chunks


def test_a_logged_stream_of_vllm_has_its_counts(tmp_path: Path) -> None:
    request = {"messages": [{"role": "user", "content": "Why does bread rise?"}]}
    transcript = only(TranscriptFile(write(tmp_path / "log.jsonl", {"request": request, "response": chat_chunks()})))
    # 40 tokens, 25 of them accepted in 5 drafts, the last of which may have passed the end.
    assert transcript.measured == Measured("vLLM", 40, 5, 25, 25, (15, 20))


@pytest.mark.parametrize("choices", [1, 2])
def test_a_logged_response_has_counts_if_it_has_one_answer(tmp_path: Path, choices: int) -> None:
    choice = {"prompt_token_ids": [1, 2], "token_ids": list(range(10)), "text": "..."}
    counts = {"per_step_accepted": [3, 6], "per_step_drafted": [4, 6]}
    response = {"object": "text_completion", "choices": [choice] * choices}
    response["metrics"] = {"speculative_decoding": counts}
    transcripts = list(TranscriptFile(write(tmp_path / "log.jsonl", response)))
    expected = [read_measured(counts, 10)] if choices == 1 else [None, None]
    assert [transcript.measured for transcript in transcripts] == expected
