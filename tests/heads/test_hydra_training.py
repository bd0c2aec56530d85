"""Hydra's module for training computes what a session guesses."""

from __future__ import annotations

from pathlib import Path

import torch

from specrace.core.sampling_params import SamplingParams
from specrace.heads.layouts import build_head
from specrace.heads.loading import read_head
from specrace.heads.modules.batch import collate
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.hydra import Hydra
from specrace.model.target import Target
from tests.heads import folders
from tests.models import tiny_model
from tests.parts import VOCAB

DEPTHS = 3


@torch.no_grad()
def test_training_computes_what_a_session_guesses(tmp_path: Path) -> None:
    """Checked with every token of an answer as the pending token, and the true tokens after it as the draft."""
    target = Target(tiny_model("llama"), name="llama")
    generator = torch.Generator().manual_seed(1)
    head = Hydra(HeadConfig.fitting(target.config, VOCAB, num_heads=DEPTHS))
    for parameter in head.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    tensors = {name: tensor.detach() for name, tensor in head.state_dict().items()}
    folder = folders.write_head(tmp_path / "head", {"grounded_heads": True}, tensors)
    drafting = build_head(read_head(folder), target)

    ids = torch.randint(2, VOCAB, (12,), generator=generator)
    states = target.model(ids[None, :-1], output_hidden_states=True).hidden_states[-1][0]
    # The answer's first token.
    start = 5
    batch = collate([(ids, start, states[:, None])])
    rows = target.model.get_output_embeddings().weight
    embeddings = target.model.get_input_embeddings().weight
    trained = [head.logits(output[0], rows) for output in head.guesses(batch, embeddings[batch.ids], DEPTHS)]
    # The answer has seven tokens: all can be guessed at depth 1, and one fewer at each further depth.
    assert [len(logits) for logits in trained] == [7, 6, 5]
    for place in range(len(ids) - start):
        text = ids[: start + place].tolist()
        session = drafting.after(text, target.prefill(text, drafting.levels)).session(SamplingParams(), 8)
        session.begin(text[-1])
        for depth in range(min(DEPTHS, len(ids) - start - place)):
            path = tuple(ids[start + place : start + place + depth].tolist())
            # All tokens with their probabilities, the likeliest first; sorted by token below.
            guesses = session.likeliest([path], VOCAB)[0]
            expected = trained[depth][place].softmax(-1)
            actual = torch.tensor([prob for _, prob in sorted(guesses)])
            torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
