"""Our methods inside `model.generate`: outputs, stopping criteria, streamers, and the arguments that are refused."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    LogitNormalization,
    MinLengthLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

import specrace
from specrace import hf
from specrace.core.bundled import BUNDLED_MODEL, QUESTIONS
from specrace.core.cost_curve import CostCurve
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import METHODS, native_methods
from specrace.model.draft_model import DraftModel
from specrace.model.target import Target
from specrace.retrieval.prompt import build_prompt
from specrace.workbench import Workbench
from tests.heads import folders
from tests.parts import CopyingModel

NEW_TOKENS = 16
NUM_PROMPTS = 4
Generate = Callable[..., Any]


@pytest.fixture(scope="module")
def model(bundled: Workbench) -> Any:
    return bundled.target.model


class Rows(Sequence[torch.Tensor]):
    """Rows of ids [1, n], each computed on first use, because most tests need only one."""

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self._make = functools.cache(make)

    def __len__(self) -> int:
        return NUM_PROMPTS

    def __getitem__(self, index: Any) -> Any:
        # The range raises IndexError past the end, which ends a loop over the rows.
        return self._make(range(NUM_PROMPTS)[index])


@pytest.fixture(scope="module")
def prompts(bundled: Workbench) -> Rows:
    """Prompts as the app builds them: the questions that ship, each after its nearest passage.

    If there were more prompts than questions, these would come again after their second nearest passage.
    """
    questions = [json.loads(line)["question"] for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    retrieve = functools.cache(bundled.retrieve)

    def build(index: int) -> torch.Tensor:
        rank, question_index = divmod(index, len(questions))
        question = questions[question_index]
        passages = retrieve(question, 2)[rank : rank + 1]
        return torch.tensor([build_prompt(bundled.target.tokenizer, question, passages).tokens])

    return Rows(build)


@pytest.fixture(scope="module")
def greedy_outputs(model: Any, prompts: Rows) -> Rows:
    """The outputs of transformers' own `generate`."""
    return Rows(lambda index: model.generate(prompts[index], max_new_tokens=NEW_TOKENS, do_sample=False))


@pytest.fixture(scope="module")
def our_generate(model: Any) -> Generate:
    """`generate` with our decoding loop."""
    return functools.partial(model.generate, custom_generate=specrace.hf.custom_generate)


def test_outputs_equal_those_of_greedy_generate(our_generate: Generate, prompts: Rows, greedy_outputs: Rows) -> None:
    assert len({tuple(ids[0].tolist()) for ids in prompts}) == NUM_PROMPTS
    methods = itertools.cycle(("trie", "lookahead", "recycling"))
    for ids, expected, method in zip(prompts, greedy_outputs, methods, strict=False):
        assert (
            our_generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, method=method).tolist() == expected.tolist()
        )
    # Few outputs end early: the mean is above 11 of 16 tokens.
    assert (
        sum(output.shape[1] - ids.shape[1] for ids, output in zip(prompts, greedy_outputs, strict=True))
        > NUM_PROMPTS * 11
    )


@pytest.fixture(scope="module")
def smaller() -> Target:
    """A target with the vocabulary and the context of the bundled model, for which it drafts."""
    return Target(random_model(vocab_size=4160, max_position_embeddings=2048, num_hidden_layers=1))


@pytest.mark.parametrize("method", native_methods())
def test_every_method_prints_the_output_of_greedy_generate(
    model: Any,
    our_generate: Generate,
    prompts: Rows,
    greedy_outputs: Rows,
    smaller: Target,
    method: str,
    tmp_path: Path,
) -> None:
    writers = {
        "block": folders.block,
        "eagle": folders.eagle_one,
        "hydra": folders.hydra,
        "medusa": folders.medusa,
        "space": folders.space,
    }
    write = writers.get(METHODS[method].needs_head)
    head = write and write(tmp_path / "head", Target(model))
    values = {"method": method, "draft_model": DraftModel(smaller), "head": head}
    output = our_generate(prompts[3], max_new_tokens=8, do_sample=False, **values)
    assert output.tolist() == greedy_outputs[3][:, : prompts[3].shape[1] + 8].tolist()
    assert output.dtype == torch.int64 and output.is_contiguous()


