"""From a target to an open SSH connection: jump hosts, host keys, login.

asyncssh is imported here, so this module is imported only when somebody connects
(`backends.link.ssh`). Each hop is resolved, checked and logged in to in the same way; a jump host
gets no less scrutiny than the host itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import asyncssh

from backends import paths
from backends.config import SshConfig
from backends.errors import LinkError
from backends.link import failures, known_hosts
from backends.link.auth import LoginClient
from backends.link.base import HostKeyQuestion, Prompter, SecretQuestion
from backends.link.hop import Hop, resolve
from backends.link.known_hosts import KnownKey, KnownKeys
from backends.link.limiter import Limiter, Slot
from backends.link.proxy import ProxyProcess
from backends.link.target import SshTarget
from backends.link.tcp import open_tcp
from backends.link.threads import in_thread

MAX_HOPS: Final = 8


@dataclass(slots=True)
class Route:
    """An open connection and what it goes through, outermost first."""

    connection: asyncssh.SSHClientConnection
    client: LoginClient
    through: list[asyncssh.SSHClientConnection] = field(default_factory=list)
    proxies: list[ProxyProcess] = field(default_factory=list)

    async def close(self, timeout_s: float = 0.5) -> None:
        """Let go of everything, innermost first. Never raises."""
        connections = [self.connection, *reversed(self.through)]
        self.connection.close()
        with contextlib.suppress(TimeoutError, OSError, asyncssh.Error):
            async with asyncio.timeout(timeout_s):
                await self.connection.wait_closed()
        for connection in connections:
            connection.abort()
        for proxy in self.proxies:
            await proxy.close()


class PatientPrompter:
    """Asks through another prompter, with the deadline held and the connect slot handed back."""

    def __init__(
        self, prompter: Prompter, timeout: asyncio.Timeout, seconds: float, slot: Slot
    ) -> None:
        self._prompter = prompter
        self._timeout = timeout
        self._seconds = seconds
        self._slot = slot

    async def accept_host_key(self, question: HostKeyQuestion) -> bool:
        """Ask, for as long as it takes."""
        self._wait_for_person()
        try:
            return await self._prompter.accept_host_key(question)
        finally:
            self.restart()

    async def secret(self, question: SecretQuestion) -> str | None:
        """Ask, for as long as it takes."""
        self._wait_for_person()
        try:
            return await self._prompter.secret(question)
        finally:
            self.restart()

    def restart(self) -> None:
        """Give the next step the whole time again."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def _wait_for_person(self) -> None:
        self._slot.release()
        self._timeout.reschedule(None)


