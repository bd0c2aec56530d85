"""The trie's lane: what its paper's frequencies decide."""

from __future__ import annotations

from specrace.core.tree import TokenTree
from specrace.drafters.trie import TrieDrafter
from tests.parts import inputs, step_verdict

PROMPT = (8, 9, 1, 2, 3, 5, 7)


def say(drafter: TrieDrafter, tokens: list[int]) -> None:
    """Let the drafter observe an output, one token a step."""
    for last, token in zip([PROMPT[-1], *tokens], tokens, strict=False):
        bare = TokenTree.chain(last)
        drafter.observe(bare, step_verdict(bare, (token,)))


def test_the_prompt_weighs_as_much_as_three_sightings_in_the_output() -> None:
    """The prompt's n-grams count L_p times; ties go to the first. (1 2 was followed by 3 and, in the output, by 4.)"""
    drafter = TrieDrafter(inputs(PROMPT))
    drafts, probs = [], []
    for _ in range(4):
        say(drafter, [1, 2, 4])
        tree = drafter.propose([6, 1, 2], 1)
        drafts.append(tree.tokens[1])
        probs.append(tree.probs)
    assert drafts == [3, 3, 3, 4]
    assert probs == [(1.0, 3 / 4), (1.0, 3 / 5), (1.0, 3 / 6), (1.0, 4 / 7)]


def test_the_prompt_weighs_as_much_as_tokens_are_matched_at_most() -> None:
    drafter = TrieDrafter(inputs(PROMPT), prefix=2)
    say(drafter, [1, 2, 4, 1, 2, 4])
    assert drafter.propose([6, 1, 2], 1).tokens == (2, 3)
    say(drafter, [1, 2, 4])
    assert drafter.propose([6, 1, 2], 1).tokens == (2, 4)


def test_the_more_frequent_comes_before_the_earlier_and_the_shallower() -> None:
    """Best-first by frequency: a child that is as frequent as its parent comes before the parent's rarer sibling."""
    drafter = TrieDrafter(inputs((8, 9, 1, 3, 5, 1, 4, 6, 1, 4, 6)))
    assert drafter.propose([1], 4).tokens == (1, 4, 6, 3, 5)
    assert drafter.propose([1], 1).tokens == (1, 4)