def test_drafts_save_forwards_and_options_reach_the_drafter(
    model: Any, our_generate: Generate, prompts: Rows, greedy_outputs: Rows
) -> None:
    calls: list[int] = []
    # The first use of a model checks that it can score trees, which takes more forwards.
    our_generate(prompts[0], max_new_tokens=1, do_sample=False)
    hook = model.register_forward_pre_hook(lambda *_: calls.append(1))
    # An answer of full length quotes a passage; in a short one, no drafter saves much.
    index = next(
        candidate
        for candidate in range(NUM_PROMPTS)
        if greedy_outputs[candidate].shape[1] - prompts[candidate].shape[1] == NEW_TOKENS
    )
    expected = greedy_outputs[index].tolist()

    def forwards(**options: Any) -> int:
        calls.clear()
        assert our_generate(prompts[index], max_new_tokens=NEW_TOKENS, do_sample=False, **options).tolist() == expected
        return len(calls)

    try:
        vanilla = forwards(method="vanilla")
        trie = forwards(method="trie", num_draft=16)
        assert forwards(method="trie", num_draft=0) == vanilla > 1.5 * trie
        assert trie <= forwards(method="trie", num_draft=16, options={"n": 2}) < vanilla
        # Forwards over 1, 2 and 64 rows, and their costs: with drafts this dear, few are worth it.
        steep_curve = CostCurve((1, 2, 64), (1.0, 20.0, 1000.0))
        assert trie < forwards(method="trie", curve=steep_curve) < vanilla
    finally:
        hook.remove()


def test_length_limits_are_those_of_generate(model: Any, our_generate: Generate, prompts: Rows) -> None:
    ids = prompts[1]
    for limit in ({"max_new_tokens": 1}, {"max_new_tokens": 7}, {"max_length": ids.shape[1] + 5}):
        assert (
            our_generate(ids, do_sample=False, **limit).tolist()
            == model.generate(ids, do_sample=False, **limit).tolist()
        )


def test_any_token_can_be_the_end_token(
    model: Any, our_generate: Generate, prompts: Rows, greedy_outputs: Rows
) -> None:
    """Every token of the output is tried, including tokens within an accepted path."""
    ids, answer = prompts[0], greedy_outputs[0][0, prompts[0].shape[1] :].tolist()
    for token in dict.fromkeys(answer[:8]):
        arguments = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": [token, 3], "pad_token_id": 0}
        output = our_generate(ids, **arguments)[0].tolist()
        assert output == [*ids[0].tolist(), *answer[: answer.index(token) + 1]]
    # What `generate` does with the last of them: it ends with the end token, too.
    assert output == model.generate(ids, **arguments)[0].tolist()


def test_without_an_end_token_the_text_reaches_its_maximum_length() -> None:
    model = random_model()
    ids = torch.tensor([[3, 4, 5, 3, 4]])
    model.generation_config.eos_token_id = None
    endless = model.generate(ids, do_sample=False, max_new_tokens=40)
    assert endless.shape[1] == 45
    output = model.generate(ids, do_sample=False, max_new_tokens=40, custom_generate=hf.custom_generate)
    assert output.tolist() == endless.tolist()


