"""The journal of a comparison survives a kill, and refuses the requests of other comparisons and servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.lab.compare.journal import REQUESTS, SETTINGS, Journal
from specrace.lab.compare.samples import Block
from tests.lab.compare.parts import sample

PLAN = {"servers": ["a", "b"], "max_new_tokens": 8}


def fill(folder: Path) -> None:
    """Write a journal in which server a answered three questions and failed at the fourth."""
    with Journal(folder, PLAN, resume=False) as journal:
        journal.check_server("a", {"software": "vLLM 0.32.0", "model": "m"})
        for number in range(3):
            journal.add(sample("a", number, [1, 3, 2]))
        journal.add_failure(Block("a", 1, 0), 3, "The server a hung up.")


def test_a_resumed_journal_has_what_was_finished(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    with Journal(tmp_path / "c", PLAN, resume=True) as journal:
        assert journal.samples == [sample("a", number, [1, 3, 2]) for number in range(3)]
        assert journal.finished(Block("a", 1, 0)) == {0, 1, 2} and journal.finished(Block("b", 1, 0)) == set()
        assert journal.session == 1 and journal.about["a"]["model"] == "m"
        assert journal.failed == {(Block("a", 1, 0), 3): "The server a hung up."}
        journal.add(sample("a", 3, [1, 2], session=1))
        assert not journal.failed
    with Journal(tmp_path / "c", PLAN, resume=True) as journal:
        assert journal.session == 2 and len(journal.samples) == 4 and not journal.failed


# The last line is longer than any of these.
@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_line_that_a_kill_cut_off_is_dropped_and_nothing_else(tmp_path: Path, cut: int) -> None:
    with Journal(tmp_path / "c", PLAN, resume=False) as journal:
        for number in range(3):
            journal.add(sample("a", number, [1, 3, 2]))
    file = tmp_path / "c" / REQUESTS
    file.write_bytes(file.read_bytes()[:-cut])
    with Journal(tmp_path / "c", PLAN, resume=True) as journal:
        assert journal.finished(Block("a", 1, 0)) == {0, 1}
        journal.add(sample("a", 2, [1, 3, 2], session=1))
    with Journal(tmp_path / "c", PLAN, resume=True) as journal:
        assert journal.finished(Block("a", 1, 0)) == {0, 1, 2}


def test_a_folder_with_a_comparison_needs_resume_and_the_same_settings(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    with (
        pytest.raises(InputError, match=r"holds a comparison; add --resume"),
        Journal(tmp_path / "c", PLAN, resume=False),
    ):
        pass
    other_plan = {**PLAN, "max_new_tokens": 9}
    with (
        pytest.raises(InputError, match=r"other settings \(max_new_tokens\)"),
        Journal(tmp_path / "c", other_plan, resume=True),
    ):
        pass
    (tmp_path / "c" / SETTINGS).write_text("[]")
    with pytest.raises(InputError, match="other settings"), Journal(tmp_path / "c", PLAN, resume=True):
        pass


def test_a_server_that_became_another_one_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "c")
    with Journal(tmp_path / "c", PLAN, resume=True) as journal:
        journal.check_server("a", {"software": "vLLM 0.32.0", "model": "m"})
        with pytest.raises(InputError, match=r"a was vLLM 0.32.0, m; now it is vLLM 0.33.0, m"):
            journal.check_server("a", {"software": "vLLM 0.33.0", "model": "m"})


def test_two_processes_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "c", PLAN, resume=False),
        pytest.raises(InputError, match="Another process writes to"),
        Journal(tmp_path / "c", PLAN, resume=True),
    ):
        pass


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "{}",
        "not JSON",
        '{"block": ["a", 1, 0], "number": 0}',
        # The output has one token, and its only chunk two.
        '{"block":["a",1,0],"number":0,"session":0,"start_ms":0,"end_ms":1,"times_ms":[1],"sizes":[2],"output":[5],'
        '"end":"eos","counts":{}}',
    ],
)
def test_a_line_that_is_not_a_request_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    # Six lines: the session, the server, three answers and a failure.
    fill(tmp_path / "c")
    with (tmp_path / "c" / REQUESTS).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(InputError, match=r"line 7: this is not a request"), Journal(tmp_path / "c", PLAN, resume=True):
        pass


def test_a_question_that_was_answered_twice_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "c", PLAN, resume=False) as journal:
        for _ in range(2):
            journal.add(sample("a", 0, [1, 3, 2]))
    with pytest.raises(InputError, match="line 3"), Journal(tmp_path / "c", PLAN, resume=True):
        pass
