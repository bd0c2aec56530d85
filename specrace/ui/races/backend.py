"""What the events, endpoints and routes of a racing page share: the worker, its models, and visitors' documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specrace.ui.helper.visit_workbenches import VisitWorkbenches
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.named_servers import NamedServers
from specrace.ui.races.race_request import VisitorRequest, parse_request
from specrace.ui.races.worker import Worker
from specrace.ui.server.visitors import Visitors


@dataclass(frozen=True)
class Backend:
    """The worker that races, the models on offer, what visitors have used of their limits, and their documents.

    `servers`: the operator's servers, beside which visitors may race.
    """

    worker: Worker
    models: ModelChoices
    visitors: Visitors
    workbenches: VisitWorkbenches
    servers: NamedServers = field(default_factory=NamedServers)

    @classmethod
    def of(
        cls,
        worker: Worker,
        models: ModelChoices | None = None,
        visitors: Visitors | None = None,
        servers: NamedServers | None = None,
    ) -> Backend:
        """A backend for a worker; no visitor has documents yet."""
        workbenches = VisitWorkbenches(worker.other_work.read_uploads)
        return cls(worker, models or ModelChoices(), visitors or Visitors(), workbenches, servers or NamedServers())

    def read_request(
        self,
        address: str | None,
        question: Any,
        lanes: Any,
        settings: Mapping[str, Any],
        options: Any,
        model: Any,
        dtype: Any,
        servers: Any = None,
        reference: Any = None,
    ) -> VisitorRequest:
        """Check the values of a race that a client at `address` sent (`parse_request`), and count the race.

        Raises InputError for a wrong value, for a model or a server that is not offered, or if the visitor is over a
        limit.
        """
        with self.worker.telemetry.refusals():
            request = parse_request(question, lanes, settings, options, model, dtype).with_options_in_names()
            self.models.check(request.model, request.dtype)
            chosen = self.servers.choose(servers, request.race.spec)
            request = replace(request, servers=chosen, reference=self.servers.choose_reference(reference, chosen))
            self.visitors.count_race(address, request.race.spec.max_new_tokens)
        return request
