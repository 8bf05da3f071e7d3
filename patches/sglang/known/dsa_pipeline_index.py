"""sglang.dsa-pipeline-index, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.dsa-pipeline-index",
    title="GLM-5.2 ends with pipeline parallelism: a stage gets no choice of keys from the one before",
    symptom="A stage that begins with a layer without an indexer ends in an AttributeError on None, at the first request.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.13,<0.5.14",),
    code=("sglang.srt.models.deepseek_v2:DeepseekV2Model.forward",),
    upstream=Upstream("sgl-project/sglang", issue=28537),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "GlmMoeDsaForCausalLM"),
        Above("--pp-size", 1),
        Unseen("whether a later stage begins with a layer that takes the choice of the layer before, as in GLM-5.2"),
    ),
    avoid="Move the border with SGLANG_PP_LAYER_PARTITION, as 38,40 for two stages of GLM-5.2.",
)
