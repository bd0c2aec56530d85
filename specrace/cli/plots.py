"""The plots of `sweep` and `paper`, in the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.core.files import as_input_error
from specrace.drafters import METHODS
from specrace.lab.advice.presets import describe_curve
from specrace.lab.advice.recommend import Recommender
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.plots.drawing import require_matplotlib, write_plots
from specrace.lab.plots.paper import Table
from specrace.lab.plots.paper_plots import paper_plot
from specrace.lab.plots.plot import Plot
from specrace.lab.plots.steps import step_plots
from specrace.lab.plots.sweeps import SweepView, sweep_plots
from specrace.lab.scoring.score import ScoredLane
from specrace.lab.scoring.sweep import Sweep
from specrace.views.colours import lane_hues

PLOTS = "plots"


def check_plots(out: Path | None, lanes: Sequence[ScoredLane]) -> None:
    """Raise InputError if a sweep of `lanes` into `out` could not be drawn. Called before anything is scored."""
    if out is None:
        raise InputError("--plots needs --out DIR; the plots go into DIR/plots.")
    if len(lanes) < 2:
        raise InputError("--plots needs a lane besides vanilla; add one to --lanes.")
    require_matplotlib()


def draw_sweep(out: Path, sweep: Sweep, transcripts: Sequence[Transcript]) -> list[Path]:
    """Draw all plots of a finished sweep into `out`/plots, and return the files. Raises InputError."""
    curve = sweep.curve or ASSUMED_GPU
    view = _view(sweep, curve)
    return _write(out / PLOTS, [*sweep_plots(view), *step_plots(view, transcripts)])


def draw_table(out: Path, name: str, sweep: Sweep, tables: Sequence[Table], curve: CostCurve) -> list[Path]:
    """Draw the plot of the paper's table or figure `name` into `out`, and return the files. Raises InputError.

    Figure 5 takes its times from `tables`, those that `paper` prints.
    """
    return _write(out, [paper_plot(name, _view(sweep, curve), tables)])


def _view(sweep: Sweep, curve: CostCurve) -> SweepView:
    return SweepView(Recommender(sweep, curve), describe_curve(curve))


def _write(folder: Path, plots: Sequence[Plot]) -> list[Path]:
    with as_input_error(folder, "--out"):
        folder.mkdir(exist_ok=True)
    return write_plots(folder, plots, lane_hues(METHODS))
