"""The n-gram trie: how counts in the prompt and in the output rank the draft."""

from __future__ import annotations

from specrace.core.tree import TokenTree
from specrace.drafters.trie import TrieDrafter
from tests.parts import inputs, step_verdict

PROMPT = (8, 9, 1, 2, 3, 5, 7)


def observe_output(drafter: TrieDrafter, tokens: list[int]) -> None:
    """Let the drafter observe an output, one token per step."""
    for last, token in zip([PROMPT[-1], *tokens], tokens, strict=False):
        bare = TokenTree.chain(last)  # a root without a draft
        drafter.observe(bare, step_verdict(bare, (token,)))


def test_an_ngram_of_the_prompt_counts_three_times() -> None:
    """In the prompt 1 2 is followed by 3, which counts L_p = 3 times; in the output by 4. Ties go to the first seen."""
    drafter = TrieDrafter(inputs(PROMPT))
    drafts, probs = [], []
    for _ in range(4):
        observe_output(drafter, [1, 2, 4])
        tree = drafter.propose([6, 1, 2], 1)
        drafts.append(tree.tokens[1])
        probs.append(tree.probs)
    assert drafts == [3, 3, 3, 4]
    assert probs == [(1.0, 3 / 4), (1.0, 3 / 5), (1.0, 3 / 6), (1.0, 4 / 7)]


def test_an_ngram_of_the_prompt_counts_prefix_times() -> None:
    drafter = TrieDrafter(inputs(PROMPT), prefix=2)
    observe_output(drafter, [1, 2, 4, 1, 2, 4])
    assert drafter.propose([6, 1, 2], 1).tokens == (2, 3)
    observe_output(drafter, [1, 2, 4])
    assert drafter.propose([6, 1, 2], 1).tokens == (2, 4)


def test_more_frequent_nodes_come_first() -> None:
    """A child that is as frequent as its parent comes before the parent's less frequent sibling."""
    drafter = TrieDrafter(inputs((8, 9, 1, 3, 5, 1, 4, 6, 1, 4, 6)))
    assert drafter.propose([1], 4).tokens == (1, 4, 6, 3, 5)
    assert drafter.propose([1], 1).tokens == (1, 4)
