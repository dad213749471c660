"""`seedrl certificates FOLDER`: an authority, certificates and a token for a run's machines."""

import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from learner.cli.arguments import parse_flags
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

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
    """Makes what a learner and env servers on several machines know each other by: ca.pem with
    ca.key, learner.pem with learner.key, env_server.pem with env_server.key, and a token. In a
    folder that has a ca.key already, certificates are made again from it, and the token stays.

    Attributes:
      folder: where; made if it is not there.
      host: names and addresses by which env servers reach the learner; localhost always is one.
      days: how long the certificates are valid.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    host: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    days: int = 365


def run(argv: Sequence[str]) -> int:
    """Writes the files; returns the exit code."""
    options = parse_flags(CertificatesOptions, argv, prog=PROG)
    if not 1 <= options.days <= _AUTHORITY_DAYS:
        raise ConfigError(f"--days: expected 1 to {_AUTHORITY_DAYS}, got {options.days}")
    extras.require("certificates")
    folder = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        make(folder, options.host, datetime.timedelta(days=options.days))
    except OSError as error:
        raise ConfigError(f"cannot write in {folder}: {error.strerror}") from error
    print(_ADVICE.format(folder=folder, days=options.days))
    return ExitCode.OK


def make(folder: Path, hosts: Sequence[str], valid: datetime.timedelta) -> None:
    """Writes certificates and keys of both sides and a token; makes an authority if none is there.

    Raises ConfigError for a ca.key or ca.pem that cannot be read, and OSError.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    authority = _authority(folder)
    for name, names in (("learner", (*_LOCAL, *hosts)), ("env_server", ())):
        key = ec.generate_private_key(ec.SECP256R1())
        title = f"seedrl {name.replace('_', ' ')}"
        _write_pair(folder, name, _sign(title, key, valid, issuer=authority, hosts=names), key)
    if not (folder / "token").exists():
        _write(folder / "token", f"{secrets.token_hex(32)}\n".encode())


def _authority(folder: Path) -> "tuple[x509.Certificate, ec.EllipticCurvePrivateKey]":
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key_path, path = folder / "ca.key", folder / "ca.pem"
    if not key_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        valid = datetime.timedelta(days=_AUTHORITY_DAYS)
        made = _sign("seedrl authority", key, valid, issuer=None)
        _write_pair(folder, "ca", made, key)
        return made, key
    try:
        read = serialization.load_pem_private_key(key_path.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"expected the PEM files of an authority in {folder}/ca.*") from error
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"expected a key of an elliptic curve in {key_path}")
    return certificate, read


def _sign(
    title: str,
    key: "ec.EllipticCurvePrivateKey",
    valid: datetime.timedelta,
    *,
    issuer: "tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None",
    hosts: Sequence[str] = (),
) -> "x509.Certificate":
    """A certificate of `key`: an authority's without `issuer`, a server's with `hosts`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    by, by_key = (name, key) if issuer is None else (issuer[0].subject, issuer[1])
    now = datetime.datetime.now(datetime.UTC)
    own, others = key.public_key(), by_key.public_key()
    # Each with whether a reader that does not know it must refuse the certificate.
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=issuer is None, path_length=None), True),
        (x509.SubjectKeyIdentifier.from_public_key(own), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(others), False),
    ]
    if issuer is not None:
        side = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        extensions.append((x509.ExtendedKeyUsage([side]), False))
    if hosts:
        names = [_host(host) for host in dict.fromkeys(hosts)]
        extensions.append((x509.SubjectAlternativeName(names), False))
    builder = x509.CertificateBuilder(
        by, name, own, x509.random_serial_number(), now - _BEFORE, now + valid
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(by_key, hashes.SHA256())


def _host(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"--host: expected a name or an address, got {host!r}") from error


def _write_pair(
    folder: Path, name: str, made: "x509.Certificate", key: "ec.EllipticCurvePrivateKey"
) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / f"{name}.key", private)
    _write(folder / f"{name}.pem", made.public_bytes(pem), mode=0o644)


def _write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Nobody else can read it at any time, unless `mode` says so."""
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
