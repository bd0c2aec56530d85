"""What an engine that drafts does differently with requests that have certain options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from specrace.lab.advice.exports.base import EFFECTS, Effect, Engine

NOT_KNOWN = "not known"


def option_effects(options: Sequence[tuple[str, ...]], engine: Engine) -> list[dict[str, Any]]:
    """A row for each of the engine's effects that some request meets, the worst first, with the share of such requests.

    `options`: each request's options (`Request.options`). A row's `options` are those that cause the effect, the
    commonest first; its `sentence` puts the row into words.
    """
    effects = sorted(engine.effects, key=lambda effect: EFFECTS.index(effect.kind))
    known = {name for effect in effects for name in effect.options}
    unknown = tuple(sorted({name for names in options for name in names} - known))
    effects.append(Effect(unknown, NOT_KNOWN, "may treat such requests differently; that was not looked up"))
    return [row for effect in effects if (row := _row(options, effect, engine))["requests"]]


def _row(options: Sequence[tuple[str, ...]], effect: Effect, engine: Engine) -> dict[str, Any]:
    counts = Counter(name for names in options for name in names if name in effect.options)
    names = [name for name, _ in counts.most_common()]
    requests = sum(not set(names).isdisjoint(request_options) for request_options in options)
    share = requests / len(options) if options else 0.0
    subject = f"{engine.title} {engine.effects_version}".rstrip()
    return {
        "options": names,
        "requests": requests,
        "share": share,
        "effect": effect.kind,
        "sentence": f"{requests:,} of {len(options):,} requests ({100 * share:.0f} %) have {_either(names)}: "
        f"{subject} {effect.words}.",
    }


def _either(names: Sequence[str]) -> str:
    """The names as words: "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
