"""Records of the commit log: encode, decode, scan (csrc/record.h has the layout).

Positions are bytes in a region; log offsets are bytes of the whole log.
"""

from turbopump.pyx.region import Region

V1: int
"""Magic of a record whose topic length has one byte: topics up to 127 bytes."""
V2: int
"""Magic of a record whose topic length has two bytes."""
BLANK: int
"""Magic of the filler at the end of a full log file."""
FILLER_SIZE: int
"""Bytes of a filler's head, 8: every full log file has room for it after its last record."""
MAX_PROPERTIES: int
"""Maximum bytes of a record's properties text: 32,767."""

# Statuses of scans and walks.
OK: int
"""Status: the end of the range was reached, or the wanted number of records was read."""
BLANK_FOUND: int
"""Status: a filler is at the position; the rest of the file is empty."""
BAD_RECORD: int
"""Status: the bytes at the position are no record (magic, lengths, CRC): see ScanResult.reason."""
SHORT: int
"""Status: the range ends inside the record at the position."""
NO_ROOM: int
"""Status, negated as the result of an append: record + FILLER_SIZE does not fit into the file."""

class Record:
    """A decoded record, a copy that stays valid when the log changes. Hosts are packed: ip (4 or 16
    bytes) and big-endian int32 port; texts are raw UTF-8 bytes."""

    @property
    def log_offset(self) -> int:
        """Log offset at which the record lies: position + log_base."""

    @property
    def size(self) -> int:
        """Bytes of the whole record."""

    @property
    def magic(self) -> int:
        """V1 or V2."""

    @property
    def body_crc(self) -> int:
        """CRC of the body as stored in the record."""

    @property
    def queue_id(self) -> int:
        """Id of the message's queue in its topic."""

    @property
    def flag(self) -> int:
        """Number that the producer chose; brokers only store it."""

    @property
    def queue_offset(self) -> int:
        """Queue offset of the message; of the first message in an inner batch."""

    @property
    def physical_offset(self) -> int:
        """Log offset as stored in the record; not checked against `log_offset`."""

    @property
    def sys_flag(self) -> int:
        """Bits of RocketMQ's MessageSysFlag."""

    @property
    def born_timestamp_ms(self) -> int:
        """Time of the send by the producer's clock, in epoch ms."""

    @property
    def born_host(self) -> bytes:
        """Address of the producer, packed."""

    @property
    def store_timestamp_ms(self) -> int:
        """Time of the append by the broker's clock, in epoch ms."""

    @property
    def store_host(self) -> bytes:
        """Address of the broker, packed."""

    @property
    def reconsume_times(self) -> int:
        """Number of failed deliveries of the message before this copy."""

    @property
    def prepared_transaction_offset(self) -> int:
        """Log offset of the half message, if the record is a committed message; else usually 0."""

    @property
    def body(self) -> bytes:
        """The body as stored, perhaps compressed."""

    @property
    def topic(self) -> bytes:
        """The topic as UTF-8."""

    @property
    def properties(self) -> bytes:
        """The properties text: name 0x01 value 0x02 ..."""

    @property
    def crc_ok(self) -> bool:
        """Whether the body fits its CRC; True for an empty body."""

def decode(region: Region, position: int, end: int, log_base: int = 0) -> Record:
    """Decode the record at `position` of the region, within [position, end). `log_base` is the log
    offset of the region's first byte. Raises ValueError with the reason if no whole record lies
    there; a wrong CRC only makes `crc_ok` False."""

def record_size(
    topic_size: int,
    body_size: int,
    properties_size: int,
    born_host_size: int,
    store_host_size: int,
    version: int,
) -> int:
    """Return the bytes of a record with fields of these sizes in bytes (without a CRC property).
    `version` is V1 or V2. Raises ValueError for fields that no record can hold."""

def append(
    region: Region,
    position: int,
    limit: int,
    *,
    log_offset: int,
    topic: bytes,
    body: bytes | bytearray | memoryview,
    properties: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    version: int,
    property_crc: bool = False,
) -> int:
    """Encode one record at `position` of the region; returns its size in bytes, or -NO_ROOM
    (nothing written then). Times are in epoch ms, hosts packed, `version` is V1 or V2.

    sys_flag's IPv6 bits follow the host lengths. With property_crc the last 20 bytes of the
    properties become `__CRC32#` 0x01 10 digits 0x02 (digits least significant first); an incoming
    `__CRC32#` property is the caller's to remove. limit is the file size: record + 8 must fit.
    Raises ValueError for fields that no record can hold.
    """

