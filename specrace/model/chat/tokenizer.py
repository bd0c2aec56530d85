"""A model's tokenizer and chat template, which turn logged text into the token ids that the model read and wrote.

A tokenizer.json is read by the `tokenizers` library alone, without torch; other tokenizers need transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text
from specrace.model.chat.answer import Turn, find_marks, write_turn
from specrace.model.chat.template import ChatRequest, ChatTemplate, Message, Rendering

# The templates' arguments that switch a model's reasoning on.
THINKING = {"enable_thinking": True, "thinking": True}
THINKING_ON = "the answer has reasoning, so the template's reasoning is switched on"
BUNDLED_REFUSES = (
    "the bundled model's template shows the last message only; name the tokenizer of the model that wrote the log"
)
# Files of other libraries, which transformers reads for some models only, or with further packages. A GGUF file names
# its pre-tokenizer, but transformers does not read that name, so it could return wrong ids.
_OTHER_FILES = {
    "*.gguf": "a GGUF file",
    "tekken.json": "a file of mistral-common",
    "*tiktoken*": "a file of tiktoken",
    "*.model": "a file of SentencePiece or tiktoken",
}
# A larger config or template is refused before it is read.
_MAX_BYTES = 50_000_000
# Tokenizer classes that tokenizer.json describes completely.
_PLAIN_CLASSES = (None, "PreTrainedTokenizerFast", "TokenizersBackend")


class ChatTokenizer:
    """A tokenizer made of two functions, and its chat templates by name ("default", "tool_use", "rag").

    `encode(text, special)` returns a text's ids, with or without special tokens around them; `decode` returns the text
    of ids, without special tokens. `special_tokens`: the special tokens that templates may print, such as `eos_token`.
    `ends`: further tokens at which the model stops.
    """

    def __init__(
        self,
        encode: Callable[[str, bool], Sequence[int]],
        decode: Callable[[list[int]], str],
        templates: Mapping[str, str],
        special_tokens: Mapping[str, Any],
        name: str,
        ends: Sequence[str] = (),
    ) -> None:
        self._encode, self.decode = encode, decode
        self._templates = {key: ChatTemplate(source, special_tokens, name) for key, source in templates.items()}
        # A text that the tokenizer splits into several tokens is not an end token.
        self._ends = [
            end for end in dict.fromkeys([special_tokens.get("eos_token"), *ends]) if end and self._is_token(end)
        ]
        # Why conversations of more than one message are refused; "" if they are not.
        self.refuses_conversations = ""

    def __call__(self, text: str) -> Sequence[int]:
        """The ids of a whole text, including special tokens."""
        return self._encode(text, True)

    def chat(
        self,
        messages: list[Message],
        answer: Message,
        tools: list[Any] | None,
        documents: list[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Sequence[int], Sequence[int], tuple[str, ...]]:
        """The ids of the rendered messages, the ids that the model wrote after them, and warnings.

        Some templates render the earlier messages differently once an answer follows, or show the last message only.
        In that case the plain text of the answer is tokenized, without the template's formatting.
        `options`: the request's arguments for the template. A warning is a short reason without the request's text.
        Raises ValueError for a conversation that the template refuses or of which it does not show everything.
        """
        if self.refuses_conversations and (len(messages) > 1 or messages[0]["role"] == "system"):
            raise ValueError(self.refuses_conversations)
        template = self._template(tools, documents)
        marks = find_marks(template.source, self._is_token)
        request = ChatRequest(messages, answer, tools, documents, options or {})

        def turn_after(rendering: Rendering) -> Turn:
            return write_turn(rendering, answer, marks, self._ends)

        rendering, turn = template.render(request, turn_after)
        warnings = [*rendering.warnings, *turn.warnings]
        reasoning = answer.get("reasoning_content") or marks.split(answer["content"])[0]
        if reasoning and marks.are_closed(rendering.prompt) and not THINKING.keys() & request.options:
            rendering, turn = template.render(replace(request, options={**THINKING, **request.options}), turn_after)
            warnings = [*rendering.warnings, *turn.warnings, THINKING_ON]
        before = self._encode(rendering.prompt, False)
        return before, self._output(rendering.prompt, before, turn), tuple(dict.fromkeys(warnings))

    def _template(self, tools: list[Any] | None, documents: list[Any] | None) -> ChatTemplate:
        """The template for a request: "tool_use" if it has tools, "rag" if it has documents, or else "default".

        transformers chooses a template for tools by this rule, and Cohere's API one for documents.
        """
        names = ["tool_use"] if tools else ["rag"] if documents else []
        for name in (*names, "default"):
            if name in self._templates:
                return self._templates[name]
        raise ValueError("this has messages, and the tokenizer has no chat template; give a chat model's folder")

    def _is_token(self, text: str) -> bool:
        return len(self._encode(text, False)) == 1

    def _output(self, prompt: str, before: Sequence[int], turn: Turn) -> Sequence[int]:
        """The ids of the model's turn after a prompt, whose own ids are `before`."""
        if not turn.continues:
            return self._encode(turn.text, False)
        after = self._encode(prompt + turn.text, False)
        continues = list(after[: len(before)]) == list(before)
        # A token may span the end of the prompt, but the model wrote its first token after the prompt's last one.
        return after[len(before) :] if continues else self._encode(turn.text, False)


