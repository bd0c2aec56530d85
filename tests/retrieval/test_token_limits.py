"""Passages are bounded by the tokens of the embedder and of the target; text without blanks is read whole.

The fixture `bundled` is a workbench: the bundled model, documents and their retriever, ready to race.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrace.core.bundled import CORPUS
from specrace.core.errors import InputError
from specrace.core.events import Started
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.embedder import Embedder, SentenceEmbedder
from specrace.retrieval.index import open_index
from specrace.retrieval.passages import embedded_text, fit_passages, split_passages
from specrace.retrieval.readers.reading import Mark
from specrace.retrieval.token_limits import TokenLimit
from specrace.workbench import Workbench

# Texts without blanks; the tests repeat them.
TEXTS = {
    "Thai": "เรือเฟอร์รี่ออกเดินทางทุกเช้าเวลาหกโมงจากท่าเรือเก่าไปยังเกาะ",
    "Khmer": "សាឡាងចេញដំណើរនៅម៉ោងប្រាំមួយព្រឹក",
    "Lao": "ເຮືອຂ້າມຟາກອອກທຸກເຊົ້າ",
    "Burmese": "ကူးတို့သင်္ဘောသည်မနက်ခြောက်နာရီထွက်သည်",
    "Tibetan": "སྐད་ཡིག་",
    "Japanese": "フェリーは毎朝六時に港を出ます。",
    "Chinese": "渡轮每天早上六点离开港口",
    "hexadecimal": "0f3a9c7b21",
}


@pytest.mark.parametrize("script", TEXTS)
def test_the_embedder_and_the_target_read_every_passage_whole(bundled: Workbench, tmp_path: Path, script: str) -> None:
    text, embedder = TEXTS[script] * (1200 // len(TEXTS[script])), bundled.embedder
    assert isinstance(embedder, SentenceEmbedder)
    document = Document("a.md", "Ferries", text)
    passages = open_index([document], embedder, tmp_path, bundled.token_limits).passages
    assert "".join(passage.text for passage in passages) == text
    texts = [embedded_text(passage) for passage in passages]
    assert max(embedder.count_weighted_tokens(texts)) <= embedder.max_text_tokens
    tokens = [len(ids) for ids in bundled.target.tokenizer(texts)["input_ids"]]
    # An answer of 128 tokens must fit as well.
    assert max(tokens) + 128 <= bundled.target.max_context
    # The passages are not needlessly short, either.
    assert sum(embedder.count_weighted_tokens(texts)) / len(texts) > embedder.max_text_tokens / 3


def test_the_passages_of_the_bundled_documents_fit_as_they_are(bundled: Workbench) -> None:
    for document in read_documents([CORPUS]):
        passages = split_passages(document)
        assert fit_passages(passages, bundled.token_limits) == passages


def test_an_unknown_word_counts_by_its_characters(embedder: Embedder) -> None:
    assert isinstance(embedder, SentenceEmbedder)
    assert embedder.count_weighted_tokens(["two ferries", TEXTS["Thai"] * 3]) == [2, 3 * len(TEXTS["Thai"])]
    assert embedder.count_tokens([TEXTS["Thai"] * 3]) == [1]


@pytest.mark.parametrize("script", ["Thai", "Khmer", "Lao", "Burmese"])
def test_no_passage_begins_with_a_vowel_sign(script: str) -> None:
    for passage in split_passages(Document("a.md", "A", TEXTS[script] * 50), max_words=7):
        assert passage.text[0] not in "ิีึืุูัํ็่้๊๋ាិីុូួំោះ់័្ິີຶືຸູັົ່້ິုူေဲံ့း္်ျြွှ"


def count_characters(texts: list[str]) -> list[int]:
    """Stands in for a tokenizer: each character counts as a token."""
    return [len(text) for text in texts]


@given(st.text("ab. \n#", max_size=300), st.integers(4, 80))
def test_a_cut_passage_keeps_its_offsets_and_all_its_text(text: str, max_tokens: int) -> None:
    document = Document("a.md", "T", text)
    passages = split_passages(document, max_words=40)
    limits = [TokenLimit(count_characters, max_tokens)]  # type: ignore[arg-type]
    fitted = fit_passages(passages, limits)
    assert fitted == split_passages(document, max_words=40, limits=limits)
    assert all(text[passage.start : passage.end] == passage.text == passage.text.strip() != "" for passage in fitted)
    assert all(len(embedded_text(passage)) <= max_tokens for passage in fitted)
    joined = "".join("".join(passage.text.split()) for passage in fitted)
    assert joined == "".join(text.split())


def test_a_passage_is_cut_between_paragraphs_else_sentences_else_words() -> None:
    def pieces(text: str, max_tokens: int) -> list[str]:
        document = Document("a.md", "", text)
        # The embedded text begins with the title, which is empty here, and a line break.
        limit = TokenLimit(count_characters, max_tokens + 1)  # type: ignore[arg-type]
        return [passage.text for passage in split_passages(document, limits=[limit])]

    assert pieces("One. Two.\n\nSix. Ten.", 12) == ["One. Two.", "Six. Ten."]
    assert pieces("One two. Six ten and on.", 16) == ["One two.", "Six ten and on."]
    assert pieces("one two six", 8) in (["one two", "six"], ["one", "two six"])


def test_the_halves_of_a_passage_have_their_own_addresses() -> None:
    document = Document("a.txt", "", "One two.\n\nSix ten.", (Mark(0, "line", 1),), code=((10, 13),))
    limit = TokenLimit(count_characters, 10)  # type: ignore[arg-type]
    first, second = split_passages(document, limits=[limit])
    assert (first.place, second.place) == ("line 1", "line 3") and (first.code, second.code) == ((), ((0, 3),))


def with_context(bundled: Workbench, max_context: int) -> Workbench:
    """The bundled workbench, with a target whose context has this size."""
    small = replace(bundled, target=copy(bundled.target), curve=None)
    small.target.max_context = max_context
    return small


def test_a_passage_that_does_not_fit_alone_is_cut_and_its_place_says_so(bundled: Workbench) -> None:
    question, spec = "What is the n-gram trie built from?", RaceSpec(("trie",), max_new_tokens=8)
    hit = bundled.retrieve(question, 1)[0]
    tokens = len(bundled.make_prompt(RaceRequest(question, spec, 1))[0].tokens)
    # A context that is too small for the prompt with the whole passage.
    small = with_context(bundled, tokens - 20)
    events = list(small.ask(RaceRequest(question, spec, 1)))
    started = events[0]
    assert isinstance(started, Started) and started.prompt_tokens < tokens
    (passage,) = started.about["passages"]
    assert passage["text"] in hit.passage.text and 0 < len(passage["text"]) < len(hit.passage.text)
    total = f"{len(hit.passage.text):,}"
    assert passage["place"].endswith(
        f"cut: {len(passage['text']):,} of {total} characters fit into the model's context"
    )
    best = next(sentence.text for sentence in hit.sentences if sentence.evidence == 1)
    assert best in passage["text"], "the best evidence must be kept"
    for sentence in passage["sentences"]:
        assert passage["text"][sentence["start"] : sentence["end"]] == sentence["text"]
    for _, start, end in filter(None, started.about["origins"]):
        assert 0 <= start < end <= len(passage["text"])


def test_a_question_that_leaves_no_room_is_refused(bundled: Workbench) -> None:
    small = with_context(bundled, 20)
    with pytest.raises(InputError, match="use fewer passages"):
        list(small.ask(RaceRequest("What is the n-gram trie built from?", RaceSpec(("trie",), max_new_tokens=8), 1)))
