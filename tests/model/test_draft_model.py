"""A model that drafts: its own continuation, its distributions, what it refuses, and the one that ships."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from specrace.cli.main import main
from specrace.core.errors import InputError
from specrace.core.events import Finished
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.generate import generate
from specrace.engine.spec import RaceSpec
from specrace.model.draft_model import GROWTH, DraftModel
from specrace.model.loading import load_draft_model, load_target
from specrace.model.replays import trace_forwards
from specrace.model.sampling import warp
from specrace.model.target import Target
from specrace.workbench import Workbench
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import (
    VOCAB,
    inputs,
    random_prompt,
    run_lane,
)

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)
RULES = {"greedy": SamplingParams(), "sampled": SamplingParams(0.8, top_p=0.9, seed=5)}


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
    """Drafts at every step, on another model's text, against forwards over the whole text."""
    target, small = tiny_target("llama"), tiny_target(name, seed=1)
    chance, drafted = random.Random(name), 0
    for _ in range(2):
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
            # A random part of the draft is kept, whatever the target's tokens are: the cache must follow.
            num_kept = chance.randint(0, tree.num_draft)
            session.keep(range(num_kept + 1))
            lane_context += [*tree.tokens[1 : num_kept + 1], scores.targets[num_kept]]
    assert drafted > 10


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
        assert tree.probs == (1.0, *(q[index, token] for index, token in enumerate(tree.tokens[1:])))
        seconds.setdefault(tree.tokens[1], []).append(tree.tokens[2])
        rows[tree.tokens[1]] = q[1]
    for first, row in rows.items():
        expected = warp(plain_row(small, [*PROMPT, first]), params).double().softmax(dim=-1)[0].numpy()
        assert row == pytest.approx(expected, abs=1e-5)
    first, drawn = max(seconds.items(), key=lambda pair: len(pair[1]))
    frequencies = np.bincount(drawn, minlength=VOCAB) / len(drawn)
    noise = np.sqrt(2 * rows[first] / np.pi / len(drawn)).sum() / 2
    assert np.abs(frequencies - rows[first]).sum() / 2 < 1.6 * noise + 0.01


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_text_is_vanillas_and_the_target_as_its_own_drafter_is_an_oracle(name: str) -> None:
    target, small = replayed(name), replayed("gpt2" if name == "llama" else "llama", seed=1)
    chance = random.Random(name)
    for params in RULES.values():
        prompt = random_prompt(chance)
        prefix, ends = target.prefill(prompt), frozenset[int]()
        vanilla = run_lane(
            target, prefix, prompt, METHODS["vanilla"].build(inputs(prompt)), params=params, eos_ids=ends
        )
        for model in (small, target):
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


def test_without_a_model_it_says_what_to_do(bundled: Workbench) -> None:
    workbench = bundled.with_model(ASSETS / "characters")
    with pytest.raises(InputError, match="--draft-model") as refused:
        next(iter(workbench.ask("Why?", RaceSpec(("draft-model",), max_new_tokens=8))))
    assert "\n" not in str(refused.value)


def test_another_vocabulary_is_refused(bundled: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"characters cannot draft for tiny: their vocabularies differ \(65 tokens"):
        load_draft_model(ASSETS / "characters", bundled.target)
    command = ["race", "Why?", "--lanes", "draft-model", "--draft-model"]
    assert main([*command, str(ASSETS / "characters")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("characters cannot draft for tiny")
    assert main([*command, "./nowhere"]) == 2
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
    """The target drafts for itself: the largest draft model there can be."""
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
    """Two layers predict most of what three do: on these questions it drafts more than any copying lane."""
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
