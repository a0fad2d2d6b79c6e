"""A kernel to be killed: deploys or attaches, then pauses, resumes and edits, for ever. Arguments: broker, directory, name, number of the
first tag. It says ``begin VERB TAG`` before and ``done VERB TAG`` after each call; the tag is what runs after it.
"""

from __future__ import annotations

import random
import sys

import kstreams_repl as ks


def tagging(source: str, sink: str, tag: str) -> ks.StreamsBuilder:
    """Each value with the version's tag behind it, and a count of them."""
    builder = ks.StreamsBuilder()
    stream = builder.stream(source, key_serde="string", value_serde="string")
    tagged = stream.map_values(lambda value: f"{value}:{tag}", name="tagged")
    tagged.to(sink, key_serde="string", value_serde="string")
    tagged.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


def main() -> None:
    bootstrap, directory, name, first = sys.argv[1:]
    number = int(first)
    chance = random.Random(number)
    session = ks.connect(bootstrap, directory=directory, report=lambda line: None)
    source, sink = f"{name}-in", f"{name}-out"
    settings = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": 1, "commit.interval.ms": 50}
    tag = f"v{number}"
    print("begin deploy", tag, flush=True)
    app = session.deploy(tagging(source, sink, tag), name, config=settings)
    app.resume()
    print("done deploy", tag, flush=True)
    while True:
        verb = chance.choice(["pause", "edit", "edit"])
        if verb == "edit":
            number += 1
            print("begin edit", f"v{number}", flush=True)
            tag = f"v{number}"
            app.edit(tagging(source, sink, tag))
            print("done edit", tag, flush=True)
        else:
            print("begin pause", tag, flush=True)
            app.pause()
            print("done pause", tag, flush=True)
            app.resume()


if __name__ == "__main__":
    main()
