"""The parts of the docs that are made from the program; `python -m tests.generated_docs` writes them.

Such a part stands between `<!-- NAME ARGUMENTS -->` and `<!-- end -->`; `PARTS` has a function for each name. Then the
command prints how many words `docs/` has, written by people and generated.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from specrace.cli import app, space
from specrace.cli.main import build_parser
from specrace.core.settings import SETTINGS
from specrace.drafters import METHODS
from specrace.drafters.base import Bounds, Option
from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.exports.base import EFFECTS
from specrace.retrieval.limits import COMMAND_LINE, UPLOADS
from tests.test_layers import MAY_IMPORT, ROOMS

ROOT = Path(__file__).resolve().parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "assets" / "results"
DOC_FILES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
# A generated part from its name to just before `<!-- end -->`. Groups: the name, the arguments, the end of the comment.
PART = re.compile(r"(?<=^<!-- )(?!end)(\w+)([^\n]*)( -->\n)(?:.*?\n)??(?=<!-- end -->)", re.MULTILINE | re.DOTALL)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, ["---"] * len(header), *escaped))


def subparsers() -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """The commands of the command line."""
    (action,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return action


def commands() -> str:
    """A table of the commands, each with a link to the file or the heading about it."""
    rows = []
    for command in subparsers()._choices_actions:
        # `app` is described on the page about serving.
        name = {"app": "serving"}.get(command.dest, command.dest)
        files = [f"{stem}.md" for stem in ("cli", "recommend", "servers", "retrieval")]
        files = [file for file in files if f"\n## {name}\n" in (DOCS / file).read_text(encoding="utf-8")]
        link = f"{files[0]}#{name}" if files else f"{name}.md"
        rows.append((f"[`{command.dest}`]({link.removeprefix('cli.md')})", command.help or ""))
    return table(("command", "does"), rows)


def help_of_flags(command: str) -> Iterator[tuple[str, str]]:
    """Each flag of a command, with the form or the choices of its value, and its help."""
    parser = subparsers().choices[command]
    for action in parser._actions:
        if action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
            form = action.metavar or "|".join(filter(None, action.choices or ()))
            yield f"{action.option_strings[-1]} {form}".rstrip(), parser._get_formatter()._expand_help(action)


def flags(command: str, *others: str) -> str:
    """A table of a command's flags; those that other commands have with the same help are only named."""
    help_texts, references = dict(help_of_flags(command)), list[str]()
    for other in others:
        same = [flag for flag, text in help_of_flags(other) if help_texts.get(flag) == text]
        references += [f"As in `{other}`: {', '.join(f'`{flag.split()[0]}`' for flag in same)}."] if same else []
        help_texts = {flag: text for flag, text in help_texts.items() if flag not in same}
    rows = table(("flag", "meaning"), [(f"`{flag}`", text) for flag, text in help_texts.items()])
    return "\n".join([rows, *references, ""]) if references else rows


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
    return table(("option", f"bounds (default{'; on a GPU' if has_gpu_default else ''})", "meaning"), rows)


def settings() -> str:
    """A table of the settings of a race, with their bounds on the page; only those that a link can carry."""
    rows = [(setting.label, setting.range(shared=True), setting.help) for setting in SETTINGS.values() if setting.link]
    return table(("setting", "on the page", "meaning"), rows)


def lanes(*engines: str) -> str:
    """A table of the lanes that reproduce these engines' drafters, or of our own with their draft sizes on a GPU."""
    rows: list[tuple[str, ...]] = []
    for name, method in METHODS.items():
        link = f"[`{name}`](../{Path(inspect.getfile(method.build)).relative_to(ROOT)})"
        if method.twin_of in engines:
            rows.append((link, method.summary))
        elif not engines and not method.twin_of:
            size = str(method.budget("cuda", method.defaults("cuda")))
            # A draft size that is a function follows from the options.
            words = f"{size}, changes with its options" if callable(method.num_draft) else size
            rows.append((link, method.summary, words))
    # The rows of engines' drafters have no draft size.
    return table(("lane, its file", "what it does", "draft size on a GPU")[: 2 if engines else 3], rows)


def limits() -> str:
    """A table of the limits on documents, for the command line and for uploads."""
    rows = []
    for label, name, unit, scale in (
        ("documents", "files", "", 1),
        ("a file", "file_bytes", " MB", 1e6),
        ("all files", "total_bytes", " MB", 1e6),
        ("an unpacked zip or Office file", "unpacked_bytes", " MB", 1e6),
        ("characters of all documents", "characters", "", 1),
        ("pages of a PDF, slides", "pages", "", 1),
        ("time for a file", "seconds", " s", 1),
        ("memory of the parsers' process", "memory_bytes", " MiB", 2**20),
    ):
        values = (getattr(source, name) / scale for source in (COMMAND_LINE, UPLOADS))
        rows.append((label, *(f"{value:,.10g}{unit}" for value in values)))
    return table(("limit", "`--docs`", "uploads"), rows)


