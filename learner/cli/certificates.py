"""`seedrl certificates FOLDER`: an authority, certificates and a token for a run's machines."""

import contextlib
import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.hints import require_extra
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL, Mark

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    _Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

PROG = "seedrl certificates"
_AUTHORITY_DAYS = 3650
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ADVICE = """\
The learner:    python -m learner CONFIG --workdir FOLDER --bind 0.0.0.0:8686 \\
                  --token-file {folder}/token --serving.authority {folder}/ca.pem \\
                  --serving.certificate {folder}/learner.pem \\
                  --serving.private-key {folder}/learner.key
An env server:  python -m envs_server --learner HOST:8686 --num-envs 32 \\
                  --token-file {folder}/token --authority {folder}/ca.pem \\
                  --certificate {folder}/env_server.pem --private-key {folder}/env_server.key \\
                  --allow-env 'MODULE.*'   (only for environments of your own)
Valid for {days} days. {folder}/ca.key makes them again; no machine of the run needs it."""
# Clocks differ.
_BEFORE = datetime.timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class CertificatesOptions:
    """Create a token and certificates for a run on several machines.

    Writes ca.pem with ca.key, learner.pem with learner.key, env_server.pem with env_server.key, and
    token. If the directory already has a ca.key, new certificates are signed with it and the token
    is kept.

    Example: seedrl certificates certs --host learner.example.org

    Attributes:
      folder: directory to write to; created if missing.
      host: name or address by which env servers reach the learner; may be repeated. localhost is
        always included.
      days: validity of the certificates in days.
    """

    folder: Annotated[Path, POSITIONAL]
    host: Annotated[tuple[str, ...], Mark("HOST", action="append")] = ()
    days: int = 365


def run(argv: Sequence[str]) -> int:
    options = read(CertificatesOptions, argv, prog=PROG)
    if not 1 <= options.days <= _AUTHORITY_DAYS:
        raise ConfigError(f"--days: expected 1 to {_AUTHORITY_DAYS}, got {options.days}")
    require_extra("certificates")
    folder = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # it holds keys
        make(folder, options.host, datetime.timedelta(days=options.days))
    except OSError as error:
        raise ConfigError(f"cannot write in {folder}: {error.strerror}") from error
    print(_ADVICE.format(folder=folder, days=options.days))
    return ExitCode.OK


def make(folder: Path, hosts: Sequence[str], valid: datetime.timedelta) -> None:
    """Writes certificates and keys of both sides, a token, and an authority if none is there."""
    # Raises ConfigError for a ca.key or ca.pem that cannot be read, and OSError.
    # Localhost always: the learner's machine may run env servers, too.
    names = [_host(host) for host in dict.fromkeys((*_LOCAL, *hosts))]
    authority = _authority(folder)
    _issue(folder, "learner", valid, authority, names)
    _issue(folder, "env_server", valid, authority, [])
    if not (folder / "token").exists():  # kept: env servers that run have it
        _write(folder / "token", f"{secrets.token_hex(32)}\n".encode())


def _authority(folder: Path) -> "_Pair":
    """Reads that of the folder, or makes it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    # One that is there signs again: machines keep the ca.pem that they have.
    if not (folder / "ca.key").exists():
        return _issue(folder, "ca", datetime.timedelta(days=_AUTHORITY_DAYS), None, [])
    try:
        key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()), key
    except (TypeError, ValueError) as error:
        raise ConfigError(f"expected the PEM files of an authority in {folder}/ca.*") from error


def _issue(
    folder: Path,
    name: str,
    valid: datetime.timedelta,
    authority: "_Pair | None",
    hosts: "Sequence[x509.GeneralName]",
) -> "_Pair":
    """Writes NAME.key and NAME.pem: an authority's without `authority`, a server's with `hosts`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())  # known to every TLS library
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"seedrl {name}")])
    issuer, issuer_key = (title, key) if authority is None else (authority[0].subject, authority[1])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(title)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if authority is not None:
        # An env server's certificate does not make anybody a learner.
        side = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([side]), critical=False)
    if hosts:
        # Env servers check the name that they dial.
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    made = builder.sign(issuer_key, hashes.SHA256())
    # Without a password: programs read keys when nobody is there to type one.
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    _write(folder / f"{name}.key", private)
    _write(folder / f"{name}.pem", made.public_bytes(pem))
    return made, key


def _host(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        with contextlib.suppress(ValueError):
            return x509.IPAddress(ipaddress.ip_address(host))
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"--host: expected a name or an address, got {host!r}") from error


def _write(path: Path, content: bytes) -> None:
    """Nobody else can read it at any time."""
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
