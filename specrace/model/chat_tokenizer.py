"""A model's tokenizer and chat template, which turn logged text into the token ids that the model read and wrote.

A tokenizer.json is read by the `tokenizers` library alone, without torch; other tokenizers need transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text

Message = dict[str, Any]
# Renders messages and tools; the last argument says whether to append the beginning of the model's turn.
Render = Callable[[list[Message], list[Any] | None, bool], str]

_MAX_BYTES = 50_000_000
# Tokenizer classes that tokenizer.json describes completely.
_PLAIN_CLASSES = (None, "PreTrainedTokenizerFast", "TokenizersBackend")


class ChatTokenizer:
    """A tokenizer made of three functions.

    `encode(text, special)` returns a text's ids, with or without special tokens around them; `decode` returns the text
    of ids, without special tokens; `render` applies the chat template, and is None if there is none.
    """

    def __init__(
        self,
        encode: Callable[[str, bool], Sequence[int]],
        decode: Callable[[list[int]], str],
        render: Render | None,
        eos: str = "",
    ) -> None:
        self._encode, self.decode = encode, decode
        self._render = render
        ids = encode(eos, False) if eos else ()
        self._eos = ids[0] if len(ids) == 1 else None

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
        """The ids of the rendered messages, the ids with which the template renders the answer after them, warnings.

        `options`: the request's arguments for the template. A warning is a short reason without the request's text.
        Some templates render the earlier messages differently once an answer follows: they drop reasoning, or show the
        last message only. In that case the plain text of the answer is tokenized, without the template's formatting.
        Raises ValueError for a conversation that the template refuses or does not show.
        """
        try:
            prompt = self._rendered(messages, tools, True)
            whole = self._rendered([*messages, answer], tools, False)
            before, after = self._encode(prompt, False), self._encode(whole, False)
        except ValueError:
            raise
        except Exception as error:  # a template is a program, which may raise anything
            raise ValueError(f"the chat template refuses this conversation ({shorten(error, 80)})") from error
        continues = whole.startswith(prompt) and list(after[: len(before)]) == list(before)
        rendered_answer = whole[len(prompt) :] if continues else ""
        for call in answer.get("tool_calls", ()):
            if call["function"]["name"] not in rendered_answer:
                raise ValueError("the chat template does not show the answer's tool call; give a tokenizer with tools")
        if continues:
            return before, self._until_end(after[len(before) :]), ()
        return before, self._encode(answer["content"], False), ()

    def _rendered(self, messages: list[Message], tools: list[Any] | None, add_generation_prompt: bool) -> str:
        if self._render is None:
            raise ValueError("this has messages, and the tokenizer has no chat template; give a chat model's folder")
        return self._render(messages, tools, add_generation_prompt)

    def _until_end(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids up to the last end token, where the model stopped; the template adds what follows it."""
        ends = [position for position, token in enumerate(ids) if token == self._eos]
        return ids[: ends[-1] + 1] if ends else ids


def load_tokenizer(name: str | Path) -> ChatTokenizer:
    """The tokenizer of a folder, a tokenizer.json or a hub id. Raises InputError."""
    path = Path(name)
    try:
        file = path if path.is_file() else path / "tokenizer.json"
        if file.is_file():
            config = _read_json(file.with_name("tokenizer_config.json"))
            template = _template(file.parent, config)
            if path.is_file() or _is_plain(config, template):
                return _without_transformers(file, config, template)
        return _with_transformers(str(name))
    except InputError:
        raise
    except (
        Exception
    ) as error:  # the libraries raise many kinds of errors; a user needs to know which tokenizer failed to load
        raise InputError(
            f"The tokenizer {str(name)!r} cannot be loaded; give a model's folder, a tokenizer.json, or a hub id that "
            "this machine can reach."
        ) from error


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is no such file. Raises InputError."""
    if not file.is_file():
        return {}
    content = json.loads(read_text(file, _MAX_BYTES, "give a model's folder"))
    return content if isinstance(content, dict) else {}


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A folder's chat template: from chat_template.jinja, or from tokenizer_config.json, which may have several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_text(file, _MAX_BYTES, "give a model's folder")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _is_plain(config: Mapping[str, Any], template: str | None) -> bool:
    """Whether tokenizer.json and a plain Jinja template determine the ids completely."""
    return (
        config.get("tokenizer_class") in _PLAIN_CLASSES
        and "auto_map" not in config
        and not config.get("add_bos_token")
        and not config.get("add_eos_token")
        and "generation %}" not in (template or "").replace("-%}", "%}")
    )


def _without_transformers(file: Path, config: Mapping[str, Any], template: str | None) -> ChatTokenizer:
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

    special_tokens = {
        key: _content(config[key]) for key in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(key)
    }
    render = None if template is None else _jinja(template, special_tokens)
    return ChatTokenizer(encode, decode, render, special_tokens.get("eos_token", ""))


def _content(token: Any) -> str:
    """The text of a special token, which a config gives as a string or as an object with `content`."""
    return str(token["content"] if isinstance(token, dict) else token)


def _jinja(template: str, special_tokens: Mapping[str, str]) -> Render:
    """A renderer for a template, in the environment that transformers uses (utils/chat_template_utils.py)."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    # strftime_now is left out because a log does not record the date; Llama's template then uses a fixed one.
    compiled = environment.from_string(template)

    def render(messages: list[Message], tools: list[Any] | None, add_generation_prompt: bool) -> str:
        return compiled.render(
            messages=messages,
            tools=tools,
            documents=[],
            add_generation_prompt=add_generation_prompt,
            **special_tokens,
        )

    return render


def _with_transformers(name: str) -> ChatTokenizer:
    from huggingface_hub import HfApi

    try:
        tokenizer = _open(name, local=True)
    except OSError:
        if Path(name).exists():
            raise
        # First ask the hub once with a short timeout; the loader would retry for half a minute.
        HfApi().model_info(name, timeout=10)
        tokenizer = _open(name, local=False)

    def encode(text: str, special: bool) -> Sequence[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def render(messages: list[Message], tools: list[Any] | None, add_generation_prompt: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            messages, tools=tools, documents=[], tokenize=False, add_generation_prompt=add_generation_prompt
        )
        return text

    return ChatTokenizer(encode, decode, render if tokenizer.chat_template else None, tokenizer.eos_token or "")


def _open(name: str, *, local: bool) -> Any:
    """A transformers tokenizer. Raises InputError if it comes with its own code, and whatever transformers raises."""
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    from specrace.model.checkpoint import refuse_own_code

    refuse_own_code(get_tokenizer_config(name, local_files_only=local), "tokenizer_config.json", name)
    return AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
