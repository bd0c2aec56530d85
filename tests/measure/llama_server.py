"""Serves a GGUF file on loopback with llama.cpp's own HTTP server, from the package xllamacpp.

Usage: llama_server.py WEIGHTS.gguf PORT [TYPE NAME=NUMBER ...], where TYPE is one of llama.cpp's drafters without a
model, such as ngram-simple, and NAME is one of its settings. `llama_server_check` runs this file by its path, in the
environment that has xllamacpp. The KV cache is float32, like our lanes'.
"""

from __future__ import annotations

import sys
import time

import xllamacpp

CONTEXT = 2048


def main(weights: str, port: str, kind: str = "", *settings: str) -> None:
    """Serve until the process is ended."""
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    # More threads would wait for each other in a loop, for as long as a busy machine keeps one of them waiting.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    # Otherwise llama.cpp would adapt other settings to the free memory.
    params.fit_params = False
    params.endpoint_metrics = True
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if kind:
        name = kind.replace("-", "_")
        params.speculative.types = [
            getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{name.upper()}")
        ]
        options = params.speculative.draft if name == "ngram_cache" else getattr(params.speculative, name)
        for setting in settings:
            key, _, value = setting.partition("=")
            setattr(options, key, int(value))
    server = xllamacpp.Server(params)
    print("listening at", server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
