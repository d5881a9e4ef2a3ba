"""HTTP/2 as a client of the tests speaks it: frames by hand, so that they can be wrong."""

from collections.abc import Iterable, Iterator

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, stream: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def setting(number: int, value: int) -> bytes:
    return number.to_bytes(2, "big") + value.to_bytes(4, "big")


BEGIN = PREFACE + frame(SETTINGS)


def length(size: int) -> bytes:
    """An HPACK integer with a prefix of seven bits."""
    if size < 127:
        return bytes((size,))
    rest, found = size - 127, bytearray((127,))
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes((*found, rest))


def literal(name: bytes, value: bytes, first: int = 0) -> bytes:
    """A header without compression; `first` 0x40: the peer adds it to its table, with number 62."""
    return bytes((first,)) + length(len(name)) + name + length(len(value)) + value


REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/S/Echo"),
    (b":authority", b"broker"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def block(pairs: Iterable[tuple[bytes, bytes]] = REQUEST) -> bytes:
    return b"".join(literal(*pair) for pair in pairs)


def headers(
    stream: int, pairs: Iterable[tuple[bytes, bytes]] = REQUEST, *, ends: bool = False
) -> bytes:
    return frame(HEADERS, stream, block(pairs), END_HEADERS | (END_STREAM if ends else 0))


def call(stream: int, message: bytes = b"", path: bytes = b"/S/Echo") -> bytes:
    """A unary call to its end."""
    pairs = [(name, path if name == b":path" else value) for name, value in REQUEST]
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return headers(stream, pairs) + frame(DATA, stream, body, END_STREAM)


def frames(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Frames that a server wrote: (kind, stream, flags, payload)."""
    while data:
        size = int.from_bytes(data[:3], "big")
        stream = int.from_bytes(data[5:9], "big")
        yield data[3], stream, data[4], data[9 : 9 + size]
        data = data[9 + size :]
