"""A workbench: its memory and the garbage collector, models that are replaced, prompts that fit, its tables.

`Workbench(target, documents, retriever, embedder)`: tests that retrieve nothing give None for the last two.
"""

from __future__ import annotations

import gc
import weakref
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from specrace import workbench as workbench_module
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.weights.source import ModelChoice, choose_model
from specrace.ngrams.suffix_index import END
from specrace.retrieval.documents import Document
from specrace.views.recording_check import check_race
from specrace.workbench import Workbench
from tests.models import tiny_target


def test_documents_beyond_the_models_vocabulary_are_refused() -> None:
    target = tiny_target("llama")
    target.tokenizer = lambda text, **_: {"input_ids": [target.vocab_size] if "rare" in text else [1]}
    workbench = Workbench(target, [Document("a", "a", "plain"), Document("b", "b", "rare")], None, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The documents have token"):
        _ = workbench.tables.counts


def test_a_loaded_model_is_frozen_for_the_collector_until_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is frozen is stood in for by references to the loaded models, which the collector cannot free either.

    To freeze and collect everything that this process holds would take seconds.
    """
    loaded: list[weakref.ref[Target]] = []
    frozen: list[Target | None] = []

    def load(*_: Any, **__: Any) -> Target:
        target = tiny_target("llama")
        loaded.append(weakref.ref(target))
        return target

    monkeypatch.setattr(workbench_module, "load_choice", load)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.extend(reference() for reference in loaded))
    monkeypatch.setattr(gc, "unfreeze", frozen.clear)
    workbench = Workbench(tiny_target("llama"), [], None, None)  # type: ignore[arg-type]
    workbench = workbench.with_model("second")
    # In a reference cycle, as between a model's parts and its hooks, only the collector can free the model.
    workbench.target.model.cycle = workbench.target
    assert frozen == [workbench.target]
    workbench = workbench.with_model("third")
    # A model is collected when the next but one is loaded: until `with_model` returns, the old workbench holds it.
    workbench = workbench.with_model("fourth")
    assert loaded[0]() is None and frozen[-1] is workbench.target


def test_a_replaced_model_is_freed_before_the_next_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be too small for two models. This holds even if the next model cannot be loaded."""
    monkeypatch.setattr(workbench_module, "load_choice", lambda *_, **__: tiny_target("llama"))
    first_workbench = Workbench(tiny_target("llama"), [], None, None)  # type: ignore[arg-type]
    second_workbench = first_workbench.with_model("second")
    second = weakref.ref(second_workbench.target)
    second_workbench.target.model.cycle = second_workbench.target
    del second_workbench
    targets_at_load: list[object] = []

    def load(*_: Any, **__: Any) -> Target:
        targets_at_load.append(second())
        raise InputError("This machine has too little memory.")

    monkeypatch.setattr(workbench_module, "load_choice", load)
    with pytest.raises(InputError):
        first_workbench.with_model("third")
    assert targets_at_load == [None]


def test_another_model_gets_the_dtype_but_neither_draft_model_nor_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[Any] = []

    def load(choice: ModelChoice, **_: Any) -> Target:
        draft = None if choice.draft is None else choice.draft.name
        loaded.append((choice.source.name, choice.dtype, draft, choice.adapter))
        return tiny_target("llama")

    monkeypatch.setattr(workbench_module, "load_choice", load)
    for loader in ("read_documents", "load_embedder", "load_reranker", "open_index"):
        monkeypatch.setattr(workbench_module, loader, lambda *_, **__: None)
    workbench = Workbench.open(choose_model("own/model", dtype="bfloat16", draft_model="draft", adapter="low-rank"))
    workbench.with_model("other")
    workbench.with_model("other", "float32")
    # Another name of the same folder.
    workbench.with_model("./own/model", "float32")
    assert loaded == [
        ("own/model", "bfloat16", "draft", "low-rank"),
        ("other", "bfloat16", None, "auto"),
        ("other", "float32", None, "auto"),
        ("./own/model", "float32", "draft", "low-rank"),
    ]


def test_a_workbench_is_freed_with_its_last_reference() -> None:
    """Freeing it needs no garbage collection, which skips frozen objects such as a visitor's documents."""
    workbench = Workbench(tiny_target("llama"), [Document("a", "a", "plain")], None, None)  # type: ignore[arg-type]
    reference = weakref.ref(workbench)
    del workbench
    assert reference() is None


def test_without_passages_the_prompt_has_only_the_question(bundled: Workbench) -> None:
    """The recording of such a race is valid, too."""
    spec = RaceSpec(("trie",), max_new_tokens=8)
    events = list(bundled.ask(RaceRequest("What is a trie?", spec, passages=0)))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.about["passages"] == [] and finished.lanes[1].identical
    with_passages = bundled.make_prompt(RaceRequest("What is a trie?", spec))[0]
    assert started.prompt_tokens < len(with_passages.tokens) / 4
    assert check_race(events)[-1] == finished


def test_a_race_with_thinking_names_the_marks_of_the_thoughts(
    bundled: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, spec = "What is a trie?", RaceSpec(("trie",), max_new_tokens=8)
    switched = "{{ messages[0].content }}{% if enable_thinking %}<think>\n{% endif %}"
    monkeypatch.setattr(bundled.target.tokenizer, "chat_template", switched)
    about = {value: bundled.prepare(RaceRequest(question, spec, 1, thinking=value)).about for value in ("off", "on")}
    # The template opens the thoughts in the prompt, so the answer has only the mark at their end.
    assert (about["on"]["thinking"], about["on"]["thoughts"]) == ("on", ("", "</think>"))
    assert "thinking" not in about["off"] and about["off"]["thoughts"] == ("<think>", "</think>")


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_passages_are_dropped_to_fit_unless_their_number_is_given(bundled: Workbench, noise: float) -> None:
    question, spec = "What is a trie?", RaceSpec(("trie",), max_new_tokens=8)
    four_passages = RaceRequest(question, spec, passages=4, noise=noise)
    num_tokens = len(bundled.make_prompt(four_passages)[0].tokens)
    small_context = replace(bundled, target=copy(bundled.target), curve=None)
    small_context.target.max_context = num_tokens - 1
    prompt, hits = small_context.make_prompt(RaceRequest(question, spec, noise=noise))
    assert 1 <= len(hits) < 4 and len(prompt.tokens) + 8 < num_tokens
    nearest = {hit.passage for hit in bundled.retrieve(question, 4)}
    # The share `noise` of the passages is replaced by other ones, but one passage is always kept.
    assert sum(hit.passage not in nearest for hit in hits) == min(len(hits) - 1, round(noise * len(hits)))
    with pytest.raises(InputError, match="use fewer passages"):
        list(small_context.ask(four_passages))


@pytest.mark.parametrize(
    ("lane", "options", "part"),
    [
        ("trie", {}, None), ("bigram", {}, "corpus"), ("trigram", {}, "corpus"), ("rest", {}, "corpus_index"),
        ("fusion", {}, None), ("fusion", {"corpus": True}, "corpus"),
        ("llamacpp-cache", {}, None), ("llamacpp-cache", {"lookup_cache_static": True}, "corpus"),
        ("sglang-ngram", {}, None), ("sglang-ngram", {"external_sam_budget": 8}, "corpus_index"),
    ],
)  # fmt: skip
def test_a_lane_gets_the_documents_that_its_options_require(
    bundled: Workbench, lane: str, options: dict[str, Any], part: str | None
) -> None:
    sources = bundled.sources(RaceSpec((lane,), options={lane: options}))
    parts = [name for name in ("corpus", "corpus_index") if getattr(sources, name) is not None]
    assert parts == ([] if part is None else [part])


def test_a_workbench_indexes_its_documents_once() -> None:
    target = load_target()
    texts = ("The sky is blue.", "Why is the sky blue?")
    workbench = Workbench(target, [Document("a", "", text) for text in texts], None, None)  # type: ignore[arg-type]
    index = workbench.tables.suffixes
    assert workbench.tables.suffixes is index
    ids = [target.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert index.text.tolist() == [*ids[0], END, *ids[1], END]
    # What follows the first token in the documents, with its count.
    assert workbench.tables.counts.row((ids[0][0],)) == {ids[0][1]: 1}
