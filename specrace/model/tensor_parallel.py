"""Tensor parallelism: several processes each hold a part of every layer, and one of them runs the race.

torchrun starts the processes; transformers splits the weights by the model's own plan and all-reduces within each
forward. Draft sizes depend on measured times, so processes that all ran the race would soon run different forwards and
deadlock. Therefore only the first process, the leader, runs the race. Its target announces every operation on the model
and its caches, and the followers repeat it on their parts.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from weakref import finalize

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoModelForCausalLM

from specrace.core.errors import InputError, first_line
from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore
from specrace.model.forward.tapped import Levels
from specrace.model.machine.device_map import count_accelerators
from specrace.model.scorer import DTYPES
from specrace.model.target import Target

# How long a process may send no message, for instance because it builds an index. If a process ends, the others notice
# it at once.
_SILENCE_LIMIT = timedelta(hours=12)
# The first message of an order: so many digits of the order's size, and so many bytes of its content. A step's tree
# fits into it; a long prompt needs a second message. Together they are 1 kB.
_SIZE_DIGITS, _FIRST_BYTES = 8, 1016


def run(command: Callable[[Followers], int]) -> int:
    """Join torchrun's group of processes: the first runs `command`, the others follow it. Returns the exit code."""
    dist.init_process_group(timeout=_SILENCE_LIMIT)
    size = dist.get_world_size()
    if dist.get_rank():
        # torchrun passes Ctrl-C on to every process; followers end when the leader does.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = Follower(size).follow()
    else:
        with Followers(size) as followers:
            code = command(followers)
    if not code:
        # After a failure other processes may be waiting in a collective, so this one exits without leaving the group.
        dist.destroy_process_group()
    return code


class Followers:
    """The leader's side: sends orders to the followers, the processes that hold the other parts of the model.

    `size` counts all processes, including the leader. Leaving the context ends the followers. Orders refer to a store
    by its number.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers = itertools.count()
        self._dropped: list[int] = []
        self._in_block = False

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *error: object) -> None:
        # Followers that are inside a forward cannot receive an order; they end when this process does.
        if not self._in_block:
            with suppress(RuntimeError):
                self.send("end")

    def send(self, name: str, *arguments: Any) -> None:
        """Make every follower call its method `name`; `arguments` must be JSON values."""
        with self.repeating(name, *arguments):
            pass

    @contextmanager
    def repeating(self, name: str, *arguments: Any) -> Iterator[None]:
        """Send an order; meanwhile the caller's block runs the same operation on the leader's own part.

        The two must run at the same time, because their forwards exchange partial sums (all-reduces).
        """
        dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
        order = json.dumps([name, arguments, dropped]).encode()
        with self._lockstep():
            _broadcast(_SIZE_DIGITS + _FIRST_BYTES, f"{len(order):{_SIZE_DIGITS}}".encode() + order[:_FIRST_BYTES])
            if len(order) > _FIRST_BYTES:
                _broadcast(len(order) - _FIRST_BYTES, order[_FIRST_BYTES:])
            yield

    @contextmanager
    def _lockstep(self) -> Iterator[None]:
        """Leave `_in_block` true if the block fails, because the followers are then still inside the operation.

        Raises RuntimeError if a follower has ended.
        """
        self._in_block = True
        try:
            yield
        except RuntimeError as error:
            if _is_lost(error):
                raise RuntimeError(f"one of the {self.size} processes that hold the model has ended") from error
            raise
        self._in_block = False

    def number(self, store: KVStore) -> int:
        """A number for a new store; once the store is freed, the next order tells the followers to drop their parts."""
        number = next(self._numbers)
        # Not sent at once, because Python may free an object at any time, even during a forward.
        finalize(store, self._dropped.append, number)
        return number


class Follower:
    """One of `size` processes, which holds a part of the model and carries out the leader's orders."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.target: Target
        self.stores: dict[int, KVStore] = {}

    def follow(self) -> int:
        """Carry out orders until the leader ends; returns the exit code. A failure here is printed in one sentence."""
        try:
            while self.obey(*_receive()):
                pass
        except Exception as error:
            # A leader that has ended has reported the reason itself.
            if not _is_lost(error):
                print(f"Process {dist.get_rank()} of {self.size} failed: {first_line(error)}", file=sys.stderr)
            return 1
        return 0

    @torch.inference_mode()
    def obey(self, name: str, arguments: Sequence[Any], dropped: Sequence[int]) -> bool:
        """Drop the stores `dropped`, then carry out an order; returns False if it is the last one."""
        for number in dropped:
            # A store and its layers refer to each other. Without its storage it can wait for the garbage collector.
            self.stores.pop(number).blocks = []
        if name == "end":
            return False
        getattr(self, name)(*arguments)
        return True

    def load(self, *arguments: Any) -> None:
        """Load this process's part of the model."""
        model, _ = load_part(*arguments)
        self.target = Target(model)

    def make(self, number: int, capacity: int) -> None:
        """Create an empty store."""
        self.stores[number] = self.target.new_store(capacity)

    def restore(self, number: int, source: int, length: int) -> None:
        """Copy the first `length` tokens of the store `source` to a store."""
        self.stores[number].restore(self._at(source, length))

    def move(self, number: int, length: int, path: list[int]) -> None:
        """Move a path directly after the committed tokens of a store."""
        self._at(number, length).move(path)

    def read(self, number: int, tokens: list[int]) -> None:
        """Fill an empty store with a prompt."""
        self.target.read(self.stores[number], tokens)

    def run(self, number: int, length: int, tokens: list[int], parents: list[int]) -> None:
        """Run one forward over a tree."""
        self.target.run(self._at(number, length), TokenTree(tuple(tokens), tuple(parents)))
        # Without this, the next order could overwrite the buffers that this forward still reads.
        self.target.synchronize()

    def plain_logits(self, tokens: list[int]) -> None:
        """Run one forward without a store."""
        self.target.plain_logits(tokens)

    def _at(self, number: int, length: int) -> KVStore:
        """A store with `length` committed tokens, like the leader's."""
        store = self.stores[number]
        store.length = length
        return store


