"""What a race streams: Started, then Steps in race time, then Finished. On disk the same, a JSON object a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from specrace.core.note import Note, note_from_json
from specrace.core.rejection import Check
from specrace.core.settings import MATCH
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict

FORMAT = 1
_PLAIN: dict[Any, Any] = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Timing:
    """Where a step's time went, in milliseconds."""

    draft_ms: float
    target_ms: float
    keep_ms: float

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return self.draft_ms + self.target_ms + self.keep_ms


@dataclass(frozen=True)
class LaneInfo:
    """A lane as it starts: its name, its title, its options, and its verifier ("match", or "rejection" where
    only the distribution is vanilla's).

    `build_ms`: what its drafter took to build its tables, which is on the lane's clock. `prefill_ms`: what a draft
    model took to read the prompt, which is not, for the target's own prefill is on no clock either.
    """

    lane: str
    title: str
    num_draft: int
    options: Mapping[str, Any] = field(default_factory=dict)
    build_ms: float = 0.0
    verifier: str = MATCH
    prefill_ms: float = 0.0


@dataclass(frozen=True)
class Started:
    """The race begins. `about` describes it: question, model, dtype, device, versions, settings, passages."""

    lanes: tuple[LaneInfo, ...]
    prompt_tokens: int
    prefill_ms: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One turn of the loop of one lane. `at_ms`: race time at its end.

    `emitted` is the accepted path and the bonus, cut at the end-of-text token and at the length limit. `end` is "" or
    why the lane ends with this step ("eos", "length"). `texts` (one an emitted token; together they are the printed
    text) and `pieces` (one a node) are filled in by whoever has the tokenizer. `checks`, of a lane under rejection
    sampling only: p, q and the coin of each guess that was looked at, the accepted ones and then the rejected one.
    `note`: what the drafter tells of its draft, if anything.
    """

    lane: str
    index: int
    at_ms: float
    tree: TokenTree
    verdict: Verdict
    emitted: tuple[int, ...]
    timing: Timing
    end: str = ""
    texts: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    checks: tuple[Check, ...] | None = None
    note: Note | None = None

    @property
    def accepted_nodes(self) -> tuple[int, ...]:
        """Nodes of the accepted draft tokens that were emitted; what lies beyond the answer's end counts nowhere."""
        return self.verdict.path[1 : len(self.emitted) + 1]

    @property
    def accepted(self) -> int:
        """Accepted draft tokens that were emitted."""
        return len(self.accepted_nodes)

    @property
    def rejected_branch(self) -> list[int]:
        """Nodes of the first branch after the accepted path, which the target rejected; [] beyond the answer's end."""
        branch, node = list[int](), self.verdict.path[-1]
        if self.accepted == self.verdict.accepted:
            while self.tree.children[node]:
                node = next(iter(self.tree.children[node].values()))
                branch.append(node)
        return branch


@dataclass(frozen=True)
class Difference:
    """Where a lane first differs from vanilla: the two tokens between which the target's choice fell, and their gap.

    The gap is in logits; under sampling in what is compared then: logits over the temperature, and the noise.
    """

    position: int
    best: tuple[str, str]
    gap: float


@dataclass(frozen=True)
class LaneResult:
    """A lane's figures at the end (design, section 7). `note` says why a lane was not compared with vanilla."""

    lane: str
    tokens: int
    steps: int
    tau: float
    drafted_per_step: float
    acceptance_rate: float
    decode_ms: float
    tokens_per_s: float
    speedup: float
    identical: bool | None
    first_difference: Difference | None
    end: str
    loop_tokens: int
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Pace:
    """How steady the machine was, and what was done about it (`specrace.engine.pace`).

    `probes` forwards were timed beside the race, `probe_ms` is what one took before the first step. In units of that
    `low` and `high` are the least and the most during the race, by which steps were corrected; `jumps` is the share of
    probes that fit no pace. Lanes waited `waited_ms` for a processor that others had, which is on no clock. `threads`:
    how many a forward used at the end. `disturbed`: the figures do not count. `note` says it in a sentence.
    """

    probes: int
    probe_ms: float
    low: float
    high: float
    jumps: float
    waited_ms: float
    threads: int
    disturbed: bool
    note: str


@dataclass(frozen=True)
class Finished:
    """The race is over: every lane ended, or somebody stopped it (`stopped`). `pace` is None in older recordings."""

    lanes: tuple[LaneResult, ...]
    stopped: bool = False
    pace: Pace | None = None


Event = Started | Step | Finished


