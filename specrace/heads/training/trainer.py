"""Trains a head on a target's own answers, on one CPU, resumably.

Three things differ from the papers, whose training data have a thousand times as many tokens. The loss is mostly the
cross-entropy against the target's distribution over the shortlist (the tokens that the head can guess), at every depth
of a draft; the error of EAGLE-1's states has a small weight. Muon (Jordan et al. 2024) updates matrices, AdamW all
else. The rate decays linearly to zero.
"""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.core.errors import InputError, shorten
from specrace.heads.modules.batch import Batch, collate
from specrace.heads.modules.block import Block
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.eagle import Eagle, Eagle3
from specrace.heads.modules.hydra import Hydra
from specrace.heads.modules.medusa import Medusa
from specrace.heads.modules.space import Space, SpaceTarget
from specrace.heads.training.block_start import start_block
from specrace.heads.training.linear_start import start_hydra, start_linear
from specrace.heads.training.shards import Shard
from specrace.heads.training.shortlist import choose_shortlist

Module = Block | Eagle | Eagle3 | Medusa | Hydra | Space
KINDS: dict[str, type[Module]] = {
    "block": Block,
    "eagle": Eagle,
    "eagle3": Eagle3,
    "medusa": Medusa,
    "hydra": Hydra,
    "space": Space,
    "space-target": SpaceTarget,
}
CHECKPOINT = "checkpoint.pt"
# Of the numbers down to the end of `HeadRecipe`, and those in `optimizers`, no comparison was recorded.
SAVE_SECONDS = 120.0
# The weight of a depth's loss, relative to that of the previous depth.
DECAY = 0.8
# Updates over which the rate rises to its full value, and updates between two rows of progress.
WARMUP_STEPS, REPORT_STEPS = 10, 10
# The rate of a target's layers, relative to that of the masks that are trained with them.
LAYER_RATE = 0.02
# One question in this many is not trained on, but kept for the evaluation.
HELD_OUT_EVERY = 20


@dataclass(frozen=True)
class HeadRecipe:
    """The settings of a training run; an update is over about `batch_tokens` guessed tokens.

    `depths`: how long the trained chains are, and how many heads Medusa and Hydra have; for `space`, how many masks.

    With `prompts`, the tokens of prompts are guessed too, once for each question.
    """

    kind: str = "eagle"
    epochs: float = 4.0
    depths: int = 3
    shortlist: int = 4_096
    rate: float = 2e-3
    batch_tokens: int = 3_000
    state_weight: float = 0.1
    seed: int = 0
    prompts: bool = False


