"""Network egress: parses destinations, decides which are allowed, and holds the only code that connects to them."""

from pinfold.net.egress import AllowList, Egress, EgressLimits, Gate, How
from pinfold.net.fetch import Fetched, FetchLimits, fetch, read_url
from pinfold.net.hosts import (
    BadDestination,
    BadPattern,
    Destination,
    NetError,
    Refused,
    Unreachable,
    Url,
    parse_authority,
    parse_url,
    why_special,
)
from pinfold.net.proxy import Proxy, ProxyLimits

__all__ = [
    "AllowList",
    "BadDestination",
    "BadPattern",
    "Destination",
    "Egress",
    "EgressLimits",
    "FetchLimits",
    "Fetched",
    "Gate",
    "How",
    "NetError",
    "Proxy",
    "ProxyLimits",
    "Refused",
    "Unreachable",
    "Url",
    "fetch",
    "parse_authority",
    "parse_url",
    "read_url",
    "why_special",
]
