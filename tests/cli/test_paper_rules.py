"""The rules of the paper's published script, on texts for which a person can count the accepted tokens.

The script cuts the prompt, without its template, into all windows of 13 tokens: a prefix of three, and the ten that it
drafts if the last one to three tokens printed end a window's prefix.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.lab.logs.transcripts import Transcript, TranscriptFile
from specrace.model.loading import load_target
from tests.measure.paper_rules import CATEGORIES, accept_lengths, agreement, draft, main, write_log

# A text that repeats nothing.
TEXT = tuple(range(10, 40))
# The template's first and last tokens.
HEAD, TAIL = (1, 2), (3, 4)
# The end token of every output.
END = 99


def request(output: tuple[int, ...], turn: tuple[int, ...] = TEXT, category: str = "rag") -> Transcript:
    return Transcript("", category, (*HEAD, *turn, *TAIL), output, 100)


def lengths(output: tuple[int, ...]) -> list[int]:
    # The template is what all prompts share, so there must be a request with another turn.
    other_request = request((END,), (50, 51), "summarization")
    return accept_lengths([request(output), other_request], num_draft=64)["rag"][0]


def test_a_copy_is_accepted_ten_tokens_at_a_time() -> None:
    # 12 ends the first prefix of three tokens, and 13 to 22 follow it. After 23, 24 is drafted, but the text ends.
    assert lengths((12, *range(13, 24), END)) == [1, 10, 1, 1]
    # No prefix ends with 11. The token of the prefill is counted by the 1 at the beginning.
    assert lengths((11, 61, END)) == [1, 0, 1, 1]


def test_drafts_that_do_not_fit_lose_their_longest_paths() -> None:
    chains = Counter({(1, 2, 3, 4, 5, 6, 7, 8, 9, 10): 2, (1, 20, 21, 22, 23, 24, 25, 26, 27, 28): 1})
    assert draft(chains, 20) == list(chains)
    # The 4 most frequent nodes are 1, 1 2, 1 2 3 and 1 2 3 4, with 10 tokens; the two longest go, which leaves 3.
    assert draft(chains, 4) == [(1, 2), (1,)]


@pytest.mark.parametrize(
    ("path", "text", "count"), [((1, 2), (1, 2, 3), 2), ((1, 2, 3), (1,), 1), ((1, 5), (1, 2), 1), ((1,), (), 0)]
)
def test_a_path_agrees_with_a_text_up_to_the_end_of_both(
    path: tuple[int, ...], text: tuple[int, ...], count: int
) -> None:
    assert agreement(path, text) == count


def test_spec_benchs_files_become_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers, log = (tmp_path / name for name in ("question.jsonl", "answers.jsonl", "log.jsonl"))
    turns = {1: "What is a trie?", 2: "Who built the hall in the town by the sea?", 3: "Why?"}
    rows = [
        {"question_id": number, "category": category, "turns": [turns[number], "a second turn"]}
        for number, category in zip(turns, (*CATEGORIES, "qa"), strict=True)
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outputs = [{"question_id": number, "choices": [{"turns": [f"Answer {number}."]}]} for number in turns]
    answers.write_text("".join(json.dumps(row) + "\n" for row in outputs))
    write_log(questions, answers, str(BUNDLED_MODEL), log)
    target, transcripts = load_target(BUNDLED_MODEL, graphs=False), list(TranscriptFile(log))
    for number, transcript in enumerate(transcripts, 1):
        assert f"USER: {turns[number]} ASSISTANT:" in target.decode(transcript.prompt)
        assert target.decode(transcript.output).strip().startswith(f"Answer {number}.")
    assert main([str(log), "--num-draft", "32"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == [f"{category}, 32 draft tokens" for category in CATEGORIES]
