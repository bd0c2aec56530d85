"""Trains a low-rank adapter (LoRA, Hu et al. 2021) for a chat model on grounded samples, in an hour on one CPU.

A grounded sample has passages, questions about them, and answers that quote the passages (`adapter_data`).

Three things save most of the work. All questions of a sample share one forward over its passages: each question is a
branch of a tree, and mask and positions keep the branches separate. Logits are computed for answer tokens only. The
lowest layers have no adapter, so no gradients are computed for them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from specrace.model.weights.adapter import CONFIG, SIZES, WEIGHTS
from specrace.retrieval.prompt import GROUNDED, build_prompt
from specrace.tiny.adapter_data import GroundedSample, GroundedTask
from specrace.tiny.quoting import Source
from specrace.tiny.train import Progress

CHECKPOINT = "checkpoint.pt"
# The linear layers that get an adapter.
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# The number of held-out samples on which a checkpoint's loss is measured.
HELD_OUT_SAMPLES = 6
# The training time between two checkpoints.
SAVE_SECONDS = 480
# How many of the last checkpoints are averaged for the export.
AVERAGED = 3


@dataclass(frozen=True)
class AdapterRecipe:
    """The settings of a training run; each update is over `samples` samples of at most `questions` questions.

    `minutes`: the time of the updates, without that of evaluation. `rank` and `alpha` are LoRA's; `rate` is the highest
    learning rate.
    """

    minutes: float = 37.0
    samples: int = 2
    questions: int = 6
    rank: int = 8
    alpha: int = 16
    rate: float = 1e-3
    warmup_steps: int = 8
    seed: int = 0


class LowRank(nn.Module):
    """A frozen linear layer plus (alpha / rank) B A. A has the shape [rank, in]; B, [out, rank], starts at zero."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: int) -> None:
        super().__init__()
        self.layer, self.scale = layer, alpha / rank
        self.lora_A = nn.Parameter(torch.empty(rank, layer.in_features))
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, hidden: Tensor) -> Tensor:
        low = functional.linear(hidden, self.lora_A) * self.scale
        adapted: Tensor = self.layer(hidden) + functional.linear(low, self.lora_B)
        return adapted


def _first_layer(config: Any) -> int:
    """The lowest layer with an adapter; about a quarter of the layers are below it."""
    return int(config.num_hidden_layers + 2) // 4


def attach(model: Any, recipe: AdapterRecipe) -> dict[str, nn.Parameter]:
    """Freeze the model and add adapters to its layers; returns their matrices by the names that PEFT gives them."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    matrices = {}
    for name, module in list(model.named_modules()):
        parent, _, leaf = name.rpartition(".")
        # The number of the layer follows "layers." in the name.
        if leaf in TARGETS and int(name.split("layers.")[1].split(".")[0]) >= _first_layer(model.config):
            adapted = LowRank(module, recipe.rank, recipe.alpha)
            setattr(model.get_submodule(parent), leaf, adapted)
            matrices[f"base_model.model.{name}.lora_A.weight"] = adapted.lora_A
            matrices[f"base_model.model.{name}.lora_B.weight"] = adapted.lora_B
    return matrices


@dataclass(frozen=True)
class Tree:
    """A sample's tokens: the shared prompt, then each question with its answer."""

    ids: Tensor  # [T]
    positions: Tensor  # [T]
    mask: Tensor  # [T, T], true if the row's token attends to the column's token
    answers: Tensor  # [T], true for the tokens of answers, which the model learns to predict


