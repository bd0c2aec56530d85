"""A server's answer as a lane: step by step if its chunks are steps, else token by token.

The tree of a step holds the accepted draft tokens only, because a server does not stream the rejected ones. A chunk
counts as a step only if that can be checked: each chunk has one token, or the server lists how many tokens each step
accepted and the chunks agree. vLLM, for example, merges the chunks of several steps if the client reads slowly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.events import LaneInfo, Served, Step, Timing
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.servers.dialects import Dialect
from specrace.servers.reply import Reply

# The steps of a server that sends no token ids have no tokens. But a tree needs a root, and a verdict a bonus token.
# Both get this id, and neither is shown.
_NO_TOKEN = 0


@dataclass(frozen=True)
class ServedLane:
    """What a race shows of one answer."""

    info: LaneInfo
    steps: tuple[Step, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The output."""
        return tuple(token for step in self.steps for token in step.emitted)

    @property
    def output(self) -> Sequence[object]:
        """What is compared with other answers: the tokens, or the text if the server sends no token ids."""
        served = self.info.served
        return (
            self.tokens
            if served is None or served.sends_ids
            else "".join(text for step in self.steps for text in step.texts)
        )


@dataclass(frozen=True)
class PlacedDraft:
    """The draft of the step that a chunk shows: its size, and how many of its tokens were accepted.

    `drafted` is None if unknown, for instance if the server does not say which of several steps that accepted nothing
    had a draft.
    """

    drafted: int | None
    accepted: int


def served_lane(name: str, dialect: Dialect, reply: Reply, root: int, *, together: bool = False) -> ServedLane:
    """The lane `name` from a checked reply.

    `root`: the last token of the prompt. `together`: other servers answered at the same time.
    """
    if not dialect.sends_ids:
        return _lane_of_text(name, dialect, reply, together=together)
    placed, note = read_steps(dialect, reply)
    total = sum(reply.drafted) if reply.drafted is not None else reply.num_drafted
    accepted = sum(reply.accepted) if reply.accepted is not None else reply.num_accepted
    served = Served(
        engine=dialect.engine,
        model=dialect.model,
        chunks_are_steps=placed is not None,
        first_tokens=len(reply.chunks[0].tokens or ()),
        steps=reply.num_steps if placed is None else len(placed),
        drafted=total,
        accepted=accepted,
        note=note,
        together=together,
    )
    steps = tuple(_steps(name, reply, placed, root))
    info = LaneInfo(name, f"{name} ({dialect.engine})", 0, prefill_ms=reply.chunks[0].at_ms, served=served)
    return ServedLane(info, steps)


def _lane_of_text(name: str, dialect: Dialect, reply: Reply, *, together: bool) -> ServedLane:
    """The lane from a reply without token ids: a step without tokens for each chunk."""
    first_ms = before_ms = reply.chunks[0].at_ms
    # If there are as many tokens as chunks, each chunk had one. There may be one token more, the end-of-text token.
    max_more = 1 if reply.end == "eos" else 0
    has_one_each = reply.num_tokens is not None and 0 <= reply.num_tokens - len(reply.chunks) <= max_more
    served = Served(
        engine=dialect.engine,
        model=dialect.model,
        chunks_are_steps=False,
        first_tokens=int(has_one_each),
        note=dialect.why_no_steps,
        sends_ids=False,
        tokens=reply.num_tokens,
        together=together,
    )
    tree, verdict = TokenTree.chain(_NO_TOKEN), Verdict((0,), _NO_TOKEN, Scores((_NO_TOKEN,)))
    steps = list[Step]()
    for index, chunk in enumerate(reply.chunks):
        end = reply.end if index == len(reply.chunks) - 1 else ""
        timing = Timing(0.0, chunk.at_ms - before_ms, 0.0)
        steps.append(Step(name, index, chunk.at_ms - first_ms, tree, verdict, (), timing, end, texts=(chunk.text,)))
        before_ms = chunk.at_ms
    info = LaneInfo(name, f"{name} ({dialect.engine})", 0, prefill_ms=first_ms, served=served)
    return ServedLane(info, tuple(steps))


def measured_counts(dialect: Dialect, reply: Reply) -> dict[str, Any]:
    """A server's counts as a transcript keeps them, under vLLM's names; None for what the server does not report.

    `step_sizes`: the tokens of each step, if the chunks are steps; `num_steps`: their number, if only that is known.
    """
    placed, _ = read_steps(dialect, reply)
    drafts = None if reply.accepted is None else len(reply.accepted)
    # Chunks of one token each, from a server that reports no drafts, are steps without a draft.
    undrafted = placed is not None and reply.accepted is None and not reply.num_drafted
    return {
        "engine": dialect.engine,
        "num_spec_steps": 0 if undrafted else drafts,
        "num_draft_tokens": 0 if undrafted else reply.num_drafted,
        "num_accepted_draft_tokens": 0 if undrafted else reply.num_accepted,
        "per_step_drafted": reply.drafted,
        "per_step_accepted": reply.accepted,
        "step_sizes": None if placed is None else [len(chunk.tokens or ()) for chunk in reply.chunks],
        "num_steps": reply.num_steps,
    }


