"""Forced decoding against steps worked out by hand, the engine's steps, and a decoder that tries every path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Scores, Verdict
from specrace.drafters import METHODS, DrafterInputs, Method
from specrace.engine.lane import Lane
from specrace.lab.scoring.score import (
    UNKNOWN,
    Scoreboard,
    ScoredLane,
    forced_steps,
    longest_loop,
    scorable_lanes,
    score_output,
)
from tests.lab.parts import transcript

PROMPT, OUTPUT = (1, 2, 3, 4, 5, 9, 1, 2), (3, 4, 5, 9, 7, 3, 4, 8)


def steps(
    name: str, prompt: Sequence[int], output: Sequence[int], num_draft: int | None = None, **options: Any
) -> list[tuple[int, tuple[int, ...]]]:
    """(number of draft tokens, emitted tokens) of each step of a lane."""
    lane = ScoredLane.of(name, options, num_draft)
    text = transcript(prompt, output)
    drafter = lane.build(DrafterInputs(text.prompt, vocab_size=text.vocab_size), **lane.options)
    return [(step.tree.num_draft, step.emitted) for step in forced_steps(drafter, prompt, output, lane.num_draft)]


def test_vanilla_emits_one_token_per_step_whatever_its_draft_size() -> None:
    expected = [(0, (token,)) for token in OUTPUT]
    assert steps("vanilla", PROMPT, OUTPUT) == expected == steps("vanilla", PROMPT, OUTPUT, 8)


def test_prompt_lookup_matches_steps_worked_out_by_hand() -> None:
    assert steps("prompt-lookup", PROMPT, OUTPUT, 3) == [
        (3, (3, 4, 5, 9)),  # 1 2 was followed by 3 4 5, all accepted; 9 is the bonus
        (3, (7,)),  # 4 5 9 was followed by 1 2 3
        (0, (3,)),  # 7 is new
        (3, (4, 8)),  # 3 was followed by 4 5 9
    ]


# A static trie holds the prompt only; else the output is added to it.
@pytest.mark.parametrize("static", [True, False])
def test_the_trie_matches_steps_worked_out_by_hand(static: bool) -> None:
    drafts = steps("trie", (9, 1, 2, 9), (1, 2, 7, 1, 2, 7, 9), 4, n=4, prefix=1, static=static)
    assert drafts[:2] == [
        (3, (1, 2, 7)),  # 9 was followed by 1 2 9
        (0, (1,)),  # 7 is new
    ]
    # In the prompt, 1 2 is followed by 9 only; in the output, also by 7. The fourth node is what followed 1 2 9.
    assert drafts[2:] == ([(2, (2, 7)), (0, (9,))] if static else [(4, (2, 7, 9))])


def test_the_bigram_matches_steps_worked_out_by_hand() -> None:
    assert steps("bigram", (1, 2, 1, 3, 1), (2, 1, 2, 5), 2) == [
        (2, (2, 1, 2)),  # 1 -> 2 and 1 -> 3 occur once each, and 2 came first; then 2 -> 1
        (2, (5,)),  # 2 -> 1 -> 2
    ]


def test_the_trigram_matches_steps_worked_out_by_hand() -> None:
    prompt = (7, 1, 5, 7, 1, 5, 3, 1, 2, 4, 1, 2, 6, 1, 2, 7)
    # 5 came after 7 1 twice, so the trigram is trusted; after 1 alone, 2 came more often.
    assert steps("trigram", prompt, (1, 5, 8), 1) == [(1, (1, 5)), (1, (8,))]
    assert steps("bigram", prompt, (1, 5, 8), 1) == [(1, (1, 5)), (1, (8,))]
    assert steps("trigram", prompt, (1, 5, 8), 2)[0] == (2, (1, 5, 8))
    assert steps("bigram", prompt, (1, 5, 8), 2)[0] == (2, (1, 5))


def test_lookaheads_pool_matches_steps_worked_out_by_hand() -> None:
    prompt = (1, 2, 3, 1, 2, 4, 1)
    # The pool holds the n-grams of the text so far. n = 3: 1 was followed by 2 3 and 2 4, which share the node 2. The
    # window, lookahead's other part, needs the target's answers to its own guesses, and is not drafted here.
    assert steps("lookahead", prompt, (2, 4, 9, 9), n=3) == [(3, (2, 4, 9)), (0, (9,))]


def test_the_walk_is_cut_where_the_output_ends() -> None:
    assert steps("prompt-lookup", (1, 2, 3, 4, 1), (2, 3), 10) == [(4, (2, 3))]
    tally = score_output(ScoredLane.of("prompt-lookup", {}), transcript((1, 2, 3, 4, 1), (2, 3)))
    assert (tally.metrics.tokens, tally.metrics.steps, tally.metrics.accepted) == (2, 1, 2)


@pytest.mark.parametrize("name", scorable_lanes())
def test_every_lane_scores_a_single_token_after_a_single_token(name: str) -> None:
    assert [emitted for _, emitted in steps(name, (0,), (0,))] == [(0,)]


TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@pytest.mark.slow
@pytest.mark.parametrize("name", scorable_lanes())
@given(prompt=TEXTS, output=TEXTS, num_draft=st.integers(0, 12))
def test_a_lane_accepts_the_longest_matching_path(
    name: str, prompt: list[int], output: list[int], num_draft: int
) -> None:
    lane = ScoredLane.of(name, {}, num_draft)
    drafter = lane.build(DrafterInputs(tuple(prompt), vocab_size=4), **lane.options)
    text, end, expected_steps = [*prompt], len(prompt) + len(output), []
    full_text = [*prompt, *output]
    while len(text) < end:
        tree = drafter.propose(text, lane.num_draft).cut(lane.num_draft)
        paths = [tree.path_to(node) for node in range(len(tree))]
        matching_paths = [
            path for path in paths if [tree.tokens[node] for node in path[1:]] == next_tokens(full_text, text, path)
        ]
        best = max(matching_paths, key=len)
        emitted = full_text[len(text) : len(text) + len(best)]
        targets = [UNKNOWN] * len(tree)
        for node, token in zip(best, emitted, strict=False):
            targets[node] = token
        if len(text) + len(emitted) < end:
            drafter.observe(tree, Verdict(best, emitted[-1], Scores(tuple(targets))))
        text += emitted
        expected_steps.append((tree.num_draft, tuple(emitted)))
    assert steps(name, prompt, output, num_draft) == expected_steps


def next_tokens(full_text: list[int], text: list[int], path: tuple[int, ...]) -> list[int]:
    """The tokens that follow `text`, as many as `path` drafts; fewer at the end of `full_text`."""
    return full_text[len(text) : len(text) + len(path) - 1]


@given(TEXTS, TEXTS, st.integers(0, 6))
def test_prompt_lookup_equals_a_brute_force_reference(prompt: list[int], output: list[int], num_draft: int) -> None:
    full_text, position, sizes = [*prompt, *output], len(prompt), []
    while position < len(full_text):
        draft = lookup(full_text[:position], num_draft)
        num_emitted = 1
        while (
            num_emitted <= len(draft)
            and position + num_emitted < len(full_text)
            and draft[:num_emitted] == full_text[position : position + num_emitted]
        ):
            num_emitted += 1
        sizes.append((len(draft), num_emitted))
        position += num_emitted
    assert [(drafted, len(emitted)) for drafted, emitted in steps("prompt-lookup", prompt, output, num_draft)] == sizes


def lookup(text: list[int], num_draft: int) -> list[int]:
    """The tokens after the first earlier occurrence of the last 3, 2 or 1 tokens."""
    for length in (3, 2, 1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[-length:]:
                return text[start + length : start + length + num_draft]
    return []


class ForcedSession:
    """A session whose target writes `output`: its tokens along their path in the tree, and UNKNOWN elsewhere."""

    def __init__(self, output: Sequence[int]) -> None:
        self.remaining = [*output]

    def score(self, tree: TokenTree) -> Scores:
        targets = [UNKNOWN] * len(tree)
        node: int | None = 0
        for token in self.remaining:
            if node is None:
                break
            targets[node] = token
            node = tree.children[node].get(token)
        return Scores(tuple(targets))

    def keep(self, path: Sequence[int]) -> None:
        del self.remaining[: len(path)]


@pytest.mark.slow
@pytest.mark.parametrize("name", scorable_lanes())
@given(prompt=TEXTS, output=TEXTS)
def test_drafts_equal_those_of_a_race_that_ends_with_end_of_text(
    name: str, prompt: list[int], output: list[int]
) -> None:
    """A log omits the end-of-text token. A race that ends at its token limit drafts nothing past the limit."""
    # Token 5, which is in no text, stands for end-of-text.
    lane, drafter_inputs, output = ScoredLane.of(name, {}), DrafterInputs(tuple(prompt), vocab_size=6), [*output, 5]
    forced = list(forced_steps(lane.build(drafter_inputs, **lane.options), prompt, output, lane.num_draft))
    for limit, ends in ((1000, frozenset({5})), (len(output), frozenset[int]())):
        engine = Lane(
            name,
            lane.build(drafter_inputs, **lane.options),
            ForcedSession(output),
            prompt,
            max_new_tokens=limit,
            num_draft=lane.num_draft,
            eos_ids=ends,
        )
        while not engine.end:
            remaining, step = engine.remaining, engine.step()
            expected = forced[step.index]
            # Near its limit, fusion may draft another tree, and so accept more or fewer tokens.
            assert step.emitted == expected.emitted or name == "fusion"
            if limit == 1000:
                assert (step.tree, step.verdict.path) == (expected.tree, expected.verdict.path)
            elif name != "fusion":
                assert step.tree.tokens == expected.tree.pruned(remaining - 1).tokens
        assert engine.tokens == output


@pytest.mark.parametrize("name", ["bigram", "trigram", "trie", "prompt-lookup"])
@given(prompt=TEXTS, output=TEXTS)
def test_steps_equal_those_of_a_race_with_the_same_output(name: str, prompt: list[int], output: list[int]) -> None:
    lane = ScoredLane.of(name, {})
    drafter = lane.build(DrafterInputs(tuple(prompt), vocab_size=4), **lane.options)
    engine = Lane(name, drafter, ForcedSession(output), prompt, max_new_tokens=len(output), num_draft=lane.num_draft)
    emitted = []
    while not engine.end:
        emitted.append(engine.step().emitted)
    assert [tokens for _, tokens in steps(name, prompt, output)] == emitted


class RecordingDrafter:
    """A drafter that drafts one right token with a wrong sibling, and keeps the verdicts it observes."""

    def __init__(self, inputs: DrafterInputs) -> None:
        self.verdicts: list[Verdict] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        builder = TreeBuilder(context[-1])
        right = builder.add(0, context[-1] + 1)
        builder.add(0, 99)
        builder.add(right, 99)
        return builder.build()

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


def test_a_drafter_observes_only_the_accepted_path() -> None:
    drafter = RecordingDrafter(DrafterInputs((1,), vocab_size=100))
    list(forced_steps(drafter, (1,), (2, 3, 4, 5), 3))
    assert drafter.verdicts == [Verdict((0, 1), 3, Scores((2, 3, UNKNOWN, UNKNOWN)))]


def test_a_newly_registered_method_can_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Method("recorder", "Recorder", "a test's", RecordingDrafter, num_draft=3)
    monkeypatch.setitem(METHODS, "recorder", method)
    assert "recorder" in scorable_lanes()
    board = Scoreboard([ScoredLane.of(name, {}) for name in scorable_lanes()])
    board.add(transcript((1,), (2, 3, 4, 5)))
    row = next(row for row in board.groups() if row["lane"] == "recorder")
    # In each of two steps, one of three draft tokens is accepted.
    assert (row["tokens"], row["steps"], row["tau"], row["drafted_per_step"]) == (4, 2, 2.0, 3.0)
    assert row["acceptance_rate"] == 2 / 6


def test_a_method_may_say_that_it_cannot_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = Method(
        "needy", "Needy", "a test's", RecordingDrafter, num_draft=3, needs_target_outputs="it lives on rejected tokens"
    )
    monkeypatch.setitem(METHODS, "needy", needy)
    assert "needy" not in scorable_lanes()
    with pytest.raises(InputError, match=r"The lane needy cannot be scored .*: it lives on rejected tokens"):
        ScoredLane.of("needy", {})


def test_jacobi_cannot_be_scored() -> None:
    assert "jacobi" not in scorable_lanes()
    with pytest.raises(InputError, match="jacobi cannot be scored"):
        ScoredLane.of("jacobi", {})


def test_only_lookaheads_pool_is_scored_and_the_lane_states_it() -> None:
    lane = ScoredLane.of("lookahead", {"n": "4"})
    assert lane.part.startswith("pool from prompt and output") and lane.options["pool_from_prompt"] is True
    with pytest.raises(InputError, match="pool_from_prompt"):
        ScoredLane.of("lookahead", {"pool_from_prompt": "false"})


def test_lookahead_that_is_jacobi_is_not_scored() -> None:
    """With n = 2 lookahead's pool is empty, so its score would be vanilla's at a higher cost."""
    with pytest.raises(InputError, match=r"cannot be scored.*n=2 is Jacobi"):
        ScoredLane.of("lookahead", {"n": 2})
    # However small the draft, every step also verifies a window, here of one node.
    assert [ScoredLane.of("lookahead", {}, size).unscored_rows for size in (1, 3)] == [1, 1]


def test_default_draft_sizes_are_those_of_a_gpu() -> None:
    assert {name: ScoredLane.of(name, {}).num_draft for name in ("trie", "prompt-lookup", "vanilla")} == {
        "trie": 32,
        "prompt-lookup": 10,
        "vanilla": 0,
    }
    assert [ScoredLane.of(name, {}, 7).num_draft for name in ("trie", "vanilla")] == [7, 0]


# A loop has 36 tokens or more, a period of at most 48 tokens, and three repetitions or more.
LOOP = [5, 6, 7] * 13


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, *LOOP], 39),
        ([1, 2, *LOOP, 2], 39),  # an end-of-text token after the loop
        ([*LOOP, 1, 2, 3], 39),
        ([8] * 36, 36),
        ([8] * 35, 0),
        ([*range(24)] * 2, 0),
        ([*range(24)] * 3, 72),
        ([*range(48)] * 3, 144),
        ([*range(49)] * 4, 0),  # too long a period
        ([4], 0),
        ([*range(200)], 0),
    ],
)
def test_loops_are_found_anywhere(tokens: list[int], expected: int) -> None:
    assert longest_loop(tokens) == expected


def test_looping_outputs_also_form_their_own_group() -> None:
    board = Scoreboard([ScoredLane.of("prompt-lookup", {})], by_category=True)
    board.add(transcript((1, 2, 3), (1, 2, 9)))
    board.add(transcript((1, 2, 3), [7] * 40))
    rows = {row["category"]: row for row in board.groups()}
    assert list(rows) == ["all", "none", "looping"]
    assert rows["all"] | {"category": "none"} == rows["none"]
    assert (rows["all"]["outputs"], rows["all"]["looping"], rows["looping"]["outputs"]) == (2, 1, 1)
    # The first output has 3 tokens and takes 2 steps; the looping one has 40 tokens.
    assert rows["all"]["tau"] == 43 / (rows["looping"]["steps"] + 2)
    assert rows["all"]["tau_without_looping"] == 3 / 2
    assert rows["looping"]["tau_without_looping"] is None
    assert rows["looping"]["tau"] > 4


def test_tau_is_the_sum_of_tokens_over_the_sum_of_steps() -> None:
    board = Scoreboard([ScoredLane.of("prompt-lookup", {}, 3)], by_category=True)
    board.add(transcript(PROMPT, OUTPUT))
    board.add(transcript((1, 2, 3), (4, 5, 6, 7, 8)))
    row = board.groups()[0]
    # Four steps with nine draft tokens, four of them accepted, as worked out above; and five steps without a draft.
    assert (row["tokens"], row["steps"], row["tau"]) == (13, 9, 13 / 9)
    assert row["drafted_per_step"] == 9 / 9 and row["acceptance_rate"] == 4 / 9


def test_kept_outputs_are_not_used_for_their_own_prompt() -> None:
    """All three outputs are the same text, which is in no prompt; the first two prompts are the same."""
    first, second = transcript((1, 2, 3), range(10, 26)), transcript((1, 2, 4), range(10, 26))
    steps_taken = {}
    for keep in (False, True):
        board, counts = Scoreboard([ScoredLane.of("fusion", {})], keep_outputs=keep), [0]
        for scored in (first, first, second):
            board.add(scored)
            counts.append(board.groups()[0]["steps"])
        steps_taken[keep] = [after - before for before, after in pairwise(counts)]
    assert steps_taken[False] == [16, 16, 16] and steps_taken[True][:2] == [16, 16]
    assert steps_taken[True][2] < 8


@pytest.mark.parametrize("name", ["all", "looping"])
def test_a_category_named_like_one_of_our_groups_is_told_apart(name: str) -> None:
    board = Scoreboard([ScoredLane.of("vanilla", {})], by_category=True)
    text = transcript((1,), (2,))
    board.add(replace(text, category=name))
    assert [row["category"] for row in board.groups()] == ["all", f"{name} (category)"]


def test_a_cost_curve_is_interpolated_and_extrapolated_linearly() -> None:
    curve = CostCurve((1, 2, 4), (1.0, 1.5, 2.0))
    assert [curve.at(rows) for rows in (1, 2, 3, 4, 8)] == [1.0, 1.5, 1.75, 2.0, 3.0]
    assert CostCurve((1,), (1.0,)).at(50) == 1.0
    assert CostCurve((1, 2), (2.0, 1.0)).at(5) == 0.5


def test_the_expected_speedup_is_tokens_over_the_cost_of_the_steps() -> None:
    board = Scoreboard([ScoredLane.of("prompt-lookup", {}, 3)])
    board.add(transcript(PROMPT, OUTPUT))
    # Of the four steps, three verify four rows, and one a single row.
    row = board.groups(CostCurve((1, 4), (1.0, 1.6)))[0]
    assert row["expected_speedup"] == pytest.approx(8 / (3 * 1.6 + 1.0))


@pytest.mark.parametrize(
    "rows_and_ratio",
    [((), ()), ((2, 3), (1.0, 1.1)), ((1, 2), (1.0,)), ((1, 3, 2), (1.0, 1.0, 1.0)), ((1, 2), (1.0, 0.0))],
)
def test_an_invalid_cost_curve_is_refused(rows_and_ratio: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match="cost curve"):
        CostCurve(*rows_and_ratio)


def test_options_are_checked() -> None:
    options: Mapping[str, Any] = {"n": "1"}
    with pytest.raises(InputError, match=r"trie\.n is '1'"):
        ScoredLane.of("trie", options)
