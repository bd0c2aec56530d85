"""Targets: which models load or are refused, and whether those that load are lossless.

Lossless: every lane prints vanilla's text. `check_trees` compares a small draft's logits with those of a plain forward,
before a model may race.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import METHODS, native_methods
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.recording import from_json, to_json
from specrace.engine.spec import RaceSpec
from specrace.model.draft_check import check_trees
from specrace.model.limits import eos_ids, max_context
from specrace.model.loading import load_target
from specrace.model.machine import memory
from specrace.model.refusals import advice, refuse_other_tasks, refuse_unsupported
from specrace.model.sampling import Sampler
from specrace.model.target import Target
from tests.measure.tiny_configs import tiny_config
from tests.models import byte_tokenizer, tiny_model, tiny_target
from tests.parts import EOS, VOCAB, inputs, run_lane

SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


def save_model(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def assert_one_sentence(refused: pytest.ExceptionInfo[InputError]) -> str:
    """Assert that the error's message is one line and ends with a full stop; returns the message."""
    message = str(refused.value)
    assert message.endswith(".") and "\n" not in message and "Traceback" not in message
    return message


def test_a_saved_model_loads_and_decodes(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    save_model(tmp_path, tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)
    target = load_target(tmp_path)
    assert (target.name, target.dtype, target.device.type) == (tmp_path.name, torch.float32, "cpu")
    prompt = tokenizer.encode("the cat sat on the mat")
    tokens = [token for step in generate(target, "trie", prompt, max_new_tokens=8) for token in step.emitted]
    assert tokens and target.decode(prompt) == "the cat sat on the mat"
    about = target.describe()
    assert about["model"] == tmp_path.name and about["dtype"] == "float32" and about["parameters"] > 1000
    assert about["versions"]["transformers"] == transformers.__version__


@pytest.mark.parametrize("name", ["/no/such/model", "./missing", "../missing", "a/b/c"])
def test_a_missing_folder_is_refused_without_asking_a_hub(name: str) -> None:
    with pytest.raises(InputError, match="no model at") as refused:
        load_target(name)
    assert name in assert_one_sentence(refused)


@pytest.mark.parametrize("name", ["n" * 100_000, "/" + "n" * 100_000, "a/" + "n" * 300, "nul\0", "\udcff"])
def test_an_invalid_model_name_is_refused_in_a_short_sentence(name: str) -> None:
    with pytest.raises(InputError) as refused:
        load_target(name)
    assert len(assert_one_sentence(refused)) < 1000


@pytest.mark.parametrize("field", ["max_position_embeddings", "vocab_size", "num_hidden_layers", "hidden_size"])
def test_a_config_with_an_absurdly_large_number_is_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, field: str
) -> None:
    save_model(tmp_path, tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: 10**400}))
    with pytest.raises(InputError, match=field) as refused:
        load_target(tmp_path)
    assert len(assert_one_sentence(refused)) < 1000


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        load_target(tmp_path)
    assert_one_sentence(refused)
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(InputError) as refused:
        load_target(tmp_path)
    assert_one_sentence(refused)


def test_a_model_without_weights_or_tokenizer_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model("llama")
    model.config.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="could not be loaded") as refused:
        load_target(tmp_path)
    assert_one_sentence(refused)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="could not be loaded") as refused:
        load_target(tmp_path)
    assert_one_sentence(refused)


@pytest.mark.parametrize(("values", "words"), [({"dtype": "int4"}, "int4"), ({"device": "cuda"}, "CUDA")])
def test_an_unknown_dtype_or_device_is_refused(
    values: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a machine with a GPU would accept "cuda".
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=words) as refused:
        load_target("/any", **values)
    assert_one_sentence(refused)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes"),
    ],
)
def test_too_little_memory_gives_one_sentence(
    error: Exception, tmp_path: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Module, "to", fail)
        with pytest.raises(InputError, match="too little memory for") as refused:
            load_target(tmp_path)
    assert_one_sentence(refused)
    assert load_target(tmp_path).vocab_size == len(tokenizer)


