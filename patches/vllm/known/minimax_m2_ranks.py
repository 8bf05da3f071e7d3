"""vllm.minimax-m2-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL

BUG = KnownBug(
    id="vllm.minimax-m2-ranks",
    title="MiniMax-M2 does not start on more ranks than it has KV heads",
    symptom="The first step fails on shapes: the norm of keys is cut by the ranks, where ranks share KV heads.",
    symptoms=(DIES, PARALLEL),
    releases=(">=0.11.1,<0.21.0",),
    code=("vllm.model_executor.models.minimax_m2:MiniMaxM2Attention.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=38191),
    hits=AllOf(Is("architecture", "MiniMaxM2ForCausalLM"), Above("--tensor-parallel-size", 8)),
    avoid="Start with `--tensor-parallel-size 8`, and `--pipeline-parallel-size` for more GPUs.",
    harm=CRASH,
)
