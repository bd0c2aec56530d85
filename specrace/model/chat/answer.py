"""What a model wrote after a rendered prompt: its reasoning, text and tool calls, in the form of its template."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from specrace.model.chat.losses import LostError, leaves, shows, shows_calls, squeeze
from specrace.model.chat.template import Rendering

NO_REASONING_SHOWN = "the template does not show reasoning; it is scored before the answer"
NO_REASONING_LOGGED = "the template opens a block of reasoning, and the log has none; the answer follows at once"
TEXT_DROPPED = "the template drops the text beside the answer's tool call; it is scored before the call"
NO_CALL_SHOWN = "the chat template does not show the answer's tool call; give a tokenizer with tools"


class Marks(NamedTuple):
    """The marks that begin and end a model's reasoning, with the white space that models write beside them.

    `after`: what the model writes between the end mark and its answer. `answer`: the mark before the answer, for models
    whose reasoning is a message of its own, or several; everything before that mark is reasoning.
    """

    begin: str
    end: str
    after: str = ""
    answer: str = ""

    def are_opened(self, prompt: str) -> bool:
        """Whether a prompt ends with the mark that opens a block of reasoning."""
        return bool(self.begin) and prompt.rstrip().endswith(self.begin.strip())

    def are_closed(self, prompt: str) -> bool:
        """Whether a prompt ends with a finished block of reasoning."""
        return bool(self.end) and prompt.rstrip().endswith(self.end.strip())

    def are_all_of(self, text: str) -> bool:
        """Whether a text consists of these marks and white space only."""
        for mark in (self.begin.strip(), self.end.strip()):
            text = text.replace(mark, "") if mark else text
        return not text.strip()

    def split(self, text: str) -> tuple[str, str]:
        """Split an answer's text into the reasoning at its beginning ("" if there is none) and the rest."""
        if not self.end or self.end.strip() not in text:
            return "", text
        reasoning, _, rest = text.partition(self.end.strip())
        return reasoning.strip().removeprefix(self.begin.strip()), rest

    def insert(self, prompt: str, turn: str, reasoning: str) -> str:
        """The model's turn with `reasoning` at its beginning, instead of an empty block of reasoning if it has one."""
        begin = "" if self.are_opened(prompt) else self.begin
        answer = self.without_empty(turn)
        return f"{begin}{reasoning.strip()}{self.end}{answer if answer != turn else self.after + turn}"

    def without_repeated(self, prompt: str, turn: str) -> str:
        """The turn without the mark at its beginning, if the prompt already ends with that mark."""
        for ends, mark in ((self.are_opened(prompt), self.begin.strip()), (self.are_closed(prompt), self.end.strip())):
            if ends and turn.lstrip().startswith(mark):
                return turn.lstrip().removeprefix(mark)
        return turn

    def without_empty(self, turn: str) -> str:
        """The turn without an empty block of reasoning at its beginning, or without an end mark alone there."""
        if not self.end:
            return turn
        empty = re.match(rf"\s*({re.escape(self.begin.strip())})?\s*{re.escape(self.end.strip())}", turn)
        return turn[empty.end() :] if empty else turn


# The marks of published templates. The rarer ones come first: a template that uses them may also print <think> in an
# example.
_MARKS = (
    Marks("<seed:think>", "</seed:think>", "\n"),  # ByteDance Seed-OSS
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),  # Cohere Command R7B, A
    Marks("[THINK]", "[/THINK]"),  # Mistral Magistral, Ministral
    # OpenAI gpt-oss
    Marks("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", "<|channel|>final<|message|>"),
    Marks("<|channel>thought\n", "\n<channel|>"),  # Google Gemma 4
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Marks("<thinking>", "</thinking>", "\n"),
    Marks("<thought>", "</thought>", "\n"),
    Marks("<think>\n", "\n</think>", "\n\n"),  # DeepSeek R1, Qwen, GLM, MiniMax and most others
)
_NO_MARKS = Marks("", "", "\n\n")


def find_marks(source: str, is_token: Callable[[str], bool]) -> Marks:
    """The marks that a template's source contains, or else those whose begin mark is one token of the vocabulary.

    If no marks fit, empty marks are returned, with which an answer starts two line breaks after its reasoning.
    """
    for marks in _MARKS:
        # An end mark alone identifies a template, except gpt-oss's, which ends messages of every kind.
        if marks.begin.strip() in source or (marks.end.strip() in source and not marks.after.strip()):
            return marks
    return next((marks for marks in _MARKS if is_token(marks.begin.strip())), _NO_MARKS)


