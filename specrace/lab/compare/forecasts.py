"""Forecasts how a lane, a drafting method, would do on a server's answers.

Its steps come from forced decoding, which replays the answers without a model, and its speedup from a cost curve.

A drafter that keeps earlier answers gets those that the server had finished before it began the answer in question.
With several requests at a time, a server's own drafter also sees the other answers grow. In a forecast the drafter
sees, for the whole answer, what the others had printed by the middle of that answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.lab.advice.forecast import forecast_sweep
from specrace.lab.compare.figures import marginal_rates
from specrace.lab.compare.samples import WARM_UP, Block, Question, Sample
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, Tally, score_output
from specrace.lab.scoring.sweep import SHARD_SIZE, RequestScore, Sweep
from specrace.ngrams.past import PastOutputs

# Indexes that include growing answers are rebuilt for each answer. Once this many tokens were indexed, which takes a
# minute or two, only finished answers are used.
MAX_REBUILT = 20_000_000

# (session, the block's place in the order, ms in the block): sorts by the order in which everything happened.
_Moment = tuple[int, int, float]


class Forecaster:
    """Forecasts of one `lane` for the answers of the `server` that should draft as it does.

    `samples`: all answers of that server, warm-ups included. `order`: the blocks in their order. `restarted`: whether
    the server was restarted for every block, and so had no answers of earlier blocks.
    """

    def __init__(
        self,
        server: str,
        lane: ScoredLane,
        curve: CostCurve,
        questions: Sequence[Question],
        samples: Iterable[Sample],
        order: Sequence[Block],
        *,
        vocab_size: int,
        restarted: bool,
    ) -> None:
        self.server, self.lane, self.curve = server, lane, curve
        self.questions, self.vocab_size = questions, vocab_size
        self._place = {block: index for index, block in enumerate(order)}
        self._tallies: dict[tuple[Block, int], Tally] = {}
        # The number of tokens indexed so far for growing answers.
        self._rebuilt = 0
        # The answers that the server gave between two starts, during which it could keep them.
        lifetimes: dict[Any, list[Sample]] = {}
        for sample in samples:
            lifetimes.setdefault((sample.session, sample.block) if restarted else None, []).append(sample)
        for lifetime in lifetimes.values():
            self._tallies |= dict(self._score(lifetime))

    def forecast(self, samples: Sequence[Sample], concurrency: int, seed: int) -> dict[str, Any]:
        """Tokens per step, acceptance and speedup, with intervals over the samples, as JSON."""
        transcripts = [self._transcript(sample) for sample in samples]
        tallies = [self._tallies[sample.block, sample.number] for sample in samples]
        sweep = Sweep.of([self.lane], transcripts, self.curve)
        scores = [RequestScore.from_tally(tally) for tally in tallies]
        for start in range(0, len(scores), SHARD_SIZE):
            sweep.cells[0, start // SHARD_SIZE] = tuple(scores[start : start + SHARD_SIZE])
        (forecast,) = forecast_sweep(sweep, self.curve, (concurrency,))
        steps = sum((tally.steps for tally in tallies), Counter[tuple[int, int]]())
        # The sweep has this lane only, as number 0.
        intervals = forecast.intervals(0, seed)
        (tau_low, tau_high), (low, high) = intervals["tau"], intervals["speedup"]
        return {
            "lane": self.lane.name,
            "tau": float(forecast.tau[0]),
            "tau_low": tau_low,
            "tau_high": tau_high,
            "drafted": sum(size * count for (size, _), count in steps.items()),
            "accepted": sum(taken * count for (_, taken), count in steps.items()),
            "rates": marginal_rates([taken for (size, taken), count in steps.items() if size for _ in range(count)]),
            "speedup": float(forecast.speedup[0]),
            "low": low,
            "high": high,
        }

    def _score(self, lifetime: Sequence[Sample]) -> Iterator[tuple[tuple[Block, int], Tally]]:
        """The steps of each answer that a server gave between two starts."""
        past = PastOutputs(max_outputs=len(lifetime) + 1)
        # The next answer to finish is the last of these.
        unfinished = sorted(lifetime, key=lambda sample: self._moment(sample, sample.end_ms), reverse=True)
        for sample in sorted(lifetime, key=lambda sample: self._moment(sample, sample.start_ms)):
            started = self._moment(sample, sample.start_ms)
            while unfinished and self._moment(unfinished[-1], unfinished[-1].end_ms) <= started:
                # Without its prompt, because a server's drafter may also copy an earlier answer to the same question.
                past.add(unfinished.pop().output)
            if sample.number != WARM_UP:
                known_past = self._with_growing(past, sample, unfinished)
                tally = score_output(self.lane, self._transcript(sample), curve=self.curve, past=known_past)
                yield (sample.block, sample.number), tally

    def _with_growing(self, past: PastOutputs, sample: Sample, unfinished: Sequence[Sample]) -> PastOutputs:
        """The finished outputs, and what other answers of the block had printed by the middle of this one."""
        growing = [
            printed
            for other in unfinished
            if other is not sample
            and (other.block, other.session) == (sample.block, sample.session)
            and (printed := other.printed_by(sample.middle_ms))
        ]
        outputs = [*past, *growing]
        self._rebuilt += sum(map(len, outputs)) if growing else 0
        if not growing or self._rebuilt > MAX_REBUILT:
            return past
        return PastOutputs(outputs, max_outputs=len(outputs) + 1)

    def _moment(self, sample: Sample, ms: float) -> _Moment:
        return sample.session, self._place[sample.block], ms

    def _transcript(self, sample: Sample) -> Transcript:
        question = self.questions[sample.number]
        return Transcript(
            id=question.id,
            category=question.category,
            prompt=question.prompt,
            output=sample.output,
            vocab_size=self.vocab_size,
        )
