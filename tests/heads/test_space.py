"""Masks see what they should in every way of running a model (`WAYS`), never become tokens, and change no text.

Masks are extra rows of a forward, at which the target itself guesses the tokens to come: the head of the lane space.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import head_lanes
from specrace.drafters.base import DrafterInputs
from specrace.drafters.trained.space import SpaceDrafter
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.heads.layouts import build_head
from specrace.heads.loading import attach_heads, read_head
from specrace.heads.modules.batch import collate
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.space import Space
from specrace.heads.space import SpaceHead, SpaceSession
from specrace.model.forward.masked import Masks
from specrace.model.forward.tree_inputs import TreeInputs
from specrace.model.sampling import Sampler
from specrace.model.target import Target
from specrace.model.transcript_target import ScriptedTarget
from tests.heads import folders
from tests.heads.test_bad_heads import assert_refused
from tests.model.forward.test_tapped import WAYS, RecordingReplay
from tests.models import tiny_model
from tests.parts import VOCAB, random_prompt, random_tree

PROMPT = (3, 4, 5, 6, 3, 4)


def space_head(target: Target, folder: Path, masks: int = 3) -> SpaceHead:
    """A head of random masks, written to `folder`."""
    head = build_head(read_head(folders.space(folder, target, masks=masks)), target)
    assert isinstance(head, SpaceHead)
    return head


def llama(tmp_path: Path, masks: int = 3, **changes: Any) -> Target:
    """A target with random masks for its lane."""
    target = Target(tiny_model("llama", **changes), name="llama")
    attach_heads(target, [str(folders.space(tmp_path / "masks", target, masks=masks))], head_lanes())
    return target


@torch.no_grad()
def plain_logits(head: SpaceHead, tokens: Sequence[int]) -> Tensor:
    """Logits [k, V] of all masks after `tokens`, by one plain forward of the model's own modules."""
    model = head.target.model
    rows = torch.cat([model.get_input_embeddings()(torch.tensor(tokens)), head.masks.embeddings])
    logits: Tensor = model(inputs_embeds=rows[None]).logits[0, len(tokens) :]
    return logits


@pytest.mark.parametrize("way", WAYS)
def test_masks_see_the_text_up_to_the_last_accepted_token(way: str, tmp_path: Path) -> None:
    """Checked with random trees, accepted paths and numbers of masks. A tree's logits are those without masks."""
    target, rng = WAYS[way](), random.Random(way)
    head = space_head(target, tmp_path / "masks")
    text = list(random_prompt(rng))
    session = head.after(text, target.prefill(text)).session(SamplingParams(), 99)
    assert session.likeliest([()], 1) == [[]]
    lane, plain = (target.session(target.prefill(text), 99, **more) for more in ({"head_session": session}, {}))
    # How many of the masks are used, and how many draft tokens the random tree has.
    for num_masks, size in ((3, 0), (3, 4), (2, 3), (3, 6), (1, 1), (3, 2)):
        session.num_masks = num_masks
        tree = random_tree(rng, text[-1], size)
        logits = lane.logits(tree).clone()
        assert logits.shape == (len(tree), VOCAB)
        torch.testing.assert_close(logits, plain.logits(tree), rtol=1e-3, atol=1e-3)
        path = tree.path_to(rng.randrange(len(tree)))
        lane.keep(path)
        plain.keep(path)
        read = [*text[:-1], *(tree.tokens[node] for node in path)]
        expected = plain_logits(head, read)[:num_masks].softmax(-1).max(-1)
        guesses = session.likeliest([(0,) * depth for depth in range(4)], 1)
        assert guesses[num_masks:] == [[]] * (4 - num_masks)
        assert [guess[0][0] for guess in guesses[:num_masks]] == expected.indices.tolist()
        probs = torch.tensor([guess[0][1] for guess in guesses[:num_masks]])
        torch.testing.assert_close(probs, expected.values, rtol=1e-3, atol=1e-3)
        text = [*read, rng.randrange(VOCAB)]


