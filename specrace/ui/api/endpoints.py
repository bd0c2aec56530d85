"""The endpoints that programs and agents call: race, retrieve, score and recommend."""

from __future__ import annotations

import inspect

import gradio as gr

from specrace.drafters import METHODS
from specrace.lab.scoring.score import scorable_lanes
from specrace.ui.api.log_endpoints import LogEndpoints
from specrace.ui.api.race_endpoints import RaceEndpoints
from specrace.ui.api.schema import RESULT, schema
from specrace.ui.races.backend import Backend


def add_endpoints(page: gr.Blocks, backend: Backend) -> None:
    """Add the endpoints to `page`, and to their schemas what Gradio cannot derive from the signatures."""
    races, logs = RaceEndpoints(backend), LogEndpoints(backend)
    for function in (races.race, races.retrieve, logs.score, logs.recommend):
        gr.api(function, concurrency_limit=None)
        # The endpoint that `gr.api` has just added.
        added = page.fns[max(page.fns)]
        names = [name for name in inspect.signature(function).parameters if name != "request"]
        lanes = scorable_lanes() if function == logs.score else tuple(METHODS)
        for name, component in zip(names, added.inputs, strict=True):
            component.label, component._api_info = name, schema(name, component._api_info, lanes)
            if name == "max_new_tokens":
                component._api_info["maximum"] = backend.visitors.limits.race_tokens
        is_list = function == races.retrieve
        added.outputs[0].label = "passages" if is_list else "result"
        added.outputs[0]._api_info = {"type": "array", "items": RESULT} if is_list else RESULT
