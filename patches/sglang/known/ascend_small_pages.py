"""sglang.ascend-small-pages, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

BUG = KnownBug(
    id="sglang.ascend-small-pages",
    title="All answers are garbage on Ascend with pages of fewer than 128 tokens",
    symptom="The server is healthy, and each answer is fluent or broken garbage from its first token.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.6.post1,<=0.5.23",),
    code=("sglang.srt.hardware_backend.npu.attention.ascend_backend:AscendAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=39905, issue=38196),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("prefill backend", "ascend"),
        Is("--page-size", "16", "32", "64"),
        Not(Given("$ASCEND_USE_FIA")),
        Unseen("whether heads have up to 128 channels; larger ones take another kernel"),
    ),
    avoid="Leave out `--page-size`, which is 128 there.",
)
