"""Kinds of lines that lack the request or its output, and what to give instead of a file with such lines.

- `vllm bench serve --save-detailed` and SGLang's bench_serving: input_lens, output_lens, generated_texts
  (vllm-project/vllm, vllm/benchmarks/serve.py; sgl-project/sglang, python/sglang/bench_serving.py).
- aiperf's profile_export.jsonl: metadata, metrics (ai-dynamo/aiperf, src/aiperf/common/models/record_models.py).
- LLMPerf's individual responses: number_input_tokens, number_output_tokens (ray-project/llmperf).
- MT-bench's and Spec-Bench's questions and answers: turns, choices[].turns (lm-sys/FastChat, fastchat/llm_judge).
- OpenAssistant's messages: message_id, parent_id, text, role (huggingface.co/datasets/OpenAssistant/oasst1).
- Chatbot Arena's Kaggle table: prompt, response_a, response_b, each a list of texts.
- A call of a Gradio app: data, fn_index, session_hash (gradio-app/gradio, gradio/data_classes.py: PredictBody).
- OpenAI's embeddings, images and moderations, and Cohere's rerank: data[] or results[]
  (platform.openai.com/docs/api-reference, docs.cohere.com/reference/rerank).
- Traces of lengths: Azure's (Azure/AzurePublicDataset) and BurstGPT's (HPMLL/BurstGPT).
"""

from __future__ import annotations

from typing import Any

from specrace.lab.logs.formats.base import Row

# A field of the elements in a response's list -> what the response holds instead of text.
_NOT_TEXT = {
    "embedding": "embeddings",
    "relevance_score": "a ranking of documents",
    "b64_json": "images",
    "url": "images",
    "flagged": "a moderation",
}
_LENGTHS = "this is a trace of lengths: without text nothing can be drafted; give a log that keeps requests and outputs"
_GRADIO = "this is a call of a Gradio app, whose inputs have no names; log the requests and outputs of the model"
# The fields by which a kind of line is known -> what the line is, and what to give instead.
_KNOWN: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"input_lens", "output_lens"}),
        "this is a result of `vllm bench serve` or SGLang's bench_serving, which has no prompts; log the requests at "
        "the server or a proxy while the benchmark runs",
    ),
    (
        frozenset({"metadata", "metrics"}),
        "this is aiperf's profile_export.jsonl, which has no texts; run aiperf with --export-level raw",
    ),
    (
        frozenset({"number_input_tokens", "number_output_tokens"}),
        "this is a result of LLMPerf, which has no texts; log the requests at the server or a proxy",
    ),
    (
        frozenset({"question_id", "turns"}),
        "these are MT-bench's questions without answers; let your model answer them and give the log of that",
    ),
    (
        frozenset({"question_id", "choices"}),
        "these are MT-bench's answers without questions; write the messages of each conversation in a line",
    ),
    (
        frozenset({"message_id", "parent_id", "text", "role"}),
        "this is one message of a tree (OpenAssistant); write a line with the messages of each conversation",
    ),
    (
        frozenset({"prompt", "response_a", "response_b"}),
        "these are Chatbot Arena's pairs, each field a list of a conversation's texts; write the messages of each "
        "conversation in a line",
    ),
    (frozenset({"data", "fn_index"}), _GRADIO),
    (frozenset({"data", "session_hash"}), _GRADIO),
    (
        frozenset({"signed_body_url"}),
        "Helicone left the bodies of request and response out; export with --include-body",
    ),
    (
        frozenset({"ContextTokens", "GeneratedTokens"}),
        _LENGTHS,
    ),
    (
        frozenset({"Request tokens", "Response tokens"}),
        _LENGTHS,
    ),
    (
        frozenset({"object", "choices"}),
        "this is a response without its request, and without token ids; log both in one line",
    ),
)


def explain_row(row: Row) -> str:
    """What a line is and what to give instead; "" if its kind is not known to lack something."""
    known = next((reason for names, reason in _KNOWN if names <= row.keys()), "")
    kind = next((kind for value in (row, *row.values()) if (kind := _without_text(value))), "")
    return known or (f"the response is {kind}, and no text was generated; leave such requests out" if kind else "")


def _without_text(response: Any) -> str:
    """What a response holds instead of generated text; "" if it may hold text."""
    parts = [response.get(name) for name in ("data", "results")] if isinstance(response, dict) else []
    first = next((part[0] for part in parts if isinstance(part, list) and part), None)
    return next((kind for name, kind in _NOT_TEXT.items() if isinstance(first, dict) and name in first), "")
