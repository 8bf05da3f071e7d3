"""sglang.sm120-split-capture, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.sm120-split-capture",
    title="The server dies while it captures CUDA graphs of DeepSeek V4 on sm_12x",
    symptom="Capture of CUDA graphs ends with an error about an inference tensor that is changed in place.",
    symptoms=(DIES,),
    releases=(">=0.5.15,<0.5.19",),
    code=(
        "sglang.srt.layers.attention.flash_mla_sm120:_split_kv_pages_to_64",
        "sglang.kernels.ops.attention.flash_mla_sm120:_split_kv_pages_to_64",
    ),
    upstream=Upstream("sgl-project/sglang", pull=35116),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("compute capability", 120, 121),
        Is("CUDA graphs", ON),
        Is("--disable-flashinfer-autotune", OFF),
        Unseen("an autotuning that reaches attention before the capture"),
    ),
    avoid="Start with --disable-flashinfer-autotune.",
    harm=CRASH,
)
