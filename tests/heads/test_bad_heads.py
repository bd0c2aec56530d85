"""Heads that do not fit: each is refused in one sentence that names the head and says what to do.

The target has hidden states of 32 numbers, VOCAB tokens and five layers, so its levels are 0 to 5: level i enters layer
i, and the last one is the state after all layers. Names of tensors and settings are those of published heads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specrace.core.bundled import SHIPPED_HEADS
from specrace.core.errors import InputError
from specrace.drafters import head_lanes
from specrace.heads import loading
from specrace.heads.block_layout import block_levels
from specrace.heads.checkpoint import read_checkpoint
from specrace.heads.hydra import HydraHead
from specrace.heads.layouts import build_head
from specrace.heads.loading import attach_heads, read_head, split_choice
from specrace.heads.training.export import MAX_SHIPPED_BYTES
from specrace.model.target import Target
from tests.heads import folders
from tests.models import change_config, tiny_model
from tests.parts import EOS, VOCAB

# The tokens that a head of these tests can draft: its shortlist, which d2t maps to the target's ids.
IDS = (EOS, 3, 4, 9)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target(tiny_model("llama", num_hidden_layers=5), name="llama")


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Apply `change` to the tensors of a head on disk."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def set_tensor(folder: Path, name: str, value: Tensor) -> None:
    """Add a tensor to a head on disk, or replace it."""
    change_tensors(folder, lambda tensors: tensors.update({name: value}))


def assert_refused(location: Path, target: Target, words: str) -> None:
    """Assert that the head at `location` is refused in one short sentence with these words."""
    with pytest.raises(InputError) as refused:
        build_head(read_head(location), target)
    message = str(refused.value)
    assert words in message and message.endswith(".") and "\n" not in message and len(message) < 330, message


# For each fault: what causes it in a head's folder, and words of the error.
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another width": (lambda folder: change_config(folder, hidden_size=64), "hidden states of width 64"),
    "another vocabulary": (lambda folder: change_config(folder, vocab_size=99), "a vocabulary of 99 tokens"),
    "a size that is not a number": (
        lambda folder: change_config(folder, num_attention_heads="four"),
        "the num_attention_heads 'four'",
    ),
    "code": (lambda folder: change_config(folder, auto_map={"AutoModel": "x.Y"}), "code of its own (auto_map)"),
    "not JSON": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "not an object": (lambda folder: (folder / "config.json").write_text("[1]"), "not an object"),
    "a missing tensor": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("layers.0.mlp.up_proj.weight")),
        "no tensor layers.0.mlp.up_proj.weight",
    ),
    "a surplus tensor": (lambda folder: set_tensor(folder, "layers.1.x", torch.ones(2)), "for instance layers.1.x"),
    "a wrong shape": (lambda folder: set_tensor(folder, "fc.weight", torch.ones(32, 32)), "fc.weight of shape 32x32"),
    "a NaN": (
        lambda folder: set_tensor(folder, "fc.bias", torch.full((32,), torch.nan)),
        "fc.bias that are not finite",
    ),
    "tokens outside": (
        lambda folder: set_tensor(folder, "d2t", folders.offsets((1, 2, 3, VOCAB))),
        "a d2t that leaves",
    ),
    "ids instead of offsets": (
        lambda folder: set_tensor(folder, "d2t", torch.tensor([1, 9, 20, 31])),
        "a d2t that leaves",
    ),
    "a token twice": (lambda folder: set_tensor(folder, "d2t", folders.offsets((1, 3, 3, 9))), "names one twice"),
    "no end-of-text token": (
        lambda folder: set_tensor(folder, "d2t", folders.offsets((2, 3, 4, 9))),
        "cannot draft the end of a text",
    ),
    "a shortlist without names": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("d2t")),
        "does not say which",
    ),
    "damaged weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "cannot be read"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    "an unknown kind": (
        lambda folder: save_file({"decoder.weight": torch.ones(2)}, folder / "model.safetensors"),
        "of a kind that cannot race here",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_head_is_refused_in_one_sentence(case: str, target: Target, tmp_path: Path) -> None:
    folder = folders.eagle_one(tmp_path / "head", target, ids=IDS)
    build_head(read_head(folder), target)
    spoil, words = BAD[case]
    spoil(folder)
    assert_refused(folder, target, words)


def test_a_missing_folder_is_refused(target: Target, tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere", target, "There is no head at")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 9]}, "level 9, and the target has the levels 0 to 5"),
        # Inside eagle_config a number names a layer, whose output is the next higher level.
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 3, 5]}}, "level 6"),
        ({"norm_before_fc": True}, "no tensor input_norm.weight"),
        ({"eagle_config": {"norm_before_fc": True}}, "no tensor input_norm.weight"),
        ({"norm_before_fc": True, "fc_norm": True}, "sets norm_before_fc and fc_norm"),
    ],
)
def test_an_eagle_three_config_that_does_not_fit_is_refused(
    changes: dict[str, Any], words: str, target: Target, tmp_path: Path
) -> None:
    assert_refused(folders.eagle_three(tmp_path / "head", target, **changes), target, words)


# Faults of a Hydra head, as in `BAD`.
BAD_HYDRA: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another architecture": (lambda folder: change_config(folder, hydra_head_arch="cross-attn"), "hydra_head_arch 'cr"),
    "heads that read no tokens": (lambda folder: change_config(folder, grounded_heads=False), "grounded_heads False"),
    "a level outside": (lambda folder: change_config(folder, hidden_state_offset=6), "the hidden_state_offset 6"),
    "a missing head": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("hydra_mlp.1.1.res_connection.weight")),
        "no tensor hydra_mlp.1.1.res_connection.weight",
    ),
    "a missing norm": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop("prefix_embeding_layer.norm.weight")),
        "no tensor prefix_embeding_layer.norm.weight",
    ),
    "a prefix layer that the config does not have": (
        lambda folder: change_config(folder, hydra_head_arch="mlp"),
        "for instance prefix_embeding_layer",
    ),
    # The first block of head 2 reads a state and the embeddings of three tokens: 4 * 32 numbers.
    "a first block of another head": (
        lambda folder: set_tensor(folder, "hydra_mlp.2.1.linear.weight", torch.ones(32, 96)),
        "has hydra_mlp.2.1.linear.weight of shape 32x96, and its config and target need 32x128",
    ),
    "another width of the layer": (lambda folder: change_config(folder, intermediate_size=9), "and target need 9x32"),
    "embeddings of another vocabulary": (
        lambda folder: set_tensor(folder, "input_embed_fn.weight", torch.ones(9, 32)),
        "has input_embed_fn.weight of shape 9x32",
    ),
    "a NaN": (
        lambda folder: set_tensor(folder, "hydra_lm_head.0.1.bias", torch.full((VOCAB,), torch.nan)),
        "hydra_lm_head.0.1.bias that are not finite",
    ),
}


@pytest.mark.parametrize("case", BAD_HYDRA)
def test_a_bad_hydra_head_is_refused_in_one_sentence(case: str, target: Target, tmp_path: Path) -> None:
    folder = folders.hydra(tmp_path / "head", target, own=True, plus=True)
    assert build_head(read_head(folder), target).kind == "hydra"
    spoil, words = BAD_HYDRA[case]
    spoil(folder)
    assert_refused(folder, target, words)


def test_a_hydra_head_as_its_code_writes_it(tmp_path: Path) -> None:
    """A pickle whose blocks after the first are one module, with the target's embeddings, and a config without sizes.

    The prefix layer's sizes are the target's.
    """
    target = Target(tiny_model("llama", **folders.SIZES), name="llama")
    folder = folders.hydra(tmp_path / "head", target, own=True, plus=True)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    embeddings = target.model.get_input_embeddings().weight.detach().clone()
    tensors |= {"input_embed_fn.weight": embeddings, "prefix_embeding_layer.embed_tokens.weight": embeddings}
    tensors["prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    for head in range(3):
        for part in ("weight", "bias"):
            tensors[f"hydra_mlp.{head}.5.linear.{part}"] = tensors[f"hydra_mlp.{head}.3.linear.{part}"]
    torch.save(tensors, folder / "hydra_lm_head.pt")
    config = {"hydra_num_heads": 3, "hydra_num_layers": 3, "hydra_head_arch": "prefix-mlp", "grounded_heads": True}
    (folder / "config.json").write_text(json.dumps(config))
    head = build_head(read_head(folder), target)
    assert isinstance(head, HydraHead) and head.prefix_layer is not None and len(head.blocks[0].others) == 2
    assert head.levels == (2,) and head.embeddings is not None and torch.equal(head.embeddings, embeddings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dflash_config": {"target_layer_ids": [0, 5], "mask_token_id": 2}}, "level 6"),
        ({"dflash_config": {"mask_token_id": 2}}, "does not say which layers"),
        ({"dflash_config": {"target_layer_ids": [0, "1"], "mask_token_id": 2}}, "does not say which layers"),
        ({"dflash_config": {"target_layer_ids": [0, 1]}}, "the mask_token_id None"),
        ({"dflash_config": {"target_layer_ids": [0, 1], "mask_token_id": VOCAB}}, f"the mask_token_id {VOCAB}"),
        ({"dflash_config": {"target_layer_ids": [0, 1], "mask_token_id": 2, "use_swa": True}}, "sets use_swa"),
        ({"layer_types": ["sliding_attention"]}, "sets layer_types"),
        ({"markov_rank": 2, "markov_head_type": "rnn"}, "sets markov_head_type"),
        ({"markov_rank": 2}, "no tensor markov_head.markov_w1.weight"),
        ({"block_size": 1}, "blocks of one row"),
        ({"block_size": None}, "the block_size None"),
    ],
)
def test_a_block_head_that_does_not_fit_is_refused(
    changes: dict[str, Any], words: str, target: Target, tmp_path: Path
) -> None:
    assert_refused(folders.block(tmp_path / "head", target, **changes), target, words)


def test_a_block_head_without_layers_is_refused(target: Target, tmp_path: Path) -> None:
    folder = folders.block(tmp_path / "head", target)
    change_tensors(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("layers.")])
    assert_refused(folder, target, "no tensor layers.0.")


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({"target_layer_ids": [-1, 3]}, (0, 4)),
        ({"aux_hidden_state_layer_ids": [1, 4]}, (1, 4)),
    ],
)
def test_a_block_heads_layers_are_counted_as_its_config_counts_them(
    settings: dict[str, Any], levels: tuple[int, ...], target: Target, tmp_path: Path
) -> None:
    assert block_levels(settings, "The head x") == levels
    named = {"dflash_config": {"mask_token_id": 2}} | settings
    assert build_head(read_head(folders.block(tmp_path / "head", target, **named)), target).levels == levels


def test_a_block_guesses_from_its_first_row_where_the_config_says_so(target: Target, tmp_path: Path) -> None:
    """In speculators' layout the layer's config is nested, and the file also has tensors that a race does not need."""
    folder = folders.block(tmp_path / "head", target, rank=2)
    config = json.loads((folder / "config.json").read_text())
    for extra, depth in (({}, 4), ({"sample_from_anchor": False}, 3)):
        (folder / "config.json").write_text(
            json.dumps({"speculators_model_type": "dspark", "transformer_layer_config": config, **extra})
        )
        set_tensor(folder, "verifier_norm.weight", torch.ones(32))
        # From a state of 32 numbers and the bias's rank, 2.
        set_tensor(folder, "confidence_head.proj.weight", torch.ones(1, 34))
        head = build_head(read_head(folder), target)
        assert head.kind == "block" and head.depth == depth


def test_a_t2d_that_disagrees_with_d2t_is_refused(target: Target, tmp_path: Path) -> None:
    folder = folders.eagle_three(tmp_path / "head", target, ids=IDS)
    set_tensor(folder, "t2d", torch.arange(VOCAB) < 4)
    assert_refused(folder, target, "a t2d that marks other tokens")


class Payload:
    """An object whose unpickling calls a function."""

    def __reduce__(self) -> Any:
        return print, ("this must not run",)


def test_a_pickle_with_code_is_refused_and_not_run(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folders.eagle_one(tmp_path / "head", target)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert build_head(read_head(folder), target).kind == "eagle"
    torch.save(tensors | {"x": Payload()}, folder / "pytorch_model.bin")
    assert_refused(folder, target, "stores more than numbers in pytorch_model.bin")
    torch.save({"fc.weight": 3}, folder / "pytorch_model.bin")
    assert_refused(folder, target, "not a list of named tensors")
    assert "must not run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("write", "config", "levels"),
    [
        # The default levels of five layers: 2, the middle, and the third from the end.
        (folders.eagle_three, {}, (2, 2, 2)),
        (folders.eagle_three, {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}, (1, 3, 4)),
        (folders.eagle_three, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 1, 3]}}, (0, 2, 4)),
        (folders.speculators, {"eagle_aux_hidden_state_layer_ids": [0, 3, 4]}, (0, 3, 4)),
        # Hydra counts from the end.
        (folders.hydra, {"hidden_state_offset": 2}, (3,)),
    ],
)
def test_layers_are_counted_as_the_config_counts_them(
    write: Callable[..., Path], config: dict[str, Any], levels: tuple[int, ...], tmp_path: Path
) -> None:
    """Each layer of this model adds 1 to every element, so a feature shows how many layers it has passed."""
    model = tiny_model("llama", num_hidden_layers=5, mlp_bias=True)
    for layer in model.model.layers:
        for product in (layer.self_attn.o_proj, layer.mlp.down_proj):
            torch.nn.init.zeros_(product.weight)
        torch.nn.init.ones_(layer.mlp.down_proj.bias)
    target = Target(model, name="counter")
    head = build_head(read_head(write(tmp_path / "head", target, **config)), target)
    assert head.levels == levels
    features = target.prefill([3, 4, 5], head.levels).features
    assert features is not None
    # The prompt's last token is the pending token: the first step reads it, so it has no feature yet.
    passed = features.unflatten(-1, (len(levels), -1)) - model.get_input_embeddings().weight[[3, 4]][:, None]
    torch.testing.assert_close(passed, torch.tensor(levels, dtype=torch.float32)[None, :, None].expand_as(passed))


def test_names_with_speculators_prefixes_are_read(target: Target, tmp_path: Path) -> None:
    """Checkpoints of the library speculators name the layer layers.0 and nest its sizes in an object."""
    folder = folders.eagle_three(tmp_path / "head", target, prefix="layers.0.")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({"speculators_model_type": "eagle3", "transformer_layer_config": config})
    )
    assert build_head(read_head(folder), target).kind == "eagle"


def test_choices_of_heads(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Lane -> the kind of head with which it drafts; `hybrid` drafts with an EAGLE head, too.
    lanes = head_lanes()
    monkeypatch.chdir(tmp_path)
    # The name of a folder may have an equals sign, as a choice "LANE=FOLDER" has.
    eagle, medusa = folders.eagle_one(tmp_path / "a=b", target), folders.medusa(tmp_path / "m", target)
    assert split_choice("eagle=folder", lanes) == ("eagle", "folder")
    assert split_choice("a=b", lanes) == ("", "a=b")
    attach_heads(target, ["a=b", f"medusa={medusa}"], lanes)
    assert target.heads.keys() == {"eagle", "hybrid", "medusa"} and target.head("eagle").kind == "eagle"
    for choices, words in (
        (["trie=x"], "drafts with no head; the lanes are medusa, hydra, eagle"),
        (["eagle="], "names no head"),
        ([f"eagle={medusa}"], "of the kind medusa, which the lane eagle cannot use"),
        ([str(eagle), str(eagle)], "Two heads are given for the lane eagle"),
    ):
        with pytest.raises(InputError, match=words):
            attach_heads(target, choices, lanes)


def test_a_lane_without_a_choice_gets_the_shipped_head_of_its_target(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SHIPPED_HEADS", tmp_path)
    folders.eagle_one(tmp_path / "shipped", target)
    file = tmp_path / "shipped" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_fingerprint": "0123"}))
    other = folders.eagle_one(tmp_path / "other", target)
    for fingerprint, choices, label in (
        ("0123", [], "The head shipped"),
        ("0123", [str(other)], "The head other"),
        ("4567", [], None),
        ("", [], None),
    ):
        monkeypatch.setattr(target, "fingerprint", fingerprint)
        attach_heads(target, choices, head_lanes())
        assert getattr(target.head("eagle"), "label", None) == label


def test_the_shipped_head_is_small_and_has_a_card() -> None:
    folder = SHIPPED_HEADS / "smollm2-135m-eagle"
    assert (folder / "model.safetensors").stat().st_size <= MAX_SHIPPED_BYTES
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["target_fingerprint"] in (folder / "README.md").read_text(encoding="utf-8")
    assert read_checkpoint(folder).dtype == torch.bfloat16