class Way:
    """Builds the route to one target. Used once."""

    def __init__(
        self, host: str, settings: SshConfig, prompter: Prompter, limiter: Limiter
    ) -> None:
        self._host = host
        self._settings = settings
        self._prompter = prompter
        self._limiter = limiter
        self._through: list[asyncssh.SSHClientConnection] = []
        self._proxies: list[ProxyProcess] = []

    async def go(self, target: SshTarget) -> Route:
        """Connect.

        Raises:
            LinkError: With the hop where it failed, and what to do.
        """
        try:
            connection, client = await self._reach(target, None, (), self._host)
        except BaseException:
            for opened in reversed(self._through):
                opened.abort()
            for proxy in self._proxies:
                await proxy.close()
            raise
        return Route(connection, client, self._through, self._proxies)

    async def _reach(
        self,
        target: SshTarget,
        tunnel: asyncssh.SSHClientConnection | None,
        before: tuple[str, ...],
        label: str,
    ) -> tuple[asyncssh.SSHClientConnection, LoginClient]:
        if str(target) in before or len(before) >= MAX_HOPS:
            raise LinkError(
                f"The ProxyJump of {self._host} goes round in a circle",
                " -> ".join([*before, str(target)]),
                "Exclude the jump host from the pattern that sets ProxyJump in ~/.ssh/config.",
            )
        written = self._settings.config_file
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                hop = await in_thread(lambda: resolve(target, written))
        except TimeoutError:
            raise LinkError(
                f"The SSH configuration for {label} is not read to its end",
                f"{written}: more than {self._settings.connect_timeout_s:g} s",
                "A `Match exec` in it may hang.",
            ) from None
        if tunnel is None:
            for jump in hop.jumps:
                name = f"jump host {jump} of {self._host}"
                tunnel, _ = await self._reach(jump, tunnel, (*before, str(target)), name)
                self._through.append(tunnel)
        return await self._log_in(hop, tunnel, label)

    async def _log_in(
        self, hop: Hop, tunnel: asyncssh.SSHClientConnection | None, label: str
    ) -> tuple[asyncssh.SSHClientConnection, LoginClient]:
        known = await self._known(hop)
        outcome = await self._try(hop, tunnel, known, label)
        if not isinstance(outcome, asyncssh.SSHKey):
            return outcome
        # The connection is gone by now, so the person may take all the time they need.
        question = HostKeyQuestion(
            host=label,
            address=hop.address,
            port=hop.port,
            algorithm=failures.algorithm(outcome),
            fingerprint=outcome.get_fingerprint(),
        )
        if not await self._prompter.accept_host_key(question):
            raise failures.host_key_unknown(label, outcome, known)
        file, key, name = paths.known_hosts_file(), outcome, known.name
        with contextlib.suppress(OSError):  # not kept, then: it will be asked again
            await in_thread(lambda: known_hosts.save(file, name, key))
        accepted = KnownKeys(known.name, trusted=(KnownKey(key, file, 0),))
        second = await self._try(hop, tunnel, accepted, label)
        if isinstance(second, asyncssh.SSHKey):
            raise failures.host_key_changed(label, second, accepted)
        return second

    async def _known(self, hop: Hop) -> KnownKeys:
        return await in_thread(
            lambda: known_hosts.look_up(
                hop.known_hosts_files, hop.address, hop.port, hop.host_key_alias
            )
        )

    async def _try(
        self,
        hop: Hop,
        tunnel: asyncssh.SSHClientConnection | None,
        known: KnownKeys,
        label: str,
    ) -> tuple[asyncssh.SSHClientConnection, LoginClient] | asyncssh.SSHKey:
        """Connect and log in once; the result is the host's key where that is not known."""
        limit_s = self._settings.connect_timeout_s
        endpoint = None if tunnel or hop.proxy_command else (hop.address, hop.port)
        identities = hop.identities
        agent: asyncssh.SSHAgentClient | None = None
        client: LoginClient | None = None
        reached = False
        async with self._limiter.slot(endpoint) as slot:
            try:
                async with asyncio.timeout(limit_s) as timeout:
                    prompter = PatientPrompter(self._prompter, timeout, limit_s, slot)
                    client = LoginClient(label, prompter, identities)
                    from_files = await in_thread(identities.load_files)
                    agent, from_agent = await identities.load_agent()
                    sock = None if tunnel else await self._socket(hop)
                    reached = True
                    prompter.restart()
                    keys = identities.ordered(from_files, from_agent)
                    return await self._connect(hop, tunnel, sock, known, client, keys), client
            except asyncssh.HostKeyNotVerifiable as error:
                return self._judge(error, client, known, label)
            except (OSError, ValueError, asyncssh.Error) as error:
                if not reached or client is None:
                    raise failures.unreachable(label, hop.address, hop.port, error) from error
                no_key_in_common = isinstance(error, asyncssh.KeyExchangeFailed) and (
                    "host key" in str(error)
                )
                if no_key_in_common and known.trusted:
                    raise failures.host_key_changed(label, None, known) from error
                said = await self._proxies[-1].last_words() if self._proxies else ""
                raise failures.login_failed(
                    label, hop.address, hop.port, hop.user, error, client, identities, said
                ) from error
            finally:
                if agent is not None:
                    agent.close()

    async def _socket(self, hop: Hop) -> socket.socket:
        if hop.proxy_command:
            proxy, sock = await ProxyProcess.start(hop.proxy_command)
            self._proxies.append(proxy)
            return sock
        return await open_tcp(hop.address, hop.port, hop.family, hop.bind_address)

    async def _connect(
        self,
        hop: Hop,
        tunnel: asyncssh.SSHClientConnection | None,
        sock: socket.socket | None,
        known: KnownKeys,
        client: LoginClient,
        keys: Sequence[asyncssh.SSHKeyPair],
    ) -> asyncssh.SSHClientConnection:
        connecting = asyncssh.connect(
            hop.target.host,
            hop.target.port or (),
            options=hop.options,
            config=None,
            reload=False,  # what `resolve` has read holds, a second pass for `Match final` too
            final=False,
            sock=sock,
            tunnel=tunnel,
            proxy_command=None,
            client_factory=lambda: client,
            known_hosts=known.for_asyncssh(),
            server_host_key_algs=() if hop.host_key_algorithms_set else known.algorithms(),
            client_keys=keys or None,
            agent_path=None,
            login_timeout=0,  # the deadline around this, which is held while a person thinks
            connect_timeout=None,
            keepalive_interval=self._settings.keepalive_s,
            keepalive_count_max=self._settings.keepalive_count,
            compression_algs=(
                ["zlib@openssh.com", "none"] if self._settings.compression else ["none"]
            ),
        )
        try:
            return await connecting
        except BaseException:
            if sock is not None:
                sock.close()  # a connection that was given up early has not taken it over
            raise

    @staticmethod
    def _judge(
        error: asyncssh.HostKeyNotVerifiable,
        client: LoginClient | None,
        known: KnownKeys,
        label: str,
    ) -> asyncssh.SSHKey:
        """The offered key where it is merely unknown; every other case is refused."""
        offered = client.offered_key if client else None
        if "revoked" in str(error) and known.revoked:
            raise failures.host_key_revoked(label, known.revoked[0]) from error
        if offered is None:
            authority = client.offered_authority if client else None
            if authority is not None:
                raise failures.authority_not_trusted(label, authority, known) from error
            raise LinkError(f"The host key of {label} cannot be used", str(error)) from error
        if known.trusted and not known.by_bare_name:
            raise failures.host_key_changed(label, offered, known) from error
        return offered
