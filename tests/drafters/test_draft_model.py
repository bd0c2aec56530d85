"""A draft model's drafts: its own continuation, from a cache that follows what was kept; and what refuses to draft."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specrace.cli.main import main
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, DrafterInputs
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.race import generate, make_lane, race
from specrace.engine.spec import RaceSpec
from specrace.lab.score import ScoredLane, scorable_lanes
from specrace.model.draft_model import GROWTH, DraftModel
from specrace.model.loading import load_draft_model, load_target
from specrace.model.replays import trace_forwards
from specrace.model.sampling import warp
from specrace.model.target import Target
from specrace.views.frames import report
from specrace.workbench import Workbench
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import (
    VOCAB,
    CopyingModel,
    CopyingSession,
    PromptedCopyingModel,
    continuation,
    function_lane,
    inputs,
    markov,
    random_prompt,
    run_lane,
    step_verdict,
)

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)
RULES = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, top_p=0.9, seed=5)}


# The drafter.


def test_a_draft_and_the_rollback_by_hand() -> None:
    model = CopyingModel()
    drafter = DraftModelDrafter(inputs((5, 6, 7, 5), draft_model=model))
    session = model.sessions[0]
    assert session.tokens == [5, 6, 7] and session.readings == []
    tree = drafter.propose((5, 6, 7, 5), 3)
    assert tree == TokenTree((5, 6, 7, 5), (-1, 0, 1, 2), (1.0, 0.5, 0.5, 0.5))
    # The pending token and two draft tokens were read, the last one was not.
    assert session.readings == [[5], [6], [7]]
    drafter.observe(tree, step_verdict(tree, [6, 9, 0, 0]))
    # 6 was kept, 9 said instead of 7: the cache goes back to 5 6 7 5 6, and 9 alone is new to it.
    tree = drafter.propose((5, 6, 7, 5, 6, 9), 2)
    assert session.readings[3:] == [[9], [9]] and tree.tokens == (9, 9, 9)
    assert session.tokens == [5, 6, 7, 5, 6, 9, 9]
    # All accepted: neither the last draft token nor the bonus was read before.
    tree = drafter.propose((5, 6, 7, 5, 6, 9, 9, 9, 5), 1)
    assert session.readings[5:] == [[9, 5]] and tree.tokens == (5, 6)


def test_without_a_budget_nothing_is_read_and_later_all_of_it() -> None:
    model = CopyingModel()
    drafter = DraftModelDrafter(inputs((5, 6), draft_model=model))
    assert drafter.propose((5, 6), 0).tokens == (6,) and drafter.propose((5, 6, 7), -1).tokens == (7,)
    drafter.propose((5, 6, 7, 5), 1)
    assert model.sessions[0].readings == [[6, 7, 5]]


def test_the_cache_always_holds_the_text_and_the_draft() -> None:
    """On Markov texts, whatever was accepted: what is read is the context and the draft but its last token."""
    chance = random.Random(2)
    for seed in range(20):
        prompt, model = random_prompt(chance), CopyingModel()
        drafter = DraftModelDrafter(inputs(prompt, draft_model=model))
        lane = function_lane(prompt, drafter, markov(seed, vocab=6, order=1), num_draft=chance.randint(1, 6))
        while not lane.end:
            context = list(lane.context)
            tree = lane.step().tree
            if tree.num_draft:
                assert model.sessions[0].tokens == [*context, *tree.tokens[1:-1]]


@pytest.mark.parametrize("num_draft", [1, 3, 8])
@pytest.mark.parametrize("sampled", [False, True])
def test_nothing_is_drafted_past_the_answers_end(num_draft: int, sampled: bool) -> None:
    """Every draft token is a forward of the smaller model; one of the remaining tokens is the bonus."""
    for limit in range(1, 14):
        model = CopyingModel()
        drafter = DraftModelDrafter(inputs(PROMPT, draft_model=model, params=SamplingParams(1.0)), sampled=sampled)
        lane = function_lane(PROMPT, drafter, markov(3, vocab=6), max_new_tokens=limit, num_draft=num_draft)
        readings = model.sessions[0].readings
        while not lane.end:
            left, before = lane.remaining, len(readings)
            step = lane.step()
            assert len(readings) - before == step.tree.num_draft == min(num_draft, left - 1)
        assert lane.tokens == continuation(PROMPT, markov(3, vocab=6), limit)


@pytest.mark.parametrize("size", [4, 5, 6, 9])
def test_a_full_context_drafts_no_more(size: int) -> None:
    """The prompt leaves room for the pending token and size - 4 draft tokens that are read; one more is not."""
    model = CopyingModel(size)
    drafter = DraftModelDrafter(inputs((5, 6, 7, 5), draft_model=model))
    assert drafter.propose((5, 6, 7, 5), 8).num_draft == size - 3
    assert drafter.propose((5, 6, 7, *range(8, 8 + size)), 8).num_draft == 0


def test_without_a_model_it_says_what_to_do(bundled: Workbench) -> None:
    with pytest.raises(InputError, match="--draft-model"):
        DraftModelDrafter(inputs((5,), draft_model=None))
    workbench = bundled.with_model(ASSETS / "characters")
    with pytest.raises(InputError, match="--draft-model") as said:
        next(iter(workbench.ask("Why?", RaceSpec(("draft-model",), max_new_tokens=8))))
    assert "\n" not in str(said.value)


def test_its_time_is_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    # The wall's clock: who sleeps may wake up late, and never early.
    monkeypatch.setattr("specrace.core.clock.waited_ms", lambda: 0.0)

    class Slow(CopyingSession):
        def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
            time.sleep(0.004)
            return super().likeliest(tokens)

    class Prompted:
        prefill_ms = 0.0

        def session(self, *given: Any) -> CopyingSession:
            time.sleep(0.02)
            return Slow(PROMPT[:-1], 1 << 20)

    target = tiny_target("llama")
    spec = RaceSpec(("draft-model",), max_new_tokens=9, num_draft=3)
    inputs = DrafterInputs(PROMPT, VOCAB, draft_model=Prompted())
    lane = make_lane(target, "draft-model", target.prefill(PROMPT), inputs, spec)
    assert lane.at_ms >= 20
    while not lane.end:
        step = lane.step()
        assert step.timing.draft_ms >= 4 * step.tree.num_draft


def test_its_prefill_is_reported_and_on_no_clock() -> None:
    """As the target's: measured by its second run, apart from the lane's own time."""
    readings: list[int] = []

    class Reading(CopyingModel):
        def after(self, prompt: Sequence[int]) -> PromptedCopyingModel:
            readings.append(len(prompt))
            prompted = super().after(prompt)
            prompted.prefill_ms = 1e6 * len(readings)
            return prompted

    target = tiny_target("llama")
    target.drafting = Reading()  # type: ignore[assignment]
    events = list(race(target, PROMPT, RaceSpec(("trie", "draft-model"), max_new_tokens=4)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert [info.prefill_ms for info in started.lanes] == [0.0, 0.0, 2e6] and readings == [len(PROMPT)] * 2
    assert started.lanes[2].build_ms < 1e6 and finished.lanes[2].decode_ms < 1e6
    lanes = report(started, finished)["lanes"]
    assert [lane["draft_prefill_ms"] for lane in lanes] == [0.0, 0.0, 2e6]


def test_it_cannot_be_scored_and_says_why() -> None:
    assert "draft-model" not in scorable_lanes()
    with pytest.raises(InputError, match="second model"):
        ScoredLane.of("draft-model", {})


# The model's side.


def plain_row(target: Target, tokens: Sequence[int]) -> torch.Tensor:
    """Logits after `tokens` by one forward without a cache, [1, V]."""
    with torch.inference_mode():
        row: torch.Tensor = target.model(input_ids=torch.tensor([tokens])).logits[:, -1].float()
    return row


@cache
def replayed(name: str, seed: int = 0) -> Target:
    """A target whose forwards are replayed, which is quicker."""
    target = tiny_target(name, seed=seed)
    trace_forwards(target, packed=False)
    return target


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_drafts_are_the_models_greedy_continuation(name: str) -> None:
    """At every step of lanes on another model's text, against forwards over the whole text."""
    target, small = tiny_target("llama"), tiny_target(name, seed=1)
    chance, drafted = random.Random(name), 0
    for _ in range(4):
        prompt = random_prompt(chance)
        prefix = target.prefill(prompt)
        drafter = DraftModelDrafter(inputs(prompt, draft_model=DraftModel(small)))
        session = target.session(prefix, 40)
        lane_context = list(prompt)
        for _ in range(5):
            tree = drafter.propose(lane_context, chance.randint(0, 5))
            text = list(lane_context)
            for token, prob in zip(tree.tokens[1:], tree.probs[1:], strict=True):  # type: ignore[index]
                row = plain_row(small, text)
                assert token == int(row.argmax()) and prob == pytest.approx(float(row.softmax(-1).max()), abs=1e-4)
                text.append(token)
                drafted += 1
            scores = session.score(tree)
            # Some of the draft is kept, whatever the target thinks of it: the cache must follow.
            kept = chance.randint(0, tree.num_draft)
            session.keep(range(kept + 1))
            lane_context += [*tree.tokens[1 : kept + 1], scores.targets[kept]]
    assert drafted > 25


