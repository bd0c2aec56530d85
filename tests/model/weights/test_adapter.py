"""Low-rank adapters: reading, merging, and refusing unsuitable ones in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specrace.cli.main import main
from specrace.core.bundled import SHIPPED_ADAPTER
from specrace.core.errors import InputError
from specrace.engine.generate import generate
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.weights.adapter import CONFIG, WEIGHTS, find_adapter, merge, read_adapter
from specrace.retrieval.prompt import GROUNDED, choose_style

# An adapter adds ALPHA / RANK * B @ A to a weight; A has RANK rows, B has RANK columns.
RANK, ALPHA = 2, 6


def _model(seed: int = 0) -> LlamaForCausalLM:
    """A small random model."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=1, **sizes)).eval()


def _adapter_tensors() -> dict[str, Tensor]:
    """The tensors of an adapter for two modules of the small model."""
    random = torch.Generator().manual_seed(1)
    shapes = {"model.layers.0.self_attn.k_proj": (16, 32), "model.layers.1.mlp.down_proj": (32, 48)}
    tensors = {}
    for module, (rows, columns) in shapes.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(RANK, columns, generator=random) * 0.2
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.randn(rows, RANK, generator=random) * 0.2
    return tensors


def _write_adapter(folder: Path, tensors: dict[str, Tensor], **config: object) -> Path:
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, **config}))
    return folder


def test_merging_adds_the_scaled_product_and_changes_nothing_else(tmp_path: Path) -> None:
    model, before = _model(), _model().state_dict()
    tensors = _adapter_tensors()
    merge(model, read_adapter(_write_adapter(tmp_path, tensors)), "the model")
    for name, weight in model.state_dict().items():
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        change = torch.zeros_like(weight)
        if f"{prefix}.lora_A.weight" in tensors:
            change = ALPHA / RANK * tensors[f"{prefix}.lora_B.weight"] @ tensors[f"{prefix}.lora_A.weight"]
            assert change.abs().max() > 0.1, "the adapter changes this weight"
        torch.testing.assert_close(weight, before[name] + change)


def test_a_rank_stabilised_adapter_is_scaled_by_one_over_the_root_of_its_rank(tmp_path: Path) -> None:
    assert read_adapter(_write_adapter(tmp_path, _adapter_tensors(), use_rslora=False)).scale == ALPHA / RANK
    assert read_adapter(_write_adapter(tmp_path, _adapter_tensors(), use_rslora=True)).scale == ALPHA / math.sqrt(RANK)


def test_lanes_on_a_merged_model_print_vanillas_text(tmp_path: Path) -> None:
    model = _model()
    merge(model, read_adapter(_write_adapter(tmp_path, _adapter_tensors())), "the model")
    target, prompt = Target(model), (1, 5, 9, 5, 9, 5)
    outputs = [
        [token for step in generate(target, lane, prompt, max_new_tokens=24) for token in step.emitted]
        for lane in ("vanilla", "trie", "fusion")
    ]
    assert outputs[0] and outputs[0] == outputs[1] == outputs[2]


def test_a_half_precision_weight_is_summed_in_float32_and_rounded_once(tmp_path: Path) -> None:
    model, full_precision = _model().to(torch.bfloat16), _model().to(torch.bfloat16).float()
    adapter = read_adapter(_write_adapter(tmp_path, _adapter_tensors()))
    merge(model, adapter, "the model")
    merge(full_precision, adapter, "the model")
    for weight, expected in zip(model.parameters(), full_precision.parameters(), strict=True):
        assert torch.equal(weight, expected.to(torch.bfloat16))


Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def _unchanged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors


def _without_b(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if "lora_A" in name}


