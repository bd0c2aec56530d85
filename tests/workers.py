"""A pytest plugin, `-p tests.workers --workers N`: one process collects the tests, and N forks of it run them.

xdist starts its processes from nothing: each imports the libraries and collects all tests again, which takes 15 s of
processor time. A fork has the imported libraries and the collected tests from the start.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

from tests.schedule import Schedule


@dataclass
class Worker:
    """A process that runs tests, as the collecting process sees it."""

    process: multiprocessing.process.BaseProcess
    connection: Connection
    # Whether the process may run further groups of tests after its first.
    may_take_more: bool
    # The positions of the tests that the process has been given and has not begun, in order.
    waiting: list[int] = field(default_factory=list)
    running: int | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, help="run the tests in this many forks of this process")


def pytest_configure() -> None:
    """Make torch count GPUs without initializing CUDA, which no fork could use after that."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in forks; without `--workers`, or after collection errors, leave them to pytest."""
    options = session.config.option
    if not options.workers or options.usepdb or options.collectonly or session.testsfailed:
        return None
    ForkedRun(session).finish()
    return True


class ForkedRun:
    """Forks of this process, which run the tests that it has collected."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._hook = session, session.config.hook
        self._schedule, self._workers, self._num_started = Schedule(session.items), list[Worker](), 0
        # The forks need a folder for their own folders.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        # Each fork captures its own output; this process runs no test.
        session.config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        # A fork copies each page in which a collection of garbage marks an object.
        gc.collect()
        gc.freeze()

    def finish(self) -> None:
        """Run all tests. Raises Session.Failed or Session.Interrupted if pytest says that the run should end early."""
        try:
            while self._schedule or self._workers:
                while self._schedule and len(self._workers) < self._session.config.option.workers:
                    self._start()
                ready = wait([worker.connection for worker in self._workers])
                for worker in [worker for worker in self._workers if worker.connection in ready]:
                    self._listen(worker)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for worker in self._workers:
                worker.process.terminate()

    def _start(self) -> None:
        """Fork a worker that runs the next group."""
        positions, may_take_more = self._schedule.first_group()
        our_end, forks_end = multiprocessing.Pipe()
        self._num_started += 1
        # If a fork kept the connections of other workers, these would not notice that this process has ended.
        inherited = [our_end, *(worker.connection for worker in self._workers)]
        arguments = (self._session, f"worker-{self._num_started}", positions, forks_end, inherited)
        process = multiprocessing.get_context("fork").Process(target=_work, args=arguments)
        process.start()
        forks_end.close()
        self._workers.append(Worker(process, our_end, may_take_more, [*positions]))

    def _listen(self, worker: Worker) -> None:
        """Handle one message of a worker, or its end."""
        try:
            message = worker.connection.recv()
        except EOFError:
            self._end(worker)
            return
        if message is None:
            next_group = self._schedule.next_group() if worker.may_take_more else []
            worker.waiting += next_group
            worker.connection.send(next_group)
        elif isinstance(message, int):
            worker.running = message
            worker.waiting.remove(message)
        else:
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=message)
            self._hook.pytest_runtest_logreport(report=report)

    def _end(self, worker: Worker) -> None:
        """Report a test that ended its process as failed; other workers run the tests that this one has not begun."""
        worker.process.join()
        self._workers.remove(worker)
        if worker.process.exitcode and worker.running is not None:
            item = self._session.items[worker.running]
            words = f"the process ended with code {worker.process.exitcode} during or after this test"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
            self._hook.pytest_runtest_logreport(report=report)
        if worker.waiting:
            self._schedule.put_back(worker.waiting, may_take_more=worker.may_take_more)


class Reporter:
    """Sends the reports of a fork's tests to the process that collected them."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report; pytest calls this."""
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _work(
    session: pytest.Session, name: str, positions: list[int], connection: Connection, inherited: Sequence[Connection]
) -> None:
    """Run tests in this fork: those at `positions`, then those that the collecting process sends when asked."""
    for unused in inherited:
        unused.close()
    config: Any = session.config
    plugins = config.pluginmanager
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(Reporter(config, connection))
    plugins.getplugin("capturemanager").start_global_capturing()
    folder = config._tmp_path_factory.getbasetemp() / name
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder
    while positions and not session.shouldfail and not session.shouldstop:
        position = positions.pop(0)
        connection.send(position)
        if not positions:
            # Ask for more before the last test runs: pytest keeps the fixtures that the next test uses, too.
            connection.send(None)
            positions = connection.recv()
        next_item = session.items[positions[0]] if positions else None
        config.hook.pytest_runtest_protocol(item=session.items[position], nextitem=next_item)
