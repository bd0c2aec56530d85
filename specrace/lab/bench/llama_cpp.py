"""llama.cpp as a peer, through the package `xllamacpp`: plain, and with its own n-gram speculation.

It runs in this process, on the CPU, with as many threads as the target uses at the time. Each run gets a new server,
started off the clock, so that no mode drafts from the output of an earlier run.

A run is timed by our clock around the call, without streaming. The decode time is llama.cpp's own (`predicted_ms`, from
its first token to its last), without parsing the request and decoding the text, which favours llama.cpp. Time spent
waiting for a processor, by the thread that waited longest, is left out, as in the lanes' clocks.
"""

from __future__ import annotations

import importlib
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specrace.core.clock import waited_ms_by_thread
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error
from specrace.core.sampling_params import SamplingParams
from specrace.lab.bench.benchmark import PeerRun
from specrace.model.machine.memory import release_threads
from specrace.model.target import Target

PREFIX = "llama-cpp"
# Mode -> its options: `size_n` and `n_match` tokens must match, then up to `size_m` or `n_max` are drafted. By default
# llama.cpp needs matches of 12 or 24 tokens, which short answers rarely have.
OPTIONS: dict[str, dict[str, int]] = {
    "ngram-simple": {"size_n": 3, "size_m": 8},
    "ngram-map-k": {"size_n": 3, "size_m": 8},
    "ngram-map-k4v": {"size_n": 3, "size_m": 8},
    "ngram-mod": {"n_match": 3, "n_min": 1, "n_max": 8},
    "ngram-cache": {"n_max": 8},
}
# GGUF type -> the torch type of the same weights; int8 weights have none.
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "q8_0": None}
# Architectures whose weights can be written to a GGUF. Only Llama's GGUF has the rows of Q and K in another order than
# transformers.
_ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Tokens of context for drafts, in addition to prompt and output; a guess, far above the largest draft in OPTIONS.
_DRAFT_ROOM = 128


class LlamaCppPeer:
    """llama.cpp on the weights of a GGUF file. Raises InputError without the package."""

    def __init__(self, name: str, target: Target, params: SamplingParams, weights: GgufWeights) -> None:
        self.name = name
        self._params = params
        self._weights = weights
        self._library = _import("xllamacpp")
        # The part of the name after "llama-cpp-"; "" for plain decoding.
        self._mode = name[len(PREFIX) + 1 :]
        self._is_float32 = weights.type == "f32"
        self.settings: dict[str, Any] = {
            "xllamacpp": version("xllamacpp"),
            "weights": weights.type or weights.file.name,
            "kv_cache": "f32" if self._is_float32 else "f16",
            **OPTIONS.get(self._mode, {}),
        }

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> PeerRun:
        """Start a server, then generate once. Raises InputError for a prompt that it refuses."""
        # llama.cpp may share torch's OpenMP, whose waiting workers would halve llama.cpp's speed.
        release_threads()
        server = self._serve(len(prompt) + max_new_tokens + _DRAFT_ROOM)
        request = {
            "prompt": list(prompt),
            "n_predict": max_new_tokens,
            "cache_prompt": False,
            "repeat_penalty": 1.0,
            "return_tokens": True,
            "verbose": True,  # else the reply has no tokens
            **self._sampling(),
        }
        waits_before = waited_ms_by_thread()
        began = time.perf_counter()
        reply = server.handle_completions(request)
        run_ms = 1000.0 * (time.perf_counter() - began)
        if "error" in reply:
            raise InputError(f"llama.cpp refuses the prompt: {shorten(reply['error']['message'])}.")
        timings = reply["timings"]
        tokens = tuple(reply["__verbose"]["tokens"])
        accepted = timings.get("draft_n_accepted", 0)
        # The prompt's forward gives the first token; every later step emits its accepted tokens and one more.
        steps = max(1, len(tokens) - 1 - accepted)
        # llama.cpp's threads wait for each other, so the one that waited longest for a processor held up the rest.
        waited_ms = max(
            (ms - waits_before.get(thread, 0.0) for thread, ms in waited_ms_by_thread().items()), default=0.0
        )
        # A wait that began before the call counts in full, which could exceed a very short call.
        running_share = max(0.1, 1.0 - waited_ms / run_ms)
        first_ms = run_ms - timings["predicted_ms"]
        drafted = timings.get("draft_n", 0)
        return PeerRun(
            tokens=tokens,
            run_ms=running_share * run_ms,
            first_ms=running_share * first_ms,
            first_tokens=1,
            steps=steps,
            drafted=drafted,
            accepted=accepted,
        )

    def _sampling(self) -> dict[str, Any]:
        """The race's sampling, applied in transformers' order; greedy decoding is a top-k of 1, the fastest way."""
        params = self._params
        if not params.temperature:
            return {"samplers": ["top_k"], "top_k": 1}
        return {
            "samplers": ["temperature", "top_k", "top_p"],
            "temperature": params.temperature,
            "top_k": params.top_k,
            "top_p": params.top_p,
            "seed": params.seed % 2**32,
        }

    def _serve(self, context: int) -> Any:
        try:
            return self._library.Server(self._server_params(context))
        except RuntimeError as error:
            raise InputError(f"llama.cpp cannot load {shorten(self._weights.file.name)}; give another GGUF.") from error

    def _server_params(self, context: int) -> Any:
        """The server's parameters, for a context of `context` tokens."""
        library = self._library
        params = library.CommonParams()
        params.model.path = str(self._weights.file)
        params.n_ctx = context
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = torch.get_num_threads()
        # No settings of llama.cpp's own choice, no cache of earlier prompts, and no log.
        params.fit_params = False
        params.cache_ram_mib = 0
        params.verbosity = -1
        # The server also listens on a loopback port, which nobody may use.
        params.api_keys = [secrets.token_hex(16)]
        if self._is_float32:
            params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F32
        if self._mode:
            mode = self._mode.replace("-", "_")
            types = library.common_speculative_type
            params.speculative.types = [getattr(types, f"COMMON_SPECULATIVE_TYPE_{mode.upper()}")]
            options = params.speculative.draft if mode == "ngram_cache" else getattr(params.speculative, mode)
            for name, value in OPTIONS[self._mode].items():
                setattr(options, name, value)
        return params


