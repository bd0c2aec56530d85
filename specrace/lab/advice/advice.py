"""A recommendation in plain sentences with their evidence, and as settings to paste into each engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from specrace.drafters import find_method
from specrace.lab.advice.exports import ENGINES, Choice, Engine
from specrace.lab.advice.exports.profile import speculation_profile
from specrace.lab.advice.exports.simulators import simulator_settings
from specrace.lab.advice.option_effects import option_effects
from specrace.lab.advice.recommend import Recommender, idle_lanes, losing_batch, losing_lanes, thriftiest
from specrace.lab.scoring.sweep import DRAFT_SIZE_OPTIONS

# Matches the names of options that set a minimum, below which a lane finds no match or makes no draft.
MINIMUM = re.compile(r"min|match$|size_n$|shortest")


def sentences(recommender: Recommender, curve_words: str, sample: Recommender | None = None) -> Iterator[str]:
    """The recommendation, sentence by sentence; `curve_words` say where the cost curve comes from.

    `sample`: if `recommender` has only the best settings, the recommender of all settings on a sample of the requests.
    """
    num_requests = len(recommender.included)
    row = recommender.recommendation()
    num_tokens = sum(recommender.sweep.requests[number].output_tokens for number in recommender.included)
    batch = f", in batches of {recommender.batch}," if recommender.batch > 1 else ""
    evidence = f"On these {num_requests} requests ({num_tokens:,} output tokens){batch}"
    # Lane 0 is vanilla, which does not draft.
    if recommender.chosen == 0:
        best = recommender.recommendation(recommender.best)
        yield (
            f"{evidence} no lane is reliably faster than no drafting: the best, {_describe(best)}, "
            f"yields {best['tau']:.2f} tokens a step and a speedup of {_range(best, 'speedup')}. Do not draft."
        )
    else:
        yield (
            f"{evidence} {_describe(row)} yields {row['tau']:.2f} tokens a step "
            f"({row['tau_low']:.2f} to {row['tau_high']:.2f}), a speedup of {_range(row, 'speedup')}."
        )
    yield f"Costs: {curve_words}."
    yield from _batches(recommender)
    where = ""
    if sample is not None:
        where = f" on {len(sample.included)} requests"
        num_best = len(recommender.lanes) - 1
        best_were = f"best {num_best} were" if num_best > 1 else "best was"
        yield f"Of {len(sample.lanes) - 1} settings tried{where} the {best_were} scored on {num_requests}."
    if losers := losing_lanes(sample or recommender):
        yield f"Slower than no drafts with every setting{where}: {', '.join(losers)}."
    yield from _idle_lanes(sample or recommender, where)
    yield from _groups(recommender)


def _idle_lanes(recommender: Recommender, where: str = "") -> Iterator[str]:
    """Yield a sentence for each lane with settings that hardly ever draft; it describes the first of these settings."""
    rows = [(recommender.lane(number), number, share) for number, share in idle_lanes(recommender)]
    for name in dict.fromkeys(lane.name for lane, *_ in rows):
        (lane, number, share), *others = (row for row in rows if row[0].name == name)
        minima = ", ".join(f"{key} {value}" for key, value in lane.options.items() if MINIMUM.search(key) and value)
        why = f": hardly any match reaches {minima}" if minima else ""
        more = f", and with {len(others)} more settings on as few steps" if others else ""
        frequency = f"{100 * share:.1f} % of the steps{where}"
        yield f"{name} with {recommender.sweep.varied_settings(number)} drafts on {frequency}{why}{more}."


def _batches(recommender: Recommender) -> Iterator[str]:
    """Yield a sentence about the recommended lane at other batch sizes; nothing if the advice is not to draft."""
    if recommender.chosen == 0:
        return
    losing_from = losing_batch(recommender)
    speedup = next(row["speedup"] for row in recommender.batches if row["batch"] == recommender.batch)
    others = [row for row in recommender.batches if row["batch"] != recommender.batch]
    speedups = ", ".join(f"{row['speedup']:.2f}x at {row['batch']}" for row in others)
    pays_less = recommender.batch == 1 and all(row["speedup"] < speedup for row in others)
    opening = "In batches the lane pays less" if pays_less else "At other batch sizes"
    end = f"; from a batch of {losing_from} on it no longer pays" if losing_from else ""
    yield f"{opening}: {speedups}{end}."


def _groups(recommender: Recommender) -> Iterator[str]:
    """Yield a sentence for each category for which the recommendation is not the right choice."""
    if len(recommender.groups) < 2:
        return
    for group in recommender.groups:
        opening = f"On the {group['requests']} requests of '{group['category']}'"
        best = group["best"]
        if group["advice"] == "switch drafting off" and recommender.chosen:
            yield f"{opening} nothing pays ({group['speedup']:.2f}x): switch drafting off there."
        elif group["advice"] == "not certain" and recommender.chosen:
            yield f"{opening} the lane does not pay ({group['speedup']:.2f}x), and no other lane is reliably faster."
        elif group["advice"] in ("use another lane", "use other settings"):
            yield f"{opening} {_describe(best)} pays ({_range(best, 'speedup')}): use it there."


def _describe(row: Mapping[str, Any]) -> str:
    """A row's lane with the options that differ from their defaults, and its draft size."""
    defaults = find_method(row["lane"]).defaults("cuda")
    changed = [
        f"{name}={_format_value(value)}"
        for name, value in row["options"].items()
        if name not in DRAFT_SIZE_OPTIONS and value != defaults[name]
    ]
    options = f"{' '.join(changed)}, " if changed else ""
    return f"{row['lane']} ({options}up to {row['num_draft']} draft tokens)"


