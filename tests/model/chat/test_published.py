"""Chat templates with the constructs of published ones: rendered as transformers renders them, or refused by name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.model.chat.template import LOG_DATE
from specrace.model.chat.tokenizer import load_tokenizer
from specrace.retrieval.prompt import build_prompt, thinking_arguments
from tests.lab.logs.formats.written import chat_folder
from tests.model.chat.published import REFUSED, RENDERED

CONVERSATION = [
    {"role": "system", "content": "Answer in one line, please."},
    {"role": "user", "content": "What pulls the sea?"},
    {"role": "assistant", "content": "The moon pulls it."},
    {"role": "user", "content": "And what else does?"},
]
ANSWER = {"role": "assistant", "content": "The sun pulls it, too."}


class FixedDate(datetime):
    """A clock that always shows the date that a log's prompts get."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:  # noqa: ARG003
        return LOG_DATE


@pytest.fixture(autouse=True)
def stop_the_library_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import chat_template_utils

    monkeypatch.setattr(chat_template_utils, "datetime", FixedDate)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokenizer of the folders that the tests write, loaded by transformers."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(chat_folder(tmp_path_factory.mktemp("chat")), local_files_only=True)


def test_there_are_forty_templates() -> None:
    assert len(RENDERED) + len(REFUSED) >= 40


@pytest.mark.parametrize("name", RENDERED)
def test_a_log_is_rendered_as_the_library_renders_it(name: str, tmp_path: Path, reference: Any) -> None:
    folder = chat_folder(tmp_path, RENDERED[name])
    expected = reference.apply_chat_template(
        CONVERSATION,
        chat_template=RENDERED[name],
        add_generation_prompt=True,
        return_dict=False,
    )
    for source in (folder, folder / "tokenizer.json"):
        assert list(load_tokenizer(source).chat(CONVERSATION, ANSWER, None)[0]) == expected


@pytest.mark.parametrize("name", RENDERED)
def test_a_race_is_asked_as_the_library_renders_it(name: str, reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "chat_template", RENDERED[name])
    question = [{"role": "user", "content": "What pulls the sea?"}]
    arguments = thinking_arguments(RENDERED[name], thinks=False)
    expected = reference.apply_chat_template(question, add_generation_prompt=True, return_dict=False, **arguments)
    assert list(build_prompt(reference, "What pulls the sea?", []).tokens) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_the_library_cannot_render_is_refused_by_name(
    name: str, tmp_path: Path, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, reason = REFUSED[name]
    with pytest.raises(ValueError, match=rf"^the chat template refuses this conversation \(.*{reason}"):
        load_tokenizer(chat_folder(tmp_path, template)).chat(CONVERSATION, ANSWER, None)
    # A race has only a message of the user, so it does not meet a template's refusal of other roles.
    if "role" in reason:
        return
    monkeypatch.setattr(reference, "chat_template", template)
    with pytest.raises(InputError, match=rf"The model's chat template fails \(.*{reason}.*\); choose another model"):
        build_prompt(reference, "What pulls the sea?", [])
