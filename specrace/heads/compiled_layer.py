"""A head's only layer and its output layer in the compiled decoder: one call, in the decoder's threads.

In torch the same takes two dozen calls in one thread, and more than twice as long. The compiled functions get a job: a
record of sizes and of the addresses of arrays, where the address 0 means that there is no such array.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specrace.heads.layer import DraftLayer
from specrace.heads.output_layer import OutputLayer
from specrace.model.forward.compiled.job import NUMBER_KINDS, CompiledJob
from specrace.model.forward.compiled.numbers import SILU
from specrace.model.forward.compiled.records import LAYER

# The place of each level among the returned features: level 0, the layer's inputs, is not wanted (-1); level 1, its
# outputs, comes first.
_TAPS = (-1, 0)


class CompiledLayer:
    """A head's layer, and the logits of the tokens that it can draft.

    `before_attention`, `last`: the weights [d] of the norms before the attention and after the layer, None for none;
    `vector_width`: how many float32 one of the processor's vectors holds. Raises ValueError for sizes that are not
    whole vectors, and for unsupported or mixed dtypes.
    """

    def __init__(
        self,
        layer: DraftLayer,
        output_layer: OutputLayer,
        vector_width: int,
        *,
        before_attention: Tensor | None = None,
        last: Tensor | None = None,
    ) -> None:
        sizes = layer.sizes
        if not vector_width or any(size % vector_width for size in (sizes.width, sizes.hidden, sizes.size)):
            raise ValueError(f"no compiled layer for widths that {vector_width} does not divide")
        products = (layer.queries_keys_values, layer.attention_output, layer.gate_up, layer.down, output_layer.product)
        dtypes = {product.stored[0].dtype for product in products}
        if len(dtypes) > 1 or not dtypes <= NUMBER_KINDS.keys():
            raise ValueError("no compiled layer for these dtypes")
        self._sizes, self._runner = sizes, CompiledJob(vector_width)
        self._outputs = len(output_layer.product.stored[0])
        self._fill(layer, output_layer, NUMBER_KINDS[dtypes.pop()], before_attention)
        self._runner.fields["norm"] = 0 if last is None else self._runner.floats(last)

    def run(
        self, rows: Tensor, rotation: tuple[Tensor, Tensor], seen: Tensor, cache: Tensor, threads: int
    ) -> tuple[Tensor, Tensor]:
        """The layer's outputs [N, d], after the last norm, and logits [N, Vd], both float32.

        `rows` [N, d] are the layer's inputs, `rotation` cosines and sines [N, 1, D]. `cache` [2, H, T, D] ends with M
        columns of draft rows that were run before and the rows' own columns, which are written here; `seen` [N, M + N]
        says which of these a row sees. All rows see the columns before them.
        """
        nodes = seen.shape[1]
        outputs, logits = torch.empty(len(rows), self._sizes.width), torch.empty(len(rows), self._outputs)
        arrays = {
            "masked": (~seen).long(),
            # The layer sees the whole text (it has no window), so it does not read depths.
            "depths": torch.zeros(nodes, dtype=torch.int64),
            "cos": rotation[0].float().contiguous(),
            "sin": rotation[1].float().contiguous(),
            "embeddings": rows.float().contiguous(),
            "features": outputs,
            "logits": logits,
        }
        self._runner.fields["drafted"], self._runner.fields["cache_kind"] = nodes - len(rows), NUMBER_KINDS[cache.dtype]
        self._runner.run(cache[None, :, None], arrays, threads)
        return outputs, logits

    def _fill(self, layer: DraftLayer, output_layer: OutputLayer, kind: int, before_attention: Tensor | None) -> None:
        """Fill in the fields of the job that describe the layer."""
        job, sizes, linear = self._runner.fields, self._sizes, self._linear
        queries, keys = sizes.heads * sizes.size, sizes.kv_heads * sizes.size
        layer_bytes = self._runner.keep(torch.zeros(LAYER.itemsize, dtype=torch.uint8))
        record = layer_bytes.numpy().view(LAYER)[0]
        joined = layer.queries_keys_values.stored[0].split([queries, keys, keys])
        record["queries"], record["keys"], record["values"] = (linear(weight) for weight in joined)
        record["gate"], record["up"] = (linear(weight) for weight in layer.gate_up.stored[0].chunk(2))
        record["attention_output"] = linear(*layer.attention_output.stored)
        record["down"] = linear(*layer.down.stored)
        record["before_mlp"] = self._runner.floats(layer.before_mlp)
        if before_attention is not None:
            record["before_attention"] = self._runner.floats(before_attention)
        if layer.head_norms is not None:
            record["query_norm"], record["key_norm"] = (self._runner.floats(norm) for norm in layer.head_norms)
        job["layers"], job["size"], job["width"], job["hidden"] = 1, sizes.size, sizes.width, sizes.hidden
        job["heads"], job["kv_heads"], job["vocabulary"] = sizes.heads, sizes.kv_heads, self._outputs
        job["epsilon"], job["scaling"], job["activation"] = sizes.epsilon, sizes.size**-0.5, SILU
        job["model"], job["kind"] = layer_bytes.data_ptr(), kind
        job["head"] = linear(*output_layer.product.stored)
        job["taps"], job["feature_width"] = self._runner.keep(torch.tensor(_TAPS)).data_ptr(), sizes.width

    def _linear(self, weight: Tensor, bias: Tensor | None = None) -> tuple[int, int, int]:
        """The addresses of a linear layer's weights, scales (0: none) and biases (0: none)."""
        return self._runner.keep(weight.detach()).data_ptr(), 0, 0 if bias is None else self._runner.floats(bias)
