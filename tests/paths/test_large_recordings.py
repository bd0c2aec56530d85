"""The large recordings that ship pass the checks of the small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.views import test_recording_check as small


@pytest.mark.parametrize("path", small.LARGE, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "test", [small.test_the_recordings_that_ship_pass, small.test_control_tokens_of_older_recordings_do_not_show]
)
def test_a_large_recording_passes(test, path: Path) -> None:
    test(path)
