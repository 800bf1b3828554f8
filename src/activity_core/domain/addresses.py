"""Which addresses of the network are public: no call on behalf of a sender goes anywhere else.

Our own list beside Python's: `is_global` differs between patch levels, and is wrongly true for multicast, NAT64, 6to4 and
IPv4-compatible addresses.
"""

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_DENIED = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("100::/64", "2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def is_public(text: str) -> bool:
    """Whether an address as text is one of the public internet; an IPv4 address inside an IPv6 one is judged itself."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        embedded = _embedded(address)
        if embedded is None:
            return address in _GLOBAL_UNICAST and not _denied(address)
        address = embedded
    return not _denied(address)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None or address.sixtofour is not None:
        return address.ipv4_mapped or address.sixtofour
    if address in _NAT64 or address in _COMPATIBLE:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _denied(address: Address) -> bool:
    return any(address in network for network in _DENIED)
