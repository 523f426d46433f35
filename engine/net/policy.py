"""Who may be called: the strict policy of tenants, and the open one of a person's own command line."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.net.addresses import Address, Network, is_public, is_within, parse_address, parse_networks
from engine.net.codes import Code, Refused
from engine.net.names import is_internal, is_listed, literal_address, parse_host_list
from engine.net.urls import Url

PORTS = frozenset((80, 443, 8080, 8443))


@dataclass(frozen=True, slots=True)
class Policy:
    """`tenant()` or `local()` makes one.

    `networks`, `ports`, `nat64`, `https_only` and `ca_file` are the operator's. `hosts` is the tenant's list: it
    narrows, and never opens an address that is closed.
    """

    strict: bool = True
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = PORTS
    hosts: tuple[str, ...] | None = None
    nat64: bool = False
    https_only: bool = False
    ca_file: Path | None = None

    @classmethod
    def tenant(
        cls,
        *,
        allow_cidrs: Iterable[str] = (),
        allow_ports: Iterable[int] = (),
        allow_hosts: Iterable[str] | None = None,
        nat64: bool = False,
        https_only: bool = False,
        ca_file: Path | None = None,
    ) -> "Policy":
        """Public addresses and the usual ports, plus what the operator adds. Raises ValueError for a bad CIDR."""
        return cls(
            networks=parse_networks(allow_cidrs),
            ports=PORTS | frozenset(allow_ports),
            hosts=None if allow_hosts is None else parse_host_list(allow_hosts),
            nat64=nat64,
            https_only=https_only,
            ca_file=ca_file,
        )

    @classmethod
    def local(cls, *, ca_file: Path | None = None) -> "Policy":
        """Any host, address and port: for programs that act for the person who started them."""
        return cls(strict=False, ca_file=ca_file)

    def narrowed(self, hosts: Iterable[str]) -> "Policy":
        """The same for the hosts of one tenant's list."""
        return replace(self, hosts=parse_host_list(hosts))

    def check_url(self, url: Url) -> None:
        """What can be said before a name is looked up; the same when a tool is saved and when it runs."""
        if self.hosts is not None and not is_listed(url.host, self.hosts):
            raise Refused(Code.HOST_NOT_ALLOWED, "the host is not on the list of allowed hosts")
        if not self.strict:
            return
        if self.https_only and url.scheme != "https":
            raise Refused(Code.SCHEME_NOT_ALLOWED, "only https is allowed here")
        if url.port not in self.ports:
            raise Refused(Code.PORT_NOT_ALLOWED, f"port {url.port} is not among the allowed ports")
        if (literal := literal_address(url.host)) is not None:
            self._check_address(literal, url.host)
        elif is_internal(url.host) and not self.networks:
            raise Refused(Code.HOST_NOT_ALLOWED, "the host is an internal name")

    def check_answer(self, host: str, answer: Iterable[str]) -> list[str]:
        """The addresses to dial, in order. One bad address refuses the whole answer, and so does an empty one."""
        addresses = list(answer)
        if not addresses:
            raise Refused(Code.DNS_FAILED, "the host has no address")
        if self.strict:
            for address in addresses:
                self._check_address(parse_address(address), host)
        return addresses

    def _check_address(self, address: Address | None, host: str) -> None:
        if address is not None and is_within(address, self.networks):
            return
        if is_internal(host):  # known to be inside, so only the operator's ranges will do
            raise Refused(Code.HOST_NOT_ALLOWED, "the host is an internal name")
        if address is None or not is_public(address, nat64=self.nat64):
            raise Refused(Code.ADDRESS_NOT_ALLOWED, "the host is not on the public internet")
