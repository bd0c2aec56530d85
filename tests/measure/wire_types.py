"""`python -m tests.measure.wire_types`: writes the types of the JSON that the page gets, to check its scripts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.inspect import (
    AnyType,
    BoolType,
    DataclassType,
    DictType,
    Field,
    FloatType,
    IntType,
    ListType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    TupleType,
    UnionType,
    VarTupleType,
    type_info,
)

from specrace.core.events import Event, Finished, Repeated, Started, Step
from specrace.engine.recording import FORMAT
from specrace.ui import wire
from specrace.ui.server.scripts import STATIC
from specrace.ui.stage.constants import Constants
from specrace.views import reel
from specrace.views.shown import LaneFrame

FILE = STATIC / "lib" / "wire.d.ts"
HEAD = "// The JSON that the page gets from the server. Made by: python -m tests.measure.wire_types\n"
SIMPLE = {
    AnyType: "any",
    BoolType: "boolean",
    IntType: "number",
    FloatType: "number",
    NoneType: "null",
    StrType: "string",
}
EVENTS: tuple[type[Event], ...] = (Started, Step, Finished, Repeated)


def main(file: Path = FILE) -> None:
    """Write the file."""
    file.write_text(declarations(), encoding="utf-8")


def declarations() -> str:
    """A TypeScript interface for each type that the page gets, and for each type in its fields."""
    structs = [kind for module in (reel, wire) for kind in vars(module).values() if is_struct(kind)]
    waiting: list[type] = [*EVENTS, Constants, LaneFrame, *structs]
    texts: dict[str, str] = {}
    while waiting:
        kind = waiting.pop(0)
        if kind.__name__ not in texts:
            texts[kind.__name__] = declare(kind, waiting.append)
    return HEAD + "".join(texts[name] for name in sorted(texts))


def is_struct(value: Any) -> bool:
    """Whether a module's attribute is a struct."""
    return isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct


def declare(kind: type, need: Callable[[type], None]) -> str:
    """The interface of a struct or a data class; calls `need` with each type in its fields."""
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    lines = [line for paragraph in paragraphs for line in paragraph.split("\n")]
    comment = f"/** {lines[0]} */" if len(lines) == 1 else "\n".join(["/**", *(f" * {line}" for line in lines), " */"])
    fields = "".join(f"  {field}\n" for field in _fields(kind, need))
    return f"\n{comment}\nexport interface {kind.__name__} {{\n{fields}}}\n"


def _fields(kind: type, need: Callable[[type], None]) -> Iterator[str]:
    info = type_info(kind)
    assert isinstance(info, StructType | DataclassType)
    if isinstance(info, StructType) and info.tag is not None:
        yield f"{info.tag_field}: {json.dumps(info.tag)};"
    if kind in EVENTS:
        yield f'type: "{kind.__name__.lower()}";'
    if kind is Started:
        yield f"format: {FORMAT};"
    for field in info.fields:
        mark = "?" if _may_be_missing(field, kind) else ""
        yield f"{field.encode_name}{mark}: {script_type(field.type, need)};"


def _may_be_missing(field: Field, kind: type) -> bool:
    """Whether the JSON may lack a field: one that may be UNSET or, in an event, None (`recording.to_json`)."""
    may_be_none = isinstance(field.type, UnionType) and NoneType in map(type, field.type.types)
    # msgspec shows a default of UNSET as a field that is neither required nor has a default.
    may_be_unset = not field.required and field.default is field.default_factory is msgspec.NODEFAULT
    return may_be_unset or (kind in EVENTS and may_be_none)


def script_type(info: Any, need: Callable[[type], None]) -> str:
    """The TypeScript type of the JSON that `info` describes."""

    def inner(part: Any) -> str:
        text = script_type(part, need)
        return f"({text})" if " | " in text else text

    match info:
        case Metadata(extra_json_schema={"title": str(name)}):
            # A field that holds JSON already; the title names its type.
            return name
        case StructType(cls=kind) | DataclassType(cls=kind):
            need(kind)
            return kind.__name__
        case ListType(item_type=item) | VarTupleType(item_type=item):
            return f"{inner(item)}[]"
        case TupleType(item_types=items):
            return f"[{', '.join(script_type(item, need) for item in items)}]"
        case DictType(value_type=value):
            return f"Record<string, {script_type(value, need)}>"
        case UnionType(types=types):
            return " | ".join(dict.fromkeys(script_type(item, need) for item in types))
        case _:
            return SIMPLE[type(info)]


if __name__ == "__main__":
    main()