class StopAtLength(StoppingCriteria):
    """A criterion that stops at a length, and records the texts that it is called with."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.texts: list[list[int]] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        self.texts.append(input_ids[0].tolist())
        return torch.full((input_ids.shape[0],), input_ids.shape[1] >= self.length)


def test_a_stopping_criterion_sees_and_stops_the_same_texts_as_in_generate(
    model: Any, our_generate: Generate, prompts: Rows
) -> None:
    ids = prompts[2]
    for extra in (1, 3, 8):
        outcomes = []
        for generate in (model.generate, our_generate):
            criterion = StopAtLength(ids.shape[1] + extra)
            output = generate(
                ids, max_new_tokens=30, do_sample=False, stopping_criteria=StoppingCriteriaList([criterion])
            )
            outcomes.append((output.tolist(), criterion.texts))
        assert outcomes[0] == outcomes[1]
        assert len(outcomes[1][1]) == extra


def test_stop_strings_and_a_time_limit(model: Any, our_generate: Generate, prompts: Rows, greedy_outputs: Rows) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    word = tokenizer.decode(greedy_outputs[3][0, prompts[3].shape[1] + 9 :][:1]).strip()
    criteria = StoppingCriteriaList([StopStringCriteria(tokenizer, [word])])
    arguments = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "stopping_criteria": criteria}
    output = our_generate(prompts[3], **arguments)
    assert output.tolist() == model.generate(prompts[3], **arguments).tolist()
    assert 0 < output.shape[1] - prompts[3].shape[1] <= 10 and word in tokenizer.decode(output[0, -1:])
    without_time = our_generate(prompts[3], max_new_tokens=NEW_TOKENS, do_sample=False, max_time=0.0)
    assert without_time.shape[1] == prompts[3].shape[1] + 1


class RecordingStreamer:
    """A streamer that records what it receives."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.received.append((tuple(value.shape), value.flatten().tolist()))

    def end(self) -> None:
        self.received.append("end")


def test_a_streamer_receives_the_same_as_from_generate(model: Any, our_generate: Generate, prompts: Rows) -> None:
    ids = prompts[0]
    arguments = {"max_new_tokens": 20, "do_sample": False}
    expected, passed, bound = RecordingStreamer(), RecordingStreamer(), RecordingStreamer()
    model.generate(ids, streamer=expected, **arguments)
    our_generate(ids, streamer=passed, **arguments)
    model.generate(ids, custom_generate=functools.partial(hf.custom_generate, streamer=bound), **arguments)
    assert expected.received == passed.received == bound.received
    assert passed.received[-1] == "end" and passed.received[0] == (tuple(ids.shape), ids[0].tolist())
    stopped = RecordingStreamer()
    criteria = StoppingCriteriaList([StopAtLength(ids.shape[1] + 3)])
    our_generate(ids, streamer=stopped, stopping_criteria=criteria, **arguments)
    # The prompt, and the three tokens up to the stop.
    assert stopped.received == [*passed.received[:4], "end"]


def test_sampling_is_reproducible_and_every_method_gives_the_same_sample(our_generate: Generate, prompts: Rows) -> None:
    # The bundled model is so sure of its answers that only at a high temperature seeds give different ones.
    arguments = {"max_new_tokens": 12, "do_sample": True, "temperature": 9.0, "top_p": 0.95, "top_k": 40}

    def sample(seed: int | None, method: str = "trie") -> list[int]:
        return our_generate(prompts[1], seed=seed, method=method, **arguments)[0].tolist()

    expected = sample(7)
    assert expected == sample(7) == sample(7, "vanilla") == sample(7, "lookahead")
    assert any(sample(seed) != expected for seed in range(2))
    torch.manual_seed(3)
    samples = [sample(None), sample(None)]
    torch.manual_seed(3)
    assert [sample(None), sample(None)] == samples and samples[0] != samples[1]


def test_samples_are_distributed_as_in_generate() -> None:
    """With temperature, top-k and top-p, the first token has the frequencies that it has in `generate`."""
    model, draws = random_model(), 100
    ids = torch.tensor([[3, 4, 5]])
    arguments = {
        "max_new_tokens": 1,
        "do_sample": True,
        "temperature": 1.3,
        "top_k": 5,
        "top_p": 0.8,
        "eos_token_id": None,
    }
    torch.manual_seed(0)
    expected = model.generate(ids.repeat(draws, 1), **arguments)[:, -1].bincount(minlength=32)
    tokens = [
        int(model.generate(ids, custom_generate=hf.custom_generate, method="vanilla", seed=seed, **arguments)[0, -1])
        for seed in range(draws)
    ]
    counts = torch.tensor(tokens).bincount(minlength=32)
    assert set(counts.nonzero().flatten().tolist()) == set(expected.nonzero().flatten().tolist())
    assert (expected > 0).sum() > 1
    assert float((counts - expected).abs().sum()) / (2 * draws) < 0.1


