"""Recognises texts that a logger replaced or truncated.

- LiteLLM: "redacted-by-litellm" (litellm/litellm_core_utils/redact_messages.py), and in the spend log
  "litellm_truncated" (litellm/proxy/spend_tracking/spend_tracking_utils.py).
- Langfuse: "<fully masked due to failed mask function>" (langfuse/langfuse-python, langfuse/_client/span.py).
- Datadog: "[This value has been dropped because this span's size exceeds the 1MB size limit.]".
- OpenInference: "__REDACTED__" (Arize-ai/openinference, instrumentation/config.py).
- Some loggers write a hash with its name, such as "sha256:9f86d081...".
- Others write a word such as "redacted", "masked" or "filtered" in brackets; Sentry "[Filtered]", PostHog "[redacted]".
"""

from __future__ import annotations

import re

from specrace.lab.logs.formats.base import Exchange

# A mark that replaces a whole text is short. A longer text is no mark: it may be about redaction.
MAX_MARK = 100
_WORD = (
    r"(?:redact|mask|filter|remov|hidden|omitt|scrub|anonymi[sz]|censor|obfuscat|suppress|classified|private|"
    r"dropped|truncated|withheld|too (?:large|long|big))"
)
# A mark in place of a text: a hash with its name, one of the words in brackets or between stars, or only stars or x.
_IN_PLACE = re.compile(
    r"(?:sha-?\d+|md5|hmac|hash)[-_\w]*[:=][0-9a-f]{16,}|"
    rf"[\[<]+[^\n\[<]*{_WORD}[^\n]*[\]>]+|\((?:\S+ )?{_WORD}\S*\)|[*_#]+ ?{_WORD}\w* ?[*_#]+|"
    r"redacted(?:[- ]by[- ][\w.-]+)?|\*{3,}|x{6,}|█+",
    re.IGNORECASE,
)
# Marks inside a text, and at its end, that say that a part of it is missing.
_CUT = re.compile(r"litellm_truncated|\[\.\.\.\s*truncated|<truncated (?:due to|by) ", re.IGNORECASE)
_CUT_END = re.compile(
    r"(?:\[(?:\.\.\.|…)?\s*truncated[^\]\n]{0,60}\]|\((?:\.\.\.)?\s*truncated[^)\n]{0,60}\)|<truncated>|"
    r"(?:\.\.\.|…)\s*\(?\d[\d,]* (?:more )?(?:characters|chars|bytes|tokens)(?: (?:omitted|truncated|more))?\)?|"
    r"(?:\.\.\.|…)\s?\[?truncated\]?)\s*\Z",
    re.IGNORECASE,
)


def explain_redaction(exchange: Exchange, *, own_record: bool = False) -> str:
    """Why an exchange lacks the texts that the model read or wrote; "" if no mark says so.

    `own_record`: the program that asked the model wrote the log, as coding agents do. Then the model read the marks in
    the prompts, because the program truncated the texts before it sent them.
    """
    output = exchange.output
    answer = output.get("content", "") if isinstance(output, dict) else output
    if isinstance(answer, str):
        if is_mark(answer):
            return f"the answer is redacted or masked ({answer.strip()[:60]!r} is in its place)"
        if _CUT_END.search(answer) or (not own_record and _CUT.search(answer)):
            return "the answer is truncated by the logger"
    if own_record:
        return ""
    for text in _prompt_texts(exchange):
        if is_mark(text):
            return f"the prompt is redacted or masked ({text.strip()[:60]!r} is in its place)"
        if _CUT.search(text):
            return "the prompt is truncated by the logger"
    return ""


def is_mark(text: str) -> bool:
    """Whether a text is only a mark that a logger writes in place of a text."""
    stripped = text.strip()
    return len(stripped) <= MAX_MARK and _IN_PLACE.fullmatch(stripped) is not None


def _prompt_texts(exchange: Exchange) -> list[str]:
    """The texts of the prompt that people or programs wrote; a tool's result may quote any mark."""
    if isinstance(exchange.prompt, str):
        return [exchange.prompt]
    if isinstance(exchange.prompt, tuple):
        return []
    return [message["content"] for message in exchange.prompt if message["role"] != "tool"]
