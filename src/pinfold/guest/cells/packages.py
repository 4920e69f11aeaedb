"""What to install for a name that cannot be imported."""

from __future__ import annotations

import sys

DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cairosvg": "CairoSVG",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "igraph": "python-igraph",
    "imblearn": "imbalanced-learn",
    "jwt": "pyjwt",
    "kaleido": "kaleido",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "mysql": "mysql-connector-python",
    "osgeo": "gdal",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "python_calamine": "python-calamine",
    "rest_framework": "djangorestframework",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "usb": "pyusb",
    "win32com": "pywin32",
    "wx": "wxpython",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}


OWN_NAME = "pinfold"
"""A session cannot open another; what the package index has of this name may be anybody's."""


def package_of(missing: object) -> str:
    """What to install for the name of a ModuleNotFoundError; empty when installing would not help."""
    if type(missing) is not str or not missing.isprintable() or len(missing) > 100:
        return ""
    top = missing.partition(".")[0]
    if top == OWN_NAME:
        return ""
    if missing not in DISTRIBUTIONS and (top in sys.stdlib_module_names or top in sys.modules):
        return ""
    return DISTRIBUTIONS.get(missing) or DISTRIBUTIONS.get(top, top)
