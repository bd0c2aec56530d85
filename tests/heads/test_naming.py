"""Layouts of heads: each is read and written back, and a head guesses the same in every layout of its kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.heads.__main__ import main
from specrace.heads.layouts import build_head
from specrace.heads.loading import convert, read_head
from specrace.heads.naming import explicit_levels
from specrace.model.target import Target
from tests.heads import folders
from tests.models import change_config, tiny_model
from tests.parts import EOS, VOCAB

# A shortlist: the only tokens that a head can draft. It has the end-of-text token, as it must.
IDS = (EOS, 3, 4, 9)
TEXT = (5, 6, 7, 8, 9)
# A writer of each layout, the layout's name, and another layout of the same kind.
LAYOUTS: dict[str, tuple[Callable[..., Path], str, str]] = {
    "medusa": (partial(folders.medusa, own=True), "medusa", "vllm"),
    "medusa, vllm": (folders.vllm_medusa, "vllm", "medusa"),
    "medusa, vllm, shared output": (partial(folders.vllm_medusa, shared=True), "vllm", "medusa"),
    "hydra": (folders.hydra, "hydra", "hydra"),
    "hydra++": (partial(folders.hydra, own=True, plus=True), "hydra", "hydra"),
    "eagle one": (folders.eagle_one, "eagle", "eagle"),
    "block": (folders.block, "block", "block"),
    "eagle three": (folders.eagle_three, "eagle3", "speculators"),
    "eagle three of SGLang": (
        partial(folders.eagle_three, eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}),
        "eagle3",
        "speculators",
    ),
    "eagle three, speculators": (
        partial(
            folders.speculators,
            eagle_aux_hidden_state_layer_ids=[1, 2, 4],
            norm_before_residual=True,
            norm_output=True,
            fc_norm=True,
        ),
        "speculators",
        "eagle3",
    ),
}


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(tiny_model("llama", num_hidden_layers=5), name="llama")


def guesses(folder: Path, target: Target) -> tuple[tuple[int, ...], list[int], Tensor]:
    """The levels that the head in a folder reads, and its guesses after a text at two depths: tokens, probabilities."""
    head = build_head(read_head(folder), target)
    session = head.after(TEXT, target.prefill(TEXT, head.levels)).session(SamplingParams(), 8)
    session.begin(TEXT[-1])
    ranked = [pair for row in session.likeliest([()], 3) + session.likeliest([(3,), (4,)], 3) for pair in row]
    return head.levels, [token for token, _ in ranked], torch.tensor([probability for _, probability in ranked])


def check_same_guesses(folder: Path, other: Path, target: Target) -> None:
    """Check that two heads guess the same; the last bit of a sum depends on how its terms lie in memory."""
    levels, tokens, probabilities = guesses(folder, target)
    other_levels, other_tokens, other_probabilities = guesses(other, target)
    assert (levels, tokens) == (other_levels, other_tokens)
    torch.testing.assert_close(probabilities, other_probabilities)


@pytest.mark.parametrize("ids", [(), IDS], ids=["all tokens", "a shortlist"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_head_is_the_same_in_every_layout(name: str, ids: tuple[int, ...], target: Target, tmp_path: Path) -> None:
    write, layout, other = LAYOUTS[name]
    first, there, back = write(tmp_path / "first", target, ids=ids), tmp_path / "there", tmp_path / "back"
    convert(first, other, there)
    convert(there, layout, back)
    check_same_guesses(first, there, target)
    check_same_guesses(first, back, target)
    # Tensors have other names in another layout, so two different files were compared above.
    tensors, renamed, restored = (load_file(folder / "model.safetensors") for folder in (first, there, back))
    assert (tensors.keys() == renamed.keys()) == (layout == other)
    assert tensors.keys() == restored.keys()
    assert all(torch.equal(tensors[tensor], restored[tensor]) for tensor in tensors)


def test_the_config_of_speculators_is_nested_as_its_library_nests_it(target: Target, tmp_path: Path) -> None:
    """Layers are counted by level, and the layer's own sizes are those of a Llama.

    In `eagle_config` a number names a layer by its output, which is the next higher level.
    """
    first = folders.eagle_three(
        tmp_path / "first", target, ids=IDS, eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}
    )
    convert(first, "speculators", tmp_path / "there")
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    layer = config["transformer_layer_config"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4] and "eagle_config" not in config | layer
    assert layer["model_type"] == "llama" and layer["vocab_size"] == VOCAB and config["draft_vocab_size"] == len(IDS)
    assert config["speculators_model_type"] == config["speculators_config"]["algorithm"] == "eagle3"


def test_rows_of_all_tokens_are_cut_to_the_token_map(target: Target, tmp_path: Path) -> None:
    """Like vLLM, we take a shortlist's rows from output layers of the whole vocabulary.

    `token_map` is vLLM's name of the shortlist's ids, `truncated_vocab_size` that of their number.
    """
    folder = folders.vllm_medusa(tmp_path / "head", target)
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    folders.write_head(folder, config | {"truncated_vocab_size": 4}, tensors | {"token_map": torch.tensor(IDS)})
    head = build_head(read_head(folder), target)
    rows = torch.randn(2, target.config.hidden_size)
    expected = rows @ tensors["lm_heads.1.weight"][list(IDS)].T
    torch.testing.assert_close(head.outputs[1].logits(rows), expected)


def test_a_pickle_becomes_safetensors(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command converts a pickle in which the names of three output layers share one tensor."""
    folder = folders.medusa(tmp_path / "head", target, own=True)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors["1.1.weight"] = tensors["2.1.weight"] = tensors["0.1.weight"]
    torch.save(tensors, folder / "medusa_lm_head.pt")
    out = tmp_path / "out"
    assert main(["convert", str(folder), "--layout", "vllm", "--out", str(out)]) == 0
    assert "wrote" in capsys.readouterr().out and "lm_head.weight" in load_file(out / "model.safetensors")
    check_same_guesses(folder, out, target)
    assert main(["convert", str(folder), "--layout", "vllm", "--out", str(out)]) == 2
    assert "a head in" in capsys.readouterr().err


