"""An example for every method of the DSL, put below its docstring: what `stream.filter?` shows can be copied and runs.

They stand here and not in the methods because each needs the same few lines in front of it. tests/unit/test_docs.py runs them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_IMPORT = "import kstreams_repl as ks"
_BUILDER = f"{_IMPORT}\nbuilder = ks.StreamsBuilder()"
_STREAM = f'{_BUILDER}\nwords = builder.stream("words", key_serde="string", value_serde="string")'
_TABLE = f'{_BUILDER}\nprices = builder.table("prices", key_serde="string", value_serde="double")'
_GROUPED = f"{_STREAM}\ngrouped = words.group_by_key()"
_GROUPED_TABLE = f"{_TABLE}\ngrouped = prices.group_by(lambda product, price: (product[:1], price))"
_COGROUPED = f"{_GROUPED}\ntotals = grouped.cogroup(lambda key, word, total: total + len(word))"

BEFORE: Mapping[str, str] = {
    "StreamsBuilder": _BUILDER,
    "KStream": _STREAM,
    "KTable": _TABLE,
    "GlobalKTable": f'{_BUILDER}\nairlines = builder.global_table("airlines", store="airlines")',
    "KGroupedStream": _GROUPED,
    "KGroupedTable": _GROUPED_TABLE,
    "CogroupedKStream": _COGROUPED,
    "BranchedKStream": _STREAM,
    "TimeWindowedKStream": f"{_GROUPED}\nwindowed = grouped.windowed_by(ks.TimeWindows.of_size(60_000))",
    "SlidingWindowedKStream": f"{_GROUPED}\nwindowed = grouped.windowed_by(ks.SlidingWindows.of_time_difference(60_000))",
    "SessionWindowedKStream": f"{_GROUPED}\nwindowed = grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(60_000))",
    "TimeWindowedCogroupedKStream": f"{_COGROUPED}\nwindowed = totals.windowed_by(ks.TimeWindows.of_size(60_000))",
    "SessionWindowedCogroupedKStream": f"{_COGROUPED}\nwindowed = totals.windowed_by(ks.SessionWindows.of_inactivity_gap(60_000))",
}
"""What the examples of a class begin with; the others only import."""

EXAMPLES: Mapping[str, str] = {
    "StreamsBuilder.stream": 'words = builder.stream("words", key_serde="string", value_serde="string")',
    "StreamsBuilder.table": 'prices = builder.table("prices", store="prices", key_serde="string", value_serde="double")',
    "StreamsBuilder.global_table": 'airlines = builder.global_table("airlines", key_serde="string", value_serde="json")',
    "StreamsBuilder.add_state_store": '_ = builder.add_state_store(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE))',
    "StreamsBuilder.add_global_store": """
        class Keep(ks.Processor):
            def init(self, context):
                self.store = context.get_state_store("limits")
            def process(self, record):
                self.store.put(record.key, record.value)

        store = ks.StoreBuilder("limits", ks.StoreKind.KEY_VALUE, logging=False)
        _ = builder.add_global_store(store, "limits", Keep, key_serde="string", value_serde="long")
        """,
    "StreamsBuilder.build": """
        builder.stream("in").to("out")
        builder.build()
        |Topology(2 nodes, 0 stores, 1 sub-topologies)
        """,
    "StreamsBuilder.problems": """
        builder.stream("in").to("out")
        builder.problems
        |()
        """,
    "StreamsBuilder.preview": """
        builder.stream("in").to("out")
        builder.preview()
        |Topology(2 nodes, 0 stores, 1 sub-topologies)
        """,
    "StreamsBuilder.begin_cell": """
        with builder.cell("first"):
            builder.stream("in").to("out")
        builder.begin_cell("first")
        builder.stream("in").to("elsewhere")
        builder.build().sink_topics()
        |('elsewhere',)
        """,
    "StreamsBuilder.remove_cell": """
        with builder.cell("first"):
            builder.stream("in").to("out")
        builder.remove_cell("first")
        |2
        """,
    "StreamsBuilder.cell": """
        with builder.cell("first"):
            words = builder.stream("in", name="words")
        builder.build().node("words").origin.cell
        |'first'
        """,
    "KStream.filter": "long_words = words.filter(lambda key, word: len(word) > 3)",
    "KStream.filter_not": 'kept = words.filter_not(lambda key, word: word.startswith("#"))',
    "KStream.map": "by_letter = words.map(lambda key, word: (word[:1], word))",
    "KStream.map_values": """
        loud = words.map_values(str.upper)
        with_key = words.map_values(lambda key, word: f"{key}: {word}", with_key=True)
        """,
    "KStream.flat_map": "letters = words.flat_map(lambda key, word: [(letter, 1) for letter in word])",
    "KStream.flat_map_values": "parts = words.flat_map_values(str.split)",
    "KStream.select_key": "by_word = words.select_key(lambda key, word: word)",
    "KStream.peek": "seen = []\nsame = words.peek(lambda key, word: seen.append(word))",
    "KStream.foreach": "seen = []\nwords.foreach(lambda key, word: seen.append(word))",
    "KStream.print": 'words.print(label="words")',
    "KStream.split": """
        branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").default_branch(name="short")
        sorted(branches)
        |['by-long', 'by-short']
        """,
    "KStream.branch": "long_words, others = words.branch(lambda key, word: len(word) > 3, lambda key, word: True)",
    "KStream.merge": 'both = words.merge(builder.stream("more-words", key_serde="string", value_serde="string"))',
    "KStream.to": 'words.to("copy")',
    "KStream.send_to": 'words.send_to("copy")',
    "KStream.through": 'copied = words.through("copy")',
    "KStream.repartition": 'moved = words.select_key(lambda key, word: word).repartition(name="by-word", partitions=4)',
    "KStream.to_table": 'last = words.to_table(store="last-word")',
    "KStream.group_by_key": 'counts = words.group_by_key().count(store="counts")',
    "KStream.group_by": 'counts = words.group_by(lambda key, word: word, key_serde="string").count(store="counts")',
    "KStream.process": """
        class Twice(ks.Processor):
            def process(self, record):
                self.context.forward(record)
                self.context.forward(record)

        doubled = words.process(Twice, name="twice")
        """,
    "KStream.process_values": """
        class Length(ks.FixedKeyProcessor):
            def process(self, record):
                self.context.forward(record.with_value(len(record.value)))

        lengths = words.process_values(Length, name="lengths")
        """,
    "KStream.join": """
        names = builder.table("names", key_serde="string", value_serde="string")
        named = words.join(names, lambda word, name: f"{name}: {word}")
        """,
    "KStream.left_join": """
        others = builder.stream("others", key_serde="string", value_serde="string")
        pairs = words.left_join(others, lambda word, other: (word, other), ks.JoinWindows.of_time_difference(5_000))
        """,
    "KStream.outer_join": """
        others = builder.stream("others", key_serde="string", value_serde="string")
        pairs = words.outer_join(others, lambda word, other: (word, other), ks.JoinWindows.of_time_difference(5_000))
        """,
    "KStream.with_": "windowed = words.with_(ks.JoinWindows.of_time_difference(5_000))",
    "KTable.queryable_store_name": """
        builder.table("rates", store="rates").queryable_store_name
        |'rates'
        """,
    "KTable.filter": "dear = prices.filter(lambda product, price: price > 100)",
    "KTable.filter_not": "cheap = prices.filter_not(lambda product, price: price > 100)",
    "KTable.map_values": 'cents = prices.map_values(lambda price: round(price * 100), store="cents", value_serde="long")',
    "KTable.transform_values": """
        class Rounded:
            def init(self, context): pass
            def transform(self, product, price): return None if price is None else round(price)
            def close(self): pass

        rounded = prices.transform_values(Rounded)
        """,
    "KTable.to_stream": 'prices.to_stream().to("price-changes")',
    "KTable.to": 'prices.to("price-changes")',
    "KTable.group_by": "by_letter = prices.group_by(lambda product, price: (product[:1], price))",
    "KTable.suppress": "slower = prices.suppress(ks.Suppressed.until_time_limit(5_000))",
    "KTable.join": """
        stock = builder.table("stock", key_serde="string", value_serde="long")
        worth = prices.join(stock, lambda price, pieces: price * pieces)
        """,
    "KTable.left_join": """
        stock = builder.table("stock", key_serde="string", value_serde="long")
        worth = prices.left_join(stock, lambda price, pieces: price * (pieces or 0))
        """,
    "KTable.outer_join": """
        stock = builder.table("stock", key_serde="string", value_serde="long")
        both = prices.outer_join(stock, lambda price, pieces: (price, pieces))
        """,
    "GlobalKTable.queryable_store_name": """
        airlines.queryable_store_name
        |'airlines'
        """,
    "KGroupedStream.count": 'counts = grouped.count(store="counts")',
    "KGroupedStream.reduce": 'longest = grouped.reduce(lambda one, other: max(one, other, key=len), store="longest")',
    "KGroupedStream.aggregate": """
        letters = grouped.aggregate(lambda: 0, lambda key, word, total: total + len(word), store="letters", value_serde="long")
        """,
    "KGroupedStream.windowed_by": "per_minute = grouped.windowed_by(ks.TimeWindows.of_size(60_000)).count()",
    "KGroupedStream.cogroup": "totals = grouped.cogroup(lambda key, word, total: total + len(word))",
    "KGroupedTable.count": "products = grouped.count()",
    "KGroupedTable.reduce": "total = grouped.reduce(lambda total, price: total + price, lambda total, price: total - price)",
    "KGroupedTable.aggregate": """
        total = grouped.aggregate(
            lambda: 0.0, lambda key, price, total: total + price, lambda key, price, total: total - price, value_serde="double")
        """,
    "CogroupedKStream.cogroup": """
        others = builder.stream("others", key_serde="string", value_serde="string").group_by_key()
        both = totals.cogroup(others, lambda key, other, total: total - len(other))
        """,
    "CogroupedKStream.aggregate": 'table = totals.aggregate(lambda: 0, store="totals", value_serde="long")',
    "CogroupedKStream.windowed_by": "windowed = totals.windowed_by(ks.TimeWindows.of_size(60_000))",
    "BranchedKStream.branch": 'branches = words.split().branch(lambda key, word: len(word) > 3, name="long")',
    "BranchedKStream.default_branch": """
        branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").default_branch(name="short")
        branches["by-short"].to("short-words")
        """,
    "BranchedKStream.no_default_branch": """
        branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").no_default_branch()
        branches["by-long"].to("long-words")
        """,
    "TimeWindowedKStream.aggregate": 'letters = windowed.aggregate(lambda: 0, lambda key, word, n: n + len(word), value_serde="long")',
    "TimeWindowedKStream.emit_strategy": "finals = windowed.emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE).count()",
    "SlidingWindowedKStream.emit_strategy": "finals = windowed.emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE).count()",
    "SessionWindowedKStream.aggregate": """
        letters = windowed.aggregate(
            lambda: 0, lambda key, word, n: n + len(word), lambda key, one, other: one + other, value_serde="long")
        """,
    "TimeWindowedCogroupedKStream.aggregate": 'letters = windowed.aggregate(lambda: 0, value_serde="long")',
    "SessionWindowedCogroupedKStream.aggregate": """
        letters = windowed.aggregate(lambda: 0, lambda key, one, other: one + other, value_serde="long")
        """,
    "JoinWindows.of_time_difference": "windows = ks.JoinWindows.of_time_difference(5_000, grace=1_000)",
    "JoinWindows.before": "windows = ks.JoinWindows.of_time_difference(5_000).before(60_000)",
    "JoinWindows.after": "windows = ks.JoinWindows.of_time_difference(5_000).after(0)",
    "JoinWindows.size_ms": """
        ks.JoinWindows.of_time_difference(5_000).size_ms
        |10000
        """,
    "SessionWindows.of_inactivity_gap": "windows = ks.SessionWindows.of_inactivity_gap(300_000, grace=0)",
    "SlidingWindows.of_time_difference": "windows = ks.SlidingWindows.of_time_difference(60_000, grace=0)",
    "TimeWindows.of_size": "windows = ks.TimeWindows.of_size(60_000, grace=5_000)",
    "TimeWindows.advance_by": "hopping = ks.TimeWindows.of_size(60_000).advance_by(10_000)",
    "UnlimitedWindows.of": "windows = ks.UnlimitedWindows.of(start=0)",
    "Suppressed.until_window_closes": "finals = ks.Suppressed.until_window_closes(max_records=100_000)",
    "Suppressed.until_time_limit": "slower = ks.Suppressed.until_time_limit(5_000)",
    "Materialized.with_": 'kept = ks.Materialized("counts").with_(caching=False)',
}


def attach(classes: Iterable[type], examples: Mapping[str, str] = EXAMPLES, before: Mapping[str, str] = BEFORE) -> None:
    """Put the examples below the docstrings of the classes' methods."""
    by_name = {kind.__name__: kind for kind in classes}
    for place, code in examples.items():
        name, _, method = place.partition(".")
        member: Any = vars(by_name[name])[method]
        target = getattr(member, "__func__", member)  # of a class method
        lines = [*before.get(name, _IMPORT).splitlines(), *_dedented(code)]
        target.__doc__ = f"{(target.__doc__ or '').rstrip()}\n\n        Example:\n{_prompted(lines)}        "


def _dedented(code: str) -> list[str]:
    lines = code.strip("\n").splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[margin:] for line in lines if line.strip() or lines[-1] is not line]


def _prompted(lines: Iterable[str]) -> str:
    """As a doctest; ``|`` marks what it prints, and an empty line ends a block."""
    found, inside = [], False
    for line in lines:
        if line.startswith("|"):
            found.append(line[1:])
            continue
        inside = line[:1] in (" ", ")") or (inside and not line.strip())
        found.append(f"... {line}".rstrip() if inside else f">>> {line}")
    return "".join(f"            {line}\n" for line in found)
