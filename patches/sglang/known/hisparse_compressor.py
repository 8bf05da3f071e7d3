"""sglang.hisparse-compressor, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="sglang.hisparse-compressor",
    title="Worse answers of DeepSeek V4 with HiSparse: compressed KV goes to slots that attention does not read",
    symptom="Answers of DeepSeek V4 with --enable-hisparse are worse than without it; with concurrency they mix.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.5.12,<0.5.12.post1",),
    code=("sglang.srt.layers.attention.dsv4.compressor_v2:CompressorBackendMixin.forward_unified",),
    upstream=Upstream("sgl-project/sglang", pull=25646),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Given("--enable-hisparse"),
        Not(Is("$SGLANG_OPT_USE_COMPRESSOR_V2", "0", "false", "False")),
    ),
    avoid="Set SGLANG_OPT_USE_COMPRESSOR_V2=0.",
)
