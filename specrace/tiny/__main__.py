"""`python -m specrace.tiny prepare|train|evaluate|export|answers|characters`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import torch

from specrace.core.errors import InputError


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(prog="python -m specrace.tiny", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    for name, text in (
        ("prepare", "learn the tokenizer from the training text"),
        ("train", "train, resuming from the folder's checkpoint (prepares first where that is missing)"),
        ("evaluate", "measure on held-out text"),
        ("export", "write an ordinary Hugging Face model folder"),
        ("answers", "answer a file of questions about the corpus, as Markdown for the model card"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--work", type=Path, default=Path("build/tiny"), help="working folder (ignored by git)")
        if name not in ("export", "answers"):
            command.add_argument("--text", type=Path, required=True, help="a .jsonl[.gz] of {title, text}, or a folder")
        if name == "train":
            command.add_argument("--preset", choices=("cpu", "gpu", "drafter"), default="cpu")
            command.add_argument("--minutes", type=float)
            command.add_argument("--seed", type=int, default=0)
            command.add_argument("--threads", type=int, default=torch.get_num_threads())
        if name == "evaluate":
            command.add_argument("--model", type=Path, help="a model folder; default: the checkpoint in --work")
            command.add_argument("--samples", type=int, default=60)
            command.add_argument("--seed", type=int, default=0, help="draws the passages and questions")
            command.add_argument("--json", action="store_true")
        if name == "answers":
            command.add_argument("--model", type=Path, default=Path("assets/tiny"))
            command.add_argument("--questions", type=Path, default=Path("assets/questions.jsonl"))
        if name == "export":
            command.add_argument("--out", type=Path, required=True)
    characters = commands.add_parser("characters", help="train the character-level example into a model folder")
    characters.add_argument("--text", type=Path, required=True, help="a folder of .md and .txt files")
    characters.add_argument("--out", type=Path, required=True)
    characters.add_argument("--minutes", type=float, default=3.0)
    characters.add_argument("--seed", type=int, default=0)
    return root


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 fine, 2 bad input."""
    options = parser().parse_args(arguments)
    try:
        return run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Dispatch; the modules that need a model are imported by the command that uses them."""
    if options.command == "characters":
        from specrace.tiny.characters import Recipe, build

        build(options.text, options.out, Recipe(minutes=options.minutes, seed=options.seed))
        return 0
    if options.command == "export":
        from specrace.tiny.export import export

        export(options.work, options.out)
        return 0
    if options.command == "answers":
        from specrace.tiny.answers import main as answers

        answers(options.model, options.questions)
        return 0
    from specrace.tiny.holdout import split_titles
    from specrace.tiny.quoting import read_sources

    learned, held_out = split_titles(read_sources(options.text))
    if options.command == "evaluate":
        from specrace.tiny.evaluate import main as evaluate

        evaluate(held_out, options)
        return 0
    from specrace.tiny.vocabulary import tokenizer_text, train_tokenizer

    if options.command == "prepare" or not (options.work / "tokenizer.json").exists():
        train_tokenizer(tokenizer_text(learned)).save_pretrained(options.work)
    if options.command == "train":
        from specrace.tiny.train import PRESETS, train

        torch.set_num_threads(options.threads)
        recipe = dataclasses.replace(PRESETS[options.preset], seed=options.seed)
        if options.minutes:
            recipe = dataclasses.replace(recipe, minutes=options.minutes)
        train(learned, options.work, recipe, "cuda" if torch.cuda.is_available() else "cpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
