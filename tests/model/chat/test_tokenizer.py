"""Tokenizers for logs: they give the ids of transformers, and split a conversation into prompt and answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.model.chat.tokenizer import load_tokenizer
from tests.lab.logs.formats.written import chat_folder

QUESTION = [{"role": "user", "content": "What pulls the sea?"}]
ANSWER = {"role": "assistant", "content": "The moon."}


def test_token_ids_equal_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = chat_folder(tmp_path / "chat")
    reference = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    rendered = reference.apply_chat_template([*QUESTION, ANSWER], tokenize=False)
    for source in (folder, folder / "tokenizer.json"):
        tokenizer = load_tokenizer(source)
        assert list(tokenizer("the moon<|end|> pulls")) == reference("the moon<|end|> pulls")["input_ids"]
        prompt, output, _ = tokenizer.chat(QUESTION, ANSWER, None)
        # The newline after the end token comes from the template, not from the model.
        num_newline_tokens = len(reference("\n").input_ids)
        rendered_ids = reference(rendered, add_special_tokens=False)["input_ids"]
        assert [*prompt, *output] == rendered_ids[:-num_newline_tokens]
        assert reference.decode(output) == " The moon.<|end|>"


def test_a_tokenizer_that_adds_bos_gives_the_same_chat_ids(tmp_path: Path) -> None:
    """`add_bos_token` requires transformers' tokenizer, but a chat is encoded without special tokens around it."""
    folder = chat_folder(tmp_path / "chat")
    plain = [list(ids) for ids in load_tokenizer(folder).chat(QUESTION, ANSWER, None)[:2]]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"add_bos_token": True, "bos_token": "<|end|>"}))
    assert [list(ids) for ids in load_tokenizer(folder).chat(QUESTION, ANSWER, None)[:2]] == plain


def test_decoding_reverses_encoding_and_skips_special_tokens(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for extra in ({}, {"add_bos_token": True, "bos_token": "<|end|>"}):
        (folder / "tokenizer_config.json").write_text(json.dumps(config | extra))
        tokenizer = load_tokenizer(folder)
        assert tokenizer.decode([*tokenizer("The moon ."), *tokenizer("<|end|>")]) == "The moon ."


def test_if_the_template_changes_earlier_messages_the_answer_is_tokenized_as_plain_text() -> None:
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    prompt, output, _ = tokenizer.chat(QUESTION, ANSWER, None)
    assert list(output) == list(tokenizer("The moon."))
    # The prompt has the template's own tokens around the question.
    assert len(prompt) > len(tokenizer("What pulls the sea?"))


def test_a_template_that_omits_the_tool_call_is_refused(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "look_up", "arguments": {"word": "tide"}}}
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    folder = chat_folder(tmp_path / "chat")
    output = load_tokenizer(folder).chat(QUESTION, answer, None)[1]
    assert len(output) > 5, "the call is part of the output"
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(ValueError, match="does not show the answer's tool call"):
        load_tokenizer(folder).chat(QUESTION, answer, None)


@pytest.mark.parametrize(
    ("template", "reason"),
    [("{{ raise_exception('no system') }}", "refuses this conversation .no system"), ("{{ a.b.c }}", "refuses this")],
)
def test_an_error_in_the_template_is_a_value_error(tmp_path: Path, template: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_tokenizer(chat_folder(tmp_path, template)).chat(QUESTION, ANSWER, None)


def test_a_tokenizer_file_alone_has_no_chat_template(tmp_path: Path) -> None:
    shutil.copy(BUNDLED_MODEL / "tokenizer.json", tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert list(tokenizer("the moon")) == list(load_tokenizer(BUNDLED_MODEL)("the moon"))
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.chat(QUESTION, ANSWER, None)


def test_an_unreadable_tokenizer_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[]"])
def test_an_invalid_tokenizer_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("file", "config", "kind"),
    [
        ("tekken.json", {}, "a file of mistral-common"),
        ("tokenizer.model", {"tokenizer_class": "LlamaTokenizer"}, "a file of SentencePiece or tiktoken"),
        ("qwen.tiktoken", {"tokenizer_class": "QWenTokenizer"}, "a file of tiktoken"),
        ("weights.gguf", {}, "a GGUF file"),
    ],
)
def test_a_tokenizer_in_another_librarys_file_is_named(
    tmp_path: Path, file: str, config: dict[str, str], kind: str
) -> None:
    (tmp_path / file).write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    sources = [tmp_path, tmp_path / file] if file.endswith("gguf") else [tmp_path]
    for source in sources:
        with pytest.raises(InputError, match=f"cannot be loaded from {file}, {kind}; give a folder or hub id .*json"):
            load_tokenizer(source)
