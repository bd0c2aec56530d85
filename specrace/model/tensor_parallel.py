"""A model that several processes hold together, each a part of every layer (tensor parallelism), and a race on top.

torchrun starts the processes; transformers splits the weights by the model's own plan and all-reduces within each
forward. Lanes cut their trees by measured times, so processes that each ran the race would soon run different forwards
and deadlock. So only the first process, the leader, runs the race; its target announces every operation on the model
and its caches, and the followers do the same on their parts.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any
from weakref import finalize

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoModelForCausalLM

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.model.device_map import count_accelerators, one_device
from specrace.model.kv import KVStore
from specrace.model.roofline import Roofline
from specrace.model.scorer import DTYPES
from specrace.model.target import Target

# A process that ends is noticed at once; this is for one that is silent, for instance while an index is built.
_PATIENCE = timedelta(hours=12)
# Bytes of an order's first message: a step's tree fits, a long prompt needs a second one.
_SIZE_DIGITS, _ROOM = 8, 1016


def run(command: Callable[[Followers], int]) -> int:
    """Join torchrun's other processes; the first runs `command`, the others follow it to its end. The exit code."""
    dist.init_process_group(timeout=_PATIENCE)
    size = dist.get_world_size()
    if dist.get_rank():
        # torchrun sends Ctrl-C to every process; followers end with the leader.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = Follower(size).follow()
    else:
        with Followers(size) as followers:
            code = command(followers)
    if not code:
        # After a failure others may be waiting in a collective; a process that ends leaves it by itself.
        dist.destroy_process_group()
    return code


class Followers:
    """The leader's side: sends orders to the processes that hold the other parts of the model.

    `size` counts all processes, the leader too. As a context it dismisses the others at its end. Orders name a store by
    its number.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers = itertools.count()
        self._dropped: list[int] = []
        self._apart = False

    def __enter__(self) -> Followers:
        return self

    def __exit__(self, *error: object) -> None:
        # Followers left within a forward receive no order: they end when this process does.
        if not self._apart:
            with suppress(RuntimeError):
                self.send("end")

    def send(self, name: str, *arguments: Any) -> None:
        """Let every follower call its method `name`; `arguments` must be JSON values."""
        with self.joining(name, *arguments):
            pass

    @contextmanager
    def joining(self, name: str, *arguments: Any) -> Iterator[None]:
        """Send an order; the block does the same here, and the processes all-reduce in it."""
        dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
        words = json.dumps([name, arguments, dropped]).encode()
        with self._within():
            _broadcast(_SIZE_DIGITS + _ROOM, f"{len(words):{_SIZE_DIGITS}}".encode() + words[:_ROOM])
            if len(words) > _ROOM:
                _broadcast(len(words) - _ROOM, words[_ROOM:])
            yield

    @contextmanager
    def _within(self) -> Iterator[None]:
        """A failure in the block leaves the followers in it. Raises RuntimeError where one of them has ended."""
        self._apart = True
        try:
            yield
        except RuntimeError as error:
            if _is_lost(error):
                raise RuntimeError(f"one of the {self.size} processes that hold the model has ended") from error
            raise
        self._apart = False

    def number(self, store: KVStore) -> int:
        """A number for a new store; when that is freed, the next order makes the followers drop theirs."""
        number = next(self._numbers)
        # Not at once: objects are freed at any time, also within a forward.
        finalize(store, self._dropped.append, number)
        return number


class Follower:
    """One of `size` processes: holds a part of the model and obeys the leader's orders."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.target: Target
        self.stores: dict[int, KVStore] = {}

    def follow(self) -> int:
        """Obey until the leader ends; returns the exit code. A failure of its own is printed in one sentence."""
        try:
            while self.obey(*_receive()):
                pass
        except Exception as error:
            # The leader has reported its own end.
            if not _is_lost(error):
                reason = str(error).strip().splitlines() or [type(error).__name__]
                print(f"Process {dist.get_rank()} of {self.size} failed: {reason[0]}", file=sys.stderr)
            return 1
        return 0

    @torch.inference_mode()
    def obey(self, name: str, arguments: Sequence[Any], dropped: Sequence[int]) -> bool:
        """Drop stores, then do what an order says; whether there will be another one."""
        for number in dropped:
            # A store and its layers point to each other: without its storage it may wait for the collector.
            self.stores.pop(number).blocks = []
        if name == "end":
            return False
        getattr(self, name)(*arguments)
        return True

    def load(self, *arguments: Any) -> None:
        """Take a part of the model."""
        model, _ = load_part(*arguments)
        self.target = Target(model)

    def make(self, number: int, capacity: int) -> None:
        """An empty store."""
        self.stores[number] = self.target.new_store(capacity)

    def restore(self, number: int, source: int, length: int) -> None:
        """Copy what the leader's store has committed."""
        self.stores[number].restore(self._at(source, length))

    def move(self, number: int, length: int, path: list[int]) -> None:
        """Gather a path behind the committed tokens."""
        self._at(number, length).move(path)

    def read(self, number: int, tokens: list[int]) -> None:
        """Fill a store with a prompt."""
        self.target.read(self.stores[number], tokens)

    def run(self, number: int, length: int, tokens: list[int], parents: list[int]) -> None:
        """One forward over a tree."""
        self.target.run(self._at(number, length), TokenTree(tuple(tokens), tuple(parents)))
        # The next order must not fill the buffers that this forward still reads.
        self.target.synchronize()

    def plain_logits(self, tokens: list[int]) -> None:
        """One forward without a store."""
        self.target.plain_logits(tokens)

    def _at(self, number: int, length: int) -> KVStore:
        """A store, with as many tokens committed as in the leader's."""
        store = self.stores[number]
        store.length = length
        return store


