"""The large recordings that ship pass the checks of the small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.views import test_recording_check as checks


@pytest.mark.parametrize("path", checks.LARGE, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "test", [checks.test_bundled_recordings_pass, checks.test_control_tokens_are_hidden_in_drafts_and_notes]
)
def test_a_large_recording_passes(test, path: Path) -> None:
    test(path)
