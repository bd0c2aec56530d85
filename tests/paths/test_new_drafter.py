"""A new drafter, registered by one line: models decode with it, and the page and the command line list it."""

from __future__ import annotations

import json

import pytest

from specrace.cli.main import main
from specrace.drafters import METHODS
from specrace.ui.page.page import build_page
from specrace.ui.races.backend import Backend
from specrace.ui.races.race_request import parse_request
from specrace.ui.races.worker import Worker
from tests.drafters.test_new_drafter import ECHO
from tests.models import ARCHITECTURES
from tests.parts import inputs, run_lane
from tests.paths import test_lossless as lossless


@pytest.fixture(autouse=True)
def register_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the drafter `echo` to the registry."""
    monkeypatch.setitem(METHODS, "echo", ECHO)


@pytest.mark.parametrize("params", lossless.SAMPLING.values(), ids=lossless.SAMPLING)
def test_the_new_drafter_is_lossless_on_every_architecture(params) -> None:
    accepted = 0
    for name in ARCHITECTURES:
        target = lossless.target_of(name)
        for prompt in lossless.prompts_of(name, 2):
            prefix = target.prefill(prompt)
            drafter = METHODS["echo"].build(inputs(prompt))
            lane = run_lane(target, prefix, prompt, drafter, params=params, eos_ids=lossless.NO_END)
            assert lane.tokens == lossless.vanilla(target, prefix, prompt, params)
            accepted += len(lane.tokens) - lane.num_steps
    assert accepted > 0


def test_the_page_lists_the_new_drafter() -> None:
    worker = Worker(lambda _: pytest.fail("nothing loads before the worker starts"))
    page = build_page(Backend.of(worker), ["Why?"])
    components = page.get_config_file()["components"]
    lanes = next(component["props"] for component in components if component["props"].get("label") == "Lanes")
    assert ["Echo", "echo"] in [list(choice) for choice in lanes["choices"]]
    methods = [
        component["props"]["props"]["methods"]
        for component in components
        if "methods" in str(component["props"].get("props"))
    ]
    assert [method["title"] for method in methods[0]][-1] == "Echo" and len(methods[0]) == len(METHODS)
    assert parse_request("Why?", ["echo", "trie"], {}).race.spec.lanes == ("vanilla", "trie", "echo")


def test_the_command_line_lists_the_new_drafter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lanes", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["lanes"][-1]
    assert (row["lane"], row["options"][0]["name"], row["options"][0]["high"]) == ("echo", "echo.rounds", 9)
