"""Draft models: their drafts and distributions, what is refused, and the bundled draft model.

`after(text)` reads a text but its last token, and a session continues from there. q is the distribution that a draft
token is drawn from; a warped distribution is that after temperature, top-k and top-p.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from specrace.cli.main import main
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started, Step
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.drafters.draft_model import DraftModelDrafter
from specrace.engine.race import race
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.model.capture import capture_replay
from specrace.model.draft_model import GROWTH, DraftModel
from specrace.model.loading import load_draft_model, load_target
from specrace.model.sampling import warp
from specrace.model.target import Target
from specrace.model.weights.source import find_source
from specrace.workbench import Workbench
from tests.model.forward.test_states import make_target
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import (
    VOCAB,
    inputs,
    random_prompt,
    run_lane,
)

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PROMPT = (2, 3, 4, 2, 3, 5, 2, 3)
PARAMS = (SamplingParams(), SamplingParams(0.8, top_p=0.9, seed=5))


def plain_row(target: Target, tokens: Sequence[int]) -> torch.Tensor:
    """Logits after `tokens` by one forward without a cache, [1, V]."""
    with torch.inference_mode():
        row: torch.Tensor = target.model(input_ids=torch.tensor([tokens])).logits[:, -1].float()
    return row


@cache
def replayed_target(name: str, seed: int = 0) -> Target:
    """A target with replayed forwards, which are faster."""
    target = tiny_target(name, seed=seed)
    capture_replay(target, packed=False)
    return target


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_drafts_are_the_models_greedy_continuation(name: str) -> None:
    """Compares drafts on another model's text with forwards over the whole text."""
    target, small = tiny_target("llama"), tiny_target(name, seed=1)
    rng, num_drafted = random.Random(name), 0
    for _ in range(2):
        prompt = random_prompt(rng)
        prefix = target.prefill(prompt)
        drafter = DraftModelDrafter(inputs(prompt, draft_model=DraftModel(small)))
        session = target.session(prefix, 40)
        lane_context = list(prompt)
        for _ in range(5):
            tree = drafter.propose(lane_context, rng.randint(0, 5))
            text = list(lane_context)
            for token, prob in zip(tree.tokens[1:], tree.probs[1:], strict=True):  # type: ignore[index]
                row = plain_row(small, text)
                assert token == int(row.argmax()) and prob == pytest.approx(float(row.softmax(-1).max()), abs=1e-4)
                text.append(token)
                num_drafted += 1
            scores = session.score(tree)
            # Commit a random part of the draft, whatever the target's tokens: the draft model must rewind its cache.
            num_kept = rng.randint(0, tree.num_draft)
            session.keep(range(num_kept + 1))
            lane_context += [*tree.tokens[1 : num_kept + 1], scores.targets[num_kept]]
    assert num_drafted > 10, "the test compared enough drafts"


