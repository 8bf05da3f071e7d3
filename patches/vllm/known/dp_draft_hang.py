"""vllm.dp-draft-hang, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.dp-draft-hang",
    title="The server hangs with several drafts and data parallelism once a rank idles",
    symptom="All ranks wait for ever: an idle rank takes part in one draft step, a working one in several.",
    symptoms=(
        DIES,
        PARALLEL,
        SPECULATION,
    ),
    releases=(">=0.10.0,<0.12.0",),
    code=("vllm.v1.spec_decode.eagle:EagleProposer.dummy_run",),
    upstream=Upstream("vllm-project/vllm", issue=27691, pull=26086),
    hits=AllOf(Above("data parallel ranks", 1), Is("drafts from hidden states", ON), Is("draft tokens of a step", "several")),
    avoid="Set `num_speculative_tokens` to 1.",
    harm=CRASH,
)
