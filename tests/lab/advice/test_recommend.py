"""The recommendation: forecasts worked out by hand, a choice that no seed changes, and groups where nothing pays."""

from __future__ import annotations

import numpy as np
import pytest

from specrace.core.cost_curve import ASSUMED_GPU, ContextCost, CostCurve
from specrace.core.errors import InputError
from specrace.lab.advice import advice
from specrace.lab.advice.forecast import Forecast, forecast_sweep, step_costs
from specrace.lab.advice.halving import contenders
from specrace.lab.advice.presets import GPUS, describe_curve, find_curve, roofline_curve
from specrace.lab.advice.recommend import Recommender, acceptance_profile, choose_lane, losing_batch, thriftiest
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import ScoredLane
from specrace.lab.scoring.sweep import Request, RequestScore, Sweep, grid_lanes
from tests.lab.parts import mostly_copying, transcript

# Further rows cost nothing.
FREE = CostCurve((1, 33), (1.0, 1.0))
# Each further row costs as much as the first.
EXPENSIVE = CostCurve((1, 2), (1.0, 2.0))


def scored_sweep(
    lanes: list[ScoredLane], requests: list[tuple[Request, list[RequestScore]]], curve: CostCurve | None = None
) -> Sweep:
    """A sweep of these requests, each with one score for each lane.

    A request is (category, prompt tokens, output tokens, whether it loops). A score holds steps as (drafted, accepted,
    number of such steps), then the ms of drafting and of building.
    """
    sweep = Sweep(tuple(lanes), tuple(request for request, _ in requests), curve)
    for lane in range(len(lanes)):
        sweep.cells[lane, 0] = tuple(scores[lane] for _, scores in requests)
    return sweep


def test_the_forecast_matches_a_hand_computation() -> None:
    lanes = [ScoredLane.of("vanilla", {}), ScoredLane.of("prompt-lookup", {}, 4)]
    score = RequestScore(((0, 0, 4), (4, 2, 2)), 3.0, 1.0)
    sweep = scored_sweep(lanes, [(Request("none", 100, 10, False), [RequestScore(((0, 0, 10),), 0.0, 0.0), score])])
    # Five rows cost 1.5, a step without a draft costs 1, and 3 + 1 ms of drafting and building are two forwards.
    curve = CostCurve((1, 5), (1.0, 1.5), (ContextCost(50, 2.0, (1.0, 1.5)),))
    (forecast,) = forecast_sweep(sweep, curve)
    assert forecast.steps.tolist() == [[10], [6]] and forecast.rows.tolist() == [[10], [14]]
    assert forecast.cost.tolist() == [[10.0], [4 + 2 * 1.5 + 2.0]]
    assert forecast.tau.tolist() == [1.0, 10 / 6] and forecast.speedup[1] == pytest.approx(10 / 9)


def test_the_forecast_takes_the_curve_near_each_prompt() -> None:
    lanes = [ScoredLane.of("vanilla", {}), ScoredLane.of("prompt-lookup", {}, 4)]
    scores = [RequestScore(((0, 0, 10),), 0.0, 0.0), RequestScore(((4, 1, 5),), 0.0, 0.0)]
    sweep = scored_sweep(lanes, [(Request("none", tokens, 10, False), scores) for tokens in (40, 900)])
    curve = CostCurve((1, 5), (1.0, 2.0), (ContextCost(50, 2.0, (1.0, 1.0)), ContextCost(1000, 2.0, (1.0, 3.0))))
    assert forecast_sweep(sweep, curve)[0].cost[1].tolist() == [5.0, 15.0]


def test_our_trees_are_padded_where_more_rows_cost_less_but_a_twins_are_not() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 2.0, 1.5))
    lane = ScoredLane.of("prompt-lookup", {}, 3)
    assert step_costs(curve, lane) == [1.0, 1.5, 1.5, 1.5]
    twin = ScoredLane("vllm-ngram", 3, {}, lane.build)
    assert step_costs(curve, twin) == [1.0, 2.0, 1.75, 1.5]


