"""A model's forward over a tree as TorchScript, on a CPU: the same operations, or fewer, without Python.

On a CPU a small model's forward spends about as long in transformers' Python as in arithmetic. A script runs for any
number of rows and any cache length, unlike a CUDA graph. `script_forward` has two switches. `fused`: our decoder for
the Llama family, which computes several products at once, instead of a trace of the model's own modules. `packed`:
linear layers with copies of the weights, laid out for a few rows, instead of the weights themselves (`products`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.forward.kv import KVStore
from specrace.model.forward.masked import MaskedForward, Masks
from specrace.model.forward.products import MakeLinear, PackedProduct, PlainProduct, WidenedProduct, uncopied_product
from specrace.model.forward.reach import ALL_LAYERS, EVERYTHING, Reach, layer_reaches
from specrace.model.forward.tapped import Levels, TappedForward, script_tapped, tree_mask
from specrace.model.forward.traced import TracedForward
from specrace.model.forward.tree_inputs import TreeTensors

# Models whose layers have pre-norm, rotary positions on all dimensions, grouped queries, and a gated MLP with SiLU.
FAMILIES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}

# The types of rotary positions in which a token's rotation does not depend on the length of the text.
ROTATIONS = {"default", "linear", "llama3", "yarn"}
# How many positions' rotations are computed at first, about 1 MB; a longer text gets twice as many as it needs.
_FIRST_POSITIONS = 1024


def script_forward(
    model: Any, store: KVStore, dtype: torch.dtype, reaches: Mapping[str, Reach], *, fused: bool, packed: bool
) -> FusedForward | TracedForward:
    """Make the forward that the two switches select. Raises the errors of `FusedForward` and `TracedForward`."""
    kind = f"{'fused ' if fused else ''}TorchScript{', packed weights' if packed else ''}"
    if fused:
        return FusedForward(model, PackedProduct if packed else uncopied_product(dtype), kind)
    return TracedForward(model, store, dtype, reaches, kind, packed=packed)


class FusedForward:
    """A model's forward over a tree as a fused TorchScript module; it is called like a `TracedForward`.

    One product computes queries, keys and values, another the MLP's gate and up projections; an RMS norm is one layer
    norm, a rotation is three operations, and grouped queries share their keys without copies. transformers runs about
    sixty operations a layer, whose overhead in a small model takes as long as reading the weights.

    `make_linear` makes a layer from a weight [out, in] and a bias (`products`). Raises ValueError for a model
    whose layers this module does not implement.
    """

    version = ""
    own_threads = False
    keeps_float32 = False

    def __init__(self, model: Any, make_linear: MakeLinear, name: str) -> None:
        check_family(model)
        self.name = name
        # This forward reads prompts itself (see `reading`).
        self.reader = self
        self._rotary, self._embed = model.model.rotary_emb, model.get_input_embeddings().weight
        self._dtype = self._embed.dtype
        self._rotations = self._compute_rotations(_FIRST_POSITIONS)
        decoder = self._modules = _Decoder(model, make_linear, self._dtype)
        self._tapped: dict[Levels, Any] = {}
        # PlainProduct and WidenedProduct multiply with the model's own weights; every other product copies them.
        self.copies_weights = not any(isinstance(part, (PlainProduct, WidenedProduct)) for part in decoder.modules())
        with warnings.catch_warnings():
            # TorchScript is deprecated. Once it is gone, this line raises, and `capture` leaves the model eager.
            warnings.simplefilter("ignore")
            self._decoder = torch.jit.script(decoder.eval())

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """Logits [N, V] of a tree; `data` [L, 2, 1, H, end, D] is the cache up to the tree's last column."""
        inputs = self._inputs(tree.ids[0], tree.positions()[0], data.shape[4])
        logits: Tensor = self._decoder(*inputs, tree.masked, data)
        return logits

    def tapped(self, levels: Levels) -> TappedForward:
        """A forward like this one, with features at `levels` as its second output, in the model's dtype."""
        decoder = self._tapped_decoder(levels)

        def run(tree: TreeTensors, data: Tensor) -> tuple[Tensor, Tensor]:
            logits, features = decoder(
                *self._inputs(tree.ids[0], tree.positions()[0], data.shape[4]), tree.masked, data
            )
            return logits, features

        return run

    def masked(self, masks: Masks) -> MaskedForward:
        """A forward like this one over trees with masks."""

        def run(tree: TreeTensors, data: Tensor) -> Tensor:
            inputs = self._inputs(tree.ids[0], tree.positions()[0], data.shape[4], masks)
            logits: Tensor = self._decoder(*inputs, tree.masked, data)
            return logits

        return run

    def read(self, ids: Tensor, store: KVStore, levels: Levels = ()) -> Tensor | None:
        """Write the keys and values of a prompt, int64 [1, N], to an empty store; nothing is committed.

        For an empty prompt it only allocates the storage, to which the first step writes. Returns the prompt's features
        [N, levels * d], or None without `levels`.
        """
        count = ids.shape[1]
        layers, heads, size = self._decoder.shape
        data = torch.zeros(layers, 2, 1, heads, store.capacity, size, dtype=self._embed.dtype)
        features: Tensor | None = self._embed.new_zeros(0, len(levels) * self._embed.shape[1]) if levels else None
        if count:
            inputs = self._inputs(ids[0], torch.arange(count), count)
            decoder = self._tapped_decoder(levels) if levels else self._decoder
            features = decoder.read(*inputs, data[..., :count, :])
        store.blocks = [data]
        return features

    def _tapped_decoder(self, levels: Levels) -> Any:
        """The decoder with features as its second output, scripted at the first call for these levels."""
        if levels not in self._tapped:
            self._tapped[levels] = script_tapped(self._modules, levels)
        return self._tapped[levels]

    def _inputs(
        self, ids: Tensor, positions: Tensor, end: int, masks: Masks | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings [N, d] of `ids`, and cosines and sines [N, 1, D] of `positions` [N], which are below `end`."""
        if end > len(self._rotations[0]):
            self._rotations = self._compute_rotations(2 * end)
        cos, sin = self._rotations
        rows = self._embed_tokens(ids) if masks is None else masks.embed(ids, self._embed_tokens)
        return rows, cos.index_select(0, positions), sin.index_select(0, positions)

    def _embed_tokens(self, ids: Tensor) -> Tensor:
        rows: Tensor = self._embed.index_select(0, ids).to(self._dtype)
        return rows

    def _compute_rotations(self, count: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first `count` positions, [count, 1, D]; the first half of the sines is negated."""
        cos, sin = self._rotary(torch.empty(0, dtype=self._dtype), torch.arange(count)[None])
        first, second = sin[0, :, None].chunk(2, -1)
        return cos[0, :, None].contiguous(), torch.cat([-first, second], -1)


def check_family(model: Any) -> None:
    """Raises ValueError for a model whose layers are not those that this module implements."""
    config = model.config
    is_supported = (
        type(model).__name__ in FAMILIES
        and layer_reaches(config) == {ALL_LAYERS: EVERYTHING}
        and config.hidden_act == "silu"
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") in ROTATIONS
    )
    if not is_supported:
        raise ValueError("its layers are not those of the Llama family")


class _Decoder(nn.Module):
    """Computes logits [N, V] from the rows' embeddings [N, d]."""

    def __init__(self, model: Any, make_linear: MakeLinear, dtype: torch.dtype) -> None:
        """`dtype` is the dtype of the rows."""
        super().__init__()
        self.layers = nn.ModuleList(_Layer(layer, model.config, make_linear, dtype) for layer in model.model.layers)
        self.norm = _Norm(model.model.norm, dtype)
        head = model.get_output_embeddings()
        self.head = make_linear(head.weight, head.bias)
        config, attention = model.config, model.model.layers[0].self_attn
        # How many query heads share a key head.
        self.groups: int = config.num_attention_heads // config.num_key_value_heads
        # (layers, key heads, numbers in a head)
        self.shape = (config.num_hidden_layers, config.num_key_value_heads, attention.head_dim)
        self.lowest: float = torch.finfo(model.dtype).min

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, masked: Tensor, data: Tensor) -> Tensor:
        mask = tree_mask(masked, data, self.lowest, self.groups)
        # The columns of each layer's cache that the rows are written to, and all of its keys and values.
        new = data.narrow(4, data.size(4) - rows.size(0), rows.size(0)).select(2, 0).unbind(0)
        keys, values = data.select(1, 0).unbind(0), data.select(1, 1).unbind(0)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, cos, sin, mask, keys[number], values[number], new[number], False)
        logits: Tensor = self.head(self.norm(rows))
        return logits

    @torch.jit.export
    def read(self, rows: Tensor, cos: Tensor, sin: Tensor, data: Tensor) -> None:
        """Read a prompt from position 0 on, without logits."""
        new = data.select(2, 0).unbind(0)
        keys, values = data.select(1, 0).unbind(0), data.select(1, 1).unbind(0)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, cos, sin, None, keys[number], values[number], new[number], True)


