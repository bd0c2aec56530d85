"""Which decoder-only models of the installed transformers race: `python -m tests.measure.model_zoo [--only KIND ...]`.

For each kind, a tiny model with random weights is saved, loaded as a user's model would be, and raced in float32 with
the default lanes. Each lane's text is compared with what plain `generate` writes, over `--tokens` tokens that run past
the model's window, on `--prompts` prompts at temperature 0 and 0.8. At 0.8 `generate` gets the random numbers with
which this project samples. A text may part from generate's only where one plain forward scores both tokens alike but
for float32's rounding; the table counts such near ties.

`--json FILE` keeps the results. Started again with the same `--prompts`, `--prompt-tokens` and `--tokens`, the command
examines only kinds that the file does not have. `--read FILE ...` reads kept results instead of racing, and
`--docs FILE` writes the results' lines into the table of assets/results/models.md. The command ends with 1 if any text
differs from generate's, or if anything but an InputError is raised.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import transformers
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.generate import generate
from specrace.engine.spec import DEFAULT_LANES
from specrace.model.loading import load_target
from specrace.model.sampling import Sampler
from specrace.model.target import Target
from tests.measure.tiny_configs import VOCABULARY, tiny_config
from tests.models import byte_tokenizer

TEMPERATURES = (0.0, 0.8)
MAX_PARAMETERS = 20_000_000
# More than any default lane drafts in a step.
MAX_DRAFT = 64
# Rounding in float32 may swap two scores that are this close: a forward over several rows adds up in another order than
# a forward over one row, except in the compiled decoder. At temperature 0.8 this concerns a few of 400,000 tokens.
MAX_TIE = 3e-5
# The outcomes: raced with trees or with chains only, refused with an InputError, context too short for the prompts, a
# text differs, another error was raised, and no tiny model could be made.
TREES, CHAINS, REFUSED, SHORT, DIFFERS, RAISED, NOT_MADE = (
    "trees", "chains", "refused", "short", "differs", "raised", "not made"
)  # fmt: skip
FAULTS = (DIFFERS, RAISED)


@dataclass(frozen=True)
class Row:
    """The outcome for one kind of model, with a reason if it needs one; `layers`: its kinds of layers."""

    kind: str
    model: str
    outcome: str
    reason: str = ""
    layers: tuple[str, ...] = ()
    context: int = 0
    window: int = 0
    forward: str = ""
    seconds: float = 0.0
    # (number of prompts, tokens of each prompt, new tokens).
    tried: tuple[int, int, int] = (0, 0, 0)
    # How many lanes' texts differ from generate's at a near tie.
    near_ties: int = 0


class Noise(LogitsProcessor):
    """Adds a lane's sampling noise to the scores, so that transformers' greedy choice is the token that a lane draws.

    At temperature 0 the scores stay as they are.
    """

    def __init__(self, params: SamplingParams) -> None:
        self.sampler = Sampler(params)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.sampler.perturbed(scores, [input_ids.shape[1]])


# Decoders with `is_decoder` off in their config, which otherwise marks encoders.
UNMARKED = ("gpt_neox", "gpt_neox_japanese")


def decoder_kinds() -> Iterator[tuple[str, type[Any]]]:
    """Each decoder-only kind's name and class.

    Left out are aliases of other kinds, encoders that can be used as decoders, encoder-decoders, and models that also
    read images or sound; the text part of such a model may be a kind of its own, and is then included.
    """
    for kind, name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
        has_text_kind = f"{kind}_text" in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or name.endswith("ForConditionalGeneration")
        if has_text_kind or kind not in CONFIG_MAPPING or not hasattr(transformers, name):
            continue
        config = CONFIG_MAPPING[kind]
        if config.model_type != kind:
            continue
        # These models read images or sound too, and their text part is no kind of its own.
        is_composite = any(f"{part}_config" in config.sub_configs for part in ("text", "vision", "audio"))
        if kind in UNMARKED or not (is_composite or _is_encoder(kind)):
            yield kind, getattr(transformers, name)


def _is_encoder(kind: str) -> bool:
    """Whether the default model of this kind reads its whole input at once."""
    try:
        config = CONFIG_MAPPING[kind]()
    except Exception:
        return False
    # An encoder's config has `is_decoder`, which is off unless the model is used as a decoder.
    return bool(getattr(config, "is_encoder_decoder", False)) or getattr(config, "is_decoder", True) is False


def prompts(count: int, length: int) -> list[tuple[int, ...]]:
    """Random prompts of `length` tokens whose phrases repeat, so that drafters find something to copy."""
    rng = random.Random(0)
    test_prompts = []
    for _ in range(count):
        phrases = [[rng.randrange(3, VOCABULARY - 60) for _ in range(rng.randint(2, 6))] for _ in range(4)]
        tokens: list[int] = []
        while len(tokens) < length:
            tokens += rng.choice(phrases)
        test_prompts.append(tuple(tokens[:length]))
    return test_prompts


def plain_text(model: Any, prompt: Sequence[int], params: SamplingParams, count: int) -> list[int]:
    """The `count` tokens that transformers' own `generate` writes after `prompt`."""
    ids = torch.tensor([prompt])
    processors = LogitsProcessorList([Noise(params)])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        logits_processor=processors,
        # No token has this id, so no text ends early.
        eos_token_id=-1,
        pad_token_id=0,
    )
    return list(output[0, len(prompt) :].tolist())


