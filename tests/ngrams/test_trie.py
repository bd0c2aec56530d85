"""The n-gram trie against a brute-force count of all windows, and against examples worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specrace.core.tree import TokenTree
from specrace.ngrams.trie import Match, NGramTrie

Path = tuple[int, ...]


class BruteForce:
    """Every prefix of every window, counted in a dictionary of tuples."""

    def __init__(self, n: int, text: list[int]) -> None:
        self.n = n
        self.counts: Counter[Path] = Counter()
        self.first: dict[Path, int] = {}
        for start in range(len(text)):
            for end in range(start + 1, min(start + n, len(text)) + 1):
                path = tuple(text[start:end])
                self.counts[path] += 1
                self.first.setdefault(path, start)

    def match(self, suffix: list[int]) -> Path | None:
        """The longest end of `suffix` that has a continuation."""
        for cut in range(len(suffix)):
            path = tuple(suffix[cut:])
            if any(len(longer) == len(path) + 1 and longer[:-1] == path for longer in self.counts):
                return path
        return None

    def best(self, match: Path, num_draft: int) -> list[Path]:
        """The first `num_draft` nodes below `match` by frequency, depth, position; parents sort before children."""
        below = [path for path in self.counts if len(path) > len(match) and path[: len(match)] == match]
        below.sort(key=lambda path: (-self.counts[path], len(path), self.first[path]))
        return below[:num_draft]


def count_of(trie: NGramTrie, path: Sequence[int]) -> int:
    """The count of an n-gram, 0 if it is not in the trie."""
    match = trie.find(path)
    return 0 if match is None else trie.count(match)


def num_nodes(trie: NGramTrie, match: Match | None = None) -> int:
    """The number of nodes below a match (by default the root), counting the remaining tokens of a leaf's window."""
    children = trie.children(match or Match(trie.root, 0)).values()
    return len(children) + sum(num_nodes(trie, child) for child in children)


TEXTS = st.lists(st.integers(0, 2), max_size=40) | st.lists(st.integers(0, 6), max_size=40)
DEPTHS = st.integers(1, 8)


@given(TEXTS, DEPTHS)
def test_counts_and_size_are_those_of_all_windows(text: list[int], n: int) -> None:
    trie, brute = NGramTrie(n, text), BruteForce(n, text)
    assert num_nodes(trie) == len(brute.counts)
    assert all(count_of(trie, path) == count for path, count in brute.counts.items())


@given(TEXTS, DEPTHS)
def test_nodes_count_their_windows_and_have_children_one_token_further(text: list[int], n: int) -> None:
    trie, brute = NGramTrie(n, text), BruteForce(n, text)
    for path, count in brute.counts.items():
        match = trie.find(path)
        assert match is not None and trie.count(match) == count
        following = {longer[-1] for longer in brute.counts if longer[:-1] == path}
        assert set(trie.children(match)) == following
        assert all(child == trie.find((*path, token)) for token, child in trie.children(match).items())


@given(TEXTS, DEPTHS, st.integers(1, 4), st.lists(st.integers(0, 2), max_size=20))
@example([0, 1, 2, 0, 1, 2], 4, 2, [])
def test_copies_count_the_ngrams_of_the_initial_text_several_times(
    text: list[int], n: int, copies: int, added: list[int]
) -> None:
    counts: Counter[Path] = Counter()
    for start in range(len(text)):
        window = text[start : start + n]
        # The copies of a window begin at its first token, its second, and so on.
        for skipped in range(min(copies, len(window))):
            counts.update(tuple(window[skipped:end]) for end in range(skipped + 1, len(window) + 1))
    whole = BruteForce(n, text + added).counts
    counts.update(whole - BruteForce(n, text).counts)
    trie = NGramTrie(n, text, copies)
    trie.extend(added)
    assert num_nodes(trie) == len(whole) and all(count_of(trie, path) == counts[path] for path in whole)


