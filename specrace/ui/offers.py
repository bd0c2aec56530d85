"""What the page offers when it opens: models to choose from, and questions to try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from specrace.core.bundled import ASSETS, CORPUS, QUESTIONS
from specrace.ui.config import ServerConfig

# The questions that the page shows first, if they are in the bundled list: two on drafting, two on other subjects.
FIRST_QUESTIONS = (
    "What is the n-gram trie built from?",
    "Explain how Jacobi decoding works.",
    "Why does bread rise?",
    "What causes the tides?",
)


def offered_models(config: ServerConfig) -> dict[str, str | Path]:
    """Name -> folder or hub id of the models on offer: the default, then those of --models or else the bundled ones.

    A folder is offered under its name; if several have the same name, with as many parent folders as tell them apart.
    """
    bundled = [str(path.parent) for path in sorted(ASSETS.glob("*/config.json"))]
    source = config.model.source
    # A model that is still to be fetched has only its short name.
    default = source.name if source.is_missing else str(source.location)
    models = [default, *(bundled if config.models is None else config.models)]
    unique: dict[Path, str] = {}
    for model in models:
        # The same folder may be written in several ways.
        unique.setdefault(Path(model).resolve(), model)
    paths = [Path(model).absolute().parts if Path(model).exists() else (model,) for model in unique.values()]
    return {_shortest_unique_end(path, paths): model for path, model in zip(paths, unique.values(), strict=True)}


def _shortest_unique_end(path: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> str:
    """The shortest end of a path, in whole folders, that no other path has; the whole path if there is none.

    `paths` are all paths, split into folders.
    """
    for count in range(1, len(path)):
        end = path[-count:]
        if sum(other[-count:] == end for other in paths) == 1:
            return str(Path(*end))
    return str(Path(*path))


def example_questions(config: ServerConfig) -> list[str]:
    """Questions that the bundled documents answer; none for other documents."""
    if config.index or config.corpus.resolve() != CORPUS or not QUESTIONS.is_file():
        return []
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines if line.strip()]
    first = [question for question in FIRST_QUESTIONS if question in questions]
    return first + [question for question in questions if question not in first]
