"""A target, documents and a retriever: from a question to the events of a race."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_MODEL, CORPUS
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Event, Finished, Repeated, Step
from specrace.core.settings import MAX_QUESTION_CHARACTERS, SETTINGS
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec, largest_draft, plan_lanes
from specrace.lab.calibrate import load_cached
from specrace.model.adapter import AUTO
from specrace.model.adapter import NONE as NO_ADAPTER
from specrace.model.loading import load_target
from specrace.model.names import resolve
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import CorpusTables, Sources
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.embedder import DEFAULT_EMBEDDER, Embedder, load_embedder
from specrace.retrieval.index import SearchIndex, open_index
from specrace.retrieval.limits import COMMAND_LINE
from specrace.retrieval.prompt import Prompt, PromptStyle, build_prompt, choose_style, tokenize_document
from specrace.retrieval.rerank import LIGHT, NONE, load_reranker
from specrace.retrieval.retriever import Hit, Retriever
from specrace.retrieval.store import StoredIndex
from specrace.views.detokenize import Narrator


@dataclass(frozen=True)
class PreparedRace:
    """A race up to its model: the prompt's tokens, the settings and what surrounds them. It can be pickled."""

    prompt: tuple[int, ...]
    spec: RaceSpec
    sources: Sources
    about: Mapping[str, Any]
    curve: CostCurve | None = None


# As `run_prepared`, on a target that it knows: (prepared, stop, again) -> events.
Runner = Callable[[PreparedRace, Callable[[], bool], Callable[[Repeated], bool]], Iterator[Event]]


def run_prepared(
    target: Target, prepared: PreparedRace, stop: Callable[[], bool], again: Callable[[Repeated], bool]
) -> Iterator[Event]:
    """The events of a prepared race, without texts. `stop` and `again` are as in `race`."""
    columns = len(prepared.prompt) + prepared.spec.max_new_tokens / 2
    about = {**prepared.about, "roofline": target.roofline.as_json(columns)}
    given: dict[str, Any] = {"sources": prepared.sources, "about": about, "curve": prepared.curve}
    return race(target, prepared.prompt, prepared.spec, **given, stop=stop, again=again)


