"""The program's entry point: an interruption is silent from the start."""

from __future__ import annotations

import sys

import pytest

import specrace
from specrace.__main__ import main
from tests import processes


class Interrupted:
    """Stands for a module whose import is interrupted."""

    def __getattr__(self, _: str) -> None:
        raise KeyboardInterrupt


def test_an_interruption_while_modules_are_imported_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "specrace.cli.main", Interrupted())
    assert main() == 130 and capfd.readouterr() == ("", "")


def test_the_package_imports_nothing_before_it_is_used() -> None:
    """`python -m specrace` imports the package before it can catch an interruption."""
    script = "import sys, specrace; print(*(name for name in sys.modules if name.startswith('specrace.')))"
    assert processes.run(["-c", script]).stdout == "\n"


def test_every_public_name_can_be_imported() -> None:
    names = {*specrace.__all__, "hf"}
    assert names <= set(dir(specrace)) and all(getattr(specrace, name) is not None for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = specrace.nothing
