"""A model's forward over a tree in the compiled decoder, on the model's own weights."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numba
import torch
from torch import Tensor, nn

from specrace.model.forward.compiled.families import LLAMA, Family, find_family, layer_kinds
from specrace.model.forward.compiled.jit import source_checksum
from specrace.model.forward.compiled.job import NUMBER_KINDS, CompiledJob
from specrace.model.forward.compiled.records import LAYER
from specrace.model.forward.compiled.vectors import INT8
from specrace.model.forward.masked import MaskedForward, Masks
from specrace.model.forward.products import quantized, uncopied_product
from specrace.model.forward.reach import ALL_LAYERS, EVERYTHING, Reach, layer_reaches
from specrace.model.forward.reading import ModelReader, Reader
from specrace.model.forward.scripted import FusedForward
from specrace.model.forward.tapped import Levels, TappedForward
from specrace.model.forward.tree_inputs import TreeTensors


class CompiledForward:
    """A forward in the compiled decoder, called like a `traced.TracedForward`; its logits [N, V] are float32.

    A row's logits do not depend on the other rows. Prompts are read by a `FusedForward`, or by the model's own modules
    if `FusedForward` does not know the layers. With `int8`, the weights of linear layers, already rounded by
    `products.round_weights`, are stored in 8 bits. `vector_width` is how many float32 a vector holds
    (`processor.host_vector_width`); 0 means that this processor or system cannot run the decoder. Raises ValueError for
    a width of 0, and for an unsupported family, dtype or layer width.
    """

    own_threads = True
    keeps_float32 = True

    def __init__(self, model: Any, vector_width: int, *, int8: bool = False) -> None:
        self._family = find_family(model)
        _check_sizes(model, vector_width)
        self.vector_width = vector_width
        self.name = "compiled decoder" + (", int8 weights" if int8 else "")
        self.version = f"{source_checksum()}, numba {numba.__version__}, {vector_width} wide"
        # Made before any address is taken, because a reader may join weights with the same inputs, and so move them.
        self.reader = _make_reader(model, self._family)
        self._rotary, self._embed = model.model.rotary_emb, model.get_input_embeddings().weight
        scale = getattr(model.get_input_embeddings(), "embed_scale", None)
        self._embed_scale = 1.0 if scale is None else float(scale.to(model.dtype))
        self._kinds = layer_kinds(model.config)
        self._int8, self._dtype = int8, model.dtype
        self._runner, self._lock = CompiledJob(vector_width), threading.Lock()
        self._job = self._runner.fields
        self._fill_model(model)
        self._rotations = self._compute_rotations(0)

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """Logits [N, V] of a tree; `data` [L, 2, 1, H, end, D] is the cache up to the tree's last column."""
        # Two simultaneous jobs would overwrite each other's memory.
        with self._lock:
            return self._run(tree, data)

    def tapped(self, levels: Levels) -> TappedForward:
        """A forward like this one that also returns the features at `levels`, in float32."""
        width, places = int(self._job["width"]), torch.full((int(self._job["layers"]) + 1,), -1)
        # A level that is wanted twice is copied once.
        distinct = tuple(dict.fromkeys(levels))
        places[list(distinct)] = torch.arange(len(distinct))
        columns = torch.cat([torch.arange(width) + width * distinct.index(level) for level in levels])

        def run(tree: TreeTensors, data: Tensor) -> tuple[Tensor, Tensor]:
            features = torch.empty(tree.ids.shape[1], len(distinct) * width)
            with self._lock:
                job = self._job
                job["taps"], job["features"] = places.data_ptr(), features.data_ptr()
                job["feature_width"] = features.shape[1]
                try:
                    logits = self._run(tree, data)
                finally:
                    job["taps"] = 0
            return logits, features if distinct == levels else features[:, columns]

        return run

    def masked(self, masks: Masks) -> MaskedForward:
        """A forward like this one over trees with masks."""

        def run(tree: TreeTensors, data: Tensor) -> Tensor:
            with self._lock:
                return self._run(tree, data, masks)

        return run

    def _run(self, tree: TreeTensors, data: Tensor, masks: Masks | None = None) -> Tensor:
        rows, end = tree.ids.shape[1], data.shape[4]
        if end > self._rotations[0].shape[1]:
            self._rotations = self._compute_rotations(2 * end)
        positions = tree.positions()[0]
        cos, sin = (rotation.index_select(1, positions) for rotation in self._rotations)
        ids = tree.ids[0]
        embeddings = self._embed_tokens(ids) if masks is None else masks.embed(ids, self._embed_tokens)
        logits = torch.empty(rows, int(self._job["vocabulary"]), dtype=torch.float32, device="cpu")
        arrays = {"masked": tree.masked, "depths": tree.depths, "cos": cos, "sin": sin}
        arrays |= {"embeddings": embeddings, "logits": logits}
        self._runner.run(data, arrays, torch.get_num_threads())
        return logits

    def _embed_tokens(self, ids: Tensor) -> Tensor:
        """Float32 embeddings [N, d], scaled as the model does."""
        embeddings: Tensor = self._embed.index_select(0, ids).float()
        if self._embed_scale != 1.0:
            embeddings *= self._embed_scale
        return embeddings

    def _fill_model(self, model: Any) -> None:
        """Fill in the fields of the job that describe the model."""
        config, layers = model.config, model.model.layers
        job, head = self._job, model.get_output_embeddings()
        width, size = config.hidden_size, layers[0].self_attn.head_dim
        layer_bytes = self._runner.keep(torch.zeros(len(layers) * LAYER.itemsize, dtype=torch.uint8))
        self._records = layer_bytes.numpy().view(LAYER)
        for record, layer in zip(self._records, layers, strict=True):
            self._fill_layer(record, layer, config)
        self.use_reaches(layer_reaches(config))
        job["layers"], job["size"] = len(layers), size
        job["width"], job["hidden"] = width, config.intermediate_size
        job["heads"], job["kv_heads"] = config.num_attention_heads, config.num_key_value_heads
        job["vocabulary"], job["epsilon"] = len(head.weight), config.rms_norm_eps
        job["activation"], job["scaling"] = self._family.activation, layers[0].self_attn.scaling
        job["model"], job["norm"] = layer_bytes.data_ptr(), self._norm(model.model.norm)
        job["head"] = self._linear(head, width, len(head.weight))
        job["kind"], job["cache_kind"] = INT8 if self._int8 else NUMBER_KINDS[model.dtype], NUMBER_KINDS[model.dtype]

    def _fill_layer(self, record: Any, layer: Any, config: Any) -> None:
        """Fill in a `LAYER` record."""
        attention, mlp = layer.self_attn, layer.mlp
        width, hidden = config.hidden_size, config.intermediate_size
        queries = config.num_attention_heads * attention.head_dim
        keys = config.num_key_value_heads * attention.head_dim
        record["queries"] = self._linear(attention.q_proj, width, queries)
        record["keys"] = self._linear(attention.k_proj, width, keys)
        record["values"] = self._linear(attention.v_proj, width, keys)
        record["attention_output"] = self._linear(attention.o_proj, queries, width)
        record["gate"] = self._linear(mlp.gate_proj, width, hidden)
        record["up"] = self._linear(mlp.up_proj, width, hidden)
        record["down"] = self._linear(mlp.down_proj, hidden, width)
        for place in ("before_attention", "after_attention", "before_mlp", "after_mlp"):
            name = getattr(self._family, place)
            record[place] = self._norm(getattr(layer, name)) if name else 0
        if hasattr(attention, "q_norm"):
            record["query_norm"], record["key_norm"] = self._norm(attention.q_norm), self._norm(attention.k_norm)

    def use_reaches(self, reaches: Mapping[str, Reach]) -> None:
        """Limit each kind of layer to its reach (`reach.layer_reaches`), which must not have chunks."""
        kinds = self._rotation_kinds()
        for record, kind in zip(self._records, self._kinds, strict=True):
            record["window"] = reaches[kind].window
            record["rotation"] = kinds.index(kind) if self._family.rotates_by_kind else 0

    def _linear(self, layer: nn.Linear, inputs: int, outputs: int) -> tuple[int, int, int]:
        """The addresses of a layer's weights, scales and biases. Raises ValueError for unsupported weights."""
        weight, scale = layer.weight.detach(), 0
        if type(layer) is not nn.Linear or weight.dtype != self._dtype or tuple(weight.shape) != (outputs, inputs):
            raise ValueError("no compiled decoder for weights whose kind or shape differs from the model's")
        if self._int8:
            scales, steps = quantized(weight)
            weight, scale = steps.to(torch.int8), self._runner.floats(scales[:, 0])
        bias = 0 if layer.bias is None else self._runner.floats(layer.bias)
        return self._runner.keep(weight).data_ptr(), scale, bias

    def _norm(self, norm: nn.Module) -> int:
        """The address of a norm's weights."""
        weight = norm.weight
        assert isinstance(weight, Tensor)
        return self._runner.floats(weight.detach().float() + self._family.norm_offset)

    def _rotation_kinds(self) -> list[str]:
        """The kinds of layers that have rotary positions of their own; one kind, ALL_LAYERS, if all are alike."""
        return sorted(set(self._kinds)) if self._family.rotates_by_kind else [ALL_LAYERS]

    def _compute_rotations(self, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first `count` positions, float32 [rotations, count, D].

        The first half of the sines is negated.
        """
        # The module takes the dtype and device of its results from its first argument.
        example = torch.empty(0, dtype=torch.float32, device="cpu")
        positions = torch.arange(count, device="cpu")[None]
        # A model whose layers all rotate alike takes no kind.
        pairs = [self._rotary(example, positions, *([kind] if kind else [])) for kind in self._rotation_kinds()]
        cos, sin = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        first, second = sin.chunk(2, -1)
        return cos.contiguous(), torch.cat([-first, second], -1)


def _make_reader(model: Any, family: Family) -> Reader:
    """What reads the prompts of a model of this family."""
    config, size = model.config, model.model.layers[0].self_attn.head_dim
    if family is LLAMA and layer_reaches(config) == {ALL_LAYERS: EVERYTHING}:
        return FusedForward(model, uncopied_product(model.dtype), "fused TorchScript")
    return ModelReader(model, config.num_key_value_heads, size)


def _check_sizes(model: Any, vector_width: int) -> None:
    """Raises ValueError for a vector width of 0, an unsupported dtype, and layer widths that are not whole vectors."""
    if not vector_width:
        raise ValueError("no compiled decoder here: it needs AVX with FMA, or NEON, and POSIX")
    if model.dtype not in NUMBER_KINDS:
        raise ValueError(f"no compiled decoder for {str(model.dtype).removeprefix('torch.')}")
    config = model.config
    widths = (model.model.layers[0].self_attn.head_dim, config.hidden_size, config.intermediate_size)
    if any(width % vector_width for width in widths):
        raise ValueError(f"no compiled decoder for widths that {vector_width} does not divide")
