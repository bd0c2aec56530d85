"""specrace itself: the settings file of `--settings` (the page, `race`, `bench`), and of the library's `generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text
from specrace.drafters import METHODS, find_method
from specrace.lab.advice.exports.base import AS_MEASURED, IGNORED, Choice, Effect, Engine, Export

SETTINGS_FILE = "specrace-settings.json"
# Larger files are refused: settings need far less.
_MAX_BYTES = 100_000
_HINT = "give a settings file that recommend wrote"


def export(choice: Choice) -> Export:
    """The flag, and the settings file that it names."""
    settings = {"method": choice.lane, "num_draft": choice.num_draft, "options": dict(choice.options)}
    return Export(f"--settings {SETTINGS_FILE}", files={SETTINGS_FILE: json.dumps(settings, indent=1) + "\n"})


def read_settings(path: str | Path) -> dict[str, Any]:
    """The keyword arguments of `generate` in a settings file: method, num_draft and options. Raises InputError."""
    try:
        settings = json.loads(read_text(Path(path), _MAX_BYTES, _HINT))
        method = str(settings["method"])
        options = dict(settings["options"])
        num_draft = int(settings["num_draft"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise InputError(
            f'{shorten(path)} needs {{"method": NAME, "num_draft": N, "options": {{}}}}; {_HINT}.'
        ) from error
    return {"method": method, "num_draft": num_draft, **find_method(method).check(options)}


# Of the options below, `generate` has only temperature and seed (`specrace.core.sampling_params`). Its draws are keyed
# by seed and position.
EFFECTS = (
    Effect(
        ("temperature", "seed"),
        AS_MEASURED,
        "draws a token at each position and keeps the drafts that equal it: the output is the same as without drafts, "
        "and the forecast holds on average, if the log's answers were sampled at this temperature",
    ),
    Effect(
        (
            "presence_penalty", "frequency_penalty", "repetition_penalty", "min_p", "logit_bias", "min_tokens", "stop",
            "bad_words", "allowed_token_ids", "logits_processors", "structured_output", "tool_choice", "logprobs", "n",
            "best_of", "use_beam_search",
        ),
        IGNORED,
        "has no such option",
    ),
)  # fmt: skip

ENGINE = Engine(
    name="specrace",
    title="specrace",
    prefix="",
    nearest=tuple(METHODS),
    version="this one",
    export=export,
    effects=EFFECTS,
)
