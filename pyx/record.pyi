from turbopump.pyx.region import Region

V1: int
V2: int
BLANK: int
FILLER_SIZE: int  # 8: a full file ends with at least this much
MAX_PROPERTIES: int  # 32767

# Reasons for the end of a scan or an append.
OK: int  # reached the end of the range
BLANK_FOUND: int  # a filler: the rest of the file is empty
BAD_RECORD: int  # not a record (magic, lengths, CRC): see ScanResult.reason
SHORT: int  # the range ends inside the record
NO_ROOM: int  # record + FILLER_SIZE does not fit: roll

class Record:
    """A decoded record. Hosts are packed ip + int32 port; texts are raw UTF-8 bytes."""

    @property
    def log_offset(self) -> int:
        """Log offset at which the record lies: position + log_base."""

    @property
    def size(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def body_crc(self) -> int:
        """CRC of the body as stored in the record."""

    @property
    def queue_id(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int:
        """Log offset as stored in the record."""

    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def born_host(self) -> bytes: ...
    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def store_host(self) -> bytes: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def topic(self) -> bytes: ...
    @property
    def properties(self) -> bytes: ...
    @property
    def crc_ok(self) -> bool:
        """Whether the body fits its CRC; True for an empty body."""

def decode(region: Region, position: int, end: int, log_base: int = 0) -> Record:
    """Decode one record. Raises ValueError with the reason; a wrong CRC only makes crc_ok False."""

def record_size(
    topic_size: int,
    body_size: int,
    properties_size: int,
    born_host_size: int,
    store_host_size: int,
    version: int,
) -> int:
    """Return the size of a record with such fields (without CRC property). Raises ValueError for
    fields that no record can hold."""

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
    """Encode one record at position; returns its size, or -NO_ROOM (nothing written then).

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

    Returns the size of each record, or -NO_ROOM. Raises ValueError for a malformed batch body.
    """

def count_batch(batch: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Count the elements of a batch body, and the bytes of all their bodies and properties.

    Raises ValueError for a malformed or empty body, and for one of over 32,768 elements.
    """

def append_filler(region: Region, position: int, limit: int) -> None:
    """Write the end-of-file filler (int32 bytes left, int32 BLANK) at position.

    Raises ValueError where fewer than FILLER_SIZE bytes are left.
    """

# Columns of a scan row (int64 each); the *_AT are positions in the region.
POSITION: int
SIZE: int
MAGIC: int
BODY_CRC: int
QUEUE_ID: int
FLAG: int
QUEUE_OFFSET: int
PHYSICAL_OFFSET: int
SYS_FLAG: int
BORN_TIMESTAMP_MS: int
BORN_HOST_AT: int
BORN_HOST_SIZE: int
STORE_TIMESTAMP_MS: int
STORE_HOST_AT: int
STORE_HOST_SIZE: int
RECONSUME_TIMES: int
PREPARED_TRANSACTION_OFFSET: int
BODY_AT: int
BODY_SIZE: int
TOPIC_AT: int
TOPIC_SIZE: int
PROPERTIES_AT: int
PROPERTIES_SIZE: int
CRC_OK: int
ROW_WIDTH: int

class ScanResult:
    @property
    def status(self) -> int:
        """OK, BLANK_FOUND, BAD_RECORD, SHORT; OK with count == max_rows: call again."""

    @property
    def position(self) -> int:
        """Position of the first byte not consumed."""

    @property
    def count(self) -> int: ...
    @property
    def rows(self) -> memoryview:
        """Shape (count, ROW_WIDTH), format "q"; flat and empty if count is 0."""

    @property
    def reason(self) -> str:
        """Sentence that describes the damage for BAD_RECORD; else empty."""

def scan(
    region: Region, position: int, end: int, max_rows: int = 4096, check_crc: bool = True
) -> ScanResult:
    """Decode all complete records in [position, end) without the GIL.

    With check_crc a wrong body CRC is BAD_RECORD (recovery's rule: only if the body is not empty).
    """

def validate(
    region: Region,
    position: int,
    end: int,
    check_crc: bool = True,
    check_property_crc: bool = False,
) -> ScanResult:
    """Scan to the end of the range without rows: `count` is the number of records, `position` the
    end of the last one."""
