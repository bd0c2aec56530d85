"""Turns the texts and conversations of a log into token ids, split into what the model read and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.base import Exchange, Message, Tokens

# A text -> its ids, special tokens included.
Tokenize = Callable[[str], Sequence[int]]
# What a chat template makes of a conversation:
# (messages, answer, offered tools, documents, the request's template arguments)
# -> (ids of the conversation up to the answer, ids of the answer, warnings).
ChatIds = tuple[Sequence[int], Sequence[int], tuple[str, ...]]
Chat = Callable[[list[Message], Message, list[Any] | None, list[Any] | None, Mapping[str, Any] | None], ChatIds]

# Without the vocabulary's size, ids from here on are refused: no vocabulary is as large.
MAX_TOKEN = 2**31 - 1


@dataclass(frozen=True)
class LogTokens:
    """Makes the token ids of exchanges.

    `tokenize` and `chat`: for texts and for conversations; without them only exchanges of ids can be used.
    `vocab_size`: larger ids, and this one, are refused; None if it is not known.
    """

    tokenize: Tokenize | None
    chat: Chat | None
    vocab_size: int | None

    def split(self, exchange: Exchange) -> tuple[Tokens, Tokens, tuple[str, ...]]:
        """(ids of the prompt, ids of the output, warnings). Raises ValueError if either has no ids, or wrong ids."""
        prompt, output = exchange.prompt, exchange.output
        if isinstance(prompt, tuple) and isinstance(output, tuple):
            _check_range("prompt_ids", prompt, self.vocab_size)
            _check_range("output_ids", output, self.vocab_size)
            return prompt, output, ()
        warnings: tuple[str, ...] = ()
        if isinstance(prompt, str) and isinstance(output, str):
            if self.tokenize is None:
                raise ValueError("this has text and no ids; give --tokenizer for the model that wrote it")
            prompt, output = split_tokens(prompt, output, self.tokenize)
        elif isinstance(prompt, list) and isinstance(output, dict):
            prompt, output, warnings = self._split_chat(exchange, prompt, output)
        else:
            raise ValueError("the prompt and the output are of different kinds")
        _check_range("the text", (*prompt, *output), self.vocab_size)
        return prompt, output, warnings

    def _split_chat(
        self, exchange: Exchange, messages: list[Message], answer: Message
    ) -> tuple[Tokens, Tokens, tuple[str, ...]]:
        if self.chat is None:
            raise ValueError("this has messages and no ids; give --tokenizer for the model that wrote it")
        if not any(answer.get(key) for key in ("content", "tool_calls", "reasoning_content")):
            raise ValueError("the answer is empty; every transcript needs a prompt and an output")
        prompt, output, warnings = _render(exchange, messages, answer, self.chat)
        _require_tokens(len(prompt), len(output))
        return tuple(prompt), tuple(output), warnings


def _render(exchange: Exchange, messages: list[Message], answer: Message, chat: Chat) -> ChatIds:
    """What `chat` returns for an exchange; a prefill, which the request wrote and the answer continues, is prompt."""

    def render(answer: Message) -> ChatIds:
        return chat(messages, answer, exchange.tools, exchange.documents, exchange.template_options)

    if not exchange.prefill:
        return render(answer)
    prompt, output, warnings = render(answer | {"content": exchange.prefill + answer["content"]})
    _, prefill, _ = render({"role": "assistant", "content": exchange.prefill})
    size = _num_shared(output, prefill)
    return [*prompt, *output[:size]], output[size:], warnings


def split_tokens(prompt: str, output: str, tokenize: Tokenize) -> tuple[Tokens, Tokens]:
    """The ids of a prompt and its output, tokenised as one text, because the model saw them as one.

    The prompt's ids are the common prefix of its own tokenisation and the whole text's. So a token that spans the
    boundary belongs to the output, and tokens that a tokenizer puts at the end of every text do not belong to the
    prompt. Raises ValueError if the prompt or the output has no ids.
    """
    prompt_ids = tokenize(prompt)
    all_ids = tokenize(prompt + output)
    size = _num_shared(prompt_ids, all_ids)
    _require_tokens(size, len(all_ids) - size)
    return tuple(all_ids[:size]), tuple(all_ids[size:])


def _require_tokens(prompt_size: int, output_size: int) -> None:
    for name, size in (("prompt", prompt_size), ("output", output_size)):
        if not size:
            raise ValueError(f"the {name} has no tokens; every transcript needs some")


def _num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the common prefix."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return shared


def _check_range(name: str, ids: Sequence[int], vocab_size: int | None) -> None:
    """Raise ValueError for a negative id, and for one that is not in the vocabulary."""
    if min(ids) < 0:
        raise ValueError(f"{name} has the negative id {shorten(min(ids), 20)}; ids begin at 0")
    if max(ids) >= (vocab_size or MAX_TOKEN):
        bound = f"--vocab-size is {vocab_size}" if vocab_size else f"no vocabulary reaches {MAX_TOKEN}"
        raise ValueError(f"{name} has the id {shorten(max(ids), 20)}, but {bound}; check the file and its tokenizer")