def test_training_guesses_what_a_race_guesses(tmp_path: Path) -> None:
    """The module's outputs over a padded batch, against a plain forward over each text and the masks."""
    target = Target(tiny_model("llama"), name="llama")
    head, size = space_head(target, tmp_path / "masks"), target.config.hidden_size
    module = Space(HeadConfig.fitting(target.config, VOCAB, num_heads=3))
    module.load_state_dict({"mask_embeddings.weight": head.masks.embeddings})
    module.read_with(target.model)
    texts = [([5, 9, 3, 7, 2, 8, 4], 3), ([11, 6, 12, 13], 2)]
    batch = collate([(torch.tensor(ids), start, torch.zeros(len(ids) - 1, 1, size)) for ids, start in texts])
    outputs = module.guesses(batch, torch.zeros(0), 3)
    rows = target.model.get_output_embeddings().weight
    for row, (ids, start) in enumerate(texts):
        for depth, output in enumerate(outputs):
            assert output.shape == (2, 4 - depth, size)
            # The first chain of drafts begins at the answer's first token.
            for number in range(len(ids) - start - depth):
                expected = plain_logits(head, ids[: start - 1 + number])[depth]
                torch.testing.assert_close(module.logits(output[row, number], rows), expected, rtol=1e-3, atol=1e-3)


