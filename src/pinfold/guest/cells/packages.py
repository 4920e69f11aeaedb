"""Packages of the session: which one brings a missing module, and where those lie that were installed meanwhile."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import invalidate_caches

_PAIRS = """
Bio=biopython Crypto=pycryptodome OpenSSL=pyopenssl PIL=pillow attr=attrs bs4=beautifulsoup4 cairosvg=CairoSVG
cv2=opencv-python-headless dateutil=python-dateutil docx=python-docx dotenv=python-dotenv fitz=pymupdf git=gitpython
google.cloud.bigquery=google-cloud-bigquery google.cloud.storage=google-cloud-storage google.protobuf=protobuf
grpc=grpcio igraph=python-igraph imblearn=imbalanced-learn jwt=pyjwt kaleido=kaleido magic=python-magic
mpl_toolkits=matplotlib mysql=mysql-connector-python osgeo=gdal pkg_resources=setuptools pptx=python-pptx
psycopg2=psycopg2-binary pytorch_lightning=pytorch-lightning python_calamine=python-calamine
rest_framework=djangorestframework sentence_transformers=sentence-transformers serial=pyserial skimage=scikit-image
sklearn=scikit-learn slugify=python-slugify snappy=python-snappy usb=pyusb win32com=pywin32 wx=wxpython yaml=pyyaml
zmq=pyzmq
"""
DISTRIBUTIONS = {name: package for name, _, package in (pair.partition("=") for pair in _PAIRS.split())}
"""By the name of a module, the package that has it."""
OWN_NAME = "pinfold"
"""A session cannot open another; a package of this name on the index is not ours."""


def package_of(missing: object) -> str:
    """What to install for the name of a ModuleNotFoundError; empty when installing would not help."""
    if type(missing) is not str or not missing.isprintable() or len(missing) > 100:
        return ""
    top = missing.partition(".")[0]
    is_there = missing not in DISTRIBUTIONS and (top in sys.stdlib_module_names or top in sys.modules)
    if top == OWN_NAME or is_there:
        return ""
    return DISTRIBUTIONS.get(missing) or DISTRIBUTIONS.get(top, top)


class Site:
    """A folder of installations, which join the import path after everything else. Programs find them by PYTHONPATH and PATH."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = -1

    def refresh(self) -> None:
        """Before a cell: one `stat`, and nothing more unless something was installed since the last one."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._seen:
                return
            names = sorted(os.listdir(self._folder))
        except OSError:
            return  # it is the host's, and may not be there yet
        self._seen = changed
        with suppress(Exception):  # the program replaced the path or a finder: what it imports is its own affair
            for name in names:
                if not name.startswith("."):
                    path = f"{self._folder}/{name}"
                    if path not in sys.path:
                        sys.path.append(path)
                    _join("PYTHONPATH", path)
                    _join("PATH", f"{path}/bin")
            invalidate_caches()


def _join(variable: str, path: str) -> None:
    paths = [one for one in os.environ.get(variable, "").split(os.pathsep) if one]
    if path not in paths:
        os.environ[variable] = os.pathsep.join([*paths, path])