@pytest.mark.parametrize("name", ["trtllm-ngram", "trtllm-sa", "sglang-ngram"])
def test_an_engine_that_pads_drafts_pays_for_full_drafts(name: str) -> None:
    """The first step reads the prompt and has no draft, as in the metrics of `score`."""
    curve, lane = CostCurve((1, 5), (1.0, 2.0)), ScoredLane.of(name, {}, 4)
    lanes, short = [ScoredLane.of("vanilla", {}), lane], RequestScore(((0, 0, 3), (2, 1, 2), (4, 1, 1)), 0.0, 0.0)
    sweep = scored_sweep(lanes, [(Request("none", 100, 9, False), [RequestScore(((0, 0, 9),), 0.0, 0.0), short])])
    (forecast,) = forecast_sweep(sweep, curve)
    assert forecast.cost.tolist() == [[9.0], [1 + 5 * 2.0]] and forecast.rows[1].tolist() == [26]
    assert sweep.tally(1, {0}).row(curve, lane)["expected_speedup"] == pytest.approx(9 / 11)
    assert ScoredLane.of("vllm-ngram", {}, 4).padded_draft is None is ScoredLane.of("fusion", {}).padded_draft


def test_lookahead_pays_for_its_window_although_it_is_not_scored() -> None:
    """The window has 4 rows of 15 tokens: 59 nodes in every step, in addition to the pool's."""
    curve, lane = CostCurve((1, 60, 61), (1.0, 2.0, 3.0)), ScoredLane.of("lookahead", {})
    # A smaller budget narrows the window; as many n-grams are assumed as it has columns. In 6, only N = 4 fits.
    assert [ScoredLane.of("lookahead", {}, size).unscored_rows for size in (119, 58, 6)] == [59, 27, 2]
    assert step_costs(curve, lane)[:2] == [2.0, 3.0]
    scores = [RequestScore(((0, 0, 9),), 0.0, 0.0), RequestScore(((0, 0, 3), (1, 1, 3)), 0.0, 0.0)]
    sweep = scored_sweep([ScoredLane.of("vanilla", {}), lane], [(Request("none", 9, 9, False), scores)])
    (forecast,) = forecast_sweep(sweep, curve)
    assert forecast.cost.tolist() == [[9.0], [15.0]] and forecast.rows[1].tolist() == [3 * 60 + 3 * 61]
    row = sweep.tally(1, {0}).row(curve, lane)
    assert row["expected_speedup"] == pytest.approx(9 / 15)


def test_in_a_batch_drafting_pays_less() -> None:
    curve, lane = roofline_curve("h100", 8), ScoredLane.of("prompt-lookup", {}, 7)
    assert step_costs(curve, lane)[7] == 1.0
    # 8 x 64 rows are beyond the roofline's ridge point at 295 rows; 64 are not.
    assert step_costs(curve, lane, 64)[7] == pytest.approx(512 / 295, rel=0.01)


def test_the_roofline_follows_its_formula() -> None:
    # A model of 7 billion parameters: 14 GB of 16-bit weights, and 14 billion operations for each row.
    for gpu, (bandwidth, operations, _) in GPUS.items():
        curve = roofline_curve(gpu, 7)
        for rows in (1, 100, 1000, 4096):
            times = [max(14e9 / bandwidth, 14e9 * number / operations) for number in (rows, 1)]
            assert curve.at(rows) == pytest.approx(times[0] / times[1], rel=0.02)
        assert curve.row_ms == pytest.approx(14e12 / bandwidth)
        assert gpu in describe_curve(curve) and "not a measurement" in describe_curve(curve)
    assert "not measured" in describe_curve(ASSUMED_GPU) and "does not say where" in describe_curve(FREE)


@pytest.mark.parametrize("name", ["b200", "h100", "h100-0b", "h100-8", "h100-8b-fp8", "nowhere.json"])
def test_an_unknown_curve_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="There is no cost curve"):
        find_curve(name)


