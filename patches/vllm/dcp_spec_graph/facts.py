"""What decides vllm.dcp-spec-graph alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import attention_backend


def drafts_under_dcp(it: Deployment) -> Fact:
    """What verifying drafts is to a builder of MLA metadata that says it has full graphs of it: a prefill or not."""
    backend = attention_backend(it)
    if not backend.values:
        return backend
    name, why = backend.values[0], f"{backend.why} {backend.values[0]}"
    if name == "FLASHMLA":
        return known("prefills", why)
    if name in ("TRITON_MLA", "FLASHINFER_MLA") and it.release is None:
        return unknown(f"{why}: it depends on the release")
    if name == "TRITON_MLA":
        graphs = it.since("0.31.0") or (it.since("0.22.0") and not it.since("0.26.0"))
        return known("prefills" if graphs else "without graphs", why)
    if name == "FLASHINFER_MLA":
        return known("decodes" if it.since("0.29.0") else "prefills", why)
    if name in ("FLASH_ATTN_MLA", "CUTLASS_MLA", "TOKENSPEED_MLA"):
        return known("without graphs" if name == "CUTLASS_MLA" else "decodes", why)
    return unknown(f"what {name} takes drafts for was not read")


FACTS: Makers = {
    "drafts under DCP": drafts_under_dcp,
}