@pytest.mark.parametrize("params", [SamplingParams(0.7), SamplingParams(1.3, top_p=0.8, top_k=9)])
def test_q_is_the_warped_distribution_that_was_drawn_from(params: SamplingParams) -> None:
    small = tiny_target("qwen3", seed=1, initializer_range=0.2)
    trace_forwards(small, packed=False)
    seconds: dict[int, list[int]] = {}
    rows: dict[int, np.ndarray] = {}
    drafter = METHODS["draft-model"].build(inputs(PROMPT, params=params, draft_model=DraftModel(small)), sampled=True)
    for _ in range(800):
        tree = drafter.propose(PROMPT, 2)
        q = drafter.distributions()  # type: ignore[attr-defined]
        assert q.shape == (2, VOCAB) and q.sum(axis=1) == pytest.approx(1.0)
        assert tree.probs == (1.0, *(q[place, token] for place, token in enumerate(tree.tokens[1:])))
        seconds.setdefault(tree.tokens[1], []).append(tree.tokens[2])
        rows[tree.tokens[1]] = q[1]
    for first, row in rows.items():
        expected = warp(plain_row(small, [*PROMPT, first]), params).double().softmax(dim=-1)[0].numpy()
        assert row == pytest.approx(expected, abs=1e-5)
    first, drawn = max(seconds.items(), key=lambda pair: len(pair[1]))
    found = np.bincount(drawn, minlength=VOCAB) / len(drawn)
    noise = np.sqrt(2 * rows[first] / np.pi / len(drawn)).sum() / 2
    assert np.abs(found - rows[first]).sum() / 2 < 1.6 * noise + 0.01