def make_forecast(*costs: list[float], rows: list[float]) -> Forecast:
    """A forecast for requests of 10 tokens in 5 steps; `costs`: each lane's by request; `rows`: its rows a step."""
    cost = np.array(costs)
    return Forecast(
        np.full(cost.shape[1], 10.0),
        np.full(cost.shape, 5.0),
        0 * cost,
        5.0 * np.array(rows)[:, None] + 0 * cost,
        cost,
    )


def test_among_equally_good_lanes_the_thriftiest_is_chosen() -> None:
    noise = [4.0, 6.0, 5.0, 5.5]
    forecast = make_forecast([10.0] * 4, noise, [value + 0.01 for value in noise], [9.0] * 4, rows=[1, 9, 3, 2])
    # Lane 2 costs 0.01 more on every request, so the standard error of the difference is tiny and lane 1 is better.
    assert thriftiest(forecast, [1, 2, 3]) == 1
    noisy = make_forecast([10.0] * 4, noise, [6.0, 4.0, 5.6, 5.0], [9.0] * 4, rows=[1, 9, 3, 2])
    assert thriftiest(noisy, [1, 2, 3]) == 2 == choose_lane(noisy, [0, 1, 2, 3])


def test_drafts_that_the_engine_fills_up_count_as_full_drafts() -> None:
    """Both settings save half of the steps. The first drafts fewer tokens, but each of its steps verifies 33 rows."""
    rare_drafts, short_drafts = ScoredLane.of("trtllm-ngram", {}, 32), ScoredLane.of("trtllm-ngram", {}, 4)
    undrafted = RequestScore(((0, 0, 100),), 0.0, 0.0)
    # Two kinds of requests, so that the difference has a standard error.
    first_kind = [
        RequestScore(((0, 0, 47), (32, 17, 2), (32, 16, 1)), 0, 0),
        RequestScore(((0, 0, 25), (4, 2, 25)), 0, 0),
    ]
    second_kind = [
        RequestScore(((0, 0, 46), (32, 17, 3)), 0, 0),
        RequestScore(((0, 0, 22), (4, 2, 24), (4, 1, 3)), 0, 0),
    ]
    requests = [
        (Request("none", 100, 100, False), [undrafted, *scores])
        for scores in (first_kind, second_kind)
        for _ in range(8)
    ]
    sweep = scored_sweep([ScoredLane.of("vanilla", {}), rare_drafts, short_drafts], requests)
    curve = find_curve("h100-8b")
    single, batch = forecast_sweep(sweep, curve, (1, 16))
    assert single.speedup[1] == pytest.approx(single.speedup[2], rel=0.01) and batch.speedup[2] > 1.5 * batch.speedup[1]
    assert single.rows_per_step[1:].round().tolist() == [32, 5]
    assert choose_lane(single, [0, 1, 2]) == 2 and 2 in contenders(single, [1, 2], 1)


def test_nothing_is_drafted_where_the_gain_is_uncertain() -> None:
    assert choose_lane(make_forecast([10.0] * 4, [4.0, 16.0, 5.0, 14.0], rows=[1, 5]), [0, 1]) == 0
    assert choose_lane(make_forecast([10.0] * 4, [9.0] * 4, rows=[1, 5]), [0, 1]) == 1
    assert choose_lane(make_forecast([10.0], [5.0], rows=[1, 5]), [0, 1]) == 0, (
        "a single request must not be evidence enough"
    )


def test_bootstrap_intervals_depend_on_the_seed_and_match_the_linear_error() -> None:
    chance = np.random.default_rng(3)
    forecast = make_forecast([10.0] * 200, list(chance.uniform(4, 8, 200)), rows=[1, 5])
    first = forecast.intervals(1, 0)
    assert first == forecast.intervals(1, 0) != forecast.intervals(1, 1)
    low, high = first["speedup"]
    assert low < forecast.speedup[1] < high
    assert (high - low) / 2 == pytest.approx(1.96 * forecast.standard_error(1), rel=0.1)


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    """A finished sweep over 60 requests, of which a quarter copies nothing, and one that loops."""
    transcripts = [*mostly_copying(60), transcript([1, 2, 3, 4], [7, 8] * 30)]
    swept = Sweep.of(grid_lanes(["prompt-lookup", "suffix", "bigram"], {}, (4, 8)), transcripts, ASSUMED_GPU)
    run_sweep(swept, transcripts)
    return swept


