# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts libattnc.so into the wheel: the one that ATTNC_LIBRARY names, else the newest
under build/. Without one the wheel is pure, and the library is found when it is
imported (ATTNC_LIBRARY, or where the system looks)."""

import glob
import os
import shutil
import sysconfig

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))


def find_library():
    named = os.environ.get("ATTNC_LIBRARY")
    if named:
        return named
    built = glob.glob(os.path.join(HERE, "build", "*", "lib", "libattnc.so"))
    return max(built, key=os.path.getmtime, default=None)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = find_library()
        if library:
            shutil.copyfile(library, os.path.join(self.build_lib, "attnc", "libattnc.so"))


class WheelOfPlatform(bdist_wheel):
    """For any Python 3: nothing in the package is built for one of them."""

    def get_tag(self):
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return "py3", "none", platform if find_library() else "any"


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfPlatform})
