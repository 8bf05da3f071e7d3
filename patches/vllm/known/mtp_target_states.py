"""vllm.mtp-target-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.mtp-target-states",
    title="MTP accepts fewer drafts from the second on: they are made of the target's hidden states",
    symptom="With two drafts or more, the acceptance rate falls from the second draft on. Its state is one token old.",
    symptoms=(SPECULATION,),
    releases=(">=0.17.0,<0.18.0",),
    code=("vllm.v1.spec_decode.eagle:SpecDecodeBaseProposer.propose",),
    upstream=Upstream("vllm-project/vllm", issue=36531),
    hits=AllOf(
        Is("model runner", "V1"),
        Is("drafts from hidden states", ON),
        Not(Is("--speculative-config.method", "eagle", "eagle3")),
        Is("draft tokens of a step", "several"),
    ),
    avoid="Set `num_speculative_tokens` to 1, or take release 0.18.0.",
    harm=SLOWER,
)
