"""The target's token at a position: greedy, or a seeded draw whose noise is keyed by (seed, absolute position).

The draw uses the Gumbel-max trick: argmax(logits / temperature + noise). A token is an exact sample of the warped
distribution (that after temperature, top-k and top-p), and a lane that scores a position twice, or in a wider tree,
draws the same token. So at every temperature all lanes print the text that vanilla prints. Unlike inverse-CDF sampling,
the Gumbel-max trick does not sum over the vocabulary, so rounding matters only for candidates that practically tie.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specrace.core.sampling_params import SamplingParams
from specrace.core.settings import SETTINGS
from specrace.core.verify import NO_TOKEN

# The noise of this many positions takes 50 MB for SmolLM2's 49,152 tokens. Noise beyond it is computed each time.
_CACHED_POSITIONS = 256


class Sampler:
    """Chooses tokens according to a `SamplingParams`, on the logits' device; keeps the noise of recent positions."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self._noise: dict[int, Tensor] = {}

    def choose(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """One token per row, int64 [N]; NO_TOKEN in rows with a NaN.

        `logits` [N, V]; `positions`: the absolute position that each row predicts.
        """
        # On a CPU this takes half the time of an argmax. A NaN counts as the largest value.
        values, tokens = self.perturbed(logits, positions).max(dim=-1)
        return tokens.masked_fill(values.isnan(), NO_TOKEN)

    def perturbed(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """The values whose argmax is chosen, float [N, V]: the logits; under sampling, warped logits plus noise."""
        logits = logits.float()
        if not self.params.temperature:
            return logits
        return warp(logits, self.params) + self.noise(positions, logits.shape[-1], logits.device)

    def noise(self, positions: Sequence[int], count: int, device: torch.device) -> Tensor:
        """The Gumbel noise of `count` tokens at these positions, [N, count]; that of earlier positions is dropped."""
        noise = torch.stack([self._noise_at(position, count, device) for position in positions])
        # Positions before a step's root are not needed again.
        root = min(positions)
        for position in [position for position in self._noise if position < root]:
            del self._noise[position]
        return noise

    def _noise_at(self, position: int, count: int, device: torch.device) -> Tensor:
        """Gumbel noise [count] of one position; the same at every call."""
        noise = self._noise.get(position)
        if noise is None:
            uniform = _uniform(_mix(self.params.seed, position), count, device)
            # At 0 or 1 the noise would be infinite.
            noise = -torch.log(-torch.log(uniform.clamp_(1e-20, 1 - 2**-24)))
            if len(self._noise) < _CACHED_POSITIONS:
                self._noise[position] = noise
        return noise


def warp(logits: Tensor, params: SamplingParams) -> Tensor:
    """Apply temperature, top-k and top-p in transformers' order, [N, V] to [N, V]; excluded tokens get -inf."""
    # Lower temperatures are greedy anyway, and would make every logit infinite.
    logits = logits / max(params.temperature, 1e-6)
    if params.top_k:
        threshold = logits.topk(min(params.top_k, logits.shape[-1]), dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, -torch.inf)
    if params.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        # The probability of all likelier tokens together.
        before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
        # A token is dropped if the likelier ones already sum up to top_p; the likeliest is never dropped.
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= params.top_p)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def _uniform(key: int, count: int, device: torch.device) -> Tensor:
    """Random float32 numbers in [0, 1), [count], which depend on all 63 bits of `key`.

    torch's CPU generator uses only 32 bits of a seed, so on a CPU numpy draws the numbers.
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
    """A 63-bit seed from seed and position (splitmix64), so that neighbouring positions get unrelated noise."""
    mask = (1 << 64) - 1
    value = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) & mask
    # The constants from here on are splitmix64's.
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return (value ^ (value >> 31)) >> 1
