"""What decides vllm.dcp-empty-shard alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import attention_backend


def decode_without_kv(it: Deployment) -> Fact:
    """What MLA decode leaves where a rank holds nothing of a request: a neutral result, or an undefined one."""
    backend = attention_backend(it)
    if not backend.values:
        return backend
    name, why = backend.values[0], f"{backend.why} {backend.values[0]}"
    if name == "TRITON_MLA":
        if it.release is None:
            return unknown(f"{why}: the combine of the ranks drops its NaN from 0.25.0 on")
        combine = it.option("dcp-comm-backend", "ag_rs")
        if not it.since("0.25.0") or combine.values == ("a2a",):
            return known("undefined", why if not it.since("0.25.0") else f"{why}, {combine.why} a2a")
        return known("neutral", why) if combine.values else combine
    if name in ("CUTLASS_MLA", "FLASHINFER_MLA", "TOKENSPEED_MLA"):
        return known("undefined", why)
    if name in ("FLASH_ATTN_MLA", "FLASHMLA"):
        return known("neutral", why)
    return unknown(f"what {name} leaves was not read")


FACTS: Makers = {
    "decode without KV": decode_without_kv,
}
