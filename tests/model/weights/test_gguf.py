"""GGUF files as models: converted once, without a loss, and refused in one sentence where something would be lost."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from transformers import AutoTokenizer

from specrace.cli.main import main
from specrace.core.errors import InputError
from specrace.model.loading import load_target
from specrace.model.weights import storage
from specrace.model.weights.fetching import fetch
from specrace.model.weights.gguf_header import read_header
from specrace.model.weights.source import ModelSource, find_source
from tests.models import change_config, tiny_model, write_shape

BYTES = [*"abcdefghijklmnopqrstuvwxyz0123456789?.,ĠĊ"]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *BYTES, "ab", "Ġa"]
# What else the config of a tiny model sets: a rotary base that is not the default, and Qwen3's heads of 128 numbers.
CHANGES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "qwen3": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "head_dim": 128},
}
Edit = Callable[[gguf.GGUFWriter], None]


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has neither converted nor fetched anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def make_model(architecture: str) -> Any:
    """A tiny model whose weights bfloat16 represents, so that a conversion must not change them."""
    model = tiny_model(architecture, vocab_size=len(TOKENS), **CHANGES[architecture])
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    return model


def write_file(
    path: Path, architecture: str = "llama", *, split: str = "gpt-2", leave_out: str = "", edit: Edit = lambda _: None
) -> Any:
    """Write the tiny model of an architecture as a float32 GGUF; returns the model."""
    model, writer = make_model(architecture), gguf.GGUFWriter(path, architecture)
    config = model.config
    write_shape(writer, config)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(TOKENS)
    # 3 marks a control token, 1 a normal one.
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(["a b", "Ġ a"])
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    names = gguf.get_tensor_name_map(
        next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), config.num_hidden_layers
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for key, values in model.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None
        if architecture == "llama" and (count := heads.get(name.split(".")[-2])):
            # llama.cpp rotates neighbouring pairs, transformers the two halves of a head.
            values = values.reshape(count, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        if name != leave_out:
            writer.add_tensor(name, values.contiguous().numpy())
    edit(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def converted(name: str | Path) -> ModelSource:
    source = fetch(find_source(name))
    assert not source.is_missing
    return source


@pytest.mark.parametrize(("architecture", "split"), [("llama", "llama-bpe"), ("qwen2", "qwen2"), ("qwen3", "qwen2")])
def test_a_converted_model_is_the_model(tmp_path: Path, architecture: str, split: str) -> None:
    model = write_file(tmp_path / "model.gguf", architecture, split=split)
    source = converted(tmp_path / "model.gguf")
    target = load_target(source, graphs=False)
    tokens = torch.randint(0, len(TOKENS), (40,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens[None]).logits[0]
    torch.testing.assert_close(target.plain_logits(tokens.tolist()), expected, rtol=1e-4, atol=1e-4)
    assert target.name == "model, weights expanded from F32" and target.tokenizer.chat_template
    tokenizer = AutoTokenizer.from_pretrained(source.location)
    spelled = tokenizer.convert_ids_to_tokens(tokenizer("ab a 12<|im_end|>", add_special_tokens=False)["input_ids"])
    assert spelled == ["ab", "Ġa", "Ġ", "1", "2", "<|im_end|>"]


def test_a_race_on_a_file_is_identical_and_the_second_start_converts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "small.gguf")
    (tmp_path / "trie.md").write_text("A trie is a tree of tokens.")
    command = ["race", "what is a trie?", "--docs", str(tmp_path / "trie.md"), "--passages", "0", "--json"]
    command += ["--lanes", "trie,fusion", "--max-new-tokens", "24"]
    for _ in range(2):
        assert main([*command, "--model", str(tmp_path / "small.gguf")]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["model"] == "small, weights expanded from F32"
        assert len(result["lanes"]) > 1 and all(lane["identical"] for lane in result["lanes"] if "identical" in lane)
        # A second conversion would fail.
        monkeypatch.setattr("specrace.model.weights.gguf_reader.convert", None)


def test_a_file_that_was_replaced_is_converted_again(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write_file(file)
    first = converted(file)
    assert find_source(file).location == first.location and find_source(str(first.location)).title == first.title
    os.utime(file, ns=(1, 1))
    assert find_source(file).is_missing


def test_a_folder_with_one_file_stands_for_it(tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    file = tmp_path / "held" / "model.gguf"
    write_file(file)
    (tmp_path / "held" / "mmproj-model.gguf").write_bytes(b"GGUF")
    gguf_file = find_source(tmp_path / "held").gguf
    assert gguf_file is not None and gguf_file.path == file
    (tmp_path / "held" / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"several GGUF files \(model.gguf, other.gguf\); give one"):
        find_source(tmp_path / "held")


def test_a_hub_file_is_taken_from_the_hubs_cache(tmp_path: Path) -> None:
    home = tmp_path / "hub" / "models--someone--model-GGUF"
    folder = home / "snapshots" / ("1" * 40)
    folder.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("1" * 40)
    write_file(folder / "model-q4.gguf")
    source = converted("someone/model-GGUF:model-q4.gguf")
    assert source.title == "model-q4, weights expanded from F32" and not find_source(source.name).is_missing


def test_a_hub_that_does_not_answer_gives_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    with pytest.raises(InputError, match=r"someone/model:a\.gguf cannot be fetched.* give --model a GGUF file"):
        fetch(find_source("someone/model:a.gguf"))


# What a conversion would lose -> the arguments of `write_file` for such a file, and words of the refusal.
EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "scaled positions": ({"edit": lambda writer: writer.add_string("llama.rope.scaling.type", "yarn")}, "scaling.type"),
    "experts": ({"edit": lambda writer: writer.add_uint32("llama.expert_count", 8)}, "expert_count"),
    "narrow heads": (
        {"edit": lambda writer: writer.add_rope_dimension_count(2)},
        "rope.dimension_count 2 instead of 8",
    ),
    "rope factors": (
        {"edit": lambda writer: writer.add_tensor("rope_freqs.weight", torch.ones(4).numpy())},
        "rope_freqs.weight, which a conversion would lose",
    ),
    "a missing tensor": ({"leave_out": "blk.1.attn_q.weight"}, "lacks 1 of its tensors, such as blk.1.attn_q.weight"),
    "an unknown split": ({"split": "default"}, r"tokenizer \(gpt2, default\)"),
    "a part": ({"edit": lambda writer: writer.add_uint16("split.count", 3)}, "one of 3 parts"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_a_file_of_which_something_would_be_lost_is_refused(tmp_path: Path, kind: str) -> None:
    arguments, reason = EDITS[kind]
    write_file(tmp_path / "model.gguf", **arguments)
    with pytest.raises(InputError, match=f"model.gguf .*{reason}"):
        fetch(find_source(tmp_path / "model.gguf"))
    assert not (tmp_path / "cache" / "models").exists()


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(
        InputError, match="architecture mamba; GGUF files are read for llama, qwen2, qwen3: give a folder"
    ):
        read_header(tmp_path / "model.gguf")


def test_damaged_files_give_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write_file(file)
    content = file.read_bytes()
    # After 4 bytes of magic and 4 of the version come the numbers of tensors and of settings.
    huge = content[:8] + struct.pack("<QQ", 1 << 60, 1 << 60) + content[24:]
    cases = {b"": "cut off", b"PK\3\4 something else": "not a GGUF file", b"GGUF\1": "cut off", huge: "damaged"}
    cases |= {content[:size]: "cut off" for size in (20, 100, 700, len(content) - 2000)}
    cases[b"GGUF" + struct.pack("<I", 1) + content[8:]] = "version 1"
    for case, reason in cases.items():
        file.write_bytes(case)
        with pytest.raises(InputError, match=f"model.gguf .*{reason}"):
            fetch(find_source(file))


def test_a_conversion_that_does_not_fit_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "model.gguf")
    monkeypatch.setattr(storage, "free_memory", lambda: 100_000_000)
    with pytest.raises(InputError, match=r"model.gguf needs [\d,]+ MB of memory once"):
        fetch(find_source(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("AWQ", {"quantization_config": {"quant_method": "awq", "bits": 4}}),
        ("GPTQ", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
        ("MLX", {"quantization": {"group_size": 64, "bits": 4}, "quantization_config": {"group_size": 64, "bits": 4}}),
    ],
)
def test_packed_weights_are_refused_by_name(tmp_path: Path, kind: str, config: dict[str, Any]) -> None:
    make_model("llama").save_pretrained(tmp_path / "model")
    change_config(tmp_path / "model", **config)
    with pytest.raises(InputError, match=f"model has weights packed for {kind}, .* GGUF file"):
        load_target(tmp_path / "model", graphs=False)
