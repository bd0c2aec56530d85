"""A recommendation as plain sentences with their evidence, and as what to paste into each engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from specrace.drafters import find_method
from specrace.lab.exports import ENGINES, Choice, Engine
from specrace.lab.exports.profile import speculation_profile
from specrace.lab.recommend import Recommender, closest, losers, silent, stops_at
from specrace.lab.sweep import SIZES

# Names of options below which no match or draft is made.
MINIMUM = re.compile(r"min|match$|size_n$|shortest")


def sentences(found: Recommender, curve_words: str, sample: Recommender | None = None) -> Iterator[str]:
    """The recommendation; `curve_words` say where the cost curve comes from.

    `sample`: all settings on a sample of the requests, where `found` has only the best of these.
    """
    requests, row = found.counted, found.recommendation()
    tokens = sum(found.sweep.requests[number].output_tokens for number in requests)
    batch = f", in batches of {found.batch}," if found.batch > 1 else ""
    evidence = f"On these {len(requests)} requests ({tokens:,} output tokens){batch}"
    if found.chosen == 0:
        best = found.recommendation(found.best)
        yield (
            f"{evidence} no lane is reliably faster than no drafting: the best, {_words(best)}, "
            f"yields {best['tau']:.2f} tokens a step and a speedup of {_range(best, 'speedup')}. Do not draft."
        )
    else:
        yield (
            f"{evidence} {_words(row)} yields {row['tau']:.2f} tokens a step "
            f"({row['tau_low']:.2f} to {row['tau_high']:.2f}), a speedup of {_range(row, 'speedup')}."
        )
    yield f"Costs: {curve_words}."
    yield from _batches(found)
    where = ""
    if sample is not None:
        where = f" on {len(sample.counted)} requests"
        left = len(found.lanes) - 1
        were = f"best {left} were" if left > 1 else "best was"
        yield f"Of {len(sample.lanes) - 1} settings tried{where} the {were} scored on {len(requests)}."
    if lost := losers(sample or found):
        yield f"Slower than no drafts with every setting{where}: {', '.join(lost)}."
    yield from _silent(sample or found, where)
    yield from _groups(found)


def _silent(found: Recommender, where: str = "") -> Iterator[str]:
    """A sentence for each lane that hardly drafts, about the first such settings of it that were swept."""
    rows = [(found.lane(number), number, drafting) for number, drafting in silent(found)]
    for name in dict.fromkeys(lane.name for lane, *_ in rows):
        (lane, number, drafting), *others = (row for row in rows if row[0].name == name)
        least = ", ".join(f"{key} {value}" for key, value in lane.options.items() if MINIMUM.search(key) and value)
        why = f": hardly a match reaches {least}" if least else ""
        more = f", and with {len(others)} more settings on as few" if others else ""
        share = f"{100 * drafting:.1f} % of the steps{where}"
        yield f"{name} with {found.sweep.words(number)} drafts on {share}{why}{more}."


def _batches(found: Recommender) -> Iterator[str]:
    if found.chosen == 0:
        return
    stop = stops_at(found)
    own = next(row["speedup"] for row in found.batches if row["batch"] == found.batch)
    others = [row for row in found.batches if row["batch"] != found.batch]
    speedups = ", ".join(f"{row['speedup']:.2f}x at {row['batch']}" for row in others)
    less = found.batch == 1 and all(row["speedup"] < own for row in others)
    head = "In batches it pays less" if less else "At other batch sizes"
    end = f"; from a batch of {stop} on it no longer pays" if stop else ""
    yield f"{head}: {speedups}{end}."


def _groups(found: Recommender) -> Iterator[str]:
    if len(found.groups) < 2:
        return
    for group in found.groups:
        head = f"On the {group['requests']} requests of '{group['category']}'"
        best = group["best"]
        if group["advice"] == "switch drafting off" and found.chosen:
            yield f"{head} nothing pays ({group['speedup']:.2f}x): switch it off there."
        elif group["advice"] == "not certain" and found.chosen:
            yield f"{head} it does not pay ({group['speedup']:.2f}x), and no other lane is reliably faster."
        elif group["advice"] in ("use another lane", "use other settings"):
            yield f"{head} {_words(best)} pays ({_range(best, 'speedup')}): use it there."


def _words(row: Mapping[str, Any]) -> str:
    """A row's lane with its options that are not its defaults, and its draft size."""
    usual = find_method(row["lane"]).defaults("cuda")
    shown = {name: value for name, value in row["options"].items() if name not in SIZES and value != usual[name]}
    options = " ".join(f"{name}={_short(value)}" for name, value in shown.items())
    return f"{row['lane']} ({options + ', ' if options else ''}up to {row['num_draft']} draft tokens)"


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}x ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def report(found: Recommender, text: Sequence[str], engine: str | None) -> dict[str, Any]:
    """The recommendation as JSON, its exports those of one engine or of all; `text`: its sentences."""
    chosen = exports(found)
    return {
        "recommendation": found.recommendation(),
        "groups": found.groups,
        "exports": {name: made for name, made in chosen.items() if engine in (None, name)},
        "profile": found.profile(),
        "not_tested": found.not_tested,
        "text": list(text),
        "batches": found.batches,
        "requests": len(found.counted),
        "looping": found.looping,
        "settings": {
            "seed": found.seed,
            "batch": found.batch,
            "cost_curve": found.curve.as_json(),
            "keep_outputs": found.sweep.keep_outputs,
        },
    }


