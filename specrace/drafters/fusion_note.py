"""What fusion tells of a draft: which source each guess came from, and where the tree was cut and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specrace.core.note import Fact, Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.ngrams.automaton import Run
from specrace.ngrams.backoff import BackoffModel

if TYPE_CHECKING:
    from specrace.drafters.fusion import FusionDrafter

GROUP = "Sources"


def tell(drafter: FusionDrafter, tree: TokenTree, *, grown: bool) -> Note:
    """The note about the tree that was just proposed. `grown`: its guesses were looked for at all."""
    if not grown:
        return Note({"drafted": 0, "why": _why_none(drafter)})
    rows: dict[str, list[int]] = {}
    for node in range(1, len(tree)):
        rows.setdefault(name_source(drafter, tree, node), []).append(tree.tokens[node])
    told = tuple(NoteRow(GROUP, label, tuple(tokens)) for label, tokens in rows.items())
    return Note(_bill(drafter, tree), told)


def _why_none(drafter: FusionDrafter) -> str:
    if drafter.account.pause:
        return f"earlier drafts did not pay; none for {drafter.account.pause} more steps"
    return "drafts are put off, or nothing is known that could pay"


def _bill(drafter: FusionDrafter, tree: TokenTree) -> dict[str, Fact]:
    """What the draft should bring, what it costs, and the first guess that was left out."""
    probs, costs, size = path_probs(drafter), drafter.prices.costs, len(tree)
    bill: dict[str, Fact] = {
        "guesses looked at": len(probs) - 1,
        "drafted": size - 1,
        "should bring": f"{sum(probs[:size]):.2f} tokens",
        "costs": f"{costs[size - 1]:.2f} steps without a draft",
    }
    if size < len(probs):
        price = costs[size] - costs[size - 1]
        bill["first left out"] = f"{probs[size]:.0%} likely, its row costs {price:.2f} steps"
    bill["cut"] = _why_cut(size, len(probs), len(costs))
    return bill


def _why_cut(size: int, looked_at: int, most: int) -> str:
    if size == most:
        return "no more may be drafted in a step"
    return "more cost more than they bring" if size < looked_at else "no other guess could pay"


def path_probs(drafter: FusionDrafter) -> list[float]:
    """The estimated probability that each node which was looked at is reached; the root's is 1."""
    probs = [1.0]
    for node in range(1, len(drafter._tokens)):
        probs.append(probs[drafter._parents[node]] * drafter._probs[node])
    return probs


def name_source(drafter: FusionDrafter, tree: TokenTree, node: int) -> str:
    """Where a guess is from: of the text and earlier outputs the one with the longer context, else the first other."""
    parent, token = tree.parents[node], tree.tokens[node]
    own = matched(drafter.own, drafter._contexts[parent], token)
    past = 0 if drafter.past is None else matched(drafter.past, drafter._past_contexts[parent], token)
    if max(own, past):
        length = max(own, past)
        place = "prompt and output" if own == length else "earlier outputs"
        return f"{place}, {length} {'token' if length == 1 else 'tokens'} matched"
    text = drafter.own.known.tokens
    before = tree.tokens[tree.parents[parent]] if parent else text[-2] if len(text) > 1 else -1
    if drafter.corpus is not None and token in drafter.corpus.successors(before, tree.tokens[parent])[0]:
        return "the corpus"
    if drafter.recycled is not None and token in drafter.recycled.successors(tree.tokens[parent])[0]:
        return "what the model thought likely before"
    return "frequent in the text"


def matched(model: BackoffModel, context: Run, token: int) -> int:
    """How many tokens the longest end of a context has that the token once followed; 0 for none."""
    known, (state, length) = model.known, context
    while length and known.after(state, token) < 0:
        state = known.links[state]
        length = known.lengths[state]
    return length
