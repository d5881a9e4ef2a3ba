"""TLS without a socket: contexts from settings, and a session that turns bytes into bytes.

Owns certificates, keys and the handshake. It must never read or write a transport. Needs the
package `cryptography` only for the self-signed certificate of test mode.
"""

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

from turbopump.engine.types import TurbopumpError
from turbopump.net.transport.options import ClientAuth, ClientTlsSettings, TlsSettings
from turbopump.pyx.tls import TlsRecords

HANDSHAKE_BYTE: Final = 0x16
"""First byte of a TLS record with a ClientHello; no frame under the limit starts with it."""

PREFACE_BYTE: Final = 0x50
"""First byte of HTTP/2's preface ("PRI * HTTP/2.0"); no frame under the limit starts with it."""

_CERTIFICATE_DAYS: Final = 365

_AUTH_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class TlsError(TurbopumpError):
    """Settings or files from which no TLS context can be made; the text is a sentence for an
    operator."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a server from files that are read now; raises TlsError. TLS 1.2 is the
    oldest version.

    A client certificate is requested only with `auth_client`: otherwise RocketMQ accepts any, which
    is no check either.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A handshake costs the server a thousand times more than the request for it costs the client.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.cert_path or settings.key_path:
        _load_pair(context, settings.cert_path, settings.key_path, settings.key_password)
    elif settings.test_mode:
        _load_self_signed(context)
    else:
        raise TlsError("TLS needs tls.server.certPath and tls.server.keyPath outside test mode")
    if settings.auth_client:
        _load_trust(context, settings.trust_cert_path, "tls.server.trustCertPath")
        context.verify_mode = _AUTH_MODES[settings.need_client_auth]
    return context


def client_context(settings: ClientTlsSettings) -> ssl.SSLContext:
    """Make the context of a client from files that are read now; raises TlsError. TLS 1.2 is the
    oldest version. Host names are not compared, as in RocketMQ."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if settings.test_mode or not settings.auth_server:
        context.verify_mode = ssl.CERT_NONE
    else:
        _load_trust(context, settings.trust_cert_path, "tls.client.trustCertPath")
        context.verify_mode = ssl.CERT_REQUIRED
    if settings.cert_path or settings.key_path:
        _load_pair(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


class TlsSession(TlsRecords):
    """A TLS connection between two memory buffers. Every method may raise ssl.SSLError.

    `feed` adds the peer's bytes; after each call of `handshake` or `end`, the bytes of `outgoing`
    have to be sent.
    """

    __slots__ = ("_object", "established")

    def __init__(self, context: ssl.SSLContext, server_side: bool) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(incoming, outgoing, server_side=server_side)
        super().__init__(self._object, incoming, outgoing)
        self.established = False
        """Whether the handshake has finished."""

    def handshake(self) -> bool:
        """Continue the handshake with the bytes that were fed; True once it has finished, False if
        more bytes must arrive."""
        if not self.established:
            try:
                self._object.do_handshake()
                self.established = True
            except ssl.SSLWantReadError:
                pass
        return self.established

    @property
    def protocol(self) -> str | None:
        """The protocol that both sides agreed on (ALPN); None without agreement, or before the
        handshake has finished."""
        return self._object.selected_alpn_protocol()

    def is_end(self, error: Exception, have: int) -> bool:
        """Whether nothing follows the read that raised `error`: True if the peer ended the session,
        False if more bytes must arrive. Other errors are raised if `have`, the number of bytes
        decrypted before, is 0; else they are stored in `failure`, and True is returned."""
        if isinstance(error, ssl.SSLWantReadError):
            return False
        if isinstance(error, ssl.SSLZeroReturnError):
            return True
        if not have or not isinstance(error, ssl.SSLError):
            raise error
        self.failure = error
        return True

    def end(self) -> None:
        """Put the closing alert (close_notify) into `outgoing` without waiting for the peer's;
        never raises."""
        try:
            self._object.unwrap()
        except ssl.SSLError:
            pass


def _load_pair(context: ssl.SSLContext, cert: str, key: str, password: str) -> None:
    """Load certificate and key files into the context; raises TlsError."""
    if not cert or not key:
        raise TlsError("TLS needs both a certificate file and a key file")
    try:
        # A password is always given: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(cert, key, password=password)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"TLS certificate {cert} with key {key} cannot be used: {error}") from None


def _load_trust(context: ssl.SSLContext, path: str, key: str) -> None:
    """Load the trusted certificates of the file `path`; `key` names the setting in a TlsError."""
    if not path:
        raise TlsError(f"TLS needs {key} to check certificates")
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"TLS trust file {path} cannot be used: {error}") from None


def _load_self_signed(context: ssl.SSLContext) -> None:
    certificate, key = _make_self_signed()
    # OpenSSL reads the pair only from a file; a file in memory avoids waiting for a disk.
    with open(os.memfd_create("self-signed"), "wb", buffering=0) as file:
        file.write(certificate + key)
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")


def _make_self_signed() -> tuple[bytes, bytes]:
    """Make a certificate; returns (certificate, private key), both in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise TlsError(
            "TLS in test mode needs the package cryptography (pip install 'cryptography>=42')"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "turbopump test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
