"""Training: quoting samples through a model that starts with the copying circuit."""

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
from transformers import AutoTokenizer, LlamaForCausalLM

from specrace.tiny.circuit import build_model, keep_parts_apart, tiny_config, token_part
from specrace.tiny.quoting import QuotingTask, Sample, Source
from specrace.tiny.vocabulary import ANSWER, SEGMENT_MARKERS, prompt_ids


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Stages are (share of the run after which it starts, most words in the passages, share of the context's tokens that
    are scored). Scoring the context teaches words; later it would drown what the answers still have to teach.
    """

    minutes: float = 90.0
    tokens_per_batch: int = 4096
    stages: tuple[tuple[float, int, float], ...] = (
        (0.0, 130, 0.15),
        (0.08, 240, 0.15),
        (0.25, 480, 0.15),
        (0.36, 480, 0.01),
    )
    rate: float = 2e-3
    circuit_rate: float = 3e-5
    embedding_rate: float = 5e-4
    warmup_steps: int = 60
    seed: int = 0
    hidden: int = 512
    layers: int = 3
    mlp: int = 512


PRESETS = {
    "cpu": Recipe(),
    "gpu": Recipe(minutes=20.0, tokens_per_batch=65536, hidden=768, layers=6, mlp=2048, rate=1e-3),
}


@dataclass
class Progress:
    """What a checkpoint remembers beside the weights."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def encode(sample: Sample, tokenizer: Any) -> tuple[list[int], int]:
    """The sample's token ids and where its answer starts."""
    prompt = prompt_ids(tokenizer, sample.documents, sample.question)
    reply = tokenizer(sample.answer, add_special_tokens=False)["input_ids"]
    return [*prompt, *reply, tokenizer.eos_token_id], len(prompt)


def batches(
    task: QuotingTask, tokenizer: Any, recipe: Recipe, progress: Progress, limit: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Padded ids [B, T] and a mask [B, T] of the tokens that are scored, of about `tokens_per_batch` tokens each."""
    chance = random.Random(recipe.seed + progress.step)
    while True:
        done = progress.seconds / limit
        max_words, share = [stage[1:] for stage in recipe.stages if stage[0] <= done][-1]
        rows: list[tuple[list[int], int]] = []
        longest = 0
        while True:
            row = encode(task.sample(chance.randint(40, max_words)), tokenizer)
            if len(row[0]) > 1500:
                continue
            longest = max(longest, len(row[0]))
            rows.append(row)
            if longest * (len(rows) + 1) > recipe.tokens_per_batch:
                break
        ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
        scored = torch.zeros(len(rows), longest, dtype=torch.bool)
        for number, (tokens, start) in enumerate(rows):
            ids[number, : len(tokens)] = torch.tensor(tokens)
            scored[number, 1:start] = torch.rand(start - 1) < share
            scored[number, start : len(tokens)] = True
        yield ids, scored


def parameter_groups(model: LlamaForCausalLM, recipe: Recipe) -> list[dict[str, Any]]:
    """The circuit learns slowly, embeddings less so, everything else fast; what the circuit fetches with is fixed."""
    first, second = model.model.layers[0], model.model.layers[1]
    for parameter in (*first.self_attn.parameters(), *first.input_layernorm.parameters()):
        parameter.requires_grad_(False)
    embedding = model.model.embed_tokens.weight
    circuit = [*second.self_attn.parameters(), *second.input_layernorm.parameters()]
    slow = {id(parameter) for parameter in (embedding, *circuit)}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in slow]
    return [
        {"params": circuit, "peak": recipe.circuit_rate},
        {"params": [embedding], "peak": recipe.embedding_rate},
        {"params": rest, "peak": recipe.rate},
    ]


def learning_rate(step: int, done: float, recipe: Recipe) -> float:
    """Share of the peak rate: linear warm-up, constant, and a cosine to zero over the last two thirds."""
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    decay = max(0.0, (done - 1 / 3) * 1.5)
    return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, decay)))


def loss_of(model: LlamaForCausalLM, ids: Tensor, scored: Tensor) -> Tensor:
    """Mean cross-entropy, in nats, of the scored tokens."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][scored[:, 1:]])
    return functional.cross_entropy(logits.float(), ids[:, 1:][scored[:, 1:]])


def train(sources: list[Source], folder: Path, recipe: Recipe, device: str = "cpu") -> None:
    """Train into `folder` (which holds the tokenizer), resuming from its checkpoint when there is one."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    markers = [tokenizer.convert_tokens_to_ids(text) for text in SEGMENT_MARKERS]
    vocabulary = (len(tokenizer) + 63) // 64 * 64
    config = tiny_config(
        vocabulary, eos_token_id=tokenizer.eos_token_id, hidden=recipe.hidden, layers=recipe.layers, mlp=recipe.mlp
    )
    model = build_model(config, markers, markers[SEGMENT_MARKERS.index(ANSWER)], recipe.seed).to(device)
    tokens = token_part(config, recipe.seed).to(device)
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe), betas=(0.9, 0.95), weight_decay=0.01)
    progress = _resume(folder, model, optimizer)
    torch.manual_seed(recipe.seed + progress.step)
    task = QuotingTask(sources, recipe.seed + progress.step)
    limit = recipe.minutes * 60
    average = None
    saved = progress.seconds
    for ids, scored in batches(task, tokenizer, recipe, progress, limit):
        began = time.perf_counter()
        done = progress.seconds / limit
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * learning_rate(progress.step, done, recipe)
        loss = loss_of(model, ids.to(device), scored.to(device))
        loss.backward()
        # The markers' embeddings are part of the circuit: their codes must stay what layer 1 compares with.
        model.model.embed_tokens.weight.grad[markers] = 0
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        keep_parts_apart(model, tokens)
        value = loss.item()
        average = value if average is None else 0.95 * average + 0.05 * value
        progress.step += 1
        progress.tokens += ids.numel()
        progress.seconds += time.perf_counter() - began
        finished = progress.seconds >= limit
        if finished or progress.step % 20 == 0:
            _report(folder, progress, average, limit)
        if finished or progress.seconds - saved > 120:
            saved = progress.seconds
            _save(folder, model, optimizer, progress, recipe)
        if finished:
            return


def _report(folder: Path, progress: Progress, average: float, limit: float) -> None:
    row = {
        "step": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds),
        "loss": round(average, 4),
    }
    with (folder / "losses.jsonl").open("a") as log:
        log.write(json.dumps(row) + "\n")
    print(
        f"step {progress.step}  {progress.seconds / 60:.1f}/{limit / 60:.0f} min  {progress.tokens / 1e6:.2f}M tokens  "
        f"{progress.tokens / progress.seconds:.0f} tokens/s  loss {average:.4f}",
        flush=True,
    )


def _save(folder: Path, model: LlamaForCausalLM, optimizer: Any, progress: Progress, recipe: Recipe) -> None:
    """The latest checkpoint, written whole or not at all."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": asdict(progress),
        "recipe": asdict(recipe),
        "config": model.config.to_dict(),
    }
    target = folder / "checkpoint.pt"
    torch.save(state, target.with_suffix(".new"))
    target.with_suffix(".new").replace(target)


def _resume(folder: Path, model: LlamaForCausalLM, optimizer: Any) -> Progress:
    path = folder / "checkpoint.pt"
    if not path.exists():
        return Progress()
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(**state["progress"])
