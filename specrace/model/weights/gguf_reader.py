"""A GGUF file as a model: read and converted once to a Hugging Face folder with safetensors, in half a minute."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.model.weights.gguf_header import SPLITS, GgufHeader, read_header
from specrace.model.weights.hub import fetch_file
from specrace.model.weights.names import is_complete
from specrace.model.weights.source import ORIGIN, GgufFile
from specrace.model.weights.storage import (
    CACHE_VARIABLE,
    SPARE_BYTES,
    OnProgress,
    check_memory,
    check_space,
    work_folder,
    writing,
)

# The GGUF file's name in the folder, for engines that read GGUF; transformers looks for safetensors.
GGUF = "weights.gguf"
# The packages that transformers needs to read GGUF.
READERS = ("gguf", "accelerate")


def expand(gguf: GgufFile, on_progress: OnProgress) -> None:
    """Convert a GGUF file to a folder in the user's cache; a file on the hub is fetched first. Raises InputError."""
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
        _check_split(work, header, file.name)
        (work / ORIGIN).write_text(json.dumps({"name": gguf.stem, "quantization": header.quantization}))
        # If the folder exists, it is incomplete.
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)


def convert(folder: Path, on_stage: Callable[[str], object] = lambda _: None) -> None:
    """Write config, tokenizer and bfloat16 safetensors next to the GGUF file of `folder`. Raises InputError.

    `on_stage` is told what happens next: "converting", then "writing".
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    on_stage("converting")
    # The progress bars of reading and writing cannot be switched off.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            gguf_model = AutoModelForCausalLM.from_pretrained(
                folder, gguf_file=GGUF, dtype=torch.float32, local_files_only=True, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(
                folder, gguf_file=GGUF, local_files_only=True, trust_remote_code=False
            )
        except (ImportError, ValueError) as error:
            reason = shorten(str(error).partition("\n")[0])
            raise InputError(
                f"transformers does not read the GGUF file ({reason}); run: pip install -r requirements.txt."
            ) from error
        config = gguf_model.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        # transformers refuses to save a model that was read from GGUF, so its weights move to a new one.
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.load_state_dict(gguf_model.state_dict())
        model.generation_config = gguf_model.generation_config
        on_stage("writing")
        try:
            model.save_pretrained(folder)
        except SafetensorError as error:
            raise InputError(
                f"The converted weights cannot be written ({error}); make room, then try again."
            ) from error
        tokenizer.save_pretrained(folder)


def check_readers() -> None:
    """Raises InputError unless the packages that transformers needs to read GGUF are installed."""
    for package in READERS:
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The package {package} is missing; run: pip install -r requirements.txt.")


def _check_split(folder: Path, header: GgufHeader, name: str) -> None:
    """Raises InputError unless the converted tokenizer splits texts as the GGUF file says.

    Versions of transformers that do not know a rule's name take another rule, and the ids are then wrong.
    """
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    # In JSON, the backslashes of a regular expression are doubled.
    if SPLITS[header.split] not in json.dumps(tokenizer["pre_tokenizer"]).replace("\\\\", "\\"):
        raise InputError(
            f"{shorten(name)} splits texts as {header.split} does, which this version of transformers cannot; run: "
            "pip install --upgrade transformers."
        )
