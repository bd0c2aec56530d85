"""The server's bounds and routes that the scripts use, written once into the page (`static/lib/constants.js`)."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass

from specrace.core.metrics import MAX_PER_TAU
from specrace.core.settings import MAX_PAGE_LANES, MAX_QUESTION_CHARACTERS, SETTINGS
from specrace.ui.server.guard import ADVICE, AUDIENCE, EXPORT, LOGS, POLL_STATE, POLL_VOTE, RACE, RECORDING, SHARED
from specrace.ui.visitor_limits import MAX_UPLOAD_BYTES, MAX_UPLOAD_FILES
from specrace.views.colours import HUES
from specrace.views.frames import ACCEPTED_SHOWN, REJECTED_SHOWN
from specrace.views.recording_check import PAGE_LIMITS


@dataclass(frozen=True)
class Routes:
    """Routes relative to the page, which a proxy may serve below a path."""

    race: str = RACE[1:]
    recording: str = RECORDING[1:]
    shared: str = SHARED[1:]
    export: str = EXPORT[1:]
    logs: str = LOGS[1:]
    advice: str = ADVICE[1:]
    audience: str = AUDIENCE[1:]
    # Below the route of a poll.
    poll_state: str = POLL_STATE
    poll_vote: str = POLL_VOTE


@dataclass(frozen=True)
class Constants:
    """What the scripts know of the server before a race. `network_origin` is its URL on its network, or "".

    `share_hours`: for how long it keeps a race under a short link; 0: it keeps none.
    """

    network_origin: str = ""
    share_hours: int = 0
    routes: Routes = Routes()
    max_documents: int = MAX_UPLOAD_FILES
    max_document_bytes: int = MAX_UPLOAD_BYTES
    max_recording_bytes: int = PAGE_LIMITS.size
    max_question_characters: int = MAX_QUESTION_CHARACTERS
    max_new_tokens: int = SETTINGS["max_new_tokens"].default
    accepted_shown: int = ACCEPTED_SHOWN
    rejected_shown: int = REJECTED_SHOWN
    max_lanes: int = MAX_PAGE_LANES
    # A speedup of more than this times the tokens per step (tau) is a fault of the measurement.
    max_speedup_per_tau: float = MAX_PER_TAU
    # The number of the colour of a lane that is not in the registry.
    other_hue: int = len(HUES) - 1

    def tag(self) -> str:
        """The HTML element that holds the constants as JSON."""
        return f'<meta name="specrace-constants" content="{html.escape(json.dumps(asdict(self)))}">'