def _format_value(value: Any) -> str:
    """An option's value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}x ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def report(recommender: Recommender, text: Sequence[str], engine: str | None) -> dict[str, Any]:
    """The recommendation as JSON, with the exports for one engine, or for all if `engine` is None.

    `text`: its sentences.
    """
    return {
        "recommendation": recommender.recommendation(),
        "groups": recommender.groups,
        "exports": {name: export for name, export in exports(recommender).items() if engine in (None, name)},
        "profile": recommender.profile(),
        "simulators": simulators(recommender),
        "not_tested": recommender.not_tested,
        "text": list(text),
        "batches": recommender.batches,
        "requests": len(recommender.included),
        "looping": recommender.looping,
        "options": dict(Counter(name for names in recommender.options for name in names).most_common()),
        "option_notes": list(option_notes(recommender, engine)),
        "settings": {
            "seed": recommender.seed,
            "batch": recommender.batch,
            "cost_curve": recommender.curve.as_json(),
            "keep_outputs": recommender.sweep.keep_outputs,
        },
    }


def option_notes(recommender: Recommender, engine: str | None) -> Iterator[str]:
    """Yield a sentence for each thing that an engine does differently with some requests.

    Without an `engine`, there is at most one sentence, which counts the requests with each of the options in
    `specrace.lab.logs.request_options`.
    """
    if engine is not None:
        yield from (row["sentence"] for row in option_effects(recommender.options, ENGINES[engine]))
        return
    counts = Counter(name for names in recommender.options for name in names).most_common()
    if counts:
        options = ", ".join(f"{name} in {count:,}" for name, count in counts)
        yield (
            f"Of {len(recommender.options):,} requests, engines may treat those with these options differently when "
            f"they draft: {options}. --engine NAME says what yours does."
        )


def exports(recommender: Recommender) -> dict[str, dict[str, Any] | None]:
    """What to paste, by engine: the recommended lane if the engine has it, else the best of the engine's lanes.

    None for an engine none of whose lanes was swept.
    """
    return {name: _export(recommender, engine) for name, engine in ENGINES.items()}


def _export(recommender: Recommender, engine: Engine) -> dict[str, Any] | None:
    number = lane_to_export(recommender, engine)
    if number is None:
        return None
    export = engine.export(choice(recommender, number))
    row = recommender.recommendation(number)
    metrics = {name: row[name] for name in ("lane", "options", "num_draft", "tau", "speedup")}
    notes = (*export.notes, *_similar_lane(recommender, engine, number), *_plug_in(recommender, engine))
    effects = option_effects(recommender.options, engine)
    return {**metrics, "version": engine.version, **asdict(export), "notes": notes, "requests": effects}


def _similar_lane(recommender: Recommender, engine: Engine, number: int) -> Iterator[str]:
    """Yield a note if the forecast is for a lane that is merely like the engine's own drafter."""
    name = recommender.lane(number).name
    if engine.prefix and not name.startswith(engine.prefix):
        yield (
            f"The forecast is of {name}, which is like the engine's drafter; for a forecast of the engine's own: "
            f"--engine {engine.name}."
        )


