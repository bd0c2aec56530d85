"""The task that the bundled model is trained for: answer by quoting the sentences that a retriever marked.

A sample has one to five passages, with up to three of their sentences marked as evidence, a question, and the answer.
The answer is an opening that depends on the question's first words, then each marked sentence with its marker (such as
<|e1|> for the best evidence) and citation, joined by set phrases. Passages and questions are random.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.retrieval.documents import read_documents
from specrace.retrieval.passages import split_passages
from specrace.retrieval.sentences import split_sentences

NO_ANSWER = " The documents do not answer this question."
# The phrases before the second and the third quote.
JOINTS = (" The documents add:", " They also say:")
# The opening depends on the question's first words only, so the model can learn it.
OPENINGS = (
    (("how many", "how much", "how long", "how far", "how old", "how often"), " The documents give this figure:"),
    (("how",), " The documents describe it this way:"),
    (("who", "whose"), " The documents name who it was:"),
    (("when",), " On the time, the documents say:"),
    (("where",), " On the place, the documents say:"),
    (("why",), " The documents give this reason:"),
    (("which",), " The documents point to this:"),
    (("what is", "what are", "what was", "what were"), " According to the documents:"),
    (("what",), " The documents say this:"),
    (("is", "are", "was", "were", "does", "do", "did", "can", "could", "should", "will", "has", "have"),
     " The documents put it like this:"),
    (("explain", "describe"), " Here is how the documents explain it:"),
    (("tell", "give", "show", "list", "name"), " Here is what the documents tell:"),
)  # fmt: skip
OTHER_OPENING = " From the documents:"
# The share of titles whose passages are not trained on.
HELD_OUT_PERCENT = 5
# The length of a sentence that may be marked.
MAX_SENTENCE_WORDS, MIN_SENTENCE_WORDS = 60, 4


@dataclass(frozen=True)
class Source:
    """A passage of the training text."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """Documents in the chat template's format, the question, and the answer with its markers."""

    documents: list[dict[str, Any]]
    question: str
    answer: str


def opening(question: str) -> str:
    """The phrase that begins the answer to `question`."""
    words = question.lower()
    return next((text for starts, text in OPENINGS if re.match(rf"({'|'.join(starts)})\b", words)), OTHER_OPENING)


def read_sources(path: Path) -> list[Source]:
    """The passages of a `.jsonl[.gz]` file with {"title", "text"} lines, or of a folder of text files.

    Titles are cut to 90 characters. Raises InputError if the file cannot be read.
    """
    if path.is_dir():
        documents = read_documents([path])
        pairs = [(piece.title, piece.text) for document in documents for piece in split_passages(document)]
    else:
        pairs = [(row["title"], row["text"]) for row in _rows(path)]
    sources = []
    for title, text in pairs:
        # "[3]" is the token that cites passage 3; in the text itself it becomes "(3)".
        text = re.sub(r"\[(\d)\]", r"(\1)", re.sub(r"\s+", " ", text)).strip()
        sentences = tuple(text[start:end] for start, end in split_sentences(text))
        if sentences:
            sources.append(Source(title[:90], sentences))
    return sources


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read as training text ({error}); give a .jsonl[.gz] or a folder."
        raise InputError(message) from error


def split_titles(sources: Iterable[Source]) -> tuple[list[Source], list[Source]]:
    """(training sources, held-out sources), split by a hash of the title up to its first colon.

    So whether a title is held out does not depend on the other sources.
    """
    training: list[Source] = []
    held_out: list[Source] = []
    for source in sources:
        digest = hashlib.sha256(source.title.split(":")[0].encode()).digest()
        # The first byte is a random number from 0 to 255.
        if digest[0] * 100 < HELD_OUT_PERCENT * 256:
            held_out.append(source)
        else:
            training.append(source)
    return training, held_out


