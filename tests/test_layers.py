"""The architecture: which folder may import which others and which libraries, and that there are no import cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from specrace.cli.main import COMMANDS
from tests import processes

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "gradio", "tokenizers", "safetensors", "pandas"}
SMALL = {*sys.stdlib_module_names, "numpy"}

LOWER_FOLDERS = {"core", "ngrams", "retrieval", "drafters", "model", "engine", "lab", "views"}
# A folder of specrace/, or a single module there -> the others that it may import (docs/architecture.md).
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "ngrams": {"core"},
    "retrieval": {"core"},
    "drafters": {"core", "ngrams"},
    "model": {"core"},
    "heads": {"core", "model", "retrieval"},
    "engine": {"core", "ngrams", "drafters"},
    "lab": {"core", "ngrams", "drafters", "engine"},
    "views": {"core", "engine"},
    "workbench": {*LOWER_FOLDERS, "heads"},
    "hf": {*LOWER_FOLDERS, "heads"},
    "answers": {*LOWER_FOLDERS, "workbench"},
    "notebook": {*LOWER_FOLDERS, "workbench", "ui"},
    "integrations": {"core", "ngrams", "drafters"},
    "servers": {"core", "engine"},
    "ui": {*LOWER_FOLDERS, "workbench", "hf"},
    "cli": {*LOWER_FOLDERS, "heads", "workbench", "answers", "servers", "hf", "ui"},
    "tiny": {*LOWER_FOLDERS, "workbench", "hf"},
    # The entry points: `import specrace`, `python -m specrace` and app.py.
    "": {"drafters", "engine", "model", "ngrams", "hf", "notebook"},
    "__main__": {"cli"},
    "app": {"cli"},
}
# The rooms inside a folder, from the lowest to the highest: each may import those listed before it. Modules beside the
# rooms are above them, except those in `BELOW`.
ROOMS = {
    "model": ("machine", "forward", "weights", "chat"),
    "lab": ("logs", "scoring", "advice", "bench", "compare", "plots"),
    "ui": ("server", "helper", "races", "api", "stage", "page"),
    "cli": ("shared",),
}
BELOW = {"specrace.ui.visitor_limits", "specrace.ui.wire"}
# What a single module may import in addition to its folder's row. Peers, the other decoders that `bench` runs, use the
# target's model.
EXCEPTIONS = {"specrace.lab.bench.peers": {"model"}, "specrace.lab.bench.llama_cpp": {"model"}}
# A folder or module -> the heavy libraries that it may import; other folders may import none.
LIBRARIES: dict[str, set[str]] = {
    "model": HEAVY - {"gradio", "faiss", "sentence_transformers"},
    "retrieval": {"faiss", "sentence_transformers"},
    "heads": {"torch", "transformers", "safetensors"},
    "hf": {"torch", "transformers"},
    "tiny": {"torch", "transformers", "tokenizers", "safetensors"},
    "cli": {"transformers"},
    "notebook": {"pandas"},
    "ui": {"gradio", "transformers"},
    "specrace.lab.bench.peers": {"torch", "transformers"},
    "specrace.lab.bench.llama_cpp": {"torch"},
}
# Only this module imports the codec of recordings, because a machine that only races may not have it installed.
CODEC = {"specrace.engine.recording": {"msgspec"}}
MAX_FILES = 20
# Folders whose modules work without a model or a page, so importing them must load no heavy library.
LIGHT_FOLDERS = ("core", "ngrams", "retrieval", "drafters", "engine", "lab", "views", "integrations", "servers")


def _read_modules() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree, of the whole package and app.py."""
    modules = {}
    for file in [*(ROOT / "specrace").rglob("*.py"), ROOT / "app.py"]:
        parts = file.relative_to(ROOT).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(
            file.read_text(encoding="utf-8")
        )
    return modules


MODULES = _read_modules()


def _folder(name: str) -> str:
    """specrace.retrieval.index -> retrieval; specrace.hf -> hf; specrace -> ""; app -> app."""
    if name == "app":
        return name
    _, _, inside = name.partition(".")
    return inside.partition(".")[0]