def encode(sample: GroundedSample, tokenizer: Any) -> Tree:
    """The sample as one tree; the prompts are built like those of the app."""
    prompts = [
        build_prompt(tokenizer, question.question, sample.hits(question), GROUNDED).tokens
        for question in sample.questions
    ]
    shared = min(_num_shared(prompts[0], prompt) for prompt in prompts)
    ids = list(prompts[0][:shared])
    positions = list(range(shared))
    answers = [False] * shared
    # The start and end of each question with its answer.
    branches = []
    for prompt, question in zip(prompts, sample.questions, strict=True):
        reply = [*tokenizer(question.answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        branches.append((len(ids), len(ids) + len(prompt) - shared + len(reply)))
        positions += range(shared, len(prompt) + len(reply))
        answers += [False] * (len(prompt) - shared) + [True] * len(reply)
        ids += [*prompt[shared:], *reply]
    mask = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    for start, end in branches:
        # A branch does not attend to the branches before it.
        mask[start:end, shared:start] = False
    return Tree(torch.tensor(ids), torch.tensor(positions), mask, torch.tensor(answers))


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the common prefix of two prompts; always shorter than both.

    So the row before an answer, which predicts its first token, is in the answer's own branch.
    """
    longest = min(len(first), len(second)) - 1
    return next((index for index in range(longest) if first[index] != second[index]), longest)


def losses(model: Any, tree: Tree) -> Tensor:
    """The cross-entropy of each answer token in nats."""
    mask = torch.zeros(tree.mask.shape).masked_fill_(~tree.mask, torch.finfo(torch.float32).min)
    hidden = model.model(
        input_ids=tree.ids[None], position_ids=tree.positions[None], attention_mask=mask[None, None], use_cache=False
    ).last_hidden_state[0]
    # The rows of a branch are in text order, so the row before an answer token predicts it.
    predicted = model.lm_head(hidden[:-1][tree.answers[1:]])
    return functional.cross_entropy(predicted, tree.ids[1:][tree.answers[1:]], reduction="none")


def rate_at(step: int, done: float, recipe: AdapterRecipe) -> float:
    """The learning rate: a linear warm-up, and a cosine to zero at the end.

    `done`: the share of the training time that has passed.
    """
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    return recipe.rate * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class AdapterRun:
    """Trains an adapter for the model in the folder `base`; resumes from the checkpoint in `out`, if there is one."""

    def __init__(self, base: Path, out: Path, recipe: AdapterRecipe) -> None:
        torch.manual_seed(recipe.seed)
        self.base, self.out, self.recipe = base, out, recipe
        self.tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, trust_remote_code=False)
        self.matrices = attach(self.model, recipe)
        self.optimizer = torch.optim.AdamW(self.matrices.values(), betas=(0.9, 0.98), weight_decay=0.0)
        # The adapter's matrices at the last checkpoints.
        self.recent: list[dict[str, Tensor]] = []
        self.progress = self._resume()

    def train(self, training: list[Source], held_out: list[Source]) -> None:
        """Train for the recipe's time, and export the adapter."""
        # A resumed run draws other samples than those it has already seen.
        task = GroundedTask(training, self.recipe.seed + self.progress.step)
        # Always the same samples, so that the losses of all checkpoints can be compared.
        held_out_task = GroundedTask(held_out, 1)
        held_out_trees = [
            encode(held_out_task.sample(self.recipe.questions), self.tokenizer) for _ in range(HELD_OUT_SAMPLES)
        ]
        progress, limit_s = self.progress, self.recipe.minutes * 60
        # The losses of the last ten updates.
        recent_losses: list[float] = []
        saved_s = progress.seconds
        while progress.seconds < limit_s:
            began = time.perf_counter()
            trees = [encode(task.sample(self.recipe.questions), self.tokenizer) for _ in range(self.recipe.samples)]
            rate = rate_at(progress.step, progress.seconds / limit_s, self.recipe)
            loss = update(self.model, self.matrices, self.optimizer, trees, rate)
            recent_losses = [*recent_losses[-9:], loss]
            progress.step += 1
            progress.tokens += sum(len(tree.ids) for tree in trees)
            progress.seconds += time.perf_counter() - began
            if progress.seconds >= limit_s or progress.seconds - saved_s > SAVE_SECONDS:
                saved_s = progress.seconds
                held_out_loss = evaluate(self.model, held_out_trees)
                self._report(loss=sum(recent_losses) / len(recent_losses), held_out=held_out_loss)
                self.save_checkpoint()
            elif progress.step % 5 == 0:
                self._report(loss=sum(recent_losses) / len(recent_losses))
        self.export()

    def _report(self, **mean_losses: float) -> None:
        """Print the progress and append it to losses.jsonl."""
        row = {**asdict(self.progress), "seconds": round(self.progress.seconds)}
        row |= {name: round(loss, 4) for name, loss in mean_losses.items()}
        with (self.out / "losses.jsonl").open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(row, flush=True)

    def save_checkpoint(self) -> None:
        """Write the checkpoint atomically, with the matrices of the last checkpoints, which `export` averages."""
        current = {name: matrix.data.clone() for name, matrix in self.matrices.items()}
        self.recent = [*self.recent[1 - AVERAGED :], current]
        state = {
            "recent": self.recent,
            "progress": asdict(self.progress),
            "matrices": {name: matrix.data for name, matrix in self.matrices.items()},
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, self.out / "checkpoint.new")
        (self.out / "checkpoint.new").replace(self.out / CHECKPOINT)

    def _resume(self) -> Progress:
        """Load the checkpoint in `out`, if there is one, and return its progress."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / CHECKPOINT
        if not path.exists():
            return Progress()
        state = torch.load(path, weights_only=True, map_location="cpu")
        for name, values in state["matrices"].items():
            self.matrices[name].data.copy_(values)
        self.optimizer.load_state_dict(state["optimizer"])
        self.recent = state["recent"]
        return Progress(**state["progress"])

    def export(self) -> None:
        """Write the mean of the last checkpoints in PEFT's format, in bfloat16."""
        means = {
            name: torch.stack([matrices[name] for matrices in self.recent]).mean(0).to(torch.bfloat16)
            for name in self.matrices
        }
        save_file(means, self.out / WEIGHTS)
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base.name,
            "r": self.recipe.rank,
            "lora_alpha": self.recipe.alpha,
            "target_modules": list(TARGETS),
            "layers_to_transform": list(range(_first_layer(self.model.config), self.model.config.num_hidden_layers)),
            "lora_dropout": 0.0,
            "bias": "none",
            # The following keys are not part of PEFT's format.
            "label": "grounded adapter",
            "style": "grounded",
            "trained_for": {size: getattr(self.model.config, size) for size in SIZES},
            "recipe": asdict(self.recipe),
        }
        (self.out / CONFIG).write_text(json.dumps(config, indent=1) + "\n")


def update(
    model: Any, matrices: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, trees: Sequence[Tree], rate: float
) -> float:
    """Do one optimiser step over the answer tokens of the trees, and return the mean loss of these tokens."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    count, total = sum(int(tree.answers.sum()) for tree in trees), 0.0
    for tree in trees:
        loss = losses(model, tree).sum() / count
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(matrices.values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


@torch.inference_mode()
def evaluate(model: Any, trees: Iterable[Tree]) -> float:
    """The mean loss of the answer tokens, in nats."""
    return float(torch.cat([losses(model, tree) for tree in trees]).mean())