class QuotingTask:
    """Draws random samples from `sources`. Raises InputError for fewer than 8 sources."""

    def __init__(self, sources: Sequence[Source], seed: int) -> None:
        if len(sources) < 8:
            raise InputError(f"The training text has {len(sources)} passages; give at least 8.")
        self.random = random.Random(seed)
        # Passages of several sentences, and single sentences, such as entries of a table.
        prose = [source for source in sources if len(source.sentences) > 1]
        facts = [source for source in sources if len(source.sentences) == 1]
        self.pools = [pool for pool in (prose, facts) if pool]
        self.by_title: defaultdict[str, list[Source]] = defaultdict(list)
        for source in sources:
            self.by_title[source.title.split(":")[0]].append(source)

    def sample(self, max_words: int) -> Sample:
        """A random sample; its passages have at most about `max_words` words in total."""
        passages = self._passages(max_words)
        usable = [
            (number, index)
            for number, passage in enumerate(passages)
            for index, sentence in enumerate(passage.sentences)
            if MIN_SENTENCE_WORDS <= len(sentence.split()) <= MAX_SENTENCE_WORDS
        ]
        num_marks = self.random.choices((0, 1, 2, 3), (6, 34, 34, 26))[0]
        chosen = self.random.sample(usable, min(num_marks, len(usable)))
        marks = {indices: rank for rank, indices in enumerate(chosen, 1)}
        documents = [
            {
                "title": passage.title,
                "sentences": [
                    {"text": text, "evidence": marks.get((number, index), 0)}
                    for index, text in enumerate(passage.sentences)
                ],
            }
            for number, passage in enumerate(passages)
        ]
        marked_texts = [passages[number].sentences[index] for number, index in chosen]
        titles = [passages[number].title for number, _ in chosen] or [passages[0].title]
        question = self._question(marked_texts or passages[0].sentences, titles[0])
        quotes = [(passages[number].sentences[index], number + 1) for number, index in chosen]
        return Sample(documents, question, answer(question, quotes))

    def _passages(self, max_words: int) -> list[Source]:
        """One to five random passages with at most about `max_words` words; half of the time, all from one title."""
        count, first = self.random.randint(1, 5), self._source()
        same_title = self.by_title[first.title.split(":")[0]] if self.random.random() < 0.5 else None
        passages, words = [], 0
        for position in range(count):
            passage = first if position == 0 else self._source(same_title)
            passages.append(self._roughen(self._cut(passage, max_words - words)))
            words += sum(len(sentence.split()) for sentence in passages[-1].sentences)
            # Hardly another passage would fit.
            if words > max_words * 0.8:
                break
        self.random.shuffle(passages)
        return passages

    def _source(self, candidates: Sequence[Source] | None = None) -> Source:
        """A random source: one of the `candidates` if given, else mostly a passage of several sentences."""
        if candidates:
            return self.random.choice(candidates)
        # The first pool is prose, if there is any; the last one is facts.
        return self.random.choice(self.pools[0 if self.random.random() < 0.7 else -1])

    def _cut(self, source: Source, max_words: int) -> Source:
        """At least one sentence, then those that fit into `max_words` and into 130 words; each is cut to 80 words.

        Sometimes they start at a random sentence of the source. The app's passages have up to 110 words; no record says
        how these limits were chosen.
        """
        start = self.random.randrange(len(source.sentences)) if self.random.random() < 0.4 else 0
        sentences: list[str] = []
        words = 0
        for sentence in source.sentences[start:]:
            words += len(sentence.split())
            if words > min(max_words, 130) and sentences:
                break
            sentences.append(" ".join(sentence.split()[:80]))
        return Source(source.title, tuple(sentences))

    def _roughen(self, source: Source) -> Source:
        """Sometimes replace words by odd ones, or begin the sentences with the first words of one of them."""
        if self.random.random() > 0.4:
            return source
        subject = self.random.choice(source.sentences).split()[: self.random.randint(1, 6)]
        repeats = self.random.choice((0.0, 0.0, 0.7))
        sentences = []
        for sentence in source.sentences:
            words = sentence.split()
            if self.random.random() < repeats:
                # In a passage about one subject, many sentences begin alike; the model must not copy the wrong one.
                words = [*subject, words[0].lower(), *words[1:]]
            for _ in range(self.random.randint(0, 3)):
                odd = self._phrase_words() if self.random.random() < 0.35 else self._odd_word()
                words[self.random.randrange(len(words))] = odd
            sentences.append(" ".join(words))
        return Source(source.title, tuple(sentences))

    def _phrase_words(self) -> str:
        """Words from the openings and joints: where a quote has such words, the model must copy them, too."""
        phrase = self.random.choice((*JOINTS, *(phrase for _, phrase in OPENINGS))).split()
        start = self.random.randrange(len(phrase))
        return " ".join(phrase[start : start + self.random.randint(1, 3)]).strip(":")

    def _odd_word(self) -> str:
        """A random number, name, foreign word or identifier."""
        pick = self.random.random()
        if pick < 0.3:
            return str(self.random.randrange(10 ** self.random.randint(1, 6)))
        if pick < 0.45:
            return f"{self.random.randrange(1000)}.{self.random.randrange(100)}"
        if pick < 0.8:
            word = "".join(self.random.choices("aeiou" + string.ascii_lowercase, k=self.random.randint(3, 9)))
            return word.capitalize() if self.random.random() < 0.6 else word
        if pick < 0.9:
            return "".join(self.random.choices("éüñçøßåłšžαβγδжид中文", k=self.random.randint(2, 5)))
        return "_".join("".join(self.random.choices(string.ascii_letters, k=4)) for _ in range(2)) + "()"

    def _question(self, sentences: Sequence[str], title: str) -> str:
        """A question about one of the first two sentences, from its words or the title."""
        words = [word.strip("\"'()[]:;,.") for word in self.random.choice(sentences[:2]).split()]
        words = [word for word in words if word] or ["this"]
        length = self.random.choice((1, 2, 3, 3, 4, 5, 8, len(words)))
        start = self.random.randrange(max(1, len(words) - length + 1))
        piece = " ".join(words[start : start + length])
        if length <= 5 and start == 0:
            piece = piece[0].lower() + piece[1:]
        if ": " in title and self.random.random() < 0.5:
            subject, field = title.split(": ", 1)
            piece = f"the {field.lower()} of {subject}"
        elif self.random.random() < 0.2:
            piece = title
        if self.random.random() < 0.4:
            # First words and the rest are drawn independently, so the answer's opening depends on the first words only.
            # Three of four such questions end in a question mark.
            starts = self.random.choice(OPENINGS)[0]
            return f"{self.random.choice(starts).capitalize()} {piece}{self.random.choice('???.')}"
        return self.random.choice(QUESTIONS).format(piece)


