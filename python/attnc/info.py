# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What this machine has for attnc, and what is missing for what.

    python -m attnc.info

Compiles a small function for each target, without the cache. Needs neither a GPU nor
PyTorch, and imports neither PyTorch nor transformers. Exits with 1 where the library
cannot be loaded.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import re
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import _capi
from ._errors import Error
from ._executable import Executable

_PROBE = """
func.func @probe(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>)
    -> (tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>
      -> tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>
}
"""
# The names that PyPI has, those that people have, and what needs them.
_PACKAGES = (
    ("numpy", "NumPy", "calls"),
    ("torch", "PyTorch", "attnc.torch, gradients, calls on GPUs and attnc.bench"),
    ("transformers", "transformers", "attnc.transformers"),
)
# Of cuDeviceGetAttribute.
_CAPABILITY = (75, 76)


class Gpu(NamedTuple):
    name: str
    capability: Tuple[int, int]


class Driver(NamedTuple):
    """The CUDA driver and what it shows. `missing` says why there are no GPUs."""

    path: str
    version: Optional[Tuple[int, int]]
    gpus: List[Gpu]
    missing: Optional[str]


def find_driver() -> Driver:
    """The driver that programs for GPUs would be run by; CUDA_VISIBLE_DEVICES counts."""
    path = os.environ.get("ATTNC_CUDA_DRIVER") or "libcuda.so.1"
    gpus: List[Gpu] = []
    try:
        cuda = ctypes.CDLL(path)
        get_version, start = cuda.cuDriverGetVersion, cuda.cuInit
    except (OSError, AttributeError) as error:
        return Driver(path, None, gpus, f"a CUDA driver ({error})")
    number, device = ctypes.c_int(), ctypes.c_int()
    get_version(ctypes.byref(number))
    version = number.value // 1000, number.value % 1000 // 10
    status = start(0) or cuda.cuDeviceGetCount(ctypes.byref(number))
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        return Driver(path, version, gpus, f"a CUDA driver that starts ({(text.value or b'').decode()})")
    for ordinal in range(number.value):
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, len(name), device)
        capability = []
        for attribute in _CAPABILITY:
            cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            capability.append(number.value)
        gpus.append(Gpu(name.value.decode(), (capability[0], capability[1])))
    return Driver(path, version, gpus, None if gpus else "a GPU")


def cache_directories() -> Dict[str, Optional[str]]:
    """Where compiled programs are kept, and what the driver makes of PTX; None for a cache
    that is turned off. As lib/Compiler/DiskCache.cpp and the driver have it."""
    home = os.path.expanduser("~")
    chosen = os.environ.get("ATTNC_CACHE_DIR")
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME", os.path.join(home, ".cache"))
        chosen = os.path.join(base, "attnc")
    driver = os.environ.get("CUDA_CACHE_PATH") or os.path.join(home, ".nv", "ComputeCache")
    return {
        "programs": chosen or None,
        "the driver's": None if os.environ.get("CUDA_CACHE_DISABLE") == "1" else driver,
    }


def directory_size(path: str) -> Tuple[int, int]:
    """How many files there are below, and their bytes."""
    files = total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # gone since
            files += 1
    return files, total


def version_of(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def describe_package() -> List[str]:
    """Where the package is, and its version if it is the one that was installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        installed = importlib.metadata.distribution("attnc")
    except importlib.metadata.PackageNotFoundError:
        return [f"package: {here}"]
    same = os.path.realpath(str(installed.locate_file("attnc"))) == os.path.realpath(here)
    return [f"package: {here}" + (f", version {installed.version}" if same else "")]


def describe_library() -> List[str]:
    """The library's path, size and version; Error where it cannot be loaded."""
    path = _capi.library_path()
    version = _capi.api_version()
    size = f", {_megabytes(os.path.getsize(path))}" if os.path.exists(path) else ""
    return [f"library: {os.path.abspath(path) if size else path}{size}, API version {version}"]


def describe_targets() -> Tuple[List[str], Optional[str]]:
    """What each target makes of a small function, and the architecture of GPUs that
    kernels are for, "sm_90a"."""
    cpu, architecture = f"this machine's ({platform.machine()})", None
    try:
        Executable(_PROBE, target="cpu", cache_directory="")
    except Error as error:
        cpu = f"cannot compile: {error}"
    try:
        ptx = _capi.emit_ptx(_PROBE, cache_directory="")
        cuda = architecture = re.findall(r"^\.target (\w+)", ptx, re.MULTILINE)[0]
    except Error as error:
        cuda = f"cannot compile: {error}"
    return ["targets:", f"  cpu: {cpu}", f"  cuda: {cuda}"], architecture


def describe_gpus(driver: Driver) -> List[str]:
    version = "none" if driver.version is None else f"{driver.path}, CUDA {driver.version[0]}.{driver.version[1]}"
    lines = [f"driver: {version}", "GPUs:" if driver.gpus else "GPUs: none"]
    for number, gpu in enumerate(driver.gpus):
        lines.append(f"  {number}: {gpu.name}, capability {gpu.capability[0]}.{gpu.capability[1]}")
    return lines


def describe_caches() -> List[str]:
    lines = ["caches:"]
    for name, path in cache_directories().items():
        if path is None:
            lines.append(f"  {name}: turned off")
        else:
            files, size = directory_size(path)
            lines.append(f"  {name}: {path}, {files} files, {_megabytes(size)}")
    return lines


def _runs_on(architecture: str, capability: Tuple[int, int]) -> bool:
    """Code for sm_90a runs on GPUs of that capability alone, that for sm_80 on later ones, too."""
    needed = int("".join(filter(str.isdigit, architecture)))
    has = 10 * capability[0] + capability[1]
    return has == needed if architecture.endswith("a") else has >= needed


def missing(driver: Driver, architecture: Optional[str]) -> List[str]:
    """What is not here, and what it would be for."""
    lines, use = [], "to run programs for GPUs, which can be compiled"
    if driver.missing:
        lines.append(f"{driver.missing}, {use}")
    elif architecture and not any(_runs_on(architecture, gpu.capability) for gpu in driver.gpus):
        lines.append(f"a GPU of {architecture.rstrip('a')}, {use}")
    lines += [f"{name}, for {use}" for package, name, use in _PACKAGES if version_of(package) is None]
    return lines


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m attnc.info", description=(__doc__ or "").partition("\n")[0])
    parser.parse_args(arguments)
    status, lines, architecture = 0, describe_package(), None
    try:
        lines += describe_library()
        targets, architecture = describe_targets()
        lines += targets
    except Error as error:
        lines.append(f"library: {_capi.library_path()}, not loaded")
        print(f"attnc.info: {error}", file=sys.stderr)
        status = 1
    driver = find_driver()
    lines += describe_gpus(driver) + describe_caches()
    versions = [f"{name} {version_of(package) or '-'}" for package, name, _ in _PACKAGES]
    lines.append(f"versions: Python {platform.python_version()}, {', '.join(versions)}")
    lacking = missing(driver, architecture)
    lines += ["missing:", *(f"  {line}" for line in lacking)] if lacking else ["missing: nothing"]
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