@dataclass
class Progress:
    """What a run has done so far; tokens and seconds include the `earlier_steps`, those of the run it started from."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    earlier_steps: int = 0


@dataclass(frozen=True)
class TargetParts:
    """What a head needs of its target: its sizes, its embeddings [V, d], its output matrix [V, d], its stop tokens.

    `model`: the target itself, with which masks are trained.
    """

    config: Any
    embeddings: Tensor
    output: Tensor
    ends: tuple[int, ...]
    model: Any


def read_levels(kind: str, levels: Sequence[int]) -> tuple[int, ...]:
    """Which of the data's levels a kind of head is trained with; the last is read by the target's output matrix.

    A block head reads neither the first, which says little about the next tokens, nor the last, which is near the one
    before.
    """
    return {"eagle3": tuple(levels), "block": tuple(levels[1:])}.get(kind, tuple(levels[-1:]))


Place = tuple[int, int]  # (number of a shard, number of a conversation in it)


def split_places(shards: Sequence[Shard]) -> tuple[list[Place], list[Place]]:
    """(training conversations, held-out ones), split by a hash of the question: one in twenty is held out."""
    training, held_out = list[Place](), list[Place]()
    for shard, content in enumerate(shards):
        for number, question in enumerate(content.questions):
            is_held_out = zlib.crc32(question.encode()) % HELD_OUT_EVERY == 0
            (held_out if is_held_out else training).append((shard, number))
    return training, held_out


class HeadRun:
    """A training run in the folder `out`; an interrupted one resumes from its checkpoint.

    A new run begins with the weights of the checkpoint `start`, if given. Raises InputError if they do not fit.
    """

    def __init__(
        self,
        parts: TargetParts,
        shards: Sequence[Shard],
        levels: Sequence[int],
        out: Path,
        recipe: HeadRecipe,
        start: Path | None = None,
    ) -> None:
        self.parts, self.shards, self.out, self.recipe = parts, shards, out, recipe
        self.levels = read_levels(recipe.kind, levels)
        self.training, self.held_out = split_places(shards)
        torch.manual_seed(recipe.seed)
        answers = [self.answer(place) for place in self.training]
        vocab_size = parts.config.vocab_size
        # At a mask the target guesses by its own output layer, which has all tokens.
        size = vocab_size if issubclass(KINDS[recipe.kind], Space) else recipe.shortlist
        self.shortlist = choose_shortlist(answers, size, vocab_size, parts.ends)
        # The target's output matrix for the shortlist, [Vd, d].
        self.rows = parts.output[self.shortlist]
        sizes = HeadConfig.fitting(parts.config, len(self.shortlist), len(self.levels) - 1, recipe.depths)
        self.head = KINDS[recipe.kind](sizes)
        if isinstance(self.head, Space):
            self.head.read_with(parts.model)
        self.optimizers = optimizers(self.head, recipe.rate)
        self._template_tokens = self._count_template_tokens() if recipe.prompts else 0
        self.progress = self._resume()
        if self.progress.step == 0 and start is not None:
            self._start_from(start)
        elif self.progress.step == 0 and isinstance(self.head, Eagle):
            start_linear(self.head, self.batches(self.training), parts.embeddings)
        elif self.progress.step == 0 and isinstance(self.head, Hydra):
            start_hydra(self.head, self.batches(self.training), parts.embeddings)
        elif self.progress.step == 0 and isinstance(self.head, Block):
            start_block(self.head, self.batches(self.training), parts.embeddings)
        elif self.progress.step == 0 and isinstance(self.head, Space):
            self.head.start(parts.embeddings, torch.cat(answers))

    def answer(self, place: Place) -> Tensor:
        """The tokens that the target wrote in a conversation."""
        shard, number = self.shards[place[0]], place[1]
        return shard.ids[shard.starts[number] + shard.answers[number] : shard.starts[number + 1]]

    def _count_template_tokens(self) -> int:
        """How many of the first 64 tokens all conversations share, at least 2: those of the chat template.

        A token can be guessed only if two come before it: the one whose state is read, and the pending one.
        """
        shards = self.shards
        beginnings = [
            shards[shard].ids[shards[shard].starts[number] :][:64].tolist() for shard, number in self.training
        ]
        alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*beginnings, strict=False))
        return max(2, len(list(alike)))

    def first_guessed(self, place: Place) -> int:
        """The first token of a conversation that training guesses: the answer's, or the prompt's after the template.

        All answers to a question have the same prompt; the greedy one stands for all of them.
        """
        shard, number = self.shards[place[0]], place[1]
        is_whole = self.recipe.prompts and shard.temperatures[number] == 0
        return min(self._template_tokens, shard.answers[number]) if is_whole else shard.answers[number]

    def groups(self, places: Sequence[Place], seed: int) -> list[list[Place]]:
        """The conversations in groups of similar lengths, of about `batch_tokens` guessed tokens, in a seeded order."""
        draw = random.Random(seed)
        lengths = {}
        for shard, number in places:
            starts, first = self.shards[shard].starts, self.first_guessed((shard, number))
            lengths[shard, number] = first, starts[number + 1] - starts[number] - first
        # Conversations that are guessed from the template on have groups of their own: each of them would pad the few
        # guessed tokens of the others to the length of a whole conversation, which took a block head 20 GB.
        # Lengths get some noise, up to 20 tokens, so that groups differ from epoch to epoch.
        keys = {
            place: (lengths[place][0] > self._template_tokens, sum(lengths[place]) + draw.uniform(0, 20))
            for place in places
        }
        groups, size, kind = list[list[Place]](), 0, None
        for place in sorted(places, key=keys.__getitem__):
            size += lengths[place][1]
            if kind != keys[place][0] or size > self.recipe.batch_tokens:
                groups.append([])
                size, kind = lengths[place][1], keys[place][0]
            groups[-1].append(place)
        draw.shuffle(groups)
        return groups

    def batch(self, group: Sequence[Place], *, prompts: bool = False) -> Batch:
        """The conversations of a group as one batch; with `prompts`, guesses begin at `first_guessed`."""
        rows = [(place, self.shards[place[0]].conversation(place[1], self.levels)) for place in group]
        return collate(
            [
                (row.ids, self.first_guessed(place) if prompts else row.start, row.features.float())
                for place, row in rows
            ]
        )

    def batches(self, places: Sequence[Place]) -> Iterator[Batch]:
        """Batches of conversations, in which the answers are guessed."""
        return (self.batch(group) for group in self.groups(places, self.recipe.seed))

    def _remaining(self, num_steps: int) -> Iterator[list[Place]]:
        """The groups of the remaining steps. A run that was interrupted sees the same groups as one that was not."""
        number = 0
        for epoch in count():
            # Times a large number, so that other seeds' epochs have other orders.
            for group in self.groups(self.training, self.recipe.seed * 1_000_003 + epoch):
                if number >= num_steps:
                    return
                number += 1
                if number > self.progress.step:
                    yield group

    def train(self) -> Iterator[dict[str, float]]:
        """Train for the recipe's epochs; yields progress and mean losses of the steps since the last row."""
        num_steps = max(1, round(self.recipe.epochs * self._tokens_per_epoch() / self.recipe.batch_tokens))
        progress, recent, saved_s = self.progress, list[list[float]](), self.progress.seconds
        for group in self._remaining(num_steps):
            began, batch = time.perf_counter(), self.batch(group, prompts=True)
            # The rate rises over the first steps, and falls linearly to zero.
            factor = min(1 - progress.step / num_steps, (progress.step + 1) / WARMUP_STEPS)
            recent.append(self._update(batch, self.recipe.rate * factor))
            progress.step += 1
            progress.tokens += int(batch.is_guessed(1).sum())
            progress.seconds += time.perf_counter() - began
            if progress.step % REPORT_STEPS == 0 or progress.step == num_steps:
                yield self._row(recent, num_steps)
                recent = []
            if progress.seconds - saved_s > SAVE_SECONDS or progress.step == num_steps:
                saved_s = progress.seconds
                self.save()

    def _tokens_per_epoch(self) -> int:
        """How many tokens are guessed in an epoch: all but those before `first_guessed`."""
        unguessed = sum(self.first_guessed(place) for place in self.training)
        starts = ((self.shards[shard].starts, number) for shard, number in self.training)
        return sum(first[number + 1] - first[number] for first, number in starts) - unguessed

    def _row(self, recent: Sequence[Sequence[float]], num_steps: int) -> dict[str, float]:
        """A line of the log: progress, and the mean losses by depth."""
        means = torch.tensor(recent).mean(0).tolist()
        row = {**asdict(self.progress), "of": num_steps}
        row |= {f"loss_{depth}": round(loss, 3) for depth, loss in enumerate(means[:-1], 1)}
        row["state"] = round(means[-1], 4)
        row["seconds"] = round(self.progress.seconds)
        with (self.out / "losses.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        return row

    def _update(self, batch: Batch, rate: float) -> list[float]:
        """One step of the optimisers; returns the losses by depth, and that of the states."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("relative_rate", 1.0)
        with torch.autocast("cpu", torch.bfloat16):
            losses, state_loss = self.losses(batch)
        # For a target that is trained, `state_loss` is its drift, which weighs as much as the first depth's loss.
        weight = 1.0 if isinstance(self.head, SpaceTarget) else self.recipe.state_weight
        total = sum(loss * DECAY**depth for depth, loss in enumerate(losses)) + weight * state_loss
        assert isinstance(total, Tensor)
        if not total.isfinite():
            raise InputError(f"The loss is not finite at step {self.progress.step}; train with a lower --rate.")
        total.backward()
        nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return [*(loss.item() for loss in losses), state_loss.item()]

    def losses(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """The cross-entropy of every depth against the target's distribution over the shortlist, and the states' error.

        The states' error is the smooth L1 distance of EAGLE-1's outputs to the target's states; for a target that is
        trained, how far it drifts; 0 for other kinds.
        """
        outputs = self.head.guesses(batch, self.parts.embeddings[batch.ids], self.recipe.depths)
        with torch.no_grad():
            target = (batch.last_states(1) @ self.rows.T).float().softmax(-1)
        losses = []
        for depth, output in enumerate(outputs, 1):
            chosen = batch.is_guessed(depth)
            logits = self.head.logits(output[chosen], self.rows).float()
            losses.append(functional.cross_entropy(logits, target[:, depth - 1 :][chosen]))
        if isinstance(self.head, SpaceTarget):
            return losses, self.head.drift(batch, self.rows)
        return losses, state_error(outputs, batch) if isinstance(self.head, Eagle) else torch.zeros(())

    def save(self) -> None:
        """Write the checkpoint atomically."""
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            "head": self.head.state_dict(),
            "shortlist": self.shortlist,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": asdict(self.progress),
            "recipe": asdict(self.recipe),
        }
        part = self.out / "checkpoint.new"
        torch.save(state, part)
        part.replace(self.out / CHECKPOINT)

    def _resume(self) -> Progress:
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / CHECKPOINT
        if not path.exists():
            return Progress()
        state = _read_state(path)
        self._load(state, path, "give another folder with --work, or the options of that run")
        self.shortlist = state["shortlist"]
        self.rows = self.parts.output[self.shortlist]
        for optimizer, values in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(values)
        return Progress(**state["progress"])

    def _start_from(self, file: Path) -> None:
        """Take the weights of another run's checkpoint, and count what that run has done."""
        state = _read_state(file)
        self._load(state, file, "give the checkpoint of a head like this one, or leave out --start")
        earlier = Progress(**state["progress"])
        self.progress = Progress(0, earlier.tokens, earlier.seconds, earlier.step + earlier.earlier_steps)

    def _load(self, state: Mapping[str, Any], file: Path, advice: str) -> None:
        """Take the weights of a checkpoint. Raises InputError if they do not fit."""
        try:
            self.head.load_state_dict(state["head"])
        except RuntimeError as error:
            raise InputError(f"{shorten(file)} has weights of another kind or shape of head; {advice}.") from error


def state_error(outputs: Sequence[Tensor], batch: Batch) -> Tensor:
    """The smooth L1 distance of the outputs [B, A - depth + 1, d] by depth to the states that they stand for.

    Those are the target's states from which it drew the guessed tokens.
    """
    errors = []
    for depth, output in enumerate(outputs, 1):
        chosen = batch.is_guessed(depth)
        errors.append(functional.smooth_l1_loss(output[chosen].float(), batch.last_states(depth)[chosen]))
    return torch.stack(errors).mean()


def _read_state(file: Path) -> dict[str, Any]:
    """What a checkpoint holds. Raises InputError if the file is missing or damaged."""
    try:
        state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # also what torch raises when it refuses to unpickle anything but tensors
        raise InputError(
            f"The checkpoint {shorten(file)} cannot be read ({shorten(error)}); give the {CHECKPOINT} of a run."
        ) from error
    return state


def optimizers(head: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for matrices; AdamW for vectors, masks, an output matrix over the vocabulary, and a target's layers."""
    if isinstance(head, SpaceTarget):
        layers: dict[str, Any] = {"params": head.layer_parameters(), "relative_rate": LAYER_RATE}
        masks: dict[str, Any] = {"params": list(head.mask_embeddings.parameters())}
        return [torch.optim.AdamW([masks, layers], lr=rate, betas=(0.9, 0.98), weight_decay=0.0)]
    by_adam = ("lm_head", "mask_embeddings")
    matrices = [p for name, p in head.named_parameters() if p.ndim == 2 and not name.startswith(by_adam)]
    others = [p for name, p in head.named_parameters() if p.ndim != 2 or name.startswith(by_adam)]
    chosen = list[torch.optim.Optimizer]()
    if matrices:
        chosen.append(torch.optim.Muon(matrices, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"))
    if others:
        chosen.append(torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0))
    return chosen
