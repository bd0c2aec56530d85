"""The character-level example: a character tokenizer and a small Llama trained on a folder of documents.

The example reproduces the setting of "Adding Trigram to Speculative Decoding", where bigram and trigram drafts are
sampled and compared. With only 65 symbols the trigram table is dense, and smoothing leaves its rows informative.
"""

from __future__ import annotations

import json
import math
import string
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specrace.core.errors import InputError
from specrace.retrieval.documents import read_documents
from specrace.tiny.train import update
from specrace.tiny.vocabulary import wrap_tokenizer

END = "<|end|>"
# The symbols besides capitals and END.
PLAIN = "\n .,'-:?0123456789abcdefghijklmnopqrstuvwxyz"
# With PLAIN and END, 65 symbols.
NUM_CAPITALS = 20
# The model's context length, in characters.
CONTEXT = 1536
# One document in this many is held out.
HELD_OUT_EVERY = 12


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run. A stage is (share of the run at which it starts, rows, characters per row)."""

    minutes: float = 3.0
    stages: tuple[tuple[float, int, int], ...] = ((0.0, 12, 128), (0.6, 6, 256), (0.88, 2, 1024))
    rate: float = 4e-3
    warmup_steps: int = 20
    seed: int = 0
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    mlp: int = 352


def character_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """65 symbols: lower-case letters, digits, punctuation, space, newline, the 20 commonest capitals, and the end.

    Capitals are counted in `texts`. Accents are stripped, rarer capitals become lower-case, and any other character
    becomes a space.
    """
    counts = Counter("".join(texts))
    capitals = sorted(string.ascii_uppercase, key=lambda letter: -counts[letter])
    frequent = sorted(capitals[:NUM_CAPITALS])
    tokenizer = Tokenizer(
        models.WordLevel({letter: number for number, letter in enumerate([*PLAIN, *frequent])}, unk_token=" ")
    )
    folds: list[Any] = [normalizers.Replace(letter, letter.lower()) for letter in sorted(capitals[NUM_CAPITALS:])]
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Replace(Regex('[‘’“”"`]'), "'"),
            normalizers.Replace(Regex("[‐-―]"), "-"),
            *folds,
            normalizers.Replace(Regex(f"[^{''.join(frequent)}a-z0-9\\n .,'\\-:?]"), " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    return wrap_tokenizer(tokenizer, END, CONTEXT)


def character_model(vocab_size: int, end: int, recipe: Recipe) -> LlamaForCausalLM:
    """A Llama with about 0.6 million parameters and tied embeddings."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
        initializer_range=recipe.hidden**-0.5 / 2,
    )
    return LlamaForCausalLM(config)


def windows(documents: Sequence[Tensor], rows: int, length: int, random: torch.Generator) -> Tensor:
    """Ids [rows, length + 1] from random positions in the documents, which are joined in random order."""
    order = torch.randperm(len(documents), generator=random).tolist()
    text = torch.cat([documents[number] for number in order])
    starts = torch.randint(len(text) - length, (rows,), generator=random).tolist()
    return torch.stack([text[start : start + length + 1] for start in starts])


def batches(documents: Sequence[Tensor], recipe: Recipe) -> Iterator[tuple[Tensor, float]]:
    """Yield windows of text, each with its share of the peak learning rate, until the recipe's time is over.

    The share rises linearly over the warm-up steps, and falls to zero along a cosine.
    """
    random = torch.Generator().manual_seed(recipe.seed)
    max_length = sum(map(len, documents)) - 1
    began, step = time.perf_counter(), 0
    # `done` is the share of the recipe's time that has passed.
    while (done := (time.perf_counter() - began) / (60 * recipe.minutes)) < 1:
        # The last stage that has started.
        rows, length = [stage[1:] for stage in recipe.stages if stage[0] <= done][-1]
        share = min(1.0, (step + 1) / recipe.warmup_steps) * 0.5 * (1 + math.cos(math.pi * done))
        yield windows(documents, rows, min(length, max_length), random), share
        step += 1


def train(documents: Sequence[Tensor], model: LlamaForCausalLM, recipe: Recipe) -> dict[str, float]:
    """Train `model` on documents of ids; returns the numbers of steps and characters, and the smoothed loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.05)
    model.train()
    steps = characters = 0
    # The smoothed loss begins with that of a model to which all symbols are equally likely.
    average = math.log(model.config.vocab_size)
    for ids, share in batches(documents, recipe):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        average = 0.98 * average + 0.02 * update(model, optimizer, recipe.rate * share, loss)
        steps, characters = steps + 1, characters + ids[:, 1:].numel()
        if steps % 50 == 0:
            print(f"step {steps}  {characters / 1e6:.2f}M characters  loss {average:.3f}", flush=True)
    model.eval()
    return {"steps": steps, "characters": characters, "training_loss": round(average, 4)}


@torch.inference_mode()
def loss_on(model: LlamaForCausalLM, documents: Sequence[Tensor]) -> float:
    """The mean cross-entropy, in nats per character, over the first CONTEXT characters of each document."""
    total = count = 0.0
    for document in documents:
        ids = document[: CONTEXT + 1]
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0]
        total += float(functional.cross_entropy(logits, ids[1:], reduction="sum"))
        count += len(ids) - 1
    return total / count


def main(text: Path, out: Path, *, minutes: float, seed: int) -> None:
    """Train on the documents in `text`; write the tokenizer and the bfloat16 model to `out`.

    Prints the loss on held-out documents. Raises InputError for too little text.
    """
    texts = [document.text for document in read_documents([text])]
    training = [content for number, content in enumerate(texts) if number % HELD_OUT_EVERY]
    held_out = texts[::HELD_OUT_EVERY]
    if sum(map(len, training)) < 1000:
        raise InputError(f"{text} holds too little text to train on; give a folder of two documents or more.")
    tokenizer = character_tokenizer(texts)
    training_ids, held_out_ids = (
        [torch.tensor(tokenizer(f"{content}{END}")["input_ids"]) for content in part] for part in (training, held_out)
    )
    recipe = Recipe(minutes=minutes, seed=seed)
    model = character_model(len(tokenizer), tokenizer.eos_token_id, recipe)
    summary: dict[str, Any] = train(training_ids, model, recipe)
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    held_out_loss = round(loss_on(model.float(), held_out_ids), 4)
    summary |= {"parameters": model.num_parameters(), "symbols": len(tokenizer), "held_out_loss": held_out_loss}
    print(json.dumps(summary))
