"""Which part of the work a sampled stack belongs to."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.costs import main, part_of

LOOP = "PollLoop.run (host/instance/polling/poll_loop.py:120);fused (kstreams_repl/engine/runtime/compiler/<loop 7=KSTREAM-FILTER>:9)"


@pytest.mark.parametrize(
    ("inner", "part"),
    [
        ("", "engine"),
        (";_with_order (workshop/bench/rig/nexmark_queries.py:412)", "user"),
        (";_deserialize (kstreams_repl/engine/serdes/json_text.py:96);JSONDecoder_decode (msgspec/_core.so)", "decode"),
        (";_serialize_to_send (kstreams_repl/engine/serdes/json_text.py:50);0x7f (orjson/orjson.so)", "encode"),
        (";Producer_produce (confluent_kafka/cimpl.so);malloc (libc.so.6)", "produce"),
        (";WriteBackCache.flush (kstreams_repl/engine/stores/cache/write_back_cache.py:30)", "store"),
        (";Consumer_consume (confluent_kafka/cimpl.so);cnd_timedwait_ms (librdkafka.so.1);pthread_cond_timedwait (libc.so.6)", None),
    ],
)
def test_the_innermost_known_frame_decides(inner: str, part: str | None) -> None:
    assert part_of(LOOP + inner) == part


def test_without_its_sampler_nothing_is_started() -> None:
    result = CliRunner().invoke(main, ["--py-spy", "/nowhere/py-spy"])
    assert isinstance(result.exception, KStreamsError) and "--py-spy" in result.exception.hint and not result.output
