"""sglang.rocm-verify-desync, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="sglang.rocm-verify-desync",
    title="The server hangs with EAGLE or MTP on several AMD GPUs: ranks accept different numbers of drafts",
    symptom="All requests stop in the middle of their text, and the watchdog ends the server some minutes later.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.1,<0.5.18",),
    code=(
        "sglang.srt.speculative.eagle_utils:EagleVerifyInput.verify",
        "sglang.srt.speculative.eagle_info:EagleVerifyInput.verify",
        "sglang.srt.speculative.eagle_info_v2:EagleVerifyInputV2Mixin.sample",
        "sglang.srt.speculative.eagle_utils:eagle_sample",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("GPU", AMD),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Not(Is("--tp-size", "off", "1")),
        Not(Is("--disaggregation-mode", "prefill")),
        Unseen("whether ranks ever draft different tokens, as rounding differs among them"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.18.",
)