@pytest.mark.parametrize("params", [SamplingParams(0.7), SamplingParams(1.3, top_p=0.8, top_k=9)])
def test_q_is_the_warped_distribution_that_drafts_are_drawn_from(params: SamplingParams) -> None:
    small = tiny_target("qwen3", seed=1, initializer_range=0.2)
    capture_replay(small, packed=False)
    second_tokens: dict[int, list[int]] = {}
    second_distributions: dict[int, np.ndarray] = {}
    drafter = METHODS["draft-model"].build(inputs(PROMPT, params=params, draft_model=DraftModel(small)), sampled=True)
    for _ in range(200):
        tree = drafter.propose(PROMPT, 2)
        q = drafter.distributions()  # type: ignore[attr-defined]
        assert q.shape == (2, VOCAB) and q.sum(axis=1) == pytest.approx(1.0)
        assert tree.probs == (1.0, *(q[index, token] for index, token in enumerate(tree.tokens[1:])))
        second_tokens.setdefault(tree.tokens[1], []).append(tree.tokens[2])
        second_distributions[tree.tokens[1]] = q[1]
    for first, row in second_distributions.items():
        expected = warp(plain_row(small, [*PROMPT, first]), params).double().softmax(dim=-1)[0].numpy()
        assert row == pytest.approx(expected, abs=1e-5)
    first, drawn = max(second_tokens.items(), key=lambda pair: len(pair[1]))
    frequencies = np.bincount(drawn, minlength=VOCAB) / len(drawn)
    expected = second_distributions[first]
    # About the mean distance between a distribution and the frequencies of `len(drawn)` draws from it. Chance makes the
    # distance larger, but hardly 1.6 times as large.
    typical_distance = np.sqrt(2 * expected / np.pi / len(drawn)).sum() / 2
    assert np.abs(frequencies - expected).sum() / 2 < 1.6 * typical_distance + 0.01


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_lanes_print_vanillas_text_and_accept_every_draft_of_the_target_itself(name: str) -> None:
    target, small = replayed_target(name), replayed_target("gpt2" if name == "llama" else "llama", seed=1)
    rng = random.Random(name)
    for params in PARAMS:
        prompt = random_prompt(rng)
        prefix, no_end = target.prefill(prompt), frozenset[int]()
        vanilla = run_lane(
            target, prefix, prompt, METHODS["vanilla"].build(inputs(prompt)), params=params, eos_ids=no_end
        )
        for model in (small, target):
            drafter = DraftModelDrafter(inputs(prompt, draft_model=DraftModel(model)))
            lane = run_lane(target, prefix, prompt, drafter, params=params, num_draft=3, eos_ids=no_end)
            assert lane.tokens == vanilla.tokens
            if model is target and not params.temperature:
                # Each step emits the three drafted tokens and the bonus token.
                assert lane.num_steps == len(lane.tokens) / 4


# The tree below the root 9: 4 and 5, then 6 after both, and 7 beside the second 6.
TREE = TokenTree((9, 4, 5, 6, 6, 7), (-1, 0, 0, 1, 2, 2))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_looking_at_a_tree_sees_each_path_alone_and_reads_only_the_text(name: str) -> None:
    small, text = tiny_target(name, seed=1), [2, 3]
    params = SamplingParams(0.7, top_k=9)
    session = DraftModel(small).after((*text, 4)).session(params, 40)
    for unread in ([4], [8, 3, 5], []):
        room = session.room
        nodes = (0, 3, 5)
        likeliest = session.tree_likeliest(unread, TREE, nodes, 3)
        text += unread
        assert session.room == room - len(unread)
        rows = session.tree_distributions((), TREE, nodes)
        for node, row, best in zip(nodes, rows, likeliest, strict=True):
            plain = plain_row(small, [*text, *(TREE.tokens[ancestor] for ancestor in TREE.path_to(node))])
            expected = plain.softmax(-1)[0].topk(3)
            assert [token for token, _ in best] == expected.indices.tolist()
            assert [prob for _, prob in best] == pytest.approx(expected.values.tolist(), abs=1e-4)
            assert row == pytest.approx(warp(plain, params).double().softmax(-1)[0].numpy(), abs=1e-4)
    # What was looked at is not in the cache: the next token is read after the text alone.
    assert session.likeliest([7])[0] == int(plain_row(small, [*text, 7]).argmax())


def test_looking_at_a_tree_grows_a_full_cache() -> None:
    small = tiny_target("llama", seed=1, max_position_embeddings=2048)
    rng = random.Random(0)
    text = [rng.randrange(VOCAB) for _ in range(GROWTH + 40)]
    session = DraftModel(small).after(text[:9]).session(SamplingParams())
    ((best,),) = session.tree_likeliest(text[8:], TREE, [5], 1)
    assert best[0] == int(plain_row(small, [*text, 9, 5, 7]).argmax())


