"""One form of a destination, the allow-list on it, and which addresses are special."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.net import AllowList, BadDestination, BadPattern, Destination, parse_authority, parse_url
from pinfold.net.hosts import (
    METADATA,
    _is_own,  # pyright: ignore[reportPrivateUsage]
    special_kind,
    why_special,
)

pytestmark = [pytest.mark.unit]

NAMES = st.from_regex(
    r"[A-Za-z0-9]([A-Za-z0-9-]{0,8}[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]{0,8}[A-Za-z])?){1,3}\.?", fullmatch=True
)
PORTS = st.integers(1, 65535)
T = TypeVar("T")


def parsed(parse: Callable[[str], T], text: str) -> T | str:
    """What it is, or why it is nothing."""
    try:
        return parse(text)
    except BadDestination as error:
        return str(error)


@given(NAMES | st.ip_addresses(v=4).map(str), PORTS)
def test_a_destination_is_parsed_to_one_form_that_parses_to_itself(name: str, port: int) -> None:
    found = parse_authority(f"{name}:{port}")
    assert found.host == name.lower().removesuffix(".")
    assert parse_authority(str(found)) == found
    assert parse_url(f"HTTP://{name}:{port}?q#f").destination == found


@given(st.ip_addresses(v=6), PORTS)
def test_an_ipv6_address_is_taken_in_one_form_or_refused_for_what_it_hides(address: object, port: int) -> None:
    found = parsed(parse_authority, f"[{str(address).upper()}]:{port}")
    if isinstance(found, Destination):
        assert found == Destination(str(address), port)
        assert found.address == address


ODD = st.text(max_size=40) | st.text(alphabet="evil.org:@%[]/\\\0\r\n 0127x", max_size=24)


@given(ODD)
def test_whatever_text_there_is_it_is_refused_in_one_line_or_is_canonical(text: str) -> None:
    for parse in (parse_authority, parse_url, parse_url("http://good.example.org/a").join):
        found = parsed(parse, text)
        if isinstance(found, str):
            assert found.isprintable()
            assert found.isascii()
        else:
            destination = found if isinstance(found, Destination) else found.destination
            assert parse_authority(str(destination)) == destination
            assert not set(str(destination)) & set("@%/\\\0\r\n \t")


@pytest.mark.parametrize(
    "host", ["EVIL.org", "evil.org.", "0x7f.1", "127.1", "a b", "[::1]", "::ffff:1.2.3.4", "a@b", ""]
)
def test_no_destination_is_made_of_another_form(host: str) -> None:
    with pytest.raises(BadDestination):
        Destination(host, 80)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("*", "would allow every host"),
        ("*.com", "too wide"),
        ("*.*.example.org", "not a first part"),
        ("api.*.com", "not a first part"),
        ("*example.org", "not a first part"),
        ("https://api.github.com", "is a URL"),
        ("api.github.com/path", "neither a host nor a range"),
        ("0.0.0.0/0", "too wide"),
        ("::/0", "too wide"),
        ("10.0.0.1/8", "not a range of addresses"),
        ("0177.0.0.1", "not a plain IPv4"),
        ("*.10.0.0.1", "not a domain"),
        ("b\xfccher.example", "ASCII"),
        ("user@example.org", "user information"),
        ("example.org:0", "no valid port"),
        ("10.0.0.0/8:99999", "no valid port"),
        ("[::ffff:10.0.0.1]", "half as IPv4"),
        ("", "no host"),
    ],
)
def test_a_pattern_that_means_nothing_or_everything_is_refused_with_one_line(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=why) as caught:
        AllowList([pattern])
    assert "\n" not in str(caught.value)


LIST = AllowList(
    [
        "api.github.com",
        "Files.Example.org.:8443",
        "*.example.org",
        "10.1.2.3:8000",
        "192.168.0.0/16",
        "fd00::/8",
        "[fd12::1]:9000",
        "169.254.0.0/16",
        "100.100.100.200",
    ]
)


@pytest.mark.parametrize(
    ("text", "is_listed"),
    [
        ("api.github.com:443", True),
        ("api.github.com:80", True),
        ("API.GitHub.com.:443", True),
        ("api.github.com:22", False),
        ("github.com:443", False),
        ("a.api.github.com:443", False),
        ("files.example.org:8443", True),
        ("files.example.org:443", True),
        ("files.example.org:8444", False),
        ("a.b.example.org:443", True),
        ("example.org:443", False),
        ("evilexample.org:443", False),
        ("example.org.evil.com:443", False),
        ("10.1.2.3:8000", True),
        ("10.1.2.3:80", False),
        ("10.1.2.4:8000", False),
        ("192.168.7.7:443", True),
        ("[fd00::7]:443", True),
        ("[fd12::1]:9000", True),
        ("[fd12::2]:9000", False),
        ("169.254.1.1:80", True),
        ("169.254.169.254:80", False),
        ("100.100.100.200:80", True),
    ],
)
def test_the_list_means_what_it_says(text: str, is_listed: bool) -> None:
    assert LIST.lists(parse_authority(text)) is is_listed


@given(NAMES, PORTS)
def test_an_empty_list_allows_nothing(name: str, port: int) -> None:
    assert not AllowList().lists(parse_authority(f"{name}:{port}"))


@pytest.mark.parametrize(
    "text",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.0.1", "169.254.1.1", "172.16.0.1"),
        *("172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1"),
        *("203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
        *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254"),
        *("fe80::1", "fec0::1", "ff02::1", "1234::1", "4000::1"),
    ],
)
def test_an_address_that_is_not_of_the_public_internet_is_called_what_it_is(text: str) -> None:
    assert special_kind(ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_an_address_of_the_public_internet_is_fine(text: str) -> None:
    assert special_kind(ip_address(text)) is None
    assert why_special(ip_address(text)) is None


@given(st.ip_addresses())
def test_what_python_calls_not_global_is_special_here_too(address: object) -> None:
    one = ip_address(str(address))
    nat64 = ip_network("64:ff9b::/96")
    if one not in nat64 and (
        one.is_loopback or one.is_link_local or one.is_multicast or one.is_unspecified or one in METADATA
    ):
        assert special_kind(one)
    if one.is_private and one not in nat64:
        assert special_kind(one)


def test_an_address_of_this_machine_is_told_from_one_that_is_not() -> None:
    assert _is_own(ip_address("127.0.0.1"))
    assert _is_own(ip_address("127.77.0.1"))
    assert not _is_own(ip_address("8.8.8.8"))
    assert not _is_own(ip_address("2606:4700::1111"))