def test_warpers_become_sampling_params() -> None:
    """SamplingParams has the fields temperature, top_p, top_k, seed; warpers in another order are refused."""

    def params(*processors: Any, samples: bool = True) -> SamplingParams:
        return hf._sampling_params(processors, samples, 5)

    temperature, top_k, top_p = TemperatureLogitsWarper(0.7), TopKLogitsWarper(9), TopPLogitsWarper(0.9)
    assert params(temperature, top_k, top_p, LogitNormalization()) == SamplingParams(0.7, 0.9, 9, 5)
    assert params() == SamplingParams(1.0, 1.0, 0, 5)
    # These warpers do not change the likeliest token, so greedy decoding ignores them.
    assert params(temperature, top_k, samples=False) == SamplingParams()
    for refused in (
        (top_k, temperature),
        (top_p, top_k),
        (temperature, temperature),
        (TopKLogitsWarper(3, filter_value=-5.0),),
        (TopPLogitsWarper(0.5, min_tokens_to_keep=2),),
        (MinLengthLogitsProcessor(5, 1),),
    ):
        for samples in (True, False):
            with pytest.raises(ValueError, match="Logits"):
                params(*refused, samples=samples)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"repetition_penalty": 1.2}, "RepetitionPenalty"),
        ({"no_repeat_ngram_size": 3}, "NoRepeatNGram"),
        ({"min_new_tokens": 3}, "MinLength|MinNewTokens"),
        ({"do_sample": True, "min_p": 0.1}, "MinP"),
        ({"bad_words_ids": [[5]]}, "Bad"),
        ({"num_beams": 2}, "num_beams=2"),
        ({"num_return_sequences": 2, "do_sample": True}, "given 2"),
        ({"penalty_alpha": 0.5, "top_k": 4}, "penalty_alpha"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"method": "nonsense"}, "no lane 'nonsense'"),
        ({"options": {"m": 3}}, "trie.n"),
        ({"num_draft": -1}, "Draft tokens"),
        ({"max_new_tokens": 4000}, "takes 2048"),
        ({"do_sample": True, "temperature": 50.0}, "Temperature"),
    ],
)
def test_arguments_that_would_change_the_output_are_refused(
    our_generate: Generate, prompts: Rows, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        our_generate(prompts[0], **({"max_new_tokens": 4, "do_sample": False} | arguments))


def test_inputs_that_are_not_one_plain_sequence_are_refused(model: Any, our_generate: Generate) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    arguments = {"max_new_tokens": 2, "do_sample": False}
    with pytest.raises(ValueError, match="one sequence at a time and was given 2"):
        our_generate(ids.repeat(2, 1), **arguments)
    with pytest.raises(ValueError, match="padded"):
        our_generate(ids, attention_mask=torch.tensor([[0, 1, 1, 1]]), **arguments)
    with pytest.raises(ValueError, match="embed"):
        our_generate(inputs_embeds=model.get_input_embeddings()(ids), **arguments)
    filled = model(ids[:, :2], use_cache=True).past_key_values
    with pytest.raises(ValueError, match="past_key_values"):
        our_generate(ids, past_key_values=filled, **arguments)
    with pytest.raises(ValueError, match="past_key_values"):
        our_generate(ids, past_key_values=DynamicCache(config=model.config), **arguments)
    with pytest.raises(ValueError, match="position ids"):
        our_generate(ids, position_ids=torch.tensor([[1, 2, 3, 4]]), **arguments)
    full_mask = torch.ones_like(ids)
    assert (
        our_generate(ids, attention_mask=full_mask, use_cache=False, **arguments).tolist()
        == model.generate(ids, **arguments).tolist()
    )


@pytest.mark.parametrize("new_tokens", [1, 2, 5])
def test_a_draft_model_drafts_fewer_tokens_than_remain(new_tokens: int) -> None:
    """Each token of a draft model costs a forward, so it drafts at most one token fewer than remain."""
    draft_model, model = CopyingModel(), random_model()
    ids = torch.tensor([[3, 4, 5] * 4])
    arguments = {"max_new_tokens": new_tokens, "do_sample": False, "eos_token_id": None}
    our_arguments = {
        "custom_generate": hf.custom_generate,
        "method": "draft-model",
        "num_draft": 8,
        "draft_model": draft_model,
    }
    assert model.generate(ids, **arguments, **our_arguments).tolist() == model.generate(ids, **arguments).tolist()
    readings = draft_model.sessions[0].readings
    # The first step may draft `new_tokens - 1` tokens, the next one at most `new_tokens - 2`, and so on.
    assert new_tokens - 1 <= len(readings) <= sum(range(new_tokens))


def test_drafts_shrink_at_the_end_of_the_models_context() -> None:
    model = random_model(max_position_embeddings=48)
    ids = torch.tensor([[3, 4, 5] * 12])
    arguments = {"max_length": 48, "do_sample": False, "eos_token_id": None}
    output = model.generate(ids, custom_generate=hf.custom_generate, num_draft=16, **arguments)
    assert output.tolist() == model.generate(ids, **arguments).tolist()


def test_a_dictionary_is_returned_on_request(our_generate: Generate, prompts: Rows) -> None:
    arguments = {"max_new_tokens": 3, "do_sample": False}
    output = our_generate(prompts[2], return_dict_in_generate=True, **arguments)
    assert output.sequences.tolist() == our_generate(prompts[2], **arguments).tolist()


def test_training_flags_and_gradients_do_not_change() -> None:
    model = random_model(attention_dropout=0.5).train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    arguments = {"max_new_tokens": 8, "do_sample": False, "custom_generate": hf.custom_generate}
    first, second = (model.generate(torch.tensor([[3, 4, 5]]), **arguments).tolist() for _ in range(2))
    assert first == second
    assert [module.training for module in model.modules()] == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_is_checked_again_when_its_attention_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's trees are checked once, and again for another way of computing attention."""
    model, checked = random_model(), []
    monkeypatch.setattr(hf, "check_trees", lambda target: checked.append(target.model.config._attn_implementation))
    for attention in ("sdpa", "sdpa", "eager"):
        model.set_attn_implementation(attention)
        model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=2, custom_generate=hf.custom_generate)
    assert checked == ["sdpa", "eager"]


