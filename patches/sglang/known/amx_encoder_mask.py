"""sglang.amx-encoder-mask, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.doctor.sglang import BOTH_WAYS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="sglang.amx-encoder-mask",
    title="Embeddings and scores of BERT-like models are wrong on CPUs with AMX",
    symptom="Rerankers give unlike documents nearly one score, and embeddings differ from those of other backends.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<0.5.19",),
    code=("sglang.srt.layers.attention.intel_amx_backend:IntelAMXAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=35434, issue=33603),
    hits=AllOf(
        AnyOf(Is("--device", "cpu"), Given("$SGLANG_USE_CPU_ENGINE")),
        Is("--attention-backend", "off", "intel_amx"),
        Is("architecture", *BOTH_WAYS),
        Unseen("whether the CPU has AMX"),
    ),
    avoid="Set `--attention-backend torch_native`.",
)
