"""sglang.mimo-flashinfer-sinks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_ARGS = "sglang.srt.server_args:ServerArgs"

BUG = KnownBug(
    id="sglang.mimo-flashinfer-sinks",
    title="MiMo-V2-Flash dies at its first forward on Ampere, Ada and RTX Blackwell (default backend)",
    symptom="The model hands its attention sinks to FlashInfer, whose methods take none: a TypeError names `sinks`.",
    symptoms=(DIES,),
    releases=(">=0.5.7,<0.5.11",),
    code=(f"{_ARGS}._get_default_attn_backend", f"{_ARGS}._handle_attention_backend_compatibility"),
    upstream=Upstream("sgl-project/sglang", pull=23139),
    hits=AllOf(
        Is("architecture", "MiMoV2FlashForCausalLM"),
        AnyOf(Is("prefill backend", "flashinfer"), Is("decode backend", "flashinfer")),
    ),
    avoid="Set `--attention-backend triton`.",
    harm=CRASH,
)
