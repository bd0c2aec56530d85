"""Fusion as vLLM's drafter: called as vLLM's source calls a drafter, it drafts what `score` forecasts."""

from __future__ import annotations

import importlib
import json
import random
import shlex
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.engine.generate import generate
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.integrations import vllm
from specrace.integrations.vllm import Fusion
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.ngrams.past import PastOutputs
from specrace.workbench import Workbench
from tests.integrations.vllm_runner import Request, Runner, vllm_config
from tests.lab.parts import transcript

QUESTIONS = (
    "What is the n-gram trie built from?",
    "How does rejection sampling decide whether to accept a draft token?",
    "Why is autoregressive decoding slow?",
    "What does the KV cache store?",
    "Does Medusa need training?",
)
NUM_DRAFT = 6
# If rows cost nothing, a request drafts the same in a batch as alone; `score` forecasts it alone.
FREE = CostCurve((1, 33), (1.0, 1.0))


@pytest.fixture(scope="module")
def transcripts(bundled: Workbench) -> list[Transcript]:
    """The bundled model's greedy answers, with passages in the prompt."""
    answers = []
    for question in QUESTIONS:
        spec = RaceSpec(("fusion",), max_new_tokens=40)
        prompt = bundled.make_prompt(RaceRequest(question, spec))[0].tokens
        steps = generate(bundled.target, "vanilla", prompt, max_new_tokens=40)
        answers.append(transcript(prompt, [token for step in steps for token in step.emitted]))
    return answers


class CountingFusion(Fusion):
    """Fusion that counts the requests that it regards as new."""

    started = 0

    def _new_request(self, tokens: np.ndarray, num_sampled: int) -> vllm.Request:
        self.started += 1
        return super()._new_request(tokens, num_sampled)


def forecast(
    request: Transcript, num_draft: int, curve: CostCurve = FREE, past: PastOutputs | None = None, **options: Any
) -> list[int]:
    """The accepted tokens of each step that `score` counts after the first token, which vLLM emits without a draft."""
    accepted = [0]
    lane = ScoredLane.of("fusion", {"chain": True, **options}, num_draft)
    after_first = transcript((*request.prompt, request.output[0]), request.output[1:])
    score_output(lane, after_first, curve=curve, past=past, watch=lambda step: accepted.append(step.accepted))
    return accepted


def runner_of(
    transcripts: list[Transcript],
    num_draft: int = NUM_DRAFT,
    limit: int = 2048,
    curve: CostCurve = FREE,
    **options: Any,
) -> Runner:
    """A runner with these requests, before the first step of any."""
    config = vllm_config(num_draft, limit, cost_curve=curve.as_json(), **options)
    runner = Runner(CountingFusion(config), num_draft, limit, len(transcripts), chunk=200)
    runner.requests = {
        str(number): Request(request.prompt, request.output) for number, request in enumerate(transcripts)
    }
    return runner


def unfinished(runner: Runner) -> list[str]:
    """The names of the requests whose outputs are incomplete."""
    return [name for name, request in runner.requests.items() if not request.finished]


def check_outputs(runner: Runner) -> None:
    """Assert that each output begins with its request's `truth`; a last step may emit more."""
    for request in runner.requests.values():
        assert request.output[: len(request.truth)] == list(request.truth)


@pytest.mark.parametrize("options", [{}, {"longest": 3, "recycling": False}])
def test_each_request_drafts_what_was_forecast(transcripts: list[Transcript], options: dict[str, Any]) -> None:
    """Requests start at different times, change rows, and are left out of some steps."""
    rng, runner = random.Random(3), runner_of(transcripts, **options)
    num_moved = 0
    while names := unfinished(runner):
        running = [name for name in names if runner.requests[name].computed]
        starting = [name for name in names if not runner.requests[name].computed and rng.random() < 0.3]
        scheduled = [name for name in running if rng.random() < 0.8] + starting
        before = {name: row for row, name in enumerate(runner.names)}
        runner.step(rng.sample(scheduled, len(scheduled)) or names[:1])
        num_moved += sum(before.get(name, row) != row for row, name in enumerate(runner.names))
    check_outputs(runner)
    for request, logged in zip(runner.requests.values(), transcripts, strict=True):
        expected = forecast(logged, NUM_DRAFT, **options)
        # The log ends with the output, so the forecast counts no draft tokens accepted after that.
        assert request.accepted[:-1] == expected[:-1] and sum(expected) > len(expected)
        assert request.accepted[-1] >= expected[-1]
    assert runner.drafter.started == len(transcripts) and num_moved > 3


