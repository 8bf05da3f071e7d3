"""What pyproject.toml cannot say: each of the four folders is a package of its own, and extras depend on the build.

A wheel's proofs are in a second wheel, `attnfix-prove` of the same version. An editable install has their files itself.
"""

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

ROOTS = {"attnfix": "attnfix", "attnfix.compat": "compat", "attnfix.patches": "patches", "attnfix.kernels": "kernels"}
VERSION = re.search(r'^version = "(.+)"', Path(__file__).with_name("pyproject.toml").read_text(), re.MULTILINE)[1]
LAB = [] if "editable_wheel" in sys.argv else [f"attnfix-prove=={VERSION}"]

# What `attnfix prove --engine X==Y` needs beyond an engine's own install: fetching a release, and importing it on a CPU.
# Lower bounds only, so that nothing an engine pins is moved; requirements/cpu.txt holds the versions CI runs.
CPU = [
    "pypi-simple>=1.6",
    "remotezip>=0.12.5",
    "platformdirs>=4",
    "torch>=2.4",
    "numpy",
    "triton>=3",
    "transformers>=4.55",
    "compressed-tensors",
    "requests",
    "pillow",
    "psutil",
    "pyzmq",
    "orjson",
    "pybase64",
    "msgspec",
    "einops",
    "pydantic>=2",
    "aiohttp",
    "ipython",
    "fastapi",
    "uvicorn",
    "openai",
    "partial-json-parser",
    "dill",
    "sentencepiece",
    "setproctitle",
    "loguru",
]

setup(
    packages=[name for root, folder in ROOTS.items() for name in (root, *(f"{root}.{sub}" for sub in find_packages(folder)))],
    package_dir=ROOTS,
    extras_require={
        "prove": LAB,  # `attnfix prove` beside an installed engine
        "cpu": [*LAB, *CPU],
        "completion": ["argcomplete>=3"],  # words that a shell offers
        "plot": ["matplotlib>=3.8"],  # scripts/bench/plot.py
        "probe": ["httpx>=0.27"],  # the client of `attnfix probe`; nothing of it is in a serving process
    },
)
