"""The way out: which destinations there are, which are allowed, and the only code that connects to them."""

from pinfold.net.allow_list import AllowList
from pinfold.net.dns import Resolver
from pinfold.net.egress import Egress, EgressLimits, Gate, How, Unlisted
from pinfold.net.errors import BadDestination, BadPattern, NetError, Refused, Unreachable
from pinfold.net.fetch import Fetched, FetchLimits, fetch, read_url
from pinfold.net.hosts import Destination, Url, parse_authority, parse_url
from pinfold.net.proxy import OnTraffic, Proxy, ProxyLimits, Traffic
from pinfold.net.ranges import WhyNot, why_special

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
    "OnTraffic",
    "Proxy",
    "ProxyLimits",
    "Refused",
    "Resolver",
    "Traffic",
    "Unlisted",
    "Unreachable",
    "Url",
    "WhyNot",
    "fetch",
    "parse_authority",
    "parse_url",
    "read_url",
    "why_special",
]
