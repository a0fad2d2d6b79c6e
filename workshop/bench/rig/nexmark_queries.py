"""The queries of the Nexmark benchmark, and two of our own, as a user of the DSL writes them.

Their twins for the JVM are in `peers/NexmarkTwins.java`, one method each, of the same name. No result depends on the order in which
records of different topics or partitions are read: joins have windows that contain every pair, ties are broken by value, and
repartitioned windows have a day of grace. So the outputs of two systems are equal, as records in any order or as the last row of each
key.

Decimals are texts with three places. q10 is missing: it writes files, and Kafka Streams has no file sink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kstreams_repl import JoinWindows, KStream, KTable, Processor, SessionWindows, Stores, TimeWindows, serdes
from kstreams_repl.engine.dsl.timestamps import wall_clock_timestamp
from workshop.bench.rig.outputs import Compared
from workshop.bench.rig.query_cases import BenchmarkQuery, QueryTopics

Json = Any
SECOND_MS, DAY_MS = 1000, 86_400_000
_PAIRS = JoinWindows.of_time_difference(SECOND_MS, grace=10 * SECOND_MS)
"""Contains every bid of an auction: they are at most 340 ms apart."""


class Auctions(QueryTopics):
    """The topics of one run, as streams: `<prefix>-person`, `<prefix>-auction`, `<prefix>-bid`, `<prefix>-orders` and
    `<prefix>-side`."""

    key_serde = serdes.long

    def bids(self, **options: object) -> KStream:
        return self.stream("bid", **options)

    @property
    def bid_serde(self) -> serdes.Serde:
        """The serde of a bid that is written again as it was read."""
        return self.values("bid")


def euros(dollars: int) -> str:
    """Return 0.908 times a price."""
    whole, thousandths = divmod(dollars * 908, 1000)
    return f"{whole}.{thousandths:03d}"


def q0(auctions: Auctions) -> None:
    auctions.write(
        auctions.bids().map_values(
            lambda bid: {
                "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "dateTime": bid["dateTime"],
                "extra": bid["extra"],
            }
        )
    )  # fmt: skip


def q1(auctions: Auctions) -> None:
    auctions.write(
        auctions.bids().map_values(
            lambda bid: {
                "auction": bid["auction"], "bidder": bid["bidder"], "price": euros(bid["price"]), "dateTime": bid["dateTime"],
                "extra": bid["extra"],
            }
        )
    )  # fmt: skip


def q2(auctions: Auctions) -> None:
    chosen = auctions.bids().filter(lambda key, bid: bid["auction"] % 123 == 0)
    auctions.write(chosen.map_values(lambda bid: {"auction": bid["auction"], "price": bid["price"]}))


def q3(auctions: Auctions) -> None:
    offered = auctions.stream("auction").filter(lambda key, auction: auction["category"] == 10).to_table(store="auctions")
    sellers = auctions.stream("person").filter(lambda key, person: person["state"] in ("OR", "ID", "CA")).to_table(store="persons")
    auctions.write(
        offered.join(
            sellers,
            lambda auction, person: {"name": person["name"], "city": person["city"], "state": person["state"], "id": auction["id"]},
            foreign_key=lambda auction: auction["seller"],
        )
    )


def _bid_in_time(auction: Json, bid: Json) -> Json:
    """Return what is known of a bid while its auction is open, else None."""
    if not auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
        return None
    return {"category": auction["category"], "seller": auction["seller"], "price": bid["price"], "dateTime": bid["dateTime"]}


def _better(one: Json, other: Json) -> Json:
    """Return the higher bid; of equal ones the earlier."""
    return other if (other["price"], -other["dateTime"]) > (one["price"], -one["dateTime"]) else one


def _winning(auctions: Auctions) -> KTable:
    """Return the best bid of each auction."""
    pairs = auctions.stream("auction").join(auctions.bids(), _bid_in_time, _PAIRS, store="pairs")
    in_time = pairs.filter(lambda key, bid: bid is not None)
    return in_time.group_by_key(key_serde=serdes.long, value_serde=serdes.json).reduce(_better, store="winning")


def q4(auctions: Auctions) -> None:
    prices = _winning(auctions).group_by(
        lambda auction, best: (best["category"], best["price"]), key_serde=serdes.long, value_serde=serdes.long
    )
    totals = prices.aggregate(
        lambda: {"sum": 0, "count": 0},
        lambda category, price, total: {"sum": total["sum"] + price, "count": total["count"] + 1},
        lambda category, price, total: {"sum": total["sum"] - price, "count": total["count"] - 1},
        store="totals",
        value_serde=serdes.json,
    )
    auctions.write(totals.map_values(lambda total: total["sum"] // max(total["count"], 1)), value_serde=serdes.long)


def _top(window: int, count: Json, top: Json) -> Json:
    """Return the auctions with the most bids of a window."""
    if count["num"] > top["num"]:
        return {"num": count["num"], "auctions": [count["auction"]]}
    if count["num"] == top["num"] and count["auction"] not in top["auctions"]:
        return {"num": top["num"], "auctions": sorted([*top["auctions"], count["auction"]])}
    return top


def q5(auctions: Auctions) -> None:
    windows = TimeWindows.of_size(10 * SECOND_MS).advance_by(2 * SECOND_MS)
    counts = auctions.bids().group_by_key().windowed_by(windows).count(store="counts").to_stream()
    by_window = counts.map(lambda window, num: (window.start, {"auction": window.key, "num": num}))
    grouped = by_window.group_by_key(key_serde=serdes.long, value_serde=serdes.json)
    auctions.write(grouped.aggregate(lambda: {"num": 0, "auctions": []}, _top, store="top", value_serde=serdes.json))


def _with_win(seller: int, win: Json, wins: Json) -> Json:
    return sorted([*wins, win])


def _without_win(seller: int, win: Json, wins: Json) -> Json:
    return [other for other in wins if other != win]


def _average_of_last(wins: Json) -> int:
    last: list[int] = [price for _, _, price in wins[-10:]]
    return sum(last) // max(len(last), 1)


def q6(auctions: Auctions) -> None:
    wins = _winning(auctions).group_by(
        lambda auction, best: (best["seller"], [best["dateTime"], auction, best["price"]]), key_serde=serdes.long, value_serde=serdes.json
    )
    sellers = wins.aggregate(list, _with_win, _without_win, store="sellers", value_serde=serdes.json)
    auctions.write(sellers.map_values(_average_of_last), value_serde=serdes.long)


def _highest(one: Json, other: Json) -> Json:
    """Return the bid with the highest price; ties are broken by time and ids."""
    rank = (other["price"], other["dateTime"], other["auction"], other["bidder"])
    return other if rank > (one["price"], one["dateTime"], one["auction"], one["bidder"]) else one


def q7(auctions: Auctions) -> None:
    bids = auctions.bids().map_values(
        lambda bid: {
            "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "dateTime": bid["dateTime"], "extra": bid["extra"],
        }
    )  # fmt: skip
    of_auctions = bids.group_by_key(key_serde=serdes.long, value_serde=serdes.json).windowed_by(TimeWindows.of_size(10 * SECOND_MS))
    highest = of_auctions.reduce(_highest, store="of-auctions").to_stream(lambda window, bid: window.start)
    auctions.write(highest.group_by_key(key_serde=serdes.long, value_serde=serdes.json).reduce(_highest, store="highest"))


def _window_key(person: int, at_ms: int) -> str:
    return f"{person}@{at_ms - at_ms % (10 * SECOND_MS)}"


def q8(auctions: Auctions) -> None:
    def named(key: int, person: Json) -> tuple[str, Json]:
        at_ms = person["dateTime"]
        return _window_key(key, at_ms), {"id": key, "name": person["name"], "starttime": at_ms - at_ms % (10 * SECOND_MS)}

    def sold(key: int, auction: Json) -> tuple[str, int]:
        return _window_key(auction["seller"], auction["dateTime"]), 1

    persons = auctions.stream("person").map(named).to_table(store="persons", key_serde=serdes.string, value_serde=serdes.json)
    sellers = auctions.stream("auction").map(sold).to_table(store="sellers", key_serde=serdes.string, value_serde=serdes.long)
    auctions.write(persons.join(sellers, lambda person, one: person), key_serde=serdes.string)


def _sale(auction: Json, bid: Json) -> Json:
    if not auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
        return None
    return auction | {
        "bidder": bid["bidder"], "price": bid["price"], "bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"],
    }  # fmt: skip


def _better_sale(one: Json, other: Json) -> Json:
    rank = (other["price"], -other["bid_dateTime"], other["bidder"])
    return other if rank > (one["price"], -one["bid_dateTime"], one["bidder"]) else one


def q9(auctions: Auctions) -> None:
    sales = auctions.stream("auction").join(auctions.bids(), _sale, _PAIRS, store="pairs").filter(lambda key, sale: sale is not None)
    auctions.write(sales.group_by_key(key_serde=serdes.long, value_serde=serdes.json).reduce(_better_sale, store="winning"))


def q11(auctions: Auctions) -> None:
    by_bidder = auctions.bids().group_by(lambda key, bid: bid["bidder"], key_serde=serdes.long, value_serde=auctions.bid_serde)
    sessions = by_bidder.windowed_by(SessionWindows.of_inactivity_gap(10 * SECOND_MS, grace=DAY_MS))
    auctions.write(sessions.count(store="sessions"), serdes.session_windowed(serdes.long), serdes.long)


def q12(auctions: Auctions) -> None:
    bids = auctions.bids(timestamp_extractor=wall_clock_timestamp)
    by_bidder = bids.group_by(lambda key, bid: bid["bidder"], key_serde=serdes.long, value_serde=auctions.bid_serde)
    counts = by_bidder.windowed_by(TimeWindows.of_size(10 * SECOND_MS, grace=DAY_MS)).count(store="counts")
    auctions.write(counts, serdes.time_windowed(serdes.long, 10 * SECOND_MS), serdes.long)


def q13(auctions: Auctions) -> None:
    side = auctions.builder.global_table(f"{auctions.prefix}-side", key_serde=serdes.long, value_serde=serdes.string)
    auctions.write(
        auctions.bids().join(
            side,
            lambda bid, value: {
                "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "dateTime": bid["dateTime"], "value": value,
            },
            key=lambda key, bid: bid["auction"] % 10_000,
        )
    )  # fmt: skip


def _time_of_day(at_ms: int) -> str:
    hour = at_ms // 3_600_000 % 24
    return "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def q14(auctions: Auctions) -> None:
    chosen = auctions.bids().filter(lambda key, bid: 1_000_000_000 < bid["price"] * 908 < 50_000_000_000)
    auctions.write(
        chosen.map_values(
            lambda bid: {
                "auction": bid["auction"], "bidder": bid["bidder"], "price": euros(bid["price"]),
                "bidTimeType": _time_of_day(bid["dateTime"]), "dateTime": bid["dateTime"], "extra": bid["extra"],
                "c_counts": bid["extra"].count("c"),
            }
        )
    )  # fmt: skip


def _rank(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


class DistinctCounts(Processor):
    """q15 and q16: bids, bidders and auctions of each group, in total and by rank of the price."""

    @staticmethod
    def stores() -> list[Any]:
        key_value = Stores.persistent_key_value_store
        return [
            Stores.key_value_store_builder(key_value("seen"), serdes.string, serdes.long),
            Stores.key_value_store_builder(key_value("stats"), serdes.string, serdes.json),
        ]

    def init(self, context: Any) -> None:
        self.context = context
        self._seen, self._stats = context.get_state_store("seen"), context.get_state_store("stats")

    def process(self, record: Any) -> None:
        group, bid = record.key, record.value
        stats = self._stats.get(group)
        if stats is None:
            kinds = ("bids", "bidders", "auctions")
            stats = {f"{scope}_{kind}": 0 for kind in kinds for scope in ("total", "rank1", "rank2", "rank3")}
        rank = f"rank{_rank(bid['price'])}"
        for scope in ("total", rank):
            stats[f"{scope}_bids"] += 1
            for kind in ("bidder", "auction"):
                if self._seen.put_if_absent(f"{group}|{scope}|{kind}|{bid[kind]}", 1) is None:
                    stats[f"{scope}_{kind}s"] += 1
        self._stats.put(group, stats)
        self.context.forward(record.with_value(stats))


def _day(at_ms: int) -> int:
    return at_ms - at_ms % DAY_MS


def _distinct(auctions: Auctions, group: Callable[[Any, Any], str]) -> None:
    bids = auctions.bids().select_key(group).repartition(name="groups", key_serde=serdes.string, value_serde=auctions.bid_serde)
    auctions.write(bids.process(DistinctCounts), serdes.string)


def q15(auctions: Auctions) -> None:
    _distinct(auctions, lambda key, bid: str(_day(bid["dateTime"])))


def q16(auctions: Auctions) -> None:
    _distinct(auctions, lambda key, bid: f"{bid['channel']}|{_day(bid['dateTime'])}")


def _no_bids() -> Json:
    return {"total": 0, "rank1": 0, "rank2": 0, "rank3": 0, "min": None, "max": None, "avg": None, "sum": 0}


def _statistics(key: object, bid: Json, stats: Json) -> Json:
    price = bid["price"]
    stats["total"] += 1
    stats[f"rank{_rank(price)}"] += 1
    stats["min"] = price if stats["min"] is None or price < stats["min"] else stats["min"]
    stats["max"] = price if stats["max"] is None or price > stats["max"] else stats["max"]
    stats["sum"] += price
    stats["avg"] = stats["sum"] // stats["total"]
    return stats


def q17(auctions: Auctions) -> None:
    days = auctions.bids().group_by_key().windowed_by(TimeWindows.of_size(DAY_MS))
    stats = days.aggregate(_no_bids, _statistics, store="stats", value_serde=serdes.json)
    auctions.write(stats, serdes.time_windowed(serdes.long, DAY_MS))


def _later(one: Json, other: Json) -> Json:
    return other if (other["dateTime"], other["price"]) > (one["dateTime"], one["price"]) else one


def q18(auctions: Auctions) -> None:
    pairs = auctions.bids().group_by(
        lambda key, bid: f"{bid['bidder']}-{bid['auction']}", key_serde=serdes.string, value_serde=auctions.bid_serde
    )
    auctions.write(pairs.reduce(_later, store="last"), serdes.string)


def _by_price(bid: Json) -> Any:
    return bid["price"], bid["bidder"], bid["dateTime"]


def _top_ten(key: int, bid: Json, top: Json) -> Json:
    top.append(bid)
    top.sort(key=_by_price, reverse=True)
    del top[10:]
    return top


def q19(auctions: Auctions) -> None:
    auctions.write(auctions.bids().group_by_key().aggregate(list, _top_ten, store="top", value_serde=serdes.json))


def q20(auctions: Auctions) -> None:
    offered = auctions.stream("auction").filter(lambda key, auction: auction["category"] == 10)

    def both(bid: Json, auction: Json) -> Json:
        return {
            "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "channel": bid["channel"], "url": bid["url"],
            "bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"], "itemName": auction["itemName"],
            "description": auction["description"], "initialBid": auction["initialBid"], "reserve": auction["reserve"],
            "auction_dateTime": auction["dateTime"], "expires": auction["expires"], "seller": auction["seller"],
            "category": auction["category"], "auction_extra": auction["extra"],
        }  # fmt: skip

    auctions.write(auctions.bids().join(offered, both, _PAIRS, store="pairs"))


_CHANNEL_ID = re.compile("(?:&|^)channel_id=([^&]*)")
_KNOWN_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def _with_channel(bid: Json) -> Json:
    channel = _KNOWN_CHANNELS.get(bid["channel"].lower())
    if channel is None:
        found = _CHANNEL_ID.search(bid["url"])
        if found is None:
            return None
        channel = found[1]
    return {
        "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "channel": bid["channel"], "channel_id": channel,
    }  # fmt: skip


def q21(auctions: Auctions) -> None:
    auctions.write(auctions.bids().map_values(_with_channel).filter(lambda key, bid: bid is not None))


def _directories(bid: Json) -> Json:
    parts = bid["url"].split("/")
    return {
        "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"], "channel": bid["channel"],
        "dir1": parts[3], "dir2": parts[4], "dir3": parts[5],
    }  # fmt: skip


def q22(auctions: Auctions) -> None:
    auctions.write(auctions.bids().map_values(_directories))


def hopping(auctions: Auctions) -> None:
    orders = auctions.stream("orders", key_serde=serdes.string, value_serde=serdes.string)
    counts = orders.group_by_key().windowed_by(TimeWindows.of_size(10 * SECOND_MS).advance_by(2 * SECOND_MS)).count(store="counts")
    auctions.write(counts, serdes.time_windowed(serdes.string, 10 * SECOND_MS), serdes.long)


def _no_orders() -> Json:
    return {"orders": 0, "total": 0, "largest": 0}


def _with_order(item: str, order: Json, summary: Json) -> Json:
    summary["orders"] += 1
    summary["total"] += order["amount"]
    summary["largest"] = max(summary["largest"], order["amount"])
    return summary


def rekeyed(auctions: Auctions) -> None:
    orders = auctions.stream("orders", key_serde=serdes.string)
    by_item = orders.group_by(lambda user, order: order["item"], key_serde=serdes.string, value_serde=serdes.json)
    auctions.write(by_item.aggregate(_no_orders, _with_order, store="items", value_serde=serdes.json), serdes.string)


class NexmarkQuery(BenchmarkQuery):
    """A query over `Auctions`."""

    topics = Auctions


_BOTH = ("auction", "bid")
OWN = ("orders",)
"""A topic that is not Nexmark's; its values are JSON."""
QUERIES: Mapping[str, NexmarkQuery] = {
    "q0": NexmarkQuery(q0, "pass through", compared=Compared.RECORDS),
    "q1": NexmarkQuery(q1, "convert a currency", compared=Compared.RECORDS),
    "q2": NexmarkQuery(q2, "filter", compared=Compared.RECORDS),
    "q3": NexmarkQuery(q3, "foreign-key join of filtered tables", ("person", "auction"), scale=10),
    "q4": NexmarkQuery(q4, "stream-stream join, best bid, average by category", _BOTH),
    "q5": NexmarkQuery(q5, "hopping count, auctions with the most bids"),
    "q6": NexmarkQuery(q6, "stream-stream join, best bid, average of a seller's last ten", _BOTH),
    "q7": NexmarkQuery(q7, "highest bid of a tumbling window"),
    "q8": NexmarkQuery(q8, "table-table join by key and window", ("person", "auction"), scale=10),
    "q9": NexmarkQuery(q9, "stream-stream join, best bid with its auction", _BOTH),
    "q11": NexmarkQuery(q11, "re-key, session count"),
    "q12": NexmarkQuery(q12, "re-key, tumbling count in processing time", compared=Compared.SUMS),
    "q13": NexmarkQuery(q13, "join with a global table", compared=Compared.RECORDS, tables=("side",)),
    "q14": NexmarkQuery(q14, "filter and computed fields", compared=Compared.RECORDS),
    "q15": NexmarkQuery(q15, "distinct counts of a day (Processor API)"),
    "q16": NexmarkQuery(q16, "distinct counts by channel (Processor API)"),
    "q17": NexmarkQuery(q17, "statistics by auction and day, JSON aggregate"),
    "q18": NexmarkQuery(q18, "re-key, last bid of a bidder and auction"),
    "q19": NexmarkQuery(q19, "ten highest bids of an auction, JSON aggregate"),
    "q20": NexmarkQuery(q20, "stream-stream join, all fields", _BOTH, Compared.RECORDS),
    "q21": NexmarkQuery(q21, "regular expression", compared=Compared.RECORDS),
    "q22": NexmarkQuery(q22, "split an address", compared=Compared.RECORDS),
    "hopping": NexmarkQuery(hopping, "hopping count, 10 s by 2 s, 100,000 keys", OWN, scale=2),
    "rekeyed": NexmarkQuery(rekeyed, "re-key, JSON aggregate", OWN, scale=2),
}
