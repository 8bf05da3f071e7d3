"""vllm.swa-stale-blocks, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.swa-stale-blocks",
    title="NaN in sliding-window layers: attention loads blocks that another request owns",
    symptom="Under load an answer turns into garbage beyond the window; alone, the same request is right.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.19.0,<=0.33.0",),
    code=("vllm.v1.worker.gpu.block_table:BlockTables.gather_block_tables",),
    upstream=Upstream("vllm-project/vllm", issue=42273),
    hits=AllOf(
        AnyOf(Not(Since("0.33.0")), Is("model runner", "V1"), Above("decode context parallel size", 1)),
        Is("sliding-window layers", ON),
        AnyOf(Is("recurrent layers", ON), Given("--kv-cache-dtype-skip-layers")),
        Unseen("bytes of another layer in a freed block that read as NaN"),
    ),
    avoid="Nothing within the release avoids it; release 0.33.0 has it on the V1 model runner alone.",
)