def test_weights_that_do_not_fit_are_refused_before_they_are_read(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux grants more memory than the machine has, and kills the process that uses it."""
    save_model(tmp_path / "model", tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    meminfo = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "_MEMORY", meminfo)
    meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {size // 1024 + 1} kB\n")
    assert load_target(tmp_path / "model").vocab_size == len(tokenizer)
    meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {size * 4 // 5 // 1024} kB\n")
    assert load_target(tmp_path / "model", dtype="bfloat16").vocab_size == len(tokenizer)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("the weights were read"))
    with pytest.raises(InputError, match="too little memory for model: its weights take") as refused:
        load_target(tmp_path / "model")
    assert_one_sentence(refused)


@pytest.mark.parametrize("device", ["tpu", "cuda:x", ""])
def test_an_invalid_device_name_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast, device: str) -> None:
    save_model(tmp_path, tiny_model("llama", vocab_size=len(tokenizer)), tokenizer)
    with pytest.raises(InputError) as refused:
        load_target(tmp_path, device=device)
    assert_one_sentence(refused)


# Models that cannot follow branches.


@pytest.mark.parametrize(
    ("config", "values", "words"),
    [
        ("DeepseekV32Config", {}, "layers of the kind indexed_attention"),
        ("T5Config", {}, "an encoder and a decoder"),
        ("BartConfig", {}, "an encoder and a decoder"),
    ],
)
def test_layers_that_choose_what_they_read_and_encoders_are_refused_by_their_config(
    config: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        refuse_unsupported(getattr(transformers, config)(**values), "this model")
    assert_one_sentence(refused)


@pytest.mark.parametrize(
    ("config", "relative"),
    [("Qwen2_5_VLConfig", "Qwen3"), ("Mistral3Config", "Qwen3 or Gemma 3"), ("ViTConfig", "Qwen3")],
)
def test_a_kind_without_a_causal_language_model_is_refused(config: str, relative: str) -> None:
    with pytest.raises(InputError, match=f"no causal language model; take a text model, such as {relative}") as refused:
        refuse_other_tasks(getattr(transformers, config)(), "this model")
    assert_one_sentence(refused)


@pytest.mark.parametrize(
    ("model_type", "relative"),
    [
        ("minimax", "MiniMax-M2"),
        ("deepseek_v32", "DeepSeek-V3"),
        ("recurrent_gemma", "Gemma 3"),
        ("rwkv", "Qwen3"),
    ],
)
def test_a_refusal_names_a_relative_that_races(model_type: str, relative: str) -> None:
    assert f"such as {relative}" in advice(model_type)


def test_a_model_whose_code_fails_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    target = tiny_target("llama")
    monkeypatch.setattr(target, "logits", fail)
    with pytest.raises(InputError, match=r"tree of drafts \(AssertionError\); take a model") as refused:
        check_trees(target)
    assert_one_sentence(refused)


def test_full_attention_is_not_refused() -> None:
    for config in (
        "LlamaConfig",
        "Qwen2Config",
        "Qwen3Config",
        "MistralConfig",
        "GPT2Config",
        "GPTNeoXConfig",
        "PhiConfig",
    ):
        refuse_unsupported(getattr(transformers, config)(), config)
        refuse_other_tasks(getattr(transformers, config)(), config)


def test_models_that_score_trees_differently_are_refused_by_check_trees() -> None:
    model = transformers.BertLMHeadModel(transformers.BertConfig(**SMALL))
    with pytest.raises(InputError, match=r"other logits|cannot be scored") as refused:
        check_trees(Target(model, name="BERT"))
    assert_one_sentence(refused)


@pytest.mark.parametrize(
    ("dtype", "words"), [("float32", "damaged; fetch it again"), ("float16", "use --dtype bfloat16")]
)
def test_weights_that_are_not_numbers_are_refused_as_such(dtype: str, words: str) -> None:
    model = tiny_model("llama").to(getattr(torch, dtype))
    model.model.layers[1].mlp.down_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(InputError, match=words) as refused:
        check_trees(Target(model, name="llama"))
    assert_one_sentence(refused)


@pytest.mark.parametrize("method", ["vanilla", "trie", "fusion"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_token_without_numbers_ends_the_decoding(method: str, temperature: float) -> None:
    """The check at loading does not meet the damaged row of the embedding."""
    model = tiny_model("llama", tie_word_embeddings=False)
    model.model.embed_tokens.weight.data[7] = torch.nan
    target = Target(model, name="llama")
    with pytest.raises(InputError, match="not numbers"):
        list(generate(target, method, (3, 7, 4), max_new_tokens=8, temperature=temperature))


def test_check_trees_reports_a_lack_of_memory_and_no_wrong_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    target = tiny_target("llama")
    monkeypatch.setattr(target, "logits", fail)
    with pytest.raises(InputError, match=r"too little memory for .*; give a smaller model"):
        check_trees(target)


@pytest.mark.parametrize(
    "prefix",
    ["Phi", "Phi3", "Gemma", "StableLm", "Olmo2", "Cohere", "Granite", "SmolLM3", "Starcoder2", "Glm", "Falcon"],
)
def test_other_models_with_full_attention_print_vanillas_text(prefix: str) -> None:
    torch.manual_seed(0)
    extra = {"alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2} if prefix == "Falcon" else {}
    config = getattr(transformers, f"{prefix}Config")(**{**SMALL, "initializer_range": 0.4}, **extra)
    target = Target(getattr(transformers, f"{prefix}ForCausalLM")(config), name=prefix)
    check_trees(target)
    prompt = tuple(range(5, 15)) * 2
    texts = [
        run_lane(
            target, target.prefill(prompt), prompt, METHODS[name].build(inputs(prompt)), eos_ids=frozenset()
        ).tokens
        for name in ("vanilla", "trie", "lookahead")
    ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt-neox", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_supported_model_passes_check_trees_in_any_precision(name: str, dtype: torch.dtype) -> None:
    check_trees(Target(tiny_model(name).to(dtype), name=name))
    check_trees(Target(tiny_model(name, attention="eager").to(dtype), name=name))


def test_a_model_with_too_short_a_context_for_check_trees_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        check_trees(tiny_target("gpt2", max_position_embeddings=4))
    assert_one_sentence(refused)


def model_with_local_attention(window: int) -> Any:
    """A GPT-Neo model: every second layer sees only the cache's last `window` columns, even in other branches."""
    torch.manual_seed(0)
    config = transformers.GPTNeoConfig(
        vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=window, max_position_embeddings=256, initializer_range=0.4, bos_token_id=0, eos_token_id=EOS,
    )  # fmt: skip
    return transformers.GPTNeoForCausalLM(config)


def test_local_attention_is_refused_or_bounded_by_its_window() -> None:
    """In a text longer than the window, such a model sees fewer of a branch's tokens than in vanilla decoding."""
    target = Target(model_with_local_attention(20), name="neo")
    try:
        check_trees(target)
    except InputError:
        return
    assert target.max_context <= 20


@pytest.mark.parametrize("method", ["trie", "jacobi", "lookahead"])
def test_local_attention_is_lossless_within_the_context_limit(method: str) -> None:
    target, prompt = Target(model_with_local_attention(20), name="neo"), (3, 4, 5, 3)
    # A draft of 8 tokens must fit after the last new token.
    room = min(target.max_context, 150) - len(prompt) - 8
    events = list(race(target, prompt, RaceSpec((method,), max_new_tokens=room, num_draft=8)))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "yarn", "llama3", "linear"])
