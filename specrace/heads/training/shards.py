"""Training data: conversations with the target's hidden states, in shards that are written one after another.

So an interrupted command, run again, makes only the missing ones. A shard is a safetensors file with R conversations
of N tokens in all:

- `ids` int32 [N]; `starts` int64 [R+1]: where each conversation begins, and N;
- `answers` int32 [R]: where each conversation's answer begins, which is the number of tokens of its prompt;
- `temperatures` float32 [R]: at which each answer was drawn;
- `level.I` bfloat16 [N-R, d]: the states at level I, which enter layer I or, at the last level, come from the final
  norm; of all tokens but each conversation's last.

Its metadata has the questions. `data.json` beside the shards says which target wrote the answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.training.generation import Generated, generate
from specrace.heads.training.questions import Overlap, make_up, open_prompt, passage_prompts
from specrace.retrieval.prompt import choose_style

DESCRIPTION = "data.json"
# One shard in this many has requests about passages. It takes longer to make, so it has fewer questions: this share.
# These numbers, the surplus below and the defaults of `DataRecipe` were chosen once, and are not tuned.
PASSAGES_EVERY, FEWER = 4, 0.4
# More questions are made up than a shard needs, because some are unfinished, too short, or too like the benchmark's.
SURPLUS = 1.4
# Each question is answered once greedily, and this many times by sampling.
OPEN_SAMPLES, PASSAGE_SAMPLES = 2, 1


@dataclass(frozen=True)
class DataRecipe:
    """How much data is made, and how: about `tokens` answer tokens, to `rows` questions a shard.

    An answer has at most `max_new_tokens`; `temperature` is that of the sampled answers.
    """

    tokens: int = 300_000
    max_new_tokens: int = 128
    rows: int = 160
    temperature: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class DataDescription:
    """The target that wrote a folder's answers, and which of its states (levels) the shards hold."""

    target: str
    fingerprint: str
    levels: tuple[int, ...]
    recipe: DataRecipe


class Shard:
    """A shard's conversations; states are read from the file as they are asked for."""

    def __init__(self, file: Path) -> None:
        try:
            self._file = safe_open(file, "pt")
            self.ids: Tensor = self._file.get_tensor("ids").long()
            self.starts: list[int] = self._file.get_tensor("starts").tolist()
            self.answers: list[int] = self._file.get_tensor("answers").tolist()
            self.temperatures: list[float] = self._file.get_tensor("temperatures").tolist()
            self.questions: list[str] = json.loads(self._file.metadata()["questions"])
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise InputError(
                f"The training data {shorten(file)} cannot be read ({shorten(error)}); delete the file, and run the "
                "same command again."
            ) from error

    def __len__(self) -> int:
        return len(self.answers)

    @cached_property
    def num_answer_tokens(self) -> int:
        """The number of tokens that the target wrote."""
        return len(self.ids) - sum(self.answers)

    def conversation(self, number: int, levels: Sequence[int]) -> Generated:
        """Conversation `number` with its states at `levels`."""
        start, end = self.starts[number], self.starts[number + 1]
        # Every earlier conversation has one state fewer than tokens.
        states = [self._file.get_slice(f"level.{level}")[start - number : end - number - 1] for level in levels]
        return Generated(self.ids[start:end], self.answers[number], torch.stack(states, 1))


def open_shards(folder: Path) -> list[Shard]:
    """The shards of a folder in order. Raises InputError if there are none or one is damaged."""
    shards = [Shard(file) for file in sorted(folder.glob("shard-*.safetensors"))]
    if not shards:
        raise InputError(
            f"There is no training data in {shorten(folder)}; make it with: python -m specrace.heads data."
        )
    return shards


def read_description(folder: Path) -> DataDescription:
    """What `data.json` says. Raises InputError if it is missing or damaged."""
    try:
        values = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        recipe = DataRecipe(**values.pop("recipe"))
        return DataDescription(**{**values, "levels": tuple(values["levels"]), "recipe": recipe})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{shorten(folder / DESCRIPTION)} does not describe training data ({shorten(error)}); "
            "make the data with: python -m specrace.heads data."
        ) from error


