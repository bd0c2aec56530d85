"""Fusion, our own method: one tree from all sources that need no forward, cut where more nodes would not pay.

Each source distributes the escape mass, the probability that the sources before it left for unseen tokens:
1. back-off over prompt and output, and over outputs of earlier requests (`BackoffModel`)
2. the corpus's trigrams and bigrams
3. the target's likely tokens at earlier nodes (token recycling)
4. the most frequent tokens of the text

The tree grows best first, so its first k nodes are the likeliest. The first k* = argmax (1 + sum p) / cost(1 + k) are
drafted, where p are the path probabilities of the first k nodes and cost is this machine's cost curve with this
drafter's own time; k* may be 0.

Estimates are corrected by how often they came true, for each match length and for each token that a copy would add,
beginning with the counts of earlier answers. A token that came where a copy of at least three tokens failed is drafted
there the next time: a model that cites its passages writes " [1]" where a passage has a full stop. Once drafts have
lost more time than one and a half steps of vanilla take, drafting pauses for 4 steps, then 8, up to 192, or until the
output copies again. So text without overlap runs at about vanilla's speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Annotated, Any

from specrace.core.cost_curve import CostCurve
from specrace.core.note import Note
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters.base import ANY_DEPTH, Bounds, CorpusPart, DepthDrafter, DrafterInputs, Flag
from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.copies import MIN_ESCAPE, Copies, EarlierAnswers
from specrace.drafters.fusion.growth import NO_PREDICTION, Growth
from specrace.drafters.fusion.note import FusionSources, note_draft, note_skipped
from specrace.drafters.fusion.payoff import CoolDown, step_costs
from specrace.drafters.fusion.sources import NUM_TOP, CorpusRows, Recycled
from specrace.ngrams.automaton import NO_MATCH
from specrace.ngrams.backoff import BackoffModel, Estimate
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.suffix_index import END

# (-path probability, parent, rank among the parent's candidates, token, probability given the parent)
Candidate = tuple[float, int, int, int, float]


def fusion_corpus_part(options: Mapping[str, Any]) -> CorpusPart:
    """The field through which fusion reads the documents: their n-grams if the option `corpus` is on, else none."""
    return "corpus" if options["corpus"] else ""


def fusion_num_top(options: Mapping[str, Any]) -> int:
    """The number of the target's likeliest tokens per node that fusion learns from, with these options."""
    return NUM_TOP if options["recycling"] or options["copy"] else 0