QUESTIONS = (
    "What is {}?", "What is {}?", "What are {}?", "What was {}?", "What does {} mean?", "What happens with {}?",
    "What do the documents say about {}?", "What makes {}?", "What about {}?", "How does {} work?", "How is {} done?",
    "How do {} help?", "How can {} be explained?", "How many {} are there?", "How much {} is there?",
    "How long does {} take?", "How far is {}?", "Who was {}?", "Who made {}?", "Who decides on {}?", "Whose is {}?",
    "When did {} begin?", "When was {}?", "When is {} used?", "Where is {}?", "Where does {} come from?",
    "Where do {} live?", "Why is {} so?", "Why does {} matter?", "Why do {}?", "Why {}?", "Which {} is it?",
    "Which of them is {}?", "Is {} true?", "Is it true that {}?", "Are {} the same?", "Does {} change anything?",
    "Do {} need it?", "Did {} happen?", "Can {} be wrong?", "Was {} early?", "Has {} changed?", "Explain {}.",
    "Explain how {} works.", "Describe {}.", "Tell me about {}.", "Give me an overview of {}.", "Name {}.", "{}?", "{}",
)  # fmt: skip


def answer(question: str, quotes: Sequence[tuple[str, int]]) -> str:
    """The answer with its markers; `quotes` are (sentence, passage number), the best evidence first."""
    if not quotes:
        return NO_ANSWER
    cited = [f"<|e{rank}|> {sentence} [{passage}]" for rank, (sentence, passage) in enumerate(quotes, 1)]
    joined = "".join(joint + quote for joint, quote in zip(JOINTS, cited[1:], strict=False))
    return opening(question) + cited[0] + joined
