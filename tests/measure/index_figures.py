"""The figures of a passage index: `python -m tests.measure.index_figures --passages 100000 [--vectors generated|real]`.

Builds an index of generated passages, opens it memory-mapped, and searches it. `generated` vectors are normalised sums
of random word vectors, where the words of a document belong to one topic; they have the default embedder's dimension.
`real` vectors are the default embedder's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np

from specrace.retrieval.build import RECALL_TOP, build_index, exact_best
from specrace.retrieval.documents import Document, stream_documents
from specrace.retrieval.embedder import Embedder, load_embedder
from specrace.retrieval.limits import INDEXING
from specrace.retrieval.passages import split_passages
from specrace.retrieval.rerank import CANDIDATES
from specrace.retrieval.store import IndexHeader, StoredIndex, stored_vectors
from tests.retrieval.words import WordEmbedder, generate_documents

QUERIES = 200
PASSAGES_PER_DOCUMENT = 50
# Maximum words of a passage, in generated documents and in real text. For generated documents, this number yields the
# requested number of passages.
GENERATED_WORDS, REAL_WORDS = 20, 110


def main() -> None:
    """Build the index, search it, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--vectors", choices=("generated", "real"), default="generated")
    parser.add_argument(
        "--docs", type=Path, nargs="+", help="documents to index instead of generated ones; with --vectors real"
    )
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    embedder: Embedder = load_embedder() if options.vectors == "real" else WordEmbedder(384)
    num_documents = math.ceil(options.passages / PASSAGES_PER_DOCUMENT)
    documents = (
        stream_documents(options.docs, limits=INDEXING)
        if options.docs
        else generate_documents(num_documents, PASSAGES_PER_DOCUMENT)
    )
    with tempfile.TemporaryDirectory() as folder:
        out, memory_before, began = Path(folder) / "index", memory_mb(), time.perf_counter()
        header = build_index(documents, embedder, out, small_passages, header=IndexHeader(), on_progress=print)
        figures = {
            "load": os.getloadavg()[0],
            "vectors": options.vectors,
            "index": header.describe(),
            "passages": header.passages,
        }
        figures |= {"build_s": time.perf_counter() - began, "memory_before_mb": memory_before}
        figures["memory_peak_mb"] = memory_mb()
        figures["disk_mb"] = sum(file.stat().st_size for file in out.iterdir()) / 1e6
        print(json.dumps(figures | search(out, embedder), indent=1))


def memory_mb() -> float:
    """The peak memory of this process so far, in MB of 2**20 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def small_passages(document: Document) -> list:
    """The passages of a document. Generated documents are split so that there are as many passages as requested."""
    # `generate_documents` names its documents so.
    is_generated = document.name.startswith("0-")
    return split_passages(document, max_words=GENERATED_WORDS if is_generated else REAL_WORDS)


def search(out: Path, embedder: Embedder) -> dict[str, float]:
    """Times (ms) of opening and of one search, and recall@5 against exact search; queries: six words of a passage."""
    began = time.perf_counter()
    stored = StoredIndex(out)
    index = stored.open(embedder)
    opened_ms = 1000 * (time.perf_counter() - began)
    rng = np.random.default_rng(2)
    texts = [index.passages[int(number)].text for number in rng.choice(len(index.passages), QUERIES)]
    queries = embedder.embed([" ".join(text.split()[2:8]) for text in texts])
    exact = exact_best(stored_vectors(out, stored.header), queries, RECALL_TOP)
    recalls, times = [], []
    for vector, best in zip(queries, exact, strict=True):
        began = time.perf_counter()
        hits = index.search(vector, CANDIDATES)
        times.append(1000 * (time.perf_counter() - began))
        recalls.append(len({number for number, _ in hits[:RECALL_TOP]} & set(best.tolist())) / RECALL_TOP)
    return {
        "open_ms": opened_ms,
        "search_ms_median": statistics.median(times),
        "search_ms_p99": float(np.percentile(times, 99)),
        "recall_at_5": float(np.mean(recalls)),
    }


if __name__ == "__main__":
    main()
