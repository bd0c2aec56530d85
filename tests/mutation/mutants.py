"""The mutation run: stages each group of modules, runs mutmut on it, and prints the mutants killed and the survivors.

Exits with 1 if less than `MIN_KILLED` of the mutants were killed, or if `survivors.md` does not explain a survivor.
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

# No record says why it is this share.
MIN_KILLED = 0.92
FOLDER = ROOT / "build" / "mutation"
EXPLAINED = Path(__file__).with_name("survivors.md")
# pytest's exit codes and signals, as mutmut stores them. All other codes are timeouts, including the signals 24 and 9,
# which end a process at its limit of processor time.
OUTCOMES = {1: "killed", 3: "killed", -11: "killed", 0: "survived", 33: "untested", 5: "untested", None: "not run"}
COLUMNS = ("killed", "timed out", "survived", "untested", "not run")
# Removed lines and added lines.
Change = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Group:
    """Modules of `specrace/` that are mutated together, and pytest's arguments for the fast tests that should fail."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _folder(name: str, *left_out: str) -> tuple[str, ...]:
    """The modules in a folder of the package, except those that are left out."""
    files = (file.relative_to(PACKAGE).as_posix() for file in sorted((PACKAGE / name).glob("*.py")))
    return tuple(file for file in files if file not in left_out)


# Leaves out a test that runs a thousand short races.
_QUICK_RACES = ("-k", "not two_tokens")
GROUPS = {
    "tree": Group(("core/tree.py", "core/verify.py"), ("tests/core/test_tree.py", "tests/core/test_verify.py")),
    "rejection": Group(
        ("core/rejection.py", "core/multi_branch.py"),
        (
            "tests/core/test_rejection.py",
            "tests/core/test_rejection_law.py",
            "tests/core/test_multi_branch.py",
            "tests/core/test_multi_branch_law.py",
            # They test other tests, with rules that are wrong on purpose.
            "-k",
            "not catches_a_wrong_rule and not fails_the_same",
        ),
    ),
    "metrics": Group(("core/metrics.py",), ("tests/core/test_metrics.py",)),
    "kv": Group(("model/forward/kv.py",), ("tests/model/forward/test_kv.py",)),
    "ngrams": Group(
        _folder("ngrams"),
        # The test left out measures time and memory.
        ("tests/ngrams", "tests/drafters/test_rest.py", "-k", "not linear"),
    ),
    # Notes are only displayed, so `fusion/note.py` is left out.
    "drafters": Group(
        (
            *_folder("drafters"),
            *_folder("drafters/fusion", "drafters/fusion/note.py"),
            *_folder("drafters/specinfer"),
        ),
        ("tests/drafters",),
    ),
    "lane": Group(
        ("engine/lane.py",),
        (
            "tests/engine/test_chains.py",
            "tests/engine/test_lane.py",
            "tests/drafters/test_notes.py",
            "tests/engine/test_race.py",
            "tests/engine/test_rejection.py",
            *_QUICK_RACES,
        ),
    ),
    "race": Group(
        ("engine/race.py", "engine/setup.py", "engine/prepare.py", "engine/badge.py", "engine/generate.py"),
        (
            "tests/engine/test_chains.py",
            "tests/engine/test_generate.py",
            "tests/engine/test_heads.py",
            "tests/engine/test_race.py",
            "tests/engine/test_rejection.py",
            "tests/engine/test_repeats.py",
            "tests/engine/test_pace.py",
            "tests/engine/test_refit.py",
            "tests/engine/test_setup.py",
            "tests/test_shared_work.py",
            *_QUICK_RACES,
        ),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report the named groups, or all groups; return the exit code."""
    parser = argparse.ArgumentParser(prog="bash tests/mutation/run", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"one of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--show", action="store_true", help="run no tests; print every unexplained survivor")
    parser.add_argument("--again", action="store_true", help="also rerun mutants that survived or timed out")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--processes", type=int, default=1, help="mutants to test at a time (default 1)")
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
    """Print a line for each module, the share of killed mutants, and the survivors; return the exit code."""
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
    """Print the outcomes of some mutants; return the share of those run that were killed or timed out."""
    ran = counts.total() - counts["not run"]
    rate = (counts["killed"] + counts["timed out"]) / ran if ran else 0.0
    print(f"{name:32}{counts.total():8}", *(f"{counts[column]:10}" for column in COLUMNS), f"{rate:8.1%}", sep="")
    return rate


def _checks_only(change: Change) -> bool:
    """Whether only a zip's `strict` changes, which asserts equal lengths that hold by construction."""
    # Matches the argument with the comma before it, or a comma that stands before a closing bracket.
    removed, added = ([re.sub(r",? ?strict=\w+|, (?=\))", "", line) for line in lines] for lines in change)
    return removed == added


def results(module: Path) -> dict[str, str]:
    """The outcome of each mutant; empty for a module that was never run or has nothing to mutate."""
    meta = module.with_name(f"{module.name}.meta")
    if not meta.exists():
        return {}
    codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return {name: OUTCOMES.get(code, "timed out") for name, code in codes.items()}


def survivors(module: Path) -> Iterator[tuple[str, Change]]:
    """The function and the change of each mutant that no test killed or reached."""
    names = [name for name, outcome in results(module).items() if outcome in ("survived", "untested")]
    if not names:
        return
    source = module.read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}

    for name in names:
        module_path, _, mutant = name.rpartition(".")
        mangled = mutant.partition("__mutmut_")[0]
        # mutmut writes methods as xǁClassǁmethod and functions as x_function.
        path = mangled.split("ǁ")[1:] or [mangled[2:]]
        texts = [
            (ast.get_source_segment(source, functions[function_name]) or "")
            .replace(function_name, path[-1])
            .splitlines()
            for function_name in (f"{mangled}__mutmut_orig", mutant)
        ]
        diff = list(ndiff(*([line.strip() for line in text] for text in texts)))
        removed, added = (tuple(line[2:] for line in diff if line.startswith(sign)) for sign in "-+")
        yield ".".join((module_path, *path)), (removed, added)


def explanations() -> set[tuple[str, Change]]:
    """The changes that survivors.md explains: (function, change), from the fenced diffs below a function's heading."""
    changes, function = set(), ""
    text = EXPLAINED.read_text(encoding="utf-8")
    # Matches either a heading, which names a function, or a fenced diff, which belongs to the last heading.
    for heading, block in re.findall(r"^### `([^`]+)`$|^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        function = heading or function
        # A change: lines that begin with -, followed by lines that begin with +.
        for removed, added in re.findall(r"((?:^-.*\n)*)((?:^\+.*\n)*)", block, re.MULTILINE):
            change = tuple(tuple(line[1:].strip() for line in lines.splitlines()) for lines in (removed, added))
            if any(change):
                changes.add((function, change))
    return changes


if __name__ == "__main__":
    raise SystemExit(main())
