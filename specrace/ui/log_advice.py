"""What a visitor's log recommends for each engine: lane, settings, evidence, and what to paste.

This runs in the process beside the server's (`file_reader`), on all its processors. Settings are tried by successive
halving (`specrace.lab.halving`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.processors import processors
from specrace.lab.advice import profile_file, report, sentences
from specrace.lab.candidates import candidates, engine_lanes, pools
from specrace.lab.exports.profile import PROFILE_FILE
from specrace.lab.halving import Halving, Round, Tried
from specrace.lab.presets import GPUS, describe_curve, find_curve
from specrace.lab.recommend import BATCHES, Recommender
from specrace.lab.sweep import Sweep
from specrace.lab.transcripts import Transcript
from specrace.ui.log_scores import MAX_REQUESTS, TELL_S, categories, explain_to_visitor, nothing, open_log

# 500 requests take a fifth of it on two processors. A log that takes longer is scored on fewer requests, and says so.
ADVICE_SECONDS = 120.0
TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama-cpp": "llama.cpp",
    "transformers": "transformers",
    "specrace": "specrace",
}
OWN = "specrace"
# Billions of parameters.
SIZES = (1, 3, 8, 14, 32, 70)
MEASURED, ASSUMED = "measured", "assumed-gpu"
CURVES = {ASSUMED: "a GPU (assumed, not measured)", "assumed-cpu": "a CPU (assumed, not measured)"}
_ROOFLINE = re.compile(rf"({'|'.join(GPUS)})-({'|'.join(map(str, SIZES))})b")


def describe_advice(measured: CostCurve | None) -> dict[str, Any]:
    """Engines, GPUs, sizes, batch sizes, and the curves of other machines; this one's if it is `measured`."""
    own = {} if measured is None else {MEASURED: f"this machine, measured: {describe_curve(measured)}"}
    return {
        "engines": list(TITLES.items()),
        "gpus": list(GPUS),
        "sizes": SIZES,
        "curves": [*own.items(), *CURVES.items()],
        "batches": BATCHES,
    }


def read_costs(query: Mapping[str, str], measured: CostCurve | None) -> dict[str, Any]:
    """The cost curve and the batch size that a visitor chose. Raises InputError that names the first that is wrong."""
    name, batch = query.get("curve", "") or ASSUMED, query.get("batch", "1")
    known = name in CURVES or _ROOFLINE.fullmatch(name) or (name == MEASURED and measured is not None)
    if not known:
        raise InputError(f"There is no cost curve {name[:40]!r} here; choose one of the page's.")
    if batch not in map(str, BATCHES):
        raise InputError(f"The batch size is {batch[:20]!r}; choose from {', '.join(map(str, BATCHES))}.")
    curve = measured if name == MEASURED and measured is not None else find_curve(name)
    return {"curve": curve.as_json(), "batch": int(batch)}


def advise_log(_: str, asked: bytes) -> Generator[bytes, None, bytes]:
    """Progress, and then the advice, as JSON. Raises InputError, without this machine's paths.

    `asked` is as that of `score_log`, and has the "curve" and the "batch".
    """
    given = json.loads(asked)
    with explain_to_visitor(given):
        return (yield from _advise(Path(given["path"]), given))


def _advise(path: Path, given: Mapping[str, Any]) -> Generator[bytes, None, bytes]:
    began = time.monotonic()
    until = began + ADVICE_SECONDS
    # Reading may take half of it: the other half is for trying.
    transcripts, left_out = yield from _read(path, given, began + ADVICE_SECONDS / 2)
    lanes = candidates(name for engine in TITLES for name in engine_lanes(engine))
    sweep = Sweep.of(lanes, transcripts, CostCurve.from_json(given["curve"]))
    halving = Halving(sweep, transcripts, pools(lanes, TITLES), batch=given["batch"])
    due = 0.0
    for each in halving.run(processes=processors(), until=until):
        if time.monotonic() > due:
            due = time.monotonic() + TELL_S
            yield json.dumps({"progress": _words(each)}).encode()
    if not halving.tried:
        raise InputError(f"{path.name} is too long to try settings on; use python -m specrace recommend.")
    found = {
        "engines": [_engine(halving, engine, path.name) for engine in TITLES],
        "requests": len(transcripts),
        "scored": len(halving.all_finalists().requests),
        "looping": halving.sweep.left_out,
        "left_out": left_out,
        "tried": [_tried(each) for each in halving.tried.values()],
    }
    return json.dumps({"advice": found}, separators=(",", ":")).encode()


def _read(path: Path, given: Mapping[str, Any], until: float) -> Generator[bytes, None, tuple[list[Transcript], str]]:
    """The requests, and why the others are left out."""
    file, _ = open_log(path, given)
    category, found, left_out, due = categories(), list[Transcript](), "", 0.0
    for each in file:
        if len(found) == MAX_REQUESTS or time.monotonic() > until:
            left_out = f"the page takes {len(found):,} of them"
            break
        found.append(category(each))
        if time.monotonic() > due:
            due = time.monotonic() + TELL_S
            yield json.dumps({"progress": {"requests": len(found)}}).encode()
    if not found:
        raise InputError(nothing(path, file, left_out))
    return found, left_out


def _words(each: Round) -> dict[str, int]:
    return {"settings": each.settings, "requests": each.requests, "done": each.done, "cells": each.cells}


def _engine(halving: Halving, engine: str, name: str) -> dict[str, Any]:
    """The advice for an engine."""
    names = () if engine == OWN else engine_lanes(engine)
    make = partial(Recommender, curve=halving.curve, names=names, batch=halving.batch)
    found, sample = make(halving.finalists(engine)), make(halving.sample(engine))
    made = report(found, list(sentences(found, describe_curve(halving.curve), sample)), engine)
    kept = ("recommendation", "groups", "text", "not_tested", "batches")
    export = dict(made["exports"][engine])
    export["files"] = {**export["files"], PROFILE_FILE: json.dumps(profile_file(found, name), indent=1)}
    return {"engine": engine, "title": TITLES[engine], "export": export, **{key: made[key] for key in kept}}


def _tried(each: Tried) -> Sequence[Any]:
    """[lane, settings, requests, tokens per step, speedup]."""
    lane = each.lane
    return [lane.name, dict(lane.options), lane.num_draft, each.requests, each.tau, each.speedup]