def test_without_masks_a_race_calls_the_same_forward(tmp_path: Path) -> None:
    """A session with masks makes a forward of its own, once; a session without them still calls the replay."""
    target = WAYS["fused"]()
    head = space_head(target, tmp_path / "masks")
    replay = target.replay = RecordingReplay(target)
    prefix, tree = target.prefill(PROMPT), TokenTree.chain(PROMPT[-1])
    session = head.after(PROMPT, prefix).session(SamplingParams(), 20)
    masked, plain = target.session(prefix, 20, head_session=session), target.session(prefix, 20)
    for lane in (plain, masked, masked, plain):
        lane.score(tree)
    assert replay.calls == ["plain", "made", "plain"]
    assert "forward" not in target.model.get_input_embeddings().__dict__


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("way", ["eager", "traced", "fused", "compiled", "compiled, read by the model", "graphs"])
def test_masks_change_no_text(way: str, temperature: float, tmp_path: Path) -> None:
    target = WAYS[way]()
    attach_heads(target, [str(folders.space(tmp_path / "masks", target))], head_lanes())
    spec = RaceSpec(("space", "space:depth=1"), 16, temperature=temperature, seed=4)
    *_, finished = race(target, PROMPT, spec)
    assert isinstance(finished, Finished)
    assert all(lane.identical for lane in finished.lanes)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_masks_are_rows_and_no_tokens(temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With k masks, a forward has 1 + k rows for each node of the step's tree, and no mask is drafted or emitted.

    There are no more masks than the next step may draft tokens.
    """
    target, rows = llama(tmp_path), list[int]()
    target.eos_ids = frozenset()
    fill = TreeInputs.fill

    def record_fill(self: TreeInputs, tree: TokenTree, base: Any) -> None:
        rows.append(len(tree))
        fill(self, tree, base)

    monkeypatch.setattr(TreeInputs, "fill", record_fill)
    steps: list[Step] = list(generate(target, "space", PROMPT, max_new_tokens=20, temperature=temperature))
    remaining = 20
    for step, count in zip(steps, rows, strict=True):
        # Both this step and the next one end with a token that is not drafted.
        masks = max(0, min(3, remaining - 2))
        assert count == len(step.tree) * (1 + masks)
        assert step.tree.is_chain and max(*step.tree.tokens, *step.emitted) < VOCAB
        assert step.note is not None and step.note.facts["rows of the forward"] == count
        assert step.note.facts["drafted"] == step.tree.num_draft <= 3
        remaining -= len(step.emitted)
    assert remaining == 0 and steps[0].tree.num_draft == 0 and steps[1].tree.num_draft == 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_masks_that_know_the_future_are_accepted_whole(temperature: float, tmp_path: Path) -> None:
    """With the target's own logits in place of the masks', every draft token is accepted.

    With those of one position before, some are rejected.
    """
    target, text = llama(tmp_path), list(PROMPT)
    target.eos_ids = frozenset()
    params = SamplingParams(temperature, seed=3)
    sampler = Sampler(params)
    while len(text) < 60:
        logits = target.plain_logits(text)[-1:]
        text.append(int(sampler.choose(logits, [len(text)])))
    # Without the shift, the share of accepted tokens is 1; with it, it is below 0.5.
    for shift, expected in ((0, 1.0), (1, 0.5)):

        class Knowing(SpaceSession):
            def read_masks(self, logits: Tensor, tokens: Sequence[int]) -> None:
                super().read_masks(logits, tokens)
                if not len(logits):
                    return
                # The first mask guesses what follows the text so far, pending token included; the next one, a token
                # later.
                ends = [self._count + 1 + depth - shift for depth in range(len(logits))]  # noqa: B023
                self._logits = torch.cat([target.plain_logits(text[:end])[-1:] for end in ends])

        head = target.heads["space"]
        head.after = lambda prompt, _, head=head, kind=Knowing: Prompted(head, len(prompt) - 1, kind)
        settings = {"max_new_tokens": 30, "temperature": temperature, "seed": 3}
        steps = list(generate(target, "space", PROMPT, **settings))
        emitted = [token for step in steps for token in step.emitted]
        assert emitted == text[len(PROMPT) : len(PROMPT) + 30]
        share = sum(step.accepted for step in steps) / sum(step.num_draft for step in steps)
        assert share == expected if shift == 0 else share < expected


class Prompted:
    """A prompted head whose sessions are of another class."""

    prefill_ms = 0.0

    def __init__(self, head: SpaceHead, count: int, kind: Callable[..., SpaceSession]) -> None:
        self.head, self.count, self._kind = head, count, kind

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> SpaceSession:
        del room
        return self._kind(self, params, coupled=coupled)


def test_masks_stay_within_the_context(tmp_path: Path) -> None:
    """GPT-2 has no position beyond its context: masks there are left out, and the text is vanilla's."""
    target = Target(tiny_model("gpt2", max_position_embeddings=30), name="gpt2")
    attach_heads(target, [str(folders.space(tmp_path / "masks", target))], head_lanes())
    target.eos_ids = frozenset()
    settings = {"max_new_tokens": 23, "num_draft": 1}
    vanilla, space = (
        [token for step in generate(target, lane, PROMPT, **settings) for token in step.emitted]
        for lane in ("vanilla", "space")
    )
    assert vanilla == space and len(space) == 23


def test_the_budget_and_the_number_of_masks_bound_the_draft() -> None:
    class Ready:
        """A head session of up to four masks, which guesses one token at each depth."""

        depth, depths_per_forward, room, num_masks = 4, 4, 99, 0

        def begin(self, root: int) -> None:
            pass

        def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
            return [[(9 + len(path), 0.5)][:k] for path in paths]

    head = Ready()
    drafter = SpaceDrafter(DrafterInputs((4, 5), vocab_size=99, head=head), depth=3)
    # `depth` is how deep this step's draft may be. The next one's is at least one token less, and needs no more masks.
    for budget, depth, drafted, masks in ((9, 99, 3, 3), (2, 99, 2, 2), (9, 2, 2, 1), (9, 1, 1, 0), (0, 0, 0, 0)):
        tree = drafter.propose((4, 5), budget, depth)
        assert (tree.tokens, head.num_masks) == ((5, *range(9, 9 + drafted)), masks)


def test_a_lane_without_masks_is_refused() -> None:
    with pytest.raises(InputError, match="has no masks to draft with"):
        SpaceDrafter(DrafterInputs((4, 5), vocab_size=99))


def test_masks_come_in_chains_below_every_node() -> None:
    tree = TokenTree((5, 6, 7), (-1, 0, 0))
    below = Masks(torch.zeros(2, 4), 100).below(tree, 2)
    assert below.tokens == (5, 6, 7, 100, 101, 100, 101, 100, 101)
    assert below.parents == (-1, 0, 0, 0, 3, 1, 5, 2, 7)
    assert Masks(torch.zeros(2, 4), 100).below(tree, 0) is tree


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 64}, "hidden states of width 64"),
        ({"vocab_size": 99}, "a vocabulary of 99 tokens"),
        ({"num_masks": 2}, "has mask_embeddings.weight of shape 3x32, and its config and target need 2x32"),
        ({"num_masks": None}, "the num_masks None"),
        ({"num_masks": 17}, "has 17 masks; the lane space takes at most 16"),
        ({"target_fingerprint": "0123", "target_name": "other"}, "was trained on the answers of other"),
    ],
)
def test_masks_that_do_not_fit_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    target = Target(tiny_model("llama"), name="llama")
    target.fingerprint = "4567"
    assert_refused(folders.space(tmp_path / "masks", target, **changes), target, words)


def test_targets_that_cannot_read_masks_refuse_them(tmp_path: Path) -> None:
    target = Target(tiny_model("llama"), name="llama")
    folder = folders.space(tmp_path / "masks", target)
    target.config.vocab_size_per_layer_input = VOCAB
    assert_refused(folder, target, "masks cannot stand beside them")
    target.chains_only = True
    assert_refused(folder, target, "follows one branch only")
    scripted = ScriptedTarget(tiny_model("llama"), {}, "llama")
    attach_heads(scripted, [str(folder)], head_lanes())
    with pytest.raises(InputError, match="no head can read"):
        next(race(scripted, PROMPT, RaceSpec(("space",))))
