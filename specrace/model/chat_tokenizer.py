"""A model's tokenizer and chat template for logs of text: the ids that the model saw, and those that it wrote.

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
# Messages, tools, and whether the model's turn begins at the end.
Render = Callable[[list[Message], list[Any] | None, bool], str]

_LARGEST = 50_000_000
# Classes whose tokenizer.json is the whole tokenizer.
_PLAIN_CLASSES = (None, "PreTrainedTokenizerFast", "TokenizersBackend")


class ChatTokenizer:
    """`encode` gives a text's ids, with the special tokens around it or without; `render` applies the chat template.

    `decode` gives the text of ids, without special tokens.
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
        """Ids of a whole text, special tokens included."""
        return self._encode(text, True)

    def chat(
        self, messages: list[Message], answer: Message, tools: list[Any] | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Ids of the rendered messages, and those of the answer as the template continues them.

        Where the template renders the history otherwise once it is answered (it drops earlier reasoning, or shows the
        last message only), the answer's own text is tokenized: what the model wrote stands there, its form does not.
        Raises ValueError for a conversation that the template refuses or does not show.
        """
        try:
            prompt = self._rendered(messages, tools, True)
            whole = self._rendered([*messages, answer], tools, False)
            before, after = self._encode(prompt, False), self._encode(whole, False)
        except ValueError:
            raise
        except Exception as error:  # a template is a program: it raises what it likes
            raise ValueError(f"the chat template refuses this conversation ({shorten(error, 80)})") from error
        continues = whole.startswith(prompt) and list(after[: len(before)]) == list(before)
        shown = whole[len(prompt) :] if continues else ""
        for call in answer.get("tool_calls", ()):
            if call["function"]["name"] not in shown:
                raise ValueError("the chat template does not show the answer's tool call; give a tokenizer with tools")
        if continues:
            return before, self._until_end(after[len(before) :])
        return before, self._encode(answer["content"], False)

    def _rendered(self, messages: list[Message], tools: list[Any] | None, prompt: bool) -> str:
        if self._render is None:
            raise ValueError("this has messages, and the tokenizer has no chat template; give a chat model's folder")
        return self._render(messages, tools, prompt)

    def _until_end(self, ids: Sequence[int]) -> Sequence[int]:
        """Up to the last end token: the model stops there, and what follows is the template's."""
        places = [place for place, token in enumerate(ids) if token == self._eos]
        return ids[: places[-1] + 1] if places else ids


def load_tokenizer(name: str | Path) -> ChatTokenizer:
    """The tokenizer of a folder, a tokenizer.json or a hub id. Raises InputError."""
    path = Path(name)
    try:
        file = path if path.is_file() else path / "tokenizer.json"
        if file.is_file():
            config = _read_json(file.with_name("tokenizer_config.json"))
            template = _template(file.parent, config)
            if path.is_file() or _is_plain(config, template):
                return _light(file, config, template)
        return _with_transformers(str(name))
    except InputError:
        raise
    except Exception as error:  # the libraries raise many kinds; a user needs to know that this one did not load
        raise InputError(
            f"The tokenizer {str(name)!r} cannot be loaded; give a model's folder, a tokenizer.json, or a hub id that "
            "this machine can reach."
        ) from error


def _read_json(file: Path) -> dict[str, Any]:
    """A file beside the tokenizer; {} where there is none. Raises InputError."""
    if not file.is_file():
        return {}
    found = json.loads(read_text(file, _LARGEST, "give a model's folder"))
    return found if isinstance(found, dict) else {}


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template of a folder: a file of its own, or in tokenizer_config.json one or several by name."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_text(file, _LARGEST, "give a model's folder")
    found = config.get("chat_template")
    if isinstance(found, list):
        found = next((each.get("template") for each in found if each.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _is_plain(config: Mapping[str, Any], template: str | None) -> bool:
    """Whether nothing but the tokenizer.json and a template of plain Jinja decides the ids."""
    own = config.get("tokenizer_class") in _PLAIN_CLASSES and "auto_map" not in config
    return (
        own
        and not config.get("add_bos_token")
        and not config.get("add_eos_token")
        and "generation %}" not in (template or "").replace("-%}", "%}")
    )


def _light(file: Path, config: Mapping[str, Any], template: str | None) -> ChatTokenizer:
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

    special = {
        key: _content(config[key]) for key in ("bos_token", "eos_token", "pad_token", "unk_token") if config.get(key)
    }
    render = None if template is None else _jinja(template, special)
    return ChatTokenizer(encode, decode, render, special.get("eos_token", ""))


def _content(token: Any) -> str:
    """A special token, which stands as text or as an object with its content."""
    return str(token["content"] if isinstance(token, dict) else token)


def _jinja(template: str, special: Mapping[str, str]) -> Render:
    """A template in the environment that transformers gives it (utils/chat_template_utils.py)."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    places = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    places.filters["tojson"] = to_json
    places.globals["raise_exception"] = refuse
    # Without strftime_now: a log does not keep the day of the request, and Llama's template has a fixed one instead.
    compiled = places.from_string(template)

    def render(messages: list[Message], tools: list[Any] | None, prompt: bool) -> str:
        return compiled.render(messages=messages, tools=tools, documents=[], add_generation_prompt=prompt, **special)

    return render


def _with_transformers(name: str) -> ChatTokenizer:
    from huggingface_hub import HfApi

    try:
        tokenizer = _open(name, local=True)
    except OSError:
        if Path(name).exists():
            raise
        # One short question to the hub: the loader would retry for half a minute.
        HfApi().model_info(name, timeout=10)
        tokenizer = _open(name, local=False)

    def encode(text: str, special: bool) -> Sequence[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids

    def decode(ids: list[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def render(messages: list[Message], tools: list[Any] | None, prompt: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            messages, tools=tools, documents=[], tokenize=False, add_generation_prompt=prompt
        )
        return text

    return ChatTokenizer(encode, decode, render if tokenizer.chat_template else None, tokenizer.eos_token or "")


def _open(name: str, *, local: bool) -> Any:
    """Raises InputError for one that comes with code of its own, and whatever the library raises."""
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    from specrace.model.checkpoint import refuse_own_code

    refuse_own_code(get_tokenizer_config(name, local_files_only=local), "tokenizer_config.json", name)
    return AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
