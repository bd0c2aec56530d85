"""Models on disk: weights that do not match the config are refused and named; a model's own code never runs."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from specrace.cli.main import main
from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.model.loading import load_draft_model, load_target
from specrace.model.weights.checkpoint import refuse_too_large
from specrace.model.weights.source import find_source
from tests.models import ARCHITECTURES, byte_tokenizer, change_config, tiny_model

NORM = "model.norm.weight"
# Architectures whose output layer is not called lm_head.
WITHOUT_LM_HEAD = {"gpt-neox"}
# Buffers of attention masks that older versions of transformers saved.
MASKS = {
    "gpt2": ("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"),
    "gpt-neox": ("gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias"),
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


def save_model(folder: Path, tokenizer: Any, name: str = "llama", **changes: Any) -> Path:
    """Save a tiny model and the tokenizer; returns `folder`."""
    tiny_model(name, vocab_size=len(tokenizer), **changes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def read_weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_error(folder: Path) -> str:
    """The message of the InputError that loading the folder raises, checked to be one sentence with a hint."""
    with pytest.raises(InputError) as refused:
        load_target(folder, graphs=False)
    message = str(refused.value)
    assert str(folder) in message and message.endswith(".") and "\n" not in message and "give a folder" in message
    return message


def test_a_missing_tensor_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tensors = read_weights(save_model(tmp_path, tokenizer))
    del tensors[NORM]
    write_weights(tmp_path, tensors)
    assert f"1 missing ({NORM})" in load_error(tmp_path)


@pytest.mark.parametrize(
    ("layers", "expected"), [(3, "9 missing (model.layers.2."), (1, "9 not in the config (model.la")]
)
def test_more_or_fewer_layers_than_the_config_has_are_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, layers: int, expected: str
) -> None:
    change_config(save_model(tmp_path, tokenizer), num_hidden_layers=layers)
    message = load_error(tmp_path)
    assert expected in message and "and 8 more" in message


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tensors = read_weights(save_model(tmp_path, tokenizer))
    write_weights(tmp_path, tensors | {NORM: torch.ones(31)})
    assert f"1 of another shape ({NORM}: 31 instead of 32)" in load_error(tmp_path)


def test_a_tensor_that_the_model_does_not_have_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tensors = read_weights(save_model(tmp_path, tokenizer))
    write_weights(tmp_path, tensors | {"model.layers.0.self_attn.q_proj.lora": torch.ones(3)})
    assert "1 not in the config (model.layers.0.self_attn.q_proj.lora)" in load_error(tmp_path)


def test_an_incomplete_draft_model_is_refused(tmp_path: Path, bundled: Any) -> None:
    for file in BUNDLED_DRAFT_MODEL.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = read_weights(tmp_path)
    del tensors[NORM]
    write_weights(tmp_path, tensors)
    with pytest.raises(InputError, match="1 missing"):
        load_draft_model(find_source(tmp_path), bundled.target)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_loads_with_tensors_that_older_versions_saved(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, name: str, *, tied: bool
) -> None:
    """Adds buffers that the model computes and, if the output layer is tied, a copy of the embedding for it."""
    tensors = read_weights(save_model(tmp_path, tokenizer, name, tie_word_embeddings=tied))
    load_target(tmp_path, graphs=False)
    extra = MASKS.get(name, ("model.layers.0.self_attn.rotary_emb.inv_freq",))
    if tied and name not in WITHOUT_LM_HEAD:
        assert "lm_head.weight" not in tensors
        embedded = "transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"
        tensors["lm_head.weight"] = tensors[embedded].clone()
    write_weights(tmp_path, tensors | {key: torch.ones(4) for key in extra})
    load_target(tmp_path, graphs=False)


def test_an_untied_model_without_its_head_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    tensors = read_weights(save_model(tmp_path, tokenizer, tie_word_embeddings=False))
    del tensors["lm_head.weight"]
    write_weights(tmp_path, tensors)
    assert "1 missing (lm_head.weight)" in load_error(tmp_path)


@pytest.mark.parametrize("folder", [BUNDLED_MODEL, BUNDLED_DRAFT_MODEL, BUNDLED_MODEL.parent / "characters"])
def test_the_bundled_models_load(folder: Path) -> None:
    assert load_target(folder, graphs=False).name == folder.name


def test_a_race_with_missing_weights_ends_with_one_sentence(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(save_model(tmp_path, tokenizer), num_hidden_layers=5)
    capsys.readouterr()
    assert main(["race", "Why?", "--model", str(tmp_path), "--json"]) == 2
    captured = capsys.readouterr()
    # Each of the three missing layers has nine tensors.
    assert captured.out == "" and captured.err.count("\n") == 1 and "27 missing" in captured.err


@pytest.mark.parametrize(("dtype", "num_bytes"), [(torch.uint8, 10_000), (torch.float8_e4m3fn, 20_000)])
def test_packed_weights_take_the_memory_of_expanded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, num_bytes: int
) -> None:
    """Both files hold 20,000 weights: of 4 bits, two in a byte, as in gpt-oss, and in FP8.

    In bfloat16 they take 40,000 bytes, in float32 80,000; 50,000 are free.
    """
    write_weights(tmp_path, {"weight": torch.zeros(num_bytes // 10, 10).to(dtype)})
    monkeypatch.setattr("specrace.model.weights.checkpoint.free_memory", lambda: 50_000)
    refuse_too_large(tmp_path, "packed", torch.bfloat16, torch.bfloat16)
    with pytest.raises(InputError, match=r"too little memory for packed: its weights take 8e-05 GB"):
        refuse_too_large(tmp_path, "packed", torch.bfloat16, torch.float32)


# A model's own code.

ROOT = Path(__file__).resolve().parents[3]
LOADERS = {"AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"}


def add_custom_code(folder: Path, file: str, key: str, **changes: Any) -> Path:
    """Add a Python module to the model, and its class to `file` under `key`; returns the file that it would create."""
    marker = folder / "ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Own: pass\n")
    path = folder / file
    classes = ["own.Own", None] if key == "AutoTokenizer" else "own.Own"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {key: classes}} | changes))
    return marker


@pytest.mark.parametrize("key", ["AutoConfig", "AutoModelForCausalLM"])
def test_transformers_runs_a_model_in_place_of_the_models_own_code(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Standard input would answer yes if transformers asked whether to run the code."""
    save_model(tmp_path, tokenizer)
    without_code = load_target(tmp_path, adapter="none").model.state_dict()
    marker = add_custom_code(tmp_path, "config.json", key)
    answers = io.StringIO("y\n" * 9)
    monkeypatch.setattr("sys.stdin", answers)
    model = load_target(tmp_path, adapter="none").model
    assert type(model).__module__.startswith("transformers.models.")
    assert all(weight.equal(without_code[name]) for name, weight in model.state_dict().items())
    assert answers.tell() == 0 and not marker.exists()


