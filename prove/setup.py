"""The version is attnfix's, and the two go together."""

import re
from pathlib import Path

from setuptools import setup

VERSION = re.search(r'^version = "(.+)"', Path(__file__).parents[1].joinpath("pyproject.toml").read_text(), re.MULTILINE)[1]

setup(version=VERSION, install_requires=[f"attnfix=={VERSION}"])