class LeadingStore(KVStore):
    """A store of the leader's heads. Every follower has one like it of its own heads."""

    def __init__(self, num_layers: int, capacity: int, followers: Followers) -> None:
        super().__init__(num_layers, capacity)
        self.followers = followers
        self.number = followers.number(self)
        followers.send("make", self.number, capacity)

    def empty(self, capacity: int) -> LeadingStore:
        """Another, here and there."""
        return LeadingStore(self.num_layers, capacity, self.followers)

    def restore(self, source: KVStore) -> None:
        """As in any store, here and there."""
        self.followers.send("restore", self.number, _number(source), source.length)
        super().restore(source)

    def move(self, path: Sequence[int]) -> None:
        """As in any store, here and there."""
        self.followers.send("move", self.number, self.length, list(path))
        super().move(path)


class LeadingTarget(Target):
    """The target of the process that runs the race: each forward, and what it leaves, is done by all processes."""

    def __init__(self, model: Any, tokenizer: Any, name: str, followers: Followers) -> None:
        super().__init__(model, tokenizer, name)
        self.followers = followers
        self.eager_because = "tensor parallel"
        # The followers' are theirs to choose, and all wait for the slowest.
        self.threads = 1

    def new_store(self, capacity: int) -> KVStore:
        """An empty store, here and there."""
        return LeadingStore(self.num_layers, capacity, self.followers)

    def read(self, store: KVStore, tokens: Sequence[int]) -> None:
        """As any target, together with the followers."""
        with self.followers.joining("read", _number(store), list(tokens)):
            super().read(store, tokens)

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        """As any target, together with the followers."""
        store.check_room(len(tree))
        with self.followers.joining("run", _number(store), store.length, tree.tokens, tree.parents):
            return super().run(store, tree)

    def plain_logits(self, tokens: Sequence[int]) -> Tensor:
        """As any target, together with the followers."""
        with self.followers.joining("plain_logits", list(tokens)):
            return super().plain_logits(tokens)

    @cached_property
    def roofline(self) -> Roofline:
        """Of this process's part, which is read at the same time as the others: its weights, its heads' KV."""
        with torch.inference_mode():
            columns = [block[..., 0, :] for block in self.prefill([0, 0]).store.blocks]
        return replace(super().roofline, token_bytes=sum(each.numel() * each.element_size() for each in columns))

    def describe(self) -> dict[str, Any]:
        """The same, with the devices of all processes: a model spread by layers over as many is another thing."""
        about = super().describe()
        return about | {"device": f"split over {self.followers.size} x {about['device']}"}


def load_part(name: str, dtype: str, attention: str, local_files_only: bool) -> tuple[Any, dict[str, Any]]:
    """This process's part of a model by path or hub id, and what transformers tells of its weights.

    All processes load theirs at the same time.
    """
    from transformers.distributed import DistributedConfig

    model, told = AutoModelForCausalLM.from_pretrained(
        name,
        dtype=DTYPES[dtype],
        attn_implementation=attention,
        distributed_config=DistributedConfig(tp_size=dist.get_world_size()),
        local_files_only=local_files_only,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    return model, told


def check_places(device: str, size: int) -> None:
    """Raises InputError where `size` processes would not find a device each of the kind that was asked for."""
    count = count_accelerators()
    if count and one_device(device) == "cpu":
        raise InputError(
            "A model that several processes hold is put on the GPUs; give --device cuda, or start with "
            "CUDA_VISIBLE_DEVICES= for the CPU."
        )
    here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if count and here > count:
        raise InputError(f"torchrun started {here} processes and there are {count} GPUs; start one for each GPU.")


def check_splits(config: Any, name: str, size: int) -> None:
    """Raises InputError for a model that cannot be split over so many processes."""
    text = config.get_text_config()
    if not getattr(text, "base_model_tp_plan", None):
        raise InputError(
            f"transformers has no plan to split {name} (tensor parallelism); run it in one process, which "
            "takes several GPUs with --device auto."
        )
    heads = text.num_attention_heads
    for count, what in ((heads, "heads"), (getattr(text, "num_key_value_heads", None) or heads, "key-value heads")):
        if count % size:
            raise InputError(f"{name} has {count} {what}, which {size} processes cannot share evenly; start fewer.")


def _is_lost(error: Exception) -> bool:
    """Whether another process has ended. gloo and NCCL raise RuntimeErrors as for anything else."""
    said = ("Connection closed", "Connection reset", "Broken pipe", "remote process exited")
    return any(words in str(error) for words in said)


def _number(store: KVStore) -> int:
    assert isinstance(store, LeadingStore), "a store that the followers have, too"
    return store.number


def _receive() -> tuple[str, list[Any], list[int]]:
    """The next order: a name, arguments, the stores that are gone."""
    head = _broadcast(_SIZE_DIGITS + _ROOM)
    size = int(head[:_SIZE_DIGITS])
    words = head[_SIZE_DIGITS : _SIZE_DIGITS + size]
    if size > _ROOM:
        words += _broadcast(size - _ROOM)
    name, arguments, dropped = json.loads(words)
    return name, arguments, dropped


def _broadcast(size: int, words: bytes = b"") -> bytes:
    """The leader's `words`, in every process, filled up to `size` bytes. By way of the CPU, whatever the model's."""
    block = torch.frombuffer(bytearray(words.ljust(size)), dtype=torch.uint8)
    dist.broadcast(block, src=0)
    return block.numpy().tobytes()
