"""Fusion's note about a draft: the source of each draft token, and where and why the tree was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specrace.core.note import Fact, Note, NoteRow
from specrace.core.tree import TokenTree
from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.growth import Growth
from specrace.drafters.fusion.sources import CorpusRows, Recycled
from specrace.ngrams.automaton import MatchState
from specrace.ngrams.backoff import BackoffModel

# The heading of the note's rows.
GROUP = "Sources"


@dataclass(frozen=True)
class FusionSources:
    """Fusion's sources; a source that is not used is None.

    They are prompt and output, earlier outputs, the tokens that came instead of copies, the corpus, and the target's
    likely tokens.
    """

    text: BackoffModel
    past: BackoffModel | None
    calibration: Calibration
    corpus: CorpusRows | None
    recycled: Recycled | None

    def name(self, growth: Growth, tree: TokenTree, node: int) -> str:
        """A draft token's source: the text with the longest match, else the first other source that has the token."""
        parent, token = tree.parents[node], tree.tokens[node]
        in_text = _match_length(self.text, growth.matches[parent], token)
        in_past = 0 if self.past is None else _match_length(self.past, growth.past_matches[parent], token)
        if length := max(in_text, in_past):
            source = "prompt and output" if in_text == length else "earlier outputs"
            return f"{source}, {length} {'token' if length == 1 else 'tokens'} matched"
        _, likeliest, _ = growth.predictions[parent]
        if token in self.calibration.seen_instead_of(likeliest):
            return "came instead of a copy before"
        current = tree.tokens[parent]
        previous = tree.tokens[tree.parents[parent]] if parent else self._token_before_root()
        if self.corpus is not None and token in self.corpus.successors(previous, current)[0]:
            return "the corpus"
        if self.recycled is not None and token in self.recycled.row(previous, current)[1]:
            return "the model's likely tokens before"
        return "frequent in the text"

    def _token_before_root(self) -> int:
        """The second to last token of prompt and output; -1 if there is none."""
        tokens = self.text.automaton.tokens
        return tokens[-2] if len(tokens) > 1 else -1


def _match_length(model: BackoffModel, match: MatchState, token: int) -> int:
    """The length of the longest suffix of `match` that was followed by `token`; 0 if there is none."""
    automaton, (state, length) = model.automaton, match
    while length and automaton.successor(state, token) < 0:
        state = automaton.links[state]
        length = automaton.lengths[state]
    return length


def note_skipped(pause: int) -> Note:
    """The note of a step without a draft; `pause` is the number of steps left in the cool-down."""
    why = f"earlier drafts did not pay; none for {pause} more steps" if pause else "no known token could pay"
    return Note({"drafted": 0, "why": why})


def note_draft(growth: Growth, tree: TokenTree, costs: Sequence[float], sources: FusionSources) -> Note:
    """The note of a draft: a row for each source, the expected tokens, the cost, and why the tree was cut.

    `costs`: the costs of steps by number of draft tokens, see `StepCosts`.
    """
    rows: dict[str, list[int]] = {}
    for node in range(1, len(tree)):
        rows.setdefault(sources.name(growth, tree, node), []).append(tree.tokens[node])
    # The path probabilities of all candidates, of which the first `size` nodes, the root included, are the draft.
    probs, size = growth.tree(len(growth.tokens)).path_probs(), len(tree)
    facts: dict[str, Fact] = {
        "candidates": len(probs) - 1,
        "drafted": size - 1,
        "expected": f"{sum(probs[:size]):.2f} tokens",
        "cost": f"{costs[size - 1]:.2f} steps without a draft",
    }
    if size < len(probs):
        facts["first left out"] = f"{probs[size]:.0%} likely, costs {costs[size] - costs[size - 1]:.2f} steps more"
    if size == len(costs):
        facts["cut"] = "the most draft tokens allowed"
    elif size < len(probs):
        facts["cut"] = "more tokens would cost more than they yield"
    else:
        facts["cut"] = "no other candidate could pay"
    return Note(facts, tuple(NoteRow(GROUP, label, tuple(tokens)) for label, tokens in rows.items()))
