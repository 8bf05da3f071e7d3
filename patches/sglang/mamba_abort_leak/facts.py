"""What decides sglang.mamba-abort-leak alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

#: Architectures with a radix cache that copies states, and since when; of Granite, those with Mamba layers alone
_SINCE = {
    "Qwen3NextForCausalLM": "0.5.3.post2", "JetNemotronForCausalLM": "0.5.5.post1", "JetVLMForConditionalGeneration": "0.5.6",
    "FalconH1ForCausalLM": "0.5.6.post1", "NemotronHForCausalLM": "0.5.6.post1", "NemotronH_Nano_VL_V2": "0.5.6.post1",
    "Qwen3_5ForConditionalGeneration": "0.5.9", "Qwen3_5MoeForConditionalGeneration": "0.5.9", "Lfm2ForCausalLM": "0.5.9",
    "Lfm2MoeForCausalLM": "0.5.9", "GraniteMoeHybridForCausalLM": "0.5.9",
}  # fmt: skip
_OTHER_TREES = ("enable-hierarchical-cache", "disable-radix-cache")


def _copies(it: Deployment) -> Fact:
    """Whether a prompt with a cached prefix gets a copy of its state."""
    if it.config is None:
        return unknown(it.no_config)
    architecture = it.architecture()
    if architecture not in _SINCE or not it.since(_SINCE[architecture]):
        return known(OFF, f"architecture {architecture}")
    if architecture.startswith("Granite") and "mamba" not in (it.config.get("layer_types") or ()):
        return known(OFF, f"architecture {architecture} without mamba in layer_types")
    if given := next(filter(it.given, _OTHER_TREES), None):
        return known(OFF, f"--{given}")
    if it.truth("SGLANG_EXPERIMENTAL_CPP_RADIX_TREE"):
        return known(OFF, "$SGLANG_EXPERIMENTAL_CPP_RADIX_TREE")
    role = it.option("disaggregation-mode", "null")
    if "decode" in role.values:
        return known(OFF, "--disaggregation-mode decode")
    if it.option("mamba-radix-cache-strategy", "no_buffer").values == ("extra_buffer",):
        return known(ON, f"architecture {architecture}")
    if it.since("0.5.9" if architecture != "NemotronHForCausalLM" else "0.5.8") and it.given("speculative-algorithm"):
        return known(OFF, "--speculative-algorithm turns the radix cache off")
    if it.since("0.5.6.post1") and it.option("attention-backend", "").values == ("trtllm_mha",):
        return known(OFF, "--attention-backend trtllm_mha turns the radix cache off")
    return known(ON, f"architecture {architecture}")


FACTS: Makers = {"copied recurrent states": _copies}
