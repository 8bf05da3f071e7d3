"""Stand-ins for the kernels of latent attention, FlashInfer's and FlashMLA's, at the names that backends call."""

from __future__ import annotations

import sys
import types

from attnfix.patches.lab.emulators import flashinfer, flashmla
from attnfix.patches.lab.emulators.flashinfer_mla import PagedLatent
from attnfix.patches.lab.sglang.engine import module

from . import device

_ATTENTION = "layers.attention."


def install() -> None:
    home = module(_ATTENTION + "flashinfer_mla_backend")
    PagedLatent.run = device.launched(PagedLatent.run)
    home.BatchMLAPagedAttentionWrapper = PagedLatent
    home.BatchPrefillWithRaggedKVCacheWrapper = flashinfer.RaggedPrefill
    _flashmla()


def _flashmla() -> None:
    # What the backend's module, or one that it imports, takes from compiled packages: by release the one or the other
    _compiled("sgl_kernel.flash_mla", "get_mla_metadata", "flash_mla_with_kvcache", "flash_mla_sparse_fwd")
    _compiled("flash_mla", "fused_norm_rope_attn_rope_cast")
    _compiled("flash_mla.flash_mla_interface", "FlashMLASchedMeta")
    home = module(_ATTENTION + "flashmla_backend")
    home.get_mla_metadata = flashmla.schedule
    home.flash_mla_with_kvcache = device.launched(flashmla.by_stride)


def _compiled(name: str, *names: str) -> None:
    made = types.ModuleType(name)
    vars(made).update(dict.fromkeys(names))
    sys.modules[name] = made
