"""`python -m specrace.heads data|train|evaluate|export|card`: heads of a target, trained on its own answers.

`convert` writes a head in another layout. A head's card is its README.md: what it was trained on, and its figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from specrace.core.errors import InputError
from specrace.heads.loading import convert
from specrace.heads.naming import LAYOUTS
from specrace.heads.training.session import HeadWork, WorkSettings
from specrace.heads.training.trainer import KINDS, HeadRecipe
from specrace.model.loading import load_target


def parser() -> argparse.ArgumentParser:
    """The command line. Every command sets `run`, a function of the work and the options, except `convert`.

    `convert` has neither a work folder nor a kind, so it sets `convert` instead.
    """
    root = argparse.ArgumentParser(prog="python -m specrace.heads", description=__doc__)
    commands = root.add_subparsers(required=True)

    def add(name: str, run: Callable[[HeadWork, argparse.Namespace], None], summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary)
        command.set_defaults(run=run)
        argument = command.add_argument
        argument("--model", required=True, help="the target: a name, a folder or a hub id")
        argument("--adapter", default="auto", help="the target's adapter: a folder, none, or auto")
        argument("--work", type=Path, required=True, help="the folder of data and checkpoints")
        argument("--kind", choices=sorted(KINDS), default="eagle")
        argument("--threads", type=int, default=torch.get_num_threads())
        return command

    data = add("data", _data, "let the target write answers; goes on where it stopped")
    train = add("train", _train, "make the data, train, or go on from the checkpoint; then export")
    for command in (data, train):
        command.add_argument("--text", type=Path, help="passages to ask about: a .jsonl[.gz] of {title, text}")
        command.add_argument("--tokens", type=int, default=300_000, help="how many answer tokens to make")
        command.add_argument(
            "--avoid", type=Path, action="append", default=[], help="questions that no question may share 8 words with"
        )
    _add_recipe(train)
    add("evaluate", _evaluate, "print the acceptance by depth on held-out answers")
    export = add("export", _export, "write the head of the checkpoint, with its card")
    export.add_argument("--out", type=Path, help="default: head/ beside the checkpoint")
    add("card", _card, "print the card of the checkpoint's head")
    rewrite = commands.add_parser("convert", help="write a head, also a pickle, as safetensors in a layout of its kind")
    rewrite.set_defaults(convert=True)
    rewrite.add_argument("head", help="a folder with a head, or an id in the hub's cache")
    rewrite.add_argument("--layout", required=True, choices=LAYOUTS)
    rewrite.add_argument("--out", type=Path, required=True, help="a new folder")
    rewrite.add_argument("--model", help="the target, whose output rows are written too if vllm's layout needs them")
    return root


def _add_recipe(train: argparse.ArgumentParser) -> None:
    """Add the settings of a training run."""
    train.add_argument("--epochs", type=float, default=HeadRecipe.epochs)
    train.add_argument(
        "--depths",
        type=int,
        default=HeadRecipe.depths,
        help="how long the trained chains or blocks are; for medusa and hydra the number of heads, for space of masks",
    )
    train.add_argument("--shortlist", type=int, default=HeadRecipe.shortlist, help="how many tokens the head can guess")
    train.add_argument("--rate", type=float, default=HeadRecipe.rate)
    train.add_argument("--batch-tokens", type=int, default=HeadRecipe.batch_tokens)
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--prompts", action="store_true", help="guess the tokens of prompts too, once for each question")
    train.add_argument("--start", type=Path, help="begin with the weights of this checkpoint.pt")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 for success, 2 for bad input."""
    options = parser().parse_args(arguments)
    try:
        if hasattr(options, "convert"):
            # Only the target's weights are read, so its forward is neither checked nor captured (`ready=False`).
            target = load_target(options.model, ready=False) if options.model else None
            print(convert(options.head, options.layout, options.out, target))
            return 0
        torch.set_num_threads(max(1, options.threads))
        settings = WorkSettings(options.model, options.adapter, options.work, options.kind)
        options.run(HeadWork(settings), options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _data(work: HeadWork, options: argparse.Namespace) -> None:
    for line in work.make_data(options.text, options.tokens, options.avoid):
        print(line, flush=True)


def _train(work: HeadWork, options: argparse.Namespace) -> None:
    _data(work, options)
    recipe = HeadRecipe(
        kind=options.kind,
        epochs=options.epochs,
        depths=options.depths,
        shortlist=options.shortlist,
        rate=options.rate,
        batch_tokens=options.batch_tokens,
        seed=options.seed,
        prompts=options.prompts,
    )
    for row in work.train(recipe, options.start):
        print(row, flush=True)
    _evaluate(work, options)
    print(work.export(out=None))


def _evaluate(work: HeadWork, options: argparse.Namespace) -> None:
    del options
    for line in work.evaluate():
        print(line, flush=True)


def _export(work: HeadWork, options: argparse.Namespace) -> None:
    print(work.export(options.out))


def _card(work: HeadWork, options: argparse.Namespace) -> None:
    del options
    print(work.card())


if __name__ == "__main__":
    sys.exit(main())
