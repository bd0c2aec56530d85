"""Tokenizers for logs: transformers' ids, and conversations split into prompt and answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.model.chat_tokenizer import load_tokenizer
from tests.lab.formats.written import chat_folder

QUESTION = [{"role": "user", "content": "What pulls the sea?"}]
ANSWER = {"role": "assistant", "content": "The moon."}


def test_a_folder_and_its_file_give_transformers_ids(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = chat_folder(tmp_path / "chat")
    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    rendered = theirs.apply_chat_template([*QUESTION, ANSWER], tokenize=False)
    for source in (folder, folder / "tokenizer.json"):
        ours = load_tokenizer(source)
        assert list(ours("the moon<|end|> pulls")) == theirs("the moon<|end|> pulls")["input_ids"]
        prompt, output = ours.chat(QUESTION, ANSWER, None)
        assert [*prompt, *output] == theirs(rendered, add_special_tokens=False)["input_ids"][
            : -len(theirs("\n").input_ids)
        ]
        assert theirs.decode(output) == " The moon.<|end|>"


def test_a_class_of_its_own_is_opened_by_transformers(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path / "chat")
    plain = load_tokenizer(folder).chat(QUESTION, ANSWER, None)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"add_bos_token": True, "bos_token": "<|end|>"}))
    assert [list(ids) for ids in load_tokenizer(folder).chat(QUESTION, ANSWER, None)] == [list(ids) for ids in plain]


def test_ids_are_text_again(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for extra in ({}, {"add_bos_token": True, "bos_token": "<|end|>"}):
        (folder / "tokenizer_config.json").write_text(json.dumps(config | extra))
        tokenizer = load_tokenizer(folder)
        assert tokenizer.decode([*tokenizer("The moon ."), *tokenizer("<|end|>")]) == "The moon ."


def test_where_the_template_does_not_go_on_the_answers_text_counts() -> None:
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    prompt, output = tokenizer.chat(QUESTION, ANSWER, None)
    assert list(output) == list(tokenizer("The moon."))
    assert len(prompt) > len(tokenizer("What pulls the sea?"))


def test_a_tool_call_must_be_shown(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "look_up", "arguments": {"word": "tide"}}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    folder = chat_folder(tmp_path / "chat")
    output = load_tokenizer(folder).chat(QUESTION, answer, None)[1]
    assert len(output) > 5
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(ValueError, match="does not show the answer's tool call"):
        load_tokenizer(folder).chat(QUESTION, answer, None)


@pytest.mark.parametrize(
    ("template", "reason"),
    [("{{ raise_exception('no system') }}", "refuses this conversation .no system"), ("{{ a.b.c }}", "refuses this")],
)
def test_a_template_may_refuse(tmp_path: Path, template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_tokenizer(chat_folder(tmp_path, template)).chat(QUESTION, ANSWER, None)


def test_a_tokenizer_alone_has_no_template(tmp_path: Path) -> None:
    shutil.copy(BUNDLED_MODEL / "tokenizer.json", tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert list(tokenizer("the moon")) == list(load_tokenizer(BUNDLED_MODEL)("the moon"))
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.chat(QUESTION, ANSWER, None)


def test_a_tokenizer_that_may_not_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[]"])
def test_a_file_that_is_no_tokenizer_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(tmp_path / "tokenizer.json")