def test_the_recommendation_is_the_same_with_another_seed(sweep: Sweep) -> None:
    first, second = (Recommender(sweep, ASSUMED_GPU, seed=seed).recommendation() for seed in (0, 1))
    ends = [f"{name}_{end}" for name in ("tau", "speedup") for end in ("low", "high")]
    assert {key: first[key] for key in first if key not in ends} == {
        key: second[key] for key in second if key not in ends
    }
    assert [first[key] for key in ends] != [second[key] for key in ends]


def test_loops_are_left_out(sweep: Sweep) -> None:
    recommender = Recommender(sweep, ASSUMED_GPU)
    assert len(recommender.included) == 60 == sum(group["requests"] for group in recommender.groups)
    assert any("1 requests with a looping output" in sentence for sentence in recommender.not_tested)


def test_where_nothing_pays_drafting_is_switched_off(sweep: Sweep) -> None:
    recommender = Recommender(sweep, CostCurve((1, 9), (1.0, 1.3)))
    advised = {group["category"]: group["advice"] for group in recommender.groups}
    assert recommender.chosen and advised == {"copy": "draft", "fresh": "switch drafting off"}
    text = " ".join(advice.sentences(recommender, "a test's curve"))
    assert "On the 15 requests of 'fresh' nothing pays" in text and "switch drafting off there" in text
    assert "On these 60 requests (1,440 output tokens)" in text and "a test's curve" in text


def test_an_uncertain_result_is_not_called_a_loss() -> None:
    """One lane pays on most requests; in a category of a single request another is faster, which proves nothing."""
    lanes = [ScoredLane.of("vanilla", {}), *(ScoredLane.of("prompt-lookup", {}, size) for size in (4, 8))]
    undrafted, slower, faster = (RequestScore(((0, 0, steps),), 0.0, 0.0) for steps in (10, 11, 7))
    half = RequestScore(((0, 0, 5),), 0.0, 0.0)
    many = [(Request("many", 9, 10, False), [undrafted, half, faster])] * 9
    single = [(Request("single", 9, 10, False), [undrafted, slower, faster])]
    recommender = Recommender(scored_sweep(lanes, many + single), FREE)
    assert [group["advice"] for group in recommender.groups] == ["draft", "not certain"]
    text = " ".join(advice.sentences(recommender, "a test's curve"))
    assert "of 'single' the lane does not pay (0.91x), and no other lane is reliably faster." in text
    assert "nothing" not in text
    certain = Recommender(scored_sweep(lanes, many + 2 * single), FREE)
    assert [group["advice"] for group in certain.groups] == ["draft", "use other settings"]
    text = " ".join(advice.sentences(certain, "a test's curve"))
    assert "On the 2 requests of 'single' prompt-lookup (up to 8 draft tokens) pays" in text


def test_the_advice_is_not_to_draft_where_drafts_are_expensive(sweep: Sweep) -> None:
    recommender = Recommender(sweep, EXPENSIVE)
    assert recommender.recommendation()["lane"] == "vanilla" and recommender.recommendation()["speedup"] == 1.0
    text = " ".join(advice.sentences(recommender, "a test's curve"))
    assert "Do not draft" in text and "Slower than no drafts with every setting" in text


def test_a_profile_describes_one_lane_in_every_category(sweep: Sweep) -> None:
    """Where the advice is not to draft, the profile is that of the lane that drafts best."""
    recommender = Recommender(sweep, EXPENSIVE)
    profile = advice.profile_file(recommender, "a test")
    groups, tau = profile["per_category"], float(recommender.forecast.tau[recommender.best])
    assert recommender.chosen == 0 and groups["copy"]["mean_accept_length"] > 1.5
    assert groups["fresh"]["mean_accept_length"] < tau < groups["copy"]["mean_accept_length"]


