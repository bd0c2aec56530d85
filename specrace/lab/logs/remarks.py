"""Counts what makes the figures of a log doubtful, request by request, and says it in sentences."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from specrace.lab.logs.files.sources import count_files
from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.formats.paths import leaves
from specrace.lab.logs.request_options import ignores_end, request_options

# Kinds of remarks beyond this number are counted together.
MAX_KINDS = 30
# A complete log may hold up to this many times fewer, or more, tokens than its usage counts, because the user's
# tokenizer may be another model's. Both numbers are guesses, and so are the two below.
FEWER, MORE = 1.5, 2.5
# By how many tokens a short text may differ, because of special tokens and the chat template.
SLACK = 16
# An answer may begin with a prompt of fewer words by chance.
MIN_REPEATED = 8
# Special tokens, such as <s>, but not <|user|>; and the end of what a chat template puts before a user's message.
_SPECIAL = re.compile(r"<(?!\|?(?:user|human)\b)[^<>\s]{1,40}>", re.IGNORECASE)
_BEFORE_USER = re.compile(r"\b(?:user|human|inst|instruction)\W*$", re.IGNORECASE)
# How many characters before the repeated prompt are matched with `_BEFORE_USER`.
_BEFORE_CHARACTERS = 40


@dataclass
class Gap:
    """Requests whose tokens do not match their usage: how many tokens the usage counts, and how many the log holds."""

    requests: int = 0
    counted: int = 0
    held: int = 0

    def add(self, counted: int, held: int) -> None:
        """Count one request."""
        self.requests += 1
        self.counted += counted
        self.held += held


@dataclass
class Remarks:
    """Counts of what makes the figures of a log doubtful. `requests`: how many were scored. `repeated`: how many
    answers were not, because they repeat earlier ones.

    `warnings`: reason -> number of requests. `left_out`: reason -> number of answers not scored. `unread`: name of a
    field whose text was not read -> number of lines. `options`: option that may change how an engine drafts -> number
    of requests. `gaps`: kind -> requests whose tokens and usage differ. `other_files`: names of files in the log's
    folder or zip that are not logs.
    """

    requests: int = 0
    repeated: int = 0
    warnings: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    options: Counter[str] = field(default_factory=Counter)
    gaps: dict[str, Gap] = field(default_factory=dict)
    other_files: list[str] = field(default_factory=list)

    def add(self, exchange: Exchange, warnings: tuple[str, ...], prompt_tokens: int, output_tokens: int) -> None:
        """Count a scored request with its warnings, and compare its tokens with its usage."""
        self.requests += 1
        past_end = (_PAST_END,) if ignores_end(exchange.parameters) else ()
        echo = (_ECHO,) if repeats_prompt(exchange) else ()
        escaped = (_ESCAPED,) if escapes_line_ends(exchange) else ()
        self.count(dict.fromkeys((*exchange.warnings, *warnings, *past_end, *echo, *escaped)))
        self.options.update(request_options(exchange.parameters))
        self._compare(exchange, prompt_tokens, output_tokens)

    def count(self, reasons: dict[str, None]) -> None:
        """Count a request under each reason; reasons after the first MAX_KINDS are counted together."""
        for reason in reasons:
            known = reason in self.warnings or len(self.warnings) < MAX_KINDS
            self.warnings[reason if known else "other remarks"] += 1

    def _compare(self, exchange: Exchange, prompt_tokens: int, output_tokens: int) -> None:
        """Note where the tokens in the log do not match the usage."""
        usage = exchange.usage
        if hides_reasoning(exchange):
            self._gap("reasoning", usage.reasoning or 0, 0)
        if usage.output is not None:
            self._check("output", usage.output, output_tokens)
        if usage.prompt is not None:
            self._check("prompt", usage.prompt, prompt_tokens)

    def _check(self, name: str, counted: int, held: int) -> None:
        """Note a gap if the counts differ by more than another tokenizer and special tokens explain."""
        if counted > FEWER * held + SLACK or held > MORE * counted + SLACK:
            self._gap(f"{name} {'missing' if counted > held else 'surplus'}", counted, held)

    def _gap(self, name: str, counted: int, held: int) -> None:
        self.gaps.setdefault(name, Gap()).add(counted, held)

    def sentences(self) -> list[str]:
        """What to say, one sentence for each kind, with its share of the requests."""
        sentences = [_GAPS[name].format(share=self._share(gap.requests), gap=gap) for name, gap in self.gaps.items()]
        sentences += [f"{self._share(count)}: {reason}." for reason, count in self.warnings.most_common()]
        sentences += [
            f"The field {name} holds text that was not read, in {count:,} lines; if the model read it, the figures are "
            "wrong: name the fields by --columns."
            for name, count in self.unread.most_common(MAX_KINDS)
        ]
        sentences += [f"Left out ({count:,} answers): {reason}." for reason, count in self.left_out.most_common()]
        if self.options:
            counts = ", ".join(f"{name} in {self._share(count)}" for name, count in self.options.most_common())
            sentences.append(f"Engines may treat these options differently when they draft: {counts}.")
        if self.repeated:
            sentences.append(f"{self.repeated:,} answers repeat earlier ones, as history or in a copy, and count once.")
        if self.other_files:
            sentences.append(f"Not read, because they are not logs or are copies: {count_files(self.other_files)}.")
        return sentences

    def _share(self, requests: int) -> str:
        percent = 100 * requests / self.requests if self.requests else 0.0
        return f"{requests:,} of {self.requests:,} requests ({percent:.0f} %)"


_PAST_END = (
    "the request ignores the end of the answer (ignore_eos), and what follows repeats itself: copying looks better"
)
_ECHO = (
    "the output repeats the whole prompt before the answer; if the model did not write that, copying looks far too "
    "good: log the new text only"
)
_ESCAPED = (
    r"the texts have the two characters \n and no line end; if the logger wrote \n in place of line ends, as "
    "tab-separated exports of databases and JSON that is quoted twice do, the figures are wrong: export JSON or CSV"
)
_GAPS = {
    "reasoning": "{share}: the usage counts {gap.counted:,} tokens of reasoning, and the reasoning is not in the log.",
    "output missing": (
        "{share}: the usage counts {gap.counted:,} output tokens, and the log holds {gap.held:,}; reasoning or other "
        "text that the model wrote is not in the log, or the tokenizer is another model's."
    ),
    "output surplus": (
        "{share}: the usage counts only {gap.counted:,} output tokens, and the log holds {gap.held:,}; part of the "
        "text is not the model's, or the tokenizer is another model's."
    ),
    "prompt missing": (
        "{share}: the usage counts {gap.counted:,} prompt tokens, and the log holds {gap.held:,}; a system prompt, "
        "tools or documents are not in the log, or the tokenizer is another model's."
    ),
    "prompt surplus": (
        "{share}: the usage counts only {gap.counted:,} prompt tokens, and the log holds {gap.held:,}; part of the "
        "prompt was not sent, or the tokenizer is another model's."
    ),
}


def repeats_prompt(exchange: Exchange) -> bool:
    """Whether an output repeats its prompt first, which is how many scripts save what they generated.

    In text, a chat template's role marks may precede the prompt, and spaces and special tokens may differ.
    """
    prompt, output = exchange.prompt, exchange.output
    if isinstance(prompt, tuple) and isinstance(output, tuple):
        # A few special tokens may stand before the repeated prompt.
        starts = range(SLACK) if len(prompt) >= SLACK else ()
        return any(output[start : start + len(prompt)] == prompt for start in starts)
    last = prompt[-1] if isinstance(prompt, list) and prompt else {}
    asked = last.get("content") if last.get("role") == "user" else prompt
    written = output.get("content") if isinstance(output, dict) else output
    if not isinstance(asked, str) or not isinstance(written, str):
        return False
    asked = _plain(asked)
    first_words = asked.split(None, MIN_REPEATED)[:MIN_REPEATED]
    if len(first_words) < MIN_REPEATED or not all(word in written for word in first_words):
        return False
    before, repeated, _ = _plain(written).partition(asked)
    if not repeated:
        return False
    return not before or _BEFORE_USER.search(before[-_BEFORE_CHARACTERS:]) is not None


def _plain(text: str) -> str:
    """A text without special tokens, with one space between words."""
    return " ".join(_SPECIAL.sub(" ", text).split())


def hides_reasoning(exchange: Exchange) -> bool:
    """Whether the usage counts reasoning that the log does not have."""
    reasoning = exchange.usage.reasoning or 0
    if reasoning < SLACK or not isinstance(exchange.output, dict):
        return False
    return not exchange.output.get("reasoning_content")


def escapes_line_ends(exchange: Exchange) -> bool:
    r"""Whether an exchange of texts has \n as two characters in its output, and no line end anywhere."""
    if isinstance(exchange.output, tuple):
        return False
    output = [text for _, text in leaves(exchange.output)]
    if not any(r"\n" in text for text in output):
        return False
    return not any("\n" in text for text in (*output, *(text for _, text in leaves(exchange.prompt))))