def to_json(event: Event) -> dict[str, Any]:
    """A JSON object that `from_json` turns into an equal event."""
    if isinstance(event, Started):
        return {"type": "started", "format": FORMAT, **asdict(event)}
    if isinstance(event, Finished):
        return {"type": "finished", **asdict(event)}
    row = {"type": "step", **asdict(event)}
    for optional in ("checks", "note"):
        if row[optional] is None:
            del row[optional]
    return row


def from_json(row: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote. Raises ValueError for anything else."""
    try:
        kind = row["type"]
        if kind == "started":
            return _started(row)
        if kind == "step":
            return _step(row)
        if kind == "finished":
            return Finished(tuple(_result(lane) for lane in row["lanes"]), bool(row["stopped"]), _pace(row.get("pace")))
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"not an event: {error!r}") from error
    raise ValueError(f"no event is called {kind!r}")


def _started(row: Mapping[str, Any]) -> Started:
    if row["format"] != FORMAT:
        raise ValueError(f"recording format {row['format']}, this version reads {FORMAT}")
    lanes = tuple(_info(lane) for lane in row["lanes"])
    return Started(lanes, int(row["prompt_tokens"]), float(row["prefill_ms"]), dict(row["about"]))


def _info(row: Mapping[str, Any]) -> LaneInfo:
    # Older recordings call it otherwise, or know one only.
    verifier, prefill_ms = str(row.get("verifier", row.get("rule", MATCH))), float(row.get("prefill_ms", 0.0))
    plain = str(row["lane"]), str(row["title"]), int(row["num_draft"]), dict(row["options"]), float(row["build_ms"])
    return LaneInfo(*plain, verifier, prefill_ms)


def _ints(values: Iterable[Any]) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(type(number) is int for number in numbers):
        raise ValueError("a token or a node is no whole number")
    return numbers


def _floats(values: Iterable[Any] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(float(value) for value in values)


def _step(row: Mapping[str, Any]) -> Step:
    tree = _tree(row["tree"])
    verdict = _verdict(row["verdict"], tree)
    return Step(
        lane=str(row["lane"]),
        index=int(row["index"]),
        at_ms=float(row["at_ms"]),
        tree=tree,
        verdict=verdict,
        emitted=_ints(row["emitted"]),
        timing=Timing(**{name: float(value) for name, value in row["timing"].items()}),
        end=str(row["end"]),
        texts=tuple(map(str, row["texts"])),
        pieces=tuple(map(str, row["pieces"])),
        checks=_checks(row["checks"], tree, verdict) if "checks" in row else None,
        note=note_from_json(row["note"], len(tree)) if "note" in row else None,
    )


def _checks(rows: Iterable[Mapping[str, Any]], tree: TokenTree, verdict: Verdict) -> tuple[Check, ...]:
    """Raises ValueError unless there is one for each guess that the verdict says was looked at."""
    checks = tuple(Check(float(row["p"]), float(row["q"]), float(row["coin"])) for row in rows)
    if len(checks) != min(verdict.accepted + 1, tree.num_draft):
        raise ValueError(f"{len(checks)} checks for {verdict.accepted} accepted of {tree.num_draft} guesses")
    return checks


def _tree(row: Mapping[str, Any]) -> TokenTree:
    positions = row["positions"]
    return TokenTree(
        _ints(row["tokens"]),
        _ints(row["parents"]),
        _floats(row["probs"]),
        None if positions is None else _ints(positions),
    )


def _verdict(row: Mapping[str, Any], tree: TokenTree) -> Verdict:
    """Raises ValueError unless the path is one of the tree's and every node has its scores."""
    top = row["scores"]["top"]
    scores = Scores(_ints(row["scores"]["targets"]), None if top is None else tuple(_ints(each) for each in top))
    path, (bonus,) = _ints(row["path"]), _ints([row["bonus"]])
    if len(scores.targets) != len(tree) or not path or not 0 <= path[-1] < len(tree) or tree.path_to(path[-1]) != path:
        raise ValueError("a verdict does not fit its tree")
    return Verdict(path, bonus, scores)


def _pace(row: Mapping[str, Any] | None) -> Pace | None:
    if row is None:
        return None
    plain = {each.name: _PLAIN[each.type](row[each.name]) for each in fields(Pace)}
    return Pace(**plain)


def _result(row: Mapping[str, Any]) -> LaneResult:
    difference, identical = row["first_difference"], row["identical"]
    if difference is not None:
        best, second = difference["best"]
        difference = Difference(int(difference["position"]), (str(best), str(second)), float(difference["gap"]))
    row = {"note": "", **row}
    plain = {each.name: _PLAIN[each.type](row[each.name]) for each in fields(LaneResult) if each.type in _PLAIN}
    return LaneResult(**plain, identical=None if identical is None else bool(identical), first_difference=difference)
