"""What the n-gram trie paper's published script prints for Spec-Bench: `python -m tests.measure.paper_rules LOG`.

The script (`sd-bench/sdbench.py` of `mrlife219/Ngram-Trie`, branch master) drafts by rules that differ from the paper's
text, and keeps a category's last request only. This program applies these rules, in an implementation of its own, to a
log of token ids, and prints each category's last request beside all requests. No model is needed.

`--from QUESTIONS ANSWERS --tokenizer NAME` first writes LOG, from Spec-Bench's `question.jsonl` and a file of greedy
answers in its format, in Vicuna's template (docs/paper.md says where they are).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from specrace.cli.shared.opening import find_tokenizer
from specrace.lab.logs.transcripts import Transcript, TranscriptFile

# Tokens of an n-gram, tokens of its prefix, and how many draft tokens a step has by default.
N, PREFIX, NUM_DRAFT = 13, 3, 64
CATEGORIES = ("rag", "summarization")
TEMPLATE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions. USER: {} ASSISTANT:"
)
# Continuation (N - PREFIX tokens) -> how often it follows a match.
Chains = Counter[tuple[int, ...]]


def main(arguments: list[str]) -> int:
    """Print a line for each category."""
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--from", dest="sources", type=Path, nargs=2, metavar=("QUESTIONS", "ANSWERS"))
    parser.add_argument("--tokenizer", default="lmsys/vicuna-7b-v1.3", help="of the model that answered")
    parser.add_argument("--num-draft", type=int, default=NUM_DRAFT)
    options = parser.parse_args(arguments)
    if options.sources:
        write_log(*options.sources, options.tokenizer, options.log)
    transcripts = [request for request in TranscriptFile(options.log) if request.category in CATEGORIES]
    for category, lengths in accept_lengths(transcripts, options.num_draft).items():
        pooled = [length for request in lengths for length in request]
        print(
            f"{category}, {options.num_draft} draft tokens: last request {fmean(lengths[-1]):.2f}; all {len(lengths)} "
            f"requests {fmean(pooled):.2f} pooled, {fmean(map(fmean, lengths)):.2f} as the mean of their means"
        )
    return 0


def write_log(questions: Path, answers: Path, tokenizer: str, log: Path) -> None:
    """Write the first turns of Spec-Bench's questions and answers as a log of token ids."""
    encode = find_tokenizer(tokenizer, quiet=False)
    outputs = {row["question_id"]: row["choices"][0]["turns"][0] for row in read_rows(answers)}
    with log.open("w", encoding="utf-8") as stream:
        for row in read_rows(questions):
            prompt = TEMPLATE.format(row["turns"][0])
            whole = encode(f"{prompt} {outputs[row['question_id']].strip()}</s>")
            prompt_ids = encode(prompt)
            fields = {"id": row["question_id"], "category": row["category"], "prompt_ids": prompt_ids}
            stream.write(json.dumps(fields | {"output_ids": whole[len(prompt_ids) :]}) + "\n")


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file in Spec-Bench's format."""
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def accept_lengths(transcripts: Sequence[Transcript], num_draft: int) -> dict[str, list[list[int]]]:
    """For each category its requests' accept lengths; a request's list begins with a 1 for the token of the prefill."""
    # The template's tokens before and after a question are left out.
    prompts = [request.prompt for request in transcripts]
    head, tail = shared_tokens(prompts), shared_tokens([prompt[::-1] for prompt in prompts])
    lengths: dict[str, list[list[int]]] = {}
    for request in transcripts:
        turn = request.prompt[head : len(request.prompt) - tail]
        # The output's last token is its end token, which ends this text too.
        chains = chains_by_match([*turn, request.output[-1]])
        lengths.setdefault(request.category, []).append(decode(request, chains, num_draft))
    return lengths


def shared_tokens(texts: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all texts share: the tokens of the template."""
    return next(size for size, column in enumerate(zip(*texts, strict=False)) if len(set(column)) > 1)


def chains_by_match(text: Sequence[int]) -> dict[tuple[int, ...], Chains]:
    """The last 1 to `PREFIX` tokens of a prefix -> the N - PREFIX tokens after it, counted over all windows of N."""
    chains: dict[tuple[int, ...], Chains] = defaultdict(Counter)
    for start in range(len(text) - N + 1):
        window = text[start : start + N]
        for matched in range(1, PREFIX + 1):
            chains[tuple(window[PREFIX - matched : PREFIX])][tuple(window[PREFIX:])] += 1
    return chains


def decode(request: Transcript, chains: dict[tuple[int, ...], Chains], num_draft: int) -> list[int]:
    """The accept lengths of a request whose output is known."""
    output, context, position, lengths = request.output, list(request.prompt), 0, [1]
    while position < len(output):
        context.append(output[position])
        matches = (tuple(context[-size:]) for size in range(PREFIX, 0, -1))
        continuations = next((chains[match] for match in matches if match in chains), Chains())
        remaining = output[position + 1 :]
        accepted = max((agreement(path, remaining) for path in draft(continuations, num_draft)), default=0)
        # The prefill's token was counted by the 1 at the beginning.
        lengths.append(1 + accepted - (position == 0))
        context += remaining[:accepted]
        position += 1 + accepted
    return lengths


def draft(chains: Chains, num_draft: int) -> list[tuple[int, ...]]:
    """The paths to verify: all chains if they fit, else the paths to the most frequent nodes.

    Of these paths, the longest are dropped until the others' tokens fit; equal tokens in a path count once.
    """
    if len(chains) * (N - PREFIX) <= num_draft:
        return list(chains)
    nodes = Chains()
    for chain, count in chains.items():
        for size in range(1, len(chain) + 1):
            nodes[chain[:size]] += count
    paths = sorted((path for path, _ in nodes.most_common(num_draft)), key=lambda path: -len(set(path)))
    total = sum(len(set(path)) for path in paths)
    while paths and total > num_draft:
        total -= len(set(paths.pop(0)))
    return paths


def agreement(path: Sequence[int], text: Sequence[int]) -> int:
    """How many leading tokens of a path equal those of the text."""
    pairs = enumerate(zip(path, text, strict=False))
    return next((size for size, (drafted, token) in pairs if drafted != token), min(len(path), len(text)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
