"""The mutation run: stages each group of modules, lets mutmut work, prints what the tests killed and what survived.

Exit code 1 where less than `MIN_KILLED` of the mutants of the groups that ran were killed, or where one survived that
`survivors.md` does not explain.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path

from staging import PACKAGE, ROOT, forget_unkilled, stage

MIN_KILLED = 0.92
FOLDER = ROOT / "build" / "mutation"
EXPLAINED = Path(__file__).with_name("survivors.md")
# pytest's exit codes and signals, as mutmut stores them; others, the CPU limit's 24 and 9 among them, are timeouts.
OUTCOMES = {1: "killed", 3: "killed", -11: "killed", 0: "survived", 33: "untested", 5: "untested", None: "not run"}
COLUMNS = ("killed", "timed out", "survived", "untested", "not run")
# Removed lines and added lines.
Change = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Group:
    """Modules of `specrace/` that are mutated together, and the fast tests that ought to notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _folder(name: str, *left_out: str) -> tuple[str, ...]:
    files = sorted((PACKAGE / name).glob("*.py"))
    return tuple(f"{name}/{file.name}" for file in files if file.name not in left_out)


# A thousand short races for one law.
_QUICK_RACES = ("-k", "not two_tokens")
GROUPS = {
    "tree": Group(("core/tree.py", "core/verify.py"), ("tests/core/test_tree.py", "tests/core/test_verify.py")),
    "rejection": Group(
        ("core/rejection.py",),
        ("tests/core/test_rejection.py", "tests/core/test_rejection_law.py", "-k", "not catches_a_wrong_rule"),
    ),
    "metrics": Group(("core/metrics.py",), ("tests/core/test_metrics.py",)),
    "kv": Group(("model/kv.py",), ("tests/model/test_kv.py",)),
    "ngrams": Group(
        _folder("ngrams"),
        ("tests/ngrams", "tests/drafters/test_rest.py", "-k", "not linear"),
    ),
    # What a note says is shown, and decides nothing.
    "drafters": Group(
        _folder("drafters", "fusion_note.py"),
        ("tests/drafters",),
    ),
    "lane": Group(
        ("engine/lane.py",),
        (
            "tests/engine/test_lane.py",
            "tests/drafters/test_notes.py",
            "tests/engine/test_race.py",
            "tests/engine/test_rejection.py",
            *_QUICK_RACES,
        ),
    ),
    "race": Group(
        ("engine/race.py", "engine/setup.py", "engine/badge.py", "engine/generate.py"),
        ("tests/engine/test_generate.py", "tests/engine/test_race.py", "tests/engine/test_rejection.py", *_QUICK_RACES),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report the groups that are named, or all."""
    parser = argparse.ArgumentParser(prog="bash tests/mutation/run", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--show", action="store_true", help="run nothing; print every survivor that is not explained")
    parser.add_argument("--again", action="store_true", help="also test again what survived or ran out of time")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--processes", type=int, default=1, help="mutants at a time (default 1)")
    options = parser.parse_args(arguments)
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"no such group: {', '.join(sorted(unknown))}; choose from {', '.join(GROUPS)}")
    names = options.groups or list(GROUPS)
    if not options.show:
        for name in names:
            run(name, options)
    return report(names, show=options.show)


def run(name: str, options: argparse.Namespace) -> None:
    """Test the group's mutants that have no result yet."""
    folder, group = FOLDER / name, GROUPS[name]
    if options.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    stage(folder, group.modules, group.tests)
    if options.again:
        forget_unkilled(folder)
    mutmut = Path(sys.executable).with_name("mutmut")
    subprocess.run([mutmut, "run", "--max-children", str(options.processes)], cwd=folder, check=True)


def report(names: Sequence[str], *, show: bool) -> int:
    """Print a line a module, the rate, and the survivors; the exit code."""
    explained, total, num_unexplained = explanations(), Counter[str](), 0
    print(f"{'module':32}{'mutants':>8}", *(f"{column:>10}" for column in COLUMNS), f"{'rate':>8}", sep="")
    for name in names:
        for module in GROUPS[name].modules:
            outcomes = results(FOLDER / name / "mutants" / "specrace" / module)
            _print_row(module, Counter(outcomes.values()))
            total.update(outcomes.values())
    rate = _print_row("all", total)
    for name in names:
        for module in GROUPS[name].modules:
            for function, change in survivors(FOLDER / name / "mutants" / "specrace" / module):
                if (function, change) not in explained and not _checks_only(change):
                    num_unexplained += 1
                    if show:
                        print(f"\n{function}", *(f"-{line}" for line in change[0]), sep="\n")
                        print(*(f"+{line}" for line in change[1]), sep="\n")
    print(
        f"{num_unexplained} survivors are not explained in {EXPLAINED.name}"
        + ("" if show or not num_unexplained else " (--show)")
    )
    return int(rate < MIN_KILLED or bool(num_unexplained))


def _print_row(name: str, counts: Counter[str]) -> float:
    ran = counts.total() - counts["not run"]
    rate = (counts["killed"] + counts["timed out"]) / ran if ran else 0.0
    print(f"{name:32}{counts.total():8}", *(f"{counts[column]:10}" for column in COLUMNS), f"{rate:8.1%}", sep="")
    return rate


def _checks_only(change: Change) -> bool:
    """Whether only a zip's `strict` changes: it asserts what holds by construction, so no correct run notices."""
    gone, come = ([re.sub(r",? ?strict=\w+|, (?=\))", "", line) for line in lines] for lines in change)
    return gone == come


def results(module: Path) -> dict[str, str]:
    """Mutant -> its outcome; empty for a module that was never run or has nothing to mutate."""
    meta = module.with_name(f"{module.name}.meta")
    if not meta.exists():
        return {}
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return {name: OUTCOMES.get(code, "timed out") for name, code in codes.items()}


def survivors(module: Path) -> Iterator[tuple[str, Change]]:
    """The function and the change of each mutant that no test noticed, or reached."""
    names = [name for name, outcome in results(module).items() if outcome in ("survived", "untested")]
    if not names:
        return
    source = module.read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}

    for name in names:
        module_path, _, mutant = name.rpartition(".")
        mangled = mutant.partition("__mutmut_")[0]
        # xǁClassǁmethod, or x_function
        path = mangled.split("ǁ")[1:] or [mangled[2:]]
        texts = [
            (ast.get_source_segment(source, functions[function_name]) or "")
            .replace(function_name, path[-1])
            .splitlines()
            for function_name in (f"{mangled}__mutmut_orig", mutant)
        ]
        diff = list(ndiff(*([line.strip() for line in text] for text in texts)))
        gone, come = (tuple(line[2:] for line in diff if line.startswith(sign)) for sign in "-+")
        yield ".".join((module_path, *path)), (gone, come)


def explanations() -> set[tuple[str, Change]]:
    """The changes that survivors.md explains, in fenced diffs below the heading of their function."""
    changes, function = set(), ""
    text = EXPLAINED.read_text(encoding="utf-8")
    for heading, block in re.findall(r"^### `([^`]+)`$|^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        function = heading or function
        for gone, come in re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)*)", block, re.MULTILINE):
            change = tuple(tuple(line[1:].strip() for line in lines.splitlines()) for lines in (gone, come))
            if any(change):
                changes.add((function, change))
    return changes


if __name__ == "__main__":
    raise SystemExit(main())
