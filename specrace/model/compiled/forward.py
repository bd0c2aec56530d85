"""A model's forward over a tree in the compiled decoder, on the model's own weights."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.compiled.records import LAYER, buffer_sizes
from specrace.model.compiled.vectors import BFLOAT16, FLOAT32, INT8
from specrace.model.compiled.workers import Workers
from specrace.model.fused import FusedForward, check_family
from specrace.model.products import plain_product, quantized
from specrace.model.tree_inputs import TreeTensors

_KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}


class CompiledForward:
    """Called as `traced.TracedForward` is; each row's logits [N, V], float32, are those that it has alone.

    Prompts run in `FusedForward`. With `int8` the weights of linear layers, rounded before, are copied to 8 bits.
    `lanes` is how many float32 a vector holds, as `processor.host_lanes` says. Raises ValueError for a model of another
    family, dtype or width, and for 0 lanes: a processor or system without what the decoder needs.
    """

    own_threads = True

    def __init__(self, model: Any, lanes: int, *, int8: bool = False) -> None:
        check_family(model)
        _check_sizes(model, lanes)
        self.name = "compiled decoder" + (", int8 weights" if int8 else "")
        # Before the weights' addresses are taken: it lays those with the same inputs side by side.
        self.reader = FusedForward(model, plain_product(model.dtype), "fused TorchScript")
        self._rotary, self._embed = model.model.rotary_emb, model.get_input_embeddings().weight
        self._held: list[Tensor] = []
        self._int8, self._dtype = int8, model.dtype
        self._workers, self._lock = Workers(lanes), threading.Lock()
        self._job = self._workers.job
        self._describe(model)
        self._turns = self._turn(0)
        # Rows, columns and threads that the buffers are for.
        self._fits: tuple[int, ...] = (0, 0, 0)
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """[N, V] from a tree and the cache columns up to its own, [L, 2, 1, H, end, D]."""
        # Two jobs at once would write into each other's memory.
        with self._lock:
            return self._run(tree, data)

    def _run(self, tree: TreeTensors, data: Tensor) -> Tensor:
        rows, end, job = tree.ids.shape[1], data.shape[4], self._job
        threads = torch.get_num_threads()
        self._fit(rows, end, threads)
        positions = tree.positions()[0]
        cos, sin = (each.index_select(0, positions) for each in self._turns)
        stream = self._embed.index_select(0, tree.ids[0]).float()
        logits = torch.empty(rows, int(job["vocabulary"]), dtype=torch.float32, device="cpu")
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
        config, layers, job, head = model.config, model.model.layers, self._job, model.get_output_embeddings()
        width, size = config.hidden_size, layers[0].self_attn.head_dim
        described = self._hold(torch.zeros(len(layers) * LAYER.itemsize, dtype=torch.uint8))
        for own, layer in zip(described.numpy().view(LAYER), layers, strict=True):
            self._describe_layer(own, layer, config)
        job["layers"], job["size"], job["width"], job["hidden"] = len(layers), size, width, config.intermediate_size
        job["heads"], job["kv_heads"] = config.num_attention_heads, config.num_key_value_heads
        job["vocabulary"], job["epsilon"] = len(head.weight), config.rms_norm_eps
        job["model"], job["norm"] = described.data_ptr(), self._floats(model.model.norm.weight)
        job["head"] = self._linear(head, width, len(head.weight))
        job["kind"], job["cache_kind"] = INT8 if self._int8 else _KINDS[model.dtype], _KINDS[model.dtype]

    def _describe_layer(self, own: Any, layer: Any, config: Any) -> None:
        """Fill in a record of `LAYER`."""
        attention, mlp, width, hidden = layer.self_attn, layer.mlp, config.hidden_size, config.intermediate_size
        queries = config.num_attention_heads * attention.head_dim
        keys = config.num_key_value_heads * attention.head_dim
        own["queries"] = self._linear(attention.q_proj, width, queries)
        own["keys"] = self._linear(attention.k_proj, width, keys)
        own["values"] = self._linear(attention.v_proj, width, keys)
        own["attended"] = self._linear(attention.o_proj, queries, width)
        own["gate"] = self._linear(mlp.gate_proj, width, hidden)
        own["up"] = self._linear(mlp.up_proj, width, hidden)
        own["down"] = self._linear(mlp.down_proj, hidden, width)
        own["before_attention"] = self._floats(layer.input_layernorm.weight)
        own["before_mlp"] = self._floats(layer.post_attention_layernorm.weight)
        if hasattr(attention, "q_norm"):
            own["query_norm"], own["key_norm"] = (
                self._floats(each.weight) for each in (attention.q_norm, attention.k_norm)
            )

    def _linear(self, layer: nn.Linear, inputs: int, outputs: int) -> tuple[int, int, int]:
        """The addresses of a layer's weights, scales and biases. Raises ValueError for weights of another kind."""
        weight, scale = layer.weight.detach(), 0
        if type(layer) is not nn.Linear or weight.dtype != self._dtype or tuple(weight.shape) != (outputs, inputs):
            raise ValueError("no compiled decoder for weights of another kind or shape than the model's")
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
        fits = tuple(max(pair) for pair in zip(self._fits, (rows, 2 * end, threads), strict=True))
        sizes = buffer_sizes(self._job, *fits)
        # Made before anything tells of them: memory may be short.
        made = {name: torch.zeros(size, dtype=torch.float32, device="cpu") for name, size in sizes.items()}
        for name, buffer in made.items():
            self._job[name] = buffer.data_ptr()
        self._job["columns"], self._fits, self._buffers = fits[1], fits, made

    def _turn(self, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first positions, float32 [count, D], the sines' first half negated."""
        like = torch.empty(0, dtype=torch.float32, device="cpu")
        cos, sin = self._rotary(like, torch.arange(count, device="cpu")[None])
        first, second = sin[0].chunk(2, -1)
        return cos[0].contiguous(), torch.cat([-first, second], -1)


def _check_sizes(model: Any, lanes: int) -> None:
    """Raises ValueError for numbers that do not fill vectors, or of another dtype, and where nothing is compiled."""
    if not lanes:
        raise ValueError("no compiled decoder here: it needs AVX with FMA, or NEON, and POSIX")
    if model.dtype not in _KINDS:
        raise ValueError(f"no compiled decoder for {str(model.dtype).removeprefix('torch.')}")
    config = model.config
    widths = (model.model.layers[0].self_attn.head_dim, config.hidden_size, config.intermediate_size)
    if any(width % lanes for width in widths):
        raise ValueError(f"no compiled decoder for widths that {lanes} does not divide")
