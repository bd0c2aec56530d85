"""What a workbench does to the process that it lives in."""

from __future__ import annotations

import gc
import weakref

import pytest

from specrace import workbench
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.engine.spec import RaceSpec
from specrace.retrieval.documents import Document
from specrace.views.audit import check
from specrace.workbench import Workbench
from tests.parts import tiny_target


def test_documents_beyond_the_models_vocabulary_are_refused() -> None:
    target = tiny_target("llama")
    target.tokenizer = lambda text, **_: {"input_ids": [target.vocab_size] if "rare" in text else [1]}
    bench = workbench.Workbench(target, [Document("a", "a", "plain"), Document("b", "b", "rare")], None, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The documents have token"):
        _ = bench.tables.counts


def test_the_collector_passes_over_what_is_loaded_until_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "load_target", lambda *_, **__: tiny_target("llama"))
    bench = workbench.Workbench(tiny_target("llama"), [], None, None)  # type: ignore[arg-type]
    bench = bench.with_model("second")
    second = weakref.ref(bench.target)
    # In a circle, as a model's parts and its hooks often are: only the collector can let go of it.
    bench.target.model.circle = bench.target
    assert gc.get_freeze_count() > 10_000
    bench = bench.with_model("third")
    bench = bench.with_model("fourth")
    assert second() is None


def test_without_passages_the_question_stands_alone(bundled: Workbench) -> None:
    """Also in the recording, which opens as any other."""
    spec = RaceSpec(("trie",), max_new_tokens=8)
    events = list(bundled.ask("What is a trie?", spec, top=0))
    started, finished = events[0], events[-1]
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.about["passages"] == [] and finished.lanes[1].identical
    with_passages = bundled.fitting_prompt("What is a trie?", bundled.retrieve("What is a trie?"), spec)[0]
    assert started.prompt_tokens < len(with_passages.tokens) / 4
    assert check(events)[-1] == finished
