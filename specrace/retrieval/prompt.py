"""The prompt: passages and a question through the tokenizer's own chat template, every token with its origin.

A template that knows `sentences` (the bundled model's) gets them with their evidence marks. Any other chat model gets
the passages and an instruction in the user's message, in the style that suits its size; a model without a template
gets plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.retrieval.retriever import Hit

MAX_PROMPT_CHARACTERS = 1_000_000
# Up to a blank where there is one, for words keep their tokens.
_PIECE = re.compile(r".{1,100000}(?=\s|\Z)|.{1,100000}", re.DOTALL)


# In place of evidence. A small model repeats what it is told more reliably than it notices what is missing.
NO_EVIDENCE = "The documents do not answer this question."


@dataclass(frozen=True)
class PromptStyle:
    """How a chat model is asked: the most passages unless the user chooses, and the message.

    `request` is a format string with {documents} and {question}. Below the passages the best `most_evidence` sentences
    stand again, after the line `evidence`; without such a line the passages are numbered. With `cites` passages and
    evidence are numbered, and where there is no evidence the prompt ends with that.
    """

    passages: int
    request: str
    evidence: str = ""
    cites: bool = False
    most_evidence: int = 3


DETAILED = PromptStyle(
    4,
    "{documents}\n\n"
    "Answer the question in two to four sentences, from these documents only. Keep their wording where it fits and "
    "name the document after each statement, as in [1]. If they do not answer it, say so.\n\nQuestion: {question}",
)
# Given more, told to cite or asked for several sentences, models of this size repeat themselves to the length limit.
BRIEF = PromptStyle(
    2, "Context:\n{documents}\n\nQuestion: {question}\n\nAnswer in one sentence.", "Most relevant sentences:"
)
# What the grounded adapter is trained on.
GROUNDED = PromptStyle(
    2,
    "Answer the question from the documents in one to three sentences and cite them, as in [1].\n\n"
    "{documents}\n\nQuestion: {question}",
    "Most relevant sentences:",
    cites=True,
    most_evidence=1,
)
# Hidden size; models of 1 billion parameters and more are at least so wide.
MIN_WIDTH = 1536


def choose_style(tokenizer: Any, config: Any, trained: str = "") -> PromptStyle:
    """The style that the model's adapter was `trained` on; without, BRIEF for a small chat model without a template for
    passages, and DETAILED for any other.
    """
    if trained == "grounded":
        return GROUNDED
    template = tokenizer.chat_template or ""
    brief = template and not _takes_sentences(template) and config.hidden_size < MIN_WIDTH
    return BRIEF if brief else DETAILED


def _takes_sentences(template: str) -> bool:
    return ".sentences" in template


@dataclass(frozen=True)
class Origin:
    """A place in a retrieved passage: its number (from 0) and a span of characters in its text."""

    passage: int
    start: int
    end: int


# A text in the prompt, and its place in a passage if it is a part of one.
Piece = tuple[str, Origin | None]


@dataclass(frozen=True)
class Prompt:
    """Token ids, the text they were made from, and for each token where in the passages it stands (or None)."""

    tokens: tuple[int, ...]
    text: str
    origins: tuple[Origin | None, ...]


def build_prompt(tokenizer: Any, question: str, hits: Sequence[Hit], style: PromptStyle = DETAILED) -> Prompt:
    """The prompt that asks `question` about `hits`. Raises InputError for a blank question."""
    plain = Plain(tokenizer)
    question = plain(question).strip()
    if not question:
        raise InputError("Type a question first.")
    template = tokenizer.chat_template or ""
    if _takes_sentences(template):
        pieces = list[Piece]()
        for number, hit in enumerate(hits):
            pieces.append((plain(hit.passage.title), None))
            pieces += [(plain(each.text), Origin(number, each.start, each.end)) for each in hit.sentences]
        text = _render(tokenizer, question, [_with_sentences(hit, plain) for hit in hits])
        special = False
    else:
        documents, pieces = _documents(hits, plain, style)
        request = style.request.format(documents=documents, question=question) if hits else question
        if style.cites and hits and not any(each.evidence for hit in hits for each in hit.sentences):
            # After the question: above it, a small model answers seven of nine such questions from what it knows.
            request += f"\n\n{style.evidence}\n{NO_EVIDENCE}"
        special = not template
        text = _render(tokenizer, request, None) if template else f"{request}\nAnswer:"
    tokens, offsets = _tokenize(tokenizer, text, special)
    placed = _place(text, pieces)
    return Prompt(tuple(tokens), text, tuple(_origin(placed, start, end) for start, end in offsets))


class Plain:
    """Text without the strings that the tokenizer would read as control tokens, of the same length.

    A document that contains "<|end|>" must not end the answer: such a string loses its first character to a look-alike.
    """

    def __init__(self, tokenizer: Any) -> None:
        # DeepSeek's vocabularies have letters added, such as "ü", which end nothing.
        added = {text for text in tokenizer.get_added_vocab() if not (len(text) == 1 and text.isalpha())}
        # Without their blanks: a template may put one before a text that begins with "[1]".
        added = {text.strip() for text in (*added, *tokenizer.all_special_tokens)} - {""}
        longest_first = sorted(added, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if added else None

    def __call__(self, text: str) -> str:
        # Lone surrogates are what a terminal makes of bytes that are no UTF-8.
        text = re.sub(r"[\s\x00\ud800-\udfff]", " ", text)
        while self._pattern and self._pattern.search(text):
            text = self._pattern.sub(self._disarm, text)
        return text

    @staticmethod
    def _disarm(found: re.Match[str]) -> str:
        text = found.group()
        if text.startswith("[") and text.endswith("]"):
            return text.replace("[", "(").replace("]", ")")
        return f"{' ' if text.startswith('‹') else '‹'}{text[1:]}"


def _documents(hits: Sequence[Hit], plain: Plain, style: PromptStyle) -> tuple[str, list[Piece]]:
    """The passages, and the evidence again if the style asks for it; and what stands there, in order."""
    texts, pieces = [], list[Piece]()
    numbered = style.cites or not style.evidence
    for number, hit in enumerate(hits):
        title, text = plain(hit.passage.title), plain(hit.passage.text)
        texts.append(f"[{number + 1}] {title}\n{text}" if numbered else f"{title}\n{text}")
        pieces += [(title, None), (text, Origin(number, 0, len(text)))]
    marked = [(number, each) for number, hit in enumerate(hits) for each in hit.sentences if each.evidence]
    marked = sorted(marked, key=lambda pair: pair[1].evidence)[: style.most_evidence]
    if style.evidence and marked:
        evidence = [(plain(each.text), Origin(number, each.start, each.end)) for number, each in marked]
        quoted = [f"[{place.passage + 1}] {text}\n" if style.cites else f"{text} " for text, place in evidence]
        texts.append(f"{style.evidence}\n{''.join(quoted)[:-1]}")
        pieces += evidence
    return "\n\n".join(texts), pieces


def _with_sentences(hit: Hit, plain: Plain) -> dict[str, Any]:
    sentences = [{"text": plain(each.text), "evidence": each.evidence} for each in hit.sentences]
    return {"title": plain(hit.passage.title), "sentences": sentences}


def _render(tokenizer: Any, content: str, documents: list[dict[str, Any]] | None) -> str:
    try:
        # Thinking would take all of an answer's tokens; templates without it ignore the word.
        text: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            documents=documents,
            add_generation_prompt=True,
            tokenize=False,
            enable_thinking=False,
        )
    except Exception as error:  # a template is the model's own code, and may raise anything
        reason = shorten(" ".join(str(error).split()) or type(error).__name__)
        raise InputError(f"The model's chat template fails ({reason}); choose another model.") from error
    check_prompt(text)
    return text


def check_prompt(text: str) -> None:
    """Raises InputError for a prompt that no model takes: to tokenise it could fill the memory."""
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise InputError(
            f"The prompt has {len(text):,} characters, more than {MAX_PROMPT_CHARACTERS:,}; "
            "give a shorter one, or a model whose chat template adds less."
        )


def _tokenize(tokenizer: Any, text: str, special: bool) -> tuple[list[int], list[tuple[int, int]]]:
    """Ids and the characters each stands for; a tokenizer that cannot tell gives empty spans."""
    if not tokenizer.is_fast:
        ids = tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids, [(0, 0)] * len(ids)
    encoded = tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
    return encoded["input_ids"], encoded["offset_mapping"]


def tokenize_document(tokenizer: Any, text: str) -> list[int]:
    """Ids of a document of any length, piece by piece: a tokenizer needs hundreds of bytes for each character."""
    pieces = (tokenizer(piece[0], add_special_tokens=False, verbose=False) for piece in _PIECE.finditer(text))
    return [token for piece in pieces for token in piece["input_ids"]]


def _place(text: str, pieces: Sequence[Piece]) -> list[tuple[int, Origin]]:
    """Where in the rendered prompt each piece with an origin begins; all stand there in order, titles too."""
    placed: list[tuple[int, Origin]] = []
    cursor = 0
    for piece, origin in pieces:
        found = text.find(piece, cursor) if piece else -1
        if found >= 0:
            cursor = found + len(piece)
            if origin is not None:
                placed.append((found, origin))
    return placed


def _origin(placed: list[tuple[int, Origin]], start: int, end: int) -> Origin | None:
    """The part of a passage that characters start..end of the prompt were copied from."""
    for begin, span in placed:
        first, last = max(start, begin), min(end, begin + span.end - span.start)
        if first < last:
            return Origin(span.passage, span.start + first - begin, span.start + last - begin)
    return None
