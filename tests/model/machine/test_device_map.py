"""Models on several devices: where their tensors are, their outputs, and the devices that "auto" chooses.

FIRST and SECOND are two simulated devices (`two_devices`); a spread model has layers on both.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from specrace import workbench as workbench_module
from specrace.cli import main as cli
from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.core.sampling_params import SamplingParams
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.hf import custom_generate
from specrace.model import placement
from specrace.model.capture import capture
from specrace.model.draft_model import DraftModel
from specrace.model.forward.kv import KVStore
from specrace.model.loading import load_target
from specrace.model.machine import device_map
from specrace.model.target import Target
from specrace.model.weights.source import ModelChoice, choose_model
from tests.model.two_devices import FIRST, SECOND, TwoDevices, spread_model
from tests.models import ARCHITECTURES, tiny_model, tiny_target
from tests.parts import VOCAB, CopyingModel, random_prompt, random_tree


def spread_target(name: str) -> Target:
    """A small target with its embeddings and only its first layer on the first device."""
    with TwoDevices():
        target = Target(spread_model(tiny_model(name, num_hidden_layers=3)), name=name)
    target.drafting = CopyingModel(vocab=target.vocab_size)  # type: ignore[assignment]
    return target


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_scores_and_caches_equal_those_on_one_device(name: str) -> None:
    """Over several steps, logits are identical and every layer's cache is on the layer's device."""
    target, plain = spread_target(name), tiny_target(name, num_hidden_layers=3)
    assert target.layer_devices == (FIRST, SECOND, SECOND) and target.devices == (FIRST, SECOND)
    rng = random.Random(name)
    text = list(random_prompt(rng))
    with TwoDevices(), torch.inference_mode():
        store, plain_store = target.prefill(text).store.clone(400), plain.prefill(text).store.clone(400)
        for step in range(10):
            tree = random_tree(rng, text[-1], (0, 1, 6, 2, 15)[step % 5])
            logits = target.logits(store, tree)
            assert logits.device == SECOND and torch.equal(logits.cpu(), plain.logits(plain_store, tree))
            path = tree.path_to(rng.randrange(len(tree)))
            store.keep(path)
            plain_store.keep(path)
            assert [block.device for block in store.blocks] == [FIRST, SECOND]
            # One layer is on the first device, two are on the second.
            assert [len(block) for block in store.blocks] == [1, 2] and store.data is None
            all_layers = torch.cat([block.cpu() for block in store.blocks])
            assert plain_store.data is not None
            assert torch.equal(all_layers[..., : store.length, :], plain_store.data[..., : store.length, :])
            text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]


@pytest.mark.parametrize(
    ("name", "temperature", "prompt"), [("llama", 0.0, random_prompt(random.Random(3))), ("gpt2", 0.8, (7,))]
)
def test_a_race_prints_the_tokens_of_one_device(name: str, temperature: float, prompt: tuple[int, ...]) -> None:
    """The four lanes draft nothing, chains, trees, and the n-grams of a lookahead window."""
    lanes = ("vanilla", "prompt-lookup", "fusion", "lookahead")
    spec = RaceSpec(lanes, max_new_tokens=12, temperature=temperature, seed=5)
    outputs = []
    for target, devices in (
        (spread_target(name), TwoDevices()),
        (tiny_target(name, num_hidden_layers=3), nullcontext()),
    ):
        with devices:
            *events, finished = race(target, prompt, spec)
        assert isinstance(finished, Finished) and all(lane.identical for lane in finished.lanes)
        steps = [event for event in events if isinstance(event, Step)]
        outputs.append(
            {lane: [token for step in steps if step.lane == lane for token in step.emitted] for lane in lanes}
        )
    assert outputs[0] == outputs[1]


def test_generate_prints_the_tokens_of_one_device() -> None:
    ids = torch.tensor([random_prompt(random.Random(1))])
    with TwoDevices():
        spread, plain = spread_model(tiny_model("llama")), tiny_model("llama")
        outputs = [
            model.generate(ids, custom_generate=custom_generate, method="trie", max_new_tokens=12, do_sample=False)
            for model in (spread, plain)
        ]
    assert torch.equal(*outputs)


def test_a_draft_model_on_several_devices_predicts_the_same_tokens() -> None:
    targets = (spread_target("llama"), tiny_target("llama", num_hidden_layers=3))
    with TwoDevices():
        sessions = [DraftModel(target).after([3, 4, 5, 6]).session(SamplingParams()) for target in targets]
        drafts = [[session.likeliest([token]) for token in (7, 8, 9)] for session in sessions]
    assert drafts[0] == drafts[1]


def test_a_target_on_several_devices_stays_eager_and_its_description_says_why() -> None:
    target = spread_target("llama")
    with TwoDevices():
        capture(target)
    about = target.describe()
    assert target.replay is None and target.graphs is None and about["graphs"] is False
    assert about["engine"] == "eager (on several devices)" and about["device"] == "2 x cpu"


def test_a_write_from_another_device_than_the_layers_is_refused() -> None:
    store = KVStore(2, 8, (FIRST, SECOND))
    keys = torch.zeros(1, 2, 3, 4)
    with TwoDevices():
        store.write(0, keys, keys)
        with pytest.raises(ValueError, match="on the device of their layer"):
            store.write(1, keys, keys)
        store.write(1, keys.to(SECOND), keys.to(SECOND))


def test_synchronize_waits_for_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    target = spread_target("llama")
    synchronized: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", synchronized.append)
    target.synchronize()
    monkeypatch.setattr(target, "_on_gpu", True)
    target.synchronize()
    assert synchronized == [FIRST, SECOND]


def test_a_model_whose_layers_are_not_found_is_refused() -> None:
    with TwoDevices():
        model = spread_model(tiny_model("llama"))
    model.config.num_hidden_layers = 7
    with pytest.raises(InputError, match="layers were not found"):
        Target(model)


# Choosing the devices.


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("auto", 0, ("cpu", None)),
        ("auto", 1, ("cuda", None)),
        ("auto", 2, ("cuda", "auto")),
        ("cpu", 2, ("cpu", None)),
        ("cuda", 2, ("cuda", None)),
        ("cuda:1", 2, ("cuda:1", None)),
    ],
)
def test_auto_chooses_from_the_available_devices(
    device: str, gpus: int, expected: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "count_accelerators", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    assert (placement.resolve_device(device, None), placement.choose_map(device)) == expected


@pytest.mark.parametrize(("available", "expected"), [(True, 3), (False, 0)])
def test_only_accelerators_that_torch_can_use_are_counted(
    available: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert device_map.count_accelerators() == expected


def test_without_a_gpu_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "count_accelerators", lambda: 0)
    target = load_target(device="auto")
    assert target.device.type == "cpu" and target.dtype == torch.float32 and "TorchScript" in target.forward_kind


def test_another_model_is_loaded_on_the_requested_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def load(choice: ModelChoice, **_: Any) -> Target:
        devices.append(choice.device)
        return tiny_target("llama")

    monkeypatch.setattr(workbench_module, "load_choice", load)
    choice = choose_model("first", device="auto")
    workbench = workbench_module.Workbench(tiny_target("llama"), [], None, None, choice=choice)  # type: ignore[arg-type]
    workbench.with_model("other").with_model("another")
    assert devices == ["auto", "auto"]


def test_several_gpus_without_accelerate_are_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(placement, "count_accelerators", lambda: 2)
    monkeypatch.setattr(placement, "find_spec", lambda _: None)
    assert cli.main(["race", "Why?", "--device", "auto"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        message.startswith("To spread a model over 2 GPUs,")
        and "pip install accelerate" in message
        and message.endswith(".")
    )


def test_with_several_gpus_transformers_chooses_the_device_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the arguments of the call only, because the test machine has no GPUs."""
    calls: list[dict[str, Any]] = []

    def load(_: Any, **options: Any) -> Any:
        calls.append(options)
        loading_info = {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set()}
        return spread_model(tiny_model("llama", vocab_size=4160)), loading_info

    monkeypatch.setattr(placement, "count_accelerators", lambda: 2)
    monkeypatch.setattr(placement, "find_spec", lambda _: "accelerate is installed")
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    with TwoDevices():
        target = load_target(device="auto")
    assert calls[0]["device_map"] == "auto" and calls[0]["dtype"] == torch.bfloat16
    assert target.forward_kind == "eager (on several devices)"