def append_batch(
    region: Region,
    position: int,
    limit: int,
    *,
    log_offset: int,
    topic: bytes,
    batch: bytes | bytearray | memoryview,
    queue_id: int,
    queue_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    version: int,
    property_crc: bool = False,
) -> list[int] | int:
    """Encode the elements of a batch body (remoting.md 9.4) as consecutive records, all or none.
    Log offset and queue offset are the first record's; the other arguments are as for `append`.

    Returns the size of each record in bytes, or -NO_ROOM (nothing written then). Raises ValueError
    for a malformed batch body.
    """

def count_batch(batch: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return (number of elements of a batch body, bytes of all their bodies and properties).

    Raises ValueError for a malformed or empty body, and for more than 32,768 elements.
    """

def append_filler(region: Region, position: int, limit: int) -> None:
    """Write the end-of-file filler (int32 bytes left, int32 BLANK) at `position` of the region, a
    file that ends at `limit`.

    Raises ValueError where fewer than FILLER_SIZE bytes are left.
    """

# Indexes of the columns in a row of ScanResult.rows; each value is an int64.
POSITION: int
"""Column: position of the record in the region."""
SIZE: int
"""Column: bytes of the whole record."""
MAGIC: int
"""Column: V1 or V2."""
BODY_CRC: int
"""Column: CRC of the body as stored."""
QUEUE_ID: int
"""Column: queue id."""
FLAG: int
"""Column: the sender's flag."""
QUEUE_OFFSET: int
"""Column: queue offset."""
PHYSICAL_OFFSET: int
"""Column: log offset as stored."""
SYS_FLAG: int
"""Column: bits of MessageSysFlag."""
BORN_TIMESTAMP_MS: int
"""Column: time of the send, in epoch ms."""
BORN_HOST_AT: int
"""Column: position in the region of the producer's packed address."""
BORN_HOST_SIZE: int
"""Column: bytes of the producer's packed address, 8 or 20."""
STORE_TIMESTAMP_MS: int
"""Column: store time, in epoch ms."""
STORE_HOST_AT: int
"""Column: position in the region of the broker's packed address."""
STORE_HOST_SIZE: int
"""Column: bytes of the broker's packed address, 8 or 20."""
RECONSUME_TIMES: int
"""Column: number of failed deliveries."""
PREPARED_TRANSACTION_OFFSET: int
"""Column: log offset of the half message."""
BODY_AT: int
"""Column: position of the body in the region."""
BODY_SIZE: int
"""Column: bytes of the body."""
TOPIC_AT: int
"""Column: position of the topic in the region."""
TOPIC_SIZE: int
"""Column: bytes of the topic."""
PROPERTIES_AT: int
"""Column: position of the properties text in the region."""
PROPERTIES_SIZE: int
"""Column: bytes of the properties text."""
CRC_OK: int
"""Column: 1 if the body fits its CRC, is empty, or was not checked; else 0."""
ROW_WIDTH: int
"""Number of columns: 24."""

class ScanResult:
    """Result of `scan` or `validate`."""

    @property
    def status(self) -> int:
        """Reason for the end: OK, BLANK_FOUND, BAD_RECORD or SHORT. OK with count == max_rows: call
        again from `position`."""

    @property
    def position(self) -> int:
        """Position in the region after the last record read."""

    @property
    def count(self) -> int:
        """Number of records read."""

    @property
    def rows(self) -> memoryview:
        """A row per record: shape (count, ROW_WIDTH), format "q"; flat and empty if count is 0, and
        after `validate`."""

    @property
    def reason(self) -> str:
        """Sentence that describes the damage for BAD_RECORD; else empty."""

def scan(
    region: Region, position: int, end: int, max_rows: int = 4096, check_crc: bool = True
) -> ScanResult:
    """Decode up to `max_rows` consecutive records in [position, end) without the GIL. A record must
    begin at `position`.

    With check_crc a wrong body CRC is BAD_RECORD (recovery's rule: only if the body is not empty).
    """

def validate(
    region: Region,
    position: int,
    end: int,
    check_crc: bool = True,
    check_property_crc: bool = False,
) -> ScanResult:
    """Read all consecutive records in [position, end) as `scan` does, but without rows and without
    a limit. `check_property_crc` also checks the CRC property of records that have it."""
