"""Copies by hidden states: a draft copies what followed where an earlier hidden state was most similar to the last one.

The places from which it copies are those of a plain recomputation, and a copy never changes a text.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Finished
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model.state_copies import CopyRates, Place, StateCopiesSession
from specrace.model.target import Target
from tests.heads.test_sessions import WAYS
from tests.models import COMPILABLE, tiny_model
from tests.parts import VOCAB, random_prompt, random_tree

# How many places a step copies from.
NUM_PLACES = 8


def target_of(layers: int = 3, **changes: Any) -> Target:
    return Target(tiny_model("llama", num_hidden_layers=layers, **changes), name="llama")


def open_session(target: Target, prompt: Sequence[int], room: int = 4) -> tuple[StateCopiesSession, Any]:
    """A session of copies after a prompt, and the target's session, which gives it the states of committed tokens."""
    head = target.state_copies()
    copies = head.after(prompt, target.prefill(prompt, head.levels)).session(SamplingParams(), room)
    return copies, target.session(target.prefill(prompt), 80, head_session=copies)


def plain_places(target: Target, text: Sequence[int]) -> list[tuple[int, float, bool]]:
    """The best places of a text whose last token is pending, best first, by a forward over the whole text.

    A place: (index of its state, similarity to the last state, whether the pending token follows there, too). Places
    that the pending token follows come first.
    """
    with torch.no_grad():
        states = target.model(input_ids=torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
    rows = states[target.num_layers // 2][0]
    similar = cosine_similarity(rows[:-1], rows[-1:], dim=-1).tolist()
    places = [(index, value, text[index + 1] == text[-1]) for index, value in enumerate(similar)]
    return sorted(places, key=lambda place: (not place[2], -place[1]))[:NUM_PLACES]


def plain_copy(text: Sequence[int], index: int, count: int) -> list[int]:
    """The first `count` tokens of a copy; one that reaches the text's end continues with its own tokens."""
    copied = list(text)
    for step in range(count):
        copied.append(copied[index + 2 + step])
    return copied[len(text) :]


def test_places_and_copies_are_those_of_a_plain_recomputation() -> None:
    """Checked over steps with random accepted paths, some without a draft, with more tokens than room, on two texts."""
    target = target_of(**COMPILABLE)
    for seed in range(2):
        rng = random.Random(seed)
        text = [5, *random_prompt(rng, 12), 6]
        copies, lane = open_session(target, text)
        for step in range(7):
            copies.begin(text[-1])
            if step % 3 != 1:
                paths: list[tuple[int, ...]] = [()]
                for _ in range(3):
                    following = copies.likeliest(paths, NUM_PLACES)
                    expected = plain_places(target, text)
                    assert copies.nearest is not None
                    assert copies.nearest == (expected[0][0], pytest.approx(expected[0][1], abs=1e-4), expected[0][2])
                    for path, guesses in zip(paths, following, strict=True):
                        drafts = [plain_copy(text, index, len(path) + 1) for index, _, _ in expected]
                        tokens = {draft[-1] for draft in drafts if draft[:-1] == list(path)}
                        assert {token for token, _ in guesses} == tokens
                        assert sum(prob for _, prob in guesses) < 1.0
                        assert list(guesses) == sorted(guesses, key=lambda guess: -guess[1])
                    paths = [
                        (*path, token) for path, guesses in zip(paths, following, strict=True) for token, _ in guesses
                    ]
                    for path in paths:
                        position = copies.position(path)
                        assert 1 < position < len(text) and text[position] == path[-1]
            tree = random_tree(rng, text[-1], 5)
            lane.score(tree)
            accepted = tree.path_to(rng.randrange(len(tree)))
            lane.keep(accepted)
            text += [tree.tokens[node] for node in accepted[1:]] + [rng.choice(text)]
    assert copies.position((VOCAB + 1,)) == -1


def test_a_text_without_another_place_has_no_copy() -> None:
    copies, lane = open_session(target_of(), [4])
    for tokens, guesses in (((4,), 0), ((9,), 0), ((9,), 1)):
        copies.begin(tokens[0])
        assert len(copies.likeliest([()], 3)[0]) == guesses
        lane.score(TokenTree.chain(tokens[0]))
        lane.keep((0,))
    # The context of the small models has 512 tokens.
    assert copies.room == 512 - 3


def test_a_prompt_that_was_read_without_the_level_is_refused() -> None:
    target = target_of()
    with pytest.raises(InputError, match="read without the hidden states"):
        target.state_copies().after([3, 4, 5], target.prefill([3, 4, 5]))


def test_rates_are_learned_by_similarity_and_by_what_follows() -> None:
    # A rate is the share of copied tokens that come true. At first it is the similarity squared, a tenth of that where
    # another token than the pending one follows, and 0.8 for a copy's later tokens; this counts like four observations.
    rates = CopyRates()
    near, far, other = Place(3, 0.9, True), Place(3, 0.3, True), Place(3, 0.9, False)
    assert rates.rate(near, later=False) == pytest.approx(0.81) and rates.rate(near, later=True) == 0.8
    assert rates.rate(other, later=False) == pytest.approx(0.081)
    for _ in range(6):
        rates.record(near, later=False, held=False)
        rates.record(other, later=False, held=True)
    assert rates.rate(near, later=False) == pytest.approx(4 * 0.81 / 10)
    assert rates.rate(other, later=False) == pytest.approx((4 * 0.081 + 6) / 10)
    assert rates.rate(far, later=False) == pytest.approx(0.09) and rates.rate(near, later=True) == 0.8
    assert rates.rate(Place(0, -0.5, True), later=False) == 0.0


def test_a_copy_counts_up_to_its_first_wrong_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens of the copy come true and the third does not, so nothing is known of the fourth."""
    text = [1, 2, 3, 4, 5, 1]
    copies, lane = open_session(target_of(), text)
    recorded: list[tuple[bool, bool]] = []
    monkeypatch.setattr(CopyRates, "record", lambda *_, later, held: recorded.append((later, held)))
    copies.begin(1)
    copies.likeliest([()], 1)
    place = copies.nearest
    assert place is not None
    copied = plain_copy(text, place[0], 2)
    lane.score(TokenTree.chain(1, copied))
    lane.keep((0, 1, 2))
    # The pending token is one that no copy can have.
    copies.begin(VOCAB + 5)
    assert recorded == [(False, True), (True, True), (True, False)]
    # Nothing was asked for in this step, so nothing is counted.
    lane.score(TokenTree.chain(2))
    lane.keep((0,))
    copies.begin(3)
    assert len(recorded) == 3


@pytest.mark.parametrize("shift", [0, 1])
def test_states_that_are_shifted_by_one_lose_acceptance(shift: int) -> None:
    """In a text with 5 3 9 and 7 3 11, the state before 3 tells which of the two comes next."""
    # With one layer, the middle level is that of the embeddings.
    target = target_of(1)
    head, rng, num_right = target.state_copies(), random.Random(1), 0
    blocks = [rng.choice([(5, 3, 9), (7, 3, 11)]) for _ in range(30)]
    for size in range(10, 30):
        text = [token for block in blocks[:size] for token in block]
        prompted = head.after(text[:-1], target.prefill(text[:-1], head.levels))
        prompted.states = prompted.states.roll(shift, 0)
        copies = prompted.session(SamplingParams(), 1)
        copies.begin(text[-2])
        num_right += copies.likeliest([()], 1)[0][0][0] == text[-1]
    # Of 20 texts; guessing which block comes next is right in half of them.
    assert num_right < 16 if shift else num_right == 20


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("way", WAYS)
def test_copies_change_no_text(way: str, temperature: float) -> None:
    target = target_of(**COMPILABLE)
    WAYS[way](target)
    spec = RaceSpec(("states",), 24, temperature=temperature, seed=4)
    *_, finished = race(target, (3, 4, 5, 6) * 4, spec)
    assert isinstance(finished, Finished)
    # Lane 0 is vanilla.
    assert finished.lanes[1].lane == "states" and finished.lanes[1].identical


def test_a_copied_token_says_from_where() -> None:
    """A random model repeats itself at times, which copies follow."""
    target = target_of()
    target.eos_ids = frozenset()
    prompt = (3, 4, 5, 6)
    # A step over 99 rows takes no longer than one over a single row, so it pays to draft.
    curve = CostCurve((1, 99), (1.0, 1.0))
    steps = list(generate(target, "states", prompt, max_new_tokens=80, curve=curve))
    text = list(prompt)
    copied = 0
    for step in steps:
        assert step.tree.positions is not None
        for node in step.verdict.path[1:]:
            position = step.tree.positions[node]
            assert 0 < position < len(text) and text[position] == step.tree.tokens[node]
            copied += 1
        text += step.emitted
    assert copied > 5
