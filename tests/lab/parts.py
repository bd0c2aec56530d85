"""Parts that the tests of `score` and of llama.cpp share: transcripts, the command `score` by itself, a GGUF file."""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from specrace.cli import score
from specrace.lab.transcripts import Transcript

if TYPE_CHECKING:
    # It brings torch, which `score` does without.
    from specrace.model.target import Target

# Ends in 1 2 3, which stood at its start: copying pays from the first step on.
COPYING = {
    "id": "a",
    "category": "copy",
    "prompt_ids": [1, 2, 3, 4, 5, 9, 1, 2],
    "output_ids": [3, 4, 5, 9, 7, 3, 4, 8],
}
FRESH = {"id": 2, "category": "fresh", "prompt_ids": [1, 2, 3], "output_ids": [4, 5, 6]}


def transcript(prompt: Sequence[int], output: Sequence[int]) -> Transcript:
    """A transcript of these ids."""
    return Transcript("", "none", tuple(prompt), tuple(output), max(*prompt, *output) + 1)


def write(path: Path, *lines: Any) -> Path:
    """A file of these lines: objects as JSON, bytes as they are; gzip where the name says so."""
    packed = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)
    return path


def run(*arguments: object) -> int:
    """`score` with these arguments. Raises InputError as `run` does; `main` is what turns that into exit code 2."""
    parser = argparse.ArgumentParser()
    score.add_parser(parser.add_subparsers(dest="command", required=True))
    return score.run(parser.parse_args(["score", *map(str, arguments)]))


def write_source(target: Target, file: Path, *, vocabulary: int | None = None, architecture: str = "llama") -> None:
    """The GGUF that a model's folder holds, of the target's shape; all its weights are zero."""
    config, writer = target.config, gguf.GGUFWriter(file, architecture)
    vocabulary = vocabulary or target.vocab_size
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_file_type(0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([chr(97 + number) for number in range(vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(min(target.eos_ids))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for key, value in target.model.state_dict().items():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None
        writer.add_tensor(name, np.zeros(value.shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copying(count: int, *, seed: int = 0, category: str = "copy") -> list[Transcript]:
    """Requests whose outputs copy spans of their prompts, and those of category "fresh", every fourth, which do not."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        prompt = [chance.randrange(200) for _ in range(60)]
        fresh = number % 4 == 3
        output = [chance.randrange(200, 400) for _ in range(24)] if fresh else []
        while len(output) < 24:
            start = chance.randrange(40)
            output += prompt[start : start + chance.randrange(4, 12)]
        kind = "fresh" if fresh else category
        found.append(Transcript(f"r{number}", kind, tuple(prompt), tuple(output[:24]), 400))
    return found


def write_log(path: Path, transcripts: Sequence[Transcript]) -> Path:
    """A log of these transcripts."""
    rows = (
        {"id": each.id, "category": each.category, "prompt_ids": each.prompt, "output_ids": each.output}
        for each in transcripts
    )
    return write(path, *rows)
