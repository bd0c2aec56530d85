"""Passages: their offsets, where documents are cut, and memory for a long document."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.retrieval.documents import Document
from specrace.retrieval.passages import count_words, split_by_tokens, split_passages, split_sentences

TEXT = st.lists(
    st.sampled_from(
        [
            "One two three.",
            "Word",
            "## Part",
            "\n",
            "\n\n",
            " ",
            "\r\n",
            "\t",
            "你好世界。",
            "x" * 90,
            "\u202e",
        ]
    )
    | st.text(max_size=20),
    max_size=40,
).map("".join)


def document(text: str) -> Document:
    return Document("a.md", "Title", text)


def passage_texts(text: str, max_words: int = 110) -> list[str]:
    """The texts of a document's passages."""
    return [passage.text for passage in split_passages(document(text), max_words=max_words)]


@given(TEXT, st.integers(1, 30))
def test_offsets_point_at_the_text_and_cover_it(text: str, max_words: int) -> None:
    passages = split_passages(document(text), max_words=max_words)
    end = 0
    for passage in passages:
        assert (passage.document, passage.title) == ("a.md", "Title")
        assert text[passage.start : passage.end] == passage.text == passage.text.strip() != ""
        assert end <= passage.start and not text[end : passage.start].strip()
        assert count_words(passage.text) <= max_words
        end = passage.end
    assert not text[end:].strip()
    assert passages == split_passages(document(text), max_words=max_words)


def test_small_paragraphs_are_merged() -> None:
    assert passage_texts("a b c\n\nd e\n\nf g h i", max_words=6) == ["a b c\n\nd e", "f g h i"]


def test_long_paragraph_is_cut_between_sentences() -> None:
    assert passage_texts("One two three. Four five six. Seven eight nine ten.", max_words=7) == [
        "One two three. Four five six.",
        "Seven eight nine ten.",
    ]


def test_very_long_sentence_is_cut_between_words() -> None:
    assert passage_texts("a b c d e f g", max_words=3) == ["a b c", "d e f", "g"]


def test_line_without_blanks_is_cut() -> None:
    passages = passage_texts("x" * 100_000)
    # A passage has up to 110 words, and 24 characters without a blank count as a word.
    assert "".join(passages) == "x" * 100_000 and max(map(len, passages)) == 110 * 24


def test_heading_stays_with_the_text_below_it() -> None:
    """A mark such as "##" counts as a word."""
    assert passage_texts("a b c d\n\n## Part\n\ne f g h", max_words=7) == ["a b c d", "## Part\n\ne f g h"]
    assert passage_texts("a\n\n## Part\n\nb c d e f g h", max_words=9) == ["a", "## Part\n\nb c d e f g h"]
    assert passage_texts("a b c d e\n\n## Part\n\nf g", max_words=20) == ["a b c d e\n\n## Part\n\nf g"]


def test_new_section_begins_a_passage_unless_the_last_one_is_short() -> None:
    """A passage is short if it has fewer than a third of `max_words`; four words are a third of twelve."""
    assert passage_texts("a b c d\n\n## Part\n\ne f", max_words=12) == ["a b c d", "## Part\n\ne f"]


def test_headings_without_text_are_merged() -> None:
    assert passage_texts("## A\n\n## B\n\n## C", max_words=4) == ["## A\n\n## B", "## C"]


def test_blank_document_has_no_passage() -> None:
    assert split_passages(document(" \n\n ")) == []


def test_max_words_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_words"):
        split_passages(document("a"), max_words=0)


def test_words_of_scripts_without_blanks_are_counted() -> None:
    assert (count_words("two words"), count_words("你好世界"), count_words("x" * 25), count_words(" ")) == (
        2,
        2,
        2,
        0,
    )


@pytest.mark.parametrize("unit", ["a ", "Ab. ", "a\n\n", "- a\n", "\n", "x"])
def test_memory_is_proportional_to_the_length_of_a_document(unit: str) -> None:
    text = (unit * 30_000)[:30_000] + "x"
    tracemalloc.start()
    try:
        passages = split_passages(document(text))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A few bytes for each character, whatever the text is cut into.
    assert peak < 10 * len(text)
    # A passage has up to 110 words of up to 24 characters and a blank.
    assert max(len(passage.text) for passage in passages) <= 110 * 25


def count_words_of(texts: Sequence[str]) -> list[int]:
    """Stands in for a tokenizer: each word counts as a token."""
    return [max(1, len(text.split())) for text in texts]


# The overlap must be smaller than a passage.
@given(TEXT, st.integers(24, 60), st.integers(0, 23))
def test_token_windows_cover_the_text_and_overlap_by_sentences(text: str, max_tokens: int, overlap: int) -> None:
    passages = split_by_tokens(document(text), count_words_of, max_tokens=max_tokens, overlap=overlap)
    sentences = {start for start, _ in split_sentences(text)}
    end = 0
    for before, passage in zip([None, *passages], passages, strict=False):
        assert text[passage.start : passage.end] == passage.text == passage.text.strip() != ""
        assert not text[end : passage.start].strip() and passage.end > end
        assert count_words_of([passage.text])[0] <= max_tokens
        if before and passage.start < before.end:
            assert len(text[passage.start : before.end].split()) <= overlap and passage.start in sentences
        end = passage.end
    assert not text[end:].strip()


def test_token_windows_overlap_by_whole_sentences() -> None:
    text = "One two. Three four. Five six seven.\n\nEight nine."
    windows = split_by_tokens(document(text), count_words_of, max_tokens=5, overlap=3)
    assert [passage.text for passage in windows] == [
        "One two. Three four.",
        "Three four. Five six seven.",
        "Five six seven.\n\nEight nine.",
    ]
    windows = split_by_tokens(document("a b c d e. F."), count_words_of, max_tokens=3)
    assert [passage.text for passage in windows] == ["a b c", "d e. F."]


def test_a_very_long_sentence_is_never_tokenized_whole() -> None:
    longest = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return count_words_of(texts)

    assert len(split_by_tokens(document("word " * 10_000), count, max_tokens=100)) == 100
    # A hundred tokens are a hundred times "word ".
    assert longest < 1000
