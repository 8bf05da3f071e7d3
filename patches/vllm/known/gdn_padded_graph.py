"""vllm.gdn-padded-graph, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-padded-graph",
    title="Wrong text or a crash where drafts are padded to a CUDA graph (Gated DeltaNet)",
    symptom=(
        "With MTP and a number of requests that no graph has, answers are wrong or the server dies. Padding counts as prefill, "
        "and the graph runs with states of an earlier step."
    ),
    symptoms=(GRAPHS, SPECULATION, SHARED_BATCH, DIES),
    releases=(">=0.12.0,<0.17.0",),
    code=("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder.build",),
    upstream=Upstream("vllm-project/vllm", issue=31649),
    hits=AllOf(
        AllOf(Is("model runner", "V1"), Is("linear attention", ON)),
        Is("speculative decoding", ON),
        Is("full CUDA graphs", ON),
        Unseen("steps of drafts alone whose number of requests lies between the sizes of two graphs"),
    ),
    avoid='Set `cudagraph_mode` to "PIECEWISE" in `--compilation-config`.',
)
