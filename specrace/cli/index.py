"""`python -m specrace index`: writes passages and vectors of many documents to disk, for --index."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from specrace.cli.shared.arguments import DEVICES, DEVICES_HELP, add_json_argument
from specrace.cli.shared.terminal import complain, console, print_json, quiet_model_library
from specrace.core.errors import InputError
from specrace.core.settings import Setting
from specrace.retrieval.build import Split, add_to_index, build_index, require_absent
from specrace.retrieval.documents import stream_documents
from specrace.retrieval.embedder import DEFAULT_EMBEDDER, SentenceEmbedder, load_embedder
from specrace.retrieval.limits import INDEXING
from specrace.retrieval.passages import split_by_tokens, split_passages
from specrace.retrieval.store import IndexHeader, read_header
from specrace.retrieval.token_limits import TokenLimit

# The last two values are the bounds: guesses, since the embedder's own limit is checked, too.
PASSAGE_TOKENS = Setting("passage_tokens", None, "--passage-tokens", "maximum length of a passage, in tokens", 32, 8192)
OVERLAP = Setting("overlap", 0, "--overlap", "tokens that two passages share, in whole sentences", 0, 4096)


def add_parser(commands: Any) -> None:
    """Add `index` and its arguments to the subparsers `commands`."""
    parser = commands.add_parser("index", help="write an index of many documents to disk, for --index")
    parser.add_argument("documents", type=Path, nargs="+", metavar="DIR_OR_FILE", help="files or folders")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="INDEX",
        help="the index's folder, which appears when the index is complete",
    )
    parser.add_argument(
        "--add",
        action="store_true",
        help="add the documents that the index in --out lacks; a document that changed is added, and the old one stays",
    )
    parser.add_argument("--embedder", metavar="NAME", help="a folder, a hub id, or bge-m3; default: MiniLM")
    passage_help = f"{PASSAGE_TOKENS.help} ({PASSAGE_TOKENS.range()}: paragraphs of up to 110 words)"
    parser.add_argument("--passage-tokens", metavar="N", help=passage_help)
    parser.add_argument("--overlap", default=0, metavar="N", help=f"{OVERLAP.help} ({OVERLAP.range()}; default 0)")
    parser.add_argument("--device", default="cpu", choices=DEVICES, help=DEVICES_HELP)
    add_json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Index the documents, and print how many there are. Raises InputError."""
    header = _choose_header(options)
    quiet_model_library()
    stderr = console(stderr=True)
    stderr.quiet = options.json

    def show_progress(message: str) -> None:
        stderr.print(f"{message} ...", style="dim")

    show_progress("Loading the embedder")
    embedder = load_embedder(header.embedder, device=None if options.device == "auto" else options.device)
    split, start = _splitter(header, embedder), time.perf_counter()
    documents = stream_documents(
        options.documents, on_skip=lambda sentence: complain(f"Left out: {sentence}"), limits=INDEXING
    )
    build = add_to_index if options.add else partial(build_index, header=header)
    header = build(documents, embedder, options.out, split, on_progress=show_progress)
    seconds = time.perf_counter() - start
    if options.json:
        print_json({**asdict(header), "seconds": seconds})
    else:
        counts = f"{header.documents:,} documents, {header.passages:,} passages"
        console().print(f"{options.out}: {counts}, {header.describe()}; {seconds:.1f} s.")
    return 0


def _choose_header(options: argparse.Namespace) -> IndexHeader:
    """The header of the index to add to, or a new header with the embedder and passage sizes. Raises InputError."""
    tokens, overlap = PASSAGE_TOKENS.check(options.passage_tokens), OVERLAP.check(options.overlap)
    if options.add:
        if options.embedder or tokens or overlap:
            raise InputError("An index keeps its settings: leave out --embedder, --passage-tokens and --overlap.")
        return read_header(options.out)
    require_absent(options.out)
    if overlap and overlap >= (tokens or 0):
        raise InputError(f"--overlap is {overlap}; give less than --passage-tokens.")
    name = options.embedder or DEFAULT_EMBEDDER
    # An absolute path: the index may be used from another folder.
    name = str(Path(name).resolve()) if Path(name).exists() else name
    return IndexHeader(embedder=name, passage_tokens=tokens or 0, overlap=overlap)


def _splitter(header: IndexHeader, embedder: SentenceEmbedder) -> Split:
    """The function that splits documents for the index. Raises InputError for passages too long for the embedder."""
    max_tokens = header.passage_tokens
    # 0: passages are paragraphs.
    if not max_tokens:
        limits = [TokenLimit(embedder.count_weighted_tokens, embedder.max_text_tokens)]
        return partial(split_passages, limits=limits)
    if max_tokens > embedder.max_tokens:
        raise InputError(f"--passage-tokens is {max_tokens}, but the embedder reads {embedder.max_tokens} at most.")
    return partial(split_by_tokens, count=embedder.count_tokens, max_tokens=max_tokens, overlap=header.overlap)
