"""The append-only store: events in SQLite, blobs by hash beside it."""

from pinfold.log.blobs import Blobs, blob_id
from pinfold.log.errors import BadBundle, BlobMissing, LogError, LogUnreadable, LogUnwritable
from pinfold.log.portable import export_bundle, import_file
from pinfold.log.rows import Damage
from pinfold.log.search import Match, matches
from pinfold.log.store import Batch, Log, Subscription, utc_now
from pinfold.log.summary import Summary, summarise

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
    "Subscription",
    "Summary",
    "blob_id",
    "export_bundle",
    "import_file",
    "matches",
    "summarise",
    "utc_now",
]
