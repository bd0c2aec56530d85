"""The retriever: the passages it finds, the evidence it marks, and its cache.

A sentence is evidence if its score is at least `evidence_ratio` times the best one (with 0.0, whatever that is) and at
least MIN_EVIDENCE_SCORE.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specrace.core.errors import InputError
from specrace.retrieval import retriever as module
from specrace.retrieval.documents import Document
from specrace.retrieval.index import open_index
from specrace.retrieval.retriever import Hit, Retriever, Sentence
from specrace.retrieval.sentences import split_sentences

if TYPE_CHECKING:
    from tests.retrieval.conftest import RecordingEmbedder


def retriever(documents: list[Document], embedder: RecordingEmbedder, folder: Path) -> Retriever:
    """A retriever over these documents; `folder` holds its cache."""
    return Retriever(open_index(documents, embedder, folder), embedder)


def evidence(hits: list[Hit]) -> list[Sentence]:
    """Return the sentences marked as evidence, by rank."""
    marked = [sentence for hit in hits for sentence in hit.sentences if sentence.evidence]
    return sorted(marked, key=lambda sentence: sentence.evidence)


def about_tea(*paragraphs: str) -> Document:
    return Document("tea.md", "Tea", "\n\n".join(paragraphs))


@pytest.mark.parametrize(
    ("question", "name", "fact"),
    [
        ("When was the lighthouse first lit?", "lighthouse.md", "1874"),
        ("How many steps does the lighthouse have?", "lighthouse.md", "217"),
        ("Why does sourdough rise?", "sourdough.md", "wild yeast"),
        ("What is a violin bow made of?", "violin.txt", "horse hair"),
    ],
)
def test_right_document_and_sentence_rank_first(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, question: str, name: str, fact: str
) -> None:
    hits = retriever(documents, recorder, tmp_path).retrieve(question)
    assert hits[0].passage.document == name
    assert fact in evidence(hits)[0].text


def test_sentences_are_those_of_the_passage_in_order(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    hits = retriever(documents, recorder, tmp_path).retrieve("When was the lighthouse first lit?")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert [(sentence.start, sentence.end) for sentence in hit.sentences] == list(split_sentences(hit.passage.text))
        assert all(hit.passage.text[sentence.start : sentence.end] == sentence.text for sentence in hit.sentences)


@pytest.mark.parametrize(("max_evidence", "ratio"), [(0, 0.6), (1, 0.6), (2, 0.0), (3, 0.6), (3, 0.95), (9, 0.0)])
def test_evidence_is_limited_by_number_ratio_and_score(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, max_evidence: int, ratio: float
) -> None:
    question = "When was the lighthouse first lit?"
    hits = retriever(documents, recorder, tmp_path).retrieve(question, max_evidence=max_evidence, evidence_ratio=ratio)
    marked = evidence(hits)
    assert [sentence.evidence for sentence in marked] == list(range(1, len(marked) + 1))
    assert len(marked) <= max_evidence and bool(marked) == bool(max_evidence)
    scores = [sentence.score for sentence in marked]
    assert scores == sorted(scores, reverse=True)
    assert all(score >= max(ratio * scores[0], module.MIN_EVIDENCE_SCORE) for score in scores)


def test_very_short_or_long_sentences_are_evidence_only_as_a_fallback_and_headings_never(
    recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    tea = about_tea(
        "## How hot is water for green tea",
        # Four words are just enough.
        "Green tea: 80 degrees.",
        "Water for green tea is hot: " + "so many degrees that it is hard to say exactly " * 7 + "hot.",
        "It is brewed with water at eighty degrees, and never hotter.",
    )
    question = "How hot is the water for green tea?"
    marked = evidence(retriever([tea], recorder, tmp_path).retrieve(question, evidence_ratio=0.0))
    assert [sentence.text for sentence in marked] == [
        "Green tea: 80 degrees.",
        "It is brewed with water at eighty degrees, and never hotter.",
    ]
    shorter_document = about_tea("Tea water: 80 degrees.", "## How hot is water for green tea")
    (only,) = evidence(retriever([shorter_document], recorder, tmp_path).retrieve(question))
    assert only.text == "Tea water: 80 degrees."


def test_a_comment_in_code_is_evidence(recorder: RecordingEmbedder, tmp_path: Path) -> None:
    comment = "# Ferries leave the harbour at six o'clock in the morning."
    text = f"import harbour\n\n{comment}\nleave(6)"
    code = Document("harbour.py", "harbour", text, code=((0, len(text)),))
    hits = retriever([code], recorder, tmp_path).retrieve("When do ferries leave the harbour?")
    assert [sentence.text.partition("\n")[0] for sentence in evidence(hits)] == [comment]


@pytest.mark.parametrize("text", ["茶は八十度のお湯でいれる。", "ชาเขียวชงด้วยน้ำแปดสิบองศา"])
def test_content_words_of_scripts_without_blanks_are_character_pairs(text: str) -> None:
    words = module.content_words(text)
    assert len(words) > 5 and {len(word) for word in words} == {2}
    # Five characters make four pairs.
    assert words == module.content_words(f"“{text}”") and len(words & module.content_words(f"Tea {text[:5]} tea")) == 4


def test_vowel_signs_do_not_split_words() -> None:
    assert module.content_words("पानी") == {"पानी"} and module.content_words("cafe\u0301") == {"cafe\u0301"}


def test_near_duplicates_are_marked_once(recorder: RecordingEmbedder, tmp_path: Path) -> None:
    tea = about_tea(
        "Black tea is brewed in boiling water for about four minutes.",
        "Black tea is brewed in boiling water for about four whole minutes.",
        "Long brewing makes tea bitter.",
    )
    marked = evidence(retriever([tea], recorder, tmp_path).retrieve("How is black tea brewed?", evidence_ratio=0.0))
    assert len(marked) == 2 and "bitter" in marked[1].text


@pytest.mark.parametrize(
    "question", ["How do I reset my router password?", "?", "asdf qwer zxcv", "\u202e?", "x" * 50_000]
)
def test_an_unanswerable_question_has_no_evidence(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, question: str
) -> None:
    hits = retriever(documents, recorder, tmp_path).retrieve(question)
    assert hits and evidence(hits) == []


def test_passages_with_the_same_text_are_returned_once(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    copies = [Document(f"copy {number}.md", f"Copy {number}", documents[2].text) for number in range(9)]
    hits = retriever([*copies, *documents], recorder, tmp_path).retrieve("How is a violin tuned?", top=3)
    assert len(hits) == len({hit.passage.text for hit in hits}) == 3


def test_top_larger_than_the_index_returns_every_passage(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    opened = retriever(documents, recorder, tmp_path)
    assert len(opened.retrieve("violin", top=2)) == 2
    assert {hit.passage.document for hit in opened.retrieve("violin", top=99)} == {
        document.name for document in documents
    }


def test_a_repeated_question_embeds_only_the_question(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    opened = retriever(documents, recorder, tmp_path)
    first = opened.retrieve("How is a violin tuned?")
    recorder.embedded.clear()
    assert opened.retrieve("How is a violin tuned?") == first
    assert recorder.embedded == ["How is a violin tuned?"]


def test_the_cache_of_sentence_vectors_is_bounded(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED_PASSAGES", 1)
    opened = retriever(documents, recorder, tmp_path)
    opened.retrieve("How is a violin tuned?", top=1)
    opened.retrieve("Why does sourdough rise?", top=1)
    recorder.embedded.clear()
    opened.retrieve("Why does sourdough rise?", top=1)
    assert len(recorder.embedded) == 1
    opened.retrieve("How is a violin tuned?", top=1)
    assert len(recorder.embedded) > 2


@pytest.mark.parametrize("question", ["", " \n\t", "\u202e"])
def test_blank_question_is_refused(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, question: str
) -> None:
    with pytest.raises(InputError, match="blank"):
        retriever(documents, recorder, tmp_path).retrieve(question)


def test_top_below_one_is_refused(documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="top"):
        retriever(documents, recorder, tmp_path).retrieve("violin", top=0)
