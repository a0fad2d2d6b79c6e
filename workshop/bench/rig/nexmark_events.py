"""The events of the Nexmark benchmark: persons, auctions and bids of an online auction, as records of three topics.

Of fifty events one is a person, three are auctions and 46 are bids; event `n` happens `n / 10` ms after the first one. Half of the
bids go to a hot auction and three of four come from a hot bidder; the hot ones change every hundred auctions or persons. Sizes and
distributions are those of the public definition (nexmark/nexmark, `nexmark-flink/.../generator`, Apache Beam's
`sdks/java/testing/nexmark`), the random numbers are Python's, with a fixed seed. Keys: the person's id, the auction's id, and for
bids the id of their auction, each as a `long`.

`orders` and `side` are not Nexmark's: uniform keys (`workloads.stream_rows`, slowed to 20 events per ms), and the table of q13.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from kstreams_repl.engine.serdes import long
from workshop.bench.rig import workloads
from workshop.bench.rig.workloads import Row

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS_IN_ROUND = PERSONS + AUCTIONS + BIDS
EVENTS_PER_MS = 10
ORDERS_PER_MS = 20
SIDE_ROWS = 10_000
_ORDER_KEYS = 100_000
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
_ID_LEAD = 10
"""Events refer to at most so many ids that do not exist yet."""
_HOT_BATCH = 100
_HOT_AUCTIONS, _HOT_BIDDERS, _HOT_SELLERS, _HOT_CHANNELS = 2, 4, 4, 2
"""One of so many is not hot."""
_ACTIVE_PERSONS, _AUCTIONS_IN_FLIGHT = 1000, 100
_BYTES = {"person": 200, "auction": 500, "bid": 100}
_CHANNELS = 10_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


class _Dice:
    """Random numbers and texts for one topic."""

    def __init__(self, seed: str) -> None:
        source = random.Random(seed)
        self._random, self._choices = source.random, source.choices
        self._letters = "".join(source.choices(_LETTERS, k=1 << 20))
        self.pick = source.choice

    def below(self, limit: int) -> int:
        """Return a number in [0, limit)."""
        return int(self._random() * limit)

    def price(self) -> int:
        return round(10 ** (self._random() * 6) * 100)

    def text(self, longest: int, special: str = " ") -> str:
        """Return 3 to `longest` - 1 letters, of which one in 13 is the special character."""
        length = 3 + self.below(longest - 3)
        return "".join(self._choices((*_LETTERS, special), [12 / 13 / 26] * 26 + [1 / 13], k=length)).strip()

    def extra(self, size: int, average: int) -> str:
        """Return as many letters as an event of this size needs for the average size, 20 % more or less."""
        missing = average - size
        if missing < 0:
            return ""
        delta = round(missing * 0.2)
        length = missing - delta + (self.below(2 * delta) if delta else 0)
        at = self.below(len(self._letters) - length)
        return self._letters[at : at + length]


def _last_person(event: int) -> int:
    """Return the id (from 0) of the last person at an event."""
    return event // EVENTS_IN_ROUND


def _last_auction(event: int) -> int:
    """Return the id (from 0) of the last auction at an event; -1 before the first."""
    past, at = divmod(event, EVENTS_IN_ROUND)
    return past * AUCTIONS + min(at - PERSONS, AUCTIONS - 1)


def _some_person(dice: _Dice, event: int) -> int:
    persons = _last_person(event) + 1
    active = min(persons, _ACTIVE_PERSONS)
    return persons - active + dice.below(active + _ID_LEAD)


def _person(dice: _Dice, event: int, at_ms: int) -> tuple[int, str]:
    name = f"{dice.pick(_FIRST_NAMES)} {dice.pick(_LAST_NAMES)}"
    email = f"{dice.text(7)}@{dice.text(5)}.com"
    card = " ".join(f"{dice.below(10_000):04d}" for _ in range(4))
    city, state = dice.pick(_CITIES), dice.pick(_STATES)
    extra = dice.extra(8 + len(name) + len(email) + len(card) + len(city) + len(state), _BYTES["person"])
    key = _FIRST_ID + _last_person(event)
    return key, (
        f'{{"id":{key},"name":"{name}","emailAddress":"{email}","creditCard":"{card}","city":"{city}","state":"{state}",'
        f'"dateTime":{at_ms},"extra":"{extra}"}}'
    )


def _auction(dice: _Dice, event: int, at_ms: int) -> tuple[int, str]:
    hot = dice.below(_HOT_SELLERS) > 0
    seller = _FIRST_ID + (_last_person(event) // _HOT_BATCH * _HOT_BATCH if hot else _some_person(dice, event))
    initial, name, description = dice.price(), dice.text(20), dice.text(100)
    reserve = initial + dice.price()
    horizon_ms = _AUCTIONS_IN_FLIGHT * EVENTS_IN_ROUND // AUCTIONS // EVENTS_PER_MS
    extra = dice.extra(48 + len(name) + len(description), _BYTES["auction"])
    key = _FIRST_ID + _last_auction(event)
    return key, (
        f'{{"id":{key},"itemName":"{name}","description":"{description}","initialBid":{initial},"reserve":{reserve},"dateTime":{at_ms},'
        f'"expires":{at_ms + 1 + dice.below(2 * horizon_ms)},"seller":{seller},"category":{_FIRST_CATEGORY + dice.below(_CATEGORIES)},'
        f'"extra":"{extra}"}}'
    )


class _Bids:
    """Bids, with the channels and addresses that all of them share."""

    def __init__(self, dice: _Dice) -> None:
        self._hot = [(name, self._address(dice)) for name in ("Google", "Facebook", "Baidu", "Apple")]
        self._others = [(f"channel-{number}", self._address(dice, number)) for number in range(_CHANNELS)]

    @staticmethod
    def _address(dice: _Dice, channel: int | None = None) -> str:
        parts = "/".join(dice.text(5, "_") for _ in range(3))
        known = channel is not None and dice.below(10) > 0
        return f"https://www.nexmark.com/{parts}/item.htm?query=1" + (f"&channel_id={_reversed_bits(channel or 0)}" if known else "")

    def __call__(self, dice: _Dice, event: int, at_ms: int) -> tuple[int, str]:
        last = _last_auction(event)
        if dice.below(_HOT_AUCTIONS) > 0:
            auction = last // _HOT_BATCH * _HOT_BATCH
        else:
            first = max(last - _AUCTIONS_IN_FLIGHT, 0)
            auction = first + dice.below(last - first + 1 + _ID_LEAD)
        hot = dice.below(_HOT_BIDDERS) > 0
        bidder = _FIRST_ID + (_last_person(event) // _HOT_BATCH * _HOT_BATCH + 1 if hot else _some_person(dice, event))
        price = dice.price()
        channel, address = dice.pick(self._hot if dice.below(_HOT_CHANNELS) > 0 else self._others)
        key = _FIRST_ID + auction
        return key, (
            f'{{"auction":{key},"bidder":{bidder},"price":{price},"channel":"{channel}","url":"{address}","dateTime":{at_ms},'
            f'"extra":"{dice.extra(32, _BYTES["bid"])}"}}'
        )


def _reversed_bits(number: int) -> int:
    """Return the absolute value of a 32-bit number with its bits in the opposite order."""
    turned = int(f"{number:032b}"[::-1], 2)
    return min(turned, 2**32 - turned)


_SHARES: Mapping[str, tuple[int, int]] = {"person": (0, PERSONS), "auction": (PERSONS, AUCTIONS), "bid": (PERSONS + AUCTIONS, BIDS)}
"""Which events of a round belong to a topic: the first, and how many."""


def records_of(kind: str, events: int) -> int:
    """Return the number of records on a topic after so many events."""
    if kind == "orders":
        return events
    if kind == "side":
        return SIDE_ROWS
    rounds, rest = divmod(events, EVENTS_IN_ROUND)
    first, share = _SHARES[kind]
    return rounds * share + min(max(rest - first, 0), share)


def rows_of(kind: str, events: int, *, first_ms: int, seed: int = 1) -> Iterator[Row]:
    """Yield the records of one topic (person, auction, bid, orders or side) among the first `events` events."""
    if kind == "orders":
        yield from workloads.stream_rows(events, _ORDER_KEYS, seed=seed, first_ms=first_ms, per_ms=ORDERS_PER_MS)
        return
    if kind == "side":
        yield from ((long.serialize(key) or b"", b"side-%d" % key, first_ms) for key in range(SIDE_ROWS))
        return
    dice = _Dice(f"{seed} {kind}")
    make: Callable[[_Dice, int, int], tuple[int, str]] = {"person": _person, "auction": _auction}.get(kind) or _Bids(dice)
    first, share = _SHARES[kind]
    for event in range(events):
        if first <= event % EVENTS_IN_ROUND < first + share:
            at_ms = first_ms + event // EVENTS_PER_MS
            key, text = make(dice, event, at_ms)
            yield key.to_bytes(8, "big"), text.encode(), at_ms
