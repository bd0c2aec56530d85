"""The header of a GGUF file: read, and refused if the file is damaged or a conversion would lose part of the model.

transformers ignores settings and tensors that it does not know, and fills missing tensors with random numbers, all
without an error. Source of the layout: ggml's docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import io
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular

MAGIC = b"GGUF"
# Formats of single values, by GGUF's number of their type; 8 is a string and 9 an array.
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
# Far above the numbers of any real file; a damaged one must not fill the memory.
_MAX_TEXT, _MAX_ITEMS, _MAX_TENSORS, _MAX_BLOCKS = 1 << 24, 1 << 24, 1 << 16, 1 << 12
# The settings of a model, named after the architecture ("llama.context_length").
_REQUIRED = ("context_length", "block_count", "embedding_length", "feed_forward_length", "attention.head_count")
_EPSILON, _BASE, _KV_HEADS = "attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.head_count_kv"
# Settings that state the size of an attention head, which must be the one that transformers assumes.
_HEAD_SIZES = ("rope.dimension_count", "attention.key_length", "attention.value_length")
# The settings that a conversion keeps.
_SETTINGS = {*_REQUIRED, _EPSILON, _BASE, _KV_HEADS, *_HEAD_SIZES, "vocab_size"}
# The tensors of a block (a layer) of a Llama.
_LINEAR = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "ffn_norm")
# The tensors of a block beyond a Llama's, by architecture; these architectures are tested.
ARCHITECTURES = {
    "llama": (),
    "qwen2": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "qwen3": ("attn_q_norm.weight", "attn_k_norm.weight"),
}
# Qwen3's attention heads have this size in transformers, whatever the file says.
_QWEN3_HEAD_SIZE = 128
# The file's name of the rule that splits a text before it is tokenized -> what the converted tokenizer must contain.
SPLITS = {"gpt-2": "ByteLevel", "smollm": "ByteLevel", "llama-bpe": r"\p{N}{1,3}", "qwen2": r"|\p{N}|"}
_OTHER = "give a folder or hub id with the model's safetensors"


@dataclass(frozen=True)
class GgufHeader:
    """What a conversion needs to know. `quantization`: as file names call it, such as "Q4_K_M"; `split`: see SPLITS."""

    architecture: str
    quantization: str
    parameters: int
    split: str


def read_header(file: Path) -> GgufHeader:
    """Read and check the header. Raises InputError for a file that is damaged or cannot be converted as it is."""
    try:
        with open_regular(file) as stream:
            values, tensors = _Reader(stream).read()
            end = stream.tell()
            size = file.stat().st_size
    except OSError as error:
        raise InputError(f"{shorten(file)} cannot be read ({error.strerror}); give a GGUF file.") from error
    except ValueError as error:
        raise InputError(f"{shorten(file.name)} {error}; fetch the file again.") from error
    try:
        _check_size(values, tensors, end, size)
        _check_settings(values)
        _check_tensors(values, tensors)
        split = _find_split(values)
    except ValueError as error:
        raise InputError(f"{shorten(file.name)} {error}.") from error
    parameters = sum(math.prod(shape) for shape, _, _ in tensors.values())
    return GgufHeader(values["general.architecture"], _quantization(values, tensors), parameters, split)


# A tensor's shape, GGML's number of its type, and its offset in bytes from the beginning of the data.
_Tensor = tuple[tuple[int, ...], int, int]


class _Reader:
    """Reads a header value by value. Raises ValueError, which says what is wrong with the file, without its name."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def read(self) -> tuple[dict[str, Any], dict[str, _Tensor]]:
        """The settings, with None for every array, and the tensors by name; leaves the stream at the header's end."""
        if self._bytes(4) != MAGIC:
            raise ValueError("is not a GGUF file")
        version, num_tensors, num_values = self._number("<I"), self._number("<Q"), self._number("<Q")
        if version not in (2, 3):
            raise ValueError(f"is of GGUF's version {version}; versions 2 and 3 are read")
        if num_tensors > _MAX_TENSORS or num_values > _MAX_TENSORS:
            raise ValueError("is damaged (its header counts more entries than any model has)")
        values = {}
        for _ in range(num_values):
            name = self._text()
            values[name] = self._value(self._number("<I"))
        tensors = {}
        for _ in range(num_tensors):
            name = self._text()
            num_sizes = self._number("<I")
            if num_sizes > 4:
                raise ValueError(f"is damaged (a tensor has {num_sizes} dimensions)")
            shape = tuple(self._number("<Q") for _ in range(num_sizes))
            tensors[name] = (shape, self._number("<I"), self._number("<Q"))
        return values, tensors

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(_format(kind))
        inner, count = self._number("<I"), self._number("<Q")
        if count > _MAX_ITEMS or inner == _ARRAY:
            raise ValueError("is damaged (a list in its header is too long)")
        if inner == _STRING:
            for _ in range(count):
                self._text()
        else:
            self._bytes(count * struct.calcsize(_format(inner)))
        return None

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _text(self) -> str:
        length = self._number("<Q")
        if length > _MAX_TEXT:
            raise ValueError("is damaged (a text in its header is too long)")
        return self._bytes(length).decode(errors="replace")

    def _bytes(self, count: int) -> bytes:
        content = self._stream.read(count)
        if len(content) < count:
            raise ValueError("is cut off in its header")
        return content