@pytest.mark.parametrize("params", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_text_is_vanillas_and_the_target_as_its_own_drafter_is_an_oracle(name: str, params: SamplingParams) -> None:
    target, other = replayed(name), replayed("gpt2" if name == "llama" else "llama", seed=1)
    chance = random.Random(name)
    for _ in range(3):
        prompt = random_prompt(chance)
        prefix, ends = target.prefill(prompt), frozenset[int]()
        vanilla = run_lane(
            target, prefix, prompt, METHODS["vanilla"].build(inputs(prompt)), params=params, eos_ids=ends
        )
        for model in (other, target):
            drafter = DraftModelDrafter(inputs(prompt, draft_model=DraftModel(model)))
            lane = run_lane(target, prefix, prompt, drafter, params=params, num_draft=3, eos_ids=ends)
            assert lane.tokens == vanilla.tokens
            if model is target and not params.temperature:
                assert lane.num_steps == len(lane.tokens) / 4


def test_a_cache_that_is_full_grows() -> None:
    small = tiny_target("llama", seed=1, max_position_embeddings=2048)
    chance = random.Random(0)
    text = [chance.randrange(VOCAB) for _ in range(2 * GROWTH + 40)]
    session = DraftModel(small).after(text[:9]).session(SamplingParams())
    for start, end in ((8, GROWTH), (GROWTH, 2 * GROWTH), (2 * GROWTH, len(text))):
        token, _ = session.likeliest(text[start:end])
        assert token == int(plain_row(small, text[:end]).argmax())
    session.rewind(20)
    assert session.likeliest(text[20:30])[0] == int(plain_row(small, text[:30]).argmax())
    assert session.room == 2048 - 30


def test_a_prompt_that_the_small_model_cannot_hold() -> None:
    small = DraftModel(tiny_target("llama", max_position_embeddings=8))
    assert small.after(PROMPT).session(SamplingParams()).room == 1
    with pytest.raises(InputError, match="takes 8"):
        small.after((*PROMPT, 4))


@pytest.mark.parametrize("rows", [VOCAB - 4, VOCAB + 16])
def test_tables_padded_to_another_size(rows: int) -> None:
    """A table that is shorter or longer by rows that no token uses: q has the target's width."""
    small = DraftModel(tiny_target("llama", vocab_size=rows), VOCAB)
    session = small.after((2, 3, 4)).session(SamplingParams(1.0))
    row = session.distribution((4, VOCAB - 1))
    assert row.shape == (VOCAB,) and row.sum() == pytest.approx(1.0)
    assert (row[rows:] == 0).all() and (row[: min(rows, VOCAB)] > 0).all()
    assert session.likeliest((3,))[0] < VOCAB


def test_another_vocabulary_is_refused(bundled: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"characters cannot draft for tiny: their vocabularies differ \(65 tokens"):
        load_draft_model(ASSETS / "characters", bundled.target)
    given = ["race", "Why?", "--lanes", "draft-model", "--draft-model"]
    assert main([*given, str(ASSETS / "characters")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("characters cannot draft for tiny")
    assert main([*given, "./nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_same_words_under_other_numbers_are_refused(bundled: Workbench, tmp_path: Path) -> None:
    target = bundled.target
    folder = tmp_path / "swapped"
    tiny_model("llama", vocab_size=target.vocab_size).save_pretrained(folder)
    for file in ("tokenizer_config.json", "tokenizer.json"):
        text = (ASSETS / "tiny" / file).read_text(encoding="utf-8")
        # Two words change places.
        text = text.replace('"Ġthe":', '"@@@@":').replace('"Ġof":', '"Ġthe":').replace('"@@@@":', '"Ġof":')
        (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"for instance 'Ġ(the|of)'"):
        load_draft_model(folder, target)


def test_a_model_drafts_for_a_target_that_was_loaded_with_it() -> None:
    """The target itself, as the largest smaller model there is."""
    target = load_target(draft_model=ASSETS / "tiny")
    prompt = target.tokenizer("<|ctx|> [1] Owls: Owls hunt at night.<|q|> When do owls hunt?<|a|>")["input_ids"]
    steps = list(generate(target, "draft-model", prompt, max_new_tokens=20, num_draft=4))
    vanilla = list(generate(target, "vanilla", prompt, max_new_tokens=20))
    assert [t for step in steps for t in step.emitted] == [t for step in vanilla for t in step.emitted]
    assert all(step.verdict.accepted == step.tree.num_draft for step in steps[:-1])


# The model that ships.


def test_the_bundled_drafter_is_small_and_of_the_targets_vocabulary(bundled: Workbench) -> None:
    assert sum(file.stat().st_size for file in (ASSETS / "tiny-draft").iterdir()) < 6_500_000
    assert (ASSETS / "tiny-draft" / "model.safetensors").stat().st_size < 6_000_000
    target, drafting = bundled.target, load_target(ASSETS / "tiny-draft", graphs=False)
    assert drafting.tokenizer.get_vocab() == target.tokenizer.get_vocab()
    text = "<|ctx|> [1] Owls: Owls hunt at night [1], 3.5 times.<|x|><|q|> Why?<|a|>"
    assert drafting.tokenizer(text)["input_ids"] == target.tokenizer(text)["input_ids"]


def test_the_bundled_drafter_drafts_well(bundled: Workbench) -> None:
    """Two layers say most of what three say: on these questions it drafts more of the answer than any copying lane."""
    tokens = steps = 0
    for question in ("Why does bread rise?", "What causes the tides?", "How far away is the Moon?"):
        *_, finished = bundled.ask(question, RaceSpec(("draft-model",), max_new_tokens=48, num_draft=5), top=2)
        assert isinstance(finished, Finished) and finished.lanes[1].identical
        tokens, steps = tokens + finished.lanes[1].tokens, steps + finished.lanes[1].steps
    assert tokens / steps > 3.5


def test_the_bundled_drafter_races_by_rejection_too(bundled: Workbench) -> None:
    spec = RaceSpec(("draft-model",), 40, 4, temperature=0.8, verifier="rejection")
    *_, finished = bundled.ask("Why does bread rise?", spec, top=1)
    assert isinstance(finished, Finished)
    assert finished.lanes[1].note and finished.lanes[1].acceptance_rate > 0.5
