"""Trains a model that starts with the copying circuit (`circuit`) on samples of the task in `quoting`; exports it."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specrace.core.errors import InputError
from specrace.tiny.circuit import Markers, build_model, circuit_parameters, tiny_config
from specrace.tiny.quoting import QuotingTask, Sample, Source
from specrace.tiny.vocabulary import ANSWER, CITATIONS, EVIDENCE, QUESTION, SEGMENT_MARKERS, prompt_ids

# The loss weight of answer tokens that are not copied (openings, joints, markers, citations, the end); that of copied
# tokens is 1. One token in five is not copied. These tokens are all that training has to learn, because the circuit
# already predicts most copied tokens.
DECISION_WEIGHT = 4.0
# Longer samples are skipped, because batches are padded to the longest. No record says why 1,500.
MAX_SAMPLE_TOKENS = 1500
CHECKPOINT = "checkpoint.pt"
# The maximum size of a file of exported weights: just above that of the bundled model, which so is one file.
MAX_SHARD = "15500KB"


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run. A stage is (share of the run at which it starts, maximum number of words).

    The words are those of a sample's passages. Short samples come first; no record says how the numbers were chosen.
    """

    minutes: float = 75.0
    tokens_per_batch: int = 4096
    stages: tuple[tuple[float, int], ...] = ((0.0, 130), (0.08, 240), (0.25, 480))
    rate: float = 1e-3
    warmup_steps: int = 60
    seed: int = 0
    hidden: int = 512
    layers: int = 3
    mlp: int = 512


PRESETS = {
    "cpu": Recipe(),
    "gpu": Recipe(minutes=20.0, tokens_per_batch=65536, hidden=768, layers=6, mlp=2048),
    # The bundled draft model.
    "drafter": Recipe(minutes=8.0, hidden=320, layers=2, mlp=384),
}


