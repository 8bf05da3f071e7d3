"""vllm.eagle-padded-lengths, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.eagle-padded-lengths",
    title="EAGLE and MTP accept fewer drafts from the second on: drafters attend to rejected tokens",
    symptom="After a rejected draft, the acceptance rate falls: lengths still count the tokens that were rejected.",
    symptoms=(SPECULATION,),
    releases=(">=0.11.0,<0.14.0",),
    code=("vllm.v1.spec_decode.eagle:EagleProposer.propose",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("model runner", "V1"),
        Is("drafts from hidden states", ON),
        Not(Given("--speculative-config.disable_padded_drafter_batch")),
        Is("draft tokens of a step", "several"),
    ),
    avoid='Add `"disable_padded_drafter_batch": true` to `--speculative-config`, without async scheduling.',
    harm=SLOWER,
)
