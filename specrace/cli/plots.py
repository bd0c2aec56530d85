"""The pictures of `sweep` and `paper`, in the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.core.files import explained
from specrace.drafters import METHODS
from specrace.lab.paper import Table
from specrace.lab.plots.drawing import require_matplotlib, write_pictures
from specrace.lab.plots.papers import paper_picture
from specrace.lab.plots.plot import Picture
from specrace.lab.plots.steps import step_pictures
from specrace.lab.plots.sweeps import Shown, sweep_pictures
from specrace.lab.presets import describe_curve
from specrace.lab.recommend import Recommender
from specrace.lab.score import ScoredLane
from specrace.lab.sweep import Sweep
from specrace.lab.transcripts import Transcript
from specrace.views.colours import lane_hues

PICTURES = "pictures"


def check_pictures(out: Path | None, lanes: Sequence[ScoredLane]) -> None:
    """Raises InputError where a sweep of `lanes` into `out` cannot be drawn; before anything is scored."""
    if out is None:
        raise InputError("--pictures needs --out DIR; the pictures go into DIR/pictures.")
    if len(lanes) < 2:
        raise InputError("--pictures needs a lane beside vanilla; add one to --lanes.")
    require_matplotlib()


def draw_sweep(out: Path, sweep: Sweep, transcripts: Sequence[Transcript]) -> list[Path]:
    """All pictures of a finished sweep into `out`/pictures. Raises InputError."""
    curve = sweep.curve or ASSUMED_GPU
    shown = _shown(sweep, curve)
    return _write(out / PICTURES, [*sweep_pictures(shown), *step_pictures(shown, transcripts)])


def draw_table(out: Path, name: str, sweep: Sweep, tables: Sequence[Table], curve: CostCurve) -> list[Path]:
    """The picture of one of the paper's tables into `out`. Raises InputError."""
    return _write(out, [paper_picture(name, _shown(sweep, curve), tables)])


def _shown(sweep: Sweep, curve: CostCurve) -> Shown:
    return Shown(Recommender(sweep, curve), describe_curve(curve))


def _write(folder: Path, pictures: Sequence[Picture]) -> list[Path]:
    with explained(folder, "--out"):
        folder.mkdir(exist_ok=True)
    return write_pictures(folder, pictures, lane_hues(METHODS))
