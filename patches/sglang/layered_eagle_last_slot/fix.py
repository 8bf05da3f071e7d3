"""sglang.layered-eagle-last-slot, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE, SHARED_BATCH, SPECULATION

from . import wrap

_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker"
_POOL, _DECODE = "sglang.srt.mem_cache.memory_pool:ReqToTokenPool", "sglang.srt.disaggregation.decode:DecodeReqToTokenPool"

FIX = Fix(
    id="sglang.layered-eagle-last-slot",
    title="Several draft layers (MiMo-V2, Step-3.5) write hidden states behind their buffer",
    symptom=(
        "A server with several draft layers that is full of requests ends in an illegal memory access, or answers wrongly at "
        "random."
    ),
    symptoms=(DIES, GARBAGE, SHARED_BATCH, SPECULATION),
    cause=(
        "The last hidden states of a request are kept in the row of its slot. The buffer has a row for each running request. "
        "From 0.5.11 on slots begin at 1, and before, a decode server has slots for requests that it takes ahead: both lie "
        "behind the buffer."
    ),
    correction="The buffer has a row for each slot, as upstream has it from 0.5.12 on. Graphs record its place after that.",
    upstream=Upstream("sgl-project/sglang", pull=24439),
    hardware="any GPU (EAGLE with several draft layers, spec v2)",
    default=True,
    default_reason="a crash or garbage; upstream has released the same, and only the length of a buffer changes at launch",
    targets=(Target(wrap.init_attention_backend, needed=wrap.lacks_rows, paths=(f"{_WORKER}.init_attention_backend",)),),
    # The buffer's maker, and pools that hand out slots
    witnesses=(
        f"{_WORKER}.__init__",
        *(f"{pool}.{name}" for pool in (_POOL, _DECODE) for name in ("__init__", "alloc", "clear")),
    ),
    cost="A few hidden states of GPU memory, and nothing in a step.",
    avoid="Set `--speculative-num-steps 1`.",
    expect="On one replica that takes few requests at once, run that many: a server that has ended so goes on.",
    harm=CRASH,
    hits=AllOf(
        Is("several draft layers", ON),
        Is("spec v2 of several draft layers", ON),
        Above("speculative steps", 1),
        Is("slots behind the hidden states", ON),
    ),
)
