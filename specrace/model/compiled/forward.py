"""A model's forward over a tree in the compiled decoder, on the model's own weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.compiled.records import LAYER, buffer_sizes
from specrace.model.compiled.vectors import BFLOAT16, FLOAT32, INT8, LANES, MULTIPLIES_AND_ADDS
from specrace.model.compiled.workers import Workers
from specrace.model.fused import FusedForward, check_family
from specrace.model.products import plain_product, quantized
from specrace.model.tree_inputs import TreeTensors

_KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}
# Names of a layer's products and norms in `records.LAYER` and in transformers' attention and MLP.
_ATTENTION = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj", "attended": "o_proj"}
_MLP = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}


class CompiledForward:
    """Called as `traced.TracedForward` is; each row's logits [N, V], float32, are those that it has alone.

    Prompts run in `FusedForward`. With `int8` the weights of linear layers, rounded before, are copied to 8 bits.
    Raises ValueError for a model of another family, dtype or width.
    """

    own_threads = True

    def __init__(self, model: Any, *, int8: bool = False) -> None:
        check_family(model)
        _check_sizes(model)
        self.name = "compiled decoder" + (", int8 weights" if int8 else "")
        # Before the weights' addresses are taken: it lays those of queries, keys and values side by side.
        self.reader = FusedForward(model, plain_product(model.dtype), "fused TorchScript")
        self._rotary, self._embed = model.model.rotary_emb, model.get_input_embeddings().weight
        self._held: list[Tensor] = []
        self._int8 = int8
        self._workers = Workers()
        self._job = self._workers.job
        self._describe(model)
        self._turns = self._turn(0)
        self._fits = (0, 0, 0)
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """[N, V] from a tree and the cache columns up to its own, [L, 2, 1, H, end, D]."""
        rows, end, job = tree.ids.shape[1], data.shape[4], self._job
        threads = torch.get_num_threads()
        self._fit(rows, end, threads)
        positions = tree.positions()[0]
        cos, sin = (each.index_select(0, positions) for each in self._turns)
        stream = self._embed.index_select(0, tree.ids[0]).float()
        logits = torch.empty(rows, self._embed.shape[0])
        job["rows"], job["base"], job["cache"] = rows, end - rows, data.data_ptr()
        steps = [data.element_size() * data.stride(each) for each in (0, 1, 3, 4)]
        job["layer_step"], job["value_step"], job["head_step"], job["column_step"] = steps
        given = {"masked": tree.masked, "cos": cos, "sin": sin, "stream": stream, "logits": logits}
        for name, numbers in given.items():
            job[name] = numbers.data_ptr()
        self._workers.run(threads)
        return logits

    def _describe(self, model: Any) -> None:
        """The model's part of the job."""
        config, layers, job = model.config, model.model.layers, self._job
        described = self._hold(torch.zeros(len(layers) * LAYER.itemsize, dtype=torch.uint8))
        for own, layer in zip(described.numpy().view(LAYER), layers, strict=True):
            for names, part in ((_ATTENTION, layer.self_attn), (_MLP, layer.mlp)):
                for name, theirs in names.items():
                    own[name] = self._linear(getattr(part, theirs))
            own["before_attention"] = self._floats(layer.input_layernorm.weight)
            own["before_mlp"] = self._floats(layer.post_attention_layernorm.weight)
            if hasattr(layer.self_attn, "q_norm"):
                own["query_norm"] = self._floats(layer.self_attn.q_norm.weight)
                own["key_norm"] = self._floats(layer.self_attn.k_norm.weight)
        job["model"], job["norm"] = described.data_ptr(), self._floats(model.model.norm.weight)
        job["head"] = self._linear(model.get_output_embeddings())
        job["layers"], job["vocabulary"], job["epsilon"] = len(layers), len(self._embed), config.rms_norm_eps
        job["heads"], job["kv_heads"] = config.num_attention_heads, config.num_key_value_heads
        job["size"], job["width"] = layers[0].self_attn.head_dim, config.hidden_size
        job["hidden"] = config.intermediate_size
        job["kind"], job["cache_kind"] = INT8 if self._int8 else _KINDS[model.dtype], _KINDS[model.dtype]

    def _linear(self, layer: nn.Linear) -> tuple[int, int, int]:
        """The addresses of a layer's weights, scales and biases."""
        weight, scale = layer.weight.detach(), 0
        if self._int8:
            scales, steps = quantized(weight)
            weight, scale = steps.to(torch.int8), self._floats(scales[:, 0])
        bias = 0 if layer.bias is None else self._floats(layer.bias)
        return self._hold(weight).data_ptr(), scale, bias

    def _floats(self, numbers: Tensor) -> int:
        """The address of numbers as float32."""
        return self._hold(numbers.detach().float()).data_ptr()

    def _hold(self, numbers: Tensor) -> Tensor:
        """Contiguous, and kept as long as this object."""
        contiguous = numbers.contiguous()
        self._held.append(contiguous)
        return contiguous

    def _fit(self, rows: int, end: int, threads: int) -> None:
        """Buffers and rotations for so many rows, columns and threads."""
        if end > len(self._turns[0]):
            self._turns = self._turn(2 * end)
        needed = (rows, end, threads)
        if all(own >= each for own, each in zip(self._fits, needed, strict=True)):
            return
        # Columns for twice the text, which grows.
        rows, end, threads = (max(pair) for pair in zip(self._fits, (rows, 2 * end, threads), strict=True))
        self._fits = rows, end, threads
        self._job["rows"], self._job["columns"] = rows, end
        self._buffers = {name: torch.zeros(size) for name, size in buffer_sizes(self._job, threads).items()}
        for name, buffer in self._buffers.items():
            self._job[name] = buffer.data_ptr()

    def _turn(self, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first positions, float32 [count, D], the sines' first half negated."""
        cos, sin = self._rotary(torch.empty(0), torch.arange(count)[None])
        first, second = sin[0].chunk(2, -1)
        return cos[0].contiguous(), torch.cat([-first, second], -1)


def _check_sizes(model: Any) -> None:
    """Raises ValueError for numbers that do not fill vectors, or of another dtype, and on a processor too old."""
    if not MULTIPLIES_AND_ADDS:
        raise ValueError("no compiled decoder for a processor that cannot multiply and add at once")
    if model.dtype not in _KINDS:
        raise ValueError(f"no compiled decoder for {str(model.dtype).removeprefix('torch.')}")
    config = model.config
    widths = (model.model.layers[0].self_attn.head_dim, config.hidden_size, config.intermediate_size)
    if any(each % LANES for each in widths):
        raise ValueError(f"no compiled decoder for widths that {LANES} does not divide")
