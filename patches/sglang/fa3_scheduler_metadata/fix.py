"""sglang.fa3-scheduler-metadata, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"

FIX = Fix(
    id="sglang.fa3-scheduler-metadata",
    title="Crash or NaN in decode of long requests with DP attention (fa3)",
    symptom=(
        "Decode of long requests dies of an illegal memory access in FlashAttention's combine kernel, or gives NaN, in bursts. "
        "Servers are hit that run DP attention or context parallelism on fa3, without MLA."
    ),
    symptoms=(PARALLEL, DIES),
    cause=(
        "The backend makes the schedule of a decode step once, for the model's heads divided by the ranks of tensor "
        "parallelism. Under DP attention or context parallelism fewer ranks share the heads, so each has more of them. The "
        "schedule then splits KV into more parts than the launch has allocated results for, and these are read all the same."
    ),
    correction=(
        "There no schedule is made ahead: FlashAttention makes its own in every layer, as upstream lets it from 0.5.15 on. "
        "With --attn-cp-size alone, too: upstream goes by --enable-prefill-cp, and makes a wrong schedule without it up to "
        "0.5.20. From 0.5.21 on the schedule is made for the heads of the rank."
    ),
    upstream=Upstream("sgl-project/sglang", pull=30439),
    hardware="NVIDIA Hopper (fa3 without MLA, DP attention in 0.5.11 or context parallelism)",
    default=True,
    default_reason="crash or NaN; later releases make no such schedule either",
    targets=(Target(wrap.init, paths=(f"{_BACKEND}.__init__",)),),
    # Who makes the schedule, when, and who takes it
    witnesses=(
        f"{_BACKEND}._compute_scheduler_metadata",
        f"{_MODULE}:_should_disable_scheduler_metadata_precompute",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_cuda_graph_state",
        f"{_BACKEND}.init_forward_metadata_capture_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_replay_cuda_graph",
        f"{_BACKEND}.init_forward_metadata_out_graph",
        f"{_BACKEND}.forward_decode",
        "sglang.srt.layers.attention.unified_mem_hooks:unified_mla_hooks",
        "sglang.srt.utils.common:get_device_capability",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.from_string",
        "sglang.srt.speculative.spec_info:SpeculativeAlgorithm.is_dflash",
    ),
    cost="One small kernel per layer and decode step in these deployments, as before 0.5.11.",
    expect=(
        "On one replica with DP attention or prefill context parallelism under long requests: no illegal memory access, no "
        "NaN, the same text at temperature 0."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("decode backend", "fa3"),
        Is("FlashAttention schedule", "for other heads"),
    ),
)
