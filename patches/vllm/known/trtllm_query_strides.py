"""vllm.trtllm-query-strides, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.trtllm-query-strides",
    title="The server dies on Blackwell when one token is decoded alone (Llama 4, FlashInfer)",
    symptom="The engine ends with an AssertionError on `decode_query`: with one row, the strides of the QKV projection stay.",
    symptoms=(DIES,),
    releases=(">=0.14.0,<0.15.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferImpl.forward",),
    upstream=Upstream("vllm-project/vllm", issue=32452),
    hits=AllOf(
        Is("attention backend", "FLASHINFER"),
        Is("compute capability", 100, 103),
        Unseen("layers whose query is a slice of the QKV projection, as those of Llama 4 without rotary embedding"),
    ),
    avoid="Set `use_trtllm_attention` to false in `--attention-config`, or take another attention backend.",
    harm=CRASH,
)