def test_a_preempted_request_is_not_taken_for_a_new_one(transcripts: list[Transcript]) -> None:
    """vLLM reads the request's tokens again in parts, and never verifies its last draft."""
    runner = runner_of(transcripts[:3])
    for step in count():
        names = unfinished(runner)
        if not names:
            break
        if step in (6, 9):
            runner.preempt("1")
            names.remove("1")
        runner.step(names)
    check_outputs(runner)
    assert runner.drafter.started == 3 and sum(runner.requests["1"].accepted) > 5


def test_equal_requests_do_not_share_a_drafter(transcripts: list[Transcript]) -> None:
    """Two outputs for one prompt begin with equal tokens and then differ."""
    original = transcripts[0]
    branched = transcript(original.prompt, (*original.output[:9], *transcripts[1].output[:20]))
    runner = runner_of([original, branched, original])
    while names := unfinished(runner):
        runner.step(names)
    check_outputs(runner)
    assert runner.requests["0"].accepted == runner.requests["2"].accepted
    assert runner.requests["1"].accepted[:-1] == forecast(branched, NUM_DRAFT)[:-1]
    assert runner.drafter.started == 3


def test_earlier_answers_are_drafted_from_as_forecast(transcripts: list[Transcript]) -> None:
    """Requests come one after another; each drafts from all answers before, as `score --keep-outputs` forecasts."""
    asked = [*transcripts, transcripts[0]]
    runner, past = runner_of(asked, curve=ASSUMED_GPU, past=True), PastOutputs()
    for (name, request), logged in zip(runner.requests.items(), asked, strict=True):
        while not request.finished:
            runner.step([name])
        assert request.accepted[:-1] == forecast(logged, NUM_DRAFT, ASSUMED_GPU, past)[:-1]
        past.add(request.output, request.prompt)
    check_outputs(runner)
    first, *_, again = runner.requests.values()
    assert len(again.accepted) < 0.8 * len(first.accepted)


@pytest.mark.parametrize("num_draft", [4, 16])
def test_answers_that_end_while_others_go_on_are_drafted_from(transcripts: list[Transcript], num_draft: int) -> None:
    """This includes requests that had started before the answer was added, or were preempted at that time."""
    rng, accepted = random.Random(7), dict[bool, int]()
    for past in (False, True):
        runner = runner_of(transcripts * 2, num_draft, past=past)
        for step in count():
            names = unfinished(runner)
            if not names:
                break
            if step % 7 == 6 and (running := [name for name in names if runner.requests[name].computed]):
                runner.preempt(rng.choice(running))
            # The second half starts later, when answers of the first half have ended.
            runner.step(names[:4])
        check_outputs(runner)
        accepted[past] = sum(sum(request.accepted) for request in runner.requests.values())
    assert accepted[True] > 1.05 * accepted[False]


def test_the_tokens_of_earlier_answers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fusion, "MAX_PAST_TOKENS", 350)
    drafter = Fusion(vllm_config(4, 500, past=True))
    assert drafter.past is not None
    for number, length in enumerate((100, 100, 100, 100, 400, 100)):
        tokens = np.random.default_rng(number).integers(0, 50, (1, 500), np.int32)
        drafter.propose([[int(tokens[0, length - 1])]], np.array([length]), tokens)
        assert drafter.past.num_tokens <= 350
    # When the fourth answer came, the first one was dropped; the one of 400 tokens is too long.
    assert drafter.past.num_tokens == 300


