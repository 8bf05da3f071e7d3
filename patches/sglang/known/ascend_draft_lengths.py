"""sglang.ascend-draft-lengths, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

_BACKEND = "ascend_backend:AscendAttnMultiStepDraftBackend"
_OLD, _NEW = "sglang.srt.layers.attention", "sglang.srt.hardware_backend.npu.attention"

BUG = KnownBug(
    id="sglang.ascend-draft-lengths",
    title="EAGLE and MTP accept fewer drafts on Ascend: a draft does not attend to the drafts before it",
    symptom="With two or more speculative steps, KV lengths of draft steps leave out the drafts, and the token itself.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.4.post2,<0.5.10",),
    code=tuple(f"{room}.{_BACKEND}.__init__" for room in (_OLD, _NEW)),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("draft decode backend", "ascend"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
    ),
    avoid="Set `--speculative-num-steps 1`, whose only draft needs no such step.",
    harm=SLOWER,
)
