"""The marks around an answer's thoughts, by which a page and a terminal fold them."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from specrace.model.chat.thoughts import find_thoughts
from specrace.views.detokenize import Narrator, text_decoder
from tests.models import byte_tokenizer
from tests.views import test_detokenize

SHOWN = "{% if enable_thinking %}<think>{% endif %}"
CHANNELS = "<|start|>assistant{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"


@pytest.mark.parametrize(
    ("template", "prompt", "thoughts"),
    [
        (SHOWN, "user: Why? assistant:", ("<think>", "</think>")),
        (SHOWN, "user: Why? assistant: <think>\n", ("", "</think>")),
        # The prompt closes the thoughts: the model is not to think.
        (SHOWN, "user: Why? assistant: <think>\n\n</think>\n\n", None),
        ("{{ messages }}", "user: Why? assistant:", None),
        ("", "Why?", None),
        ("[THINK]", "user: Why?", ("[THINK]", "[/THINK]")),
        ("<|channel>thought\n", "<|turn>model\n", ("<|channel>thought", "<channel|>")),
        ("<|channel>thought\n", "<|turn>model\n<|channel>thought\n<channel|>", None),
        # In gpt-oss's form, the thoughts end where the final channel begins.
        (CHANNELS, "<|start|>assistant", ("", "<|channel|>final<|message|>")),
    ],
)
def test_marks_are_those_of_the_template_and_the_prompt(
    template: str, prompt: str, thoughts: tuple[str, str] | None
) -> None:
    assert find_thoughts(byte_tokenizer(), template, prompt) == thoughts


def test_control_tokens_are_shown_only_where_they_mark_thoughts() -> None:
    core = test_detokenize.byte_tokenizer()
    core.add_special_tokens([AddedToken(mark, special=True) for mark in ("[THINK]", "[/THINK]", "[PAD]")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False)
    tokens = tokenizer("[THINK]Café?[/THINK][PAD] The cat<|end|>", add_special_tokens=False)["input_ids"]
    assert len(tokenizer("[THINK]", add_special_tokens=False)["input_ids"]) == 1
    for marks, text in (
        (None, "Café? The cat"),
        (("<think>", "</think>"), "Café? The cat"),
        (("[THINK]", "[/THINK]"), "[THINK]Café?[/THINK] The cat"),
        (("", "[/THINK]"), "Café?[/THINK] The cat"),
    ):
        steps = test_detokenize.narrated_steps(core, tokens, Narrator(tokenizer, marks))
        assert "".join(part for step in steps for part in step.texts) == text
        assert text_decoder(tokenizer, marks)(tokens) == text