@pytest.mark.parametrize("off_gpu", ["cpu", "disk"])
def test_a_model_that_does_not_fit_the_gpus_is_refused(off_gpu: str) -> None:
    model = tiny_model("llama")
    model.hf_device_map = {"model": 0, "lm_head": off_gpu}
    with pytest.raises(InputError, match="does not fit into the memory"):
        device_map.prepare_mapped(model, "large")
    # A model that is entirely off the GPUs was put there by its user.
    model.hf_device_map = {"": off_gpu}
    device_map.prepare_mapped(model, "large")


def test_a_model_with_an_explicit_device_map_prints_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses accelerate's hooks, on two names of the same CPU."""
    monkeypatch.setattr("accelerate.utils.modeling.check_device_same", lambda first, second: first.type == second.type)
    layout = {"model.embed_tokens": FIRST, "model.rotary_emb": FIRST, "model.norm": SECOND, "lm_head": SECOND}
    layout |= {f"model.layers.{number}": FIRST if number < 2 else SECOND for number in range(3)}
    target, plain = load_target(device_map=layout), load_target(graphs=False)
    assert target.model.hf_device_map == layout and target.forward_kind == "eager (on several devices)"
    assert target.model._hf_hook.io_same_device is False and target.layer_devices == (FIRST,) * 3
    prompt = plain.tokenizer("What is the trie built from?")["input_ids"]
    for method in ("vanilla", "trie", "lookahead"):
        outputs = [
            [token for step in generate(loaded, method, prompt, max_new_tokens=24) for token in step.emitted]
            for loaded in (target, plain)
        ]
        assert outputs[0] == outputs[1]