def race_differences(
    target: Target, lanes: Sequence[str], test_prompts: Sequence[tuple[int, ...]], count: int
) -> tuple[str, int]:
    """The first difference between a lane's text and generate's, in words, or ""; and how many near ties there were."""
    num_ties = 0
    for temperature in TEMPERATURES:
        params = SamplingParams(temperature, seed=7)
        for number, prompt in enumerate(test_prompts):
            expected = plain_text(target.model, prompt, params, count)
            for lane in lanes:
                steps = generate(target, lane, prompt, max_new_tokens=count, temperature=temperature, seed=7)
                tokens = [token for step in steps for token in step.emitted]
                if tokens == expected:
                    continue
                pairs = zip(tokens, expected, strict=True)
                first = next(index for index, (token, plain) in enumerate(pairs) if token != plain)
                gap = score_gap(target.model, [*prompt, *expected[:first]], params, tokens[first], expected[first])
                if gap > MAX_TIE:
                    where = f"token {first} of {count}, scores {gap:.2g} apart"
                    return f"{lane}, prompt {number}, temperature {temperature}: {where}", num_ties
                num_ties += 1
    return "", num_ties


@torch.inference_mode()
def score_gap(model: Any, ids: Sequence[int], params: SamplingParams, token: int, other: int) -> float:
    """How far apart two tokens' scores for the next position are in one forward over `ids`, with the sampling noise."""
    scores = Sampler(params).perturbed(model(torch.tensor([ids])).logits[0, -1:], [len(ids)])[0]
    return abs(float(scores[token] - scores[other]))


def tiny_model(kind: str, model_class: type[Any]) -> Any:
    """A tiny model of this kind with random weights. Raises ValueError for one that is not tiny, before it is made."""
    config = tiny_config(kind)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"its config takes {size:,} parameters")
    torch.manual_seed(0)
    return model_class(config).eval()


def examine(kind: str, model_class: type[Any], test_prompts: Sequence[tuple[int, ...]], count: int) -> Row:
    """Make a tiny model of this kind, load it and race it."""
    began = perf_counter()
    with tempfile.TemporaryDirectory() as parent:
        # The folder is named like the kind, because a refusal begins with the folder's name.
        folder = Path(parent) / kind
        try:
            model = tiny_model(kind, model_class)
            config = model.config
            model.save_pretrained(folder)
            byte_tokenizer().save_pretrained(folder)
        except Exception as error:
            return Row(kind, model_class.__name__, NOT_MADE, _first_line(error))
        text = config.get_text_config()
        layers = tuple(dict.fromkeys(getattr(text, "layer_types", None) or ()))
        about: dict[str, Any] = {"kind": kind, "model": model_class.__name__, "layers": layers}
        try:
            target = load_target(folder, dtype="float32", adapter="none")
            target.eos_ids = frozenset()
            about |= {"context": target.max_context, "forward": target.forward_kind}
            if target.max_context < len(test_prompts[0]) + count + MAX_DRAFT:
                return Row(**about, outcome=SHORT, reason="within its window only")
            difference, num_ties = race_differences(target, DEFAULT_LANES, test_prompts, count)
        except InputError as error:
            return Row(**about, outcome=REFUSED, reason=str(error).replace(str(folder), kind))
        except Exception as error:
            traceback.print_exc()
            return Row(**about, outcome=RAISED, reason=_first_line(error))
    outcome = DIFFERS if difference else CHAINS if target.chains_only else TREES
    return Row(**about, outcome=outcome, reason=difference, near_ties=num_ties, seconds=perf_counter() - began)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


