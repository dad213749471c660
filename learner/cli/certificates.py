"""`seedrl certificates DIRECTORY`: an authority, certificates and a token for a run's machines.

Needs the extra `certificates` when it is imported.
"""

import contextlib
import datetime
import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL, Mark

PROG = "seedrl certificates"
_AUTHORITY_DAYS = 3650
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ADVICE = """\
The learner:    python -m learner CONFIG --workdir DIRECTORY --bind 0.0.0.0:8686 \\
                  --token-file {folder}/token --serving.authority {folder}/ca.pem \\
                  --serving.certificate {folder}/learner.pem \\
                  --serving.private-key {folder}/learner.key
An env server:  python -m envs_server --learner HOST:8686 --num-envs 32 \\
                  --token-file {folder}/token --authority {folder}/ca.pem \\
                  --certificate {folder}/env_server.pem --private-key {folder}/env_server.key \\
                  --allow-env 'MODULE.*'   (only for environments of your own)
Valid for {days} days. {folder}/ca.key makes them again; no machine of the run needs it."""


@dataclass(frozen=True, kw_only=True)
class CertificatesOptions:
    """Create a token and certificates for a run on several machines.

    Writes ca.pem with ca.key, learner.pem with learner.key, env_server.pem with env_server.key, and
    token. If the directory already has a ca.key, new certificates are signed with it and the token
    is kept.

    Example: seedrl certificates certs --host learner.example.org

    Attributes:
      directory: directory to write to; created if missing.
      host: name or address by which env servers reach the learner; may be repeated. localhost is
        always included.
      days: validity of the certificates in days.
    """

    directory: Annotated[Path, POSITIONAL]
    host: Annotated[tuple[str, ...], Mark("HOST", action="append")] = ()
    days: int = 365


def run(argv: Sequence[str]) -> int:
    options = read(CertificatesOptions, argv, prog=PROG)
    if not 1 <= options.days <= _AUTHORITY_DAYS:
        raise ConfigError(f"--days: expected 1 to {_AUTHORITY_DAYS}, got {options.days}")
    folder = options.directory
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds keys
        make(folder, options.host, datetime.timedelta(days=options.days))
    except OSError as error:
        raise ConfigError(f"cannot write in {folder}: {error.strerror}") from error
    print(_ADVICE.format(folder=folder, days=options.days))
    return ExitCode.OK


def make(folder: Path, hosts: Sequence[str], valid: datetime.timedelta) -> None:
    """Writes certificates and keys of both sides, a token, and an authority if none is there.

    Raises ConfigError for a host that is no name, or a ca.key or ca.pem that cannot be read, and
    OSError.
    """
    # Localhost always: the learner's machine may run env servers, too. Env servers check the name
    # that they dial.
    names = x509.SubjectAlternativeName(map(_host, dict.fromkeys((*_LOCAL, *hosts))))
    # An authority that is there signs again: machines keep the ca.pem that they have.
    if not (folder / "ca.key").exists():
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        _issue(folder / "ca", datetime.timedelta(days=_AUTHORITY_DAYS), is_authority)
    try:
        key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()).subject
    except (FileNotFoundError, TypeError, ValueError) as error:
        raise ConfigError(f"expected the PEM files of an authority in {folder}/ca.*") from error
    # An env server's certificate does not make anybody a learner.
    server, client = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    signed = {"issuer": issuer, "issuer_key": key}
    _issue(folder / "learner", valid, x509.ExtendedKeyUsage([server]), names, **signed)
    _issue(folder / "env_server", valid, x509.ExtendedKeyUsage([client]), **signed)
    if not (folder / "token").exists():  # kept: env servers that run have it
        _write(folder / "token", f"{secrets.token_hex(32)}\n".encode())


def _issue(
    path: Path,
    valid: datetime.timedelta,
    *extensions: x509.ExtensionType,
    issuer: x509.Name | None = None,
    issuer_key: Any = None,
) -> None:
    """Writes PATH.key and PATH.pem, signed by itself without `issuer`."""
    key = ec.generate_private_key(ec.SECP256R1())  # known to every TLS library
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"seedrl {path.name}")])
    signing = issuer_key or key
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer or title,
        title,
        key.public_key(),
        x509.random_serial_number(),
        now - datetime.timedelta(hours=1),  # clocks differ
        now + valid,
    )
    for extension in (
        *extensions,
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
    ):
        is_critical = isinstance(extension, x509.BasicConstraints)
        builder = builder.add_extension(extension, critical=is_critical)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    # Without a password: programs read keys when nobody is there to type one.
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    _write(path.with_suffix(".key"), private)
    _write(path.with_suffix(".pem"), builder.sign(signing, hashes.SHA256()).public_bytes(pem))


def _host(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    # Not the address of --bind, with a port: TLS compares names, and would accept none.
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", host):
        raise ConfigError(f"--host: expected a name or an address without a port, got {host!r}")
    return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    # Replaced whole: a learner or an env server may be starting with the one before.
    new = path.with_name(f".{path.name}")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600, exist_ok=False)  # before it has content: nobody else ever reads it
    new.write_bytes(content)
    new.replace(path)
