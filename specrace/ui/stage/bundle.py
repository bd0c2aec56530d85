"""Joins ES modules into one script, because a browser loads no module from a file on disk.

It understands what the page's scripts use: imports of names from relative paths, and `export` before a function, a
class or a constant with one name. Each module becomes a function that returns its exports.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

# An import: its names, and the module's path.
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";$', re.MULTILINE)
# The beginning of an export: what follows `export`, and the exported name.
EXPORT = re.compile(r"^export ((?:async )?function\*? ?|class |const )(\w+)", re.MULTILINE)
# An import or export of any other form, which would be a syntax error in the joined script.
LEFT_OVER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """One script with the module `entry` of `folder` and all modules that it imports, directly or not.

    Raises ValueError for an import or export of another form, and `graphlib.CycleError` if modules import each other.
    """
    sources = dict(_read_modules(folder, entry))
    order = TopologicalSorter({name: _imported(name, text) for name, text in sources.items()}).static_order()
    modules = [_as_function(name, sources[name]) for name in order]
    return "\n".join(['"use strict";', "(() => {", *modules, "})();", ""])


def _read_modules(folder: Path, entry: str) -> Iterator[tuple[str, str]]:
    """The path and text of the module `entry` and, once each, of the modules that it needs."""
    waiting, known = [entry], {entry}
    while waiting:
        name = waiting.pop()
        text = (folder / name).read_text(encoding="utf-8")
        yield name, text
        new = [other for other in _imported(name, text) if other not in known]
        known.update(new)
        waiting += new


def _imported(name: str, text: str) -> list[str]:
    """The paths of the modules that the module `name`, whose source is `text`, imports."""
    return [_resolve(name, match[2]) for match in IMPORT.finditer(text)]


def _resolve(name: str, path: str) -> str:
    """The path of a module that the module `name` imports: ("stage/stage.js", "../lib/dom.js") -> "lib/dom.js"."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _as_function(name: str, text: str) -> str:
    """A module as JavaScript: a constant, set to the object of exports that the module's function returns."""
    exported = [match[2] for match in EXPORT.finditer(text)]

    def bind(match: re.Match[str]) -> str:
        names = match[1].replace(" as ", ": ")
        return f"const {{{names}}} = {_identifier(_resolve(name, match[2]))};"

    body = EXPORT.sub(r"\1\2", IMPORT.sub(bind, text))
    if left_over := LEFT_OVER.search(body):
        raise ValueError(f"{name}: a form of import or export that the bundle does not know: {left_over[0]}")
    return f"const {_identifier(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _identifier(name: str) -> str:
    """A JavaScript name for a module: "stage/reel.js" -> "stage_reel_js"."""
    return re.sub(r"\W", "_", name)
