"""The parameters of the endpoints as their listing describes them: JSON schema, bounds and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specrace.core.settings import MAX_PAGE_LANES, MAX_QUESTION_CHARACTERS, SETTINGS, Setting
from specrace.lab.advice.presets import GPUS
from specrace.lab.advice.recommend import BATCHES
from specrace.ui.helper import log_advice
from specrace.ui.visitor_limits import MAX_LOG_BYTES, MAX_UPLOAD_FILES

# The schema of Gradio's file components. Gradio's clients upload a file for such a parameter.
FILE = {
    "title": "FileData",
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "meta": {"type": "object", "properties": {"_type": {"const": "gradio.FileData", "type": "string"}}},
    },
    "required": ["path", "meta"],
}
# The schema of an object with any keys.
RESULT = {"type": "object", "additionalProperties": {}}
UPLOADED = "over HTTP, a path that POST /gradio_api/upload returned"
LOG_MB = MAX_LOG_BYTES // 10**6
# The help of parameters that are not settings of a race.
HELP = {
    "question": f"About the documents; at most {MAX_QUESTION_CHARACTERS:,} characters.",
    "lanes": f'Up to {MAX_PAGE_LANES} names; a lane may have options and race more than once, as "trie:n=3".',
    "options": 'Lanes\' options, as {"trie": {"n": 5}}; those left out keep their defaults.',
    "model": "One of those that this server offers; empty: its own.",
    "dtype": "Precision of the weights, one of those that this server offers; empty: its default.",
    "files": f"Your documents, in place of the server's: up to {MAX_UPLOAD_FILES} files, 2 MB in all; {UPLOADED}.",
    "log": f"A file of logged requests and outputs, up to {LOG_MB} MB, in a format that `score` reads; {UPLOADED}.",
    "text": 'The log as text in place of a file, say lines of {"prompt": ..., "output": ...}; up to 250 kB.',
    "columns": "Columns of a table, as prompt=question,output=answer.",
    "engine": f"One of {', '.join(log_advice.TITLES)}; empty: all.",
    "cost_curve": f"What a forward costs: {', '.join(log_advice.CURVES)}, {log_advice.MEASURED} (this server, if it is "
    f"calibrated), or a GPU ({', '.join(GPUS)}) and a size ({', '.join(map(str, log_advice.SIZES))}), as h100-8b.",
    "batch": f"Requests that the engine decodes at a time: {', '.join(map(str, BATCHES))}.",
    "tokenizer": "The model whose tokenizer reads a log of text; empty: the server's own. Token ids need none.",
}
# Schemas that are more precise than the parameters' Python types.
TYPES: dict[str, dict[str, Any]] = {
    "files": {"type": "array", "items": FILE},
    "log": FILE,
    "engine": {"enum": ["", *log_advice.TITLES]},
    "batch": {"enum": list(BATCHES)},
    "options": {"type": "object", "additionalProperties": {"type": "object"}},
}
# An agent's tool call (MCP) names a file by the path that its upload returned.
TOOL_TYPES = {"files": {"type": "array", "items": {"type": "string"}}, "log": {"type": "string"}}


def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a line for each parameter to the docstring, which Gradio uses as the description of an MCP tool."""
    names = [name for name in inspect.signature(function).parameters if name in HELP or name in SETTINGS]
    lines = [f"    {name}: {describe(name)}" for name in names]
    description, _, returns = inspect.cleandoc(function.__doc__ or "").partition("Returns:")
    # "Returns" goes on one line, because Gradio puts commas between the lines of this section.
    function.__doc__ = "\n".join(
        [description.rstrip(), "", "Args:", *lines, "", "Returns:", f"    {' '.join(returns.split())}"]
    )
    return function


def describe(name: str) -> str:
    """A parameter's help; for a setting of a race, the page's help text and the valid values."""
    if name in HELP:
        return HELP[name]
    return f"{SETTINGS[name].help} Give {SETTINGS[name].range(shared=True)}."


def schema(name: str, derived: Mapping[str, Any], lanes: Sequence[str]) -> dict[str, Any]:
    """A parameter's JSON schema: the one that Gradio derived from its type, with bounds and help added."""
    json_schema = dict(TYPES.get(name, derived))
    if name == "lanes":
        # A name alone, or one with options, such as "trie:n=3".
        json_schema["items"] = {"type": "string", "pattern": f"^({'|'.join(lanes)})(:[a-z_0-9]+=[^:,]+)*$"}
    elif name in SETTINGS:
        json_schema = _bounded(SETTINGS[name], json_schema)
    return json_schema | {"additional_description": describe(name)}


def _bounded(setting: Setting, derived: dict[str, Any]) -> dict[str, Any]:
    """The schema of a setting: its choices, or the derived schema with the setting's bounds."""
    if setting.choices:
        return {"enum": list(setting.choices)}
    low, high = setting.bounds(shared=True)
    if setting.default is None:
        return {"anyOf": [{"type": "integer", "minimum": low, "maximum": high}, {"const": "auto"}]}
    return derived | {"minimum": low, "maximum": high}
