"""GPUs by the names that people call them, with maker and compute capability."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

NVIDIA, AMD, INTEL = "NVIDIA", "AMD", "Intel"


@dataclass(frozen=True)
class Gpu:
    """`capability` as NVIDIA writes it, 90 for 9.0; None on other makers' GPUs."""

    name: str
    maker: str
    capability: int | None

    @property
    def generation(self) -> int:
        """The major part of the compute capability; 0 on other makers' GPUs."""
        return (self.capability or 0) // 10

    def __str__(self) -> str:
        return f"{self.name}, sm_{self.capability}" if self.capability else self.name


_NVIDIA = {
    70: "v100 v100s",
    75: "t4",
    80: "a100 a800 a30",
    86: "a2 a10 a10g a16 a40 a4000 a4500 a5000 a5500 a6000 rtx3060 rtx3070 rtx3080 rtx3090",
    89: "l4 l20 l40 l40s rtx4060 rtx4070 rtx4080 rtx4090 rtx4000ada rtx5000ada rtx6000ada",
    90: "h100 h200 h20 h800 gh200",
    100: "b200 b100 gb200",
    103: "b300 gb300",
    120: "rtx5060 rtx5070 rtx5080 rtx5090 rtxpro4000 rtxpro4500 rtxpro5000 rtxpro6000",
    121: "gb10",
}
KNOWN = {name: Gpu(name, NVIDIA, capability) for capability, names in _NVIDIA.items() for name in names.split()}
_AMD = "mi210 mi250 mi250x mi300a mi300x mi308x mi325x mi350x mi355x"
KNOWN |= {name: Gpu(name, AMD, None) for name in _AMD.split()}
KNOWN |= {name: Gpu(name, INTEL, None) for name in ["b580", "max1550"]}

#: Words around the name of a GPU, in what drivers and the labels of Kubernetes print
_AROUND = re.compile(
    r"nvidia|amd|intel|instinct|radeon|geforce|tesla|grid|gpu|pcie|sxm\d*|nvl|oam|hbm\d*e?|3e|\d+gb?|\d+[qc]|\dg\.\d+gb"
    r"|mig|shared|mega|ti|super|d|laptop|blackwell|generation|server|workstation|max|q|edition|ac|[vh]f"
)


def named(text: str) -> Gpu | None:
    """The GPU of a name as people and drivers write it (`H100`, `RTX 5090`, `NVIDIA A100-SXM4-80GB`, `sm_90`), also
    as a label of Kubernetes with its value; None for an unknown one."""
    name = re.split(r"=|: ", text.lower())[-1]  # of a label
    if bracketed := re.search(r"\[(.+)\]", name):  # behind the chip's name
        name = bracketed[1]
    words = re.split(r"[\s_-]+", name.partition("/")[0].strip())
    plain = "".join(word for word in words if not _AROUND.fullmatch(word))
    if match := re.fullmatch(r"sm(\d{2,3})a?", plain):
        return Gpu(text, NVIDIA, int(match[1]))
    spellings = (
        plain,
        f"rtx{plain}",
        plain.removeprefix("nvidia").removeprefix("geforce"),
        plain.removeprefix("rtx"),
        f"{plain}x",
    )
    return next((KNOWN[name] for name in spellings if name in KNOWN), None)


def here() -> Gpu | None:
    """The first GPU that nvidia-smi names; None where there is no such program or no GPU. Loads no driver of ours."""
    command = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        name, capability = (part.strip() for part in done.stdout.splitlines()[0].split(","))
        return Gpu(name, NVIDIA, int(capability.replace(".", "")))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
