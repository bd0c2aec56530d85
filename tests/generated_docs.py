"""The parts of the docs that are made from the program; `python -m tests.generated_docs` writes them.

A page holds such a part between `<!-- NAME ARGUMENTS -->` and `<!-- end -->`; `PARTS` has a function for each name.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from specrace.cli.main import build_parser
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS
from specrace.drafters.base import Bounds, Option

DOCS = Path(__file__).resolve().parents[1] / "docs"
PART = re.compile(r"(?<=^<!-- )(?!end)(\w+)([^\n]*)( -->\n)(?:.*?\n)??(?=<!-- end -->)", re.MULTILINE | re.DOTALL)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *escaped))


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    (action,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(action.choices)


def help_of_flags(command: str) -> Iterator[tuple[str, str]]:
    """The flags of a command, with their values' form or names, each with its help."""
    parser = commands()[command]
    for action in parser._actions:
        if action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
            form = action.metavar or "|".join(filter(None, action.choices or ()))
            yield f"{action.option_strings[-1]} {form}".rstrip(), parser._get_formatter()._expand_help(action)


def flags(command: str, *others: str) -> str:
    """A table of a command's flags; those that other commands have with the same help are only named."""
    own, shared = dict(help_of_flags(command)), list[str]()
    for other in others:
        same = [flag for flag, text in help_of_flags(other) if own.get(flag) == text]
        shared += [f"As in `{other}`: {', '.join(f'`{flag.split()[0]}`' for flag in same)}."] if same else []
        own = {flag: text for flag, text in own.items() if flag not in same}
    rows = table(("flag", "meaning"), [(f"`{flag}`", text) for flag, text in own.items()])
    return "\n".join([rows, *shared, ""]) if shared else rows


def describe(lane: str, option: Option) -> tuple[str, str, str]:
    """The row of an option: its name, its bounds and defaults, its help."""
    # The default, and the default on a GPU if it differs.
    gpu_defaults = [value for name, value in METHODS[lane].accelerator.items() if name == option.name]
    defaults = ", ".join(str(value).lower() for value in (option.default, *gpu_defaults))
    bounds = option.bounds
    values = f"{bounds.low} to {bounds.high}" if isinstance(bounds, Bounds) else "true, false"
    return f"`{lane}.{option.name}`", f"{values} ({defaults})", bounds.help


def options(*lanes: str) -> str:
    """A table of these lanes' options."""
    rows = [describe(lane, option) for lane in lanes for option in METHODS[lane].options]
    has_gpu_default = any(
        METHODS[lane].accelerator.keys() & {option.name for option in METHODS[lane].options} for lane in lanes
    )
    return table(("option", f"bounds (default{', on a GPU' if has_gpu_default else ''})", ""), rows)


def settings() -> str:
    """A table of the settings of a race, with their bounds on the page."""
    rows = [(setting.label, setting.range(shared=True), setting.help) for setting in SETTINGS.values() if setting.link]
    return table(("setting", "on the page", "meaning"), rows)


PARTS: dict[str, Callable[..., str]] = {"flags": flags, "options": options, "settings": settings}


def generate(page: str) -> str:
    """The text of a page with its generated parts as they should be."""
    return PART.sub(lambda match: f"{match[1]}{match[2]}{match[3]}{PARTS[match[1]](*match[2].split())}", page)


if __name__ == "__main__":
    for file in DOCS.glob("*.md"):
        file.write_text(generate(file.read_text(encoding="utf-8")), encoding="utf-8")
