"""sglang.ascend-mlapo-drafter, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

_BACKEND = "ascend_backend:AscendAttnBackend"
_OLD, _NEW = "sglang.srt.layers.attention", "sglang.srt.hardware_backend.npu.attention"

BUG = KnownBug(
    id="sglang.ascend-mlapo-drafter",
    title="Few drafts are accepted on Ascend with SGLANG_NPU_USE_MLAPO and a drafter without MLA",
    symptom="The drafter keeps no keys and values of generated tokens, since MLA models write theirs in a fused kernel.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.7,<0.5.11",),
    code=tuple(f"{room}.{_BACKEND}.forward_{mode}" for room in (_OLD, _NEW) for mode in ("extend", "decode")),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Given("$SGLANG_NPU_USE_MLAPO"),
        Is("decode backend", "ascend"),
        Is("attention", "MLA", "sparse MLA"),
        Is("speculative algorithm", "EAGLE3", "STANDALONE"),
        Unseen("whether the drafter attends without MLA"),
    ),
    avoid="Leave SGLANG_NPU_USE_MLAPO unset.",
    harm=SLOWER,
)
