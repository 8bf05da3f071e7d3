"""sglang.dsa-padded-drafts, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="sglang.dsa-padded-drafts",
    title="DeepSeek V3.2 ends in an assertion when data-parallel attention pads drafts that run outside graphs",
    symptom="The indexer, or fa3, sees more rows of queries than of lengths and pages, and the server ends.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.4,<0.5.9",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_topk_paged",),
    upstream=Upstream("sgl-project/sglang", pull=17076),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        AnyOf(  # before 0.5.8 the engine switches it on for this model; up to 0.5.5 with a rank for each GPU
            Given("--enable-dp-attention"),
            Not(Since("0.5.6")),
            AllOf(Not(Since("0.5.8")), Above("--dp-size", 1)),
        ),
        Is("speculative decoding", "on"),
        Unseen("whether steps of drafts run outside CUDA graphs, as batches above the largest graph do"),
    ),
    avoid="Leave --speculative-algorithm out.",
)
