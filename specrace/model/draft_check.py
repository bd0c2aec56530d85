"""Checks, before a model may race, that it computes the same logits for drafts as without drafts.

`keep` commits nodes of the tree that was scored last: their keys and values stay in the cache.
"""

from __future__ import annotations

import math

import torch

from specrace.core.errors import InputError, first_line, lacks_memory, memory_error
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.model.capture import TOLERANCE, gap
from specrace.model.refusals import advice
from specrace.model.target import Target


def check_trees(target: Target) -> None:
    """Raises InputError unless a small draft, and tokens after a rejection, get the logits of a plain forward.

    A model may accept a mask and positions but not attend by them; its logits then differ. During the check, windows
    and chunks are three tokens long, so that the draft reaches beyond them.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, target.vocab_size, (12,), generator=generator).tolist()
    try:
        with target.with_reach(3):
            largest_gap = _chain_gap(target, tokens) if target.chains_only else _tree_gap(target, tokens)
    except InputError:
        raise
    # The model's code is not ours, and it may not be written for such inputs, so it may raise anything.
    except Exception as error:
        if lacks_memory(error):
            raise memory_error(str(target.device), target.name) from error
        raise InputError(
            f"{target.name} cannot be scored with a {_draft_word(target)} of drafts ({first_line(error)}); "
            f"{advice(target.config.model_type)}."
        ) from error
    if not math.isfinite(largest_gap):
        if target.dtype == torch.float16:
            raise InputError(f"{target.name} computes numbers that are too large for float16; use --dtype bfloat16.")
        raise InputError(
            f"{target.name} computes numbers that are not finite, so its weights or its config.json are damaged; "
            "fetch it again."
        )
    if largest_gap > TOLERANCE[target.dtype]:
        raise InputError(
            f"{target.name} computes other logits for a {_draft_word(target)} of drafts than without drafts "
            f"(they differ by {largest_gap:.2g}); {advice(target.config.model_type)}."
        )


def _draft_word(target: Target) -> str:
    return "chain" if target.chains_only else "tree"


def _tree_gap(target: Target, tokens: list[int]) -> float:
    """The largest gap to a plain forward in a tree with two branches, and after one of them was accepted."""
    builder = TreeBuilder(tokens[3])
    builder.add_path([tokens[4], tokens[5]])
    branch = builder.add_path([(tokens[4] + 1) % target.vocab_size, tokens[7]])
    tree = builder.build()
    store = target.prefill(tokens[:4]).store.clone(12)
    in_tree = target.logits(store, tree)[branch[-1]]
    store.keep(tree.path_to(branch[-1]))
    after_branch = target.logits(store, TokenTree.chain(tokens[8]))[0]
    text = [*tokens[:3], *(tree.tokens[node] for node in tree.path_to(branch[-1]))]
    plain = target.plain_logits([*text, tokens[8]]).float()
    return max(gap(in_tree, plain[-2]), gap(after_branch, plain[-1]))


def _chain_gap(target: Target, tokens: list[int]) -> float:
    """The largest gap between the logits of chains and those of decoding token by token.

    Of the first chain two tokens are rejected, of the others none. Each is scored twice, because scoring alone must
    change no state.
    """
    assert target.chain_forward is not None
    # `prefill` reads tokens 0 to 2, and token 3 is the first root. Tokens 6 and 7 are the rejected ones.
    prompt, decoded = tokens[:3], [*tokens[3:6], *tokens[8:]]
    plain = target.chain_forward.decode(prompt, decoded).float()
    store = target.prefill(tokens[:4]).store.clone(12)
    gaps = []
    for chain, num_accepted in ((tokens[3:8], 3), (tokens[8:11], 3), (tokens[11:], 1)):
        for _ in range(2):
            logits = target.logits(store, TokenTree.chain(chain[0], chain[1:]))[:num_accepted]
            first = store.length - len(prompt)
            gaps += [gap(row, plain[first + number]) for number, row in enumerate(logits)]
        store.keep(range(num_accepted))
    # Unlike Python's `max`, this is NaN if any gap is NaN.
    return float(torch.tensor(gaps).max())
