"""Groundedness: how much of an answer's wording comes from its passages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specrace.retrieval.retriever import content_words
from specrace.retrieval.sentences import split_sentences

# Set by hand: one content word in five may be the model's own.
GROUNDED = 0.8

# "[1]" or "[1, 2]", which must not count as a word or, after a full stop, as a sentence.
_CITATION = re.compile(r"\s*\[\d{1,2}(?:\s*[,;]\s*\d{1,2})*\]")


def groundedness(answer: str, question: str, passages: Sequence[str]) -> float:
    """The lowest share, over the answer's sentences, of content words that occur in the passages; 0 without sentences.

    `content_words` finds the content words (roughly stemmed, without stop words); those of the question are left out.
    The share of a sentence without content words is 1. Citations are ignored. An answer that reaches GROUNDED is called
    grounded.
    """
    answer = _CITATION.sub("", answer)
    passage_words, question_words = content_words(" ".join(passages)), content_words(question)
    sentences = [content_words(answer[start:end]) - question_words for start, end in split_sentences(answer)]
    shares = [len(words & passage_words) / len(words) if words else 1.0 for words in sentences]
    return min(shares, default=0.0)
