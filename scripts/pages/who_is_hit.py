"""What the support page is filtered by: the families of models and the GPUs that a fix may concern."""

from __future__ import annotations

import re

from attnfix.compat.doctor.condition import NOT_HIT, OFF, ON, Fact, Facts, known, unknown
from attnfix.compat.fix import Fix

SWITCHES = (
    "sliding-window layers", "sliding-window KV pool", "soft cap of scores", "attention sinks", "encoder-decoder",
    "recurrent layers", "linear attention", "Mamba2 layers",
)  # fmt: skip
#: family -> what its attention may be, and which of the switches it has
_FAMILIES = {
    "DeepSeek, Kimi K2, GLM-5": ("MLA, sparse MLA", ()),
    "Llama, Qwen3, Mistral": ("MHA", ()),
    "Gemma": ("MHA", ("sliding-window layers", "sliding-window KV pool", "soft cap of scores")),
    "gpt-oss": ("MHA", ("sliding-window layers", "sliding-window KV pool", "attention sinks")),
    "Qwen3-Next, Qwen3.5": ("MHA", ("recurrent layers", "linear attention")),
    "NemotronH, Falcon-H1": ("MHA", ("recurrent layers", "Mamba2 layers")),
    "Kimi-Linear, Ring": ("MLA", ("recurrent layers", "linear attention")),
    "Llama 3.2 Vision": ("MHA", ("encoder-decoder",)),
}
#: GPU -> words of `Fix.hardware` that mean it, beside "any GPU"
_GPUS = {
    "B200, GB200, B300": ("NVIDIA GPUs", "Blackwell", "B200"),
    "H100, H200": ("NVIDIA GPUs", "Hopper"),
    "A100": ("NVIDIA GPUs", "Ampere"),
    "L40S, RTX 40": ("NVIDIA GPUs", "Ada"),
    "RTX 50, RTX PRO": ("NVIDIA GPUs", "consumer Blackwell", "RTX 50"),
    "AMD": ("AMD",),
    "Intel": ("Intel",),
}
FAMILIES, GPUS = tuple(_FAMILIES), tuple(_GPUS)


def families(fix: Fix) -> list[str]:
    """Families of models that the fix's condition does not exclude, where nothing but the model is known of a deployment."""
    return [family for family in FAMILIES if fix.hits is None or fix.hits(_facts(family)).verdict != NOT_HIT]


def _facts(family: str) -> Facts:
    attention, has = _FAMILIES[family]

    def fact(name: str) -> Fact:
        if name == "attention":
            return Fact(tuple(attention.split(", ")), "by model")
        return known(ON if name in has else OFF) if name in SWITCHES else unknown("not asked for")

    return fact


def gpus(fix: Fix) -> list[str]:
    """GPUs that the fix speaks of, outside parentheses: there it says with which options."""
    said = re.sub(r"\([^()]*\)", "", fix.hardware)
    return [gpu for gpu, words in _GPUS.items() if any(word in said for word in ("any GPU", *words))]
