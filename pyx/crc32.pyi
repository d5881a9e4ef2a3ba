"""CRC-32 of bytes."""

def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32 of `data` (IEEE 802.3, equal to zlib.crc32), continued from `value`, the
    CRC-32 of the bytes before; SIMD if the CPU has it, else a table."""

def masked_crc32(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of `data` & 0x7FFFFFFF, as RocketMQ stores it (UtilAll.crc32)."""

def kernel_name() -> str:
    """Return the implementation of CRC-32 that this CPU runs: "pclmul" (SIMD) or "table"."""
