"""sglang.greedy-drafts-sampled, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="sglang.greedy-drafts-sampled",
    title="Greedy requests accept fewer drafts with rejection sampling: their drafts are sampled, too",
    symptom="The accept length of requests with temperature 0 is a fifth lower than without the option.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.14,<0.5.21",),
    code=(
        "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker.draft_forward",
        "sglang.srt.speculative.spec_utils:sample_draft_proposal",
    ),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Given("--speculative-use-rejection-sampling"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Unseen("requests with temperature 0"),
    ),
    avoid="Leave --speculative-use-rejection-sampling out.",
)
