"""The prompt: passages and a question in the tokenizer's chat template, and each token's origin in the passages.

The bundled model's template reads the passages as `sentences`, each with its rank as evidence for the answer, or 0. Any
other chat model gets the passages and an instruction in the user's message, in the style for its size. A model without
a template gets plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.blank import is_blank
from specrace.core.errors import InputError, shorten
from specrace.core.template_failure import describe_failure
from specrace.retrieval.retriever import Hit, Sentence

# Tokenizing takes hundreds of bytes of memory for each character.
MAX_PROMPT_CHARACTERS = 1_000_000
# Matches up to 100,000 characters, to bound memory, and ends before whitespace if possible: then no word is cut in two.
_PART = re.compile(r".{1,100000}(?=\s|\Z)|.{1,100000}", re.DOTALL)

# A rendered prompt is searched for this many words from the end of the message, because some templates leave it out.
_END_WORDS = 12

# Takes the place of evidence if there is none: a small model may not notice that the documents do not answer the
# question, but it repeats a sentence that it is given.
NO_EVIDENCE = "The documents do not answer this question."


@dataclass(frozen=True)
class PromptStyle:
    """The wording of the message to a chat model, and its default number of passages.

    `request` is a format string with {documents} and {question}. If there is an `evidence_heading`, that line and the
    best `max_evidence` sentences follow the passages; otherwise the passages are numbered. With `cites`, passages and
    sentences are both numbered, and a prompt without evidence ends with NO_EVIDENCE.
    """

    num_passages: int
    request: str
    evidence_heading: str = ""
    cites: bool = False
    max_evidence: int = 3


DETAILED = PromptStyle(
    num_passages=4,
    request="{documents}\n\n"
    "Answer the question in two to four sentences, from these documents only. Keep their wording where it fits and "
    "name the document after each statement, as in [1]. If they do not answer it, say so.\n\nQuestion: {question}",
)
# For small models: given more passages, or asked for citations or several sentences, they repeat themselves endlessly.
BRIEF = PromptStyle(
    num_passages=2,
    request="Context:\n{documents}\n\nQuestion: {question}\n\nAnswer in one sentence.",
    evidence_heading="Most relevant sentences:",
)
# The style that the adapter for grounded answers was trained on.
GROUNDED = PromptStyle(
    num_passages=2,
    request="Answer the question from the documents in one to three sentences and cite them, as in [1].\n\n"
    "{documents}\n\nQuestion: {question}",
    evidence_heading="Most relevant sentences:",
    cites=True,
    max_evidence=1,
)
# A chat model with a smaller hidden size counts as small. Models from a billion parameters on have at least this size.
MIN_HIDDEN_SIZE = 1536


def choose_style(tokenizer: Any, config: Any, adapter_style: str = "") -> PromptStyle:
    """The style for a model: GROUNDED for an adapter trained on it, BRIEF for a small chat model, else DETAILED.

    `adapter_style`: the style that the adapter names, or "". The bundled model gets DETAILED, but uses only its number
    of passages, because its chat template words the message itself.
    """
    if adapter_style == "grounded":
        return GROUNDED
    template = default_template(tokenizer)
    is_small_chat_model = template and not _reads_sentences(template) and config.hidden_size < MIN_HIDDEN_SIZE
    return BRIEF if is_small_chat_model else DETAILED


def default_template(tokenizer: Any) -> str:
    """The template that a race's prompt is rendered with: the only one, or the one called "default"; "" for none.

    Raises InputError if there are several and none is called "default".
    """
    templates = tokenizer.chat_template or ""
    if isinstance(templates, str):
        return templates
    if not templates.get("default"):
        names = shorten(", ".join(sorted(templates)))
        raise InputError(f"The model's chat templates ({names}) are for other uses than a chat; choose another model.")
    default: str = templates["default"]
    return default


def _reads_sentences(template: str) -> bool:
    """Whether a chat template reads the sentences of its documents."""
    return ".sentences" in template


@dataclass(frozen=True)
class Origin:
    """A span of characters in a retrieved passage; `passage` counts from 0."""

    passage: int
    start: int
    end: int


# A text that the prompt contains, and its origin if it was copied from a passage.
Excerpt = tuple[str, Origin | None]


@dataclass(frozen=True)
class Prompt:
    """Token ids, the text they encode, and each token's origin in a passage, or None.

    `message`: the user's message with the passages in it, for a server that words the rest with its own template.
    """

    tokens: tuple[int, ...]
    text: str
    origins: tuple[Origin | None, ...]
    message: str


def build_prompt(
    tokenizer: Any, question: str, hits: Sequence[Hit], style: PromptStyle = DETAILED, *, thinks: bool = False
) -> Prompt:
    """Build the prompt that asks `question` about `hits`; with `thinks`, the model is to think before it answers.

    Raises InputError for a blank question, a chat template that fails, that leaves out the question, or that has no
    switch for thinking if one is needed, and a prompt that is too long.
    """
    plain = PlainText(tokenizer)
    question = plain(question).strip()
    if is_blank(question):
        raise InputError("Type a question first.")
    template = default_template(tokenizer)
    documents, quoted = _documents(hits, plain, style)
    message = style.request.format(documents=documents, question=question) if hits else question
    if style.cites and hits and not any(sentence.evidence for hit in hits for sentence in hit.sentences):
        # NO_EVIDENCE follows the question: if it came first, a small model would still answer seven of nine questions
        # that the documents do not answer.
        message += f"\n\n{style.evidence_heading}\n{NO_EVIDENCE}"
    if _reads_sentences(template):
        excerpts = list[Excerpt]()
        for number, hit in enumerate(hits):
            excerpts.append((plain(hit.passage.title), None))
            excerpts += [_excerpt(number, sentence, plain) for sentence in hit.sentences]
        text = _render(tokenizer, question, [_with_sentences(hit, plain) for hit in hits], thinks=thinks)
        # The template contains the special tokens.
        add_special_tokens = False
    else:
        excerpts = quoted
        add_special_tokens = not template
        text = _render(tokenizer, message, None, thinks=thinks)
    tokens, offsets = _tokenize(tokenizer, text, add_special_tokens)
    located = _locate(text, excerpts)
    return Prompt(tuple(tokens), text, tuple(_origin(located, start, end) for start, end in offsets), message)


class PlainText:
    """Changes strings that the tokenizer would read as control tokens. The text keeps its length.

    A document that contains "<|end|>" must not end the answer, so the first character of such a string is replaced. In
    a citation such as "[1]", both brackets are replaced. Whitespace, NUL and lone surrogates become spaces.
    """

    def __init__(self, tokenizer: Any) -> None:
        # DeepSeek adds tokens for letters such as "ü", which are not control tokens.
        added = {text for text in tokenizer.get_added_vocab() if not (len(text) == 1 and text.isalpha())}
        # Strip the tokens: a template may put a space before the text, and then "[1]" would become the token " [1]".
        added = {text.strip() for text in (*added, *tokenizer.all_special_tokens)} - {""}
        longest_first = sorted(added, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if added else None

    def __call__(self, text: str) -> str:
        # Python reads bytes of a terminal that are not UTF-8 as lone surrogates.
        text = re.sub(r"[\s\x00\ud800-\udfff]", " ", text)
        while self._pattern and self._pattern.search(text):
            text = self._pattern.sub(self._disarm, text)
        return text

    @staticmethod
    def _disarm(match: re.Match[str]) -> str:
        """A string of the same length that is not a control token: "‹|end|>" for "<|end|>"."""
        text = match.group()
        if text.startswith("[") and text.endswith("]"):
            return text.replace("[", "(").replace("]", ")")
        return f"{' ' if text.startswith('‹') else '‹'}{text[1:]}"


def _documents(hits: Sequence[Hit], plain: PlainText, style: PromptStyle) -> tuple[str, list[Excerpt]]:
    """The text of the passages, with the evidence below them if the style repeats it, and its excerpts in order."""
    texts, excerpts = [], list[Excerpt]()
    numbered = style.cites or not style.evidence_heading
    for number, hit in enumerate(hits):
        title, text = plain(hit.passage.title), plain(hit.passage.text)
        texts.append(f"[{number + 1}] {title}\n{text}" if numbered else f"{title}\n{text}")
        excerpts += [(title, None), (text, Origin(number, 0, len(text)))]
    marked = [(number, sentence) for number, hit in enumerate(hits) for sentence in hit.sentences if sentence.evidence]
    marked = sorted(marked, key=lambda pair: pair[1].evidence)[: style.max_evidence]
    if style.evidence_heading and marked:
        evidence = [_excerpt(number, sentence, plain) for number, sentence in marked]
        quotes = [
            f"[{number + 1}] {text}\n" if style.cites else f"{text} "
            for (number, _), (text, _) in zip(marked, evidence, strict=True)
        ]
        # The last character is the separator after the last quote.
        texts.append(f"{style.evidence_heading}\n{''.join(quotes)[:-1]}")
        excerpts += evidence
    return "\n\n".join(texts), excerpts


def _excerpt(passage: int, sentence: Sentence, plain: PlainText) -> Excerpt:
    """A sentence of passage number `passage`, and its origin."""
    return plain(sentence.text), Origin(passage, sentence.start, sentence.end)


def _with_sentences(hit: Hit, plain: PlainText) -> dict[str, Any]:
    """A passage in the form that the bundled model's chat template reads."""
    sentences = [{"text": plain(sentence.text), "evidence": sentence.evidence} for sentence in hit.sentences]
    return {"title": plain(hit.passage.title), "sentences": sentences}


