"""Rerankers, and noise: irrelevant passages mixed with the relevant ones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

from specrace.core.errors import InputError
from specrace.retrieval.embedder import Vectors, _package_folder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import Passage, embedded_text, split_passages
from specrace.retrieval.rerank import CANDIDATES, load_reranker
from specrace.retrieval.retriever import Retriever
from tests.retrieval.words import WordEmbedder, generate_documents

# It knows the words w0 to w1999, of which its documents consist.
EMBEDDER = WordEmbedder()
QUESTION = "w1 w2 w3"


@pytest.fixture(scope="module")
def index() -> PassageIndex:
    """An index of 300 passages, ten documents of 30; a generated passage has 20 words."""
    split = partial(split_passages, max_words=20)
    passages = [passage for document in generate_documents(10, 30) for passage in split(document)]
    return PassageIndex(passages, EMBEDDER.embed([embedded_text(passage) for passage in passages]))


class LengthReranker:
    """Ranks the longest passage first."""

    def __init__(self) -> None:
        self.passages_read: list[Passage] = []

    def __call__(self, question: str, passages: Sequence[Passage]) -> Vectors:
        assert question == QUESTION
        self.passages_read = list(passages)
        return np.array([len(passage.text) for passage in passages], np.float32)


def test_a_reranker_chooses_from_the_best_hundred(index: PassageIndex) -> None:
    reranker = LengthReranker()
    hits = Retriever(index, EMBEDDER, reranker).retrieve(QUESTION, top=5)
    vector = EMBEDDER.embed([QUESTION])[0]
    best = [index.passages[number] for number, _ in index.search(vector, CANDIDATES)]
    assert reranker.passages_read == best
    assert [hit.passage for hit in hits] == sorted(best, key=lambda passage: -len(passage.text))[:5]
    cosines = EMBEDDER.embed([embedded_text(hit.passage) for hit in hits]) @ vector
    assert np.allclose([hit.score for hit in hits], cosines, atol=1e-5)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three small BERTs of random weights (`scorer`, `classifier`, `encoder`) and their tokenizer."""
    folder, package = tmp_path_factory.mktemp("bert"), _package_folder()
    assert package is not None
    tokenizer = AutoTokenizer.from_pretrained(package)
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        # Large weights, so that different texts get different scores.
        "initializer_range": 1.0,
    }
    config = BertConfig(vocab_size=len(tokenizer), num_labels=1, **small)
    three_labels = BertConfig(vocab_size=len(tokenizer), num_labels=3, **small)
    models = {
        "scorer": BertForSequenceClassification(config),
        "classifier": BertForSequenceClassification(three_labels),
        "encoder": BertModel(config),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_a_cross_encoder_reads_question_and_passage(bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reranker = load_reranker(str(bert / "scorer"))
    assert reranker is not None
    passages = [Passage("a.md", "Tea", 0, len(text), text) for text in ("Tea is hot.", "Boats sail.", "\ud800")]
    scores = reranker("Is tea hot?", passages)
    assert scores.shape == (3,) and len(set(scores.tolist())) == 3
    assert (scores != reranker("Do boats sail?", passages)).all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["classifier", "encoder"])
def test_a_model_without_a_single_score_is_refused(bert: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not a reranker"):
        load_reranker(str(bert / name))


def test_a_missing_reranker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("bge-reranker-v2-m3", str(tmp_path), os.fspath(tmp_path / "none")):
        with pytest.raises(InputError, match=r"The reranker .* cannot be loaded"):
            load_reranker(name)
    assert load_reranker("none") is load_reranker() is None


@pytest.mark.parametrize(("top", "noise"), [(4, 2), (5, 4), (12, 3)])
def test_noise_is_dissimilar_reproducible_and_shuffled_in(index: PassageIndex, top: int, noise: int) -> None:
    retriever = Retriever(index, EMBEDDER)
    clean = [hit.passage for hit in retriever.retrieve(QUESTION, top=top)]
    median = float(np.median(index.vectors_of(range(len(index.passages))) @ EMBEDDER.embed([QUESTION])[0]))
    orders = set()
    for seed in range(8):
        hits = retriever.retrieve(QUESTION, top=top, noise=noise, seed=seed)
        assert hits == retriever.retrieve(QUESTION, top=top, noise=noise, seed=seed)
        relevant = [hit for hit in hits if hit.passage in clean[: top - noise]]
        noisy = [hit for hit in hits if hit not in relevant]
        assert (len(relevant), len(noisy)) == (top - noise, noise) and len({hit.passage for hit in hits}) == top
        # Noise is hardly more similar to the question than the median passage is.
        assert max(hit.score for hit in noisy) < median + 0.1 < min(hit.score for hit in relevant)
        orders.add(tuple(hit in relevant for hit in hits))
    assert len(orders) > 1


def test_noise_is_limited_to_the_passages_in_the_index() -> None:
    passages = [Passage("a.md", "A", 0, 2, text) for text in ("w1", "w2")]
    retriever = Retriever(PassageIndex(passages, EMBEDDER.embed(["w1", "w2"])), EMBEDDER)
    assert {hit.passage.text for hit in retriever.retrieve("w1", top=4, noise=3)} == {"w1", "w2"}
    single = Retriever(PassageIndex(passages[:1], EMBEDDER.embed(["w1"])), EMBEDDER)
    assert [hit.passage.text for hit in single.retrieve("w1", top=4, noise=3)] == ["w1"]
    duplicated = [Passage("b.md", "B", 0, 3, "w1 "), *passages, Passage("c.md", "C", 0, 3, " w2")]
    with_duplicates = Retriever(
        PassageIndex(duplicated, EMBEDDER.embed([passage.text for passage in duplicated])), EMBEDDER
    )
    for seed in range(4):
        texts = sorted(hit.passage.text.strip() for hit in with_duplicates.retrieve("w1", top=3, noise=2, seed=seed))
        assert texts == ["w1", "w2"], "no text must be returned twice"
