"""Telemetry for operators, over loopback: health, metrics, and a log without visitors' text."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specrace.cli import app as app_command
from specrace.ui.races.worker import Worker
from specrace.ui.server.http_server import EVENTS, JsonFormatter
from specrace.ui.server.telemetry import OUTCOMES
from tests.ui.races.test_stream import WORKBENCH, short_race
from tests.ui.served import Served, read_until, serving
from tests.ui.test_front_door import refusal
from tests.ui.waiting import LONG_S

SECRET = "the visitor's own words"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as app:
        yield app


def read_metrics(app: Served) -> dict[str, float]:
    """Return the metrics' values by name; a sample with labels is named "name label ..."."""
    text = app.ask("GET", "/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


def test_health_reports_the_workers_state() -> None:
    loading_worker, failing_worker = Worker(lambda _: WORKBENCH), Worker(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert loading_worker.state == "loading"
    loading_worker.start()
    failing_worker.start()
    assert all(worker.queue.submit("a", short_race).wait(LONG_S) for worker in (loading_worker, failing_worker))
    assert (loading_worker.state, failing_worker.state) == ("ready", "failed")
    loading_worker.close()
    assert loading_worker.state == "closing"


def test_health_is_public_but_checks_the_host(served: Served) -> None:
    answer = served.ask("GET", "/healthz")
    assert answer.status == 200 and answer.json() == {"status": "ready"}
    assert served.ask("GET", "/healthz", Host="evil.example").status == 400


def test_metrics_count_races_tokens_steps_and_uploads(served: Served) -> None:
    before = read_metrics(served)
    served.upload({"a.md": b"A.", "b.md": b"B."})
    assert "no lane" in served.race(Lanes=[SECRET]).lower()
    with served.watching(served.race()["key"]) as frames:
        read_until(frames, b"step")
    assert served.workbench.ended.wait(LONG_S)
    worker = served.worker
    assert worker is not None
    last = worker.queue.submit("b", short_race)
    assert last.wait(LONG_S)
    after = read_metrics(served)
    increase = {name: value - before.get(name, 0.0) for name, value in after.items()}
    races = {name: increase[f"specrace_races_total {name}"] for name in OUTCOMES}
    assert races == {"finished": 1, "stopped": 1, "refused": 1, "failed": 0}
    # The results of the stopped and of the finished race have one token and one step each.
    assert increase["specrace_output_tokens_total vanilla"] == increase["specrace_steps_total vanilla"] == 2
    assert increase["specrace_uploaded_files_total"] == 2 and after["specrace_queue_length"] == 0
    assert after["process_resident_memory_bytes"] > 1e6


def test_metrics_show_the_queue() -> None:
    worker = Worker(lambda _: WORKBENCH)
    jobs = [worker.queue.submit(name, short_race) for name in "abc"]
    registry = worker.telemetry.registry
    assert registry.get_sample_value("specrace_queue_length") == 3
    worker.start()
    assert all(job.wait(LONG_S) for job in jobs)
    assert registry.get_sample_value("specrace_queue_length") == 0


def test_each_server_has_its_own_counters() -> None:
    first, second = Worker(lambda _: WORKBENCH), Worker(lambda _: WORKBENCH)
    first.telemetry.uploaded(3)
    assert second.telemetry.registry.get_sample_value("specrace_uploaded_files_total") == 0


@pytest.mark.parametrize("name", ["X_Forwarded_For", "Forwarded"])
def test_metrics_are_local_only_and_refuse_proxied_requests(served: Served, name: str) -> None:
    """A proxy on this machine would make anyone's requests look local."""
    assert served.ask("GET", "/metrics").status == 200
    answer = served.ask("GET", "/metrics", **{name: "127.0.0.1"})
    assert answer.status == 403 and "specrace_races" not in answer.text


def test_metrics_can_be_opened_to_named_networks() -> None:
    with serving("--metrics", "192.0.2.0/24") as app:
        assert app.ask("GET", "/metrics").status == 403


def test_metrics_contain_no_visitor_data(served: Served) -> None:
    served.upload({f"{SECRET}.md": SECRET.encode()})
    served.race("some-session", Question=SECRET)
    served.race(Lanes=[SECRET])
    text = served.ask("GET", "/metrics").text
    assert SECRET not in text and "some-session" not in text and "127.0.0.1" not in text
    # Nobody watches the race of "some-session". Without this stop its end would appear in the next test's log.
    assert served.worker is not None
    served.worker.queue.stop("some-session")
    assert served.worker.queue.submit("b", short_race).wait(LONG_S)


def test_the_json_log_has_a_line_per_event_and_no_visitor_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler, logger = logging.StreamHandler(), logging.getLogger(EVENTS)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with serving() as app:
            app.upload({f"{SECRET}.md": SECRET.encode()})
            app.race(Lanes=[SECRET])
            with app.watching(app.race("some-session", Question=SECRET)["key"]) as frames:
                read_until(frames, b"step")
            assert app.worker is not None and app.worker.queue.submit("b", short_race).wait(LONG_S)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == [
        "upload", "race refused", "race began", "race ended", "race began", "race ended",
    ]  # fmt: skip
    assert [line.get("outcome") for line in lines] == [None, None, None, "stopped", None, "finished"]
    assert lines[0]["files"] == 1 and lines[2]["lanes"] == ["vanilla"]
    assert lines[-1]["lanes"] == {"vanilla": {"tokens": 1, "steps": 1}} and lines[-1]["seconds"] >= 0
    assert SECRET not in text and "some-session" not in text and "127.0.0.1" not in text


def test_a_failure_is_logged_without_its_message() -> None:
    try:
        raise KeyError(SECRET)
    except KeyError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "an event failed", (), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert line["event"] == "an event failed" and line["level"] == "error"
    assert "test_telemetry.py" in line["trace"] and SECRET not in str(line)


def test_the_log_is_text_by_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SPECRACE_LOG", raising=False)
    assert app_command.parse([]).log == "text"
    monkeypatch.setenv("SPECRACE_LOG", "json")
    assert app_command.parse([]).log == "json" and app_command.parse(["--log", "text"]).log == "text"
    assert "--log" in refusal(["--log", "xml"], capsys)
