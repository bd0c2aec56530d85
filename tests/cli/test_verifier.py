"""The choice of the verifier on the command line and on the page."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.cli.main import build_parser, main
from specrace.cli.shared.arguments import race_spec
from specrace.core.errors import InputError
from specrace.ui.races.race_request import parse_request


def test_the_command_line_chooses_the_verifier() -> None:
    command = ["race", "Why?", "--temperature", "0.8", "--verifier", "rejection"]
    assert race_spec(build_parser().parse_args(command)).verifier == "rejection"
    assert race_spec(build_parser().parse_args(command[:2])).verifier == "match"


def test_rejection_without_a_temperature_prints_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["race", "Why?", "--verifier", "rejection"]) == 2
    captured = capsys.readouterr()
    assert not captured.out and captured.err.count("\n") == 1 and "temperature above 0" in captured.err


def test_the_page_chooses_the_verifier() -> None:
    request = parse_request("Why?", ["trigram"], {"temperature": 0.5, "verifier": "rejection"})
    assert request.race.spec.verifier == "rejection"
    assert parse_request("Why?", ["trigram"], {}).race.spec.verifier == "match"


@pytest.mark.parametrize("value", [None, 3, ["rejection"], "x" * 5000, "Match"])
def test_an_unknown_verifier_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="give match or rejection") as caught:
        parse_request("Why?", ["trigram"], {"temperature": 0.5, "verifier": value})
    assert len(str(caught.value)) < 200
