"""The configuration of the page's server. The command line makes it once, from checked arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.model.weights.source import ModelChoice, choose_model
from specrace.retrieval.rerank import LIGHT
from specrace.ui.races.named_servers import NamedServers
from specrace.ui.server.visitors import THIS_MACHINE
from specrace.ui.visitor_limits import VisitorLimits

# The precisions of weights that visitors may choose.
DTYPES = ("float32", "bfloat16", "float16", "int8")


@dataclass(frozen=True)
class ServerConfig:
    """A server of the page: what it races on, where it is served, and to whom.

    `model` may have to be fetched first. `is_default_model`: the user named none, so the bundled model may replace it.
    `model_to_fetch`: the short name of a model to fetch in the background. `models`: the folders or hub ids of further
    models on offer; None for the bundled ones. `offline`: the user's value of HF_HUB_OFFLINE. `settings`: a settings
    file that `recommend` wrote. `servers`: running engines beside which visitors may race. `replay`: recordings to
    play, without a model. `metrics`: addresses and networks that may read /metrics. `keep_shares`: the hours for which
    a race is kept under a short link; 0: no race is kept. `corpus`: documents, unless there is an `index`.
    `keep_outputs`: drafters may learn from earlier answers. `mcp`: agents may call the API's endpoints as MCP tools.
    The other fields are flags of the command line.
    """

    model: ModelChoice = field(default_factory=partial(choose_model, BUNDLED_MODEL))
    is_default_model: bool = False
    model_to_fetch: str | None = None
    models: Sequence[str] | None = None
    threads: int | None = None
    no_fetch: bool = False
    offline: str = ""
    corpus: Path = CORPUS
    index: Path | None = None
    reranker: str = LIGHT
    keep_outputs: bool = False
    settings: Mapping[str, Any] | None = None
    servers: NamedServers = field(default_factory=NamedServers)
    replay: Sequence[Path] | None = None
    host: str | None = None
    port: int | None = None
    allowed_hosts: Sequence[str] = ()
    root_path: str = ""
    frame_ancestors: Sequence[str] = ()
    proxies: Sequence[str] = ()
    metrics: Sequence[str] = THIS_MACHINE
    log: str = "text"
    # USER:PASSWORD to sign in with; no message may show it.
    auth: str | None = field(default=None, repr=False)
    keep_shares: int = 0
    limits: VisitorLimits = field(default_factory=VisitorLimits)
    mcp: bool = False
