"""From a server's chunks to the steps of a lane: a chunk becomes one step only where it is a step of the server.

Some servers also list, for each step that had a draft, how many of its tokens were `drafted` and `accepted`. A step
emits its accepted tokens and one more, so chunks of that size are its steps.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specrace.core.metrics import start_metrics
from specrace.servers.dialects import LlamaCpp, Vllm
from specrace.servers.lane import PlacedDraft, place_drafts, served_lane
from specrace.servers.reply import Chunk, Reply

DIALECT = Vllm("vLLM 0.32.0", "m")


def reply_of(*chunks: list[int], end: str = "eos", **counts: object) -> Reply:
    """A reply with these chunks of token ids, 10 ms apart, the first after 100 ms; `counts` are fields of `Reply`."""
    timed_chunks = [Chunk(100.0 + 10 * number, "", tuple(chunk)) for number, chunk in enumerate(chunks)]
    return Reply(timed_chunks, end, **counts)  # type: ignore[arg-type]


def test_a_step_has_the_accepted_tokens_and_the_number_of_drafted_ones() -> None:
    reply = reply_of([2], [3, 4, 5], [6], [7, 1], accepted=(2, 0, 1), drafted=(4, 4, 3))
    lane = served_lane("fast", DIALECT, reply, root=9)
    assert [step.emitted for step in lane.steps] == [(2,), (3, 4, 5), (6,), (7, 1)]
    assert [step.accepted for step in lane.steps] == [0, 2, 0, 1]
    assert [step.num_draft for step in lane.steps] == [0, 4, 4, 3]
    assert [step.tree.tokens for step in lane.steps] == [(9,), (2, 3, 4), (5,), (6, 7)]
    assert [step.at_ms for step in lane.steps] == [0.0, 10.0, 20.0, 30.0]
    assert lane.info.prefill_ms == 100.0 and lane.steps[-1].end == "eos"
    assert lane.info.served is not None and lane.info.served.chunks_are_steps


def test_the_clock_starts_with_the_first_chunk_whose_tokens_do_not_count() -> None:
    lane = served_lane("fast", DIALECT, reply_of([2], [3, 4], [1], accepted=(1,), drafted=(2,)), root=9)
    metrics = start_metrics(lane.info)
    for step in lane.steps:
        metrics.add(step)
    assert metrics.tokens == 4 and metrics.decode_ms == 20.0
    assert metrics.tokens_per_s == 150.0, "3 tokens in 20 ms"
    assert (metrics.steps, metrics.drafted, metrics.accepted) == (3, 2, 1)
    # The lane of a server has no speedup.
    assert metrics.speedup(metrics) == 0.0


def test_without_counts_a_chunk_of_several_tokens_is_no_step() -> None:
    lane = served_lane("fast", DIALECT, reply_of([2], [3, 4], [1]), root=9)
    assert [step.emitted for step in lane.steps] == [(2,), (3,), (4,), (1,)]
    assert [step.timing.total_ms for step in lane.steps] == [0.0, 10.0, 0.0, 10.0]
    served = lane.info.served
    assert served is not None and not served.chunks_are_steps and "how many tokens each step accepted" in served.note
    metrics = start_metrics(lane.info)
    for step in lane.steps:
        metrics.add(step)
    assert (metrics.tau, metrics.drafted, metrics.accepted) == (0.0, 0, 0), "unknown, so not shown as 1"


def test_chunks_that_hold_several_steps_are_noticed() -> None:
    lane = served_lane("fast", DIALECT, reply_of([2], [3, 4, 5, 6], [1], accepted=(1, 1), drafted=(2, 2)), root=9)
    assert lane.info.served is not None and not lane.info.served.chunks_are_steps
    assert "hold several steps" in lane.info.served.note


def test_llama_cpps_lane_has_totals_but_no_drafts_in_its_steps() -> None:
    reply = reply_of([2], [3], [4], [1], num_tokens=4, num_drafted=6, num_accepted=2, num_steps=2)
    lane = served_lane("cpp", LlamaCpp("llama.cpp", "m"), reply, root=9)
    assert all(step.tree.num_draft == 0 and step.drafted is None for step in lane.steps)
    served = lane.info.served
    assert served is not None and not served.chunks_are_steps and "token by token" in served.note
    metrics = start_metrics(lane.info)
    for step in lane.steps[:-1]:
        metrics.add(step)
    assert metrics.tau == 0.0, "its steps are counted at the end only"
    metrics.add(lane.steps[-1])
    assert (metrics.steps, metrics.drafted, metrics.accepted, metrics.tau) == (2, 6, 2, 2.0)


def test_a_draft_that_passes_the_end_counts_as_far_as_it_was_printed() -> None:
    # The tokens of each chunk, and the accepted and drafted tokens of each step with a draft.
    assert place_drafts([1, 3], [5], [8]) == [PlacedDraft(0, 0), PlacedDraft(8, 3)]
    assert place_drafts([1, 1], [5], [8]) == [PlacedDraft(0, 0), PlacedDraft(8, 1)]
    assert place_drafts([1, 1], [0], [8]) == [PlacedDraft(None, 0)] * 2


def test_which_step_had_a_rejected_draft_is_not_guessed() -> None:
    """`PlacedDraft(None, 0)` is a step for which the number of drafted tokens is unknown."""
    assert place_drafts([1, 1, 1, 3, 1], [0, 2], [4, 4]) == [
        *[PlacedDraft(None, 0)] * 3,
        PlacedDraft(4, 2),
        PlacedDraft(0, 0),
    ]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12), st.integers(0, 3))
def test_every_true_sequence_of_steps_is_recognised(steps: list[tuple[int, bool]], cut: int) -> None:
    drafts = [(accepted if has_draft else 0, has_draft) for accepted, has_draft in steps]
    accepted = [count for count, has_draft in drafts if has_draft]
    sizes = [1, *(count + 1 for count, _ in drafts)]
    # The end of the text may lie inside the last step.
    if drafts:
        sizes[-1] = max(1, sizes[-1] - cut)
    placed = place_drafts(sizes, accepted, [4] * len(accepted))
    assert placed is not None and len(placed) == len(sizes)
    printed = [min(count, size) for (count, _), size in zip(drafts, sizes[1:], strict=True)]
    assert [draft.accepted for draft in placed[1:]] == printed
    for draft, (_, has_draft) in zip(placed[1:], drafts, strict=True):
        assert draft.drafted in (None, 4 if has_draft else 0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.lists(st.integers(0, 4), max_size=6))
def test_no_step_gets_more_accepted_tokens_than_it_printed(sizes: list[int], accepted: list[int]) -> None:
    placed = place_drafts(sizes, accepted, None)
    if placed is not None:
        assert len(placed) == len(sizes)
        assert all(size - 1 <= draft.accepted <= size for size, draft in zip(sizes, placed, strict=True))
        assert sum(draft.accepted for draft in placed) <= sum(accepted)
