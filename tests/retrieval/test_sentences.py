"""Sentences: where prose, in several languages, and markdown are split."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.retrieval.sentences import is_heading, split_paragraphs, split_sentences
from tests.growth import MAX_LINEAR_GROWTH, growth

PROSE = st.lists(
    st.sampled_from(
        [".", "!", "?", "...", "Dr.", "e.g.", "U.S.", "3.5", "The", "word", "“", '"', ")", "1.", "- ", "# "]
    )
    | st.sampled_from(
        [
            " ",
            "\n",
            "\n\n",
            "\r\n",
            "\t",
            "\u2028",
            "\u00a0",
            "。",
            "？",
            "مرحبا؟",
            "\u202e",
            "🙂",
            "|",
            "```",
        ]
    )
    | st.text(max_size=8)
).map("".join)


@given(PROSE)
def test_spans_are_ordered_stripped_and_cover_all_text(text: str) -> None:
    spans = list(split_sentences(text))
    assert all(start < end for start, end in spans)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)
    covered = "".join(text[start:end] for start, end in spans)
    assert "".join(covered.split()) == "".join(text.split())


@given(PROSE)
def test_no_sentence_crosses_a_paragraph(text: str) -> None:
    paragraphs = list(split_paragraphs(text))
    for start, end in split_sentences(text):
        assert any(first <= start and end <= last for first, last in paragraphs)


@pytest.mark.parametrize(
    "sentences",
    [
        ["One ends here.", "Two ends there!", "Does three?", "Yes"],
        ["Dr. Ada Byrne met Prof. Lund and Mrs. Ito.", "They talked."],
        ["J. K. Marsh and R. L. Odum wrote it.", "It sold well."],
        ["Rossi et al. (2020) showed it.", "So did Lund et al.", "The others did not."],
        ["Use a cache, e.g. a small one, i.e. Redis or similar.", "Then wait."],
        ["See Fig. 3 and Eq. (4) on pp. 12 of vol. 2.", "Done."],
        ["The answer was no.", "Six people agreed.", "Room no. 6 was empty."],
        ["It rose by 3.5 to 7.25 at 10.30 a.m. on Monday.", "It fell later."],
        ["The U.S. Navy left the U.S.", "The ship stayed."],
        ["Acme Inc. bought Beta Ltd. in May.", "Nobody noticed."],
        ["Really?!", "No way...", "Wait… what is it?", "Fine!!!"],
        ['"Is it done?" she asked.', '"It is."', "He left."],
        ["He said “stop.”", "She stopped.", "(It was late.)", "All slept."],
        ["It was shown before.[1]", "It was shown again.[2][13]", "Good."],
        ["It is **bold.**", "_Leaning_ text follows."],
        ["version 2.0 of file.py is at example.com today.", "Read it."],
        ["Am 31. März 2020 schloss er am 1. April und am 3. August.", "Der Rest blieb."],
        ["Im 19. Jahrhundert und im 2. Weltkrieg war es so.", "Heute nicht."],
        ["Der Vertrag endet zum 1. Oktober.", "Danach gilt der neue vom 24. Dezember."],
        ["Das gilt z. B. für Nr. 5 der Liste.", "Vgl. Abb. 3 auf S. 12 des 2. Bandes.", "Hr. Ott kam am 1. Januar."],
        ["I am 31.", "Bob is 30.", "The total was 12.", "March came.", "We sold 19.", "August was slow."],
        ["They die at 31.", "The king had 12.", "Rome fell."],
        ["你好。", "世界！", "再见"],
        ["هل هذا صحيح؟", "نعم"],
        ["यह पहला है।", "यह दूसरा है।"],
    ],
)
def test_prose_is_split_into_sentences(sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert [text[start:end] for start, end in split_sentences(text)] == sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A wrapped\nline goes on. Next", ["A wrapped\nline goes on.", "Next"]),
        ("A wrapped\r\nline. Next", ["A wrapped\r\nline.", "Next"]),
        ("No stop\n\nNew paragraph", ["No stop", "New paragraph"]),
        ("No stop\n \t\nNew paragraph", ["No stop", "New paragraph"]),
        ("# A heading\nBody text", ["# A heading", "Body text"]),
        ("Items:\n- one\n* two\n  + three\n4. four", ["Items:", "- one", "* two", "+ three", "4. four"]),
        ("1. Knead. Wait\n2. Bake", ["1. Knead.", "Wait", "2. Bake"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |", "|---|---|", "| 1 | 2 |"]),
        ("", []),
        (" \n\t\n", []),
        ("...", ["..."]),
    ],
)
def test_markdown_is_split_into_sentences(text: str, sentences: list[str]) -> None:
    assert [text[start:end] for start, end in split_sentences(text)] == sentences


@pytest.mark.parametrize("text", [".", "X. ", '."', "(. ", " ", "A\n"])
def test_hostile_text_takes_linear_time(text: str) -> None:
    """Each text is repeated to about 2,000 and about 200,000 characters, with an "a" at the end."""
    assert growth(lambda times: list(split_sentences(text * times + "a")), 2000 // len(text)) < MAX_LINEAR_GROWTH


def test_markdown_headings_are_recognised() -> None:
    assert is_heading("## Part two") and not is_heading("#tag") and not is_heading("Part # two")