# What the table says of an outcome, in the table's order.
WORDS = {TREES: "with trees", SHORT: "with trees", CHAINS: "on chains", REFUSED: "no", NOT_MADE: "not tried"}
WORDS |= dict.fromkeys(FAULTS, "wrongly")
HEAD = ("| kind | transformers' class | races | layers | tried | remarks |", "|---|---|---|---|---|---|")


def table_line(row: Row) -> str:
    """The row as a line of the table in assets/results/models.md."""
    layers = ", ".join(row.layers).replace("_attention", "") or "all alike"
    remark = row.reason.removeprefix(f"{row.kind} ").replace("|", " ").replace("`", "'")
    replayed = "TorchScript" in row.forward or "graphs" in row.forward
    # On chains all forwards are eager.
    remark = remark or ("" if replayed or row.outcome == CHAINS else "eager forwards")
    if row.near_ties:
        remark = "; ".join(filter(None, (remark, f"{row.near_ties} texts part at a near tie")))
    prompts, _, tokens = row.tried
    tried = f"{prompts} × {tokens}" if row.outcome in (TREES, CHAINS, *FAULTS) else ""
    return f"| {row.kind} | {row.model} | {WORDS[row.outcome]} | {layers} | {tried} | {remark} |"


def write_docs(page: Path, rows: Sequence[Row]) -> None:
    """Replace these rows' lines in the table at the end of a page; the kinds that race come first."""
    text, _, old = page.read_text(encoding="utf-8").partition("\n".join(HEAD) + "\n")
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines()}
    lines |= {row.kind: table_line(row) for row in rows}
    order = list(dict.fromkeys(WORDS.values()))
    # The third column says whether the kind races.
    table = sorted(lines.values(), key=lambda line: (order.index(line.split(" | ")[2]), line))
    page.write_text("\n".join((text.rstrip("\n"), "", *HEAD, *table, "")), encoding="utf-8")


def run(kinds: Sequence[str], test_prompts: Sequence[tuple[int, ...]], count: int, kept: Path | None) -> list[Row]:
    """Examine `kinds`, or all kinds if it is empty; print a line for each, and write all rows so far to `kept`.

    Kinds that `kept` already has, tried with the same prompts and tokens, are not examined again.
    """
    tried = len(test_prompts), len(test_prompts[0]), count
    rows = [row for row in read_rows([kept]) if row.tried == tried] if kept and kept.exists() else []
    done = {row.kind for row in rows}
    for kind, model_class in decoder_kinds():
        if kind in done or (kinds and kind not in kinds):
            continue
        row = replace(examine(kind, model_class, test_prompts, count), tried=tried)
        rows.append(row)
        print(
            f"{row.kind:24} {row.outcome:9} {row.context:7} {row.seconds:5.0f} s  {row.forward[:34]:34} {row.reason}",
            flush=True,
        )
        if kept:
            kept.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return rows


def read_rows(files: Sequence[Path]) -> list[Row]:
    """The rows that the files keep; if several files have a kind, the row of the last file."""
    rows = {}
    for file in files:
        for values in json.loads(file.read_text()):
            lists = {name: tuple(values[name]) for name in ("layers", "tried") if name in values}
            rows[values["kind"]] = Row(**values | lists)
    return list(rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--prompt-tokens", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--docs", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    if arguments.read:
        rows = read_rows(arguments.read)
    else:
        rows = run(
            arguments.only, prompts(arguments.prompts, arguments.prompt_tokens), arguments.tokens, arguments.json
        )
    if arguments.docs:
        write_docs(arguments.docs, rows)
    counts = Counter(row.outcome for row in rows)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return int(any(row.outcome in FAULTS for row in rows))


if __name__ == "__main__":
    sys.exit(main())