class LeadingStore(KVStore):
    """A store for the leader's attention heads. Every follower has one for its own, and repeats each operation."""

    def __init__(self, num_layers: int, capacity: int, followers: Followers) -> None:
        """Create the store here and on all followers."""
        super().__init__(num_layers, capacity)
        self.followers = followers
        self.number = followers.number(self)
        followers.send("make", self.number, capacity)

    def empty(self, capacity: int) -> LeadingStore:
        """A new empty store on this process and on all followers."""
        return LeadingStore(self.num_layers, capacity, self.followers)

    def restore(self, source: KVStore) -> None:
        """Replace the content by what `source` has committed, on this process and on all followers."""
        self.followers.send("restore", self.number, _number(source), source.length)
        super().restore(source)

    def move(self, path: Sequence[int]) -> None:
        """Move the keys and values at `path` directly after the committed tokens, here and on all followers."""
        self.followers.send("move", self.number, self.length, list(path))
        super().move(path)


class LeadingTarget(Target):
    """The target of the leader: all processes take part in each forward and keep their part of the cache."""

    def __init__(self, model: Any, tokenizer: Any, name: str, followers: Followers) -> None:
        super().__init__(model, tokenizer, name)
        self.followers = followers
        self.eager_because = "tensor parallel"
        # Followers choose their own number of threads, and all processes wait for the slowest.
        self.threads = 1

    def new_store(self, capacity: int) -> KVStore:
        """An empty store with room for `capacity` tokens, on this process and on all followers."""
        return LeadingStore(self.num_layers, capacity, self.followers)

    def read(self, store: KVStore, tokens: Sequence[int], levels: Levels = ()) -> Tensor | None:
        """Fill an empty `store` with `tokens` in one forward of all processes, and commit them.

        Hidden states are whole on every process, so only this one returns features.
        """
        with self.followers.repeating("read", _number(store), list(tokens)):
            return super().read(store, tokens, levels)

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        """Logits [N, V] by one forward of all processes over the tree after `store`; nothing is committed."""
        store.check_room(len(tree))
        with self.followers.repeating("run", _number(store), store.length, tree.tokens, tree.parents):
            return super().run(store, tree)

    def run_tapped(self, store: KVStore, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits and features by one forward of all processes, like `run`."""
        store.check_room(len(tree))
        with self.followers.repeating("run", _number(store), store.length, tree.tokens, tree.parents):
            return super().run_tapped(store, tree, levels)

    def plain_logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits [N, V] by a plain forward of all processes, without a store."""
        with self.followers.repeating("plain_logits", list(tokens)):
            return super().plain_logits(tokens)

    def describe(self) -> dict[str, Any]:
        """The facts of `Target.describe`; the device names all processes and says that the model is split over them."""
        facts = super().describe()
        return facts | {"device": f"split over {self.followers.size} x {facts['device']}"}


def load_part(name: str, dtype: str, attention: str, local_files_only: bool) -> tuple[Any, dict[str, Any]]:
    """This process's part of a model by path or hub id, and transformers' report about its weights.

    All processes load their parts at the same time.
    """
    from transformers.distributed import DistributedConfig

    model, report = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=DTYPES[dtype],
        attn_implementation=attention,
        distributed_config=DistributedConfig(tp_size=dist.get_world_size()),
        local_files_only=local_files_only,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    return model, report


def check_num_devices(device: str, size: int) -> None:
    """Raises InputError unless each of `size` processes gets its own device of the requested kind."""
    count = count_accelerators()
    if count and device == "cpu":
        raise InputError(
            "A model that several processes hold is put on the GPUs; give --device cuda, or start with "
            "CUDA_VISIBLE_DEVICES= for the CPU."
        )
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if count and num_local > count:
        raise InputError(f"torchrun started {num_local} processes and there are {count} GPUs; start one for each GPU.")


def check_splits(config: Any, name: str, size: int) -> None:
    """Raises InputError for a model that cannot be split over `size` processes."""
    text = config.get_text_config()
    if not getattr(text, "base_model_tp_plan", None):
        raise InputError(
            f"transformers has no plan to split {name} (tensor parallelism); run it in one process, which "
            "takes several GPUs with --device auto."
        )
    heads = text.num_attention_heads
    for count, kind in ((heads, "heads"), (getattr(text, "num_key_value_heads", None) or heads, "key-value heads")):
        if count % size:
            raise InputError(f"{name} has {count} {kind}, which {size} processes cannot share evenly; start fewer.")


def _is_lost(error: Exception) -> bool:
    """Whether an error says that another process has ended; gloo and NCCL have no error class for that."""
    messages = ("Connection closed", "Connection reset", "Broken pipe", "remote process exited")
    return any(message in str(error) for message in messages)


def _number(store: KVStore) -> int:
    """The number by which orders refer to a store."""
    assert isinstance(store, LeadingStore), "only a store that the followers also have has a number"
    return store.number


def _receive() -> tuple[str, list[Any], list[int]]:
    """Receive the next order: its name, its arguments, and the numbers of the stores to drop."""
    first_message = _broadcast(_SIZE_DIGITS + _FIRST_BYTES)
    size = int(first_message[:_SIZE_DIGITS])
    order = first_message[_SIZE_DIGITS : _SIZE_DIGITS + size]
    if size > _FIRST_BYTES:
        order += _broadcast(size - _FIRST_BYTES)
    name, arguments, dropped = json.loads(order)
    return name, arguments, dropped


def _broadcast(size: int, content: bytes = b"") -> bytes:
    """Send the leader's `content`, padded to `size` bytes, to every process; returns the padded content."""
    block = torch.frombuffer(bytearray(content.ljust(size)), dtype=torch.uint8)
    dist.broadcast(block, src=0)
    return block.numpy().tobytes()
