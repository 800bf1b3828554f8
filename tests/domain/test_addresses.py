"""Which addresses calls on behalf of a sender may go to."""

import pytest

from activity_core.domain.addresses import is_public


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "192.0.0.8", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::1", "::", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd12::1", "ff02::1"),
        *("2001:db8::1", "2001::1", "100::1", "3fff::1", "", "localhost", "127.1", "2130706433", "0x7f000001"),
    ],
)
def test_addresses_that_are_not_of_the_public_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "52.94.236.248", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)
