"""sglang.dsa-padded-ranks, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="sglang.dsa-padded-ranks",
    title="DeepSeek V3.2 and GLM-5 with MTP end where several ranks share an attention group (DP attention)",
    symptom="FlashMLA refuses num_splits: queries are padded to a multiple of the ranks, and lengths are not.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.6,<=0.5.23",),
    code=(
        "sglang.srt.layers.attention.nsa_backend:NativeSparseAttnBackend.init_forward_metadata",
        "sglang.srt.layers.attention.dsa_backend:DeepseekSparseAttnBackend.init_forward_metadata",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30642, issue=30296),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "sparse MLA"),
        Is("speculative decoding", ON),
        AnyOf(  # before 0.5.8 the engine switches data-parallel attention on where there are several ranks
            *map(Given, ("--enable-dp-attention", "--moe-a2a-backend", "--moe-dense-tp-size")),
            AllOf(Not(Since("0.5.8")), Above("--dp-size", 1)),
        ),
        Unseen("a step of drafts outside CUDA graphs on flashmla_kv, with rows that are no multiple of the attention ranks"),
    ),
    avoid="Set --enable-dp-attention and --dp-size to --tp-size, so that each attention group has one rank.",
)