def _format(kind: int) -> str:
    if kind not in _FORMATS:
        raise ValueError(f"is damaged (its header has a value of type {kind})")
    return _FORMATS[kind]


def _check_size(values: dict[str, Any], tensors: dict[str, _Tensor], end: int, size: int) -> None:
    """Raises ValueError if a tensor is of an unknown type, or the file of `size` bytes ends before its tensors do."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if values.get("split.count", 0) > 1:
        raise ValueError(f"is one of {values['split.count']} parts; join them with: llama-gguf-split --merge")
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError("is damaged (its tensors have no alignment)")
    # The data begin at the next multiple of the alignment after the header.
    start = -(-end // alignment) * alignment
    needed = 0
    for name, (shape, kind, offset) in tensors.items():
        if kind not in {member.value for member in GGMLQuantizationType}:
            raise ValueError(f"has the tensor {shorten(name)} in a type that is unknown here ({kind}); {_OTHER}")
        per_block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        needed = max(needed, start + offset + math.prod(shape) // per_block * block_bytes)
    if size < needed:
        raise ValueError(f"is cut off: it has {size:,} of {needed:,} bytes; fetch it again")


def _check_settings(values: dict[str, Any]) -> None:
    """Raises ValueError unless transformers reads all of the model's settings as the file means them."""
    architecture = values.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"has the architecture {shorten(architecture)}; GGUF files are read for {known}: {_OTHER}")
    prefix = f"{architecture}."
    settings = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    if settings.get("rope.scaling.type") == "none":
        del settings["rope.scaling.type"]
    for name in settings:
        if name not in _SETTINGS:
            raise ValueError(f"has the setting {shorten(prefix + name)}, which a conversion would lose; {_OTHER}")
    # If one is missing, transformers uses its own default, which is llama.cpp's for the architecture llama only.
    needed = (*_REQUIRED, _EPSILON, *(() if architecture == "llama" else (_BASE, _KV_HEADS)))
    for name in needed:
        if not isinstance(settings.get(name), int | float) or settings[name] <= 0:
            raise ValueError(f"lacks the setting {prefix}{name}, or has a list there; {_OTHER}")
    if settings["block_count"] > _MAX_BLOCKS:
        raise ValueError(f"is damaged ({prefix}block_count is {settings['block_count']:,})")
    head_size = settings["embedding_length"] // settings["attention.head_count"]
    head_size = _QWEN3_HEAD_SIZE if architecture == "qwen3" else head_size
    for name in _HEAD_SIZES:
        if settings.get(name, head_size) != head_size:
            raise ValueError(f"has {prefix}{name} {shorten(settings[name])} instead of {head_size}; {_OTHER}")


def _check_tensors(values: dict[str, Any], tensors: dict[str, _Tensor]) -> None:
    """Raises ValueError for a tensor that a conversion would lose, and for one that is missing."""
    architecture = values["general.architecture"]
    parts = [f"{name}.weight" for name in (*_LINEAR, *_NORMS)] + list(ARCHITECTURES[architecture])
    needed = {f"blk.{block}.{part}" for block in range(values[f"{architecture}.block_count"]) for part in parts}
    needed |= {"token_embd.weight", "output_norm.weight"}
    if surplus := sorted(set(tensors) - needed - {"output.weight"}):
        raise ValueError(f"has the tensor {shorten(surplus[0])}, which a conversion would lose; {_OTHER}")
    if missing := sorted(needed - set(tensors)):
        raise ValueError(f"lacks {len(missing)} of its tensors, such as {missing[0]}; fetch it again")


def _find_split(values: dict[str, Any]) -> str:
    """The name of the rule by which a text is split. Raises ValueError for a tokenizer that cannot be rebuilt."""
    model, split = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in SPLITS:
        raise ValueError(
            f"has a tokenizer ({shorten(model)}, {shorten(split)}) that cannot be rebuilt exactly; {_OTHER}"
        )
    return str(split)


def _quantization(values: dict[str, Any], tensors: dict[str, _Tensor]) -> str:
    """The name of the file's type; without one, the type of most of its numbers."""
    from gguf import GGMLQuantizationType, LlamaFileType

    kind = values.get("general.file_type")
    if kind in {member.value for member in LlamaFileType}:
        return LlamaFileType(kind).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    counts: dict[int, int] = {}
    for shape, number, _ in tensors.values():
        counts[number] = counts.get(number, 0) + math.prod(shape)
    return GGMLQuantizationType(max(counts, key=lambda number: counts[number])).name