def test_rope_that_changes_with_length_is_lossless_within_the_context_limit(kind: str) -> None:
    """Dynamic and long RoPE rotate every key differently once a draft reaches past the model's original length."""
    scaling: dict[str, Any] = {"rope_type": kind, "factor": 16.0, "rope_theta": 10000.0}
    max_positions = 32 if kind == "dynamic" else 512
    if kind not in ("dynamic", "linear"):
        scaling["original_max_position_embeddings"] = 32
    if kind == "longrope":
        scaling |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    values = {**SMALL, "vocab_size": VOCAB, "max_position_embeddings": max_positions, "initializer_range": 0.6}
    torch.manual_seed(0)
    target = Target(
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**values, rope_parameters=scaling)), name=kind
    )
    assert target.max_context == (32 if kind in ("dynamic", "longrope") else 512)
    prompt = tuple(range(3, 13))
    room = min(target.max_context, 64) - len(prompt) - 8
    spec = RaceSpec(("trie", "jacobi", "lookahead"), max_new_tokens=room, num_draft=8)
    events = list(race(target, prompt, spec))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


# The context.


def test_long_rotary_positions_of_one_kind_of_layer_limit_the_context() -> None:
    rotations = {
        "full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 64},
        "sliding_attention": {"rope_type": "default"},
    }
    assert max_context(SimpleNamespace(max_position_embeddings=512, rope_parameters=rotations)) == 64