def test_a_draft_model_whose_layers_keep_a_state_drafts_one_branch_only() -> None:
    # A model with convolutions, whose states must be returned to after a rejection.
    small = DraftModel(make_target("lfm2"))
    session = small.after((5, 6, 7)).session(SamplingParams())
    chain = TokenTree.chain(8, [9])
    ((best,),) = session.tree_likeliest((7,), chain, [1], 1)
    expected = small.model.plain_logits([5, 6, 7, 8, 9])[-1]
    assert best[0] == int(expected.argmax())
    assert session.tree_likeliest((), chain, [1], 1) == [[(best[0], pytest.approx(best[1], abs=1e-5))]]
    with pytest.raises(InputError, match=r"keep a state, which follows one branch only; .*specinfer\.width=1"):
        session.tree_likeliest((), TREE, [5], 1)


def test_a_long_draft_of_a_draft_model_whose_layers_keep_a_state_is_taken_back() -> None:
    session = DraftModel(make_target("lfm2")).after((5, 6, 7)).session(SamplingParams())
    # A session begins with all tokens of the text but the last.
    session.likeliest((7,))
    first = session.likeliest((0,))
    for token in range(1, 100):
        session.likeliest((token,))
    session.rewind(3)
    assert session.likeliest((0,)) == (first[0], pytest.approx(first[1], abs=1e-5))


def test_two_draft_models_are_loaded_and_read_the_prompt_and_the_target_accepts_its_own_drafts() -> None:
    """The first draft model is the target itself; the lane draft-model drafts with it alone."""
    target = load_target(draft_model=[ASSETS / "tiny", ASSETS / "tiny-draft"])
    assert [model.model.name for model in target.draft_models()] == ["tiny", "tiny-draft"]
    prompt = target.tokenizer("<|ctx|> [1] Owls: Owls hunt at night.<|q|> When do owls hunt?<|a|>")["input_ids"]
    spec = RaceSpec(("vanilla", "specinfer:models=1", "specinfer:models=2", "draft-model"), max_new_tokens=12)
    started, *steps, finished = race(target, prompt, spec)
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert all(lane.identical for lane in finished.lanes)
    one_model_ms, two_models_ms = (info.prefill_ms for info in started.lanes[1:3])
    assert two_models_ms > one_model_ms > 0
    notes = [step.note for step in steps if isinstance(step, Step) and step.note is not None]
    assert any(re.search(r"tiny \d+%, tiny-draft", row.label) for note in notes for row in note.rows)
    own_drafts = [step for step in steps if isinstance(step, Step) and step.lane == "draft-model"]
    assert len(own_drafts) > 1 and all(step.accepted == step.num_draft > 0 for step in own_drafts[:-1])


def test_a_full_cache_grows() -> None:
    small = tiny_target("llama", seed=1, max_position_embeddings=2048)
    rng = random.Random(0)
    text = [rng.randrange(VOCAB) for _ in range(2 * GROWTH + 40)]
    session = DraftModel(small).after(text[:9]).session(SamplingParams())
    # The second call adds more tokens than the cache has room for.
    for start, end in ((8, GROWTH), (GROWTH, 2 * GROWTH), (2 * GROWTH, len(text))):
        token, _ = session.likeliest(text[start:end])
        assert token == int(plain_row(small, text[:end]).argmax())
    session.rewind(20)
    assert session.likeliest(text[20:30])[0] == int(plain_row(small, text[:30]).argmax())
    assert session.room == 2048 - 30


def test_a_prompt_longer_than_the_draft_models_context_is_refused() -> None:
    small = DraftModel(tiny_target("llama", max_position_embeddings=8))
    assert small.after(PROMPT).session(SamplingParams()).room == 1
    with pytest.raises(InputError, match="takes 8"):
        small.after((*PROMPT, 4))


