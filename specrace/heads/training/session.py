"""The work on one head in one folder: the target's data in `data/`, a kind's checkpoint and head in `KIND/`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from specrace.core.errors import InputError, shorten
from specrace.heads.modules.space import SpaceTarget
from specrace.heads.training.evaluation import Acceptance, measure
from specrace.heads.training.export import Figures, TrainedHead, card, export, export_target
from specrace.heads.training.questions import Overlap, bench_questions, read_questions
from specrace.heads.training.shards import DataDescription, DataMaker, DataRecipe, open_shards, read_description
from specrace.heads.training.shortlist import coverage
from specrace.heads.training.trainer import CHECKPOINT, HeadRecipe, HeadRun, TargetParts
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.weights.fingerprint import fingerprint

# Passages with fewer words have too little to ask about (a guess).
MIN_PASSAGE_WORDS = 20
# How many drafts deep the acceptance is measured: one deeper than heads are trained by default.
DEPTHS = 4


@dataclass(frozen=True)
class WorkSettings:
    """The target by name and adapter, the working folder, and the kind of head."""

    model: str
    adapter: str
    folder: Path
    kind: str


class HeadWork:
    """What the commands of `python -m specrace.heads` do. The target is loaded when it is first needed."""

    def __init__(self, settings: WorkSettings) -> None:
        self.settings = settings
        self.data, self.run_folder = settings.folder / "data", settings.folder / settings.kind

    @cached_property
    def target(self) -> Target:
        """The target in bfloat16, in which it writes answers about five times as fast as in float32."""
        return load_target(
            self.settings.model, adapter=self.settings.adapter, dtype="bfloat16", graphs=False, ready=False
        )

    @cached_property
    def parts(self) -> TargetParts:
        """What training needs of the target, in float32."""
        model = self.target.model
        return TargetParts(
            model.config,
            model.get_input_embeddings().weight.detach().float(),
            model.get_output_embeddings().weight.detach().float(),
            tuple(self.target.eos_ids),
            model,
        )

    def make_data(
        self, text: Path | None, tokens: int, avoid: Sequence[Path], rows: int = DataRecipe.rows
    ) -> Iterator[str]:
        """Make the shards that are missing; yields lines of progress. Without `text`, no question is about a passage.

        `tokens`: how many answer tokens there shall be; `avoid`: files of questions to which none may be similar;
        `rows`: the number of questions in a shard.
        """
        target, last = self.target, self.target.model.config.num_hidden_layers
        # The levels that EAGLE-3 reads, and the one after the final norm.
        levels = tuple(sorted({min(2, last - 1), last // 2, max(last - 3, 0)})) + (last,)
        description = DataDescription(target.name, fingerprint(target.model), levels, DataRecipe(tokens, rows=rows))
        passages = [] if text is None else _read_passages(text)
        overlap = Overlap([*bench_questions(), *read_questions(avoid)])
        yield from DataMaker(target, self.data, description, passages, overlap).run()

    def _open(self, recipe: HeadRecipe, start: Path | None = None) -> HeadRun:
        """The run of a recipe on the folder's data.

        Raises InputError for data of another target, and for masks of a target whose layers see only part of the text.
        """
        if recipe.kind.startswith("space") and any(reach.is_limited for reach in self.target.reaches.values()):
            raise InputError(
                f"Layers of {self.target.name} see a part of the text only, and masks are trained for models whose "
                "layers see all of it; give another --model or --kind."
            )
        data = read_description(self.data)
        if data.fingerprint != fingerprint(self.target.model):
            raise InputError(
                f"{shorten(self.data)} has the answers of {shorten(data.target)}, not of {self.target.name}; give "
                "another folder with --work, or the same --model and --adapter."
            )
        return HeadRun(self.parts, open_shards(self.data), data.levels, self.run_folder, recipe, start)

    def train(self, recipe: HeadRecipe, start: Path | None = None) -> Iterator[dict[str, float]]:
        """Train, or go on from the checkpoint; yields rows of progress. A new run begins at the checkpoint `start`."""
        yield from self._open(recipe, start).train()

    @cached_property
    def trained(self) -> HeadRun:
        """The run of the checkpoint. Raises InputError if there is none."""
        if not (self.run_folder / CHECKPOINT).exists():
            raise InputError(
                f"There is no trained head in {shorten(self.run_folder)}; train it with: "
                "python -m specrace.heads train."
            )
        state = torch.load(self.run_folder / CHECKPOINT, weights_only=True, map_location="cpu")
        return self._open(HeadRecipe(**state["recipe"]))

    @cached_property
    def figures(self) -> Figures:
        """The acceptance on held-out answers."""
        run = self.trained

        def acceptance(wanted: Callable[[float], bool]) -> Acceptance:
            # (number of a shard, number of a conversation in it)
            places = [
                (shard, number) for shard, number in run.held_out if wanted(run.shards[shard].temperatures[number])
            ]
            batches = run.batches(places)
            return measure(run.head, batches, self.parts.embeddings, run.rows, run.shortlist, DEPTHS)

        answers = [run.answer(place) for place in run.held_out]
        total = sum(shard.num_answer_tokens for shard in run.shards)
        return Figures(
            acceptance(lambda temperature: temperature == 0),
            acceptance(lambda temperature: temperature > 0),
            coverage(answers, run.shortlist),
            total,
        )

    def evaluate(self) -> Iterator[str]:
        """Yields lines: the acceptance by depth, for greedy and for sampled answers."""
        figures = self.figures
        for name, measured in (("greedy", figures.greedy), ("sampled", figures.sampled)):
            shares = " ".join(f"{share:.3f}" for share in measured.by_depth)
            yield (
                f"{name}: accepted by depth {shares}; {measured.tokens_per_step:.2f} tokens a step with chains of "
                f"{len(measured.by_depth)}; {measured.num_tokens:,} held-out tokens"
            )
        size = len(self.trained.shortlist)
        if size < self.parts.config.vocab_size:
            yield f"the shortlist of {size:,} tokens has {figures.coverage:.1%} of the answers' tokens"

    @cached_property
    def head(self) -> TrainedHead:
        """The head of the checkpoint."""
        run = self.trained
        # A trained target is no part of the head: `export` writes it beside its masks.
        weights = run.head.state_dict().items()
        tensors = {name: tensor.detach() for name, tensor in weights if not name.startswith("model.")}
        return TrainedHead(tensors, run.shortlist, run.recipe, run.progress, read_description(self.data))

    def export(self, out: Path | None) -> str:
        """Write the head and its card; returns a line that says where.

        A trained target is written as a model's folder, with its masks in the folder `masks` in it.
        """
        folder = out or self.run_folder / "head"
        head, module = self.head, self.trained.head
        if isinstance(module, SpaceTarget):
            export_target(module.model, self.target.tokenizer, head, folder)
        else:
            export(head, self.parts.config, folder)
        (folder / "README.md").write_text(self.card(folder), encoding="utf-8")
        return f"wrote {folder}"

    def card(self, folder: Path | None = None) -> str:
        """The head's card; `folder`: where it was exported."""
        file = (folder or self.run_folder / "head") / "model.safetensors"
        return card(self.head, self.figures, file.stat().st_size if file.exists() else 0)


def _read_passages(file: Path) -> list[tuple[str, str]]:
    """(title, text) of the passages of a file that are long enough. Raises InputError."""
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        passages = [(str(row["title"]), str(row["text"])) for row in rows]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"The passages {shorten(file)} cannot be read ({shorten(error)}); give a .jsonl or .jsonl.gz whose lines "
            "have `title` and `text`."
        ) from error
    return [(title, text) for title, text in passages if len(text.split()) >= MIN_PASSAGE_WORDS]
