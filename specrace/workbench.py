"""The workbench: a target, documents and a retriever, which turn a question into the events of a race."""

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
from specrace.core.events import Event, Finished, Repeated, Step
from specrace.core.settings import ON, SETTINGS
from specrace.drafters import head_lanes
from specrace.engine.race import never, race
from specrace.engine.request import RaceRequest, check_question
from specrace.engine.spec import RaceSpec, largest_draft, plan_lanes
from specrace.heads.loading import attach_heads
from specrace.lab.bench.calibrate import load_cached
from specrace.model.chat.thoughts import find_thoughts
from specrace.model.loading import load_choice
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers
from specrace.model.weights.source import ModelChoice, ModelSource, choose_model, find_source
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import CorpusTables, Sources
from specrace.retrieval.documents import Document, ignore, read_documents
from specrace.retrieval.embedder import DEFAULT_EMBEDDER, Embedder, load_embedder
from specrace.retrieval.index import SearchIndex, open_index
from specrace.retrieval.limits import COMMAND_LINE
from specrace.retrieval.prompt import (
    Prompt,
    PromptStyle,
    build_prompt,
    choose_style,
    default_template,
    tokenize_document,
)
from specrace.retrieval.rerank import LIGHT, NONE, load_reranker
from specrace.retrieval.retriever import Hit, Retriever, cut_to_fit
from specrace.retrieval.store import StoredIndex
from specrace.retrieval.token_limits import TokenLimit, token_limits
from specrace.views.detokenize import Narrator


@dataclass(frozen=True)
class PreparedRace:
    """Everything about a race except its target: prompt tokens, settings, sources, description. Can be pickled.

    `message`: the user's message in the prompt, for servers that take no token ids.
    """

    prompt: tuple[int, ...]
    spec: RaceSpec
    sources: Sources
    about: Mapping[str, Any]
    curve: CostCurve | None = None
    message: str = ""


# Adds lanes to a race: (target, prepared, stop, the race's events) -> events.
Beside = Callable[[Target, PreparedRace, Callable[[], bool], Iterator[Event]], Iterator[Event]]
# Runs a prepared race like `run_prepared`, but on the runner's own target: (prepared, stop, again) -> events.
Runner = Callable[[PreparedRace, Callable[[], bool], Callable[[Repeated], bool]], Iterator[Event]]


def run_prepared(
    target: Target, prepared: PreparedRace, stop: Callable[[], bool], again: Callable[[Repeated], bool]
) -> Iterator[Event]:
    """The events of a prepared race, without texts.

    `stop` is called before every step and `again` after every run: true ends the race, or runs all lanes once more.
    """
    # The mean number of tokens in a lane's KV cache while it decodes.
    mean_context = len(prepared.prompt) + prepared.spec.max_new_tokens / 2
    about = {**prepared.about, "roofline": target.roofline.as_json(mean_context)}
    return race(
        target,
        prepared.prompt,
        prepared.spec,
        sources=prepared.sources,
        about=about,
        curve=prepared.curve,
        stop=stop,
        again=again,
    )


