"""sglang.ascend-dflash-lengths, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, SPECULATION

BUG = KnownBug(
    id="sglang.ascend-dflash-lengths",
    title="DFLASH changes the text on Ascend outside graphs: the verification counts each draft block twice",
    symptom="Text changes with DFLASH wherever a step runs without a graph; the target attends to slots without tokens.",
    symptoms=(SPECULATION, GRAPHS),
    releases=(">=0.5.18,<0.5.20",),
    code=("sglang.srt.hardware_backend.npu.attention.ascend_backend:AscendAttnBackend.init_forward_metadata",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("decode backend", "ascend"),
        Is("speculative algorithm", "DFLASH"),
        AnyOf(Is("CUDA graphs", OFF), Unseen("whether steps run outside graphs, as batches above the largest graph do")),
    ),
    avoid="Raise --cuda-graph-max-bs to --max-running-requests.",
)
