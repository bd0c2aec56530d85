"""Rows whose text the model read together with images, sound or documents."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats import recognise

ASK, ANSWER = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
ROWS: list[dict[str, Any]] = [
    {"prompt": "a", "output": "b"},
    {"prompt": "a", "completion": "b"},
    {"prompt": [ASK], "chosen": [ANSWER], "rejected": [ANSWER]},
    {"question": "a", "answer": "b"},
    {"messages": [ASK], "response": ANSWER},
    {"instruction": "a", "output": "b"},
]


def count(row: dict[str, Any]) -> int:
    """The number of exchanges in a row, read in the format that it is recognised as."""
    log_format = recognise(row)
    assert log_format is not None
    return len(list(log_format().read(row)))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    "more",
    [
        {"image": "x.png"},
        {"images": [{"bytes": "x"}]},
        {"image_url": "https://host:8000/x"},
        {"audio": [0.5]},
        {"files": ["x.png"]},
        {"attachments": [{"name": "x", "type": "application/pdf"}]},
    ],
)
def test_what_is_no_text_beside_the_prompt_is_reported(row: Any, more: Any) -> None:
    with pytest.raises(ValueError, match=r"stands beside the (?:prompt|conversation); only text can be scored"):
        count(row | more)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    "more",
    [
        {"image": "host:5000/vllm/server:v1.2", "video": None, "images": [], "audio": {}},
        {"image": {"bytes": None, "path": None}, "images": [None]},
        {"audio": {"voice": "v", "format": "wav"}},
        {"files": ["x.py"], "attachments": ["a text about x.png, which was read"]},
    ],
)
def test_other_fields_of_such_names_say_nothing(row: Any, more: Any) -> None:
    assert count(row | more) == 1


def test_an_image_in_a_request_is_reported() -> None:
    with pytest.raises(ValueError, match="image stands beside the prompt"):
        count({"request": {"prompt": "a", "image": "x.png"}, "response": {"choices": [{"text": "b"}]}})
