"""The architecture, held: which folder may import which, which libraries live where, and no import cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "transformers", "faiss", "sentence_transformers", "gradio", "tokenizers", "safetensors", "pandas"}
SMALL = {*sys.stdlib_module_names, "numpy"}

# A folder of specrace/ (or a single module there) and the others that it may import (docs/architecture.md).
ABOVE_ALL = {"core", "ngrams", "retrieval", "drafters", "model", "engine", "lab", "views"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "ngrams": {"core"},
    "retrieval": {"core"},
    "drafters": {"core", "ngrams"},
    "model": {"core"},
    "engine": {"core", "ngrams", "drafters"},
    "lab": {"core", "ngrams", "drafters", "engine"},
    "views": {"core", "engine"},
    "workbench": ABOVE_ALL,
    "hf": ABOVE_ALL,
    "integrations": {"core", "ngrams", "drafters"},
    "ui": {*ABOVE_ALL, "workbench", "hf"},
    "cli": {*ABOVE_ALL, "workbench", "hf", "ui"},
    "tiny": {*ABOVE_ALL, "workbench", "hf"},
    # The doors.
    "": {"drafters", "engine", "model", "ngrams", "hf"},
    "__main__": {"cli"},
    "app": {"cli"},
}
# What a single module may import in addition to its folder's row: peers run on a target's model.
EXCEPTIONS = {"specrace.lab.peers": {"model"}, "specrace.lab.llama_cpp": {"model"}}
# Which of the heavy libraries a folder may import; the others may import none.
LIBRARIES: dict[str, set[str]] = {
    "model": HEAVY - {"gradio", "faiss", "sentence_transformers"},
    "retrieval": {"faiss", "sentence_transformers"},
    "hf": {"torch", "transformers"},
    "tiny": {"torch", "transformers", "tokenizers", "safetensors"},
    "cli": {"transformers"},
    "ui": {"gradio", "transformers"},
    "specrace.lab.peers": {"torch", "transformers"},
    "specrace.lab.llama_cpp": {"torch"},
}
# The codec of recordings may be missing on a machine that only races, so nothing that races imports it at its top.
CODEC = {"specrace.engine.recording": {"msgspec"}}
# Their modules are used without a model or a page, so importing them must not load one.
LIGHT = ("core", "ngrams", "retrieval", "drafters", "engine", "lab", "views", "integrations")


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
    parts = name.split(".")
    return name if parts[0] == "app" else parts[1] if len(parts) > 1 else ""


def _inside_functions(tree: ast.Module) -> set[ast.AST]:
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    return {inner for function in functions for inner in ast.walk(function)}


def _for_types_only(tree: ast.Module) -> set[ast.AST]:
    """The nodes under `if TYPE_CHECKING:`, which never run."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def _imports(name: str, *, for_types: bool = False, at_top_only: bool = False) -> set[str]:
    """Dotted names that a module imports, inside functions too; of `from a import b`, `a.b` where that is a module."""
    tree = MODULES[name]
    left_out = set() if for_types else _for_types_only(tree)
    left_out |= _inside_functions(tree) if at_top_only else set()
    names = set()
    for node in ast.walk(tree):
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


def _ours(name: str, **only: bool) -> set[str]:
    return {imported for imported in _imports(name, **only) if imported.split(".")[0] == "specrace"}


def _foreign(name: str, **only: bool) -> set[str]:
    return {imported.split(".")[0] for imported in _imports(name, **only)} - {"specrace"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_what_the_table_allows_its_folder(name: str) -> None:
    folder = _folder(name)
    assert folder in MAY_IMPORT, f"{name} lies in no folder of the table"
    allowed = MAY_IMPORT[folder] | EXCEPTIONS.get(name, set()) | {folder}
    for imported in _ours(name, for_types=True) - {"specrace"}:
        assert _folder(imported) in allowed, f"{name} imports {imported}"
    # The package itself holds the version; only what stands above everything may ask for it.
    assert "specrace" not in _ours(name) or folder in ("cli", "ui"), f"{name} imports the package"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_heavy_libraries_stay_where_they_belong(name: str) -> None:
    foreign, folder = _foreign(name), _folder(name)
    allowed = LIBRARIES.get(folder, set()) | LIBRARIES.get(name, set())
    assert foreign & HEAVY <= allowed, f"{name} imports {sorted(foreign & HEAVY - allowed)}"
    if folder in ("core", "ngrams", "drafters", "engine", "integrations"):
        small = SMALL | CODEC.get(name, set())
        assert foreign <= small, f"{name} imports {sorted(foreign - small)}"
    if folder == "retrieval":
        assert not _foreign(name, at_top_only=True) & HEAVY, f"{name}: at its top"


def test_every_row_of_the_table_applies() -> None:
    assert {_folder(name) for name in MODULES} == set(MAY_IMPORT)
    assert {*EXCEPTIONS, *(name for name in LIBRARIES if "." in name)} <= set(MODULES)


def test_there_are_no_import_cycles() -> None:
    """Imports inside functions and for types count too: they only hide a cycle."""
    modules = {name: _ours(name, for_types=True) - {name, "specrace"} for name in MODULES}
    folders: dict[str, set[str]] = {}
    for name, imported in modules.items():
        folders.setdefault(_folder(name), set()).update({_folder(target) for target in imported} - {_folder(name)})
    for graph in (modules, folders):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("name", sorted(name for name in MODULES if name not in ("app", "specrace")))
def test_modules_above_the_drafters_import_no_single_one(name: str) -> None:
    """A new decoder is one file and one line in the registry, so no other module may name it."""
    if _folder(name) not in MAY_IMPORT["drafters"] | {"drafters"}:
        drafters = {imported for imported in _ours(name) if imported.startswith("specrace.drafters")}
        assert drafters <= {"specrace.drafters", "specrace.drafters.base"}, f"{name} imports {sorted(drafters)}"


def test_what_needs_no_model_loads_none() -> None:
    """In a new process no heavy library is loaded, directly or indirectly."""
    light = [name for name in MODULES if _folder(name) in LIGHT and name not in EXCEPTIONS]
    script = f"import importlib, sys\nfor name in {light!r}: importlib.import_module(name)\n"
    script += f"print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_quick_run_loads_no_model_and_no_page() -> None:
    """`pytest` alone, in a new process: neither its tests nor what configures them import a heavy library."""
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
    """The command line and the library are imported where msgspec is not installed."""
    script = (
        "import sys; sys.modules['msgspec'] = None\nimport specrace, specrace.cli.main, specrace.workbench, specrace.hf"
    )
    done = processes.run(["-c", script])
    assert done.returncode == 0, done.stderr


def test_importing_a_module_does_no_work() -> None:
    """The top of a module has definitions only: no loop, no `with`, no bare call."""
    for name in set(MODULES) - {"app", "specrace.__main__", "specrace.tiny.__main__"}:
        for node in MODULES[name].body:
            loose = isinstance(node, ast.For | ast.While | ast.With)
            loose |= isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
            assert not loose, f"{name}, line {node.lineno}, works at import"


def test_the_tests_mirror_the_package() -> None:
    """Each folder of the package has a folder of tests; others hold whole programs and whole paths on models."""
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    whole = {"browser", "gpu", "measure", "mutation", "paths"}
    assert folders - whole == {path.name for path in (ROOT / "specrace").iterdir() if (path / "__init__.py").exists()}