@pytest.mark.parametrize(("kind", "setting"), [("mpt", "max_seq_len"), ("doge", "keep_window_size")])
def test_a_length_under_another_name_limits_the_context(kind: str, setting: str) -> None:
    """MPT's biases end there; beyond it, Doge attends to some columns, and chooses them among other branches' too."""
    assert max_context(tiny_config(kind, **{setting: 40})) == 40


@pytest.mark.parametrize(
    ("name", "values", "max_positions"),
    [
        ("llama", {}, 512),
        ("gpt2", {"max_position_embeddings": 100}, 100),
        ("mistral", {"sliding_window": 24}, 512),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}, 512),
    ],
)
def test_the_context_is_the_models_own_whatever_its_window(
    name: str, values: dict[str, Any], max_positions: int
) -> None:
    target = tiny_target(name, **values)
    assert target.max_context == max_positions
    target.check_length(max_positions - 10, max_new_tokens=6, num_draft=4)
    with pytest.raises(InputError, match=rf"{max_positions - 9} tokens.* takes {max_positions}") as refused:
        target.check_length(max_positions - 9, max_new_tokens=6, num_draft=4)
    assert_one_sentence(refused)


@pytest.mark.parametrize("method", native_methods())
def test_a_prompt_that_just_fits_is_decoded(method: str) -> None:
    target = tiny_target("gpt2", max_position_embeddings=64)
    prompt = (tuple(range(3, 13)) * 5)[:40]
    num_draft = 0 if method == "vanilla" else 8
    steps = list(generate(target, method, prompt, max_new_tokens=24 - num_draft, num_draft=8))
    assert any(step.emitted for step in steps)
    with pytest.raises(InputError, match="use fewer passages"):
        list(generate(target, method, prompt, max_new_tokens=25 - num_draft, num_draft=8))


# Tokens.


@pytest.mark.parametrize("token", [VOCAB, 10**6, 2**40, -1])
def test_a_prompt_with_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    target = tiny_target("llama")
    with pytest.raises(InputError) as refused:
        list(generate(target, "trie", (3, token, 4)))
    assert_one_sentence(refused)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    save_model(tmp_path, tiny_model("llama", vocab_size=20), tokenizer)
    with pytest.raises(InputError) as refused:
        list(generate(load_target(tmp_path), "trie", tokenizer.encode("the cat")))
    assert_one_sentence(refused)


def test_a_model_from_a_folder_has_the_folders_name() -> None:
    model = tiny_model("llama")
    for path, name in (("/home/somebody/models/small", "small"), ("org/small", "org/small"), ("", "LlamaForCausalLM")):
        model.config._name_or_path = path
        assert Target(model).name == Target(model).describe()["model"] == name


def test_end_tokens_come_from_config_generation_config_and_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model("llama", eos_token_id=[3, 4])
    assert Target(model).eos_ids == {3, 4}
    model.generation_config.eos_token_id = 9
    assert 9 in Target(model).eos_ids
    model = tiny_model("llama", eos_token_id=None)
    model.generation_config.eos_token_id = None
    assert Target(model).eos_ids == frozenset()
    assert Target(model, tokenizer).eos_ids == {tokenizer.eos_token_id}


