"""sglang.dsa-padded-idle, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="sglang.dsa-padded-idle",
    title="DeepSeek V3.2 ends in an assertion on a data-parallel rank without requests, in steps outside graphs",
    symptom="A padded idle batch keeps the metadata of the batch before it, and the indexer finds another number of rows.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.5.6.post1,<0.5.8",),
    code=("sglang.srt.model_executor.model_runner:ModelRunner.forward_idle",),
    upstream=Upstream("sgl-project/sglang", pull=15227),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("GPU", "NVIDIA"),
        Above("--dp-size", 1),
        AnyOf(
            AllOf(Given("--disable-cuda-graph"), Above("--dp-size", 2), Not(Is("--disaggregation-mode", "prefill"))),
            Unseen("idle ranks while others decode batches above the largest graph"),
        ),
    ),
    avoid="Serve without --disable-cuda-graph, and with a --cuda-graph-max-bs that no batch exceeds.",
)
