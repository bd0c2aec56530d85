"""What a race prepares: draft sizes by the cost curve, each session's room and likely tokens, and warm forwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from specrace.core.cost_curve import ASSUMED_CPU, ContextCost, CostCurve, assumed_curve, row_counts
from specrace.core.errors import InputError
from specrace.core.events import LaneInfo, Started
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, Drafter, DrafterInputs
from specrace.engine import prepare as preparing
from specrace.engine import refit as refit_module
from specrace.engine.generate import generate
from specrace.engine.prepare import prepare, warm_up_rows
from specrace.engine.race import race
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.ngrams.counts import NGramCounts
from specrace.ngrams.sources import Sources
from specrace.ngrams.suffix_index import SuffixIndex
from tests.parts import VOCAB, CopyingModel, FunctionSession, PromptedCopyingModel, TableTarget, record_sizes

PROMPT = (2, 3, 4, 5, 2, 3, 4, 5, 2, 3)
ROWS = (1, 2, 4, 8, 16, 32)
CHEAP, EXPENSIVE = (1.0, 1.0, 1.01, 1.02, 1.03, 1.04), (1.0, 1.9, 3.8, 7.6, 15.2, 30.4)
# Many rows are cheap after a short prompt, and expensive after a long one. A `ContextCost` has the prompt's length, the
# time of one row in ms, and the costs of `ROWS`.
BY_CONTEXT = CostCurve(
    ROWS, EXPENSIVE, (ContextCost(10, 5.0, CHEAP), ContextCost(9000, 9.0, EXPENSIVE)), {"machine": "a test"}
)
LANES = ("vanilla", "trie", "suffix")


class RecordingTarget(TableTarget):
    """A target whose `opened` holds each session's (room, number of likely tokens, row counts).

    `scored` holds the sizes of the trees that were scored.
    """

    def __init__(self, device_type: str = "cpu", parameters: int = 0) -> None:
        super().__init__(1, order=1)
        self.device_type, self.parameters = device_type, parameters
        self.opened: list[tuple[int, int, Sequence[int]]] = []
        self.scored: list[int] = []

    def describe(self) -> dict[str, Any]:
        return {"model": "a function", "parameters": self.parameters}

    def session(
        self, prefix: Any, room: int, params: SamplingParams | None = None, num_top: int = 0, rows: Sequence[int] = (1,)
    ) -> Any:
        self.opened.append((room, num_top, rows))
        return record_sizes(super().session(prefix, room, params, num_top, rows), self.scored)


def started(target: TableTarget, spec: RaceSpec, **values: Any) -> Started:
    """The first event of a race."""
    event = next(race(target, PROMPT, spec, **values))
    assert isinstance(event, Started)
    return event


def lane_infos(event: Started) -> dict[str, LaneInfo]:
    return {info.lane: info for info in event.lanes}


def test_draft_sizes_follow_the_curve_at_the_prompts_length() -> None:
    spec = RaceSpec(LANES, max_new_tokens=4)
    event = started(RecordingTarget(), spec, curve=BY_CONTEXT)
    near = BY_CONTEXT.near(len(PROMPT))
    for name, info in lane_infos(event).items():
        assert info.num_draft == plan_lane(spec, name, "cpu", near).num_draft
        assert info.title == METHODS[name].title
    sizes = {plan_lane(spec, "trie", "cpu", curve).num_draft for curve in (near, BY_CONTEXT.near(9000), None)}
    assert len(sizes) == 3


def test_draft_sizes_depend_on_the_device() -> None:
    spec = RaceSpec(("vanilla", "trie", "fusion"), max_new_tokens=4)
    sizes = [
        {name: info.num_draft for name, info in lane_infos(started(RecordingTarget(device), spec)).items()}
        for device in ("cpu", "cuda")
    ]
    planned = [{name: plan_lane(spec, name, device).num_draft for name in spec.lanes} for device in ("cpu", "cuda")]
    assert sizes == planned and sizes[0] != sizes[1]


def test_the_whole_curve_is_reported_unless_it_was_refitted(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RaceSpec(LANES, max_new_tokens=4)
    assert started(RecordingTarget(), spec).about["cost_curve"] is None
    assert started(RecordingTarget(), spec, curve=BY_CONTEXT).about["cost_curve"] == BY_CONTEXT.as_json()
    monkeypatch.setattr(refit_module, "measure", lambda _setup, rows: [40.0] * len(rows))
    # Costs are measured again for large models only; here every tree then costs 40 times one row.
    large = RecordingTarget(parameters=refit_module.MIN_PARAMETERS)
    event = started(large, spec, curve=BY_CONTEXT)
    reported = event.about["cost_curve"]
    assert reported not in (None, BY_CONTEXT.as_json(), BY_CONTEXT.near(len(PROMPT)).as_json())
    # The lanes draft by the refitted curve.
    not_refitted = lane_infos(started(RecordingTarget(), spec, curve=BY_CONTEXT))
    assert lane_infos(event)["trie"].num_draft < not_refitted["trie"].num_draft


def test_refitting_measures_after_this_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def measure(setup: RaceSetup, rows: Sequence[int]) -> list[float]:
        prefix: Any = setup.prefix
        measured.append((prefix.tokens, setup.prompt))
        return [1.0] * len(rows)

    monkeypatch.setattr(refit_module, "measure", measure)
    started(RecordingTarget(parameters=refit_module.MIN_PARAMETERS), RaceSpec(LANES), curve=BY_CONTEXT)
    assert measured == [(PROMPT, PROMPT)]


def test_the_setup_holds_the_refitted_curve_and_lanes_draft_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit_module, "measure", lambda _setup, rows: [40.0] * len(rows))
    target, spec = RecordingTarget(parameters=refit_module.MIN_PARAMETERS), RaceSpec(LANES, max_new_tokens=4)
    curve = BY_CONTEXT.near(len(PROMPT))
    setup = prepare(target, PROMPT, spec, Sources(), curve)
    assert setup.curve is not None and setup.curve.at(16) > curve.at(16)
    assert setup.inputs.curve is setup.curve
    for lane in setup.make_lanes(LANES):
        assert lane.curve is setup.curve
        assert lane.num_draft == plan_lane(spec, lane.name, "cpu", setup.curve).num_draft


def test_without_a_curve_drafters_get_the_assumed_one() -> None:
    assert prepare(RecordingTarget(), PROMPT, RaceSpec(LANES), Sources(), None).inputs.curve is ASSUMED_CPU


@pytest.mark.parametrize("num_draft", [5, 12])
def test_sessions_have_room_rows_and_likely_tokens_for_their_lane(num_draft: int) -> None:
    target = RecordingTarget()
    spec = RaceSpec(("vanilla", "trie", "recycling"), max_new_tokens=7, num_draft=num_draft)
    infos = lane_infos(started(target, spec))
    num_top = METHODS["recycling"].num_top_with(infos["recycling"].options)
    assert num_top > 0
    # First the session of the probe, then that of the warm-up, then the lanes'.
    warm_up, *lanes = target.opened[-4:]
    # The warm-up has room for the largest tree and one token.
    assert warm_up == (num_draft + 2, num_top, row_counts(num_draft + 1))
    assert lanes == [
        (7 + infos[name].num_draft + 1, likely, row_counts(infos[name].num_draft + 1))
        for name, likely in (("vanilla", 0), ("trie", 0), ("recycling", num_top))
    ]


def test_drafters_know_the_room_of_their_session(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = []
    method = METHODS["trie"]

    def build(inputs: DrafterInputs, **options: Any) -> Drafter:
        rooms.append(inputs.room)
        return method.build(inputs, **options)

    monkeypatch.setitem(METHODS, "trie", replace(method, build=build))
    started(RecordingTarget(), RaceSpec(("trie",), max_new_tokens=7, num_draft=3))
    assert rooms[-1] == 7 + 3 + 1


def test_every_tree_size_is_warmed_up_twice_the_largest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "WARM_UP_S", float("inf"))
    target = RecordingTarget()
    started(target, RaceSpec(("vanilla", "trie"), num_draft=3, max_new_tokens=4))
    assert target.scored[-8:] == [4, 4, 1, 1, 3, 3, 2, 2]


def test_a_length_that_does_not_fit_counts_the_largest_draft() -> None:
    """The drafts' sizes are those of the device and of the curve at this prompt's length."""
    spec = RaceSpec(("vanilla", "trie"), max_new_tokens=4)
    for device, curve in (("cpu", None), ("cuda", None), ("cpu", BY_CONTEXT)):
        near = None if curve is None else curve.near(len(PROMPT))
        needed = len(PROMPT) + 4 + plan_lane(spec, "trie", device, near).num_draft
        for missing in (0, 1):
            target = RecordingTarget(device)
            target.max_context = needed - missing
            if missing:
                with pytest.raises(InputError, match="too long"):
                    started(target, spec, curve=curve)
            else:
                started(target, spec, curve=curve)


def test_the_warm_up_runs_trees_of_the_sizes_that_the_curve_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "WARM_UP_S", float("inf"))
    expensive = CostCurve(ROWS, EXPENSIVE)
    spec = RaceSpec(("vanilla", "trie"), max_new_tokens=4)
    for curve in (None, expensive):
        target = RecordingTarget()
        started(target, spec, curve=curve)
        assert max(target.scored) == plan_lane(spec, "trie", "cpu", curve).num_draft + 1


def test_the_sizes_of_all_trees_up_to_the_largest_are_warmed_up() -> None:
    assert warm_up_rows([3]) == [4, 3, 2, 1]
    assert warm_up_rows([0, 2, 4]) == [5, 3, 1, 4, 2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_lane_reports_its_options_on_the_device(device: str) -> None:
    spec = RaceSpec(("vanilla", "fusion", "recycling"), max_new_tokens=4)
    for name, info in lane_infos(started(RecordingTarget(device), spec)).items():
        assert info.options == dict(plan_lane(spec, name, device).options)


@pytest.mark.parametrize(("device", "curve"), [("cpu", None), ("cuda", None), ("cpu", BY_CONTEXT)])
def test_generating_without_a_race_drafts_by_the_same_curve(
    device: str, curve: CostCurve | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, curves = METHODS["trie"], []

    def build(inputs: DrafterInputs, **options: Any) -> Drafter:
        curves.append(inputs.curve)
        return method.build(inputs, **options)

    monkeypatch.setitem(METHODS, "trie", replace(method, build=build))
    target, near = RecordingTarget(device), None if curve is None else curve.near(len(PROMPT))
    steps = list(generate(target, "trie", PROMPT, max_new_tokens=4, curve=curve))
    num_draft = plan_lane(RaceSpec(("trie",)), "trie", device, near).num_draft
    assert sum(len(step.emitted) for step in steps) == 4
    assert target.opened[-1] == (4 + num_draft + 1, 0, row_counts(num_draft + 1))
    assert curves == [near or assumed_curve(device)]


class SlowlyReadingModel(CopyingModel):
    """A draft model that reads a prompt in 7 ms by its own account; `num_read` counts the prompts."""

    num_read = 0

    def after(self, prompt: Sequence[int]) -> PromptedCopyingModel:
        self.num_read += 1
        prompted = super().after(prompt)
        prompted.prefill_ms = 7.0
        return prompted


def test_only_a_drafting_models_lane_reports_the_time_to_read_the_prompt() -> None:
    target = RecordingTarget()
    target.drafting = SlowlyReadingModel(vocab=VOCAB)
    infos = lane_infos(started(target, RaceSpec(("vanilla", "trie", "draft-model"), max_new_tokens=4)))
    assert [infos[name].prefill_ms for name in ("vanilla", "trie", "draft-model")] == [0.0, 0.0, 7.0]
    # Once while warming up, and once for the drafter.
    assert target.drafting.num_read == 2
    target.drafting = SlowlyReadingModel(vocab=VOCAB)
    started(target, RaceSpec(("vanilla", "trie"), max_new_tokens=4))
    assert target.drafting.num_read == 0


def test_a_lane_reports_the_time_of_the_tables_that_it_reads() -> None:
    corpus = NGramCounts()
    corpus.extend(PROMPT)
    sources = Sources(corpus, SuffixIndex([PROMPT]), corpus_ms=11.0, corpus_index_ms=13.0)
    infos = lane_infos(
        started(RecordingTarget(), RaceSpec(("vanilla", "trigram", "rest"), max_new_tokens=4), sources=sources)
    )
    assert [infos[name].shared_ms for name in ("vanilla", "trigram", "rest")] == [0.0, 11.0, 13.0]


def test_a_session_keeps_what_a_warm_up_scored() -> None:
    """Each `score` must be followed by a `keep` before the session is dropped; otherwise its KV cache is unsound."""
    kept_paths: list[tuple[int, ...]] = []

    class KeepRecordingTarget(TableTarget):
        def session(self, *args: Any, **values: Any) -> Any:
            session: FunctionSession = super().session(*args, **values)
            keep = session.keep

            def record_and_keep(path: Sequence[int]) -> None:
                kept_paths.append(tuple(path))
                keep(path)

            session.keep = record_and_keep  # type: ignore[method-assign]
            return session

    prepare(KeepRecordingTarget(1, order=1), PROMPT, RaceSpec(("vanilla",), max_new_tokens=2), Sources(), None)
    assert kept_paths == [(0,)]
