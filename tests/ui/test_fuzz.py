"""A few of the hostile requests of `python -m tests.measure.fuzz`, and a check that it detects failures."""

from __future__ import annotations

from specrace.ui.helper.process import OUR_FAULT
from tests.measure.fuzz import APP_ARGUMENTS, SECRET, Exchange, Fuzzer
from tests.ui.served import serving


def test_hostile_requests_get_clear_answers_and_the_server_keeps_running() -> None:
    with serving(*APP_ARGUMENTS) as app:
        fuzzer = Fuzzer(app, seed=3)
        fuzzer.run(120)
        # It complains about failures, and about text of another visitor (SECRET), in an answer.
        assert fuzzer.complaints == []
        assert len(fuzzer.routes) > 60 and fuzzer.statuses[200] and fuzzer.statuses[400] and fuzzer.statuses[404]
        for failure in (
            Exchange("GET", "/a", b"", 500, b"Internal Server Error"),
            Exchange("GET", "/a", b"", 200, f"so {SECRET}".encode()),
            Exchange("GET", "/a", b"", 404, b"Traceback (most recent call last)"),
            Exchange("GET", "/a", b"", 500, f'{{"error":"{OUR_FAULT}"}}'.encode()),
        ):
            fuzzer.judge(failure)
        fuzzer.judge(Exchange("GET", "/a", b"", 507, b"The server has no room for files; try again later."))
        # One for each of the four; a full disk is a clear answer.
        assert len(fuzzer.complaints) == 4
