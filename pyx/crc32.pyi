def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32 (IEEE 802.3, as zlib.crc32); SIMD if the CPU has it, else a table."""

def masked_crc32(data: bytes | bytearray | memoryview) -> int:
    """Return CRC-32 & 0x7FFFFFFF, as RocketMQ stores it (UtilAll.crc32)."""

def kernel_name() -> str:
    """Return the implementation that this CPU runs: "pclmul" or "table"."""
