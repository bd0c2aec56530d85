"""Loads heads by folder or hub id, and gives each to the lane that drafts with its kind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from specrace.core.bundled import SHIPPED_HEADS
from specrace.core.errors import InputError, shorten
from specrace.heads.checkpoint import CONFIG, Checkpoint, read_checkpoint, write_checkpoint
from specrace.heads.layouts import Head, build_head, with_output_rows
from specrace.heads.naming import read_names, write_names
from specrace.model.target import Target
from specrace.model.tensor_parallel import LeadingTarget
from specrace.model.weights.names import hub_snapshot

_HINT = "give --head LANE=FOLDER, or --head FOLDER"


def read_head(location: str | Path) -> Checkpoint:
    """Read a head from a folder, or by id from the hub's cache. Raises InputError."""
    folder = Path(location)
    if not folder.is_dir() and str(location).count("/") == 1:
        folder = hub_snapshot(str(location)) or folder
    return read_checkpoint(folder)


def convert(location: str | Path, layout: str, out: Path, target: Target | None = None) -> str:
    """Write a head to `out` in another layout of its kind (see `naming`); returns a line that says where.

    With a `target`, a Medusa head that uses the target's output rows gets a copy of them. Raises InputError for a head
    that cannot be read or has no such layout, and if `out` is a head's folder already.
    """
    if (out / CONFIG).exists():
        raise InputError(f"There is a head in {shorten(out)} already; give a new folder with --out.")
    checkpoint = read_names(read_head(location))
    if target is not None:
        checkpoint = with_output_rows(checkpoint, target)
    write_checkpoint(write_names(checkpoint, layout), out)
    return f"wrote {out} in the layout {layout}"


def attach_heads(target: Target, choices: Sequence[str], kinds: Mapping[str, str]) -> None:
    """Load heads and set `target.heads`, lane -> head; each choice is "[LANE=]FOLDER_OR_ID".

    `kinds`: the lanes that draft with a head -> the kind of head that they need. Raises InputError if a head does not
    fit the target or the lane, or if two heads are for one lane. A choice without a lane is for all lanes of its kind.
    A lane without a choice gets the masks that the target was trained with, or a head that is part of this package, if
    there is one.
    """
    if choices and isinstance(target, LeadingTarget):
        raise InputError(
            f"A head cannot draft for {target.name} while several processes hold it; run it in one process, or leave "
            "out --head."
        )
    heads: dict[str, Head] = {}
    shipped = shipped_heads(target.fingerprint)
    if target.own_masks is not None:
        shipped.append(target.own_masks)
    for choice in choices:
        lane, location = split_choice(choice, kinds)
        head = build_head(read_head(location), target)
        fitting = [name for name, kind in kinds.items() if kind == head.kind]
        if lane and lane not in fitting:
            raise InputError(f"{head.label} is of the kind {head.kind}, which the lane {lane} cannot use; {_HINT}.")
        for name in [lane] if lane else fitting:
            if name in heads:
                raise InputError(f"Two heads are given for the lane {name}; give one.")
            heads[name] = head
    for folder in shipped:
        head = build_head(read_checkpoint(folder), target)
        # The heads that were chosen before take precedence.
        heads = {name: head for name, kind in kinds.items() if kind == head.kind} | heads
    target.heads = dict(heads)


def shipped_heads(fingerprint: str) -> list[Path]:
    """The folders of this package's heads that were trained for the weights with this fingerprint; "" fits none."""
    if not fingerprint:
        return []
    files = sorted(SHIPPED_HEADS.glob(f"*/{CONFIG}"))
    return [
        file.parent for file in files if json.loads(file.read_text("utf-8")).get("target_fingerprint") == fingerprint
    ]


def split_choice(choice: str, kinds: Mapping[str, str]) -> tuple[str, str]:
    """("eagle", "folder") from "eagle=folder", ("", "folder") from "folder".

    Raises InputError for a lane that drafts without a head, and if no folder is named. A folder that exists may have an
    equals sign in its name.
    """
    lane, equals, location = choice.partition("=")
    if not equals or Path(choice).is_dir():
        lane, location = "", choice
    if not location:
        raise InputError(f"--head {shorten(repr(choice))} names no head; {_HINT}.")
    if lane and lane not in kinds:
        raise InputError(
            f"--head {shorten(choice)} is for the lane {shorten(repr(lane))}, which drafts with no head; "
            f"the lanes are {', '.join(kinds)}."
        )
    return lane, location
