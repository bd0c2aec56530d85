"""The measured acceptance as settings of capacity simulators, which estimate a step's cost but not its acceptance.

Names from ai-dynamo/aisimulate at 32b85123abc2, python/aisimulate/src/aiconfigurator_core/sdk/speculation/README.md,
and from ai-dynamo/dynamo, whose mocker, a simulated engine, takes conditional rates of one to five draft positions
(`aic_nextn` is their number).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specrace.lab.advice.exports.base import AT_THE_END

SIMULATORS_FILE = "simulators.txt"
# The longest draft that Dynamo's mocker simulates.
MAX_NEXTN = 5
_NOTES = (
    "Accepted tokens are the mean of all steps, rates are of each position after accepted ones; neither "
    f"counts the bonus token; {AT_THE_END}.",
    "AISimulate prices the whole draft at every step, also at steps with a shorter draft or none.",
)


def simulator_settings(num_draft: int, profile: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for a lane that drafts up to `num_draft` tokens, by its `acceptance_profile`, and notes on them."""
    accepted = round(profile["mean_accept_length"] - 1.0, 3)
    nextn = min(num_draft, MAX_NEXTN)
    rates = [*profile["conditional_accept_rates"], *[0.0] * nextn][:nextn]
    # Accepted tokens a step at positions that the mocker does not take.
    lost = sum(profile["marginal_accept_rates"][nextn:])
    notes = [*_NOTES]
    if lost:
        notes.append(f"Dynamo's mocker takes {MAX_NEXTN} positions: {lost:.2f} accepted tokens a step are beyond them.")
    return {
        "aisimulate": {
            "arguments": f"--spec-method ngram --spec-num-draft-tokens {num_draft} --spec-accepted-tokens {accepted}",
            "speculative": {
                "method": "ngram",
                "params": {"num_speculative_tokens": num_draft},
                "accepted_tokens": accepted,
            },
        },
        "dynamo": {
            "arguments": f"--aic-nextn {nextn} --aic-nextn-accept-rates {','.join(f'{rate:.4f}' for rate in rates)}"
        },
        "notes": notes,
    }


def simulators_text(settings: Mapping[str, Any]) -> str:
    """The settings as the text of SIMULATORS_FILE."""
    lines = [
        f"AISimulate, aiconfigurator cli estimate: {settings['aisimulate']['arguments']}",
        f"Dynamo, dynamo.mocker: {settings['dynamo']['arguments']}",
        *settings["notes"],
    ]
    return "\n".join(lines) + "\n"
