"""sglang.embedding-gemma-blackwell, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.embedding-gemma-blackwell",
    title="EmbeddingGemma does not start on B200 or B300 unless an attention backend is named",
    symptom="ValueError: --prefill-only-disable-kv-cache currently requires the FA prefill backend, got trtllm_mha.",
    symptoms=(DIES,),
    releases=(">=0.5.17,<=0.5.23",),
    code=(
        "sglang.srt.server_args:ServerArgs._handle_prefill_only_disable_kv_cache",
        "sglang.srt.arg_groups.kv_cache_hook:handle_prefill_only_disable_kv_cache",
    ),
    upstream=Upstream("sgl-project/sglang", pull=32383),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "Gemma3TextModel"),
        Is("compute capability", 100, 103),
        Not(Given("--attention-backend")),
        Not(Given("--prefill-attention-backend")),
    ),
    avoid="Set `--attention-backend triton`, and keep texts within 257 tokens.",
)
