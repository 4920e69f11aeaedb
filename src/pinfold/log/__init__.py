"""The append-only store: events in SQLite, and blobs in files named by their hash."""

from pinfold.log.blobs import Blobs, blob_id
from pinfold.log.portable import export_bundle, import_file
from pinfold.log.rows import BadBundle, BlobMissing, Damage, LogError, LogUnreadable, LogUnwritable
from pinfold.log.search import Match, Place, Summary, log_version, matches, read_said, summarise
from pinfold.log.store import Batch, Log, Subscription

__all__ = [
    "BadBundle",
    "Batch",
    "BlobMissing",
    "Blobs",
    "Damage",
    "Log",
    "LogError",
    "LogUnreadable",
    "LogUnwritable",
    "Match",
    "Place",
    "Subscription",
    "Summary",
    "blob_id",
    "export_bundle",
    "import_file",
    "log_version",
    "matches",
    "read_said",
    "summarise",
]
