"""sglang.dsv4-rocm-draft-lengths, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="sglang.dsv4-rocm-draft-lengths",
    title="DeepSeek V4 accepts fewer drafts on AMD GPUs: a draft step does not attend to the drafts before it",
    symptom="The accept length of EAGLE or MTP with several steps is low. The text is right, and nothing is logged.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.13,<0.5.20",),
    code=(
        "sglang.srt.layers.attention.deepseek_v4_backend_hip_radix:"
        "DeepseekV4HipRadixBackend.make_forward_metadata_from_raw_decode",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("GPU", AMD),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("speculative algorithm", "EAGLE"),
        Above("speculative steps", 1),
    ),
    avoid="Set --speculative-num-steps 1, with which no draft follows another.",
)
