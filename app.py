"""The front door: `python app.py` serves the page at once and loads the model behind it."""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from specrace.cli.arguments import under_torchrun
from specrace.core.errors import InputError
from specrace.retrieval.documents import read_documents

if TYPE_CHECKING:
    from specrace.workbench import Workbench

HOME = Path(__file__).resolve().parent
BUNDLED_MODEL = HOME / "assets" / "tiny"
CORPUS = HOME / "corpus"
QUESTIONS = HOME / "assets" / "questions.jsonl"
RECORDINGS = HOME / "assets" / "recordings"
DTYPES = ("float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda", "auto")
MAX_THREADS = 1024
FIRST_QUESTIONS = (
    "What is the n-gram trie built from?",
    "Explain how Jacobi decoding works.",
    "Why does bread rise?",
    "What causes the tides?",
)


class Parser(argparse.ArgumentParser):
    """Unlike argparse's own, an error is one sentence."""

    def error(self, message: str) -> NoReturn:
        """Leave with code 2."""
        self.exit(2, f"{message[:1].upper()}{message[1:]}; see python app.py --help.\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, checked as far as that takes no model. Raises InputError for what cannot be used."""
    parser = Parser(prog="app.py", description="Race draft-and-verify decoders on your documents, on a page.")
    parser.add_argument("--model", default=str(BUNDLED_MODEL), help="a folder or a hub id; default: the bundled model")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="a folder of .md and .txt files")
    parser.add_argument("--host", help="the address to serve on; default: this machine only")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    parser.add_argument("--draft-model", help="for the lane draft-model: a smaller model with the same vocabulary")
    parser.add_argument(
        "--keep-outputs",
        action="store_true",
        help="fusion and suffix decoding (and recycling with recycling.warm) also draft from the answers to other "
        "questions of the sitting",
    )
    parser.add_argument("--device", default="cpu", choices=DEVICES, help="auto: the GPU, or all of several")
    parser.add_argument("--threads", type=int, help="of a CPU's forwards; default: leave a processor for the page")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--replay", type=Path, metavar="FILE.jsonl", help="only play a recorded race; loads no model")
    options = parser.parse_args(arguments)
    if under_torchrun():
        raise InputError("The page runs in one process: start it without torchrun; --device auto takes all GPUs.")
    if options.threads is not None and not 1 <= options.threads <= MAX_THREADS:
        raise InputError(f"--threads is {options.threads}; give 1 to {MAX_THREADS}.")
    if options.replay is not None:
        check_port(options.host, options.port)
        return options
    check_model(options.model)
    if options.draft_model is not None:
        check_model(options.draft_model)
    check_corpus(options.corpus)
    check_port(options.host, options.port)
    return options


def check_model(name: str) -> None:
    """Raises InputError for a path that holds no model; a hub id is looked up when it is loaded."""
    path = Path(name)
    looks_like_path = path.is_absolute() or name.startswith(".") or name.count("/") > 1
    if (path.exists() or looks_like_path) and not (path / "config.json").is_file():
        raise InputError(f"There is no model at {name}; give a folder with config.json, or a hub id.")


def check_corpus(folder: Path) -> None:
    """Raises InputError for documents that cannot be read."""
    read_documents([folder])


def check_port(host: str | None, port: int | None) -> None:
    """Raises InputError for an address that cannot be served on."""
    if port is None and host is None:
        return
    if port is not None and not 1 <= port <= 65535:
        raise InputError(f"The port is {port}; give one from 1 to 65535.")
    try:
        found = socket.getaddrinfo(host or "127.0.0.1", port or 0, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        where = f"{host or '127.0.0.1'}:{port}" if port else str(host)
        raise InputError(f"{where} cannot be served on ({error.strerror}); give another --port or --host.") from error


def loader(options: argparse.Namespace) -> Callable[[Callable[[str], None]], Workbench]:
    """What the worker runs first. It brings torch, so it is not imported before the page is up."""

    def load(report: Callable[[str], None]) -> Workbench:
        report("Loading the model")
        import transformers.utils.logging

        from specrace.model.target import use_processors
        from specrace.workbench import Workbench

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        # One processor is for the page, and for a browser on this machine.
        use_processors(options.threads, spare=1)
        bench = Workbench.open(
            model=options.model,
            documents=[options.corpus],
            device=options.device,
            dtype=options.dtype,
            draft_model=options.draft_model,
            keep_outputs=options.keep_outputs,
            report=report,
        )
        report(describe(bench))
        return bench

    return load


def describe(bench: Workbench) -> str:
    """The model and the documents in a few words."""
    about = bench.target.describe()
    return f"Ready: {about['model']}, {about['dtype']}, {about['device']}, {bench.num_passages} passages"


def offered_models(options: argparse.Namespace) -> dict[str, str | Path]:
    """What a visitor may choose: the model that was given, and those that ship with the repository."""
    shipped = {path.parent.name: path.parent for path in sorted((HOME / "assets").glob("*/config.json"))}
    return {Path(options.model).name if Path(options.model).exists() else options.model: options.model, **shipped}


def example_questions(options: argparse.Namespace) -> list[str]:
    """Questions that our own documents answer; none for another corpus."""
    if options.corpus.resolve() != CORPUS or not QUESTIONS.is_file():
        return []
    lines = QUESTIONS.read_text(encoding="utf-8").splitlines()
    known = [json.loads(line)["question"] for line in lines if line.strip()]
    first = [question for question in FIRST_QUESTIONS if question in known]
    return first + [question for question in known if question not in first]


def serve(options: argparse.Namespace) -> None:
    """Serve the page until it is interrupted."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    if all(Path(name).exists() for name in (options.model, options.draft_model) if name is not None):
        os.environ["HF_HUB_OFFLINE"] = "1"
    from specrace.ui.gallery import Gallery, read_recording
    from specrace.ui.models import Models
    from specrace.ui.page import build_page, build_replay, launch_options
    from specrace.ui.worker import Worker

    where = {"server_name": options.host, "server_port": options.port, "prevent_thread_lock": True}
    if options.replay is not None:
        read_recording(options.replay)
        page = build_replay(Gallery([options.replay]))
        page.launch(**where, **launch_options())
    else:
        worker = Worker(loader(options))
        models = Models(options.model, offered_models(options), DTYPES)
        page = build_page(worker, example_questions(options), Gallery.in_folder(RECORDINGS), models)
        page.launch(**where, **launch_options(worker))
        worker.start()
    page.block_thread()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 and one sentence for bad input."""
    logging.basicConfig(level=logging.WARNING)
    try:
        serve(parse(arguments))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
