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
        ("NVIDIA A10", "a10"), ("NVIDIA-A10G", "a10g"), ("NVIDIA A30", "a30"), ("NVIDIA A40-48Q", "a40"), ("NVIDIA L4", "l4"),
        ("NVIDIA A100-PCIE-40GB", "a100"), ("NVIDIA A100 80GB PCIe", "a100"), ("nvidia-tesla-a100", "a100"),
        ("NVIDIA L40", "l40"), ("NVIDIA H20", "h20"), ("NVIDIA H20-3e", "h20"), ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("nvidia-h200-141gb", "h200"), ("NVIDIA H200 NVL", "h200"), ("NVIDIA GH200 144G HBM3e", "gh200"),
        ("NVIDIA B200", "b200"), ("NVIDIA GB200", "gb200"), ("NVIDIA-GB300", "gb300"), ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA-GeForce-RTX-4090", "rtx4090"), ("NVIDIA GeForce RTX 5090", "rtx5090"), ("Tesla-V100-SXM2-16GB", "v100"),
        ("Tesla V100S-PCIE-32GB", "v100s"), ("nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3-SHARED", "h100"),
        ("cloud.google.com/gke-accelerator: nvidia-rtx-pro-6000", "rtxpro6000"), ("AMD Instinct MI210", "mi210"),
        ("Aqua Vanjaram [Instinct MI300X]", "mi300x"), ("AMD Instinct MI300X VF", "mi300x"), ("AMD Instinct MI308X", "mi308x"),
        ("AMD Instinct MI325 OAM", "mi325x"), ("AMD Instinct MI350X", "mi350x"), ("AMD_Instinct_MI355X", "mi355x"),
        ("amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM", "mi300x"),
    ],
)  # fmt: skip
def test_a_name_is_understood_as_it_is_written(text, name):
    found = gpus.named(text)
    assert found == (gpus.KNOWN[name] if name else None)


@pytest.mark.parametrize("text, capability", [("sm_90", 90), ("SM 100a", 100), ("sm120", 120)])
def test_a_compute_capability_is_a_name(text, capability):
    found = gpus.named(text)
    assert found is not None and found.capability == capability