def _render(tokenizer: Any, content: str, documents: list[dict[str, Any]] | None, *, thinks: bool) -> str:
    """The rendered prompt, or plain text for a tokenizer without a template. Raises InputError (see `build_prompt`).

    The template of a model that also reads images may take the content only as a list of parts. Given a string, most
    such templates leave it out without an error.
    """
    template = default_template(tokenizer)

    def render(content: str | list[dict[str, str]], thinks: bool) -> str:
        if not template:
            return f"{content}\nAnswer:"
        text: str = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            documents=documents,
            add_generation_prompt=True,
            tokenize=False,
            **thinking_arguments(template, thinks=thinks),
        )
        return text

    failure: Exception | None = None
    for variant in (content, [{"type": "text", "text": content}]):
        try:
            text = render(variant, thinks)
            has_no_switch = thinks and text == render(variant, thinks=False)
        except Exception as error:  # a template is code that comes with the model, and may raise anything
            failure = failure or error
            continue
        check_prompt(text)
        if not _shows_end(text, content):
            continue
        if has_no_switch:
            raise InputError("The model's chat template has no switch for thinking; set thinking to off.")
        return text
    if failure is None:
        raise InputError("The model's chat template leaves out the question; choose another model.")
    reason = describe_failure(template, failure)
    raise InputError(f"The model's chat template fails ({reason}); choose another model.") from failure


