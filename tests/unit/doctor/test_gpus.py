"""Names of GPUs as people, drivers and labels of Kubernetes write them."""

from __future__ import annotations

import pytest

from attnfix.compat.doctor import gpus


@pytest.mark.parametrize(
    "text, name",
    [
        ("H100", "h100"), ("h100nvl", None), ("NVIDIA H100 80GB HBM3", "h100"), ("H100 NVL", "h100"), ("A100-80GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "a100"), ("nvidia-tesla-t4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100"), ("nvidia-h100-mega-80gb", "h100"), ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA-L40S-SHARED", "l40s"), ("4090", "rtx4090"), ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070"),
        ("nvidiageforcertx3090", "rtx3090"), ("rtx4080", "rtx4080"), ("rtx3080", "rtx3080"), ("RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"), ("RTX PRO 6000 Blackwell", "rtxpro6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000"), ("NVIDIA B300 SXM6 AC", "b300"),
        ("mi300", "mi300x"), ("AMD Instinct MI300X", "mi300x"), ("AMD_Instinct_MI300X_OAM", "mi300x"), ("mi300a", "mi300a"),
        ("AMD Instinct MI250X / MI250", "mi250x"), ("rtx6000", None), ("h10", None), ("a100x", None),
        ("", None), ("80gb", None),
    ],
)  # fmt: skip
def test_a_name_is_understood_as_it_is_written(text, name):
    found = gpus.named(text)
    assert found == (gpus.KNOWN[name] if name else None)


@pytest.mark.parametrize("text, capability", [("sm_90", 90), ("SM 100a", 100), ("sm120", 120)])
def test_a_compute_capability_is_a_name(text, capability):
    found = gpus.named(text)
    assert found is not None and found.capability == capability
