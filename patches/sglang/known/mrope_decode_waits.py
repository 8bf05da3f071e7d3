"""sglang.mrope-decode-waits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.mrope-decode-waits",
    title="Each decode step of Qwen-VL models waits for the GPU, once per request",
    symptom="Decode of large batches is slower than that of the text model, since each length is read from the GPU.",
    symptoms=(SLOW,),
    releases=(">=0.5.1,<0.5.7",),
    code=("sglang.srt.model_executor.forward_batch_info:ForwardBatch._compute_mrope_positions",),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("M-RoPE", ON),
        Is("GPU", "NVIDIA", "AMD"),
        Is("speculative decoding", "off"),
        AnyOf(Not(Since("0.5.2")), Unseen("requests without images")),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.7.",
)
