"""Checks each step of a recording: that its fields agree with each other, and its texts with those of other steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict

from specrace.core.events import LaneInfo, Step
from specrace.core.note import MAX_FACTS, MAX_ROWS
from specrace.core.settings import MATCH
from specrace.core.verify import verify
from specrace.views.comparison import sends_ids

# The largest tree is lookahead's, 1919 draft tokens with the largest n, window and guesses.
MAX_NODES = 2048
MAX_TOKEN = 2**31 - 1
# The bounds of a duration that is not 0. A plot cannot divide an axis that is shorter than MIN_MS; MAX_MS is a day.
MIN_MS, MAX_MS = 1e-9, 86_400_000.0
# The largest difference, relative or absolute, between a recorded figure and its exact value.
TOLERANCE = 1e-6


def require(condition: bool, fault: str) -> None:
    """Raise ValueError with `fault` unless the condition holds."""
    if not condition:
        raise ValueError(fault)


def is_duration(*values: float) -> bool:
    """Whether all values are milliseconds that a race can take and a plot can show; NaN is not."""
    return all(value == 0 or MIN_MS <= value <= MAX_MS for value in values)


def check_step(step: Step, info: LaneInfo, index: int, last_ms: float) -> None:
    """Check a step: its index and time, and that its tree, verdict and output are consistent. Raises ValueError.

    `info`: its lane. `last_ms` is the race time at which the step before it ended.
    """
    where = f"step {index} of {step.lane[:40]}"
    tree = step.tree
    has_tokens = sends_ids(info)
    require(step.index == index, f"{where} has another index")
    require(is_duration(step.at_ms) and last_ms <= step.at_ms, f"{where} has an impossible race time")
    require(is_duration(*asdict(step.timing).values()), f"{where} has an impossible duration")
    require(len(tree) <= MAX_NODES, f"{where} has more than {MAX_NODES} nodes")
    require(tree.num_draft <= step.num_draft < MAX_NODES, f"{where} has an impossible number of draft tokens")
    require(info.lane != "vanilla" or not tree.num_draft, f"{where} has a draft, but vanilla is the model alone")
    # Drafters compute the probabilities in floating point, so they may lie a little outside 0 to 1.
    are_probs = all(-TOLERANCE <= prob <= 1 + TOLERANCE for prob in tree.probs or ())
    require(are_probs, f"{where} has a probability that is not between 0 and 1")
    tokens = (*tree.tokens, *step.emitted, *step.verdict.scores.targets)
    require(all(0 <= token <= MAX_TOKEN for token in tokens), f"{where} has an impossible token")
    check_verdict(step, info.verifier, where)
    output = tuple(step.verdict.output(tree))[: len(step.emitted)]
    is_output = step.emitted == output and bool(step.emitted) == has_tokens
    require(is_output, f"{where} emits tokens other than those of its verdict")
    require(_checks_fit(step), f"{where} does not have one check per verified draft token")
    require(not has_tokens or len(step.texts) in (0, len(step.emitted)), f"{where} does not have one text per token")
    require(len(step.pieces) in (0, len(tree)), f"{where} does not have one text per node")
    if step.note is not None:
        is_bounded = len(step.note.facts) <= MAX_FACTS and len(step.note.rows) <= MAX_ROWS
        require(is_bounded, f"{where} has a note that is too long")
        require(len(step.note.counts) in (0, len(tree)), f"{where} has a note that does not fit its tree")


def check_verdict(step: Step, verifier: str, where: str) -> None:
    """Check that a verdict fits its tree and, without rejection sampling, the model's tokens. Raises ValueError."""
    tree, verdict = step.tree, step.verdict
    path, scores = verdict.path, verdict.scores
    fits = len(scores.targets) == len(tree) and len(path) > 0 and 0 <= path[-1] < len(tree)
    require(fits and tree.path_to(path[-1]) == path, f"{where} has a verdict that does not fit its tree")
    follows = verifier != MATCH or verdict == verify(tree, scores)
    require(follows, f"{where} has a verdict that contradicts the model's tokens")


def _checks_fit(step: Step) -> bool:
    """Whether a step's checks, if it has any, are those of the draft tokens that were tested.

    In a chain, these are the accepted ones and the first rejected one. In a tree, each is a child of an accepted node,
    and every accepted one was tested.
    """
    tree, path, nodes = step.tree, set(step.verdict.path), step.checked_nodes
    if step.checks is None:
        return nodes is None
    if nodes is None:
        return len(step.checks) == min(len(path), tree.num_draft)
    if len(step.checks) != len(nodes) or len(nodes) > MAX_NODES or not {0, *nodes} >= path:
        return False
    return all(0 < node < len(tree) and tree.parents[node] in path for node in nodes)


def pieces_of(step: Step) -> Iterator[tuple[int, str]]:
    """Each token of a step's tree and note, with its text."""
    yield from zip(step.tree.tokens, step.pieces, strict=False)
    for row in step.note.rows if step.note else ():
        yield from zip(row.tokens, row.pieces, strict=False)


class TextCheck:
    """Checks that the same tokens have the same texts in all steps and lanes.

    A printed token's text depends on the tokens before it (see `Detokenizer`), so it is compared with that of lanes
    that printed the same tokens so far. The last token of a lane that has ended also has the text that was held back,
    so it is compared with other last tokens.
    """

    def __init__(self) -> None:
        self._pieces: dict[int, str] = {}
        # A trie of the printed tokens: (node, token, whether it is the last one) -> (the node after it, its text). A
        # lane's node stands for all that the lane has printed; 0: nothing.
        self._printed: dict[tuple[int, int, bool], tuple[int, str]] = {}
        self._nodes = defaultdict[str, int](int)

    def add(self, step: Step) -> None:
        """Check the next step, which `check_step` has checked. Raises ValueError."""
        where = f"step {step.index} of {step.lane[:40]}"
        for token, piece in pieces_of(step):
            require(self._pieces.setdefault(token, piece) == piece, f"{where} has another text of token {token}")
        node = self._nodes[step.lane]
        texts = step.texts or ("",) * len(step.emitted)
        for number, token in enumerate(step.emitted, 1):
            is_last = bool(step.end) and number == len(step.emitted)
            new_entry = (len(self._printed) + 1, texts[number - 1])
            node, text = self._printed.setdefault((node, token, is_last), new_entry)
            require(text == texts[number - 1], f"{where} prints another text than a lane with the same tokens")
        self._nodes[step.lane] = node
