"""A CPU forward in few operations, for models of the Llama family.

A forward of one row through transformers' modules runs some sixty operations a layer, and with a small model they take
as long as reading the weights. Here queries, keys and values are one product, and so are the two halves of the MLP;
an RMS norm is one layer norm; a rotation is three operations; grouped queries share their keys without copies. The
script runs without Python, for any number of rows and any cache length.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from specrace.model.kv import KVStore
from specrace.model.tree_inputs import TreeTensors

# Models whose layers are these: pre-norm, rotary positions on all dimensions, grouped queries, a gated MLP with SiLU.
FAMILIES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}

MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]


class FusedForward:
    """A model's forward over a tree, as a script of few operations; called as `traced.TracedForward` is.

    `make_linear` makes a layer from a weight [out, in] and a bias (`products`). With `reads` prompts run in it, too.
    Raises ValueError for a model of another family.
    """

    def __init__(self, model: Any, make_linear: MakeLinear, name: str, *, reads: bool = True) -> None:
        check_family(model)
        self.name, self.reads = name, reads
        self._rotary, self._embed = model.model.rotary_emb, model.get_input_embeddings()
        decoder = _Decoder(model, make_linear)
        with warnings.catch_warnings():
            # TorchScript is deprecated; where it is gone, forwards run eagerly.
            warnings.simplefilter("ignore")
            self._decoder = torch.jit.script(decoder.eval())

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """[N, V] from a tree and the cache columns up to its own, [L, 2, 1, H, end, D]."""
        rows, cos, sin = self._inputs(tree.ids, tree.positions())
        logits: Tensor = self._decoder(rows, cos, sin, tree.masked, data)
        return logits

    def read(self, ids: Tensor, store: KVStore) -> None:
        """Write the keys and values of a prompt, int64 [1, N], to an empty store; nothing is committed."""
        count = ids.shape[1]
        rows, cos, sin = self._inputs(ids, torch.arange(count)[None])
        layers, heads, size = self._decoder.shape
        data = torch.zeros(layers, 2, 1, heads, store.capacity, size, dtype=rows.dtype)
        self._decoder.read(rows, cos, sin, data[..., :count, :])
        store.blocks = [data]

    def _inputs(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings [N, d], cosines and sines [N, 1, D], the sines' first half negated as a rotation adds it."""
        rows = self._embed(ids)
        cos, sin = self._rotary(rows, positions)
        first, second = sin[0, :, None].chunk(2, -1)
        return rows[0], cos[0, :, None], torch.cat([-first, second], -1)


def check_family(model: Any) -> None:
    """Raises ValueError for a model with other layers than the script's."""
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if type(model).__name__ not in FAMILIES or not kinds <= {"full_attention"} or model.config.hidden_act != "silu":
        raise ValueError("its layers are not those of the Llama family")


class _Decoder(nn.Module):
    """From the rows' embeddings [N, d] to logits [N, V]."""

    def __init__(self, model: Any, make_linear: MakeLinear) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(layer, model.config, make_linear) for layer in model.model.layers)
        self.norm = _Norm(model.model.norm)
        head = model.get_output_embeddings()
        self.head = make_linear(head.weight, head.bias)
        config, attention = model.config, model.model.layers[0].self_attn
        self.groups: int = config.num_attention_heads // config.num_key_value_heads
        self.shape = (config.num_hidden_layers, config.num_key_value_heads, attention.head_dim)
        self.lowest: float = torch.finfo(model.dtype).min

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, masked: Tensor, data: Tensor) -> Tensor:
        mask: Tensor | None = None
        if rows.size(0) > 1:
            # All committed columns are visible; the tree's own are the last.
            mask = nn.functional.pad(masked.to(rows.dtype) * self.lowest, [data.size(4) - rows.size(0), 0])
            mask = mask.repeat(self.groups, 1)
        for number, layer in enumerate(self.layers):
            rows = layer(rows, cos, sin, mask, data[number, :, 0], False)
        logits: Tensor = self.head(self.norm(rows))
        return logits

    @torch.jit.export
    def read(self, rows: Tensor, cos: Tensor, sin: Tensor, data: Tensor) -> None:
        """A prompt from position 0 on; no logits."""
        for number, layer in enumerate(self.layers):
            rows = layer(rows, cos, sin, None, data[number, :, 0], True)


