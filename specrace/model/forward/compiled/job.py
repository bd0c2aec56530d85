"""A job of the compiled decoder: its memory, and the workers that run it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specrace.model.forward.compiled.records import buffer_sizes
from specrace.model.forward.compiled.vectors import BFLOAT16, FLOAT32
from specrace.model.forward.compiled.workers import Workers

# dtype -> the number by which the compiled functions know the format of weights and caches.
NUMBER_KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}


class CompiledJob:
    """A job's record, `fields`, whose tensors stay alive with this object, and buffers that grow as needed.

    The fields are sizes and addresses (`records.JOB`).

    Two threads must not run it at the same time. `vector_width`: see `decoder.compiled_step`.
    """

    def __init__(self, vector_width: int) -> None:
        self._workers = Workers(vector_width)
        self.fields = self._workers.job
        self._kept_alive: list[Tensor] = []
        # How many rows, columns and threads the buffers have room for.
        self._capacity: tuple[int, ...] = (0, 0, 0)
        self._buffers: dict[str, Tensor] = {}

    def keep(self, numbers: Tensor) -> Tensor:
        """The numbers as a contiguous tensor, which is kept alive as long as this object."""
        contiguous = numbers.contiguous()
        self._kept_alive.append(contiguous)
        return contiguous

    def floats(self, numbers: Tensor) -> int:
        """The address of the numbers as float32."""
        return self.keep(numbers.detach().float()).data_ptr()

    def run(self, cache: Tensor, arrays: Mapping[str, Tensor], threads: int) -> None:
        """Run the job in `threads` threads on the rows of `arrays["embeddings"]`, [N, d].

        `cache` [L, 2, 1, H, T, D] ends with the columns of the rows, after `fields["drafted"]` columns of earlier draft
        rows. `arrays` are contiguous, of the types that `records` names.
        """
        job, rows, columns = self.fields, len(arrays["embeddings"]), cache.shape[4]
        self._make_room(rows, columns, threads)
        job["rows"], job["base"], job["cache"] = rows, columns - rows - int(job["drafted"]), cache.data_ptr()
        for name, dimension in (("layer_step", 0), ("value_step", 1), ("head_step", 3), ("column_step", 4)):
            job[name] = cache.element_size() * cache.stride(dimension)
        for name, array in arrays.items():
            job[name] = array.data_ptr()
        self._workers.run(threads)

    def _make_room(self, rows: int, columns: int, threads: int) -> None:
        """Enlarge the buffers, if necessary, for these numbers of rows, columns of the cache, and threads."""
        needed = (rows, columns, threads)
        if all(room >= count for room, count in zip(self._capacity, needed, strict=True)):
            return
        # Room for twice the columns, because the text will grow.
        capacity = tuple(max(pair) for pair in zip(self._capacity, (rows, 2 * columns, threads), strict=True))
        sizes = buffer_sizes(self.fields, *capacity)
        # The job gets the new buffers only after all are allocated: if memory runs out, it still has the old ones.
        buffers = {name: torch.zeros(size, dtype=torch.float32, device="cpu") for name, size in sizes.items()}
        for name, buffer in buffers.items():
            self.fields[name] = buffer.data_ptr()
        self.fields["columns"] = capacity[1]
        self._capacity, self._buffers = capacity, buffers
