"""What rejected drafts leave in a model's states: `python -m tests.measure.state_difference [KIND ...]`.

For each kind of model whose layers keep a state, a tiny one with random weights decodes the same 200 tokens twice: with
drafts, of which some tokens are rejected in every step, and without drafts. Prints the largest difference between the
two runs' states after any step, and the largest element of a state. Takes a few seconds for each kind.
"""

from __future__ import annotations

import random
import sys

import torch
import transformers

from specrace.core.tree import TokenTree
from tests.measure.tiny_configs import VOCABULARY
from tests.model.forward.test_states import largest_difference, make_target, states_of

KINDS = ("qwen3_5_text", "granitemoehybrid", "falcon_h1", "mamba")
TOKENS = 200


def measure(kind: str) -> tuple[float, float]:
    """The largest difference between the states, and their largest element."""
    target, rng = make_target(kind), random.Random(kind)
    text = [rng.randrange(3, VOCABULARY) for _ in range(40)]
    drafted, plain = (target.prefill(text).store.clone(2 * TOKENS) for _ in range(2))
    difference = 0.0
    while plain.length < 40 + TOKENS:
        accepted = [rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(4))]
        rejected = [rng.randrange(3, VOCABULARY) for _ in range(1 + rng.randrange(4))]
        target.logits(drafted, TokenTree.chain(text[-1], [*accepted, *rejected]))
        # The cache keeps the root and the accepted nodes.
        drafted.keep(range(1 + len(accepted)))
        # Without drafts, the same accepted tokens are read one at a time.
        for token in (text[-1], *accepted):
            target.logits(plain, TokenTree.chain(token))
            plain.keep((0,))
        text += [*accepted, rng.randrange(3, VOCABULARY)]
        difference = max(difference, largest_difference(drafted, plain))
    return difference, max(float(state.abs().max()) for state in states_of(plain).values())


def main() -> int:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for kind in sys.argv[1:] or KINDS:
        difference, largest = measure(kind)
        print(f"{kind:20} largest difference {difference:.1e}, largest element {largest:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
