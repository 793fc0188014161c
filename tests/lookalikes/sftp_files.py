"""A partner's SFTP server on this machine: a real one, whose root is a folder of the test's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

USER, PASSWORD = "partner", "s3cret-word"


@dataclass
class Sftp:
    """The server: `root` is what clients see as `/`; `known_hosts` a file that names it to them."""

    root: Path
    port: int
    known_hosts: Path

    def address(self, path: str, user: str = f"{USER}:{PASSWORD}") -> str:
        return f"sftp://{user}@127.0.0.1:{self.port}{path}"


class _Door(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


@contextmanager
def sftp_server(folder: Path) -> Iterator[Sftp]:
    """Run a server for the length of the block; its root is a folder below `folder`."""
    root = folder / "root"
    root.mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Door,
            server_host_keys=[key],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(root)),
        )

    async def leave() -> None:
        acceptor.close()
        await acceptor.wait_closed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    port = acceptor.get_port()
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}", "utf-8")
    try:
        yield Sftp(root, port, known)
    finally:
        asyncio.run_coroutine_threadsafe(leave(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
