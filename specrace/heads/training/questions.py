"""Prompts to train a head on: questions that the target makes up itself, and requests about passages.

The target is given the beginning of a user's turn and writes the rest (Xu et al. 2024, "Magpie", arXiv 2406.08464).
Half of the requests about passages are worded as the app words a question about documents; the others have one passage.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from specrace.core.bundled import OPEN_QUESTIONS, QUESTIONS
from specrace.core.errors import InputError, shorten
from specrace.heads.training.generation import generate
from specrace.retrieval.passages import Passage
from specrace.retrieval.prompt import PromptStyle, build_prompt
from specrace.retrieval.retriever import Hit, Sentence
from specrace.retrieval.sentences import split_sentences

# How a user's turn may begin; the empty beginning lets the target choose freely. Repeated ones are drawn more often.
OPENINGS = (
    *("", "", "", "What", "What", "Why", "How", "How", "Write", "Write a short", "Tell me", "Explain", "Describe"),
    *("Give me", "Can you", "List", "Imagine", "Name", "Should", "I", "Is it", "Help me", "Who", "When", "Where"),
)
# Requests about one passage, and questions worded as in the app, whose prompt has the passages.
REQUESTS = (
    "Explain this in plain words:\n\n{passage}",
    "Summarise this passage in two or three sentences:\n\n{passage}",
    "{passage}\n\nWhat is the most important point here?",
    "{passage}\n\nWhat does this say about {title}?",
    "Write a short introduction to {title} from these notes:\n\n{passage}",
    "{passage}\n\nWrite three questions about this text.",
    "Here is a text about {title}:\n\n{passage}\n\nRewrite it for a child.",
)
ABOUT_DOCUMENTS = ("What is said about {title}?", "What do the documents say about {title}?", "Tell me about {title}.")
# Limits, not tuned: a question that is not finished after so many tokens is dropped, and so is one of fewer words; a
# longer passage is cut.
MAX_QUESTION_TOKENS = 40
MIN_QUESTION_WORDS = 3
MAX_PASSAGE_WORDS = 90
# Stands for the question where only the prompt's text before it is wanted.
_PLACEHOLDER = "THE QUESTION"
# How many words in a row two questions must share to count as overlapping.
NGRAM = 8


class Overlap:
    """Recognises texts that share eight words in a row with one of the questions, or contain a whole shorter one."""

    def __init__(self, questions: Iterable[str]) -> None:
        self.ngrams: set[tuple[str, ...]] = set()
        for question in questions:
            words = _words(question)
            size = min(NGRAM, len(words))
            self.ngrams |= {tuple(words[i : i + size]) for i in range(len(words) - size + 1) if size}
        self.sizes = {len(ngram) for ngram in self.ngrams}

    def __contains__(self, text: object) -> bool:
        words = _words(str(text))
        return any(tuple(words[i : i + size]) in self.ngrams for size in self.sizes for i in range(len(words)))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def read_questions(files: Sequence[Path]) -> list[str]:
    """The questions of files: `question` in each line of a .jsonl file, else each line. Raises InputError."""
    questions = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
            questions += [json.loads(line)["question"] if file.suffix == ".jsonl" else line for line in lines if line]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"The questions {shorten(file)} cannot be read ({shorten(error)}); give a .jsonl whose lines have "
                "`question`, or a text with a question a line."
            ) from error
    return questions


def bench_questions() -> list[str]:
    """The questions that the benchmark asks; no head may have seen them."""
    return read_questions([QUESTIONS, OPEN_QUESTIONS])


def make_up(model: Any, tokenizer: Any, count: int, seed: int) -> list[str]:
    """Up to `count` different questions that the target makes up at temperature 1; unfinished ones are dropped."""
    generator = torch.Generator().manual_seed(seed)
    chosen = random.Random(seed).choices(OPENINGS, k=count)
    # The prompt's text up to the question, which the target then writes itself.
    beginning, _, _ = build_prompt(tokenizer, _PLACEHOLDER, ()).text.partition(_PLACEHOLDER)
    prompts = [tokenizer(beginning + opening, add_special_tokens=False)["input_ids"] for opening in chosen]
    rows = generate(
        model,
        prompts,
        [1.0] * count,
        max_new_tokens=MAX_QUESTION_TOKENS,
        ends=[tokenizer.eos_token_id],
        generator=generator,
    )
    finished = [
        opening + tokenizer.decode(row.ids[row.start : -1])
        for opening, row in zip(chosen, rows, strict=True)
        if int(row.ids[-1]) == tokenizer.eos_token_id
    ]
    questions = dict.fromkeys(question.strip() for question in finished)
    return [question for question in questions if len(_words(question)) >= MIN_QUESTION_WORDS]


def open_prompt(tokenizer: Any, question: str) -> tuple[int, ...]:
    """The tokens of a question without documents, as the app asks it."""
    return build_prompt(tokenizer, question, ()).tokens


def passage_prompts(
    tokenizer: Any, passages: Sequence[tuple[str, str]], style: PromptStyle, count: int, seed: int
) -> list[tuple[str, tuple[int, ...]]]:
    """`count` pairs of a request about random passages (title, text) and the tokens of its prompt."""
    draw = random.Random(seed)
    requests = []
    for number in range(count):
        title, text = draw.choice(passages)
        short = " ".join(text.split()[:MAX_PASSAGE_WORDS])
        if number % 2:
            request = draw.choice(REQUESTS).format(title=title, passage=short)
            requests.append((request, open_prompt(tokenizer, request)))
        else:
            other_title, other_text = draw.choice(passages)
            other_short = " ".join(other_text.split()[:MAX_PASSAGE_WORDS])
            question = draw.choice(ABOUT_DOCUMENTS).format(title=title)
            hits = [_hit(title, short, draw), _hit(other_title, other_short, None)]
            requests.append((question, build_prompt(tokenizer, question, hits, style).tokens))
    return requests


def _hit(title: str, text: str, draw: random.Random | None) -> Hit:
    """A passage as the retriever returns it; with `draw`, one random sentence is marked as evidence.

    Scores are 0, because a prompt does not show them; a sentence's last field is 1 if it is marked.
    """
    spans = list(split_sentences(text))
    marked = draw.randrange(len(spans)) if draw and spans else -1
    sentences = tuple(
        Sentence(start, end, text[start:end], 0.0, int(number == marked)) for number, (start, end) in enumerate(spans)
    )
    return Hit(Passage("", title, 0, len(text), text), 0.0, sentences)