class _Layer(nn.Module):
    """One decoder layer over rows [N, d]; it writes their keys and values to the last N columns of the cache."""

    def __init__(self, layer: Any, config: Any, make_linear: MakeLinear, dtype: torch.dtype) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.size: int = attention.head_dim
        self.before_attention = _Norm(layer.input_layernorm, dtype)
        self.queries_keys_values = _join_layers(make_linear, attention.q_proj, attention.k_proj, attention.v_proj)
        self.has_query_norm = hasattr(attention, "q_norm")
        self.query_norm = _Norm(attention.q_norm, dtype) if self.has_query_norm else nn.Identity()
        self.key_norm = _Norm(attention.k_norm, dtype) if self.has_query_norm else nn.Identity()
        self.attention_output = make_linear(attention.o_proj.weight, attention.o_proj.bias)
        self.before_mlp = _Norm(layer.post_attention_layernorm, dtype)
        self.gate_up = _join_layers(make_linear, mlp.gate_proj, mlp.up_proj)
        self.hidden: int = mlp.gate_proj.out_features
        self.down = make_linear(mlp.down_proj.weight, mlp.down_proj.bias)

    def forward(
        self,
        rows: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        values: Tensor,
        new: Tensor,
        is_prompt: bool,
    ) -> Tensor:
        """The layer's output [N, d].

        `cos` and `sin` [N, 1, D]; `mask` [G * N, T]; `keys` and `values` [1, H, T, D]; `new` [2, H, N, D] is a view of
        their last N columns, which the layer writes. A prompt's rows attend causally instead of using `mask`.
        """
        gathered = self.attention(self.before_attention(rows), cos, sin, mask, keys, values, new, is_prompt)
        rows = rows + self.attention_output(gathered)
        gate_up = self.gate_up(self.before_mlp(rows))
        gated = nn.functional.silu(gate_up.narrow(1, 0, self.hidden)) * gate_up.narrow(1, self.hidden, self.hidden)
        out: Tensor = rows + self.down(gated)
        return out

    def attention(
        self,
        rows: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        values: Tensor,
        new: Tensor,
        is_prompt: bool,
    ) -> Tensor:
        """The rows' attention output, [N, heads * D], before its projection. Parameters are those of `forward`."""
        count, num_rotated = rows.size(0), self.heads + self.kv_heads
        projected = self.queries_keys_values(rows).view(count, num_rotated + self.kv_heads, self.size)
        rotated = projected.narrow(1, 0, num_rotated)
        if self.has_query_norm:
            new_queries, new_keys = rotated.split([self.heads, self.kv_heads], 1)
            rotated = torch.cat([self.query_norm(new_queries), self.key_norm(new_keys)], 1)
        rotated = torch.addcmul(rotated * cos, rotated.roll(self.size // 2, 2), sin).transpose(0, 1)
        new.select(0, 0).copy_(rotated.narrow(0, self.heads, self.kv_heads))
        new.select(0, 1).copy_(projected.narrow(1, num_rotated, self.kv_heads).transpose(0, 1))
        queries = rotated.narrow(0, 0, self.heads).to(keys.dtype)
        if is_prompt:
            attended = nn.functional.scaled_dot_product_attention(
                queries[None], keys, values, is_causal=True, enable_gqa=True
            )
        else:
            # Stack the queries that share a key head as rows of one product.
            grouped = queries.reshape(1, self.kv_heads, -1, self.size)
            attended = nn.functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        gathered: Tensor = attended.view(self.heads, count, self.size).transpose(0, 1).reshape(count, -1)
        return gathered.to(rows.dtype)


class _Norm(nn.Module):
    """An RMS norm, computed as the layer norm of [x, -x]: its mean is 0, and its variance is the mean square of x."""

    def __init__(self, norm: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.cat([norm.weight.detach()] * 2).to(dtype)
        self.epsilon: float = norm.variance_epsilon
        self.width: int = len(norm.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """The normalised rows, [..., d]."""
        mirrored = torch.cat([rows, -rows], dim=-1)
        normed = nn.functional.layer_norm(mirrored, [2 * self.width], self.weight, None, self.epsilon)
        return normed.narrow(-1, 0, self.width)


def _join_layers(make_linear: MakeLinear, *layers: nn.Linear) -> nn.Module:
    """One layer in place of several with the same input.

    If the new layer uses the joined weight without a copy, the weights of `layers` become views of that weight.
    """
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    # Tensors created in inference mode could not be trained later.
    with torch.inference_mode(False), torch.no_grad():
        weight = torch.cat([layer.weight for layer in layers])
        product = make_linear(weight, torch.cat(biases) if biases else None)
        if any(isinstance(part, (PlainProduct, WidenedProduct)) for part in product.modules()):
            for layer, part in zip(layers, weight.split([len(layer.weight) for layer in layers]), strict=True):
                layer.weight.data = part
    return product
