"""Groundedness: whether an answer keeps to the words of its passages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specrace.retrieval.retriever import content_words
from specrace.retrieval.sentences import split_sentences

GROUNDED = 0.8

# "[1]" or "[1, 2]": no word of the answer, and behind a full stop no sentence of its own.
_CITATION = re.compile(r"\s*\[\d{1,2}(?:\s*[,;]\s*\d{1,2})*\]")


def groundedness(answer: str, question: str, passages: Sequence[str]) -> float:
    """The smallest share, over the answer's sentences, of content words that the passages have; 0 for a blank answer.

    Content words are those of `content_words`: roughly stemmed, without stop words. The question's own do not count.
    A sentence with no others has 1. Citations are left out. An answer with at least GROUNDED is called grounded.
    """
    answer = _CITATION.sub("", answer)
    known, asked = content_words(" ".join(passages)), content_words(question)
    sentences = [content_words(answer[start:end]) - asked for start, end in split_sentences(answer)]
    shares = [len(words & known) / len(words) if words else 1.0 for words in sentences]
    return min(shares, default=0.0)