def load_tokenizer(name: str | Path) -> ChatTokenizer:
    """The tokenizer of a folder, a tokenizer.json or a hub id. Raises InputError."""
    path = Path(name)
    try:
        file = path if path.is_file() else path / "tokenizer.json"
        if file.is_file():
            config = _read_json(file.with_name("tokenizer_config.json"))
            if path.is_file() or _is_plain(config):
                return _without_transformers(file, config)
        return _with_transformers(str(name))
    except InputError:
        raise
    # The libraries raise many kinds of errors; a user needs to know which tokenizer failed to load.
    except Exception as error:
        raise InputError(f"The tokenizer {str(name)!r} cannot be loaded{_cause(path)}") from error


def _cause(path: Path) -> str:
    """Why a tokenizer cannot be loaded, if its files tell, and what to do: the end of a message."""
    for pattern, kind in _OTHER_FILES.items():
        file: Path | None = path if path.match(pattern) else None
        if file is None and path.is_dir():
            file = next(path.glob(pattern), None)
        if file is not None:
            return f" from {file.name}, {kind}; give a folder or hub id of the same model with a tokenizer.json."
    return "; give a model's folder, a tokenizer.json, or a hub id that this machine can reach."


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is no such file. Raises InputError."""
    if not file.is_file():
        return {}
    content = json.loads(read_text(file, _MAX_BYTES, "give a model's folder"))
    return content if isinstance(content, dict) else {}


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """A folder's chat templates by name.

    tokenizer_config.json has one template or a list. Separate files take precedence: chat_template.jinja and
    additional_chat_templates/NAME.jinja (transformers, tokenization_utils_base.py).
    """
    configured = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(configured, list):
        templates = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
    else:
        templates = {"default": configured}
    files = {"default": folder / "chat_template.jinja"}
    files |= {file.stem: file for file in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    templates |= {
        name: read_text(file, _MAX_BYTES, "give a model's folder") for name, file in files.items() if file.is_file()
    }
    return {name: source for name, source in templates.items() if isinstance(name, str) and isinstance(source, str)}


def _is_plain(config: Mapping[str, Any]) -> bool:
    """Whether tokenizer.json determines the ids completely."""
    return (
        config.get("tokenizer_class") in _PLAIN_CLASSES
        and "auto_map" not in config
        and not config.get("add_bos_token")
        and not config.get("add_eos_token")
    )


def _without_transformers(file: Path, config: Mapping[str, Any]) -> ChatTokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str, special: bool) -> Sequence[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True)
        return text

    special_tokens = _special_tokens(config)
    ends = [tokenizer.id_to_token(token) or "" for token in _end_ids(file.parent)]
    made = ChatTokenizer(
        encode, decode, _templates(file.parent, config), special_tokens, _label(file.parent), ends=ends
    )
    if file.parent.resolve() == BUNDLED_MODEL.resolve():
        made.refuses_conversations = BUNDLED_REFUSES
    return made


def _end_ids(folder: Path) -> list[int]:
    """The ids at which a model's generation ends, which may be more than its tokenizer's end token."""
    ids = _read_json(folder / "generation_config.json").get("eos_token_id")
    return [token for token in (ids if isinstance(ids, list) else [ids]) if type(token) is int and token >= 0]


def _label(name: str | Path) -> str:
    """A tokenizer's name in messages: a hub id unchanged, a folder without its path."""
    return shorten(Path(name).resolve().name if Path(name).exists() else name, 60)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that a config names, as text."""
    return {
        key: _content(value)
        for key, value in config.items()
        if key.endswith("_token") and (isinstance(value, str) or (isinstance(value, dict) and "content" in value))
    }


def _content(token: Any) -> str:
    """The text of a special token, which a config gives as a string or as an object with `content`."""
    return str(token["content"] if isinstance(token, dict) else token)


def _with_transformers(name: str) -> ChatTokenizer:
    from huggingface_hub import HfApi

    try:
        tokenizer = _open(name, local=True)
    except OSError:
        if Path(name).exists():
            raise
        # Ask the hub once, with a short timeout, before the loader, which would retry for half a minute.
        HfApi().model_info(name, timeout=10)
        tokenizer = _open(name, local=False)

    def encode(text: str, special: bool) -> Sequence[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    source = tokenizer.chat_template or {}
    templates = {"default": source} if isinstance(source, str) else dict(source)
    ends = [tokenizer.convert_ids_to_tokens(token) or "" for token in _end_ids(Path(name))]
    return ChatTokenizer(encode, decode, templates, tokenizer.special_tokens_map, _label(name), ends=ends)


def _open(name: str, *, local: bool) -> Any:
    """A transformers tokenizer. Raises InputError if it comes with its own code, and whatever transformers raises."""
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    from specrace.model.weights.checkpoint import refuse_own_code

    refuse_own_code(get_tokenizer_config(name, local_files_only=local), "tokenizer_config.json", name)
    return AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