@given(TEXTS, DEPTHS, st.lists(st.integers(0, 7), min_size=1, max_size=10))
def test_only_ngrams_of_the_text_have_a_count(text: list[int], n: int, path: list[int]) -> None:
    assert count_of(NGramTrie(n, text), path) == BruteForce(n, text).counts[tuple(path)]


@given(TEXTS, DEPTHS, st.lists(st.integers(1, 9), max_size=8))
def test_a_trie_that_grew_equals_one_built_at_once(text: list[int], n: int, sizes: list[int]) -> None:
    grown, unread = NGramTrie(n), text
    for size in (*sizes, len(text)):
        grown.extend(unread[:size])
        unread = unread[size:]
        expected = BruteForce(n, grown.tokens)
        assert num_nodes(grown) == len(expected.counts)
        assert all(count_of(grown, path) == count for path, count in expected.counts.items())
    assert grown.tokens == text


@given(TEXTS, DEPTHS, st.lists(st.integers(0, 3), max_size=6))
def test_the_match_is_the_longest_suffix_with_a_continuation(text: list[int], n: int, suffix: list[int]) -> None:
    match, expected = NGramTrie(n, text).match(suffix), BruteForce(n, text).match(suffix)
    assert (match is None) == (expected is None)
    if match is not None and expected is not None:
        assert match.length == len(expected)


def paths_of(tree: TokenTree) -> list[Path]:
    """The draft tokens from the root to each draft node."""
    return [tuple(tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]) for node in range(1, len(tree))]


@given(TEXTS, DEPTHS, st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 40), st.integers(0, 40))
def test_the_draft_has_the_brute_force_nodes_in_order(
    text: list[int], n: int, suffix: list[int], num_draft: int, cut: int
) -> None:
    trie, brute = NGramTrie(n, text[:cut]), BruteForce(n, text)
    trie.extend(text[cut:])
    match, expected = trie.match(suffix), brute.match(suffix)
    if match is None or expected is None:
        return
    tree = trie.best(match, 99, num_draft)
    assert tree.tokens[0] == 99
    assert [(*expected, *path) for path in paths_of(tree)] == brute.best(expected, num_draft)


@given(TEXTS, DEPTHS, st.integers(0, 3), st.integers(1, 40))
def test_every_node_has_the_first_position_of_its_path(text: list[int], n: int, last: int, num_draft: int) -> None:
    trie, brute = NGramTrie(n, text), BruteForce(n, text)
    match = trie.match([last])
    if match is None:
        return
    tree = trie.best(match, last, num_draft)
    assert tree.positions is not None and tree.probs is not None and tree.positions[0] == -1
    for node, path in enumerate(paths_of(tree), 1):
        assert text[tree.positions[node]] == tree.tokens[node]
        assert tree.positions[node] == brute.first[last, *path] + len(path)
        siblings = sum(count for sibling, count in brute.counts.items() if sibling[:-1] == (last, *path[:-1]))
        assert tree.probs[node] == pytest.approx(brute.counts[last, *path] / siblings)


# The paper's terms, by hand, n = 6 and L_p = 3:
#     the cat sat on the mat .  the cat ran
#      1   2   3  4   1   5  6   1   2   7
WORKED = [1, 2, 3, 4, 1, 5, 6, 1, 2, 7]


def test_worked_example_counts() -> None:
    trie = NGramTrie(6, WORKED)
    assert (count_of(trie, [1]), count_of(trie, [1, 2]), count_of(trie, [1, 2, 3]), count_of(trie, [2])) == (3, 2, 1, 2)
    assert count_of(trie, [1, 2, 3, 4, 1, 5]) == 1  # depth 6
    assert count_of(trie, [1, 2, 3, 4, 1, 5, 6]) == 0  # deeper than n
    assert count_of(trie, [1, 2, 7]) == count_of(trie, [7]) == 1  # windows that the text's end cuts short count too
    # Ten windows of 6 6 6 6 6 5 4 3 2 1 tokens. Repeats have no node of their own: two "the", one "the cat", one "cat".
    assert num_nodes(trie) == 45 - 2 - 1 - 1