def _not_finite(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor * torch.nan for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("change", "config", "words"),
    [
        (_without_b, {}, "other than pairs"),
        (_not_finite, {}, "not finite"),
        (_unchanged, {"r": 3}, "not of rank 3"),
        (_unchanged, {"peft_type": "IA3"}, "not a plain LoRA"),
        (_unchanged, {"use_dora": True}, "not a plain LoRA"),
        (_unchanged, {"alora_invocation_tokens": [1, 2]}, "it sets alora_invocation_tokens"),
        (_unchanged, {"init_lora_weights": "pissa_niter_16"}, "changes the weights that it is added to"),
        (_unchanged, {"alpha_pattern": {"k_proj": 3}}, "it sets alpha_pattern"),
        (_unchanged, {"fan_in_fan_out": True, "rank_pattern": {"k_proj": 1}}, "it sets rank_pattern, fan_in_fan_out"),
    ],
)
def test_an_unsuitable_adapter_is_refused(
    tmp_path: Path, change: Change, config: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read_adapter(_write_adapter(tmp_path, change(_adapter_tensors()), **config))


def test_a_missing_truncated_or_invalid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_adapter(tmp_path)
    _write_adapter(tmp_path, _adapter_tensors())
    (tmp_path / WEIGHTS).write_bytes((tmp_path / WEIGHTS).read_bytes()[:-8])
    with pytest.raises(InputError, match="cannot be read"):
        read_adapter(tmp_path)
    (tmp_path / CONFIG).write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        read_adapter(tmp_path)


def test_an_adapter_for_another_model_changes_nothing(tmp_path: Path) -> None:
    model, tensors = _model(), _adapter_tensors()
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"
    tensors[name] = tensors[name][:, 1:].contiguous()
    with pytest.raises(InputError, match=r"of 32x47, which in the model is 32x48"):
        merge(model, read_adapter(_write_adapter(tmp_path, tensors)), "the model")
    renamed = {name.replace("layers.1", "layers.7"): tensor for name, tensor in _adapter_tensors().items()}
    with pytest.raises(InputError, match=r"layers\.7.*, which the model lacks"):
        merge(model, read_adapter(_write_adapter(tmp_path, renamed)), "the model")
    for weight, expected in zip(model.parameters(), _model().parameters(), strict=True):
        assert torch.equal(weight, expected)


def test_auto_chooses_the_shipped_adapter_only_for_the_model_it_was_trained_for() -> None:
    sizes = json.loads((SHIPPED_ADAPTER / CONFIG).read_text())["trained_for"]
    chat_tokenizer, base_tokenizer = (
        SimpleNamespace(chat_template="You are SmolLM"),
        SimpleNamespace(chat_template=None),
    )
    assert find_adapter("auto", SimpleNamespace(**sizes), chat_tokenizer) == SHIPPED_ADAPTER
    assert find_adapter("auto", SimpleNamespace(**sizes), base_tokenizer) is None
    assert find_adapter("auto", SimpleNamespace(**sizes | {"num_hidden_layers": 32}), chat_tokenizer) is None
    assert find_adapter("none", SimpleNamespace(**sizes), chat_tokenizer) is None


def test_the_shipped_adapter_is_complete_and_names_a_known_prompt_style() -> None:
    adapter = read_adapter(SHIPPED_ADAPTER)
    config = json.loads((SHIPPED_ADAPTER / CONFIG).read_text())
    assert len(adapter.matrices) == len(config["layers_to_transform"]) * len(config["target_modules"])
    assert all(b.abs().sum() > 0 for _, b in adapter.matrices.values())
    assert choose_style(None, None, adapter.style) is GROUNDED


def test_a_loaded_target_names_its_adapter_and_scores_with_it(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(1)
    shapes = {"lora_A.weight": (RANK, 512), "lora_B.weight": (512, RANK)}
    tensors = {
        f"base_model.model.model.layers.0.self_attn.o_proj.{matrix}": torch.randn(shape, generator=random)
        for matrix, shape in shapes.items()
    }
    folder = _write_adapter(tmp_path, tensors, label="my adapter", style="grounded")
    adapted, plain = (load_target(adapter=adapter, graphs=False) for adapter in (folder, "auto"))
    assert adapted.describe()["model"] == "tiny + my adapter"
    assert (adapted.prompt_style, plain.prompt_style) == ("grounded", "")
    assert not torch.allclose(adapted.plain_logits([5, 6, 7]), plain.plain_logits([5, 6, 7]))


def test_a_folder_without_an_adapter_gives_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["race", "Why?", "--adapter", str(tmp_path)]) == 2
    assert "adapter_config.json cannot be read" in " ".join(capsys.readouterr().err.split())