class FusionDrafter(DepthDrafter):
    """Drafts the tree with the most expected tokens for its cost on this machine.

    1 2 was followed by 3 three times, so 3 is likely, and so are 1 2 after the 3. On a GPU a row costs little, so all
    three tokens pay. If a second row doubled the cost of a step, no draft token would pay:

    >>> from specrace.core.cost_curve import CostCurve
    >>> context = (1, 2, 3) * 3 + (1, 2)
    >>> FusionDrafter(DrafterInputs(context, vocab_size=10)).propose(context, budget=3).tokens
    (2, 3, 1, 2)
    >>> inputs = DrafterInputs(context, vocab_size=10, curve=CostCurve((1, 2), (1.0, 2.0)))
    >>> FusionDrafter(inputs).propose(context, budget=3).tokens
    (2,)
    """

    def __init__(
        self,
        inputs: DrafterInputs,
        *,
        longest: Annotated[int, Bounds(1, 32, "maximum number of tokens matched")] = 8,
        corpus: Annotated[bool, Flag("also draft from n-grams of all documents")] = False,
        past: Annotated[bool, Flag("also copy from earlier outputs, and estimate acceptance by them")] = True,
        recycling: Annotated[bool, Flag("also draft tokens that the model found likely at earlier steps")] = False,
        chain: Annotated[bool, Flag("draft the likeliest path only, as engines without trees verify it")] = False,
        copy: Annotated[
            bool, Flag("RACER's copy-logits: also draft what the model found likely after the same two tokens")
        ] = False,
    ) -> None:
        self.chain = chain
        self.text_model = BackoffModel(longest, inputs.prompt)
        self.cool_down = CoolDown()
        self.curve = inputs.curve
        self.step_costs = step_costs(inputs.curve, 0)
        self.corpus = CorpusRows(inputs.corpus) if corpus and inputs.corpus is not None else None
        self.recycled = Recycled(copy=copy) if recycling or copy else None
        self.calibration = Calibration(longest)
        self._read_frequent()
        # The correction of the frequent tokens' probabilities in this step.
        self._frequent_factor = 1.0
        # The tree of this step; None if no candidate was looked up.
        self.growth: Growth | None = None
        self._copy_from(None)
        if past and inputs.past:
            earlier = self.read_past(PastOutputs.of(inputs.past))
            self.calibration = Calibration(longest, earlier.calibration)
        # Whether this step is part of a cool-down.
        self._paused = False

    def read_past(self, past: PastOutputs) -> EarlierAnswers:
        """From now on, copy from these outputs; call this again after `past` has grown.

        The calibration does not change.
        """
        earlier = past.answers(EarlierAnswers, self.text_model.longest)
        if earlier.model is not self.past or len(earlier.model.automaton.tokens) != self._past_size:
            self._copy_from(earlier.model)
        return earlier

    def _copy_from(self, past: BackoffModel | None) -> None:
        """Copy from prompt and output, and from the outputs in `past` if given."""
        self.past = past
        self.copies = Copies(self.text_model, past)
        self._has_other_sources = any(source is not None for source in (past, self.corpus, self.recycled))
        self._past_match, self._past_size = NO_MATCH, 0
        # The last tree's matches may not be states of the new automaton.
        self.growth = None
        if past is not None:
            tokens = self.text_model.automaton.tokens
            self._past_match = past.automaton.follow(NO_MATCH, tokens[-past.longest :])
            self._past_size = len(past.automaton.tokens)

    def propose(self, context: Sequence[int], budget: int, depth: int = ANY_DEPTH) -> TokenTree:
        """The draft tokens that pay, at most `budget` and none deeper than `depth`; the bare root in a cool-down."""
        self.growth = None
        self._paused = False
        if budget < 1:
            return TokenTree.chain(context[-1])
        self._paused = self.cool_down.skip_step()
        self._extend_costs(budget)
        match = self.text_model.automaton.suffix()
        if self.text_model.frequent() is not self._frequent:
            self._read_frequent()
        if match == NO_MATCH and not self._has_other_sources and self._frequent[0][1] < self.step_costs.floor:
            # Only the text's frequent tokens could be drafted, and the most frequent is too unlikely to pay.
            return TokenTree.chain(context[-1])
        growth = self.growth = Growth.of(context[-1], match, self._past_match, depth)
        previous = context[-2] if len(context) > 1 else -1
        if self._paused:
            # The next token is still predicted: enough correct predictions end the cool-down.
            self._expand(growth, [], 0, 1.0, previous)
            return TokenTree.chain(context[-1])
        num_draft = self._grow(growth, previous, budget)
        return growth.tree(num_draft) if num_draft else TokenTree.chain(context[-1])

    def change_curve(self, curve: CostCurve) -> None:
        """From now on, cut drafts by this cost curve."""
        self.curve = curve
        self.step_costs = step_costs(curve, 0)

    def _read_frequent(self) -> None:
        """Copy the text's frequent tokens from `text_model`, and sum their probabilities."""
        self._frequent = self.text_model.frequent()
        self._frequent_probs = dict(self._frequent)
        self._frequent_mass = sum(self._frequent_probs.values())

    def _extend_costs(self, max_draft: int) -> None:
        """Extend `step_costs` to steps with up to `max_draft` draft tokens."""
        if max_draft >= len(self.step_costs.costs):
            self.step_costs = step_costs(self.curve, max_draft)

    def _grow(self, growth: Growth, previous: int, budget: int) -> int:
        """Add nodes best first while more may pay; return k*, the number of nodes to draft."""
        costs, may_pay = self.step_costs.costs, self.step_costs.may_pay
        tokens, parents = growth.tokens, growth.parents
        heap: list[Candidate] = []
        node, prob = 0, 1.0
        # The expected tokens of a step with all nodes so far.
        expected = 1.0
        # The maximum of expected tokens per cost, and the number of draft nodes at which it is reached.
        best, num_draft = 1.0, 0
        # Frequent tokens need no context, so they are calibrated as matches of length 0.
        self._frequent_factor = self.calibration.factor(0, 1.0)
        while node < budget:
            self._expand(growth, heap, node, prob, tokens[parents[node]] if node else previous)
            if not heap:
                break
            negative_prob, parent, _, token, share = heappop(heap)
            prob = -negative_prob
            # A node that does not pay alone may pay together with the nodes after it.
            if expected + prob <= best * costs[node + 1] and not may_pay(node, expected, prob, best):
                break
            self._add(growth, parent, token, share)
            node += 1
            expected += prob
            if expected > best * costs[node]:
                best = expected / costs[node]
                num_draft = node
        return num_draft

    def _add(self, growth: Growth, parent: int, token: int, share: float) -> None:
        """Add a node to `growth`; `share` is its probability given its parent."""
        growth.tokens.append(token)
        growth.parents.append(parent)
        growth.probs.append(share)
        growth.depths.append(growth.depths[parent] + 1)
        match, position = self.text_model.automaton.trace(growth.matches[parent], token)
        growth.matches.append(match)
        growth.positions.append(position)
        if self.past is not None:
            growth.past_matches.append(self.past.automaton.trace(growth.past_matches[parent], token)[0])

    def _expand(self, growth: Growth, heap: list[Candidate], node: int, prob: float, previous: int) -> None:
        """Push those children of a node that may pay.

        `prob`: the node's path probability. `previous`: the token before the node's.
        """
        if growth.depths[node] == growth.max_depth:
            growth.predictions.append(NO_PREDICTION)
            return
        floor = self.step_costs.floor / prob
        probs = self._estimate(growth, node, floor, previous)
        if self.chain and probs:
            likeliest = max(probs, key=probs.__getitem__)
            probs = {likeliest: probs[likeliest]}
        for rank, (token, share) in enumerate(probs.items()):
            if share >= floor:
                heappush(heap, (-prob * share, node, rank, token, share))

    def _estimate(self, growth: Growth, node: int, floor: float, previous: int) -> dict[int, float]:
        """The probabilities of the tokens after a node, and record its prediction. Tokens below `floor` may be missing.

        `previous`: the token before the node's.
        """
        match = growth.matches[node]
        # A long copy with a single continuation does not need the estimates of all contexts, except where earlier
        # outputs match longer and so come first.
        only = None
        if self.past is None or growth.past_matches[node][1] <= match[1]:
            only = self.text_model.only_continuation(match, MIN_ESCAPE)
        if only is None:
            probs, escape, length = self.copies.estimate(match, growth.past_matches[node] if self.past else NO_MATCH)
        else:
            token, escape = only
            probs, length = {token: 1.0 - escape}, match[1]
        escape = self._calibrate_node(growth, probs, escape, length)
        if escape >= floor:
            self._add_other_sources(probs, escape, floor, previous, growth.tokens[node])
        return probs

    def _add_other_sources(
        self, probs: dict[int, float], mass: float, floor: float, previous: int, current: int
    ) -> None:
        """Add to `probs` the estimates of the sources that do not copy. Together they distribute `mass`.

        Frequent tokens with a probability below `floor` are left out.
        """
        if self.corpus is not None:
            mass = _merge(probs, mass, self.corpus.successors(previous, current))
        if self.recycled is not None:
            mass = _merge(probs, mass, self.recycled.successors(previous, current))
        mass *= self._frequent_factor
        for token, share in self._frequent:
            if mass * share < floor:
                break
            probs.setdefault(token, mass * share)

    def _calibrate_node(self, growth: Growth, probs: dict[int, float], escape: float, length: int) -> float:
        """Calibrate a node's estimates `probs` in place, record its prediction, and return the escape mass left."""
        # An END marks where an earlier output ended. It cannot be drafted and says nothing about copies.
        probs.pop(END, None)
        if not probs:
            growth.predictions.append(NO_PREDICTION)
            return escape
        # A single token is found faster without `max`.
        likeliest = max(probs, key=probs.__getitem__) if len(probs) > 1 else next(iter(probs))
        top = probs[likeliest]
        growth.predictions.append((length, likeliest, top))
        return self.calibration.revise_copy(length, probs, escape, likeliest)

    def note(self, tree: TokenTree) -> Note:
        """The source of each draft token, and why no more tokens were drafted."""
        if self.growth is None or self._paused:
            return note_skipped(self.cool_down.pause)
        sources = FusionSources(self.text_model, self.past, self.calibration, self.corpus, self.recycled)
        return note_draft(self.growth, tree, self.step_costs.costs, sources)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Calibrate along the accepted path, record what the draft yielded, and append the output tokens."""
        output = verdict.output(tree)
        self._learn(verdict.path, output)
        if tree.num_draft:
            self._extend_costs(tree.num_draft)
            self.cool_down.record(len(output), self.step_costs.costs[tree.num_draft])
        self._append(tree, verdict, last=verdict.path[-1])

    def follow(self, tree: TokenTree, verdict: Verdict) -> None:
        """Calibrate at the root, and append the output tokens, of a step whose `tree` another drafter proposed."""
        self._learn((0,), verdict.output(tree)[:1])
        self._append(tree, verdict, last=0)

    def _learn(self, path: Sequence[int], output: Sequence[int]) -> None:
        """Learn from the tokens that came after the nodes of a path of `growth`."""
        growth = self.growth
        if growth is not None:
            self._learn_from_path(growth, path, output, self._previous())
        if self._paused:
            # A step in which no candidate was looked up predicted nothing.
            self.cool_down.watch(growth is not None and growth.predictions[0][1] == output[0])

    def _previous(self) -> int:
        """The token before the pending one, -1 if there is none."""
        text = self.text_model.automaton.tokens
        return text[-2] if len(text) > 1 else -1

    def _append(self, tree: TokenTree, verdict: Verdict, last: int) -> None:
        """Append the output tokens; `last` is the last node on the accepted path that is a node of `growth`."""
        output, growth, previous = verdict.output(tree), self.growth, self._previous()
        self.text_model.automaton.extend(output)
        if self.past is not None:
            if growth is not None and last < len(growth.past_matches):
                # The match at that node is known, so only the tokens after it have to be followed.
                self._past_match = growth.past_matches[last]
                output = output[growth.depths[last] :]
            self._past_match = self.past.automaton.follow(self._past_match, output)
        if self.recycled is not None:
            self.recycled.learn(tree, verdict, previous)

    def _learn_from_path(self, growth: Growth, path: Sequence[int], output: Sequence[int], previous: int) -> None:
        """Learn at each node of the path whether the likeliest token came; if not, whether other sources were right."""
        calibration, predictions = self.calibration, growth.predictions
        current = growth.tokens[0]
        for node, token in zip(path, output, strict=True):
            # The nodes added last may have no prediction.
            if node >= len(predictions):
                break
            length, likeliest, prob = predictions[node]
            if length:
                calibration.learn(length, likeliest, prob, token)
            if token != likeliest:
                calibration.update(0, self._frequent_mass, token in self._frequent_probs)
                if self.recycled is not None:
                    self.recycled.calibrate(previous, current, token)
            previous, current = current, token


def _merge(probs: dict[int, float], mass: float, estimate: Estimate) -> float:
    """Add a source's estimate, scaled by `mass`, to `probs`; return the escape mass that is left."""
    for token, prob in estimate[0].items():
        probs[token] = probs.get(token, 0.0) + mass * prob
    return mass * estimate[1]