def exports(found: Recommender) -> dict[str, dict[str, Any] | None]:
    """What to paste, by engine, for the lane of it that was best; None where none of its lanes was swept.

    The recommended lane itself where the engine has it.
    """
    return {name: _export(found, engine) for name, engine in ENGINES.items()}


def _export(found: Recommender, engine: Engine) -> dict[str, Any] | None:
    number = exported(found, engine)
    if number is None:
        return None
    made, row = engine.export(choice(found, number)), found.recommendation(number)
    figures = {name: row[name] for name in ("lane", "options", "num_draft", "tau", "speedup")}
    notes = (*made.notes, *_near(found, engine, number), *_plug_in(found, engine))
    return {**figures, "version": engine.version, **asdict(made), "notes": notes}


def _near(found: Recommender, engine: Engine, number: int) -> Iterator[str]:
    """That the forecast is not of the engine's own drafter, if so."""
    name = found.lane(number).name
    if engine.prefix and not name.startswith(engine.prefix):
        yield f"The forecast is of {name}, which is like the engine's drafter; for that: --engine {engine.name}."


def _plug_in(found: Recommender, engine: Engine) -> Iterator[str]:
    """How the engine drafts by the recommended lane where that is none of its own, with the forecast for chains."""
    name = found.lane(found.chosen).name
    if name not in engine.plug_ins:
        return
    chains = [number for number in found.lanes if found.lane(number).options.get("chain") is True]
    number = closest(found.forecast, chains) if chains else found.chosen
    row, flags = found.recommendation(number), engine.plug_ins[name](choice(found, number), found.curve)
    said = (
        f"{row['tau']:.2f} tokens a step, {row['speedup']:.2f}x"
        if chains
        else "not swept: add --grid fusion.chain=true"
    )
    yield f"{name} itself, as a chain ({said}), drafted by this package inside the engine: {flags}"


def exported(found: Recommender, engine: Engine) -> int | None:
    """The number of the lane to export to an engine."""
    if found.chosen and engine.has(found.lane(found.chosen).name):
        return found.chosen
    own = [lane.name for lane in found.sweep.lanes[1:] if engine.prefix and lane.name.startswith(engine.prefix)]
    return found.best_of(own or engine.nearest)


def choice(found: Recommender, number: int) -> Choice:
    """A lane as the exports take it."""
    lane, profile = found.lane(number), found.profile(number)
    rates = tuple(profile["marginal_accept_rates"])
    return Choice(lane.name, lane.options, lane.num_draft, profile["mean_accept_length"], rates)


def profile_file(found: Recommender, source: str) -> dict[str, Any]:
    """The recommended lane's `speculation_profile.json`, of the fastest where the advice is not to draft."""
    number = found.chosen or found.best
    lane = found.lane(number)
    per_category = {
        category: {
            "mean_accept_length": round(found.profile(number, places)["mean_accept_length"], 6),
            "num_requests": len(places),
        }
        for category, places in found.places.items()
    }
    left_out = "; requests whose output loops are left out" if found.looping else ""
    conditions = {
        "dataset": source,
        "num_samples": len(found.counted),
        "validation": "forced decoding of logged outputs" + left_out,
        "options": dict(lane.options),
    }
    return speculation_profile(lane.name, lane.num_draft, found.profile(number), per_category, conditions)
