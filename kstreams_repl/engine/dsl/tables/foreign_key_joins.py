"""Foreign-key joins: subscriptions are sent to the right table's partitions, responses are sent back.

Left: send subscription → topic → right: receive, look up (and: a right row changed → all its subscribers) → topic → left: join
the response with the current row → result. Each step is a node; both topics are internal. Source: Kafka Streams'
`KTableImpl.doJoinOnForeignKey`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.dsl.graph.graph_nodes import (
    Consumed,
    OperatorGraphNode,
    SinkGraphNode,
    SourceGraphNode,
    StateStoreGraphNode,
)
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.options import Materialized
from kstreams_repl.engine.dsl.streams.stream_base import first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.dsl.tables.table_sources import SourceState, stores_read
from kstreams_repl.engine.operators.foreign_key.foreign_key_foreign_table_join import ForeignTableJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_response_join import ResponseJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_join import SubscriptionJoin
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_receive import SubscriptionReceive
from kstreams_repl.engine.operators.foreign_key.foreign_key_subscription_send import SubscriptionSend
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.user_functions import takes_headers
from kstreams_repl.engine.serdes.foreign_key import response_partitioner, subscription, subscription_response
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Headers, Joiner, StreamPartitioner, UserFunction, ValueMapper

PREFIX = "KTABLE-FK-JOIN-"
REGISTRATION = PREFIX + "SUBSCRIPTION-REGISTRATION-"
RESPONSE = PREFIX + "SUBSCRIPTION-RESPONSE-"
PROCESSOR = PREFIX + "SUBSCRIPTION-PROCESSOR-"
RESOLVER = PREFIX + "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
STORE = PREFIX + "SUBSCRIPTION-STATE-STORE-"
OUTPUT = PREFIX + "OUTPUT-"
SINK = "KTABLE-SINK-"
SOURCE = "KTABLE-SOURCE-"


@dataclass(slots=True)
class ForeignKeyPlan:
    """The arguments of a foreign-key join.

    Attributes:
        extractor: (value) -> foreign key, or (key, value) -> foreign key.
        partitioner, other_partitioner: how the left and the right table are partitioned; None: by key.
    """

    extractor: ValueMapper
    joiner: Joiner
    left_join: bool
    with_key: bool
    extractor_with_key: bool
    partitioner: StreamPartitioner | None
    other_partitioner: StreamPartitioner | None
    name: str | None


def join_by_foreign_key(left: TableT, right: TableT, plan: ForeignKeyPlan, options: Materialized) -> TableT:
    """Return the joined table, keyed like the left one."""
    graph, origin = left._graph, left._graph.here()
    if plan.name is not None:
        validate_name(plan.name, "node")
    right._state.enable_sending_old_values(force=True)
    left._state.enable_sending_old_values(force=True)

    def called(suffix: str, prefix: str) -> str:
        return graph.suffix_or_generate(plan.name, suffix, prefix)

    # 1. left: send subscriptions, keyed by foreign key
    registration_topic = called("-subscription-registration", REGISTRATION) + "-topic"
    graph.internal_topics.append(registration_topic)
    subscription_serde = subscription(left.key_serde)
    send = SubscriptionSend(
        plan.extractor,
        plan.left_join,
        left.value_serde,
        left.key_serde,
        right.key_serde,
        with_key=plan.extractor_with_key,
        registration_topic=registration_topic,
    )
    send_node = OperatorGraphNode(called("-subscription-registration-processor", REGISTRATION), origin, send)
    graph.add(left._node, send_node, reads_versions=True)
    sink = SinkGraphNode(
        called("-subscription-registration-sink", SINK),
        origin,
        registration_topic,
        right.key_serde,
        subscription_serde,
        _by_key_alone(plan.other_partitioner),
    )
    graph.add(send_node, sink)

    # 2. right: store the subscription and respond
    source = SourceGraphNode(
        called("-subscription-registration-source", SOURCE),
        origin,
        (registration_topic,),
        None,
        Consumed(right.key_serde, subscription_serde),
    )
    graph.add(sink, source)
    graph.copartition(right._sources | {source.name})
    store_name = called("-subscription-store", STORE)
    store = StoreBuilder(store_name, StoreKind.SUBSCRIPTION, right.key_serde, subscription_serde, follows_default=True)
    graph.add(graph.root, StateStoreGraphNode(store, origin))
    receive = OperatorGraphNode(
        called("-subscription-receive", PROCESSOR),
        origin,
        SubscriptionReceive(store_name, registration_topic, right.key_serde, left.key_serde),
        used_stores=(store_name,),
    )
    graph.add(source, receive)
    foreign_getter = right._state.getter()
    answer = OperatorGraphNode(
        called("-subscription-join-foreign", PROCESSOR),
        origin,
        SubscriptionJoin(foreign_getter),
        used_stores=stores_read(foreign_getter),
    )
    graph.add(receive, answer)
    changed = ForeignTableJoin(store_name, registration_topic, right.key_serde)
    changed_node = OperatorGraphNode(called("-foreign-join-subscription", PROCESSOR), origin, changed, used_stores=(store_name,))
    graph.add(right._node, changed_node, reads_versions=True)

    # 3. left: join the response with the current row
    response_topic = called("-subscription-response", RESPONSE) + "-topic"
    graph.internal_topics.append(response_topic)
    response_serde = subscription_response(right.value_serde)
    response_sink = SinkGraphNode(
        called("-subscription-response-sink", SINK),
        origin,
        response_topic,
        left.key_serde,
        response_serde,
        response_partitioner if plan.partitioner is None else _by_key_alone(plan.partitioner),
    )
    graph.add(answer, response_sink)
    graph.add(changed_node, response_sink)
    response_source = SourceGraphNode(
        called("-subscription-response-source", SOURCE), origin, (response_topic,), None, Consumed(left.key_serde, response_serde)
    )
    graph.add(response_sink, response_source)
    sources = left._sources | {response_source.name}
    graph.copartition(sources)
    primary_getter = left._state.getter()
    response_join = ResponseJoin(
        primary_getter, plan.joiner, plan.left_join, left.value_serde, plan.with_key, registration_topic=registration_topic
    )
    resolver = OperatorGraphNode(
        called("-subscription-response-resolver", RESOLVER), origin, response_join, used_stores=stores_read(primary_getter)
    )
    graph.add(response_source, resolver)

    # 4. the result
    result_name = called("-result", OUTPUT)
    result_store = options.name if options.name is not None else graph.new_store_name(OUTPUT)
    key = first_known(options.key_serde, left.key_serde)
    operator = TableSource(options.name, versioned=options.versioned)
    result = OperatorGraphNode(result_name, origin, operator, store=table_store(options, result_store, key, options.value_serde))
    result.output_versioned = options.versioned
    graph.add(resolver, result)
    state = SourceState(operator, result_store)
    return type(left)(left._log, result_name, key, options.value_serde, sources, result, state, options.name)


def _by_key_alone(partitioner: StreamPartitioner | None) -> UserFunction | None:
    """Return a partitioner that sees only the key (values of these topics are internal) and must choose exactly one partition."""
    if partitioner is None:
        return None
    choose = partitioner

    def expect_one(topic: str, key: object, chosen: Any) -> object:
        if chosen is not None and not isinstance(chosen, int) and len(chosen) != 1:
            raise TopologyError(
                f"expected one partition from the partitioner of a foreign-key join, got {len(chosen)} for key {key!r}",
                hint="choose exactly one",
                topic=topic,
            )
        return chosen

    def with_headers(topic: str, key: object, value: object, headers: Headers, partitions: int) -> object:
        return expect_one(topic, key, choose(topic, key, None, headers, partitions))

    def partition(topic: str, key: object, value: object, partitions: int) -> object:
        return expect_one(topic, key, choose(topic, key, None, partitions))

    return with_headers if takes_headers(choose) else partition