class _Layer(nn.Module):
    """One decoder layer over rows [N, d], which writes its keys and values to the last N columns of `cache`."""

    def __init__(self, layer: Any, config: Any, make_linear: MakeLinear) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.size: int = attention.head_dim
        self.before_attention = _Norm(layer.input_layernorm)
        self.queries_keys_values = _joined(make_linear, attention.q_proj, attention.k_proj, attention.v_proj)
        self.normed = hasattr(attention, "q_norm")
        self.query_norm = _Norm(attention.q_norm) if self.normed else nn.Identity()
        self.key_norm = _Norm(attention.k_norm) if self.normed else nn.Identity()
        self.attended = make_linear(attention.o_proj.weight, attention.o_proj.bias)
        self.before_mlp = _Norm(layer.post_attention_layernorm)
        self.gate_up = _joined(make_linear, mlp.gate_proj, mlp.up_proj)
        self.down = make_linear(mlp.down_proj.weight, mlp.down_proj.bias)

    def forward(
        self, rows: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Tensor, prompt: bool
    ) -> Tensor:
        """`cos` and `sin` [N, 1, D]; `mask` [G * N, T]; `cache` [2, H, T, D]; a `prompt` sees what is before it."""
        rows = rows + self.attended(self.attention(self.before_attention(rows), cos, sin, mask, cache, prompt))
        gate, up = self.gate_up(self.before_mlp(rows)).chunk(2, dim=1)
        out: Tensor = rows + self.down(nn.functional.silu(gate) * up)
        return out

    def attention(
        self, rows: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Tensor, prompt: bool
    ) -> Tensor:
        """[N, heads * D]: what the rows' queries gather from the cache."""
        count, keys = rows.size(0), self.heads + self.kv_heads
        parts = self.queries_keys_values(rows).view(count, keys + self.kv_heads, self.size)
        turned = parts[:, :keys]
        if self.normed:
            turned = torch.cat([self.query_norm(parts[:, : self.heads]), self.key_norm(parts[:, self.heads : keys])], 1)
        turned = torch.addcmul(turned * cos, turned.roll(self.size // 2, 2), sin)
        end = cache.size(2)
        cache[0, :, end - count :] = turned[:, self.heads :].transpose(0, 1)
        cache[1, :, end - count :] = parts[:, keys:].transpose(0, 1)
        queries = turned[:, : self.heads].transpose(0, 1)
        if prompt:
            found = nn.functional.scaled_dot_product_attention(
                queries[None], cache[:1], cache[1:], is_causal=True, enable_gqa=True
            )
        else:
            # Queries that share a key head are rows of one product.
            grouped = queries.reshape(1, self.kv_heads, -1, self.size)
            found = nn.functional.scaled_dot_product_attention(grouped, cache[:1], cache[1:], attn_mask=mask)
        return found.view(self.heads, count, self.size).transpose(0, 1).reshape(count, -1)


class _Norm(nn.Module):
    """An RMS norm as a layer norm: the mean of x and -x is 0, and their variance is the mean square of x."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = torch.cat([norm.weight.detach()] * 2)
        self.epsilon: float = norm.variance_epsilon
        self.width: int = len(norm.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """[..., d]."""
        both = torch.cat([rows, -rows], dim=-1)
        normed = nn.functional.layer_norm(both, [2 * self.width], self.weight, None, self.epsilon)
        return normed[..., : self.width]


def _joined(make_linear: MakeLinear, *layers: nn.Linear) -> nn.Module:
    """One layer for several on the same input."""
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return make_linear(torch.cat([layer.weight.detach() for layer in layers]), torch.cat(biases) if biases else None)