def _shows_end(text: str, content: str) -> bool:
    """Whether a rendered text has at least half of a message's last words; a template may trim or escape the others."""
    words = content.split()[-_END_WORDS:]
    return 2 * sum(word in text for word in words) >= len(words)


def thinking_arguments(template: str, *, thinks: bool) -> dict[str, Any]:
    """The arguments that switch a model's thinking on or off in its chat template, which ignores unknown arguments.

    Thinking is off by default, because it would use up an answer's tokens.
    """
    # The first is for Qwen, GLM, SmolLM and Gemma 4, the second for DeepSeek, Granite and Kimi.
    arguments: dict[str, Any] = {"enable_thinking": thinks, "thinking": thinks}
    if "thinking_budget" in template and not thinks:
        # Seed-OSS thinks without a limit by default.
        arguments["thinking_budget"] = 0
    if "reasoning_effort" in template:
        # Mistral's templates know "none" and "high". gpt-oss always thinks, a little at "low".
        off, on = ("none", "high") if re.search(r"""['"]none['"]""", template) else ("low", "medium")
        arguments["reasoning_effort"] = on if thinks else off
    return arguments


def check_prompt(text: str) -> None:
    """Raise InputError for a prompt that is too long for any model: tokenizing it could fill the memory."""
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise InputError(
            f"The prompt has {len(text):,} characters, more than {MAX_PROMPT_CHARACTERS:,}; "
            "give a shorter one, or a model whose chat template adds less."
        )


def _tokenize(tokenizer: Any, text: str, add_special_tokens: bool) -> tuple[list[int], list[tuple[int, int]]]:
    """The token ids, and each token's span of characters; empty spans from a slow tokenizer, which reports none."""
    if not tokenizer.is_fast:
        ids = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
        return ids, [(0, 0)] * len(ids)
    encoded = tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True)
    return encoded["input_ids"], encoded["offset_mapping"]


def tokenize_document(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a document of any length.

    It is cut into parts, because a tokenizer needs hundreds of bytes of memory for each character.
    """
    parts = (tokenizer(part[0], add_special_tokens=False, verbose=False) for part in _PART.finditer(text))
    return [token for part in parts for token in part["input_ids"]]


def _locate(text: str, excerpts: Sequence[Excerpt]) -> list[tuple[int, Origin]]:
    """The offset in the rendered prompt of each excerpt with an origin; the prompt has all excerpts in this order."""
    located: list[tuple[int, Origin]] = []
    cursor = 0
    for excerpt, origin in excerpts:
        offset = text.find(excerpt, cursor) if excerpt else -1
        if offset >= 0:
            cursor = offset + len(excerpt)
            if origin is not None:
                located.append((offset, origin))
    return located


def _origin(located: list[tuple[int, Origin]], start: int, end: int) -> Origin | None:
    """The part of a passage that the prompt's characters [start, end) were copied from."""
    for offset, origin in located:
        first, last = max(start, offset), min(end, offset + origin.end - origin.start)
        if first < last:
            return Origin(origin.passage, origin.start + first - offset, origin.start + last - offset)
    return None
