"""Drafts with a trained head: a tree that grows level by level as long as another forward of the head pays.

A level is here all nodes of one depth, not a hidden state as in `sessions.Head.levels`.

The tree is EAGLE-2's (arXiv 2406.16858): the likeliest paths of a level are continued, and in the end the nodes of the
highest path probability are kept. In EAGLE-2 the numbers of levels and nodes are fixed. Here both follow from what
forwards of target and head cost on this machine, because on a CPU a wide tree costs more than it yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specrace.core.cost_curve import pad_rows
from specrace.core.errors import InputError
from specrace.core.note import Note, NoteRow
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, DepthDrafter, DrafterInputs, OnChains
from specrace.drafters.fusion.payoff import CoolDown
from specrace.drafters.sessions import HeadSession

# The tokens on the way from the root to a node, without the root's.
Path = tuple[int, ...]
# Why `score` cannot run these drafters.
HEAD_UNSCORABLE = "its head reads the model's hidden states, which no log has"
# The heading of a note's rows.
GROUP = "Draft tokens"
# A target that scores chains only refuses these drafters, whatever their options.
HEAD_ON_CHAINS = OnChains(refuses=lambda _options: "its head drafts a tree")


@dataclass(frozen=True)
class Guess:
    """A node of a growing tree: its path, its probability given its parent, and that of the whole path."""

    path: Path
    prob: float
    path_prob: float


class Confidence:
    """How often a head's guesses come true at each depth, relative to the probabilities that it gives them.

    Only children of accepted nodes count, because other nodes cannot be accepted. The estimate starts as if `_PRIOR`
    tokens had come as often as expected. Depths from `_MAX_DEPTH` on share an estimate. No record says how these two
    were chosen.
    """

    _PRIOR = 4.0
    _MAX_DEPTH = 16

    def __init__(self) -> None:
        self._expected = [self._PRIOR] * self._MAX_DEPTH
        self._accepted = [self._PRIOR] * self._MAX_DEPTH

    def at(self, depth: int) -> float:
        """The factor for probabilities of nodes at `depth`, 1 for a root's children."""
        index = min(depth, self._MAX_DEPTH) - 1
        return self._accepted[index] / self._expected[index]

    def record(self, depth: int, expected: float, accepted: bool) -> None:
        """Record the total probability of an accepted node's children, at `depth`, and whether one came true."""
        index = min(depth, self._MAX_DEPTH) - 1
        self._expected[index] += expected
        self._accepted[index] += accepted


