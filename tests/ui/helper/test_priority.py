"""The priority of helper processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from specrace.ui.helper.priority import DEFAULT, NICENESS

PRINT = "import os; from specrace.ui.helper.priority import lower_priority; lower_priority(); print(os.nice(0))"


@pytest.mark.parametrize(("given", "added"), [(None, DEFAULT), ("3", 3), ("no number", 0)])
def test_a_helper_has_a_low_priority_unless_the_environment_says_otherwise(given: str | None, added: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != NICENESS}
    environment |= {} if given is None else {NICENESS: given}
    done = subprocess.run([sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(os.nice(0) + added, 19)