def test_near_the_models_limit_vllm_does_not_call_the_drafter(transcripts: list[Transcript]) -> None:
    """vLLM then verifies a draft of zeros. A request with a step that the drafter did not see counts as new."""
    longest, *others = sorted(transcripts, key=lambda request: -len(request.prompt))
    limit = len(longest.prompt) + len(longest.output) - 2
    runner = runner_of([transcript(longest.prompt, longest.output[:-2]), *others], limit=limit)
    steps = 0
    while names := unfinished(runner):
        # The other requests join the longest one once it is within 24 tokens of the limit.
        near = len(runner.requests["0"].tokens) > limit - 24
        runner.step(names if near else ["0"])
        steps += 1
    check_outputs(runner)
    assert runner.calls < steps and runner.drafter.started > len(transcripts)


def test_the_tokens_kept_for_requests_outside_the_batch_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fusion, "MAX_WAITING_TOKENS", 250)
    drafter = Fusion(vllm_config(4, 300))
    for number in range(20):
        tokens = np.random.default_rng(number).integers(0, 50, (1, 300), np.int32)
        drafter.propose([[int(tokens[0, 99])]], np.array([100]), tokens)
        assert sum(len(request.tokens) for request in drafter.requests[:-1]) <= 250
    assert [len(request.tokens) for request in drafter.requests] == [100] * 3
    assert np.array_equal(drafter.requests[-1].tokens, tokens[0, :100])


def test_a_draft_leaves_room_for_the_bonus_token() -> None:
    tokens = np.array([[1, 2, 3, 4, 5, 6, 7, 8] * 4])
    # The model has 32 positions. After 24 tokens, 8 are left: 7 for draft tokens and one for the bonus token.
    for length, expected in ((24, 7), (29, 2), (30, 1), (31, 0), (32, 0)):
        drafts = Fusion(vllm_config(8, 32)).propose([[int(tokens[0, length - 1])]], np.array([length]), tokens)
        assert len(drafts[0]) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": 3}, "has no option 'window'"),
        ({"longest": 99}, "from 1 to 32"),
        ({"corpus": True}, r"fusion\.corpus is false"),
        ({"past": "perhaps"}, "give true or false"),
        ({"cost_curve": {"rows": [2]}}, "cost_curve is"),
        ({"cost_curve": "h100-8b"}, "cost_curve is"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Fusion(vllm_config(4, 100, **settings))


def test_a_cost_curve_cuts_drafts() -> None:
    tokens = np.array([[1, 2, 3, 4, 5, 6, 7, 8] * 4])
    lengths = []
    for ratio in (1.0, 3.0, 30.0):
        drafter = Fusion(vllm_config(8, 99, cost_curve={"rows": [1, 9], "ratio": [1.0, ratio]}))
        lengths.append(len(drafter.propose([[8]], np.array([24]), tokens)[0]))
    assert lengths[0] == 8 > lengths[1] > lengths[2] == 0


def test_in_a_batch_each_row_costs_more_so_drafts_are_shorter() -> None:
    lengths = []
    for batch in (1, 4, 32, 1):
        tokens = np.array([[1, 2, 3, 4, 5, 6, 7, 8] * 4] * batch)
        drafter = Fusion(vllm_config(16, 99, cost_curve={"rows": [1, 33], "ratio": [1.0, 2.6]}))
        drafts = drafter.propose([[8]] * batch, np.full(batch, 16), tokens)
        lengths.append(len(drafts[0]))
    assert lengths[0] == lengths[3] > lengths[1] > lengths[2]


def test_the_class_that_the_docs_name_is_fusion() -> None:
    """vLLM imports the class by its dotted name, and passes on --additional-config."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in page.splitlines() if line.startswith("vllm serve")]
    assert len(lines) == 2
    for line in lines:
        # After "vllm serve MODEL", flags and values alternate.
        flags = dict(zip(line[3::2], map(json.loads, line[4::2]), strict=True))
        config = flags["--speculative-config"]
        module, _, name = config["model"].rpartition(".")
        drafter_class = getattr(importlib.import_module(module), name)
        own_config = flags.get("--additional-config", {"specrace": {}})["specrace"]
        assert (
            drafter_class is Fusion
            and drafter_class(vllm_config(config["num_speculative_tokens"], 99, **own_config)).options["chain"]
        )