def _plug_in(recommender: Recommender, engine: Engine) -> Iterator[str]:
    """Yield a note on how to load our drafter into the engine, if the recommended lane has a plug-in for it.

    A plug-in drafts chains, so the note has the forecast of the best chain, if one was swept: of the chains as good as
    the fastest, the one that verifies the fewest rows.
    """
    name = recommender.lane(recommender.chosen).name
    if name not in engine.plug_ins:
        return
    chains = [number for number in recommender.lanes if recommender.lane(number).options.get("chain") is True]
    number = thriftiest(recommender.forecast, chains) if chains else recommender.chosen
    row = recommender.recommendation(number)
    chosen = choice(recommender, number)
    if not recommender.sweep.keep_outputs:
        # The lane was scored without earlier answers, so the engine must not read them either.
        chosen = replace(chosen, options={**chosen.options, "past": False})
    flags = engine.plug_ins[name](chosen, recommender.curve)
    evidence = "not swept: add --grid fusion.chain=true"
    if chains:
        evidence = f"{row['tau']:.2f} tokens a step, {row['speedup']:.2f}x"
    yield f"{name} itself, as a chain ({evidence}), drafted by this package inside the engine: {flags}"


def lane_to_export(recommender: Recommender, engine: Engine) -> int | None:
    """The number of the lane to export to an engine; None if no lane of the engine was swept."""
    if recommender.chosen and engine.has(recommender.lane(recommender.chosen).name):
        return recommender.chosen
    # Our copies of the engine's own drafters.
    twins = [lane.name for lane in recommender.sweep.lanes[1:] if engine.prefix and lane.name.startswith(engine.prefix)]
    return recommender.best_among(twins or engine.nearest)


def choice(recommender: Recommender, number: int) -> Choice:
    """A lane in the form that exports take."""
    lane = recommender.lane(number)
    profile = recommender.profile(number)
    rates = tuple(profile["marginal_accept_rates"])
    return Choice(
        lane=lane.name, options=lane.options, num_draft=lane.num_draft, mean=profile["mean_accept_length"], rates=rates
    )


def profile_file(recommender: Recommender, source: str) -> dict[str, Any]:
    """The content of `speculation_profile.json` for the recommended lane, or the best if the advice is not to draft.

    `source`: where the requests come from.
    """
    number = drafting_lane(recommender)
    lane = recommender.lane(number)
    per_category = {
        category: {
            "mean_accept_length": round(recommender.profile(number, indices)["mean_accept_length"], 6),
            "num_requests": len(indices),
        }
        for category, indices in recommender.by_category.items()
    }
    left_out = "; requests with a looping output are left out" if recommender.looping else ""
    conditions = {
        "dataset": source,
        "num_samples": len(recommender.included),
        "validation": "forced decoding of logged outputs" + left_out,
        "options": dict(lane.options),
    }
    profile = recommender.profile(number) | {"mean_accept_length_per_request": recommender.mean_per_request(number)}
    return speculation_profile(lane.name, lane.num_draft, profile, per_category, conditions)


def drafting_lane(recommender: Recommender) -> int:
    """The number of the recommended lane, or of the one that drafts best if the advice is not to draft."""
    return recommender.chosen or recommender.best


def simulators(recommender: Recommender) -> dict[str, Any]:
    """The acceptance of `drafting_lane` as settings of simulators."""
    number = drafting_lane(recommender)
    return simulator_settings(recommender.lane(number).num_draft, recommender.profile(number))