def test_a_lane_may_pay_in_batches_only(sweep: Sweep) -> None:
    """On this curve two rows cost much more than one, and further rows are cheap."""
    recommender = Recommender(sweep, CostCurve((1, 2, 64), (1.0, 1.5, 1.7)), batch=16)
    text = " ".join(advice.sentences(recommender, "a test's curve"))
    assert recommender.chosen and "At other batch sizes" in text
    losing_size = losing_batch(recommender)
    assert losing_size is None or losing_size > 16
    unbatched = Recommender(sweep, recommender.curve)
    assert unbatched.chosen == 0 or "In batches the lane pays less" not in " ".join(
        advice.sentences(unbatched, "a test's curve")
    )


def test_an_idle_lane_is_reported_with_its_minimum_lengths() -> None:
    # `list` stands for a drafter's class: nothing is built here.
    lanes = [
        ScoredLane.of("vanilla", {}),
        ScoredLane("llamacpp-mod", 64, {"n_match": 24, "n_min": 48, "n_max": 64}, list),
    ]
    undrafted, drafting = RequestScore(((0, 0, 10),), 0.0, 0.0), RequestScore(((0, 0, 4), (8, 2, 2)), 0.0, 0.0)
    lanes.append(ScoredLane("llamacpp-mod", 64, {"n_match": 24, "n_min": 1, "n_max": 64}, list))
    scores = [undrafted, undrafted, drafting]
    recommender = Recommender(scored_sweep(lanes, [(Request("none", 9, 10, False), scores)] * 3), FREE)
    silent = [sentence for sentence in advice.sentences(recommender, "a test's curve") if "drafts on" in sentence]
    words = "drafts on 0.0 % of the steps: hardly any match reaches n_match 24, n_min 48."
    assert silent == [f"llamacpp-mod with n_min=48 num_draft=64 {words}"]


def test_the_profile_matches_a_hand_computation() -> None:
    # Of ten steps four accept nothing, three one token, three two.
    profile = acceptance_profile({0: 4, 1: 3, 2: 3})
    assert profile["marginal_accept_rates"] == [0.6, 0.3] and profile["conditional_accept_rates"] == [0.6, 0.5]
    assert profile["mean_accept_length"] == pytest.approx(1.9)
    assert profile["acceptance_length_histogram"] == {"1": 4, "2": 3, "3": 3}


def test_lanes_that_were_not_swept_cannot_be_recommended(sweep: Sweep) -> None:
    with pytest.raises(InputError, match="None of these lanes was swept: trie"):
        Recommender(sweep, FREE, ["trie"])


@pytest.mark.slow
@pytest.mark.parametrize("grid", [{}, {"fusion": {"chain": (False, True)}}])
def test_a_recommended_fusion_is_exported_to_vllm_as_a_class(grid: dict[str, dict[str, tuple[bool, ...]]]) -> None:
    transcripts = mostly_copying(40)
    lanes = grid_lanes(["fusion", "vllm-ngram"], grid, (8,))
    keep_outputs = bool(grid)
    recommender = Recommender(Sweep.of(lanes, transcripts, ASSUMED_GPU, keep_outputs), ASSUMED_GPU)
    run_sweep(recommender.sweep, transcripts)
    assert recommender.lane(recommender.chosen).name == "fusion"
    exported = advice.exports(recommender)
    assert exported["vllm"] is not None and exported["sglang"] is None and exported["vllm"]["lane"] == "vllm-ngram"
    [note] = exported["vllm"]["notes"]
    assert "custom_class" in note and ("not swept" in note) != bool(grid)
    assert ('"past": true' in note) == keep_outputs
    if grid:
        chain = next(number for number, lane in enumerate(recommender.sweep.lanes) if lane.options.get("chain"))
        assert f"({recommender.forecast.tau[chain]:.2f} tokens a step" in note