@dataclass
class Workbench:
    """Model, documents and retriever, loaded once and shared by every race.

    `curve` is the cached cost curve of this machine, if any: how much longer a forward takes for more tokens, which
    determines the lanes' draft sizes. With `keep_outputs`, drafters may draft from earlier answers, but never from an
    answer to the same question. A `runner` runs races in another process, on that process's copy of the target.
    `choice` is the user's choice of the target's model.
    """

    target: Target
    documents: list[Document]
    retriever: Retriever
    embedder: Embedder
    curve: CostCurve | None = None
    keep_outputs: bool = False
    outputs: PastOutputs = field(default_factory=PastOutputs)
    choice: ModelChoice = field(default_factory=partial(choose_model, BUNDLED_MODEL))
    runner: Runner | None = None
    tables: CorpusTables = field(init=False)

    def __post_init__(self) -> None:
        # A bound method would create a reference cycle, which is not collected after `gc.freeze`.
        self.tables = CorpusTables(partial(_tokenize, self.target, self.documents))

    @classmethod
    def open(
        cls,
        choice: ModelChoice | None = None,
        *,
        documents: Sequence[Path] = (CORPUS,),
        index: Path | None = None,
        reranker: str = LIGHT,
        keep_outputs: bool = False,
        cache_dir: Path | None = None,
        ready: bool = True,
        followers: Followers | None = None,
        on_progress: Callable[[str], object] = ignore,
        on_skip: Callable[[str], object] = ignore,
    ) -> Workbench:
        """Load everything, by default with the bundled model. Raises InputError.

        `on_progress` receives a line before each part, and `on_skip` a sentence about each document left out. A folder
        `index` from `build_index` replaces the documents; `COMMAND_LINE.characters` of its text are kept in memory.
        `ready`: False if the device is not available yet. Other parameters: see `load_reranker` and `load_choice`.
        """
        on_progress("Reading the documents")
        if index is None:
            loaded_documents = read_documents(documents, on_skip=on_skip, on_progress=on_progress)
            on_progress("Loading the embedder")
            embedder = load_embedder(DEFAULT_EMBEDDER)
        else:
            stored = StoredIndex(index)
            loaded_documents = stored.documents(COMMAND_LINE.characters)
            on_progress("Loading the embedder")
            embedder = load_embedder(stored.header.embedder)
            on_progress(f"Opening the index ({stored.header.describe()})")
            search_index: SearchIndex = stored.open(embedder, reranker != NONE)
        on_progress("Loading the model")
        choice = choice or choose_model(BUNDLED_MODEL)
        target = load_choice(choice, ready=ready, followers=followers)
        attach_heads(target, choice.heads, head_lanes())
        cross_encoder = load_reranker(reranker, device=target.device_type)
        if index is None:
            on_progress("Indexing the documents")
            limits = token_limits(embedder, target.tokenizer, target.max_context)
            search_index = open_index(loaded_documents, embedder, cache_dir, limits)
        retriever, curve = Retriever(search_index, embedder, cross_encoder), load_cached(target.describe())
        _collect_and_freeze()
        return cls(target, loaded_documents, retriever, embedder, curve, keep_outputs, choice=choice)

    def with_documents(self, documents: list[Document], index: SearchIndex) -> Workbench:
        """A workbench with other documents, but the same models and embedder, and without earlier answers."""
        retriever = Retriever(index, self.embedder, self.retriever.reranker)
        return replace(self, documents=documents, retriever=retriever, outputs=PastOutputs())

    def with_model(self, model: str | Path | ModelSource, dtype: str | None = None) -> Workbench:
        """A workbench on the same documents and device with another model, or with the same model in another dtype.

        If `dtype` is None, this workbench's dtype is used. The draft model, heads, and an adapter in a folder are
        loaded only with the model that this workbench was opened with. Raises InputError.
        """
        choice = self.choice.with_model(find_source(model), dtype)
        # Collect before loading, because a replaced model in a reference cycle still occupies memory.
        _collect_and_freeze()
        target = load_choice(choice)
        attach_heads(target, choice.heads, head_lanes())
        _collect_and_freeze()
        return self.with_target(target)

    def with_target(self, target: Target) -> Workbench:
        """A workbench on the same documents with another target, which may have another tokenizer."""
        return replace(self, target=target, curve=load_cached(target.describe()), outputs=PastOutputs())

    def has_model(self, model: str | Path | ModelSource) -> bool:
        """Whether the workbench was opened with this model: a folder, a hub id or a short name."""
        return self.choice.source.is_same(find_source(model))

    @property
    def token_limits(self) -> list[TokenLimit]:
        """The maximum number of tokens of a passage, for the embedder and for the target."""
        return token_limits(self.embedder, self.target.tokenizer, self.target.max_context)

    @property
    def num_passages(self) -> int:
        """The number of passages in the index."""
        return len(self.retriever.index.passages)

    @property
    def style(self) -> PromptStyle:
        """The prompt style for this model."""
        return choose_style(self.target.tokenizer, self.target.config, self.target.prompt_style)

    def retrieve(self, question: str, passages: int | None = None, noise: float = 0.0, seed: int = 0) -> list[Hit]:
        """The best `passages` passages for a question; None: as many as the prompt style for this model says.

        A share of `noise`, but never all of them, is replaced by irrelevant passages, which are drawn with `seed`.
        Raises InputError for a blank or overlong question, and for values out of bounds.
        """
        check_question(question)
        num_passages = SETTINGS["passages"].check(passages)
        if num_passages is None:
            num_passages = self.style.num_passages
        if not num_passages:
            return []
        num_irrelevant = min(num_passages - 1, round(SETTINGS["noise"].check(noise) * num_passages))
        return self.retriever.retrieve(question, top=num_passages, noise=num_irrelevant, seed=seed)

    def make_prompt(self, request: RaceRequest) -> tuple[Prompt, list[Hit]]:
        """Retrieve passages for a question. Returns the prompt, and the passages that fit into it."""
        return self._fit(request, self._hits(request))

    def ask(
        self,
        request: RaceRequest,
        *,
        stop: Callable[[], bool] = never,
        again: Callable[[Repeated], bool] = never,
        beside: Beside | None = None,
    ) -> Iterator[Event]:
        """Retrieve, build the prompt and race; yields events with texts.

        `stop` and `again` are as in `run_prepared`. `beside` adds lanes that are not ours, such as those of servers.
        """
        prepared = self.prepare(request)
        narrate = Narrator(self.target.tokenizer, prepared.about.get("thoughts"))
        run = self.runner or partial(run_prepared, self.target)
        events = run(prepared, stop, again)
        if beside is not None:
            events = beside(self.target, prepared, stop, events)
        vanilla_output, ended = list[int](), False
        try:
            for event in events:
                if isinstance(event, Step) and event.lane == "vanilla":
                    vanilla_output += event.emitted
                ended = ended or isinstance(event, Finished)
                yield narrate(event)
        finally:
            # The answer is added after all runs, because repeated runs must not draft from it. This is in `finally`,
            # because the caller may close the iterator before its end.
            if self.keep_outputs and vanilla_output and ended:
                self.outputs.add(vanilla_output, prepared.prompt, request.question)

    def prepare(self, request: RaceRequest) -> PreparedRace:
        """Do everything before a race that needs no forward."""
        began = time.perf_counter()
        hits = self._hits(request)
        retrieve_ms = 1000.0 * (time.perf_counter() - began)
        prompt, hits = self._fit(request, hits)
        past = self.outputs.excluding(prompt.tokens, request.question)
        about = {
            "question": request.question.strip(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "retrieve_ms": retrieve_ms,
            **describe_prompt(prompt, hits),
            **({"noise": request.noise} if request.noise else {}),
            **self._describe_thinking(request, prompt),
            "past_outputs": len(past),
        }
        sources = replace(self.sources(request.spec), past=past)
        return PreparedRace(tuple(prompt.tokens), request.spec, sources, about, self.curve, prompt.message)

    def sources(self, spec: RaceSpec) -> Sources:
        """The n-gram counts and the suffix index of all documents; either is None unless a lane drafts from it."""
        plans = plan_lanes(spec, self.target.device_type, chains_only=self.target.chains_only).values()
        # The fields of `Sources` through which the lanes read documents, "" for those that read none.
        parts = {plan.method.corpus_part_with(plan.options) for plan in plans}
        counts = self.tables.counts if "corpus" in parts else None
        suffixes = self.tables.suffixes if "corpus_index" in parts else None
        return Sources(counts, suffixes, corpus_ms=self.tables.counts_ms, corpus_index_ms=self.tables.suffixes_ms)

    def _hits(self, request: RaceRequest, passages: int | None = None) -> list[Hit]:
        """The passages for a request; `passages` replaces the request's own number, unless it is None."""
        num_passages = request.passages if passages is None else passages
        return self.retrieve(request.question, num_passages, request.noise, request.spec.seed)

    def _fit(self, request: RaceRequest, hits: list[Hit]) -> tuple[Prompt, list[Hit]]:
        """The prompt, and the passages in it: the best of `hits` that fit into the context, and at least one.

        If the request sets the number of passages and the model has a chat template, no passages are dropped, because
        only models without a template tend to have a short context. A passage that does not even fit alone is cut, and
        its `place` (where it is in its document) says so.
        """
        prompt = self._build_prompt(request, hits)
        may_drop = request.passages is None or not self.target.tokenizer.chat_template
        while may_drop and len(hits) > 1 and not self._fits(prompt, request.spec):
            # With noise, dropping the last passage could change the share of irrelevant ones, so retrieve again.
            hits = self._hits(request, len(hits) - 1) if request.noise else hits[:-1]
            prompt = self._build_prompt(request, hits)
        if len(hits) == 1 and not self._fits(prompt, request.spec):
            hits = [cut_to_fit(hits[0], lambda cut: self._fits(self._build_prompt(request, [cut]), request.spec))]
            prompt = self._build_prompt(request, hits)
        return prompt, hits

    def _build_prompt(self, request: RaceRequest, hits: Sequence[Hit]) -> Prompt:
        """The prompt that asks the request's question about `hits`, in the model's style."""
        return build_prompt(self.target.tokenizer, request.question, hits, self.style, thinks=request.thinking == ON)

    def _describe_thinking(self, request: RaceRequest, prompt: Prompt) -> dict[str, Any]:
        """Whether the model was asked to think, and the marks around its thoughts, for a race's description."""
        marks = self.find_thoughts(prompt)
        return ({"thinking": ON} if request.thinking == ON else {}) | ({"thoughts": marks} if marks else {})

    def find_thoughts(self, prompt: Prompt) -> tuple[str, str] | None:
        """The marks around the thoughts in an answer to `prompt`, as `specrace.model.chat.thoughts` finds them."""
        tokenizer = self.target.tokenizer
        return find_thoughts(tokenizer, default_template(tokenizer), prompt.text)

    def _fits(self, prompt: Prompt, spec: RaceSpec) -> bool:
        """Whether the prompt, an answer and the largest draft fit into the context."""
        size = len(prompt.tokens)
        curve = None if self.curve is None else self.curve.near(size)
        max_draft = largest_draft(spec, self.target.device_type, curve, chains_only=self.target.chains_only)
        return size + spec.max_new_tokens + max_draft <= self.target.max_context


def _tokenize(target: Target, documents: Sequence[Document]) -> list[list[int]]:
    """The token ids of each document. Raises InputError for an id that is not in the target's vocabulary."""
    token_lists = [tokenize_document(target.tokenizer, document.text) for document in documents]
    for tokens in token_lists:
        target.check_tokens(tokens, "The documents have")
    return token_lists


def _collect_and_freeze() -> None:
    """Collect garbage, including a replaced model, and exempt the remaining objects from collections during races."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def describe_prompt(prompt: Prompt, hits: Sequence[Hit]) -> dict[str, Any]:
    """The passages, and the origin of each prompt token in them, as JSON; they show what drafts were copied from."""
    passages = [
        {name: getattr(hit.passage, name) for name in ("document", "title", "place", "start", "text")}
        | {"score": hit.score, "sentences": [asdict(sentence) for sentence in hit.sentences]}
        for hit in hits
    ]
    origins = [None if span is None else [span.passage, span.start, span.end] for span in prompt.origins]
    return {"passages": passages, "origins": origins}
