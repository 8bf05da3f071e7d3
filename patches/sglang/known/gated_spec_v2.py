"""sglang.gated-spec-v2, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.gated-spec-v2",
    title="Garbage from hybrid models with SGLANG_ENABLE_SPEC_V2: recurrent states stay at the prompt's end",
    symptom="Qwen3-Next and Qwen3.5 repeat themselves: no state of what verification accepted is kept.",
    symptoms=(GARBAGE, SPECULATION),
    releases=(">=0.5.3.post2,<0.5.10",),
    code=("sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.verify",),
    upstream=Upstream("sgl-project/sglang", pull=18808),
    hits=AllOf(
        Is("recurrent layers", ON),
        AnyOf(Is("spec v2", ON), AllOf(Given("--enable-beta-spec"), Is("speculative algorithm", "EAGLE"))),
    ),
    avoid="Leave SGLANG_ENABLE_SPEC_V2 unset, and up to 0.5.4 `--enable-beta-spec` out.",
)