@pytest.mark.parametrize(
    ("file", "key", "known_type"),
    [
        ("config.json", "AutoConfig", False),
        ("config.json", "AutoModelForCausalLM", False),
        ("tokenizer_config.json", "AutoTokenizer", False),
        ("tokenizer_config.json", "AutoTokenizer", True),
    ],
)
def test_a_models_own_code_is_refused_without_asking_the_user(
    tmp_path: Path,
    tokenizer: PreTrainedTokenizerFast,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    key: str,
    known_type: bool,
) -> None:
    """Standard input would answer yes if transformers asked whether to run the code."""
    save_model(tmp_path, tokenizer)
    kind = "model_type" if file == "config.json" else "tokenizer_class"
    marker = add_custom_code(tmp_path, file, key, **({} if known_type else {kind: "Own"}))
    answers = io.StringIO("y\n" * 9)
    monkeypatch.setattr("sys.stdin", answers)
    capsys.readouterr()
    assert main(["race", "Why?", "--model", str(tmp_path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert str(tmp_path) in captured.err and f"auto_map in its {file}" in captured.err and captured.err.endswith(".\n")
    assert answers.tell() == 0 and not marker.exists()


def test_a_tokenizers_own_code_is_refused_by_score(
    tmp_path: Path,
    tokenizer: PreTrainedTokenizerFast,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_model(tmp_path, tokenizer)
    marker = add_custom_code(tmp_path, "tokenizer_config.json", "AutoTokenizer", tokenizer_class="Own")
    (tmp_path / "log.jsonl").write_text(json.dumps({"prompt": "the cat", "output": "sat"}))
    answers = io.StringIO("y\n" * 9)
    monkeypatch.setattr("sys.stdin", answers)
    assert main(["score", str(tmp_path / "log.jsonl"), "--tokenizer", str(tmp_path)]) == 2
    assert "auto_map in its tokenizer_config.json" in capsys.readouterr().err
    assert answers.tell() == 0 and not marker.exists()


def test_every_call_of_a_loader_sets_trust_remote_code_to_false() -> None:
    calls = 0
    for file in (ROOT / "specrace").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in {f"{name}.from_pretrained" for name in LOADERS} | {"SentenceTransformer"}:
                keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert keywords.get("trust_remote_code") == "False", f"{file}, line {node.lineno}: {called}"
                calls += 1
    assert calls >= 6, "the search must find the known calls"
