"""sglang.dsv4-draft-lengths, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="sglang.dsv4-draft-lengths",
    title="DeepSeek V4 accepts fewer drafts: a draft step does not attend to the drafts before it",
    symptom="The accept length of EAGLE or MTP with several steps is low. The text is right, and nothing is logged.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.12,<=0.5.23",),
    code=(
        "sglang.srt.layers.attention.deepseek_v4_backend:DeepseekV4AttnBackend.init_forward_metadata_decode",
        "sglang.srt.layers.attention.deepseek_v4_backend:DeepseekV4AttnBackend.make_forward_metadata_from_raw_decode",
    ),
    upstream=Upstream("sgl-project/sglang", pull=24750),
    harm=SLOWER,
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("speculative algorithm", "EAGLE"),
        Above("speculative steps", 1),
    ),
    avoid="Set --speculative-num-steps 1, with which no draft follows another.",
)
