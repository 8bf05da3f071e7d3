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
    70: "v100",
    75: "t4",
    80: "a100 a800 a30",
    86: "a10 a10g a40 a6000 rtx3090",
    89: "l4 l40 l40s rtx4090 rtx6000ada",
    90: "h100 h200 h20 h800 gh200",
    100: "b200 b100 gb200",
    103: "b300 gb300",
    120: "rtx5090 rtxpro6000",
    121: "gb10",
}
KNOWN = {name: Gpu(name, NVIDIA, capability) for capability, names in _NVIDIA.items() for name in names.split()}
KNOWN |= {name: Gpu(name, AMD, None) for name in ["mi250", "mi300x", "mi308x", "mi325x", "mi355x"]}
KNOWN |= {name: Gpu(name, INTEL, None) for name in ["b580", "max1550"]}


def named(text: str) -> Gpu | None:
    """The GPU of that name (`H100`, `RTX 5090`, `sm_90`); None for an unknown one."""
    plain = re.sub(r"[\s_-]", "", text.lower()).removeprefix("nvidia").removeprefix("geforce")
    if match := re.fullmatch(r"sm(\d{2,3})a?", plain):
        return Gpu(text, NVIDIA, int(match[1]))
    return KNOWN.get(plain)


def here() -> Gpu | None:
    """The first GPU that nvidia-smi names; None where there is no such program or no GPU. Loads no driver of ours."""
    command = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        name, capability = (part.strip() for part in done.stdout.splitlines()[0].split(","))
        return Gpu(name, NVIDIA, int(capability.replace(".", "")))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
