"""Checks that engines' code accepts our exports: `python -m tests.measure.wheel_check vllm-*.whl sglang-*.whl`.

The wheels come from a package index (`pip download --no-deps`). They need not be installed, which would take gigabytes.
From vLLM's wheel, this runs only the module that defines SpeculativeConfig; from SGLang's, only the module with the
fields of the command line. Stand-ins replace what these import. Exits with 1 if an engine refuses an export, or accepts
one with an unknown name.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import io
import json
import logging
import shlex
import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU
from specrace.lab.advice.exports import ENGINES, Choice
from specrace.lab.advice.exports.sglang import corpus_flags
from specrace.lab.scoring.score import ScoredLane

LANES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "vllm": (
        ("prompt-lookup", {}),
        ("suffix", {}),
        ("vllm-ngram", {"prompt_lookup_min": 2, "prompt_lookup_max": 5}),
        ("vllm-ngram", {}),
        ("vllm-suffix", {}),
        ("fusion", {"chain": True}),
    ),
    "sglang": (("trie", {}), ("sglang-ngram", {}), ("sglang-ngram", {"match_type_prob": True})),
}


class _Backend(enum.Enum):
    """A stand-in for vLLM's attention backends."""

    NONE = 0


def _module(name: str, **values: Any) -> None:
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(values)
    sys.modules[name] = module


def _run(wheel: zipfile.ZipFile, path: str) -> types.ModuleType:
    """Run a module straight from a wheel."""
    name = path.removesuffix(".py").replace("/", ".")
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(wheel.read(path), path, "exec"), vars(module))
    return module


def vllm_reader(wheel: zipfile.ZipFile) -> Callable[[str], None]:
    """A function that reads flags as vLLM's SpeculativeConfig does, and raises ValueError for flags that it refuses."""
    logger: Any = logging.getLogger("vllm")
    logger.warning_once = logger.debug
    for name in ("vllm", "vllm.utils", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        _module(name)
    _module("vllm.envs")
    _module("vllm.logger", init_logger=lambda _: logger)
    _module("vllm.config", LoadConfig=Any)
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]
    _run(wheel, "vllm/config/utils.py")
    _module("vllm.config.cache", CacheDType=str)
    _module("vllm.config.kernel", MoEBackend=str)
    _module("vllm.config.model", HfOverrides=Any, ModelConfig=Any)
    _module("vllm.config.parallel", ParallelConfig=Any)
    _module("vllm.transformers_utils")
    _module("vllm.transformers_utils.config", get_hf_text_config=None, iter_rope_parameters=None)
    _module("vllm.utils.hashing", safe_hash=None)
    lazy = types.SimpleNamespace(QuantizationMethods=str)
    _module("vllm.utils.import_utils", LazyLoader=lambda *_: lazy, has_arctic_inference=lambda: True)
    _module("vllm.v1.attention.backends.registry", AttentionBackendEnum=_Backend)
    config = _run(wheel, "vllm/config/speculative.py").SpeculativeConfig

    def read(flags: str) -> None:
        words = shlex.split(flags)
        # The words are pairs of a flag and its JSON.
        assert words[0] == "--speculative-config" and words[2::2] in ([], ["--additional-config"])
        config_values = json.loads(words[1])
        parsed = config(**config_values)
        assert all(getattr(parsed, name) == value for name, value in config_values.items())

    return read


def sglang_reader(wheel: zipfile.ZipFile) -> Callable[[str], None]:
    """A function that reads flags as SGLang's command line does, and raises ValueError for flags that it refuses."""
    for name in ("sglang", "sglang.srt", "sglang.srt.arg_groups", "sglang.srt.arg_groups.fields"):
        _module(name)
    library = _run(wheel, "sglang/srt/arg_groups/arg_utils.py")
    names = ("LOAD_FORMAT_CHOICES", "MOE_RUNNER_BACKEND_CHOICES", "QUANTIZATION_CHOICES")
    _module("sglang.srt.arg_groups.choices", **{name: ["auto"] for name in names})
    fields = _run(wheel, "sglang/srt/arg_groups/fields/spec.py").Spec
    parser = argparse.ArgumentParser(exit_on_error=False)
    library.add_cli_args_from_dataclass(parser, fields)

    def read(flags: str) -> None:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                parser.parse_args(shlex.split(flags))
        except (SystemExit, argparse.ArgumentError) as error:
            raise ValueError(flags) from error

    return read


def exports(engine: str) -> list[str]:
    """The flags of one export of each kind to an engine: settings, plug-in, load test, corpus."""
    flags = []
    for lane, options in LANES[engine]:
        scored = ScoredLane.of(lane, options, 8)
        # An acceptance as a log might have shown it: 0.6 + 0.3 + 0.1 accepted tokens a step, and the bonus token.
        choice = Choice(lane, scored.options, 8, mean=2.0, rates=(0.6, 0.3, 0.1))
        if lane in ENGINES[engine].plug_ins:
            flags.append(ENGINES[engine].plug_ins[lane](choice, ASSUMED_GPU))
            continue
        export = ENGINES[engine].export(choice)
        flags.append(export.settings)
        if engine == "vllm":
            flags.append(export.synthetic)
        if engine == "sglang":
            flags.append(f"{export.settings} {corpus_flags(choice)}")
    return flags


def with_unknown_name(engine: str, flags: str) -> str:
    """The flags with an additional name that no engine has."""
    if engine == "vllm":
        return flags.replace('"method"', '"no_such_key": 1, "method"')
    return f"{flags} --no-such-flag 1"


def main(arguments: Sequence[str]) -> int:
    """Read every export for the engines of these wheels; return 1 if there are no wheels or anything is wrong."""
    readers = {"vllm": vllm_reader, "sglang": sglang_reader}
    num_wrong = 0
    for path in map(Path, arguments):
        engine, version = path.name.split("-")[:2]
        read = readers[engine](zipfile.ZipFile(path))
        for flags in exports(engine):
            try:
                read(flags)
                verdict = "accepted"
            except ValueError as error:
                verdict = f"REFUSED: {error}"
                num_wrong += 1
            print(f"{engine} {version}: {verdict}: {flags}")
            with contextlib.suppress(ValueError):
                read(with_unknown_name(engine, flags))
                print(f"{engine} {version}: ACCEPTED with an unknown name")
                num_wrong += 1
    print(f"{num_wrong} wrong")
    return 1 if num_wrong or not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
