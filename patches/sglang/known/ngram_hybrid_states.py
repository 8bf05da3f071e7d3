"""sglang.ngram-hybrid-states, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.ngram-hybrid-states",
    title="Hybrid models answer garbage, or do not start, with n-gram speculation",
    symptom="The recurrent states of accepted tokens are not kept. In 0.5.4.post3 to 0.5.10.post1 the server lacks topk.",
    symptoms=(GARBAGE, SPECULATION, DIES),
    releases=(">=0.5.3,<0.5.14",),
    code=("sglang.srt.speculative.ngram_worker:NGRAMWorker.forward_batch_generation",),
    upstream=Upstream("sgl-project/sglang", pull=26351),
    hits=AllOf(Is("recurrent layers", ON), Is("speculative algorithm", "NGRAM")),
    avoid="Use MTP in place of `--speculative-algorithm NGRAM`.",
)
