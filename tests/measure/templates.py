"""How published chat templates render seven kinds of logged requests: `python -m tests.measure.templates FOLDER`.

FOLDER holds templates as *.jinja files, such as models/templates of ggml-org/llama.cpp. Each template gets the bundled
tokenizer. A request is
  =  rendered as Jinja2 alone renders it (arguments as an object or as JSON text, content as text or in parts, no tools
     as None or as an empty list),
  n  rendered, with a note that is counted,
  r  refused, with a reason that is counted,
  !  rendered in another way, or with a part lost, and nothing says so.
The command ends with 1 if there is any of the last kind.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.chat.template import LOG_DATE
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer

Message = dict[str, Any]
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
# Words that occur nowhere else: if one is missing from a rendered text, a part of the request was lost.
PROMPT_WORDS = ("qsystem", "quser", "qfirst", "qearlier", "qlast", "qresult", "qother", "qdocument", "qarticle")
OUTPUT_WORDS = ("wanswer", "wreason", "wargument", "wsecond")


@dataclass(frozen=True)
class Log:
    """A request of a log and its answer."""

    messages: list[Message]
    answer: Message
    tools: list[Any] | None = None
    documents: list[Any] | None = None

    def words_of(self, words: tuple[str, ...]) -> list[str]:
        """Those of `words` that occur in this request."""
        text = json.dumps([self.messages, self.answer, self.documents])
        return [word for word in words if word in text]


def _said(role: str, content: str, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def _call(place: str, identifier: str) -> Message:
    function = {"name": "look_up", "arguments": {"place": place, "days": 3}}
    return {"id": identifier, "type": "function", "function": function}


PARAMETERS = {"type": "object", "properties": {"place": {"type": "string", "description": "a town"}}, "required": []}
FUNCTION = {"name": "look_up", "description": "Weather of a place.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
ANSWER = _said("assistant", "The wanswer is 42.\nIt has two lines.")
LOGS = {
    "plain": Log([_said("user", "What is quser?")], ANSWER),
    "system": Log([_said("system", "Be qsystem."), _said("user", "What is quser?\n\nSay it.")], ANSWER),
    "turns": Log(
        [_said("user", "What is qfirst?"), _said("assistant", "It is qearlier."), _said("user", "And qlast?")], ANSWER
    ),
    "tools": Log(
        [
            _said("user", "How is quser?"),
            _said("assistant", "", tool_calls=[_call("qearlier", "call_8f3a91c2")]),
            _said("tool", '{"sky": "qresult"}', tool_call_id="call_8f3a91c2", name="look_up"),
        ],
        ANSWER,
        tools=TOOLS,
    ),
    "reasoning": Log([_said("user", "What is quser?")], ANSWER | {"reasoning_content": "First wreason.\nThen more."}),
    "documents": Log(
        [_said("user", "What is quser?")],
        ANSWER,
        documents=[{"title": "qarticle", "text": "The sea is qdocument."}, {"title": "b", "text": "qother"}],
    ),
    "developer": Log(
        [
            _said("developer", "Be qsystem."),
            _said("user", "How is quser?"),
            _said("assistant", "", tool_calls=[_call("qearlier", "call_1"), _call("qfirst", "call_2")]),
            _said("tool", "qresult", tool_call_id="call_1", name="look_up"),
            _said("tool", "qother", tool_call_id="call_2", name="look_up"),
        ],
        _said("assistant", "", tool_calls=[_call("wargument", "call_3"), _call("wsecond", "call_4")]),
        tools=TOOLS,
    ),
}


class _Generation(Extension):
    """The tag by which templates mark the assistant's text; it prints its body."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **more)


def rendered_by_jinja(source: str, log: Log) -> Iterator[str]:
    """The prompt as Jinja2 alone renders it, for each way of writing the messages that the template does not refuse."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": LOG_DATE.strftime}
    template = environment.from_string(source)
    # `none`: what stands for no tools and no documents.
    for as_text, in_parts, none in product((False, True), (False, True), (None, [])):
        with suppress(Exception):  # a template may raise anything
            yield template.render(
                messages=_written(log.messages, as_text, in_parts),
                tools=log.tools or none,
                documents=log.documents or none,
                add_generation_prompt=True,
                **SPECIAL_TOKENS,
            )


def _written(messages: list[Message], as_text: bool, in_parts: bool) -> list[Message]:
    """A copy of the messages: `as_text`: arguments as JSON text; `in_parts`: content as a list of parts."""
    written = copy.deepcopy(messages)
    for message in written:
        for call in message.get("tool_calls", ()):
            if as_text:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        if in_parts and message["content"]:
            message["content"] = [{"type": "text", "text": message["content"]}]
    return written


def judge(tokenizer: ChatTokenizer, source: str, log: Log) -> tuple[str, tuple[str, ...]]:
    """The sign of a request, as the module's first lines list them, and the reasons."""
    try:
        prompt, output, notes = tokenizer.chat(log.messages, log.answer, log.tools, log.documents)
    except ValueError as error:
        return "r", (str(error),)
    lost = [word for word in log.words_of(PROMPT_WORDS) if word not in tokenizer.decode(list(prompt))]
    lost += [word for word in log.words_of(OUTPUT_WORDS) if word not in tokenizer.decode(list(output))]
    if lost:
        return "!", (f"lost without a word: {', '.join(lost)}",)
    if notes:
        return "n", notes
    if any(list(prompt) == list(tokenizer(text)) for text in rendered_by_jinja(source, log)):
        return "=", ()
    return "!", ("rendered otherwise than by Jinja2 alone",)


def folder_of(template: Path, folder: Path) -> Path:
    """A model's folder with the bundled tokenizer and a template."""
    folder.mkdir()
    shutil.copy(BUNDLED_MODEL / "tokenizer.json", folder)
    shutil.copy(template, folder / "chat_template.jinja")
    (folder / "tokenizer_config.json").write_text(json.dumps(SPECIAL_TOKENS))
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    templates = sorted(parser.parse_args().folder.glob("*.jinja"))
    reasons: Counter[str] = Counter()
    signs: Counter[str] = Counter()
    print(f"{'':60}{''.join(f'{name:>11}' for name in LOGS)}")
    for template in templates:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = load_tokenizer(folder_of(template, Path(folder) / "model"))
        judged = [judge(tokenizer, template.read_text(encoding="utf-8"), log) for log in LOGS.values()]
        print(f"{template.stem[:58]:60}{''.join(f'{sign:>11}' for sign, _ in judged)}")
        signs.update(sign for sign, _ in judged)
        reasons.update(f"{sign}  {reason}" for sign, request_reasons in judged for reason in request_reasons)
    print(f"\n{len(templates)} templates, {signs.total()} requests: {dict(signs.most_common())}")
    for reason, count in reasons.most_common():
        print(f"{count:5}  {reason}")
    return 1 if signs["!"] else 0


if __name__ == "__main__":
    sys.exit(main())
