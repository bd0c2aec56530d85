"""Fusion, our own: one tree from every free source, its nodes ranked by estimated path probability, cut where they pay.

The sources, each asked for what the ones before leave open: what followed the last 8, 7, ... 1 tokens in prompt and
output (variable-order back-off), the same in outputs of earlier requests, the corpus's trigrams and bigrams, the
target's own likely tokens at nodes that it rejected (token recycling), and the most frequent tokens of the text.

The tree grows best first. A step that scores k guesses brings 1 + the sum of their probabilities and costs a forward
over 1 + k rows on this machine: it drafts the k that brings the most for its cost, which may be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Annotated, ClassVar

from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, Flag, Material
from specrace.drafters.fusion_note import tell
from specrace.drafters.payoff import Calibration, CoolDown, step_costs
from specrace.drafters.sources import NUM_TOP, CorpusRows, Recycled
from specrace.ngrams.automaton import NOWHERE, Run
from specrace.ngrams.backoff import BackoffModel, Estimate
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# (-path probability, parent, rank among its children as they were found, token, probability given the parent)
Candidate = tuple[float, int, int, int, float]
# Of a node the length of its longest context (beyond the longest: in earlier outputs), the likeliest token, its
# probability as first estimated.
Top = tuple[int, int, float]
NOTHING: Top = (0, -1, 0.0)
# Where the longer contexts leave less than this the shorter ones are not asked: most of the time of a long copy.
ENOUGH = 0.1


class FusionDrafter:
    """The tree that brings the most tokens for its cost on this machine, of guesses from every free source."""

    num_top: int = NUM_TOP
    takes_depth: ClassVar[bool] = True
    scored_part: ClassVar[str] = "without what the target thought likely at each node"

    def __init__(
        self,
        material: Material,
        *,
        longest: Annotated[int, Bounds(1, 32, "most tokens matched")] = 8,
        corpus: Annotated[bool, Flag("also guess what follows in all documents")] = False,
        past: Annotated[bool, Flag("also guess what followed in outputs of earlier requests")] = True,
        recycling: Annotated[bool, Flag("also guess what the model itself thought likely before")] = False,
    ) -> None:
        self.own = BackoffModel(longest, material.prompt)
        self.trust = Calibration(longest)
        self.account = CoolDown()
        self.curve = material.curve
        self.prices = step_costs(material.curve, 0)
        self.corpus = CorpusRows(material.corpus) if corpus and material.corpus is not None else None
        self.recycled = Recycled() if recycling else None
        self.num_top = NUM_TOP if recycling else 0
        self.past: BackoffModel | None = None
        self._past_end = NOWHERE
        if past and material.past:
            self.past = BackoffModel(longest, known=PastOutputs.of(material.past).automaton(longest + 1))
            for token in material.prompt[-longest:]:
                self._past_end = self.past.known.follow(self._past_end, token)
        self._has_others = any(source is not None for source in (self.past, self.corpus, self.recycled))
        self._look_up_common()
        # The tree in the making: of each node its contexts, and what was judged likeliest after it.
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._deepest = ANY_DEPTH
        self._probs: list[float] = []
        self._places: list[int] = []
        self._contexts: list[Run] = []
        self._past_contexts: list[Run] = []
        self._tops: list[Top] = []

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """At most `budget` guesses, as many as pay, none deeper than `depth`.

        The bare root where none pays, and while drafts are put off.
        """
        self._tops, self._past_contexts = [], []
        if budget < 1 or self.account.rests():
            return TokenTree.chain(context[-1])
        self._price(budget)
        end = self.own.known.end()
        if self.own.common() is not self._common:
            self._look_up_common()
        if end == NOWHERE and not self._has_others and self._common[0][1] < self.prices.floor:
            return TokenTree.chain(context[-1])
        self._tokens, self._parents, self._probs, self._places = [context[-1]], [-1], [1.0], [-1]
        self._contexts, self._past_contexts = [end], [self._past_end]
        self._depths, self._deepest = [0], depth
        size = 1 + self._grow(context[-2] if len(context) > 1 else -1, budget)
        if size == 1:
            return TokenTree.chain(context[-1])
        tokens, parents, probs = tuple(self._tokens[:size]), tuple(self._parents[:size]), tuple(self._probs[:size])
        return TokenTree(tokens, parents, probs, tuple(self._places[:size]))

    def _look_up_common(self) -> None:
        """The frequent tokens, which of them are any, and how likely it is that one of them comes."""
        self._common = self.own.common()
        self._frequent = dict(self._common)
        self._mass = sum(self._frequent.values())

    def _price(self, most: int) -> None:
        """See to it that steps with up to `most` guesses have a price."""
        if most >= len(self.prices.costs):
            self.prices = step_costs(self.curve, most)

    def _grow(self, previous: int, budget: int) -> int:
        """Add the likeliest guesses one by one while more may pay; returns how many of them bring the most."""
        costs, heap = self.prices.costs, list[Candidate]()
        node, prob, tokens, best, chosen = 0, 1.0, 1.0, 1.0, 0
        while node < budget:
            before = self._tokens[self._parents[node]] if node else previous
            self._push(heap, node, prob, before)
            if not heap:
                break
            negative, parent, _, token, share = heappop(heap)
            prob = -negative
            # One that pays by itself needs no look at those after it.
            if tokens + prob <= best * costs[node + 1] and not self.prices.may_pay(node, tokens, prob, best):
                break
            self._add(parent, token, share)
            node += 1
            tokens += prob
            if tokens > best * costs[node]:
                best, chosen = tokens / costs[node], node
        return chosen

    def _add(self, parent: int, token: int, share: float) -> None:
        self._tokens.append(token)
        self._parents.append(parent)
        self._probs.append(share)
        self._depths.append(self._depths[parent] + 1)
        context, place = self.own.known.trace(self._contexts[parent], token)
        self._contexts.append(context)
        self._places.append(place)
        if self.past is not None:
            self._past_contexts.append(self.past.known.follow(self._past_contexts[parent], token))

    def _push(self, heap: list[Candidate], node: int, prob: float, previous: int) -> None:
        """Add to the candidates what may pay of the children of a node of path probability `prob`, from all sources."""
        if self._depths[node] == self._deepest:
            self._tops.append(NOTHING)
            return
        floor = self.prices.floor / prob
        context = self._contexts[node]
        sure = self.own.sure(context, ENOUGH) if self._is_own(node) else None
        if sure is None:
            probs, rest = self._copied(node)
        else:
            # Most of a copy: what `_copied` would find, without its tables.
            token, rest = sure
            share = (1.0 - rest) * self.trust.factor(context[1], 1.0 - rest)
            self._tops.append((context[1], token, 1.0 - rest))
            probs, rest = {token: share}, 1.0 - share
        if rest >= floor:
            self._guess(probs, rest, floor, previous, self._tokens[node])
        for rank, (token, share) in enumerate(probs.items()):
            if share >= floor and token != END:
                heappush(heap, (-prob * share, node, rank, token, share))

    def _is_own(self, node: int) -> bool:
        """Whether no earlier output has more of the last tokens than the text."""
        return self.past is None or self._past_contexts[node][1] <= self._contexts[node][1]

    def _guess(self, probs: dict[int, float], rest: float, floor: float, previous: int, current: int) -> None:
        """Add what the sources say that copy nothing, of the `rest`, if it may pay."""
        if self.corpus is not None:
            rest = _merge(probs, rest, self.corpus.successors(previous, current))
        if self.recycled is not None:
            rest = _merge(probs, rest, self.recycled.successors(current))
        left = rest * self.trust.factor(0, 1.0)
        for token, share in self._common:
            if left * share < floor:
                break
            probs.setdefault(token, left * share)

    def _copied(self, node: int) -> tuple[dict[int, float], float]:
        """What the text and earlier outputs say after a node, as far as that came true before, and what is left.

        Earlier outputs go first where more of the last tokens stand in them, and last where fewer do.
        """
        own, past, context = self.own, self.past, self._contexts[node]
        probs: dict[int, float] = {}
        rest, length = 1.0, context[1]
        earlier, longer = NOWHERE, length
        if past is not None:
            earlier = self._past_contexts[node]
            if earlier[1] > length:
                rest = past.blend(earlier, probs, rest, ENOUGH, length)
                longer = own.longest + earlier[1]
        if rest >= ENOUGH:
            rest = own.blend(context, probs, rest, ENOUGH)
        if past is not None and rest >= ENOUGH:
            rest = past.blend(past.known.shortened(earlier, length), probs, rest, ENOUGH)
        if not probs:
            self._tops.append(NOTHING)
            return probs, rest
        likeliest = max(probs, key=probs.__getitem__) if len(probs) > 1 else next(iter(probs))
        top = probs[likeliest]
        factor = self.trust.factor(longer, top)
        for token in probs:
            probs[token] *= factor
        self._tops.append((longer, likeliest, top))
        return probs, 1.0 - factor * (1.0 - rest)

    def note(self, tree: TokenTree) -> Note:
        """The source of each guess, and why there are no more."""
        return tell(self, tree, grown=bool(self._tops))

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Judge the estimates along the accepted path, book the draft, and take in what was said."""
        said = verdict.output(tree)
        self._judge(verdict.path, said)
        if tree.num_draft:
            self._price(tree.num_draft)
            self.account.book(len(said), self.prices.measured[tree.num_draft])
        self.own.known.extend(said)
        if self.past is not None:
            last = verdict.path[-1]
            if last < len(self._past_contexts):
                self._past_end, said = self._past_contexts[last], said[-1:]
            for token in said:
                self._past_end = self.past.known.follow(self._past_end, token)
        if self.recycled is not None:
            self.recycled.learn(tree, verdict)

    def _judge(self, path: Sequence[int], said: Sequence[int]) -> None:
        """What was thought likeliest at each node of the path, if anything, against what came; else the frequent ones.

        Nodes grow in order, so those that nothing was asked about are the last ones.
        """
        tops, judge = self._tops, self.trust.judge
        for node, token in zip(path, said, strict=True):
            if node >= len(tops):
                break
            length, likeliest, prob = tops[node]
            if length:
                judge(length, prob, token == likeliest)
            if token != likeliest:
                judge(0, self._mass, token in self._frequent)


def _merge(probs: dict[int, float], rest: float, estimate: Estimate) -> float:
    """Add a source's estimate of the `rest` to `probs`; returns what it leaves."""
    for token, prob in estimate[0].items():
        probs[token] = probs.get(token, 0.0) + rest * prob
    return rest * estimate[1]