@dataclass
class Progress:
    """The steps, tokens and seconds of training so far, which a checkpoint stores."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def encode(sample: Sample, tokenizer: Any) -> tuple[list[int], list[float]]:
    """The token ids of the prompt and the answer, and the loss weights of the answer's tokens."""
    prompt = prompt_ids(tokenizer, sample.documents, sample.question)
    reply = [*tokenizer(sample.answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    # A copy goes from an evidence marker to a citation.
    starts, ends = (set(tokenizer.convert_tokens_to_ids(list(group))) for group in (EVIDENCE, CITATIONS))
    weights, copying = [], False
    for token in reply:
        copying = copying and token not in ends
        weights.append(1.0 if copying else DECISION_WEIGHT)
        copying = copying or token in starts
    return [*prompt, *reply], weights


def batches(
    task: QuotingTask, tokenizer: Any, recipe: Recipe, progress: Progress, limit_s: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of padded ids [B, T] and loss weights [B, T], with about `tokens_per_batch` tokens each."""
    rng = random.Random(recipe.seed + progress.step)
    while True:
        done = progress.seconds / limit_s
        # The limit of the last stage that has started.
        max_words = [words for start, words in recipe.stages if start <= done][-1]
        rows: list[tuple[list[int], list[float]]] = []
        longest = 0
        while True:
            row = encode(task.sample(rng.randint(40, max_words)), tokenizer)
            if len(row[0]) > MAX_SAMPLE_TOKENS:
                continue
            longest = max(longest, len(row[0]))
            rows.append(row)
            if longest * (len(rows) + 1) > recipe.tokens_per_batch:
                break
        ids = [torch.tensor(tokens) for tokens, _ in rows]
        # The prompt's tokens have no weight.
        weights = [
            torch.tensor([0.0] * (len(tokens) - len(reply_weights)) + reply_weights) for tokens, reply_weights in rows
        ]
        yield pad_sequence(ids, True, tokenizer.pad_token_id), pad_sequence(weights, True)  # True: [B, T], not [T, B]


def trained_parameters(model: LlamaForCausalLM) -> list[torch.nn.Parameter]:
    """Freeze the copying circuit; returns all other parameters."""
    for parameter in circuit_parameters(model):
        parameter.requires_grad_(False)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def rate_share(step: int, done: float, recipe: Recipe) -> float:
    """The learning rate as a share of its peak: a linear warm-up, then constant, then a cosine to zero.

    The cosine takes the last two thirds of the time. `done` is the share of the time that has passed.
    """
    decay = min(1.0, max(0.0, (done - 1 / 3) * 1.5))
    return min(1.0, (step + 1) / recipe.warmup_steps) * 0.5 * (1 + math.cos(math.pi * decay))


def loss_of(model: LlamaForCausalLM, ids: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean cross-entropy in nats; logits are computed only for tokens with a positive weight."""
    targets, weights = ids[:, 1:], weights[:, 1:]
    scored = weights > 0
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][scored])
    losses = functional.cross_entropy(logits.float(), targets[scored], reduction="none")
    return (losses * weights[scored]).sum() / weights[scored].sum()


def new_model(tokenizer: Any, recipe: Recipe) -> LlamaForCausalLM:
    """A model with the copying circuit, before training. Its vocabulary is padded to a multiple of 64."""
    marker_ids = dict(zip(SEGMENT_MARKERS, tokenizer.convert_tokens_to_ids(list(SEGMENT_MARKERS)), strict=True))
    evidence = tuple(marker_ids.pop(text) for text in EVIDENCE)
    markers = Markers(evidence, marker_ids.pop(QUESTION), marker_ids.pop(ANSWER), tuple(marker_ids.values()))
    size = (len(tokenizer) + 63) // 64 * 64
    config = tiny_config(size, tokenizer.eos_token_id, hidden=recipe.hidden, layers=recipe.layers, mlp=recipe.mlp)
    return build_model(config, markers, recipe.seed)


def train(sources: list[Source], folder: Path, recipe: Recipe, device: str = "cpu") -> None:
    """Train in `folder`, which contains the tokenizer; resume from its checkpoint if there is one."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = new_model(tokenizer, recipe).to(device)
    optimizer = torch.optim.AdamW(trained_parameters(model), betas=(0.9, 0.95), weight_decay=0.01)
    progress = _resume(folder, model, optimizer)
    task = QuotingTask(sources, recipe.seed + progress.step)
    limit_s = recipe.minutes * 60
    average, saved_s = None, progress.seconds
    for ids, weights in batches(task, tokenizer, recipe, progress, limit_s):
        began = time.perf_counter()
        rate = recipe.rate * rate_share(progress.step, progress.seconds / limit_s, recipe)
        loss = update(model, optimizer, rate, loss_of(model, ids.to(device), weights.to(device)))
        average = loss if average is None else 0.95 * average + 0.05 * loss
        progress.step += 1
        progress.tokens += ids.numel()
        progress.seconds += time.perf_counter() - began
        finished = progress.seconds >= limit_s
        if finished or progress.step % 20 == 0:
            _report(folder, progress, average, limit_s)
        # A checkpoint every two minutes.
        if finished or progress.seconds - saved_s > 120:
            saved_s = progress.seconds
            _save(folder, model, optimizer, progress, recipe)
        if finished:
            return


def update(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, rate: float, loss: Tensor) -> float:
    """Do one optimiser step at learning rate `rate`, with clipped gradients; returns the loss as a float."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def _report(folder: Path, progress: Progress, average: float, limit_s: float) -> None:
    """Print the progress and append it to losses.jsonl."""
    row = {**asdict(progress), "seconds": round(progress.seconds), "loss": round(average, 4)}
    with (folder / "losses.jsonl").open("a") as log:
        log.write(json.dumps(row) + "\n")
    print(
        f"step {progress.step}  {progress.seconds / 60:.1f}/{limit_s / 60:.0f} min  "
        f"{progress.tokens / 1e6:.2f}M tokens  {progress.tokens / progress.seconds:.0f} tokens/s  loss {average:.4f}",
        flush=True,
    )


def _save(folder: Path, model: LlamaForCausalLM, optimizer: Any, progress: Progress, recipe: Recipe) -> None:
    """Write the checkpoint atomically."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": asdict(progress),
        "recipe": asdict(recipe),
        "config": model.config.to_dict(),
    }
    target = folder / CHECKPOINT
    torch.save(state, target.with_suffix(".new"))
    target.with_suffix(".new").replace(target)


def _resume(folder: Path, model: LlamaForCausalLM, optimizer: Any) -> Progress:
    """Load the folder's checkpoint, if there is one, and return its progress."""
    state = read_checkpoint(folder)
    if state is None:
        return Progress()
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(**state["progress"])


def read_checkpoint(work: Path) -> dict[str, Any] | None:
    """The checkpoint of a training folder, if any."""
    path = work / CHECKPOINT
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def load_checkpoint(work: Path) -> LlamaForCausalLM:
    """The model in a training folder's checkpoint. Raises InputError if there is none."""
    state = read_checkpoint(work)
    if state is None:
        raise InputError(f"{work} holds no checkpoint; train first.")
    model = LlamaForCausalLM(LlamaConfig.from_dict(state["config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def export(work: Path, out: Path) -> None:
    """Write the config, bfloat16 weights and tokenizer of a training folder to `out`."""
    model = load_checkpoint(work).to(torch.bfloat16)
    model.save_pretrained(out, max_shard_size=MAX_SHARD)
    AutoTokenizer.from_pretrained(work, trust_remote_code=False).save_pretrained(out)
