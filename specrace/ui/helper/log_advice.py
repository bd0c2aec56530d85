"""Recommends a lane and settings for each engine from a visitor's log, with the measurements and what to paste.

This runs in a helper process (`helper/process.py`), which starts further processes to use all processors. Settings are
tried by successive halving (`specrace.lab.advice.halving`): all on a few requests, those that may be the best on more,
and the finalists on the whole log. They compete in pools: the lanes that one engine can run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.processors import count_processors
from specrace.lab.advice.advice import profile_file, report, sentences
from specrace.lab.advice.candidates import candidates, engine_lanes, pools
from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.exports.profile import PROFILE_FILE
from specrace.lab.advice.exports.simulators import SIMULATORS_FILE, simulators_text
from specrace.lab.advice.halving import Halving, Round, Tried
from specrace.lab.advice.presets import GPUS, describe_curve, find_curve
from specrace.lab.advice.recommend import BATCHES, Recommender
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.sweep import Sweep
from specrace.ui.helper.log_scores import (
    MAX_REQUESTS,
    PROGRESS_PERIOD_S,
    explain_no_requests,
    explain_to_visitor,
    limit_categories,
    open_log,
)
from specrace.ui.wire import (
    AdviceChoices,
    AdviceGroup,
    EngineAdvice,
    EngineExport,
    LogAdvice,
    LogLine,
    LogProgress,
    Recommendation,
    RequestEffect,
    to_json,
)

# 500 requests take a fifth of this time on two processors. If the time runs out, settings are tried on fewer requests,
# and the answer says so.
TIME_LIMIT_S = 120.0
TITLES = {name: engine.title for name, engine in ENGINES.items()}
# The name of specrace among the engines.
OUR_ENGINE = "specrace"
# Model sizes for which a cost curve can be computed, in billions of parameters.
SIZES = (1, 3, 8, 14, 32, 70)
# Names of cost curves, which say how much longer a forward over k tokens takes than one over a single token.
MEASURED, ASSUMED = "measured", "assumed-gpu"
CURVES = {ASSUMED: "a GPU (assumed, not measured)", "assumed-cpu": "a CPU (assumed, not measured)"}
# The name of a computed (roofline) cost curve: a GPU and a model's size, such as "h100-8b".
_ROOFLINE = re.compile(rf"({'|'.join(GPUS)})-({'|'.join(map(str, SIZES))})b")


def describe_advice(measured: CostCurve | None) -> AdviceChoices:
    """What the page offers: engines, GPUs, model sizes, batch sizes and cost curves, with `measured` if not None."""
    measured_curve = {} if measured is None else {MEASURED: f"this machine, measured: {describe_curve(measured)}"}
    return AdviceChoices(
        engines=list(TITLES.items()),
        gpus=list(GPUS),
        sizes=SIZES,
        curves=[*measured_curve.items(), *CURVES.items()],
        batches=BATCHES,
    )


def read_costs(query: Mapping[str, str], measured: CostCurve | None) -> dict[str, Any]:
    """The cost curve and the batch size that a visitor chose, as JSON values. Raises InputError for a wrong value."""
    name, batch = query.get("curve", "") or ASSUMED, query.get("batch", "1")
    is_known = name in CURVES or _ROOFLINE.fullmatch(name) or (name == MEASURED and measured is not None)
    if not is_known:
        raise InputError(f"There is no cost curve {name[:40]!r} here; choose one of the page's.")
    if batch not in map(str, BATCHES):
        raise InputError(f"The batch size is {batch[:20]!r}; choose from {', '.join(map(str, BATCHES))}.")
    curve = measured if name == MEASURED and measured is not None else find_curve(name)
    return {"curve": curve.as_json(), "batch": int(batch)}


def advise_log(_: str, log_request: bytes) -> Generator[bytes, None, bytes]:
    """Yield progress, then return the advice, both as JSON. An InputError does not show this machine's paths.

    `log_request` has the fields that `log_scores.score_log` reads, and those of `read_costs`: "curve" and "batch".
    """
    settings = json.loads(log_request)
    with explain_to_visitor(settings):
        return (yield from _recommend(Path(settings["path"]), settings))


def _recommend(path: Path, settings: Mapping[str, Any]) -> Generator[bytes, None, bytes]:
    """Yield progress, then return the advice, both as JSON."""
    began = time.monotonic()
    # Reading may take half of the time, so that the other half is left for trying settings.
    transcripts, left_out, remarks = yield from _read(path, settings, began + TIME_LIMIT_S / 2)
    lanes = candidates(name for engine in TITLES for name in engine_lanes(engine))
    sweep = Sweep.of(lanes, transcripts, CostCurve.from_json(settings["curve"]))
    halving = Halving(sweep, transcripts, pools(lanes, TITLES), batch=settings["batch"])
    progress_due = 0.0
    for status in halving.run(processes=count_processors(), until=began + TIME_LIMIT_S):
        if time.monotonic() > progress_due:
            progress_due = time.monotonic() + PROGRESS_PERIOD_S
            yield to_json(LogLine(progress=_round_progress(status))).encode()
    if not halving.tried:
        raise InputError(f"{path.name} is too long to try settings on; use python -m specrace recommend.")
    advice = LogAdvice(
        engines=[_engine_advice(halving, engine, path.name) for engine in TITLES],
        requests=len(transcripts),
        scored=len(halving.all_finalists().requests),
        # Requests whose outputs repeat themselves, which halving leaves out.
        looping=halving.sweep.num_looping_left_out,
        left_out=left_out,
        remarks=remarks,
        tried=[_tried_row(tried) for tried in halving.tried.values()],
    )
    return to_json(LogLine(advice=advice)).encode()


def _read(
    path: Path, settings: Mapping[str, Any], deadline: float
) -> Generator[bytes, None, tuple[list[Transcript], str, list[str]]]:
    """Yield progress, then return the requests, why the rest is left out ("" if none is), and remarks on the log."""
    file, _ = open_log(path, settings)
    limit_category = limit_categories()
    transcripts: list[Transcript] = []
    left_out = ""
    progress_due = 0.0
    for transcript in file:
        if len(transcripts) == MAX_REQUESTS or time.monotonic() > deadline:
            left_out = f"the page takes {len(transcripts):,} of them"
            break
        transcripts.append(limit_category(transcript))
        if time.monotonic() > progress_due:
            progress_due = time.monotonic() + PROGRESS_PERIOD_S
            yield to_json(LogLine(progress=LogProgress(len(transcripts)))).encode()
    if not transcripts:
        raise InputError(explain_no_requests(path, file, left_out))
    return transcripts, left_out, file.remarks.sentences()


def _round_progress(status: Round) -> LogProgress:
    """How far a round of the halving is."""
    return LogProgress(status.requests, settings=status.settings, done=status.done, cells=status.cells)


def _engine_advice(halving: Halving, engine: str, log_name: str) -> EngineAdvice:
    """The advice for one engine."""
    # Without names, any lane may be recommended.
    lanes = () if engine == OUR_ENGINE else engine_lanes(engine)
    make_recommender = partial(Recommender, curve=halving.curve, names=lanes, batch=halving.batch)
    recommender = make_recommender(halving.finalists(engine))
    # All settings, on the requests of the first round.
    sample = make_recommender(halving.sample(engine))
    advice = report(recommender, list(sentences(recommender, describe_curve(halving.curve), sample)), engine)
    export = advice["exports"][engine]
    # Besides the files that the settings name: the measured acceptance, in the forms that planning tools read.
    files = {
        **export["files"],
        PROFILE_FILE: json.dumps(profile_file(recommender, log_name), indent=1),
        SIMULATORS_FILE: simulators_text(advice["simulators"]),
    }
    effects = [RequestEffect(**row) for row in export["requests"]]
    return EngineAdvice(
        engine=engine,
        title=TITLES[engine],
        export=EngineExport(**{**export, "files": files, "requests": effects}),
        recommendation=Recommendation(**advice["recommendation"]),
        groups=[AdviceGroup(**{**row, "best": Recommendation(**row["best"])}) for row in advice["groups"]],
        text=advice["text"],
        not_tested=advice["not_tested"],
        batches=advice["batches"],
    )


def _tried_row(tried: Tried) -> tuple[str, Mapping[str, Any], int, int, float, float]:
    """A tried setting, as a row of `LogAdvice.tried`."""
    lane = tried.lane
    return lane.name, dict(lane.options), lane.num_draft, tried.requests, tried.tau, tried.speedup
