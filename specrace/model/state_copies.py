"""Drafts what followed the places of the text at which the model's hidden state was most similar to the current one.

The drafter has the interface of a trained head, but no weights. The hidden states of all tokens, at the middle level,
are normalised to length 1. The state of the token before the pending one is compared with all of them in one product,
which gives cosines. The most similar tokens are the places to copy from: the token after a place corresponds to the
pending token, and a draft copies those that follow. Places whose next token equals the pending one come first, because
an equal token says more than any similarity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from specrace.core.clock import since_ms, thread_ms
from specrace.core.sampling_params import SamplingParams
from specrace.model.forward.kv import Prefix
from specrace.model.forward.tapped import Levels
from specrace.model.scorer import Scorer

# A node of a draft tree, by the tokens on the way to it from the root, the pending token; () is the root itself.
Path = tuple[int, ...]
# The number of places that a step copies from (not tuned).
_PLACES = 8
# Added to the cosine of a place that the pending token follows; greater than the difference of any two cosines.
_EQUAL_TOKEN = 4.0


class Place(NamedTuple):
    """A token with a similar state: its position in the text, the cosine, and whether the pending token followed it."""

    position: int
    similarity: float
    matched: bool


class CopyRates:
    """How often copies from places of some similarity came true in this text.

    A copy's first token and its later tokens are counted separately, and so are places with and without the pending
    token after them. An estimate begins as if `_PRIOR` copies had been counted, at this rate: the square of the
    similarity for the first token, a tenth of that if the pending token does not match, and `_LATER` for a later token.
    Places are counted in `_BINS` bins of similarity. These numbers were not tuned: the counts soon outweigh them.
    """

    _BINS, _PRIOR, _LATER = 10, 4.0, 0.8

    def __init__(self) -> None:
        self._counts: dict[tuple[bool, bool, int], list[int]] = {}

    def rate(self, place: Place, *, later: bool) -> float:
        """The estimated probability that a copy's first token comes true, or a later one after those before it."""
        square = max(0.0, place.similarity) ** 2
        prior = self._LATER if later else square if place.matched else square / 10
        held, copied = self._counts.get(self._key(place, later), (0, 0))
        return (prior * self._PRIOR + held) / (self._PRIOR + copied)

    def record(self, place: Place, *, later: bool, held: bool) -> None:
        """Count a copied token; `held`: whether it came true."""
        counts = self._counts.setdefault(self._key(place, later), [0, 0])
        counts[0] += held
        counts[1] += 1

    def _key(self, place: Place, later: bool) -> tuple[bool, bool, int]:
        return place.matched, later, min(self._BINS - 1, int(max(0.0, place.similarity) * self._BINS))


