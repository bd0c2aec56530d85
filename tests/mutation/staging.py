"""Makes a copy of the project, in which mutmut mutates one group of modules and can continue a stopped run."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "specrace"
# mutmut does not mutate decorated functions. These decorators work as well when called below the function.
MOVED_DECORATORS = {"property", "cached_property", "lru_cache", "torch.inference_mode"}
# Tests do not fix the wording of errors. The condition before a `raise` is mutated.
NOT_MUTATED = r"^\s*raise "
SETTINGS = """
[tool.mutmut]
source_paths = ["specrace"]
only_mutate = {modules}
do_not_mutate_patterns = ['{not_mutated}']
pytest_add_cli_args = ["-p", "tests.mutation.quick"]
pytest_add_cli_args_test_selection = {tests}
timeout_constant = 2.0
timeout_multiplier = 3.0
use_git_change_detection = false
on_dependency_change = "ignore"
"""


def stage(folder: Path, modules: Sequence[str], tests: Sequence[str]) -> None:
    """Bring `folder` up to date. Unchanged files keep their time, because a new time makes mutmut mutate them again."""
    mutated = {PACKAGE / module for module in modules}
    for source in PACKAGE.rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        _write(folder / source.relative_to(ROOT), with_moved_decorators(text) if source in mutated else text)
    settings = SETTINGS.format(
        modules=json.dumps([f"specrace/{module}" for module in modules]),
        tests=json.dumps(list(tests)),
        not_mutated=NOT_MUTATED,
    )
    _write(folder / "pyproject.toml", (ROOT / "pyproject.toml").read_text(encoding="utf-8") + settings)
    shutil.rmtree(folder / "tests", ignore_errors=True)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mutants").mkdir(exist_ok=True)
    for shared in ("assets", "corpus"):
        if not (folder / "mutants" / shared).exists():
            (folder / "mutants" / shared).symlink_to(ROOT / shared)
    _forget_if_tests_changed(folder, tests)


def _write(path: Path, text: str) -> None:
    """Write a file, unless it has this text already."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _forget_if_tests_changed(folder: Path, tests: Sequence[str]) -> None:
    """If the tests changed, let unkilled mutants run again, and forget which test reaches which code."""
    paths = [ROOT / test for test in tests if test.startswith("tests/")]
    files = {file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}
    # What the tests share.
    files |= {*(ROOT / "tests").rglob("*parts.py"), ROOT / "tests" / "models.py"}
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files)) + str(list(tests)).encode())
    digest_file = folder / "tests.digest"
    if not digest_file.exists() or digest_file.read_text(encoding="utf-8") != digest.hexdigest():
        digest_file.write_text(digest.hexdigest(), encoding="utf-8")
        (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        forget_unkilled(folder)


def forget_unkilled(folder: Path) -> None:
    """Make every mutant run again that no failing test killed, including those that timed out or crashed pytest."""
    for meta in (folder / "mutants").rglob("*.meta"):
        values = json.loads(meta.read_text(encoding="utf-8"))
        codes = values["exit_code_by_key"]
        # pytest ends with 1 where a test fails; mutmut runs mutants without a code.
        values["exit_code_by_key"] = {name: code if code == 1 else None for name, code in codes.items()}
        meta.write_text(json.dumps(values), encoding="utf-8")


def with_moved_decorators(source: str) -> str:
    """The code with `name = property(name)` below a function in place of `@property` above it."""
    lines = source.splitlines()
    for function, decorator in sorted(_decorated(ast.parse(source)), key=lambda pair: -pair[0].lineno):
        indent = " " * function.col_offset
        assert function.end_lineno is not None
        lines.insert(function.end_lineno, f"{indent}{function.name} = {ast.unparse(decorator)}({function.name})")
        del lines[decorator.lineno - 1]
    return "\n".join(lines) + "\n"


def _decorated(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.expr]]:
    """The functions whose only decorator can be moved, with that decorator."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and len(node.decorator_list) == 1:
            decorator = node.decorator_list[0]
            if ast.unparse(decorator).split("(")[0] in MOVED_DECORATORS:
                yield node, decorator
