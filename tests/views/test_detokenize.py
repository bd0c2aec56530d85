"""Detokenising token by token: the tokens' texts, joined, are the whole text, and no text has part of a character."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from specrace.core.events import Finished, LaneResult, Step
from specrace.core.tree import TokenTree
from specrace.engine.lane import Lane
from specrace.views.detokenize import Detokenizer, Narrator
from tests.parts import FunctionSession, ScriptedDrafter

TEXTS = [
    "The cat sat on the mat; the cat ran.",
    "Café, naïve, e\u0301 a\u0308\u0323 — “quoted” …",
    "你好，世界。模型逐个生成词元。",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷 and text",
    "नमस्ते दुनिया  مرحبا   ไทย",
    "a real \ufffd replacement character \ufffd\ufffd inside",
]


def byte_tokenizer(size: int = 300, texts: list[str] = TEXTS[:1]) -> Tokenizer:
    """A byte-level BPE with few merges, so that most characters outside ASCII are split over tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens([AddedToken("<|end|>", special=True)])
    return core


TOKENIZER = byte_tokenizer()


def decode(tokens: list[int]) -> str:
    """The text of these tokens, without control tokens."""
    text: str = TOKENIZER.decode(tokens, skip_special_tokens=True)
    return text


def token_texts(tokens: list[int]) -> list[str]:
    """Each token's text, and then what `flush` returns."""
    detokenizer = Detokenizer(decode)
    return [*detokenizer.feed(tokens), detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_token_texts_joined_are_the_text(text: str) -> None:
    tokens = TOKENIZER.encode(text).ids
    # All texts but the first have characters of several tokens.
    assert len(tokens) > len(text) or text == TEXTS[0]
    texts = token_texts(tokens)
    assert "".join(texts) == text == decode(tokens)
    assert texts[-1] == "" or text.endswith("\ufffd")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.lists(st.integers(1, 7), max_size=20))
def test_tokens_can_be_fed_in_groups_of_any_size(text: str, sizes: list[int]) -> None:
    tokens = TOKENIZER.encode(text).ids
    detokenizer = Detokenizer(decode)
    texts = []
    for size in (*sizes, len(tokens)):
        texts += detokenizer.feed(tokens[:size])
        tokens = tokens[size:]
    assert "".join([*texts, detokenizer.flush()]) == text


@given(st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40))
def test_texts_of_random_tokens_joined_are_the_decoded_text(tokens: list[int]) -> None:
    """Random tokens, which a model with random weights writes, often are not UTF-8."""
    assert "".join(token_texts(tokens)) == decode(tokens)


@pytest.mark.parametrize("character", ["é", "你", "👍", "🏽"])
def test_a_character_comes_with_the_token_that_completes_it(character: str) -> None:
    tokens = TOKENIZER.encode(character).ids
    assert len(tokens) > 1
    assert token_texts(tokens) == [*[""] * (len(tokens) - 1), character, ""]


def test_flush_returns_an_incomplete_last_character() -> None:
    tokens = TOKENIZER.encode("ok 👍").ids[:-1]
    detokenizer = Detokenizer(decode)
    assert "".join(detokenizer.feed(tokens)) == "ok "
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_special_tokens_have_no_text_and_do_not_delay_other_tokens() -> None:
    end = TOKENIZER.token_to_id("<|end|>")
    first, second = TOKENIZER.encode("one").ids, TOKENIZER.encode("two").ids
    texts = Detokenizer(decode).feed([*first, end, end, *second])
    assert "".join(texts) == "onetwo"
    assert texts[len(first)] == texts[len(first) + 1] == ""


def test_a_control_token_in_a_draft_has_no_text() -> None:
    end = TOKENIZER.token_to_id("<|end|>")
    tokens = [*TOKENIZER.encode("one").ids, end, *TOKENIZER.encode("two").ids]
    pieces = [piece for step in narrated_steps(TOKENIZER, tokens) for piece in step.pieces]
    assert "".join(pieces).count("<|") == 0 and "" in pieces


def test_a_sentencepiece_tokenizers_spaces_are_not_doubled() -> None:
    core = Tokenizer(models.BPE(byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [f"<0x{byte:02X}>" for byte in range(256)]
    core.train_from_iterator(
        ["the cat sat on the mat"] * 9, trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    # A character that is not in the vocabulary, as its three bytes.
    snowman = [core.token_to_id(f"<0x{byte:02X}>") for byte in "☃".encode()]
    tokens = [*core.encode("the cat").ids, *snowman, *core.encode("sat on").ids]
    detokenizer = Detokenizer(lambda tokens_so_far: core.decode(tokens_so_far, skip_special_tokens=False))
    text = "".join([*detokenizer.feed(tokens), detokenizer.flush()])
    assert text == core.decode(tokens, skip_special_tokens=False) == "the cat☃ sat on"


def narrated_steps(tokenizer: Tokenizer, tokens: list[int], narrator: Narrator | None = None) -> list[Step]:
    """The narrated steps of a lane that prints `tokens` with drafts of random length."""
    rng = random.Random(1)
    # After a prompt of one token, the target's next token is that of `tokens` at the output's length.
    prompt = (0,)
    session = FunctionSession(prompt, lambda context: tokens[len(context) - 1])

    def propose(context: Sequence[int], _budget: int) -> TokenTree:
        position = len(context) - 1
        return TokenTree.chain(context[-1], tokens[position : position + rng.randint(0, 3)])

    lane = Lane("tested", ScriptedDrafter(propose), session, prompt, max_new_tokens=len(tokens), num_draft=4)
    narrator = narrator or Narrator(tokenizer)
    steps = []
    while not lane.end:
        step = narrator(lane.step())
        assert isinstance(step, Step)
        steps.append(step)
    assert lane.tokens == tokens
    return steps


@pytest.mark.parametrize("text", TEXTS)
def test_narrated_steps_have_a_text_for_each_token_and_a_piece_for_each_node(text: str) -> None:
    steps = narrated_steps(TOKENIZER, TOKENIZER.encode(text).ids)
    assert all(len(step.texts) == len(step.emitted) for step in steps)
    assert all(len(step.pieces) == len(step.tree) for step in steps)
    assert "".join(token_text for step in steps for token_text in step.texts) == text


def test_a_result_has_its_lanes_text_with_the_incomplete_last_character() -> None:
    tokens = TOKENIZER.encode("hm 👍").ids[:-1]
    narrator = Narrator(TOKENIZER)
    for name in ("first", "second"):
        for step in narrated_steps(TOKENIZER, tokens):
            narrator(replace(step, lane=name))
    # Of the results only the lanes' names matter.
    lanes = tuple(
        LaneResult(name, 1, 1, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, True, None, "length", 0) for name in ("first", "second")
    )
    finished = narrator(Finished(lanes))
    assert isinstance(finished, Finished)
    assert [lane.text for lane in finished.lanes] == ["hm \ufffd", "hm \ufffd"]