class DataMaker:
    """Makes the missing shards of a folder with the answers of `target`.

    `passages`: (title, text) to ask about. Questions that are in `avoid` are left out.
    """

    def __init__(
        self,
        target: Any,
        folder: Path,
        description: DataDescription,
        passages: Sequence[tuple[str, str]],
        avoid: Overlap,
    ) -> None:
        self.target, self.folder, self.description = target, folder, description
        self.passages, self.avoid = passages, avoid

    def run(self) -> Iterator[str]:
        """Make shards until there are enough tokens; yields a line of progress after each."""
        recipe = self.description.recipe
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_description()
        number, num_tokens = 0, 0
        while num_tokens < recipe.tokens:
            file = self.folder / f"shard-{number:04}.safetensors"
            began, is_new = time.perf_counter(), not file.exists()
            if is_new:
                self._make(file, number)
            num_new = Shard(file).num_answer_tokens
            num_tokens += num_new
            seconds = time.perf_counter() - began
            if is_new:
                yield f"shard {number}: {num_tokens:,} of {recipe.tokens:,} tokens, {num_new / seconds:.0f} a second"
            number += 1

    def _write_description(self) -> None:
        """Write `data.json`. Raises InputError if the folder has the data of another target or recipe."""
        file = self.folder / DESCRIPTION
        if file.exists():
            existing = read_description(self.folder)
            if (existing.fingerprint, existing.levels) != (self.description.fingerprint, self.description.levels):
                raise InputError(
                    f"{shorten(self.folder)} has the answers of {shorten(existing.target)}; give another folder for "
                    f"those of {shorten(self.description.target)}."
                )
        file.write_text(json.dumps(asdict(self.description), indent=1) + "\n", encoding="utf-8")

    def _make(self, file: Path, number: int) -> None:
        recipe, target = self.description.recipe, self.target
        # Times a large number, so that different recipes do not share seeds.
        seed = recipe.seed * 1_000_003 + number
        # The second shard of every four.
        if number % PASSAGES_EVERY == 1 and self.passages:
            requests, samples = self._passage_requests(seed), PASSAGE_SAMPLES
        else:
            requests, samples = self._open_requests(seed), OPEN_SAMPLES
        if not requests:
            raise InputError(
                f"{target.name} made up no finished question for shard {number} that is unlike those to avoid; give a "
                "chat model, or fewer questions to --avoid."
            )
        temperatures = [0.0] * len(requests) + [recipe.temperature] * (samples * len(requests))
        requests = requests * (1 + samples)
        rows = generate(
            target.model,
            [prompt for _, prompt in requests],
            temperatures,
            max_new_tokens=recipe.max_new_tokens,
            ends=sorted(target.eos_ids),
            levels=self.description.levels,
            generator=torch.Generator().manual_seed(seed),
        )
        write_shard(file, rows, [question for question, _ in requests], temperatures, self.description.levels)

    def _open_requests(self, seed: int) -> list[tuple[str, tuple[int, ...]]]:
        made_up = make_up(self.target.model, self.target.tokenizer, int(self.description.recipe.rows * SURPLUS), seed)
        questions = [question for question in made_up if question not in self.avoid][: self.description.recipe.rows]
        return [(question, open_prompt(self.target.tokenizer, question)) for question in questions]

    def _passage_requests(self, seed: int) -> list[tuple[str, tuple[int, ...]]]:
        style = choose_style(self.target.tokenizer, self.target.model.config, self.target.prompt_style)
        count = max(1, int(self.description.recipe.rows * FEWER))
        requests = passage_prompts(self.target.tokenizer, self.passages, style, count, seed)
        return [(question, prompt) for question, prompt in requests if question not in self.avoid]


def write_shard(
    file: Path,
    rows: Sequence[Generated],
    questions: Sequence[str],
    temperatures: Sequence[float],
    levels: Sequence[int],
) -> None:
    """Write conversations as a shard, which appears only once it is complete."""
    lengths = torch.tensor([0, *(len(row.ids) for row in rows)])
    tensors = {
        "ids": torch.cat([row.ids for row in rows]).int(),
        "starts": lengths.cumsum(0),
        "answers": torch.tensor([row.start for row in rows], dtype=torch.int32),
        "temperatures": torch.tensor(temperatures),
    }
    for number, level in enumerate(levels):
        tensors[f"level.{level}"] = torch.cat([row.features[:, number] for row in rows]).to(torch.bfloat16)
    part = file.with_suffix(".part")
    save_file(tensors, part, {"questions": json.dumps(list(questions))})
    part.replace(file)