def space_flags() -> str:
    """A table of the flags whose defaults differ on a Hugging Face Space."""
    elsewhere = vars(app.parse([]))
    defaults = {"host": "this machine only", "port": "the first free port", "log": "text"}
    rows = [
        (f"`--{name.replace('_', '-')}`", str(value), str(defaults.get(name, elsewhere[name])))
        for name, value in space.DEFAULTS.items()
    ]
    return table(("flag", "on a Space", "elsewhere"), rows)


def effects() -> str:
    """A table of request options: what each engine does with them when it drafts."""
    engines = [engine for engine in ENGINES.values() if engine.effects]
    penalties = ["presence_penalty", "frequency_penalty", "repetition_penalty"]
    rows = []
    for kind in EFFECTS:
        row = [kind]
        for engine in engines:
            names = [name for effect in engine.effects if effect.kind == kind for name in effect.options]
            has_all = set(penalties) <= set(names)
            names = [f"`{name}`" for name in names if not (has_all and name in penalties)]
            row.append(", ".join(["penalties", *names] if has_all else names))
        rows.append(row)
    titles = [f"{engine.title} {engine.effects_version.strip('()')}" for engine in engines]
    return table(("effect", *titles), rows)


def purpose(path: Path) -> str:
    """The first paragraph of a module's or folder's docstring, in one line."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def imports() -> str:
    """The table of which folder or module may import which others."""
    rows = [
        (f"`{name}`", ", ".join(f"`{other}`" for other in MAY_IMPORT if other in allowed) or "nothing",
         purpose(ROOT / "specrace" / name))
        for name, allowed in MAY_IMPORT.items()
        if name not in ("", "__main__", "app")
    ]  # fmt: skip
    return table(("folder or module", "may import from specrace", "it is"), rows)


def rooms() -> str:
    """The table of the folders inside the large folders."""
    rows = [
        (f"`{folder}/{room}`", purpose(ROOT / "specrace" / folder / room)) for folder in ROOMS for room in ROOMS[folder]
    ]
    return table(("room", "it is"), rows)


def bench(*decoders: str) -> str:
    """A table of decoded tokens per second, with the speedup over vanilla, from the results of `bench`."""
    dtypes = ("float32", "bfloat16", "int8")
    columns = []
    for dtype in dtypes:
        text = (RESULTS / f"epyc-avx512-{dtype}.md").read_text(encoding="utf-8")
        columns.append({row[0]: row[1:] for row in re.findall(r"^\| (\S+) \| (\d+) \| (\S+) \|", text, re.MULTILINE)})
    rows = []
    for decoder in decoders:
        cells = [column.get(decoder, ("", "")) for column in columns]
        rows.append((f"`{decoder}`", *(f"{rate} ({speedup})" if rate else "not run" for rate, speedup in cells)))
    return table(("tokens per second (speedup)", *dtypes), rows)


def vllm_counts() -> str:
    """What vLLM's drafters drafted and accepted, beside the forecasts, from the results of `vllm_check`."""
    first_table = re.search(r"(?:^\|.*\n)+", (RESULTS / "servers.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first_table
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in first_table[0].splitlines()]
    columns = ("drafter", "requests", "drafted, forecast", "drafted", "accepted, forecast", "accepted")
    columns += ("accepted past an end", "rejected", "requests with equal counts", "joined chunks", "tokens per step")
    indices = [lines[0].index(column) for column in columns]
    return table(columns, ([line[index] for index in indices] for line in lines[2:]))


PARTS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        bench,
        commands,
        effects,
        flags,
        imports,
        lanes,
        limits,
        options,
        rooms,
        settings,
        space_flags,
        vllm_counts,
    )
}


def generate(text: str) -> str:
    """The text of a docs file with its generated parts as they should be."""
    return PART.sub(lambda match: f"{match[1]}{match[2]}{match[3]}{PARTS[match[1]](*match[2].split())}", text)


def num_words(text: str) -> int:
    """The number of words: a word has a letter or a digit, so the lines and bars of tables do not count."""
    return len(re.findall(r"\S*[^\W_]\S*", text))


def count_words() -> tuple[int, int]:
    """The number of words in docs/: outside generated parts (commands count), and inside them."""
    texts = [file.read_text(encoding="utf-8") for file in DOCS.glob("*.md")]
    written = sum(num_words(PART.sub("", text)) for text in texts)
    return written, sum(map(num_words, texts)) - written


if __name__ == "__main__":
    for file in DOC_FILES:
        file.write_text(generate(file.read_text(encoding="utf-8")), encoding="utf-8")
    print("docs/: {:,} written words, {:,} generated".format(*count_words()))
