"""What it costs vanilla that a head reads hidden states: python -m tests.measure.tap_cost [--model NAME] [--dtype D]

A tap copies the hidden states of some levels out of a forward. Steps of one row, without a tap and with the levels that
heads of EAGLE-1 and of EAGLE-3 read, take turns after 200 tokens. Prints the median time of each, and the median of the
ratios within a turn: untapped over tapped. The logits must be equal to the last bit; exits with 1 if they are not, or
if a ratio is below .98. Times leave out waits for a processor.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from statistics import median

import torch

from specrace.core.clock import since_ms, thread_ms
from specrace.core.tree import TokenTree
from specrace.model.target import Target
from specrace.model.weights.source import choose_model
from specrace.workbench import Workbench

# Tokens of the prompt (columns of the KV cache).
COLUMNS = 200
# The share of its speed that a step must keep when it is tapped.
BAR = 0.98


@torch.inference_mode()
def measure(target: Target, taps: Mapping[str, tuple[int, ...]], turns: int) -> tuple[dict[str, list[float]], bool]:
    """The times of the steps in ms, by tap, and whether all logits are equal.

    The order of the taps is reversed in every other turn, because a step warms the caches for the next.
    """
    prompt = [1 + number % (target.vocab_size - 1) for number in range(COLUMNS)]
    # A tree of one node, which has the token id 1; any id will do.
    store, tree = target.prefill(prompt).store.clone(COLUMNS + 1), TokenTree.chain(1)
    times = {name: list[float]() for name in taps}
    expected, are_equal = target.run(store, tree).clone(), True
    # Run each tap once without measuring, because its first run prepares it.
    for levels in filter(None, taps.values()):
        target.run_tapped(store, tree, levels)
    for turn in range(turns):
        for name, levels in list(taps.items())[:: 1 if turn % 2 else -1]:
            began = thread_ms()
            logits = target.run_tapped(store, tree, levels)[0] if levels else target.run(store, tree)
            times[name].append(since_ms(began))
            are_equal &= torch.equal(logits, expected)
    return times, are_equal


def main() -> int:
    """Measure, print, and return 1 if a tap costs too much or changes a logit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--turns", type=int, default=400)
    options = parser.parse_args()
    target = Workbench.open(choose_model(options.model, dtype=options.dtype)).target
    # Level i enters layer i, so the last level leaves the last layer. EAGLE-3 reads an early, a middle and a late one.
    last = int(target.config.num_hidden_layers)
    taps = {"untapped": (), "EAGLE-1's level": (last,), "EAGLE-3's levels": (2, last // 2, last - 3)}
    times, are_equal = measure(target, taps, options.turns)
    print(f"{options.model}, {options.dtype}, {target.forward_kind}, {torch.get_num_threads()} threads")
    speed_shares = []
    for name, taken in times.items():
        pairs = zip(times["untapped"], taken, strict=True)
        speed_shares.append(median(untapped_ms / taken_ms for untapped_ms, taken_ms in pairs))
        print(f"{name}: {median(taken):.2f} ms a step, {speed_shares[-1]:.3f} of the untapped speed")
    print(f"logits equal to the last bit: {'yes' if are_equal else 'NO'}")
    return int(min(speed_shares) < BAR or not are_equal)


if __name__ == "__main__":
    sys.exit(main())