@pytest.mark.parametrize("rows", [VOCAB - 4, VOCAB + 16])
def test_an_embedding_padded_to_another_size_still_drafts(rows: int) -> None:
    """The draft model's embedding has fewer or more rows than the target's; q has the target's size."""
    small = DraftModel(tiny_target("llama", vocab_size=rows), VOCAB)
    session = small.after((2, 3, 4)).session(SamplingParams(1.0))
    row = session.distribution((4, VOCAB - 1))
    assert row.shape == (VOCAB,) and row.sum() == pytest.approx(1.0)
    assert (row[rows:] == 0).all() and (row[: min(rows, VOCAB)] > 0).all()
    assert session.likeliest((3,))[0] < VOCAB


def test_a_race_without_a_draft_model_is_refused_with_a_hint(bundled: Workbench) -> None:
    workbench = bundled.with_model(ASSETS / "characters")
    with pytest.raises(InputError, match="--draft-model") as refused:
        next(iter(workbench.ask(RaceRequest("Why?", RaceSpec(("draft-model",), max_new_tokens=8)))))
    assert "\n" not in str(refused.value)


def test_a_draft_model_with_another_vocabulary_is_refused(
    bundled: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"characters cannot draft for tiny: their vocabularies differ \(65 tokens"):
        load_draft_model(find_source(ASSETS / "characters"), bundled.target)
    command = ["race", "Why?", "--lanes", "draft-model", "--draft-model"]
    assert main([*command, str(ASSETS / "characters")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("characters cannot draft for tiny")
    assert main([*command, "./nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_draft_model_with_the_same_tokens_under_other_ids_is_refused(bundled: Workbench, tmp_path: Path) -> None:
    target = bundled.target
    folder = tmp_path / "swapped"
    tiny_model("llama", vocab_size=target.vocab_size).save_pretrained(folder)
    for file in ("tokenizer_config.json", "tokenizer.json"):
        text = (ASSETS / "tiny" / file).read_text(encoding="utf-8")
        # Swap the ids of two tokens.
        text = text.replace('"Ġthe":', '"@@@@":').replace('"Ġof":', '"Ġthe":').replace('"@@@@":', '"Ġof":')
        (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"for instance 'Ġ(the|of)'"):
        load_draft_model(find_source(folder), target)


# The bundled draft model.


def test_the_bundled_draft_model_is_small_and_has_the_targets_vocabulary(bundled: Workbench) -> None:
    # It is part of the package; 2.9 million parameters in 16 bits are 5.8 MB.
    assert sum(file.stat().st_size for file in (ASSETS / "tiny-draft").iterdir()) < 6_500_000
    assert (ASSETS / "tiny-draft" / "model.safetensors").stat().st_size < 6_000_000
    target, drafting = bundled.target, load_target(ASSETS / "tiny-draft", graphs=False)
    assert drafting.tokenizer.get_vocab() == target.tokenizer.get_vocab()
    text = "<|ctx|> [1] Owls: Owls hunt at night [1], 3.5 times.<|x|><|q|> Why?<|a|>"
    assert drafting.tokenizer(text)["input_ids"] == target.tokenizer(text)["input_ids"]


def test_the_bundled_draft_model_gives_more_than_three_and_a_half_tokens_per_step(bundled: Workbench) -> None:
    tokens = steps = 0
    for question in ("Why does bread rise?", "What causes the tides?"):
        spec = RaceSpec(("draft-model",), max_new_tokens=32, num_draft=5)
        *_, finished = bundled.ask(RaceRequest(question, spec, passages=2))
        assert isinstance(finished, Finished) and finished.lanes[1].identical
        # Lane 0 is vanilla.
        tokens, steps = tokens + finished.lanes[1].tokens, steps + finished.lanes[1].steps
    assert tokens / steps > 3.5


def test_the_bundled_draft_model_races_with_rejection_sampling(bundled: Workbench) -> None:
    spec = RaceSpec(("draft-model",), max_new_tokens=40, num_draft=4, temperature=0.8, verifier="rejection")
    *_, finished = bundled.ask(RaceRequest("Why does bread rise?", spec, passages=1))
    assert isinstance(finished, Finished)
    # Lane 0 is vanilla.
    assert finished.lanes[1].note and finished.lanes[1].acceptance_rate > 0.5
