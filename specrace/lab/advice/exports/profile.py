"""The measured acceptance as a `speculation_profile.json`.

The shape is that of NVIDIA/Model-Optimizer's pull requests 2247, 2313, 2315 and 2316 (open; `build_profile` in
examples/specdec_bench/specdec_bench/speculation_profile.py at 095124e9d582, schema version 1.0). Lengths
count the bonus token; `conditional_accept_rates` are for Dynamo's simulator, `marginal_accept_rates` for vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PROFILE_FILE = "speculation_profile.json"
SCHEMA_VERSION = "1.0"
# How far the mean may be from the mean that the rates imply; the pull request's value.
TOLERANCE = 0.02


def speculation_profile(
    method: str,
    num_draft: int,
    profile: Mapping[str, Any],
    per_category: Mapping[str, Any],
    conditions: Mapping[str, Any],
) -> dict[str, Any]:
    """The file's content for a lane's `acceptance_profile`, with the mean per request.

    Rates are padded to `num_draft` positions.
    """
    marginal = [*profile["marginal_accept_rates"], *[0.0] * num_draft][:num_draft]
    conditional = [*profile["conditional_accept_rates"], *[0.0] * num_draft][:num_draft]
    mean = profile["mean_accept_length"]
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": None,
        "target_model": None,
        "num_speculative_tokens": num_draft,
        "block_size": None,
        "max_supported_k": num_draft,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": [round(rate, 6) for rate in conditional],
        "marginal_accept_rates": [round(rate, 6) for rate in marginal],
        "mean_accept_length": round(mean, 6),
        # Here each request weighs the same; above, each step does.
        "mean_accept_length_per_request": round(profile["mean_accept_length_per_request"], 6),
        # A copying drafter would draft other tokens under another limit, so there is no entry for shorter drafts.
        "accept_length_model": "measured_per_k",
        "accept_length_by_k": {str(num_draft): round(mean, 6)},
        "acceptance_length_histogram": profile["acceptance_length_histogram"],
        "per_category": dict(per_category),
        "measurement_conditions": dict(conditions),
        "validation": _validation(marginal, mean),
    }


def _validation(marginal: Sequence[float], mean: float) -> dict[str, Any]:
    """The results of two checks: the rates imply the mean, and no marginal rate is above the one before it."""
    implied = 1.0 + sum(marginal)
    # Rises by rounding errors do not count.
    rises = [position for position in range(1, len(marginal)) if marginal[position] > marginal[position - 1] + 1e-9]
    return {
        "mean_consistency": {
            "implied_mean_accept_length": round(implied, 6),
            "reported_mean_accept_length": round(mean, 6),
            "abs_delta": round(abs(implied - mean), 6),
            "tolerance": TOLERANCE,
            "passed": abs(implied - mean) <= TOLERANCE,
        },
        "marginal_monotonicity": {"passed": not rises, "violations": rises},
    }