def test_a_prompt_beyond_the_sliding_window_is_decoded_and_one_beyond_the_context_refused() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    small |= {"vocab_size": 32, "num_key_value_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.5}
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(sliding_window=8, pad_token_id=0, eos_token_id=1, **small)).eval()
    ids, arguments = torch.tensor([[3, 4, 5] * 4]), {"max_new_tokens": 9, "do_sample": False}
    expected = model.generate(ids, **arguments)
    assert torch.equal(model.generate(ids, custom_generate=hf.custom_generate, **arguments), expected)
    assert model.config.sliding_window == 8
    with pytest.raises(ValueError, match="takes 32"):
        model.generate(torch.tensor([[3, 4] * 15]), custom_generate=hf.custom_generate, **arguments)


def random_model(**changes: Any) -> Any:
    """A random Llama of two layers over 32 tokens."""
    torch.manual_seed(0)
    values = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 4, "max_position_embeddings": 256, "initializer_range": 0.3}
    return LlamaForCausalLM(LlamaConfig(**(values | {"pad_token_id": 0, "eos_token_id": 1} | changes))).eval()


def test_the_curve_reaches_a_drafter_that_cuts_its_own_trees(our_generate: Generate, model: Any, prompts: Rows) -> None:
    """If a second row costs twenty times the first, fusion drafts nothing: all forwards but the first have one row."""
    rows: list[int] = []
    steep_curve = CostCurve((1, 2, 64), (1.0, 20.0, 40.0))
    arguments = {"max_new_tokens": 12, "do_sample": False, "method": "fusion"}
    # The first use of a model checks that it can score trees, so count the rows of the second use.
    our_generate(prompts[0], **arguments, curve=steep_curve)
    hook = model.register_forward_pre_hook(
        lambda _, __, values: rows.append(values["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        our_generate(prompts[0], **arguments, curve=steep_curve)
        # The prefill reads all tokens but the last, which is the root of the first step's tree.
        assert rows[0] == prompts[0].shape[1] - 1 and set(rows[1:]) == {1}
        rows.clear()
        our_generate(prompts[0], **arguments)
        # On plain weights a forward of two or three rows costs more than one of four, so fusion avoids them.
        assert max(rows[1:]) > 3 and not {2, 3} & set(rows[1:])
    finally:
        hook.remove()