class HeadTreeDrafter(DepthDrafter):
    """Grows a tree with a head; `lane` is its name in messages. Raises InputError if there is no head."""

    def __init__(self, inputs: DrafterInputs, lane: str, depth: int, width: int) -> None:
        if inputs.head is None:
            raise InputError(
                f"The lane {lane} has no head to draft with; give one that was trained for this model "
                f"(--head {lane}=FOLDER)."
            )
        self.head: HeadSession = inputs.head
        self.lane = lane
        self.depth, self.width = depth, width
        self.price, self.curve = inputs.head_price, inputs.curve
        self.confidence = Confidence()
        # While drafts do not pay, the head pauses; it reads the tokens that it missed when it drafts again.
        self._cool_down = CoolDown()
        self._step_cost = 0.0
        self._forwards = 0
        # The cost of a forward of the target by number of draft tokens, for the budget of the last draft.
        self._row_costs = [1.0]

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The tree of at most `budget` draft tokens with the most expected tokens for its cost."""
        self.head.begin(context[-1])
        self._forwards, self._step_cost = 0, 0.0
        if budget < 1 or self._cool_down.skip_step():
            return TokenTree.chain(context[-1])
        self._fit_costs(budget)
        depth = min(depth, self.depth, self.head.depth, budget, self.head.room)
        guesses: list[Guess] = []
        best: list[Guess] = []
        # `rate` is the expected tokens per cost of the best tree so far; the bare root has 1.
        rate, frontier = 1.0, [Guess((), 1.0, 1.0)]
        for level in range(1, depth + 1):
            if not frontier or not self._may_pay(level, best, frontier, rate):
                break
            children = self._children(frontier, level)
            guesses = sorted(guesses + children, key=lambda guess: -guess.path_prob)
            best, rate = self._best(guesses, budget, level)
            best_paths = {guess.path for guess in best}
            # A path that is not worth verifying is not worth continuing.
            frontier = [guess for guess in children if guess.path in best_paths][: self.width]
        self._step_cost = self._row_costs[len(best)] + self.price * self._forwards
        return _tree(context[-1], best)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Learn how far the head's probabilities can be trusted at each depth, and whether drafting pays."""
        if self._forwards:
            self._cool_down.record(len(verdict.path), self._step_cost)
        accepted = set(verdict.path)
        assert tree.probs is not None or not tree.num_draft
        for node in verdict.path:
            children = tree.children[node].values()
            if children and tree.probs is not None:
                depth = tree.depths[node] + 1
                # Divided by the factor of `_children`, because the head's own probabilities are recorded.
                expected = sum(tree.probs[child] for child in children) / self.confidence.at(depth)
                self.confidence.record(depth, min(1.0, expected), any(child in accepted for child in children))

    def rate(self, tree: TokenTree) -> float:
        """A tree's expected tokens over its cost, which includes this step's forwards of the head.

        `propose` must have been called for this step.
        """
        cost = self._row_costs[min(tree.num_draft, len(self._row_costs) - 1)] + self.price * self._forwards
        return sum(tree.path_probs()) / cost

    @property
    def was_asked(self) -> bool:
        """Whether this step's `propose` ran the head; during a cool-down it does not."""
        return bool(self._forwards)

    def rate_unasked(self, tree: TokenTree, budget: int) -> float:
        """A tree's expected tokens over its cost, in a step in which the head does not run."""
        self._fit_costs(budget)
        return sum(tree.path_probs()) / self._row_costs[tree.num_draft]

    def note(self, tree: TokenTree) -> Note:
        """The head's forwards, the depth and the expected yield; and each draft token's depth and probability.

        Probabilities are conditional on the parent, and corrected by how often such guesses came true.
        """
        path_probs = tree.path_probs()
        return Note(
            {
                "drafted": tree.num_draft,
                "depth": max(tree.depths),
                "forwards of the head": self._forwards,
                "likeliest first token": f"{tree.probs[1]:.0%}" if tree.probs and tree.num_draft else "none",
                "expected": f"{sum(path_probs):.2f} tokens",
            },
            guess_rows(tree, f"{self.lane} head"),
        )

    def _fit_costs(self, budget: int) -> None:
        """Compute the costs of up to `budget` draft tokens, unless the last draft had the same budget."""
        if len(self._row_costs) != budget + 1:
            # A lane pads its trees to a size that costs less.
            sizes = [pad_rows(self.curve, 1 + count, budget + 1) for count in range(budget + 1)]
            self._row_costs = [self.curve.at(size) for size in sizes]

    def _children(self, frontier: Sequence[Guess], level: int) -> list[Guess]:
        """The head's guesses after the paths of the frontier, at depth `level`, the likeliest paths first."""
        self._forwards = -(-level // self.head.depths_per_forward)  # rounded up
        factor = self.confidence.at(level)
        likeliest = self.head.likeliest([guess.path for guess in frontier], self.width)
        children = []
        for parent, following in zip(frontier, likeliest, strict=True):
            for token, prob in following:
                trusted = min(1.0, factor * prob)
                children.append(Guess((*parent.path, token), trusted, trusted * parent.path_prob))
        return sorted(children, key=lambda guess: -guess.path_prob)

    def _best(self, guesses: Sequence[Guess], budget: int, level: int) -> tuple[list[Guess], float]:
        """The prefix of the sorted `guesses` with the most expected tokens per cost, and that rate.

        A path is never likelier than its parent's, which comes before it, so every prefix is a tree.
        """
        tokens, best_rate, best_count = 1.0, 1.0 / self._cost(0, level), 0
        for count, guess in enumerate(guesses[:budget], 1):
            tokens += guess.path_prob
            rate = tokens / self._cost(count, level)
            if rate > best_rate:
                best_rate, best_count = rate, count
        return list(guesses[:best_count]), best_rate

    def _may_pay(self, level: int, best: Sequence[Guess], frontier: Sequence[Guess], rate: float) -> bool:
        """Whether one more level could raise the rate, if each path's next token were as likely as its last one."""
        if level == 1:
            return True
        yields = [guess.path_prob * guess.prob for guess in frontier]
        tokens = 1.0 + sum(guess.path_prob for guess in best)
        counts = range(1, len(yields) + 1)
        return any(tokens + sum(yields[:count]) > rate * self._cost(len(best) + count, level) for count in counts)

    def _cost(self, count: int, level: int) -> float:
        """The cost of a step with `count` draft tokens on `level` levels, in one-row forwards of the target."""
        forwards = -(-level // self.head.depths_per_forward)  # rounded up
        return self._row_costs[min(count, len(self._row_costs) - 1)] + self.price * forwards


def _tree(root: int, guesses: Sequence[Guess]) -> TokenTree:
    """The tree of these guesses, each of which comes after its parent."""
    builder = TreeBuilder(root)
    nodes: dict[Path, int] = {(): 0}
    for guess in guesses:
        nodes[guess.path] = builder.add(nodes[guess.path[:-1]], guess.path[-1], guess.prob)
    return builder.build()


def guess_rows(tree: TokenTree, source: str) -> tuple[NoteRow, ...]:
    """A note's row for each draft token: its depth, and its probability after its parent as `source` estimates it."""
    return tuple(
        NoteRow(GROUP, f"{source}, depth {tree.depths[node]}, {prob:.0%} likely", (tree.tokens[node],))
        for node, prob in enumerate(tree.probs or ())
        if node
    )