class GgufWeights:
    """The GGUF file that the peers load.

    `wanted`: a GGUF file, or one of `TYPES`, the type in which the target's own weights go to a temporary file; by
    default the target's dtype, and q8_0 for int8. A written file has the vocabulary and settings of the GGUF in the
    model's folder, and is deleted with this object. Raises InputError for a missing file and for one of another model.
    """

    def __init__(self, target: Target, wanted: str | None = None) -> None:
        if target.device.type != "cpu":
            raise InputError("The llama.cpp peers run on the CPU: leave them out of --peers, or give --device cpu.")
        target_type = "q8_0" if target.int8 else next(name for name, dtype in TYPES.items() if dtype == target.dtype)
        self.type = wanted or target_type
        if self.type not in TYPES:
            self.file = Path(self.type)
            self.type = ""
            check_vocabulary(_read(self.file), self.file, target)
            return
        self._folder = tempfile.TemporaryDirectory(prefix="specrace-")
        self.file = Path(self._folder.name) / "weights.gguf"
        with as_input_error(self.file, "TMPDIR"):
            write_gguf(target, _gguf_in_folder(target), self.type, self.file)


def _gguf_in_folder(target: Target) -> Path:
    """The GGUF file in the model's folder. Raises InputError if there is none."""
    files = sorted(Path(str(target.config._name_or_path)).glob("*.gguf"))
    if not files:
        raise InputError(f"There is no GGUF file beside {shorten(target.name)}; give one, --peer-weights FILE.gguf.")
    return files[0]


def check_llama_cpp(wanted: str | None = None) -> None:
    """Raises InputError if a package is missing, or if `wanted` (see `GgufWeights`) is a file that is not GGUF."""
    for package in ("xllamacpp", "gguf"):
        _import(package)
    if wanted and wanted not in TYPES:
        _read(Path(wanted))


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"llama.cpp peers need {package}: pip install 'specrace[llama-cpp]'.") from error


def _read(file: Path) -> Any:
    """Open a GGUF file. Raises InputError if it cannot be read."""
    gguf = _import("gguf")
    try:
        return gguf.GGUFReader(file)
    except OSError as error:
        raise InputError(f"{shorten(file)} cannot be read ({error.strerror}); give a GGUF file.") from error
    except Exception as error:  # the reader raises many kinds for a broken file
        raise InputError(f"{shorten(file)} is not a GGUF file: {shorten(error)}.") from error


def check_vocabulary(reader: Any, file: Path, target: Target) -> None:
    """Raises InputError unless the GGUF has as many tokens as the target."""
    field = reader.get_field("tokenizer.ggml.tokens")
    count = 0 if field is None else len(field.data)
    if count != target.vocab_size:
        raise InputError(
            f"{shorten(file)} has a vocabulary of {count} and {shorten(target.name)} one of {target.vocab_size}: "
            "give the GGUF of the same model."
        )


def write_gguf(target: Target, source: Path, kind: str, file: Path) -> None:
    """Write the target's weights as a GGUF of the type `kind`, with the settings and vocabulary of `source`.

    Vectors stay float32, as in llama.cpp; a tensor that the target lacks (rope factors) is copied from `source`. Raises
    InputError if `source` is of another model, or of an architecture that cannot be written.
    """
    gguf = _import("gguf")
    reader = _read(source)
    check_vocabulary(reader, source, target)
    architecture = reader.get_field("general.architecture").contents()
    if architecture not in _ARCHITECTURES:
        raise InputError(
            f"The weights of a {shorten(architecture)} model cannot be written as GGUF; give --peer-weights FILE.gguf."
        )
    writer = gguf.GGUFWriter(file, architecture, use_temp_file=True)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture", "general.file_type")):
            # The last type is that of an array's elements.
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=field.types[-1])
    weights = dict(tensors(target, architecture))
    for tensor in reader.tensors:
        values = weights.get(tensor.name)
        if values is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        # GGUF lists the innermost dimension first.
        if list(values.shape) != tensor.shape.tolist()[::-1]:
            raise InputError(f"{shorten(source)} is of another model than {shorten(target.name)}: {tensor.name}.")
        quantization = gguf.GGMLQuantizationType[kind.upper()]
        # Vectors, and rows that do not fill whole blocks of the type, stay float32.
        if values.ndim == 1 or values.shape[-1] % gguf.GGML_QUANT_SIZES[quantization][0]:
            quantization = gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quantize(values.float().numpy(), quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(target: Target, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """(name in a GGUF, values) of each weight of a target of this GGUF architecture."""
    gguf = _import("gguf")
    config = target.config
    model_arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(model_arch, target.num_layers)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for key, values in target.model.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias")) or key
        if architecture == "llama" and (count := heads.get(name.split(".")[-2])):
            # For positions, llama.cpp rotates neighbouring pairs, transformers the two halves of a head.
            values = values.reshape(count, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        yield name, values
