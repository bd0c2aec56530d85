"""Detokenising token by token: the shares joined are the whole text, and no share breaks a character."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from specrace.core.events import Finished, LaneResult, Step
from specrace.core.tree import TokenTree
from specrace.engine.lane import Lane
from specrace.views.detokenize import Detokenizer, Narrator
from tests.parts import FunctionSession, Scripted, continuation

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
    text: str = TOKENIZER.decode(tokens, skip_special_tokens=True)
    return text


def shares(tokens: list[int]) -> list[str]:
    """Each token's share of the text, and what `flush` had held back."""
    lane = Detokenizer(decode)
    return [*lane.feed(tokens), lane.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_shares_make_the_text_whatever_its_characters(text: str) -> None:
    tokens = TOKENIZER.encode(text).ids
    assert len(tokens) > len(text) or text == TEXTS[0]
    text_shares = shares(tokens)
    assert "".join(text_shares) == text == decode(tokens)
    assert text_shares[-1] == "" or text.endswith("\ufffd")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.lists(st.integers(1, 7), max_size=20))
def test_shares_make_the_text_however_it_is_fed(text: str, sizes: list[int]) -> None:
    tokens = TOKENIZER.encode(text).ids
    lane, text_shares = Detokenizer(decode), []
    for size in (*sizes, len(tokens)):
        text_shares += lane.feed(tokens[:size])
        tokens = tokens[size:]
    assert "".join([*text_shares, lane.flush()]) == text


@given(st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40))
def test_shares_make_what_any_tokens_decode_to(tokens: list[int]) -> None:
    """This includes tokens that together are not UTF-8, which a model with random weights writes."""
    assert "".join(shares(tokens)) == decode(tokens)


@pytest.mark.parametrize("character", ["é", "你", "👍", "🏽"])
def test_a_character_comes_with_the_token_that_completes_it(character: str) -> None:
    tokens = TOKENIZER.encode(character).ids
    assert len(tokens) > 1
    assert shares(tokens) == [*[""] * (len(tokens) - 1), character, ""]


def test_an_unfinished_character_is_held_back_and_shown_at_the_end() -> None:
    tokens = TOKENIZER.encode("ok 👍").ids[:-1]
    lane = Detokenizer(decode)
    assert "".join(lane.feed(tokens)) == "ok "
    assert lane.flush() == "\ufffd"
    assert lane.flush() == ""


def test_special_tokens_print_nothing_and_hold_nothing_back() -> None:
    end = TOKENIZER.token_to_id("<|end|>")
    first, second = TOKENIZER.encode("one").ids, TOKENIZER.encode("two").ids
    text_shares = Detokenizer(decode).feed([*first, end, end, *second])
    assert "".join(text_shares) == "onetwo"
    assert text_shares[len(first)] == text_shares[len(first) + 1] == ""


def test_a_control_token_in_a_draft_has_no_text() -> None:
    end = TOKENIZER.token_to_id("<|end|>")
    tokens = [*TOKENIZER.encode("one").ids, end, *TOKENIZER.encode("two").ids]
    pieces = [piece for step in narrate(TOKENIZER, tokens) for piece in step.pieces]
    assert "".join(pieces).count("<|") == 0 and "" in pieces


def test_sentencepiece_spaces_come_out_once() -> None:
    core = Tokenizer(models.BPE(byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = [f"<0x{byte:02X}>" for byte in range(256)]
    core.train_from_iterator(
        ["the cat sat on the mat"] * 9, trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    snowman = [core.token_to_id(f"<0x{byte:02X}>") for byte in "☃".encode()]
    tokens = [*core.encode("the cat").ids, *snowman, *core.encode("sat on").ids]
    lane = Detokenizer(lambda tokens_so_far: core.decode(tokens_so_far, skip_special_tokens=False))
    assert (
        "".join([*lane.feed(tokens), lane.flush()])
        == core.decode(tokens, skip_special_tokens=False)
        == "the cat☃ sat on"
    )


def narrate(tokenizer: Tokenizer, tokens: list[int], end: bool = True) -> list[Step]:
    """The narrated steps of a lane that prints `tokens` with drafts of changing length."""
    chance = random.Random(1)
    prompt = (0,)
    session = FunctionSession(prompt, lambda context: tokens[min(len(context) - 1, len(tokens) - 1)])

    def propose(context: Sequence[int], _budget: int) -> TokenTree:
        done = len(context) - 1
        return TokenTree.chain(context[-1], tokens[done : done + chance.randint(0, 3)])

    lane = Lane("tested", Scripted(propose), session, prompt, max_new_tokens=len(tokens) + (not end), num_draft=4)
    narrator, steps = Narrator(tokenizer), []
    while len(lane.tokens) < len(tokens):
        step = narrator(lane.step())
        assert isinstance(step, Step)
        steps.append(step)
    assert lane.tokens[: len(tokens)] == tokens == continuation(prompt, session.next_token, len(tokens))
    return steps


@pytest.mark.parametrize("text", TEXTS)
def test_a_narrated_lane_has_a_text_an_emitted_token_and_a_piece_a_node(text: str) -> None:
    steps = narrate(TOKENIZER, TOKENIZER.encode(text).ids)
    assert all(len(step.texts) == len(step.emitted) for step in steps)
    assert all(len(step.pieces) == len(step.tree) for step in steps)
    assert "".join(text_share for step in steps for text_share in step.texts) == text


def test_the_end_flushes_and_lanes_do_not_mix() -> None:
    tokens = TOKENIZER.encode("hm 👍").ids[:-1]
    narrator = Narrator(TOKENIZER)
    for name in ("first", "second"):
        for step in narrate(TOKENIZER, tokens):
            narrator(Step(name, *(getattr(step, field) for field in list(Step.__dataclass_fields__)[1:])))
    lanes = tuple(
        LaneResult(name, 1, 1, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, True, None, "length", 0) for name in ("first", "second")
    )
    finished = narrator(Finished(lanes))
    assert isinstance(finished, Finished)
    assert [lane.text for lane in finished.lanes] == ["hm \ufffd", "hm \ufffd"]