def test_worked_example_match_of_three() -> None:
    trie = NGramTrie(6, WORKED)
    match = trie.match([6, 1, 2])  # ". the cat" is there once, followed by "ran"
    assert match is not None and match.length == 3
    assert trie.best(match, 2, 8).tokens == (2, 7)


def test_worked_example_match_shortened_to_two() -> None:
    trie = NGramTrie(6, WORKED)
    match = trie.match([5, 1, 2])  # "mat the cat" is not there, "the cat" is
    assert match is not None and match.length == 2
    tree = trie.best(match, 2, 8)
    # "sat" and "ran" tie at the same depth, so the earlier one is first; then comes "on the mat", down to depth 6.
    assert tree.tokens == (2, 3, 7, 4, 1, 5)
    assert tree.parents == (-1, 0, 0, 1, 3, 4)
    assert tree.positions == (-1, 2, 9, 3, 4, 5)
    assert tree.probs == (1.0, 0.5, 0.5, 1.0, 1.0, 1.0)


def test_worked_example_with_one_token_matched_and_a_budget() -> None:
    trie = NGramTrie(6, WORKED)
    match = trie.match([9, 9, 1])
    assert match is not None and match.length == 1
    tree = trie.best(match, 1, 5)
    # "cat" occurs twice and "mat" once; then comes the next depth by position: "sat" at 2, "." at 6, "ran" at 9.
    assert tree.tokens == (1, 2, 5, 3, 6, 7)
    assert tree.parents == (-1, 0, 0, 1, 2, 1)
    assert tree.positions == (-1, 1, 5, 2, 6, 9)


def test_a_match_at_the_end_of_the_text_is_shortened_until_it_has_a_continuation() -> None:
    trie = NGramTrie(6, [4, 5, 6, 9, 6])
    assert trie.match([9, 6]) is not None
    match = trie.match([6, 9, 6])
    # "6 9 6" and "9 6" end the text; only "6" has a continuation, 9.
    assert match is not None and match.length == 1
    assert trie.best(match, 6, 3).tokens == (6, 9, 6)
    assert NGramTrie(6, [1, 2]).match([2]) is None


def test_the_deepest_nodes_have_no_continuation() -> None:
    trie = NGramTrie(3, [1, 2, 3, 4])
    assert count_of(trie, [1, 2, 3]) == 1
    match = trie.match([1, 2, 3])
    assert match is not None and match.length == 2


def test_an_empty_text_matches_nothing() -> None:
    trie = NGramTrie(4)
    assert trie.match([1]) is None and trie.match([]) is None and num_nodes(trie) == 0 and count_of(trie, [1]) == 0


@given(TEXTS, DEPTHS, st.integers(1, 4), st.lists(st.integers(0, 2), max_size=20), st.integers(1, 40))
def test_the_draft_ranks_nodes_by_their_weighted_counts(
    text: list[int], n: int, copies: int, added: list[int], num_draft: int
) -> None:
    brute, trie = BruteForce(n, text + added), NGramTrie(n, text, copies)
    trie.extend(added)
    brute.counts = Counter({path: count_of(trie, path) for path in brute.counts})
    for path, weight in brute.counts.items():
        match = trie.find(path)
        assert match is not None and trie.count(match) == weight
        tree = trie.best(match, 99, num_draft)
        paths = [(*path, *below) for below in paths_of(tree)]
        assert paths == brute.best(path, num_draft)
        assert tree.probs is not None
        for drafted, prob in zip(paths, tree.probs[1:], strict=True):
            siblings = sum(count for sibling, count in brute.counts.items() if sibling[:-1] == drafted[:-1])
            assert prob == pytest.approx(brute.counts[drafted] / siblings)