@dataclass
class Workbench:
    """Model, documents and retriever, loaded once and shared by every race.

    `curve` is the cached cost curve of this machine, if any; it sets the lanes' draft sizes. With `keep_outputs`
    drafters may draft from earlier answers, but never from an answer to the same question. A `runner` runs the races in
    another process than this one, on its copy of the target. Models are loaded as `lean` says (`load_target`).
    """

    target: Target
    documents: list[Document]
    retriever: Retriever
    embedder: Embedder
    curve: CostCurve | None = None
    keep_outputs: bool = False
    outputs: PastOutputs = field(default_factory=PastOutputs)
    # As requested: "auto" may place another model differently, and None is the device's own dtype.
    model: str | Path = BUNDLED_MODEL
    device: str = "cpu"
    dtype: str | None = None
    draft_model: str | Path | None = None
    adapter: str | Path = AUTO
    lean: bool = False
    runner: Runner | None = None
    tables: CorpusTables = field(init=False)

    def __post_init__(self) -> None:
        # Not a method of this workbench: that would be a circle, and the collector skips those that are frozen.
        self.tables = CorpusTables(partial(_tokenize, self.target, self.documents))

    @classmethod
    def open(
        cls,
        *,
        model: str | Path = BUNDLED_MODEL,
        documents: Sequence[Path] = (CORPUS,),
        index: Path | None = None,
        reranker: str = LIGHT,
        device: str = "cpu",
        dtype: str | None = None,
        draft_model: str | Path | None = None,
        adapter: str | Path = AUTO,
        keep_outputs: bool = False,
        cache_dir: Path | None = None,
        ready: bool = True,
        lean: bool = False,
        followers: Followers | None = None,
        on_progress: Callable[[str], object] = str,
        skip: Callable[[str], object] = str,
    ) -> Workbench:
        """Load everything, with progress lines to `on_progress`; `followers` are the processes of a tensor-parallel
        model, and `ready` and `lean` are as in `load_target`.

        `index`, a folder that `build_index` made, takes the place of the documents: those of its first 20 million
        characters stay in memory. `reranker` is as in `load_reranker`.
        `skip` gets a sentence about each document that cannot be read and is left out.
        Raises InputError for a model, device, dtype or documents that cannot be used.
        """
        on_progress("Reading the documents")
        stored = None if index is None else StoredIndex(index)
        most = COMMAND_LINE.characters
        texts = stored.documents(most) if stored else read_documents(documents, skip=skip, on_progress=on_progress)
        on_progress("Loading the embedder")
        encoder = load_embedder(stored.head.embedder if stored else DEFAULT_EMBEDDER)
        on_progress("Loading the model")
        target = load_target(
            model,
            device=device,
            dtype=dtype,
            draft_model=draft_model,
            ready=ready,
            followers=followers,
            adapter=adapter,
            lean=lean,
        )
        cross_encoder = load_reranker(reranker, device=target.device_type)
        on_progress("Indexing the documents" if stored is None else f"Opening the index ({stored.head.describe()})")
        passages = open_index(texts, encoder, cache_dir) if stored is None else stored.open(encoder, reranker != NONE)
        retriever, curve = Retriever(passages, encoder, cross_encoder), load_cached(target.describe())
        _freeze_garbage()
        asked: dict[str, Any] = {"model": model, "device": device, "dtype": dtype, "draft_model": draft_model}
        return cls(target, texts, retriever, encoder, curve, keep_outputs, **asked, adapter=adapter, lean=lean)

    def on(self, documents: list[Document], index: SearchIndex) -> Workbench:
        """A workbench with the same models and embedder on other documents, without earlier answers."""
        retriever = Retriever(index, self.embedder, self.retriever.reranker)
        return replace(self, documents=documents, retriever=retriever, outputs=PastOutputs())

    def with_model(self, model: str | Path, dtype: str | None = None) -> Workbench:
        """A workbench on the same documents with another model, or with its own in another dtype, on the same device.

        The dtype is this workbench's unless given; its draft model and an adapter in a folder are for its own model
        only. Raises InputError.
        """
        own = self.has_model(model)
        # Before it is loaded: a replaced model that is in a circle of references still holds its memory.
        _freeze_garbage()
        target = load_target(
            model,
            device=self.device,
            dtype=dtype or self.dtype,
            draft_model=self.draft_model if own else None,
            adapter=self.adapter if own or self.adapter == NO_ADAPTER else AUTO,
            lean=self.lean,
        )
        _freeze_garbage()
        return self.with_target(target)

    def with_target(self, target: Target) -> Workbench:
        """A workbench on the same documents with another target, possibly of another tokenizer."""
        return replace(self, target=target, curve=load_cached(target.describe()), outputs=PastOutputs())

    def has_model(self, model: str | Path) -> bool:
        """Whether this folder, hub id or short name is the model that it was opened with."""
        return Path(resolve(model)).resolve() == Path(resolve(self.model)).resolve()

    @property
    def num_passages(self) -> int:
        """Passages in the index."""
        return len(self.retriever.index.passages)

    @property
    def style(self) -> PromptStyle:
        """How this model is asked."""
        return choose_style(self.target.tokenizer, self.target.config, self.target.prompt_style)

    def retrieve(self, question: str, top: int | None = None, noise: Any = 0.0, seed: int = 0) -> list[Hit]:
        """The passages for a question, as many as suit the model, or `top`; 0: none.

        The share `noise` of them, but never all, are irrelevant ones, drawn by `seed`.

        Raises InputError for a blank or overlong question, and for a `top` out of bounds.
        """
        if len(question) > MAX_QUESTION_CHARACTERS:
            size = len(question)
            raise InputError(f"The question has {size} characters; ask one of at most {MAX_QUESTION_CHARACTERS}.")
        chosen = SETTINGS["passages"].check(top)
        chosen = self.style.passages if chosen is None else chosen
        if not chosen:
            return []
        irrelevant = min(chosen - 1, round(SETTINGS["noise"].check(noise) * chosen))
        return self.retriever.retrieve(question, top=chosen, noise=irrelevant, seed=seed)

    def ask(
        self,
        question: str,
        spec: RaceSpec,
        *,
        top: int | None = None,
        noise: float = 0.0,
        stop: Callable[[], bool] = lambda: False,
        again: Callable[[Repeated], bool] = lambda _: False,
    ) -> Iterator[Event]:
        """Retrieve, build the prompt, race; the events have their texts. `stop` and `again` are as in `race`."""
        prepared = self.prepare(question, spec, top=top, noise=noise)
        narrate, output = Narrator(self.target.tokenizer), list[int]()
        run = self.runner or partial(run_prepared, self.target)
        ended = False
        try:
            for event in run(prepared, stop, again):
                if isinstance(event, Step) and event.lane == "vanilla":
                    output += event.emitted
                ended = ended or isinstance(event, Finished)
                yield narrate(event)
        finally:
            # After the repeats, which must not draft from it, also where the caller gives them up.
            if self.keep_outputs and output and ended:
                self.outputs.add(output, prepared.prompt, question)

    def prepare(self, question: str, spec: RaceSpec, *, top: int | None = None, noise: float = 0.0) -> PreparedRace:
        """Retrieve, build the prompt, count: all before the model. Raises InputError as `retrieve` does."""
        began = time.perf_counter()
        hits = self.retrieve(question, top, noise, spec.seed)
        retrieve_ms = 1000.0 * (time.perf_counter() - began)
        prompt, hits = self.fitting_prompt(question, hits, spec, top=top, noise=noise)
        past = self.outputs.of_others(prompt.tokens, question)
        about = {
            "question": question.strip(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "retrieve_ms": retrieve_ms,
            **describe_prompt(prompt, hits),
            **({"noise": noise} if noise else {}),
            "past_outputs": len(past),
        }
        return PreparedRace(tuple(prompt.tokens), spec, replace(self.sources(spec), past=past), about, self.curve)

    def sources(self, spec: RaceSpec) -> Sources:
        """Counts and suffix index of all documents, each only if a lane drafts from it."""
        plans = plan_lanes(spec, self.target.device_type).values()
        parts = {plan.method.corpus_part_with(plan.options) for plan in plans}
        counts = self.tables.counts if "corpus" in parts else None
        return Sources(counts, self.tables.suffixes if "corpus_index" in parts else None)

    def fitting_prompt(
        self, question: str, hits: list[Hit], spec: RaceSpec, *, top: int | None = None, noise: Any = 0.0
    ) -> tuple[Prompt, list[Hit]]:
        """The prompt and the passages in it: of `hits`, which `retrieve` found with `top` and `noise`, those that fit.

        The best are kept, at least one. Where `top` says how many, a model with a chat template gets them all: only one
        without follows no instructions and may have a short context.
        """
        tokenizer, style = self.target.tokenizer, self.style
        prompt = build_prompt(tokenizer, question, hits, style)
        may_drop = SETTINGS["passages"].check(top) is None or not tokenizer.chat_template
        while may_drop and len(hits) > 1 and not self._fits(prompt, spec):
            # Irrelevant ones lie anywhere among the others, and their share shall stay.
            hits = self.retrieve(question, len(hits) - 1, noise, spec.seed) if noise else hits[:-1]
            prompt = build_prompt(tokenizer, question, hits, style)
        return prompt, hits

    def _fits(self, prompt: Prompt, spec: RaceSpec) -> bool:
        """Whether the prompt, an answer and the largest draft fit the context."""
        size = len(prompt.tokens)
        curve = None if self.curve is None else self.curve.near(size)
        largest = largest_draft(spec, self.target.device_type, curve)
        return size + spec.max_new_tokens + largest <= self.target.max_context


def _tokenize(target: Target, documents: Sequence[Document]) -> list[list[int]]:
    found = [tokenize_document(target.tokenizer, each.text) for each in documents]
    for tokens in found:
        target.check_tokens(tokens, "The documents have")
    return found


def _freeze_garbage() -> None:
    """Freeze the garbage collector, so that its pauses are not timed. Unfreeze first, to free a replaced model."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def describe_prompt(prompt: Prompt, hits: Sequence[Hit]) -> dict[str, Any]:
    """Passages, and each prompt token's place in them, as JSON, to show where a draft came from."""
    passages = [
        {name: getattr(hit.passage, name) for name in ("document", "title", "place", "start", "text")}
        | {"score": hit.score, "sentences": [asdict(sentence) for sentence in hit.sentences]}
        for hit in hits
    ]
    origins = [None if o is None else [o.passage, o.start, o.end] for o in prompt.origins]
    return {"passages": passages, "origins": origins}
