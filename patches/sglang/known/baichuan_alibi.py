"""sglang.baichuan-alibi, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="sglang.baichuan-alibi",
    title="Garbage from Baichuan 13B: no position reaches attention (ALiBi)",
    symptom="The model works out its ALiBi slopes, but no backend gets them. Ascend has them from 0.5.9 on.",
    symptoms=(GARBAGE,),
    releases=(">=0.5.1,<=0.5.23",),
    code=("sglang.srt.models.baichuan:BaiChuanAttention.forward",),
    upstream=Upstream("sgl-project/sglang", pull=16868),
    hits=AllOf(
        Is("architecture", "BaichuanForCausalLM"),
        Not(AllOf(AnyOf(Is("--device", "npu"), Is("prefill backend", "ascend")), Since("0.5.9"))),
        Unseen("whether hidden_size is not 4096, as in 13B"),
    ),
    avoid="Nothing within the release.",
)
