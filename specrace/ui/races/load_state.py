"""The loading of the server's workbench (a model, documents and their retriever): its progress and its result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from specrace.core.errors import InputError, lacks_memory
from specrace.ui.helper.process import OUR_FAULT

if TYPE_CHECKING:
    from specrace.core.cost_curve import CostCurve
    from specrace.workbench import Workbench

TOO_LARGE = "The server has too little memory to load model and documents; start it with smaller ones."

# Loads the workbench. Calls its argument with lines about the progress and, last, a line about what it loaded.
Load = Callable[[Callable[[str], None]], "Workbench"]

log = logging.getLogger(__name__)


class LoadState:
    """The workbench that `load` returns, or the reason why there is none.

    `status` is the latest line about the loading. `workbench` is None until it is loaded. `failure` is a sentence if it
    cannot be loaded, otherwise "".
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self.status = "Starting"
        self.failure = ""
        self.workbench: Workbench | None = None

    @property
    def settled(self) -> bool:
        """Whether loading has ended, with success or not."""
        return self.workbench is not None or bool(self.failure)

    def measured_curve(self) -> CostCurve | None:
        """The cost curve that was measured on this machine; None if it was not measured, or while loading."""
        return None if self.workbench is None else self.workbench.curve

    def run(self) -> None:
        """Load the workbench on the caller's thread. Raises nothing: `failure` says what went wrong."""
        try:
            self.workbench = self._load(self._set_status)
        except InputError as error:
            self.failure = self.status = str(error)
        except Exception as error:  # the page stays up and shows that there is no model
            log.exception("loading failed")
            self.failure = self.status = TOO_LARGE if lacks_memory(error) else OUR_FAULT

    def _set_status(self, message: str) -> None:
        self.status = message
