"""The arguments that `recommend` writes for transformers: it accepts them, and takes as many steps as were forecast."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from specrace.drafters import METHODS
from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.scoring.score import ScoredLane, score_output
from tests.lab.parts import transcript
from tests.models import tiny_target
from tests.parts import random_prompt

# The shares of steps that accept at least one, two and three draft tokens.
RATES = (0.6, 0.3, 0.1)


def choice(lane: str, num_draft: int = 8, **options: Any) -> Choice:
    """A lane with its defaults and these options. A twin that is not registered has no defaults."""
    defaults = METHODS[lane].defaults("cuda") if lane in METHODS else {}
    # A step emits the bonus token and the accepted draft tokens.
    return Choice(lane, defaults | options, num_draft, 1 + sum(RATES), RATES)


def test_transformers_accepts_the_arguments() -> None:
    export = ENGINES["transformers"].export(choice("prompt-lookup", longest=4))
    # The settings are written as arguments of a Python call.
    config = GenerationConfig(**eval(f"dict({export.settings})"))
    assert (config.prompt_lookup_num_tokens, config.max_matching_ngram_size) == (8, 4)


def test_transformers_takes_as_many_steps_as_were_forecast() -> None:
    target, lane = tiny_target("llama"), ScoredLane.of("prompt-lookup", {"longest": 2}, 8)
    export = ENGINES["transformers"].export(choice("prompt-lookup", longest=2))
    num_steps = num_forecast = 0
    for seed in range(6):
        prompt, counter = random_prompt(random.Random(seed)), StepCounter()
        config = eval(f"GenerationConfig(max_new_tokens=40, do_sample=False, pad_token_id=0, {export.settings})")
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        text = target.model.generate(ids, attention_mask=mask, generation_config=config, streamer=counter)
        num_steps += counter.count
        num_forecast += score_output(lane, transcript(prompt, text[0, len(prompt) :].tolist())).metrics.steps
    # Drafts save some of the 240 steps that vanilla would take.
    assert num_steps < 6 * 40 and num_forecast == pytest.approx(num_steps, rel=0.03)


class StepCounter(BaseStreamer):
    """Counts the steps of `generate`, which calls `put` once for the prompt and once per step."""

    def __init__(self) -> None:
        self.count = -1

    def put(self, value: torch.Tensor) -> None:
        self.count += 1

    def end(self) -> None:
        pass
