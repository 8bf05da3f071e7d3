"""The packages of the wheel: what pyproject.toml cannot say, since each of the four folders is a package of its own."""

from setuptools import find_packages, setup

ROOTS = {"attnfix": "attnfix", "attnfix.compat": "compat", "attnfix.patches": "patches", "attnfix.kernels": "kernels"}

setup(
    packages=[name for root, folder in ROOTS.items() for name in (root, *(f"{root}.{sub}" for sub in find_packages(folder)))],
    package_dir=ROOTS,
)
