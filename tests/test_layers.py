"""The floors of the house: imports point down, heavy libraries stay where they belong, nothing goes in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "specrace"
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "gradio", "tokenizers", "safetensors", "pandas"}

WORDS = {"errors", "tree", "verify", "rejection", "events", "metrics", "rule", "cache", "cost", "note", "clock"}
TEXT = {"retrieval", "ngrams", "transcripts"}
MODEL = {
    "sampling",
    "inputs",
    "kv",
    "forward",
    "packed",
    "graphs",
    "target",
    "checkpoint",
    "loading",
    "roofline",
    "scripted",
    "shards",
}
MODEL |= {"peers", "draft_model", "tensor_parallel"}
RACE = {"lane", "race", "pace", "recording", "bench", "score", "calibrate"}
# Training the bundled model is a program of its own beside the house; nobody imports it.
APART = {"tiny"}


def _floor(room: str) -> int:
    """0 words, 1 text, 2 drafters, 3 model, 4 race, 5 face."""
    floors = {**dict.fromkeys(WORDS, 0), **dict.fromkeys(TEXT, 1), "drafters": 2}
    floors |= {**dict.fromkeys(MODEL, 3), **dict.fromkeys(RACE, 4)}
    return floors.get(room, 5)


def _modules() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree, of the whole package and app.py."""
    files = [*PACKAGE.rglob("*.py"), *([ROOT / "app.py"] if (ROOT / "app.py").exists() else [])]
    found = {}
    for file in files:
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read_text(encoding="utf-8"))
    return found


MODULES = _modules()


def _room(name: str) -> str:
    """specrace.retrieval.index -> retrieval; specrace -> "" (the front door)."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def _inside_functions(tree: ast.Module) -> set[ast.AST]:
    functions = [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    return {inner for function in functions for inner in ast.walk(function)}


def _for_types_only(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING:`, which never runs."""
    blocks = [each for each in ast.walk(tree) if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test)]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def _imports(name: str, *, at_top_only: bool = False) -> set[str]:
    """Dotted names that a module imports; of `from a import b`, `a.b` where that is a module of ours."""
    tree = MODULES[name]
    left_out = _for_types_only(tree) | (_inside_functions(tree) if at_top_only else set())
    found = set()
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            source = node.module or ""
            inner = {f"{source}.{alias.name}" for alias in node.names}
            found |= {each if each in MODULES else source for each in inner}
    return found


def _ours(name: str, *, at_top_only: bool = False) -> set[str]:
    return {each for each in _imports(name, at_top_only=at_top_only) if each.split(".")[0] == "specrace"}


def _foreign(name: str, *, at_top_only: bool = False) -> set[str]:
    return {each.split(".")[0] for each in _imports(name, at_top_only=at_top_only)} - {"specrace"}


HOUSE = sorted(name for name in MODULES if name.startswith("specrace.") and _room(name) not in APART)


def test_the_house_was_found() -> None:
    assert {"specrace.tree", "specrace.target", "specrace.race", "specrace.drafters.trie"} <= set(HOUSE)
    assert {_room(name) for name in HOUSE} >= WORDS


@pytest.mark.parametrize("name", HOUSE)
def test_imports_point_down(name: str) -> None:
    own = _floor(_room(name))
    for imported in _ours(name):
        # The package itself holds the version and the library's names, drafters and race among them.
        assert _room(imported) or own == 5, f"{name} imports the front door"
        if not _room(imported):
            continue
        assert _floor(_room(imported)) <= own, f"{name} (floor {own}) imports {imported}"
        assert _room(imported) not in APART, f"{name} imports {imported}"


@pytest.mark.parametrize("name", HOUSE)
def test_drafters_and_the_model_meet_in_the_lane_only(name: str) -> None:
    floor, rooms = _floor(_room(name)), {_room(imported) for imported in _ours(name)}
    if floor == 2:
        assert rooms <= WORDS | {"ngrams", "drafters"}, f"{name} imports {rooms}"
    if floor == 3:
        assert rooms <= WORDS | MODEL, f"{name} imports {rooms}"
    if floor == 4:
        assert not rooms & MODEL, f"{name} imports {rooms & MODEL}"


@pytest.mark.parametrize("name", [name for name in HOUSE if _floor(_room(name)) >= 3])
def test_upstairs_no_single_drafter_is_known(name: str) -> None:
    """A seventh decoder is one file and one line in the registry."""
    assert {each for each in _ours(name) if each.startswith("specrace.drafters")} <= {
        "specrace.drafters",
        "specrace.drafters.base",
    }


@pytest.mark.parametrize("name", [*HOUSE, *(name for name in MODULES if not name.startswith("specrace"))])
def test_heavy_libraries_stay_where_they_belong(name: str) -> None:
    foreign, room = _foreign(name), _room(name)
    if "torch" in foreign:
        assert room in MODEL, f"{name} imports torch"
    if _floor(room) == 0 or room == "ngrams" or room == "drafters":
        assert foreign <= {*sys.stdlib_module_names, "numpy"}, f"{name} imports {foreign}"
    if "gradio" in foreign:
        assert room == "ui" or name == "app", f"{name} imports gradio"
    if foreign & {"faiss", "sentence_transformers"}:
        assert room == "retrieval", f"{name} imports {foreign & {'faiss', 'sentence_transformers'}}"
        assert not _foreign(name, at_top_only=True) & {"faiss", "sentence_transformers"}, f"{name}: at its top"
    if _floor(room) == 4:
        assert not foreign & HEAVY, f"{name} imports {foreign & HEAVY}"


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions count too: they only hide a circle."""
    graph = {name: _ours(name) for name in HOUSE}

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        for imported in sorted(graph.get(name, ())):
            # A package's own files may be imported by its __init__, and themselves import each other, not it.
            if imported not in done:
                visit(imported, (*above, name))
        done.add(name)

    done: set[str] = set()
    for name in HOUSE:
        visit(name, ())


def test_no_file_of_a_package_imports_its_package() -> None:
    for name in HOUSE:
        parent = name.rpartition(".")[0]
        assert parent == "specrace" or parent not in _ours(name), f"{name} imports {parent}"


_LIGHT = [name for name in HOUSE if _floor(_room(name)) in (0, 1, 2, 4)]


def test_lower_floors_and_the_race_load_without_a_model_library() -> None:
    """In a new process: nothing heavy comes along, by whatever way."""
    script = f"import importlib, sys\nfor name in {_LIGHT!r}: importlib.import_module(name)\n"
    script += f"print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_modules_do_nothing_when_they_are_imported() -> None:
    """At the top of a module stand definitions only: no loop, no `with`, no bare call."""
    for name in HOUSE:
        if name.endswith("__main__"):
            continue
        for node in MODULES[name].body:
            loose = isinstance(node, ast.For | ast.While | ast.With)
            loose |= isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            assert not loose, f"{name}, line {node.lineno}, works at import"