def _room(name: str) -> str:
    """specrace.ui.page.events -> page."""
    return ".".join(name.split(".")[2:3])


@cache
def _nodes(name: str) -> list[ast.AST]:
    return list(ast.walk(MODULES[name]))


def _inside_functions(name: str) -> set[ast.AST]:
    functions = [node for node in _nodes(name) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    return {inner for function in functions for inner in ast.walk(function)}


def _for_types_only(name: str) -> set[ast.AST]:
    """The nodes under `if TYPE_CHECKING:`, which never run."""
    blocks = [node for node in _nodes(name) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


@cache
def _imports(name: str, *, for_types: bool = False, at_top_only: bool = False) -> set[str]:
    """Dotted names that a module imports, inside functions too; `from a import b` gives `a.b` if that is a module."""
    left_out = set() if for_types else _for_types_only(name)
    if at_top_only:
        left_out |= _inside_functions(name)
    names = set()
    for node in _nodes(name):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            source = node.module or ""
            inner = {f"{source}.{alias.name}" for alias in node.names}
            names |= {imported if imported in MODULES else source for imported in inner}
    return names


def _package_imports(name: str, **choices: bool) -> set[str]:
    return {imported for imported in _imports(name, **choices) if imported.split(".")[0] == "specrace"}


def _library_imports(name: str, **choices: bool) -> set[str]:
    return {imported.split(".")[0] for imported in _imports(name, **choices)} - {"specrace"}


def test_a_module_imports_what_the_table_allows_its_folder() -> None:
    for name in MODULES:
        folder = _folder(name)
        assert folder in MAY_IMPORT, f"{name} lies in no folder of the table"
        allowed = MAY_IMPORT[folder] | EXCEPTIONS.get(name, set()) | {folder}
        for imported in _package_imports(name, for_types=True) - {"specrace"}:
            assert _folder(imported) in allowed, f"{name} imports {imported}"
        # From `specrace` itself, the command line and the page import the version.
        assert "specrace" not in _package_imports(name) or folder in ("cli", "ui"), f"{name} imports the package"


def test_no_command_imports_another() -> None:
    """What commands share lies beside them or below them, so that a command can be read, changed or removed alone."""
    parser_makers = {
        name
        for name, tree in MODULES.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "add_parser" for node in tree.body)
    }
    assert parser_makers == {f"specrace.cli.{command}" for command in COMMANDS}
    for name in parser_makers:
        others = _package_imports(name, for_types=True) & parser_makers - {name}
        assert not others, f"{name} imports {sorted(others)}"


def test_only_commands_parse_arguments() -> None:
    """Modules that commands call get typed values, and no parsed arguments."""
    parsing = {name for name in MODULES if "argparse" in _library_imports(name, for_types=True)}
    assert {name for name in parsing if _folder(name) != "cli"} == {"specrace.heads.__main__", "specrace.tiny.__main__"}


@pytest.mark.parametrize("folder", ROOMS)
def test_a_room_imports_only_rooms_below_it(folder: str) -> None:
    rooms = ROOMS[folder]
    inside = {path.name for path in (ROOT / "specrace" / folder).iterdir() if (path / "__init__.py").exists()}
    assert set(rooms) == inside
    for name in MODULES:
        room = _room(name)
        if _folder(name) != folder or room not in rooms:
            continue
        allowed = rooms[: rooms.index(room) + 1]
        for imported in _package_imports(name, for_types=True) - BELOW:
            if _folder(imported) == folder:
                assert _room(imported) in allowed, f"{name} imports {imported}"


def test_a_folder_holds_at_most_twenty_files() -> None:
    """A reader takes in about twenty names at once; icons and `__init__.py` do not count."""
    for folder in {file.parent for file in (ROOT / "specrace").rglob("*") if "__pycache__" not in file.parts}:
        files = [file.name for file in folder.glob("*.*") if file.is_file() and file.name != "__init__.py"]
        assert len(files) <= MAX_FILES, f"{folder.relative_to(ROOT)} holds {len(files)} files"


def test_heavy_libraries_stay_where_they_belong() -> None:
    for name in MODULES:
        libraries, folder = _library_imports(name), _folder(name)
        allowed = LIBRARIES.get(folder, set()) | LIBRARIES.get(name, set())
        assert libraries & HEAVY <= allowed, f"{name} imports {sorted(libraries & HEAVY - allowed)}"
        if folder in ("core", "ngrams", "drafters", "engine", "integrations"):
            small = SMALL | CODEC.get(name, set())
            assert libraries <= small, f"{name} imports {sorted(libraries - small)}"
        assert "httpx" not in libraries or folder == "servers", f"{name} imports httpx"
        if folder == "retrieval":
            assert not _library_imports(name, at_top_only=True) & HEAVY, f"{name} imports one outside its functions"


def test_every_row_of_the_table_applies() -> None:
    assert {_folder(name) for name in MODULES} == set(MAY_IMPORT)
    assert {*EXCEPTIONS, *(name for name in LIBRARIES if "." in name)} <= set(MODULES)


def test_there_are_no_import_cycles() -> None:
    """Imports inside functions and for types count, too: they would only hide a cycle."""
    modules = {name: _package_imports(name, for_types=True) - {name, "specrace"} for name in MODULES}
    folders: dict[str, set[str]] = {}
    for name, imported in modules.items():
        folders.setdefault(_folder(name), set()).update({_folder(target) for target in imported} - {_folder(name)})
    for graph in (modules, folders):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def test_modules_above_the_drafters_import_no_single_drafter() -> None:
    """A new decoder is one file and one line in the registry, so no other module may name it."""
    allowed = {"specrace.drafters", "specrace.drafters.base", "specrace.drafters.sessions"}
    for name in MODULES.keys() - {"app", "specrace"}:
        if _folder(name) not in MAY_IMPORT["drafters"] | {"drafters"}:
            drafters = {imported for imported in _package_imports(name) if imported.startswith("specrace.drafters")}
            assert drafters <= allowed, f"{name} imports {sorted(drafters)}"


def test_light_folders_load_no_heavy_library() -> None:
    """Checked in a new process, so that indirect imports count."""
    light_modules = [name for name in MODULES if _folder(name) in LIGHT_FOLDERS and name not in EXCEPTIONS]
    script = f"import importlib, sys\nfor name in {light_modules!r}: importlib.import_module(name)\n"
    script += f"print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_quick_run_loads_no_model_and_no_page() -> None:
    """In a new process, neither the tests that `pytest` alone runs nor their conftest.py load a heavy library."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    files = [file for folder in options["testpaths"] for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 60
    files.append(ROOT / "tests" / "conftest.py")
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    heavy = {"torch", "transformers", "gradio", "faiss", "sentence_transformers", "playwright"}
    script = f"import importlib, sys\nfor name in {names!r}:\n    importlib.import_module(name)\n"
    script += f"    assert not {heavy!r} & set(sys.modules), (name, {heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_race_needs_no_codec() -> None:
    """The command line and the library can be imported without msgspec."""
    script = (
        "import sys; sys.modules['msgspec'] = None\nimport specrace, specrace.cli.main, specrace.workbench, specrace.hf"
    )
    done = processes.run(["-c", script])
    assert done.returncode == 0, done.stderr


def test_importing_a_module_does_no_work() -> None:
    """The top of a module has definitions only: no loop, no `with`, no bare call."""
    programs = {"app", "specrace.__main__", "specrace.heads.__main__", "specrace.tiny.__main__"}
    for name in set(MODULES) - programs:
        for node in MODULES[name].body:
            is_block = isinstance(node, ast.For | ast.While | ast.With)
            is_call = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            assert not (is_block or is_call), f"{name}, line {node.lineno}, does work at import"


def test_the_tests_mirror_the_package() -> None:
    """Each folder of the package has a folder of tests; five more folders test across packages."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    across_packages = {"browser", "gpu", "measure", "mutation", "paths"}
    assert folders - across_packages == {
        path.name for path in (ROOT / "specrace").iterdir() if (path / "__init__.py").exists()
    }
