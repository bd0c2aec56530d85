"""SPACE (arXiv 2402.11809) and PaSS (arXiv 2311.13581): masks, at which the target itself guesses tokens further ahead.

A mask is a learned embedding that stands for a token not known yet; the head is the masks' embeddings alone. Every node
of a tree gets a chain of masks below it. Mask j (0, 1, ...) of the chain guesses the token j + 2 places after the node,
whatever the tokens in between; the first place after it is the target's own choice, the pending token of the next step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.heads.parts import HeadParts
from specrace.model.forward.kv import Prefix
from specrace.model.forward.masked import Masks
from specrace.model.forward.tapped import Levels
from specrace.model.sampling import Sampler
from specrace.model.target import Target

# A node of a draft tree, by the tokens on the way to it from the root, the pending token; () is the root itself.
Path = tuple[int, ...]
EMBEDDINGS = "mask_embeddings.weight"
# A draft is about as long as there are masks, and each of its tokens has all masks below it: rows grow quadratically,
# to 17 * 17 with 16 masks.
MAX_MASKS = 16


class SpaceHead:
    """The masks of a target; `label` names the head in messages. It reads no hidden states."""

    kind = "space"
    levels: Levels = ()

    def __init__(self, masks: Masks, target: Target, label: str) -> None:
        self.masks, self.target, self.label = masks, target, label

    @property
    def depth(self) -> int:
        """How many tokens ahead of the pending token it guesses."""
        return len(self.masks)

    def after(self, prompt: Sequence[int], prefix: Prefix) -> PromptedSpace:
        """The head after a prompt; the prompt was read without masks, so the first step has no guesses."""
        return PromptedSpace(self, len(prompt) - 1)


class PromptedSpace:
    """A head after a prompt of which the target has read `count` tokens, all but the last; it reads nothing itself."""

    prefill_ms = 0.0

    def __init__(self, head: SpaceHead, count: int) -> None:
        self.head, self.count = head, count

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> SpaceSession:
        """A session for one lane; it needs no `room`. Without `coupled`, guesses are ranked by their logits alone."""
        return SpaceSession(self, params, coupled=coupled)


class SpaceSession:
    """One lane's masks, and their latest outputs, as a drafter asks for them (`drafters.sessions.MaskingHeadSession`).

    `num_masks`: how many of the masks the next tree has below each of its nodes.
    """

    def __init__(self, prompted: PromptedSpace, params: SamplingParams, *, coupled: bool = True) -> None:
        self.head, self.masks, self.depth = prompted.head, prompted.head.masks, prompted.head.depth
        self.num_masks = self.depth
        # By default, `SamplingParams` are greedy: no noise.
        self._sampler = Sampler(params if coupled else SamplingParams())
        # How many tokens are committed; the pending one is at this position.
        self._count = prompted.count
        # Logits [m, V] of the masks below the last accepted token, and the ranked guesses made from them, by depth.
        self._logits: Tensor | None = None
        self._guesses: list[list[tuple[int, float]]] = []

    @property
    def depths_per_forward(self) -> int:
        """How many depths of a tree one forward guesses: all; the target's forward has computed them already."""
        return self.depth

    @property
    def room(self) -> int:
        """How many more tokens fit in the target's context."""
        return self.head.target.max_context - self._count

    def read_masks(self, logits: Tensor, tokens: Sequence[int]) -> None:
        """Take the logits [m, V] of the masks below the last of the accepted `tokens`."""
        self._logits, self._guesses = logits, []
        self._count += len(tokens)

    def begin(self, root: int) -> None:
        """Start a step; the guesses were made before the pending token was known."""

    @torch.inference_mode()
    def likeliest(self, paths: Sequence[Path], k: int) -> list[list[tuple[int, float]]]:
        """For each path the k likeliest next tokens with their probabilities; only the path's length matters.

        Under sampling they are ranked with the noise that the target will use at that position.
        """
        if self._logits is None or not len(self._logits):
            return [[] for _ in paths]
        if not self._guesses or len(self._guesses[0]) < k:
            with self.head.target.between_forwards():
                self._guesses = self._rank(self._logits, k)
        return [self._guesses[len(path)][:k] if len(path) < len(self._guesses) else [] for path in paths]

    def _rank(self, logits: Tensor, k: int) -> list[list[tuple[int, float]]]:
        # The first mask guesses the pending token's child.
        positions = range(self._count + 1, self._count + 1 + len(logits))
        probs = self._sampler.perturbed(logits, positions).softmax(dim=-1)
        best = probs.topk(min(k, probs.shape[-1]), dim=-1)
        return [
            list(zip(tokens, values, strict=True))
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def build_space(parts: HeadParts) -> SpaceHead:
    """The masks of a checkpoint. Raises InputError if they do not fit the target, or it cannot read masks."""
    checkpoint, target, label = parts.checkpoint, parts.target, parts.label
    parts.check_sizes(checkpoint.size("hidden_size", parts.width))
    if target.chains_only:
        raise InputError(
            f"{label} has masks, which are branches, and layers of {target.name} keep a state, which follows one "
            "branch only; give another model."
        )
    width = target.model.get_input_embeddings().weight.shape[1]
    if width != parts.width or getattr(target.config, "vocab_size_per_layer_input", None):
        raise InputError(
            f"{label} has masks, and {target.name} reads tokens in more ways than by one embedding as wide as its "
            "layers, so masks cannot stand beside them; give another model."
        )
    count = checkpoint.size("num_masks")
    if count > MAX_MASKS:
        raise InputError(f"{label} has {count} masks; the lane space takes at most {MAX_MASKS}.")
    return SpaceHead(Masks(parts.placed(EMBEDDINGS, count, parts.width), target.vocab_size), target, label)
