"""The training of the bundled model, from text files to a model folder that loads, for a few short steps."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from specrace.model.loading import load_target
from specrace.tiny import evaluate
from specrace.tiny import train as training
from specrace.tiny.__main__ import main
from specrace.tiny.circuit import circuit_parameters
from specrace.tiny.quoting import NO_ANSWER, QuotingTask, Source, answer, opening, read_sources, split_titles
from specrace.tiny.train import load_checkpoint
from specrace.tiny.vocabulary import CITATIONS, SEGMENT_MARKERS, prompt_ids

CORPUS = Path(__file__).resolve().parents[2] / "corpus"


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_sources(CORPUS)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a tokenizer learned from the documents that ship."""
    folder = tmp_path_factory.mktemp("tiny")
    assert main(["prepare", "--text", str(CORPUS), "--work", str(folder)]) == 0
    return folder


def test_an_answer_quotes_the_marked_sentences_in_order(sources: list[Source]) -> None:
    task = QuotingTask(sources, seed=3)
    numbers_marked = set()
    for _ in range(200):
        sample = task.sample(200)
        marked = {
            sentence["evidence"]: (sentence["text"], number)
            for number, document in enumerate(sample.documents, 1)
            for sentence in document["sentences"]
            if sentence["evidence"]
        }
        assert sample.answer == answer(sample.question, [marked[rank] for rank in sorted(marked)])
        assert sorted(marked) == list(range(1, len(marked) + 1))
        numbers_marked.add(len(marked))
    assert numbers_marked == {0, 1, 2, 3}


def test_the_opening_depends_on_the_questions_first_words() -> None:
    assert opening("How many bees?") != opening("How do bees dance?")
    assert opening("However it is") == opening("Bees")
    assert answer("Why?", []) == NO_ANSWER


def test_text_survives_the_tokenizer_and_markers_are_single_tokens(work: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(work)
    text = "Zürich – naïve 中文 🙂 <b>[1]</b> 3.14 [2] end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    for token in (*SEGMENT_MARKERS, *CITATIONS):
        assert len(tokenizer(token, add_special_tokens=False)["input_ids"]) == 1
    documents = [{"title": "T", "sentences": [{"text": "One.", "evidence": 1}, {"text": "Two.", "evidence": 0}]}]
    prompt = tokenizer.decode(prompt_ids(tokenizer, documents, "Why?"))
    assert prompt == "<|ctx|> [1] T:<|e1|> One. [1]<|x|> Two.<|q|> Why?<|a|>"


def test_held_out_titles_do_not_depend_on_the_order_of_the_sources(sources: list[Source]) -> None:
    training_sources, held_out = split_titles(sources)
    assert held_out
    assert not {source.title for source in training_sources} & {source.title for source in held_out}
    assert split_titles(sources[::-1])[1] == held_out[::-1]


def test_copied_tokens_have_loss_weight_1_and_other_tokens_more(work: Path, sources: list[Source]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(work)
    task = QuotingTask(sources, seed=3)
    samples = (task.sample(200) for _ in range(50))
    sample = next(sample for sample in samples if "<|e2|>" in sample.answer)
    ids, weights = training.encode(sample, tokenizer)
    reply = ids[-len(weights) :]
    copied = tokenizer.decode([token for token, weight in zip(reply, weights, strict=True) if weight == 1.0])
    quotes = re.findall(r"<\|e\d\|>(.*?) \[\d\](?= The documents add:| They also say:|$)", sample.answer, re.DOTALL)
    assert copied == "".join(quotes)
    assert weights[0] == weights[-1] == training.DECISION_WEIGHT


def check_that_only_the_circuit_is_unchanged(work: Path, recipe: training.Recipe) -> None:
    """Compare the checkpoint with the model before training."""
    before = training.new_model(AutoTokenizer.from_pretrained(work), recipe)
    after = load_checkpoint(work)
    circuits = zip(circuit_parameters(before), circuit_parameters(after), strict=True)
    assert all(torch.equal(old, new) for old, new in circuits)
    assert not all(torch.equal(old, new) for old, new in zip(before.parameters(), after.parameters(), strict=True))


def test_a_model_is_trained_resumed_evaluated_exported_and_loaded(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = training.Recipe(tokens_per_batch=300, hidden=320, layers=2, mlp=64, stages=((0.0, 40),))
    monkeypatch.setitem(training.PRESETS, "cpu", small)
    # Each reading of the clock is half a second later than the last, so a step takes half a second on any machine.
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=count(0.0, 0.5).__next__))
    arguments = ["train", "--text", str(CORPUS), "--work", str(work), "--threads", "1"]
    # The limits are 1.5 s and 3 s, so three steps are run each time.
    for minutes in ("0.025", "0.05"):
        assert main([*arguments, "--minutes", minutes]) == 0
    log = [json.loads(line) for line in (work / "losses.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [3, 6] and log[1]["tokens"] > log[0]["tokens"]
    check_that_only_the_circuit_is_unchanged(work, small)
    # A model after six steps does not end its answers.
    monkeypatch.setattr(evaluate, "MAX_NEW_TOKENS", 12)
    monkeypatch.setattr(evaluate, "LANE_ANSWERS", 1)
    assert main(["evaluate", "--text", str(CORPUS), "--work", str(work), "--samples", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["marked"]["answers"] == figures["asked"]["answers"] == 1
    out = work / "out"
    assert main(["export", "--work", str(work), "--out", str(out)]) == 0
    target = load_target(out)
    # AutoTokenizer may choose the tokenizer class of the model type, which splits text differently.
    text = "In 2018, 16-bit words:\n\n  naïve 3.14 <b>"
    tokenizer = AutoTokenizer.from_pretrained(work)
    assert target.tokenizer(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert 0 <= target.vocab_size - len(target.tokenizer) < 64
    assert target.eos_ids == {target.tokenizer.convert_tokens_to_ids("<|end|>")}


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_missing_text_file_is_refused_in_one_sentence(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--text", str(tmp_path / "none.jsonl"), "--work", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