class StateCopies:
    """Drafts in the place of a trained head (`specrace.drafters.sessions.Head`) for this target."""

    def __init__(self, target: Scorer) -> None:
        self.target = target
        self.levels: Levels = (target.num_layers // 2,)

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedStateCopies:
        """The copies after a prompt, whose `prefix` was read with this level. Raises InputError if it was not."""
        return PromptedStateCopies(self, prompt, prefix)


class PromptedStateCopies:
    """The normalised states [P - 1, d] of a prompt's tokens without the last one, computed in `prefill_ms`."""

    def __init__(self, head: StateCopies, prompt: Sequence[int], prefix: Prefix) -> None:
        began = thread_ms()
        self.head, self.tokens = head, tuple(prompt[:-1])
        self.states = normalize(prefix.features_at(head.levels).float(), dim=-1)
        self.prefill_ms = since_ms(began)

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> StateCopiesSession:
        """A session for one lane, for about `room` more tokens. What it copies does not depend on the sampling."""
        return StateCopiesSession(self, room)


class StateCopiesSession:
    """One lane's states and rates, as a drafter asks for them (`specrace.drafters.sessions.PlacingHeadSession`).

    The first `likeliest` of a step compares the states; the result serves all depths of a tree.
    """

    # More than any text has tokens.
    depth = depths_per_forward = 1 << 20

    def __init__(self, prompted: PromptedStateCopies, room: int) -> None:
        self.target, self.levels = prompted.head.target, prompted.head.levels
        # The tokens that have a state, then the pending one, -1 until it is known.
        self._text = [*prompted.tokens, -1]
        self._states = _with_room(prompted.states, room)
        self._ids = _with_room(torch.tensor(prompted.tokens, dtype=torch.int64, device=self._states.device), room)
        self._queue: list[Tensor] = []
        self._rates = CopyRates()
        self._places: list[Place] | None = None
        # The first place of this step, and the length of the text then; the next `begin` checks its copy.
        self._followed: tuple[Place, int] | None = None

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context."""
        return self.target.max_context - self._count

    @property
    def nearest(self) -> Place | None:
        """The first of this step's places; None if there is none, or none was asked for."""
        return self._places[0] if self._places else None

    @property
    def _count(self) -> int:
        """The number of tokens that have a state."""
        return len(self._text) - 1

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Keep the features [n, d] of the `tokens` that a step has committed; the first one was pending."""
        self._queue.append(features)
        self._text[-1:] = [*tokens, -1]

    def begin(self, root: int) -> None:
        """Start a step with this pending token, and count which tokens of the last step's copy came true."""
        self._text[-1] = root
        self._places = None
        if self._followed is not None and self._followed[1] < len(self._text):
            place, start = self._followed
            for later, index in enumerate(range(start, len(self._text))):
                held = self._text[index] == self._text[place.position + 2 + later]
                self._rates.record(place, later=later > 0, held=held)
                if not held:
                    break
        self._followed = None

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens at this step's places, and their estimated probabilities.

        A place that comes earlier takes its share first; a later one gets a share of what is left.
        """
        if self._places is None:
            with self.target.between_forwards():
                self._places = self._find()
            self._followed = (self._places[0], len(self._text)) if self._places else None
        return [self._after(path)[:k] for path in paths]

    def position(self, path: Path) -> int:
        """The index in the text from which the last token of a path is copied; -1 if no place has this path."""
        place = next((place for place in self._places or () if self._has(place, path)), None)
        if place is None:
            return -1
        index, period = place.position + 1 + len(path), len(self._text) - 2 - place.position
        if index < len(self._text):
            return index
        # A copy that reaches the end of the text continues with what it copied, as often as necessary (rounded up).
        num_periods = -(-(index - len(self._text) + 1) // period)
        return index - num_periods * period

    def _find(self) -> list[Place]:
        """The places of this step, the best first."""
        self._flush()
        count = self._count - 1
        if count < 1:
            return []
        similarities = self._states[:count] @ self._states[count]
        scores = similarities + _EQUAL_TOKEN * (self._ids[1 : count + 1] == self._text[-1])
        best, indices = scores.topk(min(_PLACES, count))
        places = []
        for position, score in zip(indices.tolist(), best.tolist(), strict=True):
            # Cosines are at most 1, so the score says whether `_EQUAL_TOKEN` was added.
            matched = score > _EQUAL_TOKEN / 2
            places.append(Place(position, score - _EQUAL_TOKEN if matched else score, matched))
        return places

    def _flush(self) -> None:
        """Append the queued states."""
        if not self._queue:
            return
        states = normalize(torch.cat(self._queue).float(), dim=-1)
        self._queue.clear()
        first, end = self._count - len(states), self._count
        if end > len(self._states):
            self._states, self._ids = _with_room(self._states, end), _with_room(self._ids, end)
        self._states[first:end] = states
        self._ids[first:end] = torch.tensor(self._text[first:end], device=self._ids.device)

    def _after(self, path: Path) -> list[tuple[int, float]]:
        """The tokens after a path at the places that have this path, and their probabilities, the best first."""
        left, shares = 1.0, dict[int, float]()
        for place in self._places or ():
            if self._has(place, path):
                token = self._copied(place, path, len(path))
                share = left * self._rates.rate(place, later=bool(path))
                shares[token] = shares.get(token, 0.0) + share
                left -= share
        return sorted(shares.items(), key=lambda item: -item[1])

    def _has(self, place: Place, path: Path) -> bool:
        """Whether a copy from this place begins with the path."""
        return all(self._copied(place, path, step) == token for step, token in enumerate(path))

    def _copied(self, place: Place, path: Path, step: int) -> int:
        """Token number `step` of a copy, which begins two tokens after its place; the path follows the text."""
        index = place.position + 2 + step
        return self._text[index] if index < len(self._text) else path[index - len(self._text)]


def _with_room(rows: Tensor, room: int) -> Tensor:
    """A copy of rows [N, ...] with `room` more rows, whose content is undefined."""
    grown = rows.new_empty((len(rows) + max(1, room), *rows.shape[1:]))
    grown[: len(rows)] = rows
    return grown
