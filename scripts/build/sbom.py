"""What a wheel holds that was not written here, as CycloneDX 1.6: PEP 770 puts it into `*.dist-info/sboms`.

Its Python is attnfix's own, and what it needs is installed beside it. The kernels are compiled, and CUDA's headers are in them.
`attnfix-prove` holds no kernels.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

COMPILER, HEADERS = "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12"


def text(wheel: str, compiled: Path | None = None) -> str:
    """The bill of materials of a wheel of that file name, with the kernels of the folder `compiled`; equal for equal builds."""
    name, release = wheel.split("-")[:2]
    name = name.replace("_", "-")
    about = Component(
        name=name, version=release, type=ComponentType.LIBRARY, purl=PackageURL("pypi", name=name, version=release),
        bom_ref=name, components=[_file(path) for path in sorted(compiled.iterdir())] if compiled else None,
    )  # fmt: skip
    moment = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    tools = ToolRepository(components=[_package(COMPILER)] if compiled else None)
    headers = [_package(HEADERS, "headers that are compiled into the kernels")] if compiled else []
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"{name} {release}"), components=headers,
        metadata=BomMetaData(component=about, timestamp=moment, tools=tools),
    )  # fmt: skip
    bom.register_dependency(about, headers)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _file(path: Path) -> Component:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component(
        name=f"attnfix/kernels/compiled/{path.name}", type=ComponentType.FILE, bom_ref=path.name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )  # fmt: skip


def _package(name: str, description: str | None = None) -> Component:
    release = version(name)
    return Component(
        name=name, version=release, type=ComponentType.LIBRARY, description=description, scope=ComponentScope.REQUIRED,
        purl=PackageURL("pypi", name=name, version=release), bom_ref=name,
    )  # fmt: skip
