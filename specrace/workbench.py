"""A target, documents and a retriever, and the way from a question to the events of a race."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.core.events import Event, Step
from specrace.core.settings import SETTINGS
from specrace.core.shipped import BUNDLED_MODEL, CORPUS
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec, largest_draft, plan_lane
from specrace.lab.calibrate import load_cached
from specrace.model.loading import load_target
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers
from specrace.ngrams.past import PastOutputs
from specrace.ngrams.sources import CorpusTables, Sources
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.embedder import Embedder, load_embedder
from specrace.retrieval.index import PassageIndex, open_index
from specrace.retrieval.prompt import Prompt, build_prompt, tokenize_document
from specrace.retrieval.retriever import Hit, Retriever
from specrace.views.detokenize import Narrator

MAX_QUESTION_CHARACTERS = 2000


@dataclass
class Workbench:
    """Model, documents and retriever, loaded once and shared by every race.

    `curve` is the cost curve that was measured here before, if any; the lanes' draft sizes come from it.
    With `keep_outputs` the latest answers stay, for drafters that learn from past outputs, but never from an answer to
    the same question.
    """

    target: Target
    documents: list[Document]
    retriever: Retriever
    embedder: Embedder
    curve: CostCurve | None = None
    keep_outputs: bool = False
    outputs: PastOutputs = field(default_factory=PastOutputs)
    # As it was asked for: "auto" may spread another model otherwise.
    device: str = "cpu"
    tables: CorpusTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = CorpusTables(self._tokenize_documents)

    @classmethod
    def open(
        cls,
        *,
        model: str | Path = BUNDLED_MODEL,
        documents: Sequence[Path] = (CORPUS,),
        device: str = "cpu",
        dtype: str | None = None,
        draft_model: str | Path | None = None,
        keep_outputs: bool = False,
        cache_dir: Path | None = None,
        followers: Followers | None = None,
        report: Callable[[str], object] = str,
    ) -> Workbench:
        """Load everything, telling `report` what is being done; with `followers` the model is split among processes.

        Raises InputError for what cannot be used.
        """
        report("Reading the documents")
        texts = read_documents(documents)
        report("Loading the model")
        target = load_target(model, device=device, dtype=dtype, draft_model=draft_model, followers=followers)
        report("Loading the embedder")
        embedder = load_embedder()
        report("Indexing the documents")
        index = open_index(texts, embedder, cache_dir)
        curve = load_cached(target.describe())
        _freeze_garbage()
        return cls(
            target, texts, Retriever(index, embedder), embedder, curve=curve, keep_outputs=keep_outputs, device=device
        )

    def on(self, documents: list[Document], index: PassageIndex) -> Workbench:
        """A workbench with the same models and embedder on other documents; it has no past."""
        return replace(self, documents=documents, retriever=Retriever(index, self.embedder), outputs=PastOutputs())

    def with_model(self, model: str | Path, dtype: str | None = None) -> Workbench:
        """A workbench on the same documents with another model, on the same device. Raises InputError."""
        return self.with_target(load_target(model, device=self.device, dtype=dtype))

    def with_target(self, target: Target) -> Workbench:
        """A workbench on the same documents with another target, which may have other tokens."""
        curve = load_cached(target.describe())
        _freeze_garbage()
        return replace(self, target=target, curve=curve, outputs=PastOutputs())

    @property
    def num_passages(self) -> int:
        """Passages in the index."""
        return len(self.retriever.index.passages)

    def retrieve(self, question: str, top: int = 4) -> list[Hit]:
        """The passages for a question. Raises InputError for a blank or overlong one, and for a `top` out of bounds."""
        if len(question) > MAX_QUESTION_CHARACTERS:
            raise InputError(
                f"The question has {len(question)} characters; ask one of at most {MAX_QUESTION_CHARACTERS}."
            )
        return self.retriever.retrieve(question, top=SETTINGS["passages"].check(top))

    def ask(
        self, question: str, spec: RaceSpec, *, top: int = 4, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Retrieve, build the prompt, race; every event with its texts."""
        began = time.perf_counter()
        hits = self.retrieve(question, top)
        retrieve_ms = 1000.0 * (time.perf_counter() - began)
        prompt, hits = self.fitting_prompt(question, hits, spec)
        past = self.outputs.of_others(prompt.tokens, question)
        about = {
            "question": question.strip(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "retrieve_ms": retrieve_ms,
            **describe_prompt(prompt, hits),
            "past_outputs": len(past),
        }
        about["roofline"] = self.target.roofline.as_json(len(prompt.tokens) + spec.max_new_tokens / 2)
        narrate = Narrator(self.target.tokenizer)
        output: list[int] = []
        for event in race(
            self.target,
            prompt.tokens,
            spec,
            sources=replace(self.sources(spec), past=past),
            about=about,
            curve=self.curve,
            stop=stop,
        ):
            if isinstance(event, Step) and event.lane == "vanilla":
                output += event.emitted
            yield narrate(event)
        if self.keep_outputs and output:
            self.outputs.add(output, prompt.tokens, question)

    def sources(self, spec: RaceSpec) -> Sources:
        """Counts and suffix index of all documents, each only where a lane of the race drafts from it."""
        fusion = "fusion" in spec.lanes and plan_lane(spec, "fusion", self.target.device_type).options["corpus"]
        counts = self.tables.counts if fusion or {"bigram", "trigram"} & set(spec.lanes) else None
        return Sources(counts, self.tables.suffixes if "rest" in spec.lanes else None)

    def fitting_prompt(self, question: str, hits: list[Hit], spec: RaceSpec) -> tuple[Prompt, list[Hit]]:
        """The prompt and the passages in it.

        A model without a chat template follows no instruction and may be as small as one of characters: of the
        passages it gets the best that its context has room for, one at least.
        """
        tokenizer = self.target.tokenizer
        prompt = build_prompt(tokenizer, question, hits)
        while not tokenizer.chat_template and len(hits) > 1 and not self._fits(prompt, spec):
            hits = hits[:-1]
            prompt = build_prompt(tokenizer, question, hits)
        return prompt, hits

    def _fits(self, prompt: Prompt, spec: RaceSpec) -> bool:
        """Whether the model takes the prompt with an answer and the largest draft."""
        size = len(prompt.tokens)
        curve = None if self.curve is None else self.curve.near(size)
        largest = largest_draft(spec, self.target.device_type, curve)
        return size + spec.max_new_tokens + largest <= self.target.max_context

    def _tokenize_documents(self) -> list[list[int]]:
        found = [tokenize_document(self.target.tokenizer, each.text) for each in self.documents]
        for tokens in found:
            self.target.check_tokens(tokens, "The documents have")
        return found


def _freeze_garbage() -> None:
    """Freeze the garbage collector, so that its pauses are not timed.

    Unfrozen first: among what was frozen before may be a model that nobody uses any longer.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def describe_prompt(prompt: Prompt, hits: Sequence[Hit]) -> dict[str, Any]:
    """Passages, and each prompt token's place in them, as JSON: what a page needs to show where a draft came from."""
    passages = [
        {
            "document": hit.passage.document,
            "title": hit.passage.title,
            "start": hit.passage.start,
            "text": hit.passage.text,
            "score": hit.score,
            "sentences": [asdict(sentence) for sentence in hit.sentences],
        }
        for hit in hits
    ]
    origins = [None if o is None else [o.passage, o.start, o.end] for o in prompt.origins]
    return {"passages": passages, "origins": origins}
