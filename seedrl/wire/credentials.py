"""What a learner and its env servers know each other by: a token, and certificates.

Files only: what is in a command line or in an environment variable, other processes can read.
"""

import ssl
from pathlib import Path
from typing import NamedTuple

import grpc

from seedrl.errors import ConfigError

# `openssl rand -hex 32` and `seedrl certificates` make longer ones.
LEAST_TOKEN_CHARACTERS = 16
_MOST_TOKEN_CHARACTERS = 1024
# What a server does to whom it does not understand, and what gRPC says of its own handshake.
_CLOSED = "Socket closed"
_TLS_SIGNS = (
    *("CERTIFICATE_VERIFY_FAILED", "Verification Check", "WRONG_VERSION_NUMBER"),
    "andshake failed",
)


def read_token(path: Path) -> str:
    """The token in a file. Raises ConfigError, which never quotes it."""
    text = _read(path).decode("latin-1").strip()
    # It travels as text among the metadata of a call.
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if not is_plain or not LEAST_TOKEN_CHARACTERS <= len(text) <= _MOST_TOKEN_CHARACTERS:
        raise ConfigError(
            f"expected a token of {LEAST_TOKEN_CHARACTERS} to {_MOST_TOKEN_CHARACTERS} visible "
            f"characters in {path}; `openssl rand -hex 32` makes one"
        )
    return text


def tls_advice(details: str) -> str:
    """What follows gRPC's details if a connection could not be made because of TLS; else ""."""
    is_closed = "failed to connect" in details and _CLOSED in details
    if not is_closed and not any(sign in details for sign in _TLS_SIGNS):
        return ""
    return (
        "; check TLS: whether the learner uses it (its serving.certificate), whether that "
        "certificate is of --authority, for this address and not expired, and whether the learner "
        "requires a valid --certificate"
    )


class Certificates(NamedTuple):
    """PEM files of one side; None for what it does not have.

    Attributes:
      certificate, private_key: what it shows.
      authority: of what the other side must show.
    """

    certificate: Path | None = None
    private_key: Path | None = None
    authority: Path | None = None

    def of_server(self) -> grpc.ServerCredentials | None:
        """For a learner; None without a certificate. Raises ConfigError for unusable files."""
        if self.certificate is None or self.private_key is None:
            return None
        self._check()
        pair = (self.private_key.read_bytes(), self.certificate.read_bytes())
        authority = None if self.authority is None else self.authority.read_bytes()
        return grpc.ssl_server_credentials(
            [pair], authority, require_client_auth=authority is not None
        )

    def of_client(self) -> grpc.ChannelCredentials | None:
        """For an env server; None without an authority. Raises ConfigError for unusable files."""
        if self.authority is None:
            return None
        self._check()
        return grpc.ssl_channel_credentials(
            self.authority.read_bytes(),
            None if self.private_key is None else self.private_key.read_bytes(),
            None if self.certificate is None else self.certificate.read_bytes(),
        )

    def _check(self) -> None:
        # gRPC would say of a wrong file only that nobody can connect.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.authority is not None:
            _read(self.authority)
            try:
                context.load_verify_locations(self.authority)
            except ssl.SSLError as error:
                raise ConfigError(f"expected a certificate in PEM in {self.authority}") from error
        if self.certificate is not None and self.private_key is not None:
            _read(self.certificate)
            _read(self.private_key)
            try:
                # Never asks at the terminal for the password of a key.
                context.load_cert_chain(self.certificate, self.private_key, lambda: "")
            except ssl.SSLError as error:
                raise ConfigError(
                    f"expected a certificate in PEM in {self.certificate} and its own key, without "
                    f"a password, in {self.private_key}"
                ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