@dataclass(frozen=True)
class Turn:
    """The text that the model wrote after the prompt.

    `continues`: True if the template formatted the text, so that it continues the prompt directly; False if the text
    is plain.
    """

    text: str
    continues: bool
    warnings: tuple[str, ...] = ()


def write_turn(rendering: Rendering, answer: dict[str, Any], marks: Marks, ends: Sequence[str] = ()) -> Turn:
    """The model's turn after the prompt, up to and including the first of the end tokens `ends` after the answer.

    Raises LostError if the template does not show the answer's calls.
    """
    prompt, warnings = rendering.prompt, []
    content, reasoning = answer["content"], answer.get("reasoning_content") or ""
    calls = answer.get("tool_calls", ())
    turn = _turn(rendering, content, marks)
    continues = turn is not None
    if turn is None:
        turn = content
    if not shows_calls(squeeze(turn), calls):
        raise LostError(NO_CALL_SHOWN)
    if not reasoning and not shows(squeeze(turn), content):
        # The text may begin with its reasoning, which the template left out.
        reasoning, content = marks.split(content)
    elif marks.split(content)[0]:
        # The answer's text begins with its reasoning, so the template put an empty block of reasoning before it.
        turn = marks.without_repeated(prompt, marks.without_empty(turn))
    # Put back what the template still leaves out: the text, then the reasoning.
    if not shows(squeeze(turn), content):
        if calls:
            warnings.append(TEXT_DROPPED)
        turn = f"{content}{turn}" if calls else content
    if reasoning and not shows(squeeze(turn), reasoning):
        turn = marks.insert(prompt, turn, reasoning)
        warnings.append(NO_REASONING_SHOWN)
    elif not reasoning and marks.are_opened(prompt) and not marks.split(content)[0]:
        warnings.append(NO_REASONING_LOGGED)
    return Turn(_until_end(turn, content, calls, ends) if continues else turn, continues, tuple(warnings))


def _turn(rendering: Rendering, content: str, marks: Marks) -> str | None:
    """The model's turn in the template's form, without the beginning that the prompt already has.

    None if it cannot be determined. Some templates begin a finished turn differently from one that the model has
    yet to write, for instance without opening a block of reasoning. In that case the turn starts where the prompt and
    the rendering with the answer begin to differ.
    """
    prompt, history, whole = rendering.prompt, rendering.history, rendering.whole
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    # `begin`: with what the template begins the model's turn.
    has_begin = prompt.startswith(history) and prompt != history
    begin = prompt[len(history) :] if has_begin else ""
    start = len(history) if has_begin and whole.startswith(history) else 0
    prompt_rest, turn = _without_common_beginning(prompt[start:], whole[start:])
    if len(prompt_rest) > len(begin) and not marks.are_all_of(prompt_rest):
        # An earlier message is rendered differently, too: search for the last beginning of a turn.
        place = whole.rfind(begin) if begin.strip() else -1
        if place < 0:
            return None
        turn = whole[place + len(begin) :]
    turn = marks.without_repeated(prompt, turn)
    return turn if shows(squeeze(turn), marks.split(content)[1]) else None


def _until_end(turn: str, content: str, calls: Sequence[dict[str, Any]], ends: Sequence[str]) -> str:
    """The turn up to the end token at which the model stopped; the template added what follows."""
    # Where the answer's text and calls end: an end token before that is a part of them.
    written = max(turn.find(content.strip()), 0) + len(content.strip())
    for call in calls:
        place = turn.find(call["function"]["name"], min(written, len(turn)))
        texts = [call["function"]["name"], *leaves(call["function"].get("arguments"))]
        written = max(written, *(turn.find(text, place) + len(text) for text in texts)) if place >= 0 else written
    stops = [place + len(end) for end in ends if (place := turn.find(end, written)) >= 0]
    return turn[: min(stops)] if stops else turn


def _without_common_beginning(first: str, second: str) -> tuple[str, str]:
    """What is left of two texts after their common beginning; white space is ignored in the comparison.

    The second text is not cut inside a mark.
    """
    first_end = second_end = 0
    while first_end < len(first) and second_end < len(second):
        if first[first_end] == second[second_end]:
            first_end, second_end = first_end + 1, second_end + 1
        elif first[first_end].isspace():
            first_end += 1
        elif second[second_end].isspace():
            second_end += 1
        else:
            break
    # Marks may have a beginning in common, like the "<" of "<think>" and "</think>": it stays with the second text.
    shared = re.sub(r"[^>\s\]:]*\Z", "", second[:second_end])
    return first[first_end:], second[len(shared) :]
