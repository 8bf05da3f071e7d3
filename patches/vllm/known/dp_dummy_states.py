"""vllm.dp-dummy-states, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dp-dummy-states",
    title="A cached or received state is overwritten while a rank idles (hybrid models, data parallelism)",
    symptom="Follow-up turns, or answers behind a remote prefill, are garbage once the rank idled beside a working one.",
    symptoms=(PARALLEL, CACHED_PREFIX, GARBAGE),
    releases=(">=0.19.0,<0.27.0",),
    code=(
        "vllm.v1.worker.block_table:BlockTable.move_row",
        "vllm.v1.worker.gpu.block_table:BlockTables.get_dummy_block_tables",
    ),
    upstream=Upstream("vllm-project/vllm", pull=49757),
    hits=AllOf(
        Is("recurrent layers", ON),
        Above("data parallel ranks", 1),
        AnyOf(Is("model runner", "V2"), Is("full CUDA graphs", ON)),
        AnyOf(Is("cached prefixes of a hybrid model", ON), Is("KV connector", ON)),
        Unseen("ranks in lock step of which one idles"),
    ),
    avoid="Set `VLLM_USE_V2_MODEL_RUNNER=0`, and start with `--compilation-config.cudagraph_mode PIECEWISE`.",
)
