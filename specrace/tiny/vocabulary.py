"""The bundled model's tokenizer: byte-level BPE, marker tokens, and the chat template that defines the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specrace.tiny.quoting import OPENINGS, Source

CONTEXT = "<|ctx|>"
QUESTION = "<|q|>"
ANSWER = "<|a|>"
END = "<|end|>"
EVIDENCE = ("<|e1|>", "<|e2|>", "<|e3|>")
# Follows the citation of a marked sentence if an unmarked sentence comes next.
CLOSE = "<|x|>"
CITATIONS = tuple(f" [{number}]" for number in range(1, 10))
# A segment extends from one marker to the next; the copying circuit never copies across its end.
SEGMENT_MARKERS = (CONTEXT, *EVIDENCE, QUESTION, ANSWER, CLOSE)
# The number of symbols that byte-level BPE learns; markers and citations come on top.
MERGED_VOCABULARY = 4096
MODEL_MAX_LENGTH = 2048

# Documents have the form {"title", "sentences": [{"text", "evidence": 0..3}]}. The question is the last user message.
CHAT_TEMPLATE = (
    "{%- for document in documents -%}<|ctx|> [{{ loop.index }}] {{ document.title }}:"
    "{%- set citation = ' [' ~ loop.index ~ ']' -%}"
    "{%- for sentence in document.sentences -%}"
    "{%- if sentence.evidence -%}<|e{{ sentence.evidence }}|> {{ sentence.text }}{{ citation }}"
    "{%- if not loop.last and not loop.nextitem.evidence -%}<|x|>{%- endif -%}"
    "{%- else %} {{ sentence.text }}{%- endif -%}"
    "{%- endfor -%}{%- endfor -%}"
    "<|q|> {{ messages[-1].content }}{%- if add_generation_prompt -%}<|a|>{%- endif -%}"
)


def tokenizer_text(sources: Sequence[Source]) -> Iterator[str]:
    """The text that the vocabulary is learned from: sources of three sentences or more, and an eighth of the others.

    Each opening of an answer is added 200 times, so that its words are frequent. No record says how these numbers were
    chosen.
    """
    yield from (phrase for _, phrase in OPENINGS for _ in range(200))
    for number, source in enumerate(sources):
        if len(source.sentences) > 2 or number % 8 == 0:
            yield f" {source.title}: " + " ".join(source.sentences)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE with `MERGED_VOCABULARY` symbols learned from `texts`, plus markers and citations."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_special_tokens([AddedToken(text, special=True) for text in (*SEGMENT_MARKERS, END)])
    # A citation with its space is one ordinary token, so copying "[2]" is one decision.
    bpe.add_tokens([AddedToken(text, normalized=False) for text in CITATIONS])
    markers = list(SEGMENT_MARKERS)
    return wrap_tokenizer(bpe, END, MODEL_MAX_LENGTH, additional_special_tokens=markers, chat_template=CHAT_TEMPLATE)


def wrap_tokenizer(tokenizer: Tokenizer, end: str, length: int, **settings: Any) -> PreTrainedTokenizerFast:
    """A transformers tokenizer with the end token `end` and a context of `length` tokens."""
    settings |= {"eos_token": end, "pad_token": end, "model_max_length": length, "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **settings)


def prompt_ids(tokenizer: Any, documents: list[dict[str, Any]], question: str) -> list[int]:
    """The token ids of a rendered prompt, from `<|ctx|>` to `<|a|>`."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, documents=documents, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