def read_steps(dialect: Dialect, reply: Reply) -> tuple[list[PlacedDraft] | None, str]:
    """Return the draft of each chunk, or None if the chunks are not steps, and a note.

    The note says why the chunks are not steps, or which drafts are unknown; "" if neither is so.
    """
    if dialect.why_no_steps:
        return None, dialect.why_no_steps
    sizes = [len(chunk.tokens or ()) for chunk in reply.chunks]
    if reply.accepted is None and max(sizes) == 1:
        drafted = None if reply.num_drafted else 0
        note = "it does not say which steps had a draft" if reply.num_drafted else ""
        return [PlacedDraft(drafted, 0) for _ in sizes], note
    if reply.accepted is None:
        return None, "it does not say how many tokens each step accepted, so its chunks cannot be checked"
    placed = place_drafts(sizes, reply.accepted, reply.drafted)
    if placed is None:
        return None, "its chunks do not agree with the accepted tokens that it lists, so they hold several steps"
    unknown = sum(draft.drafted is None for draft in placed)
    return placed, f"it does not say which of {unknown} steps had a draft that was rejected" if unknown else ""


def place_drafts(
    sizes: Sequence[int], accepted: Sequence[int], drafted: Sequence[int] | None
) -> list[PlacedDraft] | None:
    """The draft of each chunk of `sizes` tokens; None if the chunks are not the steps.

    `accepted` and `drafted` have an entry for each step with a draft. A chunk has one token more than its step
    accepted; the last chunk may be cut. A chunk of one token is a step without a draft, or with a rejected one. Which
    of the two is known if all one-token chunks between two larger chunks are of the same kind.
    """
    steps_left = list(enumerate(accepted))
    placed = list[PlacedDraft]()
    one_token_chunks: list[int] = []
    for index, size in enumerate(sizes):
        is_last = index == len(sizes) - 1
        later_steps_accept = any(count for _, count in steps_left)
        if size == 1 and not (is_last and later_steps_accept):
            one_token_chunks.append(index)
            continue
        # Steps whose draft was rejected as a whole are one-token chunks, so they lie before this chunk.
        rejected = []
        while steps_left and not steps_left[0][1]:
            rejected.append(steps_left.pop(0)[0])
        if not steps_left:
            return None
        number, count = steps_left.pop(0)  # the step and how many tokens it accepted
        if not (count == size - 1 or (is_last and count >= size - 1)):
            return None
        between = _place_rejected(len(one_token_chunks), rejected, drafted)
        if between is None:
            return None
        placed += between
        one_token_chunks = []
        placed.append(PlacedDraft(None if drafted is None else drafted[number], min(count, size)))
    between = _place_rejected(len(one_token_chunks), [number for number, _ in steps_left], drafted)
    if between is None or any(count for _, count in steps_left):
        return None
    return placed + between


def _place_rejected(chunks: int, rejected: Sequence[int], drafted: Sequence[int] | None) -> list[PlacedDraft] | None:
    """The drafts of `chunks` one-token chunks; the steps numbered `rejected` had one. None if too many did."""
    if len(rejected) > chunks:
        return None
    if not rejected:
        return [PlacedDraft(0, 0)] * chunks
    if len(rejected) == chunks and drafted is not None:
        return [PlacedDraft(drafted[number], 0) for number in rejected]
    return [PlacedDraft(None, 0)] * chunks


def _steps(name: str, reply: Reply, placed: Sequence[PlacedDraft] | None, root: int) -> Iterator[Step]:
    """The steps of a lane, or one for each token if the chunks are not steps."""
    first_ms = before_ms = reply.chunks[0].at_ms
    index, tokens_left = 0, sum(len(chunk.tokens or ()) for chunk in reply.chunks)
    for number, chunk in enumerate(reply.chunks):
        tokens = chunk.tokens or ()
        step_outputs = [(token,) for token in tokens] if placed is None else [tokens]
        for output in step_outputs:
            tokens_left -= len(output)
            draft = PlacedDraft(None, 0) if placed is None else placed[number]
            accepted = output[: draft.accepted]
            tree = TokenTree.chain(root, accepted)
            verdict = Verdict(tuple(range(len(tree))), output[-1], Scores((*accepted, output[-1])))
            timing = Timing(0.0, chunk.at_ms - before_ms, 0.0)
            yield Step(
                name,
                index,
                chunk.at_ms - first_ms,
                tree,
                verdict,
                output,
                timing,
                "" if tokens_left else reply.end,
                drafted=draft.drafted,
            )
            before_ms, index, root = chunk.at_ms, index + 1, output[-1]
