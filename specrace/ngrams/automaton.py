"""A suffix automaton: every substring of a growing token sequence, what follows it, and how often it occurs.

Substrings that end at the same positions (an endpos class) share a state, so T tokens make fewer than 2 T states; an
appended token takes amortised constant time. Blumer, Blumer, Haussler, Ehrenfeucht, Chen and Seiferas, "The smallest
automaton recognizing the subwords of a text", Theoretical Computer Science 40 (1985).
"""

from __future__ import annotations

from collections.abc import Iterable

ROOT = 0
# The entries in `nexts` of states that have no successor, or several.
NO_STATE, SEVERAL = -1, -2
# The state and the length of a substring that has a continuation.
MatchState = tuple[int, int]
NO_MATCH: MatchState = (ROOT, 0)


class SuffixAutomaton:
    """The automaton of `tokens`. It counts substrings of up to `n` tokens, so it matches up to n - 1 of a context.

    Lists with one entry for each state:
    `lengths`: the length of its longest substring.
    `links`: its suffix link: the state of its longest suffix with other end positions; -1 for `ROOT`, the empty string.
    `nexts`: its only successor; NO_STATE or SEVERAL if it has none or more than one.
    `counts`: the number of its end positions.
    `firsts`: its first end position in `tokens`. The token there labels every transition into the state.

    `branches` maps each state with SEVERAL successors to these, by token, in order of first occurrence.

    >>> automaton = SuffixAutomaton(4, [1, 2, 3, 1, 2, 5, 1, 2])
    >>> state, length = automaton.suffix()
    >>> length, [(token, automaton.counts[target]) for token, target in automaton.successors(state)]
    (2, [(3, 1), (5, 1)])
    """

    def __init__(self, n: int, tokens: Iterable[int] = ()) -> None:
        self.n = n
        self.tokens: list[int] = []
        self.lengths = [0]
        self.links = [-1]
        self.nexts = [NO_STATE]
        self.counts = [0]
        self.firsts = [-1]
        self.branches: dict[int, dict[int, int]] = {}
        # The state of the whole text, and that of its last `n` tokens.
        self._last = ROOT
        self._suffix = ROOT
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens`."""
        text, lengths, links = self.tokens, self.lengths, self.links
        nexts, branches = self.nexts, self.branches
        firsts, counts = self.firsts, self.counts
        end = len(text)
        last = self._last
        for token in tokens:
            state = last
            last = len(lengths)
            target = NO_STATE
            text.append(token)
            firsts.append(end)
            end += 1
            lengths.append(end)
            nexts.append(NO_STATE)
            counts.append(0)
            # Go from the longest suffix to shorter ones. Each suffix that `token` never followed gets a transition to
            # the new state.
            while state >= 0:
                target = nexts[state]
                if target == NO_STATE:
                    nexts[state] = last
                elif target == SEVERAL:
                    target = branches[state].setdefault(token, last)
                    if target != last:
                        break
                elif text[firsts[target]] == token:
                    break
                else:
                    nexts[state], branches[state] = SEVERAL, {text[firsts[target]]: target, token: last}
                state = links[state]
            else:
                # No `break`: no suffix had a transition with `token`.
                target = ROOT
            links.append(target)
            # If `target` also holds longer substrings, which do not end at the new token, it is split.
            if target and lengths[target] > lengths[state] + 1:
                links[last] = self._clone(target, state, token)
            self._count(last, token)
        self._last = last

    def _count(self, state: int, token: int) -> None:
        """Count the suffixes of up to `n` tokens, now that `token` is appended; `state` is that of the whole text."""
        links, counts = self.links, self.counts
        if self.lengths[links[state]] >= self.n:
            # Start from the last suffix of `n` tokens instead: in a text that repeats itself, the chain of links from
            # `state` is as long as the text.
            state = self.successor(self._suffix, token)
            if self.lengths[links[state]] >= self.n:
                state = links[state]
        self._suffix = state
        while state:
            counts[state] += 1
            state = links[state]

    def _clone(self, target: int, state: int, token: int) -> int:
        """A new state for the substrings of `target` that are at most one token longer than the longest of `state`."""
        clone = len(self.lengths)
        self.lengths.append(self.lengths[state] + 1)
        for values in (self.links, self.nexts, self.counts, self.firsts):
            values.append(values[target])
        if target in self.branches:
            self.branches[clone] = self.branches[target].copy()
        self.links[target] = clone
        while state >= 0 and self.successor(state, token) == target:
            if self.nexts[state] == SEVERAL:
                self.branches[state][token] = clone
            else:
                self.nexts[state] = clone
            state = self.links[state]
        return clone

    def successor(self, state: int, token: int) -> int:
        """The state after `token`, or NO_STATE if `token` never followed."""
        target = self.nexts[state]
        if target >= 0:
            return target if self.tokens[self.firsts[target]] == token else NO_STATE
        return NO_STATE if target == NO_STATE else self.branches[state].get(token, NO_STATE)

    def successors(self, state: int) -> list[tuple[int, int]]:
        """The token and the state of every continuation, in order of first occurrence."""
        target = self.nexts[state]
        if target >= 0:
            return [(self.tokens[self.firsts[target]], target)]
        return [] if target == NO_STATE else list(self.branches[state].items())

    def suffix(self) -> MatchState:
        """The longest suffix of the text that also occurs earlier, and so has a continuation; NO_MATCH if none does."""
        length = min(self.n, len(self.tokens))
        return self._continued(*self.shortened((self._suffix, length), self.n - 1))

    def follow(self, match: MatchState, tokens: Iterable[int]) -> MatchState:
        """The longest suffix of `match` followed by `tokens` that has a continuation; NO_MATCH if none has."""
        for token in tokens:
            match = self.trace(match, token)[0]
        return match

    def trace(self, match: MatchState, token: int) -> tuple[MatchState, int]:
        """Follow `match` by one token, and find where the token first followed it.

        Returns the new match, as `follow` does, and a position: the first at which `token` followed the longest suffix
        of `match` that it ever followed; -1 if that suffix is empty.
        """
        state, length = match
        target = self.nexts[state]
        # Most states have one successor; a call is needed for the others only.
        if target < 0 or self.tokens[self.firsts[target]] != token:
            target = self.successor(state, token)
        while target < 0:
            state = self.links[state]
            if state < 0:
                return NO_MATCH, -1
            length = self.lengths[state]
            target = self.successor(state, token)
        position = self.firsts[target] if state else -1
        if length < self.n - 1:
            length += 1
        # A match has at most n - 1 tokens, so it loses its first one, and may then belong to the suffix link.
        elif self.lengths[self.links[target]] == length:
            target = self.links[target]
        return ((target, length) if self.nexts[target] != NO_STATE else self._continued(target, length)), position

    def shortened(self, match: MatchState, length: int) -> MatchState:
        """The longest suffix of `match` of at most `length` tokens."""
        state, matched = match
        if matched <= length:
            return match
        while self.lengths[self.links[state]] >= length > 0:
            state = self.links[state]
        return (state, length) if length else NO_MATCH

    def _continued(self, state: int, length: int) -> MatchState:
        """The longest suffix that has a continuation, of the substring of `length` tokens in `state`."""
        while state and self.nexts[state] == NO_STATE:
            state = self.links[state]
            length = self.lengths[state]
        return state, length
