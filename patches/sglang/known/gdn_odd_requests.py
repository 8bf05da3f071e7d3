"""sglang.gdn-odd-requests, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="sglang.gdn-odd-requests",
    title="Qwen3.5 and Qwen3-Next with MTP crash where attention ranks do not divide the running requests",
    symptom="With data-parallel attention, the server ends at its start or under full load with an illegal memory access.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.11,<0.5.17",),
    code=("sglang.srt.layers.attention.linear.gdn_backend:GDNAttnBackend.__init__",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is(
            "architecture",
            *("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            "InternS2PreviewForConditionalGeneration",
        ),
        Given("--speculative-algorithm"),
        AnyOf(*map(Given, ("--enable-dp-attention", "--moe-a2a-backend", "--moe-dense-tp-size"))),
        Unseen("whether the running requests of a rank are no multiple of its attention ranks"),
    ),
    avoid="Set --max-running-requests to a multiple of --tp-size.",
)