@pytest.mark.parametrize("ids", [(), IDS], ids=["all tokens", "a shortlist"])
def test_a_head_gets_the_output_rows_of_its_target(ids: tuple[int, ...], target: Target, tmp_path: Path) -> None:
    """vLLM's layout has output layers; a trained head has none, and uses its target's rows."""
    folder = folders.medusa(tmp_path / "head", target, ids=ids)
    convert(folder, "vllm", tmp_path / "out", target)
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    rows = target.model.get_output_embeddings().weight
    assert torch.equal(tensors["lm_head.weight"], rows[list(ids)] if ids else rows)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["original_lm_head"] and config["vocab_size"] == VOCAB
    assert config.get("truncated_vocab_size", VOCAB) == (len(ids) or VOCAB)
    check_same_guesses(folder, tmp_path / "out", target)


@pytest.mark.parametrize(
    ("write", "layout", "words"),
    [
        (folders.medusa, "vllm", "uses the output layer of its target"),
        (folders.medusa, "eagle3", "has no layout eagle3; the layouts of its kind are medusa, vllm"),
        (folders.hydra, "vllm", "has no layout vllm; the layouts of its kind are hydra"),
    ],
)
def test_what_a_layout_cannot_hold_is_refused(
    write: Callable[..., Path], layout: str, words: str, target: Target, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        convert(write(tmp_path / "head", target), layout, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_settings_that_are_not_built_or_make_no_sense_are_refused(target: Target, tmp_path: Path) -> None:
    folder = folders.vllm_medusa(tmp_path / "head", target, ids=IDS)
    for changes, words in (({"logit_scale": 0.5}, "logit_scale"), ({"truncated_vocab_size": 3}, "d2t of shape 4")):
        before = (folder / "config.json").read_text()
        change_config(folder, **changes)
        with pytest.raises(InputError, match=words):
            build_head(read_head(folder), target)
        (folder / "config.json").write_text(before)
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    folders.write_head(folder, config, tensors | {"token_map": torch.tensor((EOS, 3, 4, VOCAB))})
    with pytest.raises(InputError, match="a d2t that leaves"):
        build_head(read_head(folder), target)
    medusa = folders.medusa(tmp_path / "medusa", target, ids=IDS, own=True)
    (medusa / "config.json").write_text(json.dumps({"draft_vocab_size": len(IDS)}))
    with pytest.raises(InputError, match="add vocab_size to its config"):
        convert(medusa, "vllm", tmp_path / "out")
    with pytest.raises(InputError, match="must be a list of numbers"):
        explicit_levels({"eagle_aux_hidden_state_layer_ids": "2, 3"})
