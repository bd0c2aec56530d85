"""A GGUF file that was named as a model: converted once, into a folder in the user's cache."""

from __future__ import annotations

import json
import shutil

from specrace.core.errors import InputError
from specrace.model.weights.gguf import GGUF, check_readers, check_split, convert
from specrace.model.weights.gguf_header import read_header
from specrace.model.weights.gguf_names import ORIGIN, GgufFile
from specrace.model.weights.hub import fetch_file
from specrace.model.weights.names import is_complete
from specrace.model.weights.storage import (
    CACHE_VARIABLE,
    SPARE_BYTES,
    OnProgress,
    check_memory,
    check_space,
    work_folder,
    writing,
)


def expand(gguf: GgufFile, on_progress: OnProgress) -> None:
    """Convert a GGUF file to a folder in the user's cache; one of the hub is fetched first. Raises InputError."""
    folder = gguf.folder
    if folder is None:
        raise InputError(f"{gguf.stem} cannot be stored: there is no home folder; set XDG_CACHE_HOME to a folder.")
    check_readers()
    file = gguf.path or fetch_file(gguf, on_progress)
    on_progress("reading", 0, 0)
    header = read_header(file)
    with writing(folder, on_progress):
        if is_complete(folder):
            return
        work = work_folder(folder)
        # A conversion that was killed may have left files there.
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        # 16-bit weights and a tokenizer.
        check_space(work, 2 * header.parameters + SPARE_BYTES, CACHE_VARIABLE)
        check_memory(file.name, header.parameters)
        (work / GGUF).symlink_to(file.resolve())
        convert(work, lambda stage: on_progress(stage, 0, 0))
        check_split(work, header, file.name)
        (work / ORIGIN).write_text(json.dumps({"name": gguf.stem, "quantization": header.quantization}))
        # If the folder exists, it is incomplete.
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
