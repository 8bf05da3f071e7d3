"""What decides sglang.gdn-page-grid alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA

#: Its kernel writes the state that is asked for by itself
_LIGHTNING = "BailingMoeV2_5ForCausalLM"
#: Its kernel keeps no states. It prefills on Blackwell GPUs, and Triton on others
_CUTEDSL = "cutedsl"
#: From here on FlashInfer prefills with states per page, on some Blackwell GPUs by default
_PLANNED_SINCE = "0.5.17"


def _every_64_tokens(it: Deployment) -> Fact:
    """Whether the kernel of the linear layers keeps a state behind every 64 tokens of a prompt, whatever a page has."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if (architecture := it.architecture()) == _LIGHTNING:
        return known(OFF, f"architecture {architecture}")
    if it.option("device", "cuda").values == ("npu",):
        return known(OFF, "--device npu")
    for option in filter(it.given, ("linear-attn-prefill-backend", "linear-attn-backend")):
        asked = it.option(option)
        if _CUTEDSL in asked.values:
            return known(OFF if it.gpu.generation >= 10 else ON, f"--{option} cutedsl") if it.gpu else unknown(NO_GPU)
        return Fact(tuple(OFF if name == "flashinfer" else ON for name in asked.values), f"--{option}")
    if it.since(_PLANNED_SINCE) and (it.gpu is None or (it.gpu.maker == NVIDIA and it.gpu.generation == 10)):
        return unknown("FlashInfer prefills linear layers on some Blackwell GPUs; name --linear-attn-prefill-backend")
    return known(ON, "linear layers prefill with Triton")


FACTS: Makers = {"states every 64 tokens": _every_64_tokens}
