"""What decides sglang.encoder-decode-lengths alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: Architecture -> first release that runs it as encoder and decoder (is_encoder_decoder_model)
ENCODER_DECODER_SINCE = {
    "MllamaForConditionalGeneration": "0.5.1",
    "WhisperForConditionalGeneration": "0.5.10",
    "MossVLForConditionalGeneration": "0.5.11",
}


def _encoder_decoder(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    first = ENCODER_DECODER_SINCE.get(architecture or "")
    if first and it.release is None:
        return unknown("the architectures of this release were not read")
    return known(ON if first and it.since(first) else OFF, f"architecture {architecture}")


FACTS: Makers = {
    "encoder-decoder": _encoder_decoder,
}
