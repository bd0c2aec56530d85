"""Training of heads on a tiny random model: data, resumption, the trainer, what is measured, what is exported.

A shard is a file of conversations (questions and the target's answers) with hidden states; a card is an exported head's
README.md; a fingerprint is a digest of a target's weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.events import Finished
from specrace.core.sampling_params import SamplingParams
from specrace.drafters import head_lanes
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.heads.__main__ import main
from specrace.heads.hydra import HydraHead
from specrace.heads.layouts import build_head
from specrace.heads.loading import attach_heads, read_head
from specrace.heads.modules.batch import Batch, collate
from specrace.heads.modules.hydra import Hydra
from specrace.heads.space import SpaceHead
from specrace.heads.training import trainer
from specrace.heads.training.evaluation import measure
from specrace.heads.training.export import export
from specrace.heads.training.generation import generate
from specrace.heads.training.questions import Overlap, read_questions
from specrace.heads.training.session import HeadWork, WorkSettings
from specrace.heads.training.shards import DataMaker, DataRecipe, open_shards, read_description
from specrace.heads.training.shortlist import choose_shortlist, coverage, offsets
from specrace.heads.training.trainer import HeadRecipe
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.weights.fingerprint import fingerprint
from tests.models import byte_tokenizer, tiny_model
from tests.parts import EOS

TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}:"
RECIPE = HeadRecipe(epochs=1, depths=2, shortlist=64, batch_tokens=600)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """On a busy machine, two threads that wait for each other take a hundred times as long for such small products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("target")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    model = tiny_model("llama", vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, initializer_range=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_work(model: Path, folder: Path, kind: str = "eagle") -> HeadWork:
    """The work of training a head of this kind in `folder`: its data, training, evaluation and export."""
    return HeadWork(WorkSettings(str(model), "none", folder, kind))


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of four short passages about rivers."""
    file = tmp_path_factory.mktemp("text") / "passages.jsonl"
    rows = [{"title": f"River {n}", "text": f"River {n} rises in the hills. " + "It flows on. " * 8} for n in range(4)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.fixture(scope="module")
def work(model_folder: Path, passages: Path, tmp_path_factory: pytest.TempPathFactory) -> HeadWork:
    """The work of an EAGLE head with two shards of data, the second about passages."""
    work = make_work(model_folder, tmp_path_factory.mktemp("work"))
    list(work.make_data(passages, 2_000, [], rows=24))
    return work


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@torch.inference_mode()
def test_a_batch_is_answered_like_single_prompts(temperature: float) -> None:
    """Greedy answers are those of plain `generate`; at any temperature, features are the states of a plain forward."""
    model = tiny_model("llama")
    prompts = [[5, 9, 3], [7, 2, 8, 4, 6, 1], [11, 12]]
    rows = generate(
        model,
        prompts,
        [temperature] * 3,
        max_new_tokens=9,
        ends=[EOS],
        levels=(0, 1, 2),
        generator=torch.Generator().manual_seed(0),
    )
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.ids[: row.start].tolist() == prompt
        if not temperature:
            expected = model.generate(torch.tensor([prompt]), max_new_tokens=9, do_sample=False, pad_token_id=EOS)
            assert row.ids.tolist() == expected[0].tolist()
        states = model(row.ids[None, :-1], output_hidden_states=True).hidden_states
        torch.testing.assert_close(row.features, torch.stack([level[0] for level in states], 1), atol=1e-4, rtol=1e-3)


def test_rows_that_end_leave_the_batch() -> None:
    """Rows end at different lengths, and each is answered as if it were alone."""
    model = tiny_model("llama")
    prompts = [[token, token + 1] for token in range(2, 14)]
    alone = [generate(model, [prompt], [0.0], max_new_tokens=12, ends=[])[0].ids.tolist() for prompt in prompts]
    ends = sorted({ids[2 + number % 9] for number, ids in enumerate(alone)})
    together = generate(model, prompts, [0.0] * len(prompts), max_new_tokens=12, ends=ends)
    for ids, row in zip(alone, together, strict=True):
        last = next((index for index, token in enumerate(ids) if index >= 2 and token in ends), len(ids) - 1)
        assert row.ids.tolist() == ids[: last + 1]
    assert len({len(row.ids) for row in together}) > 2


def test_overlap_is_eight_words_or_a_whole_short_question() -> None:
    overlap = Overlap(["Why is the sky blue?", "one two three four five six seven eight nine"])
    assert "Tell me: why is the SKY blue today?" in overlap
    assert "two three four five, six seven eight nine" in overlap
    assert "two three four five six seven eight" not in overlap
    assert "Why is the sea blue?" not in overlap


def test_questions_of_a_test_are_avoided(work: HeadWork, tmp_path: Path) -> None:
    asked = open_shards(work.data)[0].questions
    # A set, asked by `in`, in the place of an `Overlap`.
    avoid: Any = {asked[0]}
    description = replace(read_description(work.data), recipe=DataRecipe(1, rows=24))
    list(DataMaker(work.target, tmp_path, description, [], avoid).run())
    remaining = open_shards(tmp_path)[0].questions
    assert set(asked) - set(remaining) == avoid
    avoid |= set(remaining)
    with pytest.raises(InputError, match="no finished question"):
        list(DataMaker(work.target, tmp_path / "none", description, [], avoid).run())


def test_questions_are_read_from_jsonl_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "Why?"}\n')
    (tmp_path / "b.txt").write_text("Who?\n\nWhen?\n")
    assert read_questions([tmp_path / "a.jsonl", tmp_path / "b.txt"]) == ["Why?", "Who?", "When?"]


def test_data_goes_on_where_it_stopped(work: HeadWork, model_folder: Path, passages: Path, tmp_path: Path) -> None:
    """Existing shards are not touched, and the missing ones become those of an uninterrupted run."""
    other = make_work(model_folder, tmp_path)
    list(other.make_data(passages, 1, [], rows=24))
    first = other.data / "shard-0000.safetensors"
    written = first.stat().st_mtime_ns
    list(other.make_data(passages, 2_000, [], rows=24))
    assert first.stat().st_mtime_ns == written
    for expected, resumed in zip(open_shards(work.data), open_shards(other.data), strict=True):
        assert torch.equal(expected.ids, resumed.ids)
        assert expected.questions == resumed.questions


def test_a_shard_has_greedy_and_sampled_answers(work: HeadWork) -> None:
    shards = open_shards(work.data)
    assert len(shards) >= 2
    for shard in shards:
        assert {round(value, 1) for value in shard.temperatures} == {0.0, 0.8}
        assert len(shard.questions) == len(shard.answers) == len(shard)
    assert any("River" in question for question in shards[1].questions)


def train_steps(
    folder: Path, work: HeadWork, kind: str, stop_after: int | None = None, epochs: float = RECIPE.epochs
) -> list[dict[str, float]]:
    """Rows of progress of a run on the data of `work`; with `stop_after`, it is interrupted after that many rows."""
    data, recipe = read_description(work.data), replace(RECIPE, kind=kind, epochs=epochs)
    run = trainer.HeadRun(work.parts, open_shards(work.data), data.levels, folder, recipe)
    rows = []
    for row in run.train():
        rows.append(row)
        if len(rows) == stop_after:
            break
    return rows


@pytest.mark.parametrize("kind", ["block", "eagle", "eagle3", "medusa", "hydra", "space"])
def test_training_lowers_the_loss(kind: str, work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "REPORT_STEPS", 3)
    rows = train_steps(tmp_path, work, kind, epochs=3)
    assert len(rows) > 1
    assert rows[-1]["loss_1"] < rows[0]["loss_1"]
    assert rows[-1]["step"] == rows[-1]["of"]


def test_an_interrupted_run_ends_like_an_undisturbed_one(
    work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "REPORT_STEPS", 2)
    train_steps(tmp_path / "whole", work, "eagle")
    train_steps(tmp_path / "cut", work, "eagle", stop_after=1)
    train_steps(tmp_path / "cut", work, "eagle")
    whole, cut = (
        torch.load(tmp_path / name / trainer.CHECKPOINT, weights_only=True)["head"] for name in ("whole", "cut")
    )
    for name, tensor in whole.items():
        torch.testing.assert_close(cut[name], tensor)


def test_prompts_are_guessed_once_for_each_question(work: HeadWork, tmp_path: Path) -> None:
    recipe = HeadRecipe(**{**vars(RECIPE), "prompts": True})
    run = trainer.HeadRun(work.parts, open_shards(work.data), read_description(work.data).levels, tmp_path, recipe)
    wholes = 0
    for group in run.groups(run.training, seed=1):
        batch = run.batch(group, prompts=True)
        # A group is not mixed: an answer beside whole conversations would be padded to their length.
        assert len({run.shards[shard].temperatures[number] == 0 for shard, number in group}) == 1
        for row, (shard, number) in enumerate(group):
            data = run.shards[shard]
            ids = data.ids[data.starts[number] : data.starts[number + 1]]
            first = run.first_guessed((shard, number))
            assert torch.equal(batch.guessed(1)[row][batch.is_guessed(1)[row]], ids[first:])
            # The first guessed token was drawn from the state of the token before it.
            states = data.conversation(number, run.levels).features[:, -1].float()
            assert torch.equal(batch.last_states(1)[row][0], states[first - 1])
            wholes += first < data.answers[number]
            assert (first < data.answers[number]) == (data.temperatures[number] == 0)
    assert wholes
    # In the batches of an evaluation, only answers are guessed.
    tokens = sum(int(batch.is_guessed(1).sum()) for batch in run.batches(run.training))
    assert tokens == sum(len(run.answer(place)) for place in run.training)


def test_a_run_begins_with_the_weights_of_another(
    work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "SAVE_SECONDS", 0.0)
    train_steps(tmp_path / "first", work, "eagle")
    file = tmp_path / "first" / trainer.CHECKPOINT
    first = torch.load(file, weights_only=True)
    parts, shards, levels = work.parts, open_shards(work.data), read_description(work.data).levels
    run = trainer.HeadRun(parts, shards, levels, tmp_path / "second", RECIPE, start=file)
    for name, tensor in run.head.state_dict().items():
        assert torch.equal(tensor, first["head"][name])
    assert run.progress.step == 0
    assert run.progress.earlier_steps == first["progress"]["step"]
    medusa = HeadRecipe(**{**vars(RECIPE), "kind": "medusa"})
    with pytest.raises(InputError, match="another kind or shape"):
        trainer.HeadRun(parts, shards, levels, tmp_path / "third", medusa, start=file)
    (tmp_path / "damaged.pt").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        trainer.HeadRun(parts, shards, levels, tmp_path / "fourth", RECIPE, start=tmp_path / "damaged.pt")


class KnowingHead:
    """Guesses the right token, but the one after it at the (depth, place) pairs in `wrong_at`."""

    def __init__(self, batch: Batch, wrong_at: set[tuple[int, int]]) -> None:
        self.batch, self.wrong_at = batch, wrong_at

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        del embeddings
        outputs = []
        for depth in range(1, depths + 1):
            tokens = batch.guessed(depth).clone()
            for wrong_depth, place in self.wrong_at:
                if wrong_depth == depth:
                    tokens[:, place] += 1
            outputs.append(torch.nn.functional.one_hot(tokens, 40).float())
        return outputs

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        del rows
        return outputs


def test_acceptance_is_counted_along_the_chain() -> None:
    """An answer of four tokens; a wrong first draft ends its chain, a wrong second one leaves the first accepted."""
    batch = collate([(torch.arange(2, 8), 2, torch.ones(5, 1, 4))])
    ids = torch.arange(40)
    right = measure(KnowingHead(batch, set()), [batch], torch.ones(40, 4), ids, ids, 3)
    assert right.by_depth == (1, 1, 1)
    assert right.num_tokens == 4
    partly_right = measure(KnowingHead(batch, {(1, 0), (2, 1)}), [batch], torch.ones(40, 4), ids, ids, 3)
    # Chains begin at four tokens and have room for 4, 3, 2 and 1 drafts. Three of four first drafts are right. After
    # them, two chains have room for a second draft, of which one is right; that chain has no room for a third.
    assert partly_right.by_depth == pytest.approx((3 / 4, 1 / 2, 0))
    assert partly_right.tokens_per_step == pytest.approx(1 + 3 / 4 + 3 / 8)


def test_a_shortlist_has_the_commonest_tokens_and_the_end() -> None:
    answers = [torch.tensor([4, 4, 4, 9, 9, 2]), torch.tensor([9, 4])]
    shortlist = choose_shortlist(answers, 3, 12, ends=[11])
    assert shortlist.tolist() == [4, 9, 11]
    assert coverage(answers, shortlist) == pytest.approx(7 / 8)
    assert (torch.arange(3) + offsets(shortlist)).tolist() == [4, 9, 11]


@pytest.fixture
def trained(work: HeadWork, monkeypatch: pytest.MonkeyPatch) -> HeadWork:
    """The work with a trained head; about a third of the questions is held out for its evaluation."""
    monkeypatch.setattr(trainer, "HELD_OUT_EVERY", 3)
    fresh = HeadWork(work.settings)
    fresh.target = work.target
    list(fresh.train(RECIPE))
    return fresh


def test_a_head_is_evaluated_and_exported_with_its_card(trained: HeadWork, tmp_path: Path) -> None:
    lines = list(trained.evaluate())
    assert lines[0].startswith("greedy: accepted by depth")
    trained.export(tmp_path)
    tensors, config = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    size = config["hidden_size"]
    assert tensors["fc.weight"].shape == (size, 2 * size)
    assert tensors["fc.weight"].dtype == torch.bfloat16
    ids = tensors["d2t"] + torch.arange(config["draft_vocab_size"])
    assert torch.equal(ids, trained.trained.shortlist)
    assert config["target_fingerprint"] == fingerprint(trained.target.model) == trained.target.fingerprint
    assert build_head(read_head(tmp_path), trained.target).kind == "eagle"
    stranger = Target(trained.target.model, trained.target.tokenizer, name="stranger")
    assert build_head(read_head(tmp_path), stranger).kind == "eagle"
    stranger.fingerprint = "0123456789abcdef"
    with pytest.raises(InputError, match="whose weights are not those of stranger"):
        build_head(read_head(tmp_path), stranger)
    text = (tmp_path / "README.md").read_text()
    assert config["target_fingerprint"] in text
    assert f"{trained.figures.greedy.by_depth[0]:.2f}" in text


def test_a_hydra_head_has_as_many_heads_as_depths(
    work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is evaluated at all its depths, and exported up to rounding; a run of another depth does not resume it."""
    monkeypatch.setattr(trainer, "HELD_OUT_EVERY", 3)
    hydra = HeadWork(replace(work.settings, folder=tmp_path, kind="hydra"))
    hydra.data, hydra.target = work.data, work.target
    recipe = replace(RECIPE, kind="hydra", epochs=0.5)
    list(hydra.train(recipe))
    assert len(hydra.figures.greedy.by_depth) == recipe.depths
    hydra.export(tmp_path / "head")
    head, module = build_head(read_head(tmp_path / "head"), work.target), hydra.trained.head
    assert isinstance(head, HydraHead) and head.depth == recipe.depths and isinstance(module, Hydra)
    assert head.outputs[0].ids is not None and torch.equal(head.outputs[0].ids, hydra.trained.shortlist)
    inputs = torch.randn(5, 3 * work.parts.embeddings.shape[1], generator=torch.Generator().manual_seed(0))
    # The exported weights are rounded to bfloat16.
    torch.testing.assert_close(head.blocks[1](inputs), module.block(1)(inputs), atol=0.1, rtol=0.05)
    with pytest.raises(InputError, match="another kind or shape of head; give another folder"):
        list(hydra.train(replace(recipe, depths=3)))


def test_masks_alone_are_trained_and_exported(work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's weights do not change, and the card says so."""
    monkeypatch.setattr(trainer, "HELD_OUT_EVERY", 3)
    space = HeadWork(replace(work.settings, folder=tmp_path, kind="space"))
    space.data, space.target = work.data, work.target
    before = fingerprint(work.target.model)
    list(space.train(replace(RECIPE, kind="space", epochs=0.3)))
    space.export(tmp_path / "head")
    assert fingerprint(work.target.model) == before
    assert "the target is unchanged" in (tmp_path / "head" / "README.md").read_text()
    head = build_head(read_head(tmp_path / "head"), work.target)
    assert isinstance(head, SpaceHead) and head.depth == RECIPE.depths
    trained = space.trained.head.state_dict()["mask_embeddings.weight"]
    torch.testing.assert_close(head.masks.embeddings.float(), trained, atol=1e-2, rtol=1e-2)
    start = work.parts.embeddings[torch.cat([space.trained.answer(place) for place in space.trained.training])].mean(0)
    assert not torch.allclose(trained[0], start) and not torch.allclose(trained[0], trained[1])


def test_a_target_is_trained_with_its_masks(work: HeadWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written as a model's folder: other layers, the same embeddings, and masks that its lane uses by default."""
    monkeypatch.setattr(trainer, "HELD_OUT_EVERY", 3)
    tuned = HeadWork(replace(work.settings, folder=tmp_path, kind="space-target"))
    tuned.data, tuned.target = work.data, work.target
    rows = list(tuned.train(replace(RECIPE, kind="space-target", epochs=0.5)))
    assert rows[-1]["state"] > 0
    tuned.export(tmp_path / "model")
    assert "trained together with 2 masks" in " ".join((tmp_path / "model" / "README.md").read_text().split())
    target = load_target(str(tmp_path / "model"), adapter="none")
    attach_heads(target, [], head_lanes())
    head, first = target.heads["space"], deepcopy(work.target.model).float()
    assert head.depth == RECIPE.depths and target.fingerprint != work.target.fingerprint
    assert torch.equal(target.model.get_input_embeddings().weight, first.get_input_embeddings().weight)
    layers = [model.model.layers[0].mlp.up_proj.weight for model in (target.model, first)]
    assert not torch.equal(*layers)
    *_, finished = race(target, (3, 4, 5, 6), RaceSpec(("space",), 16))
    assert isinstance(finished, Finished) and all(lane.identical for lane in finished.lanes)


def test_a_race_computes_the_logits_of_training(work: HeadWork, tmp_path: Path) -> None:
    """The session of an exported block head guesses what the trained module does, on one conversation."""
    block = HeadWork(replace(work.settings, kind="block", folder=tmp_path))
    block.target, block.data = work.target, work.data
    list(block.train(HeadRecipe(**{**vars(RECIPE), "kind": "block", "epochs": 0.1})))
    export(block.head, block.parts.config, tmp_path / "head")
    checkpoint = read_head(tmp_path / "head")
    # In float32, so that the session's numbers are those of the module.
    checkpoint.tensors |= {name: tensor.detach() for name, tensor in block.trained.head.state_dict().items()}
    target = Target(deepcopy(work.target.model).float(), work.target.tokenizer, name="float32")
    head = build_head(checkpoint, target)
    assert head.kind == "block" and head.levels == read_description(work.data).levels[1:-1]
    run = block.trained
    batch = run.batch([run.training[0]])
    trained = run.head.guesses(batch, block.parts.embeddings[batch.ids], 2)
    ids, start = batch.ids[0].tolist(), batch.width
    states = batch.states[0, : start - 1, :-1].flatten(1)
    session = head.after(ids[:1], target.prefill(ids[:1], head.levels)).session(SamplingParams(), 8)
    session.queue(states, ids[: start - 1])
    session.begin(ids[start - 1])
    for depth, path in enumerate([(), (5,)]):
        ((token, prob), *_) = session.likeliest([path], 3)[0]
        logits = run.head.logits(trained[depth][0, 0], run.rows)
        assert token == run.shortlist[logits.argmax()]
        assert prob == pytest.approx(float(logits.detach().softmax(-1).max()), rel=1e-3)


def test_a_fingerprint_tells_targets_apart_but_not_dtypes() -> None:
    model = tiny_model("llama")
    original = fingerprint(model.to(torch.bfloat16))
    assert fingerprint(model.float()) == original
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    assert fingerprint(model) != original


def run(arguments: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and the last line on standard error."""
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err.strip().splitlines()[-1]


def test_bad_input_ends_in_one_sentence(
    work: HeadWork, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--model", model_folder, "--adapter", "none", "--threads", 1]
    for command, expected in (
        (["evaluate", *common, "--work", tmp_path], "There is no trained head"),
        (["data", *common, "--work", tmp_path, "--text", tmp_path / "none.jsonl"], "cannot be read"),
        (["data", *common, "--work", tmp_path, "--avoid", tmp_path / "none.jsonl"], "cannot be read"),
    ):
        code, said = run(command, capsys)
        assert code == 2
        assert expected in said
    # Data of another target.
    other = tiny_model("llama", seed=5, vocab_size=work.target.vocab_size)
    stranger = HeadWork(work.settings)
    stranger.target = type(work.target)(other, work.target.tokenizer, name="stranger")
    with pytest.raises(InputError, match="has the answers of"):
        list(stranger.train(RECIPE))
    with pytest.raises(InputError, match="has the answers of"):
        list(stranger.make_data(None, 1, []))
    (tmp_path / "shard-0000.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read"):
        open_shards(tmp_path)
