"""A suffix automaton: every run of tokens of a growing text, what followed it, and how often.

Runs that end at the same places of the text are one state; the automaton is that of Blumer, Blumer, Haussler,
Ehrenfeucht, Chen and Seiferas, "The smallest automaton recognizing the subwords of a text", Theoretical Computer
Science 40 (1985). A text of T tokens has less than 2 T states, and adding a token takes a few small operations, however
often the text repeats itself: a copied passage adds one state a token. One look-up goes a token further in all runs
that are ends of each other, and the shorter of them are found behind the links, in fewer states than there are runs.
"""

from __future__ import annotations

from collections.abc import Iterable

ROOT = 0
# In the place of the state that follows: nothing does, or several do.
NOTHING, SEVERAL = -1, -2
# A run that stands in the text and goes on there: its state, and its length.
Run = tuple[int, int]
NOWHERE: Run = (ROOT, 0)


class SuffixAutomaton:
    """The automaton of `tokens`. Runs of up to `n` tokens are counted, so those that go on are told up to n - 1.

    Of each state, by its number: `lengths`, that of its longest run; `links`, the state of the longest end of its runs
    that stands in more places (-1 for the empty run's, `ROOT`); `nexts`, the state that follows, which `rows` has where
    there are several, token -> state, the first seen first; `counts`, in how many places it stands; `firsts`, the index
    of a run's last token in the first of them. The token that leads to a state stands there in the text.
    """

    def __init__(self, n: int, tokens: Iterable[int] = ()) -> None:
        self.n = n
        self.tokens: list[int] = []
        self.lengths, self.links, self.nexts, self.counts, self.firsts = [0], [-1], [NOTHING], [0], [-1]
        self.rows: dict[int, dict[int, int]] = {}
        # The states of the whole text, and of its last `n` tokens.
        self._whole = self._end = ROOT
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Append `tokens` to the text."""
        text, lengths, links, nexts, rows = self.tokens, self.lengths, self.links, self.nexts, self.rows
        firsts, counts = self.firsts, self.counts
        place, whole = len(text), self._whole
        for token in tokens:
            before, whole, found = whole, len(lengths), NOTHING
            text.append(token)
            firsts.append(place)
            place += 1
            lengths.append(place)
            nexts.append(NOTHING)
            counts.append(0)
            # Ends of the text, ever shorter, that nothing led on from with this token now lead to the new state.
            while before >= 0:
                found = nexts[before]
                if found == NOTHING:
                    nexts[before] = whole
                elif found == SEVERAL:
                    found = rows[before].setdefault(token, whole)
                    if found != whole:
                        break
                elif text[firsts[found]] == token:
                    break
                else:
                    nexts[before], rows[before] = SEVERAL, {text[firsts[found]]: found, token: whole}
                before = links[before]
            else:
                found = ROOT
            links.append(found)
            if found and lengths[found] > lengths[before] + 1:
                links[whole] = self._split(found, before, token)
            self._count(whole, token)
        self._whole = whole

    def _count(self, whole: int, token: int) -> None:
        """Count the ends of the text, whose state is `whole` and `token` the last, up to `n` tokens long."""
        links, counts = self.links, self.counts
        if self.lengths[links[whole]] >= self.n:
            # On from the last `n` tokens before: of a loop the whole text has as many ends as tokens.
            whole = self.after(self._end, token)
            if self.lengths[links[whole]] >= self.n:
                whole = links[whole]
        self._end = whole
        while whole:
            counts[whole] += 1
            whole = links[whole]

    def _split(self, found: int, before: int, token: int) -> int:
        """A state of its own for those runs of `found` that are no longer than one of `before` with `token`."""
        state = len(self.lengths)
        self.lengths.append(self.lengths[before] + 1)
        for known in (self.links, self.nexts, self.counts, self.firsts):
            known.append(known[found])
        if found in self.rows:
            self.rows[state] = self.rows[found].copy()
        self.links[found] = state
        while before >= 0 and self.after(before, token) == found:
            if self.nexts[before] == SEVERAL:
                self.rows[before][token] = state
            else:
                self.nexts[before] = state
            before = self.links[before]
        return state

    def after(self, state: int, token: int) -> int:
        """The state of the runs of `state` with `token`; `NOTHING` where that follows none of them."""
        after = self.nexts[state]
        if after >= 0:
            return after if self.tokens[self.firsts[after]] == token else NOTHING
        return NOTHING if after == NOTHING else self.rows[state].get(token, NOTHING)

    def successors(self, state: int) -> list[tuple[int, int]]:
        """(token, state) of what follows the runs of `state`, the first seen first."""
        after = self.nexts[state]
        if after >= 0:
            return [(self.tokens[self.firsts[after]], after)]
        return [] if after == NOTHING else list(self.rows[state].items())

    def end(self) -> Run:
        """The longest end of the text that goes on elsewhere in it; `NOWHERE` for none."""
        length = min(self.n, len(self.tokens))
        return self._going_on(*self.shortened((self._end, length), self.n - 1))

    def follow(self, run: Run, token: int) -> Run:
        """The longest end of `run` and `token` that stands in the text and goes on there; `NOWHERE` for none."""
        return self.trace(run, token)[0]

    def trace(self, run: Run, token: int) -> tuple[Run, int]:
        """As `follow`; and where `token` stands first after the longest end of `run` it follows, or -1."""
        state, length = run
        after = self.after(state, token)
        while after < 0:
            state = self.links[state]
            if state < 0:
                return NOWHERE, -1
            length = self.lengths[state]
            after = self.after(state, token)
        place = self.firsts[after] if state else -1
        if length < self.n - 1:
            length += 1
        elif self.lengths[self.links[after]] == length:
            after = self.links[after]
        return ((after, length) if self.nexts[after] != NOTHING else self._going_on(after, length)), place

    def shortened(self, run: Run, length: int) -> Run:
        """The end of `run` that has no more than `length` tokens."""
        state, whole = run
        if whole <= length:
            return run
        while self.lengths[self.links[state]] >= length > 0:
            state = self.links[state]
        return (state, length) if length else NOWHERE

    def _going_on(self, state: int, length: int) -> Run:
        """The longest end of a run of `state` that anything follows."""
        while state and self.nexts[state] == NOTHING:
            state = self.links[state]
            length = self.lengths[state]
        return state, length
