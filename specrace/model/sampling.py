"""The target's token at a position: greedy, or a seeded draw whose noise is keyed by (seed, absolute position).

The draw is Gumbel-max: argmax(logits / temperature + noise). A token is an exact sample of the warped distribution,
and a lane that scores the same position twice, or in a wider tree, draws the same token, so at every temperature all
lanes print the text that vanilla prints. Unlike inverse-CDF sampling it does not sum over the vocabulary, so rounding
matters only where two candidates really tie.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import SETTINGS

# Of 49,152 tokens 50 MB; the noise of deeper positions is drawn again.
_CACHED_POSITIONS = 256


class Sampler:
    """Chooses tokens by a `SamplingParams`, on the device of the logits; keeps the noise of recent positions."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._noise: dict[int, Tensor] = {}

    def choose(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """One token a row, int64 [N]. `logits` [N, V]; `positions`: the absolute position that each row predicts."""
        return self.compared(logits, positions).argmax(dim=-1)

    def compared(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """The values whose argmax is chosen, float [N, V]: the logits, when sampling warped and with noise."""
        # On a CPU an argmax in 16 bits takes five times as long as after a cast.
        logits = logits.float()
        if not self.params.temperature:
            return logits
        noise = torch.stack([self._noise_at(position, logits) for position in positions])
        # Positions before a step's root are not asked for again.
        least = min(positions)
        for position in [each for each in self._noise if each < least]:
            del self._noise[position]
        return warp(logits, self.params) + noise

    def _noise_at(self, position: int, logits: Tensor) -> Tensor:
        """Gumbel noise [V] of one position, for logits [N, V]; the same at every call."""
        noise = self._noise.get(position)
        if noise is None:
            uniform = _uniform(_mix(self.params.seed, position), logits.shape[-1], logits.device)
            noise = -torch.log(-torch.log(uniform.clamp_(1e-20, 1 - 2**-24)))
            if len(self._noise) < _CACHED_POSITIONS:
                self._noise[position] = noise
        return noise


def warp(logits: Tensor, params: SamplingParams) -> Tensor:
    """Temperature, then top-k, then top-p, as transformers does; tokens left out become -inf. [N, V] to [N, V]."""
    # Smaller temperatures are greedy anyway, and would make every logit infinite.
    logits = logits / max(params.temperature, 1e-6)
    if params.top_k:
        least = logits.topk(min(params.top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if params.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
        # A token goes when those likelier than it already hold top_p; the first always stays.
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= params.top_p)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def _uniform(key: int, count: int, device: torch.device) -> Tensor:
    """Float32 numbers in [0, 1) that belong to all 63 bits of `key`, [count].

    torch's CPU generator takes 32 bits of a key only, so numpy's is used there.
    """
    if device.type == "cpu":
        numbers = np.random.Generator(np.random.SFC64(key)).random(count, dtype=np.float32)
        return torch.from_numpy(numbers).to(device)
    generator = torch.Generator(device).manual_seed(key)
    return torch.rand(count, generator=generator, device=device)


def draw_seed() -> int:
    """A seed from torch's own generator, which `torch.manual_seed` sets."""
    return int(torch.randint(int(SETTINGS["seed"].high), (1,)))


def _mix(seed: int, position: int) -> int:
    """A 63-bit seed from the pair (splitmix64), so that neighbouring positions get unrelated noise."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1
