"""`python -m specrace.tiny prepare|train|evaluate|export|characters|adapter`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from specrace.core.errors import InputError
from specrace.tiny import characters, evaluate
from specrace.tiny.adapter_data import read_passages
from specrace.tiny.adapter_train import AdapterRecipe, AdapterRun
from specrace.tiny.quoting import read_sources, split_titles
from specrace.tiny.train import PRESETS, export, train
from specrace.tiny.vocabulary import tokenizer_text, train_tokenizer


def parser() -> argparse.ArgumentParser:
    """The command line; each command sets `run`, the function to call with the options."""
    root = argparse.ArgumentParser(prog="python -m specrace.tiny", description=__doc__)
    commands = root.add_subparsers(required=True)

    def add(name: str, run: Callable[[argparse.Namespace], object], summary: str) -> Callable[..., argparse.Action]:
        """Add a command with the arguments that it shares with others; returns the method that adds its own."""
        command = commands.add_parser(name, help=summary)
        command.set_defaults(run=run)
        if name not in ("characters", "adapter"):
            command.add_argument("--work", type=Path, default=Path("build/tiny"), help="working folder")
        if name in ("prepare", "train", "evaluate", "adapter"):
            command.add_argument("--text", type=Path, required=True, help="a .jsonl[.gz] of {title, text}, or a folder")
        return command.add_argument

    add("prepare", _prepare, "learn the tokenizer from the training text")
    argument = add("train", _train, "train, or resume from the checkpoint; prepares first if necessary")
    argument("--preset", choices=sorted(PRESETS), default="cpu")
    argument("--minutes", type=float)
    argument("--seed", type=int, default=0)
    argument("--threads", type=int, default=torch.get_num_threads())
    argument = add("evaluate", _evaluate, "measure on held-out text")
    argument("--model", type=Path, help="a model folder; default: the checkpoint in --work")
    argument("--samples", type=int, default=60)
    argument("--seed", type=int, default=0, help="for the random passages and questions")
    argument("--json", action="store_true")
    argument = add(
        "export", lambda options: export(options.work, options.out), "write an ordinary Hugging Face model folder"
    )
    argument("--out", type=Path, required=True)
    argument = add("characters", _characters, "train the character-level example into a model folder")
    argument("--text", type=Path, required=True, help="a folder of .md and .txt files")
    argument("--out", type=Path, required=True)
    argument("--minutes", type=float, default=3.0)
    argument("--seed", type=int, default=0)
    argument = add("adapter", _adapter, "train a LoRA adapter that answers from passages, or resume")
    argument("--base", type=Path, required=True, help="the folder of the chat model to adapt")
    argument("--out", type=Path, default=Path("build/adapter"), help="where to write the adapter and its checkpoint")
    argument("--minutes", type=float, default=AdapterRecipe.minutes)
    argument("--seed", type=int, default=0)
    argument("--threads", type=int, default=torch.get_num_threads())
    return root


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 for success, 2 for bad input."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _prepare(options: argparse.Namespace) -> None:
    training, _ = split_titles(read_sources(options.text))
    train_tokenizer(tokenizer_text(training)).save_pretrained(options.work)


def _train(options: argparse.Namespace) -> None:
    if not (options.work / "tokenizer.json").exists():
        _prepare(options)
    torch.set_num_threads(options.threads)
    recipe = replace(PRESETS[options.preset], seed=options.seed)
    recipe = replace(recipe, minutes=options.minutes or recipe.minutes)
    training, _ = split_titles(read_sources(options.text))
    train(training, options.work, recipe, "cuda" if torch.cuda.is_available() else "cpu")


def _evaluate(options: argparse.Namespace) -> None:
    evaluate.main(
        options.model, options.work, options.text, samples=options.samples, seed=options.seed, as_json=options.json
    )


def _characters(options: argparse.Namespace) -> None:
    characters.main(options.text, options.out, minutes=options.minutes, seed=options.seed)


def _adapter(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    training, held_out = split_titles(read_passages(options.text))
    recipe = AdapterRecipe(options.minutes, seed=options.seed)
    AdapterRun(options.base, options.out, recipe).train(training, held_out)


if __name__ == "__main__":
    sys.exit(main())
