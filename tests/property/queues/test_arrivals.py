"""Every queue that grows is announced with its end, and its units have their tags' hash codes.

A store with each kind of queue file takes random tags, in random queues; the announcements and the
queue units are compared with a plain list.
"""

import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turbopump.engine.config import StoreConfig
from turbopump.engine.disk.flush import InlineDisk
from turbopump.engine.disk.real_files import RealFiles
from turbopump.engine.store import Store
from turbopump.engine.types import FlushMode, NewMessage, PutStatus, QueueOffset
from turbopump.pyx.index import java_hash

NOW_MS = 1_700_000_000_000
NEGATIVE = "hoOOLdKL"
tags = st.sampled_from(["", NEGATIVE, "Aa", "BB"]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12
)
sends = st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 2), tags), max_size=30)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sends=sends, extended=st.booleans(), mode=st.sampled_from(FlushMode))
def test_arrivals_and_codes(
    sends: list[tuple[str, int, str]], extended: bool, mode: FlushMode
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = StoreConfig(
            f"{folder}/store",
            mapped_file_size_commit_log=16_384,
            flush_disk_type=mode,
            mapped_file_size_consume_queue=100,
            max_index_num=20,
            max_hash_slot_num=7,
            enable_consume_queue_ext=extended,
            mapped_file_size_consume_queue_ext=100,
        )
        store = Store.open(
            RealFiles(), config, InlineDisk(), NOW_MS, is_batch_topic=lambda topic: topic == "B"
        )
        announced: list[tuple[str, int, int]] = []
        store.on_arrival(lambda *arrival: announced.append(arrival))
        expected: dict[tuple[str, int], list[int]] = {}
        for topic, queue_id, tag in sends:
            text = f"TAGS\x01{tag}\x02".encode() if tag else b""
            appended = store.append(NewMessage(topic, queue_id, b"x", text), NOW_MS)
            assert store.when_safe(appended).value is PutStatus.PUT_OK
            codes = expected.setdefault((topic, queue_id), [])
            codes.append(java_hash(tag.encode()) if tag else 0)
            assert announced == [(topic, queue_id, len(codes))]
            announced.clear()
        for (topic, queue_id), codes in expected.items():
            units = store.units(topic, queue_id, QueueOffset(0), len(codes) + 1)
            assert [unit.tags_code for unit in units] == codes
        store.close(NOW_MS)
