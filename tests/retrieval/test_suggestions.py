"""Questions suggested from documents."""

from __future__ import annotations

from specrace.retrieval.documents import Document
from specrace.retrieval.suggestions import MAX_CHARACTERS, suggest_questions

OWLS = Document("owls.md", "Owls", "They hear well.\n\n## How do owls fly?\n\nSilently.\n\n## Food ##\n\nMice.")
# Its title is only the name of its file, so no question asks about it.
BEES = Document("bees.txt", "bees", "Bees dance. They hum.")


def test_headings_and_first_sentences_become_questions_that_alternate_between_documents() -> None:
    assert suggest_questions([OWLS, BEES], 9) == [
        "What do the documents say about “Owls”?",
        "Explain: “Bees dance.”",
        "How do owls fly?",
        "What do the documents say about “Food”?",
    ]
    assert len(suggest_questions([OWLS, BEES], 2)) == 2
    assert suggest_questions([OWLS, OWLS], 9) == suggest_questions([OWLS], 9)
    assert suggest_questions([], 4) == []


def test_a_long_heading_is_cut_between_words() -> None:
    (question,) = suggest_questions([Document("a.md", "word " * 60, "Text.")], 4)
    assert len(question) < MAX_CHARACTERS + 50 and question.endswith("word …”?")
    (question,) = suggest_questions([Document("a.txt", "a", "x" * 5000)], 4)
    assert len(question) < MAX_CHARACTERS + 50


def test_key_sentences_follow_headings() -> None:
    tea = Document(
        "tea.md",
        "Tea",
        "# Tea\n\nIt is old. Boats bring a lot of cargo home today.\n\n"
        "Green tea leaves are brewed in hot water. Black tea leaves are brewed in boiling water.",
    )
    assert suggest_questions([tea], 9) == [
        "What do the documents say about “Tea”?",
        "Explain: “Green tea leaves are brewed in hot water.”",
        "Explain: “Black tea leaves are brewed in boiling water.”",
        "Explain: “Boats bring a lot of cargo home today.”",
    ]


def test_a_comment_in_code_is_a_sentence_without_its_mark() -> None:
    text = "LIMIT = 60\n# Partners get 600 requests a minute, everybody else 60.\n"
    questions = suggest_questions([Document("limit.py", "limit", text, code=((0, len(text)),))], 4)
    assert "Explain: “Partners get 600 requests a minute, everybody else 60.”" in questions
    assert not any("#" in question for question in questions)