def test_the_end_token_of_a_tokenizer_with_a_chat_template_ends_the_text(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    model, chat_tokenizer = tiny_model("llama", eos_token_id=3), copy.deepcopy(tokenizer)
    assert Target(model, chat_tokenizer).eos_ids == {3}
    chat_tokenizer.chat_template = "{{ messages }}"
    assert Target(model, chat_tokenizer).eos_ids == {3, chat_tokenizer.eos_token_id}


def test_top_two_equals_a_plain_forward() -> None:
    target = tiny_target("qwen3")
    for tokens in ([5], [5, 6], list(range(2, 30))):
        (best, second), gap = target.top_two(tokens)
        with torch.inference_mode():
            logits = target.model(input_ids=torch.tensor([tokens])).logits[0, -1]
        values, ids = logits.topk(2)
        assert [best, second] == ids.tolist()
        assert gap == pytest.approx(float(values[0] - values[1]), abs=1e-3)


@pytest.mark.parametrize("params", [SamplingParams(0.8, seed=5), SamplingParams(1.5, top_p=0.9, top_k=9, seed=2**40)])
def test_top_two_under_sampling_includes_the_noise(params: SamplingParams) -> None:
    """The first token is drawn. The second is drawn if the first is excluded, or if its own value grows by the gap."""
    target, are_greedy = tiny_target("qwen3", initializer_range=0.3), []
    for count in range(1, 25):
        tokens = list(range(2, 2 + count))
        (best, second), gap = target.top_two(tokens, params)
        with torch.inference_mode():
            logits = target.model(input_ids=torch.tensor([tokens])).logits[:, -1]

        def draw(changes: dict[int, float], logits: torch.Tensor = logits, position: int = count) -> int:
            changed = logits.clone()
            for token, change in changes.items():
                changed[0, token] += change
            return int(Sampler(params).choose(changed, [position]))

        assert draw({}) == best and gap > 0
        # With top-k and top-p, other tokens would be left after a change of the logits.
        if not params.top_k:
            assert draw({best: -1000.0}) == second
            logit_gap = gap * params.temperature
            assert draw({second: 1.01 * logit_gap + 1e-3}) == second
            assert draw({second: 0.99 * logit_gap - 1e-3}) == best
        are_greedy.append((best, second) == target.top_two(tokens)[0])
    assert not all(are_greedy), "the noise must change some pairs"


def test_if_top_k_leaves_one_token_top_two_returns_the_two_likeliest() -> None:
    target = tiny_target("llama")
    pair, gap = target.top_two([4, 5, 6])
    cut_pair, scaled_gap = target.top_two([4, 5, 6], SamplingParams(0.5, top_k=1))
    assert cut_pair == pair and scaled_gap == pytest.approx(2 * gap, rel=1e-4)


def test_scores_include_the_likeliest_tokens_if_requested() -> None:
    target = tiny_target("llama")
    prefix = target.prefill([3, 4, 5])
    tree = TokenTree((5, 6, 7), (-1, 0, 0))
    scores = target.session(prefix, 10, num_top=3).score(tree)
    assert scores.top is not None and [len(tokens) for tokens in scores.top] == [3, 3, 3]
    assert scores.targets == tuple(tokens[0] for tokens in scores.top) == target.session(prefix, 10).score(tree).targets


def test_without_a_tokenizer_decoded_text_consists_of_token_ids() -> None:
    assert tiny_target("llama").decode([3, 4]) == "3 4"


def test_a_targets_description_can_be_recorded() -> None:
    about = tiny_target("llama").describe()
    assert from_json(json.loads(json.dumps(to_json(Started((), 1, 0.0, about=about))))).about == about


def test_a_multimodal_config_may_have_end_tokens_in_its_text_part_only() -> None:
    model = tiny_model("llama")
    text_config = SimpleNamespace(eos_token_id=[5, 6])
    config = SimpleNamespace(get_text_config=lambda: text_config)
    assert eos_ids(SimpleNamespace(config=config), None) == {5, 6}
    assert eos_ids(model, None) == Target(model).eos_ids


def test_the_least_recently_used_input_buffers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target("llama")
    # Buffers for n rows have a mask of n * n: those for 4, 10 and 11 rows fit together, those for 17 rows only alone.
    monkeypatch.setattr("specrace.model.scorer.MAX_MASK_ELEMENTS", 300)
    small = target.inputs(4)
    large = [target.inputs(rows) for rows in (10, 11)]
    assert target.inputs(11) is large[1] and target.inputs(10) is large[0] and target.inputs(4) is small
    target.inputs(17)
    assert set(target._inputs) == {17} and target.inputs(4) is not small


def test_more_likeliest_tokens_than_the_vocabulary_has_may_be_requested() -> None:
    target = tiny_target("gpt2", vocab_size=5)
    top = target.session(target.prefill((3, 4, 2)), 8, num_top=8).score(TokenTree.chain(4)).top
    assert top is not None and sorted(top[0]) == [0, 1, 2, 3, 4]
