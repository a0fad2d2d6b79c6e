import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The queries of nexmark_queries.py on Kafka Streams: the same operators in the same order, one method each.
 *
 * <p>Values of the three topics are what their format has: Jackson's JsonNode, Avro's GenericRecord or Protobuf's DynamicMessage.
 */
final class NexmarkTwins {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    static final Serde<JsonNode> JSON = Serdes.serdeFrom((topic, node) -> bytes(node), (topic, data) -> tree(data));
    private static final long DAY = 86_400_000;
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);
    private static final JoinWindows PAIRS = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(1), TEN_SECONDS);

    private final StreamsBuilder builder;
    private final Map<String, String> options;
    private final Runnable seen;
    private final Serde<Object> values;

    NexmarkTwins(StreamsBuilder builder, Map<String, String> options, Runnable seen) {
        this.builder = builder;
        this.options = options;
        this.seen = seen;
        String format = options.getOrDefault("values", "json");
        this.values = format.equals("json")
            ? Serdes.serdeFrom((topic, node) -> bytes((JsonNode) node), (topic, data) -> tree(data))
            : new SchemaValues(format, options.get("registry"));
    }

    void build(String query) {
        switch (query) {
            case "q0" -> write(bids().mapValues(bid -> basic(bid)));
            case "q1" -> write(bids().mapValues(bid -> object()
                .put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", euros(number(bid, "price")))
                .put("dateTime", number(bid, "dateTime")).put("extra", text(bid, "extra"))));
            case "q2" -> write(bids().filter((key, bid) -> number(bid, "auction") % 123 == 0)
                .mapValues(bid -> object().put("auction", number(bid, "auction")).put("price", number(bid, "price"))));
            case "q3" -> q3();
            case "q4" -> q4();
            case "q5" -> q5();
            case "q6" -> q6();
            case "q7" -> q7();
            case "q8" -> q8();
            case "q9" -> write(auctions().join(bids(), (ValueJoiner<Object, Object, JsonNode>) NexmarkTwins::sale, PAIRS, pairs())
                .filter((key, sale) -> sale != null)
                .groupByKey(Grouped.with(LONG, JSON)).reduce(NexmarkTwins::betterSale, Materialized.as("winning")).toStream());
            case "q11" -> bids().groupBy((key, bid) -> number(bid, "bidder"), Grouped.with(LONG, values))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_SECONDS, Duration.ofMillis(DAY)))
                .count(Materialized.as("sessions")).toStream()
                .to(output(), Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(Long.class), LONG));
            case "q12" -> stream("bid", Consumed.with(LONG, values).withTimestampExtractor(new WallclockTimestampExtractor()))
                .groupBy((key, bid) -> number(bid, "bidder"), Grouped.with(LONG, values))
                .windowedBy(TimeWindows.ofSizeAndGrace(TEN_SECONDS, Duration.ofMillis(DAY)))
                .count(Materialized.as("counts")).toStream()
                .to(output(), Produced.with(WindowedSerdes.timeWindowedSerdeFrom(Long.class, 10_000), LONG));
            case "q13" -> q13();
            case "q14" -> write(bids()
                .filter((key, bid) -> number(bid, "price") * 908 > 1_000_000_000L && number(bid, "price") * 908 < 50_000_000_000L)
                .mapValues(NexmarkTwins::computed));
            case "q15" -> distinct((bid) -> Long.toString(day(bid)));
            case "q16" -> distinct((bid) -> text(bid, "channel") + "|" + day(bid));
            case "q17" -> bids().groupByKey(Grouped.with(LONG, values)).windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(DAY)))
                .aggregate(NexmarkTwins::noBids, NexmarkTwins::statistics, Materialized.with(LONG, JSON)).toStream()
                .to(output(), Produced.with(WindowedSerdes.timeWindowedSerdeFrom(Long.class, DAY), JSON));
            case "q18" -> bids().groupBy((key, bid) -> number(bid, "bidder") + "-" + number(bid, "auction"), Grouped.with(TEXT, values))
                .reduce(NexmarkTwins::later, Materialized.as("last")).toStream().mapValues(NexmarkTwins::json).to(output(), Produced.with(TEXT, JSON));
            case "q19" -> write(bids().groupByKey(Grouped.with(LONG, values))
                .aggregate(() -> (JsonNode) MAPPER.createArrayNode(), NexmarkTwins::topTen, Materialized.with(LONG, JSON)).toStream());
            case "q20" -> write(bids().join(auctions().filter((key, auction) -> number(auction, "category") == 10),
                (ValueJoiner<Object, Object, JsonNode>) NexmarkTwins::both, PAIRS, pairs()));
            case "q21" -> write(bids().mapValues(NexmarkTwins::withChannel).filter((key, bid) -> bid != null));
            case "q22" -> write(bids().mapValues(NexmarkTwins::directories));
            case "hopping" -> stream("orders", Consumed.with(TEXT, TEXT)).groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(TEN_SECONDS).advanceBy(Duration.ofSeconds(2)))
                .count(Materialized.as("counts")).toStream()
                .to(output(), Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 10_000), LONG));
            case "rekeyed" -> stream("orders", Consumed.with(TEXT, JSON))
                .groupBy((user, order) -> text(order, "item"), Grouped.with(TEXT, JSON))
                .aggregate(() -> (JsonNode) object().put("orders", 0).put("total", 0).put("largest", 0), NexmarkTwins::withOrder,
                    Materialized.with(TEXT, JSON))
                .toStream().to(output(), Produced.with(TEXT, JSON));
            default -> throw new IllegalArgumentException(query);
        }
    }

    private void q3() {
        KTable<Long, Object> offered = auctions().filter((key, auction) -> number(auction, "category") == 10)
            .toTable(Materialized.with(LONG, values));
        KTable<Long, Object> sellers = stream("person", Consumed.with(LONG, values))
            .filter((key, person) -> Set.of("OR", "ID", "CA").contains(text(person, "state"))).toTable(Materialized.with(LONG, values));
        ValueJoiner<Object, Object, JsonNode> joiner = (auction, person) -> object()
            .put("name", text(person, "name")).put("city", text(person, "city")).put("state", text(person, "state"))
            .put("id", number(auction, "id"));
        write(offered.join(sellers, auction -> number(auction, "seller"), joiner, Materialized.with(LONG, JSON)).toStream());
    }

    private KTable<Long, JsonNode> winning() {
        ValueJoiner<Object, Object, JsonNode> joiner = (auction, bid) -> !inTime(auction, bid) ? null : object()
            .put("category", number(auction, "category")).put("seller", number(auction, "seller"))
            .put("price", number(bid, "price")).put("dateTime", number(bid, "dateTime"));
        return auctions().join(bids(), joiner, PAIRS, pairs()).filter((key, bid) -> bid != null)
            .groupByKey(Grouped.with(LONG, JSON)).reduce(NexmarkTwins::better, Materialized.as("winning"));
    }

    private void q4() {
        winning().groupBy((key, best) -> KeyValue.pair(number(best, "category"), number(best, "price")), Grouped.with(LONG, LONG))
            .aggregate(() -> (JsonNode) object().put("sum", 0L).put("count", 0L),
                (category, price, total) -> object().put("sum", number(total, "sum") + price).put("count", number(total, "count") + 1),
                (category, price, total) -> object().put("sum", number(total, "sum") - price).put("count", number(total, "count") - 1),
                Materialized.with(LONG, JSON))
            .mapValues(total -> number(total, "sum") / Math.max(number(total, "count"), 1))
            .toStream().to(output(), Produced.with(LONG, LONG));
    }

    private void q5() {
        write(bids().groupByKey(Grouped.with(LONG, values))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(TEN_SECONDS).advanceBy(Duration.ofSeconds(2)))
            .count(Materialized.as("counts")).toStream()
            .map((window, num) ->
                KeyValue.pair(window.window().start(), (JsonNode) object().put("auction", window.key()).put("num", num)))
            .groupByKey(Grouped.with(LONG, JSON))
            .aggregate(() -> (JsonNode) object().put("num", 0L).set("auctions", MAPPER.createArrayNode()), NexmarkTwins::top,
                Materialized.with(LONG, JSON))
            .toStream());
    }

    private void q6() {
        winning().groupBy((auction, best) -> KeyValue.pair(number(best, "seller"),
                (JsonNode) MAPPER.createArrayNode().add(number(best, "dateTime")).add(auction).add(number(best, "price"))),
                Grouped.with(LONG, JSON))
            .aggregate(() -> (JsonNode) MAPPER.createArrayNode(), NexmarkTwins::withWin, NexmarkTwins::withoutWin,
                Materialized.with(LONG, JSON))
            .mapValues(NexmarkTwins::averageOfLast)
            .toStream().to(output(), Produced.with(LONG, LONG));
    }

    private void q7() {
        write(bids().mapValues(bid -> (JsonNode) basic(bid)).groupByKey(Grouped.with(LONG, JSON))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(TEN_SECONDS)).reduce(NexmarkTwins::highest, Materialized.as("of-auctions"))
            .toStream((window, bid) -> window.window().start())
            .groupByKey(Grouped.with(LONG, JSON)).reduce(NexmarkTwins::highest, Materialized.as("highest")).toStream());
    }

    private void q8() {
        KTable<String, JsonNode> persons = stream("person", Consumed.with(LONG, values))
            .map((key, person) -> KeyValue.pair(windowKey(key, number(person, "dateTime")), (JsonNode) object()
                .put("id", key).put("name", text(person, "name")).put("starttime", window(number(person, "dateTime")))))
            .toTable(Materialized.with(TEXT, JSON));
        KTable<String, Long> sellers = auctions()
            .map((key, auction) -> KeyValue.pair(windowKey(number(auction, "seller"), number(auction, "dateTime")), 1L))
            .toTable(Materialized.with(TEXT, LONG));
        persons.join(sellers, (person, one) -> person).toStream().to(output(), Produced.with(TEXT, JSON));
    }

    private void q13() {
        GlobalKTable<Long, String> side = builder.globalTable(options.get("input") + "-side", Consumed.with(LONG, TEXT));
        write(bids().join(side, (key, bid) -> number(bid, "auction") % 10_000, (bid, value) -> object()
            .put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("dateTime", number(bid, "dateTime")).put("value", value)));
    }

    private void distinct(Function<Object, String> group) {
        bids().selectKey((key, bid) -> group.apply(bid))
            .repartition(Repartitioned.<String, Object>as("groups").withKeySerde(TEXT).withValueSerde(values))
            .process(new DistinctCounts.Supplier()).to(output(), Produced.with(TEXT, JSON));
    }

    // ---- topics

    private <K, V> KStream<K, V> stream(String kind, Consumed<K, V> consumed) {
        return builder.stream(options.get("input") + "-" + kind, consumed).peek((key, value) -> seen.run());
    }

    private KStream<Long, Object> bids() {
        return stream("bid", Consumed.with(LONG, values));
    }

    private KStream<Long, Object> auctions() {
        return stream("auction", Consumed.with(LONG, values));
    }

    private String output() {
        return options.get("output");
    }

    private void write(KStream<Long, ? extends JsonNode> result) {
        result.mapValues(value -> (JsonNode) value).to(output(), Produced.with(LONG, JSON));
    }

    private StreamJoined<Long, Object, Object> pairs() {
        return StreamJoined.with(LONG, values, values).withStoreName("pairs");
    }

    // ---- functions

    private static ObjectNode basic(Object bid) {
        return object().put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("dateTime", number(bid, "dateTime")).put("extra", text(bid, "extra"));
    }

    private static String euros(long dollars) {
        long thousandths = dollars * 908;
        String rest = Long.toString(1000 + thousandths % 1000).substring(1);
        return thousandths / 1000 + "." + rest;
    }

    private static boolean inTime(Object auction, Object bid) {
        long at = number(bid, "dateTime");
        return number(auction, "dateTime") <= at && at <= number(auction, "expires");
    }

    private static <T> T larger(T one, T other, Comparator<Object> order) {
        return order.compare(other, one) > 0 ? other : one;
    }

    private static Comparator<Object> by(String... names) {
        Comparator<Object> order = (one, other) -> 0;
        for (String name : names) {
            boolean descending = name.startsWith("-");
            String field = descending ? name.substring(1) : name;
            Comparator<Object> next = Comparator.comparingLong(node -> number(node, field));
            order = order.thenComparing(descending ? next.reversed() : next);
        }
        return order;
    }

    private static final Comparator<Object> BETTER = by("price", "-dateTime");
    private static final Comparator<Object> HIGHEST = by("price", "dateTime", "auction", "bidder");
    private static final Comparator<Object> BETTER_SALE = by("price", "-bid_dateTime", "bidder");
    private static final Comparator<Object> LATER = by("dateTime", "price");
    private static final Comparator<Object> TOP_TEN = by("price", "bidder", "dateTime").reversed();

    private static JsonNode better(JsonNode one, JsonNode other) {
        return larger(one, other, BETTER);
    }

    private static JsonNode highest(JsonNode one, JsonNode other) {
        return larger(one, other, HIGHEST);
    }

    private static JsonNode betterSale(JsonNode one, JsonNode other) {
        return larger(one, other, BETTER_SALE);
    }

    private static Object later(Object one, Object other) {
        return larger(one, other, LATER);
    }

    private static JsonNode top(long window, JsonNode count, JsonNode top) {
        long num = number(count, "num");
        long most = number(top, "num");
        List<Long> auctions = new ArrayList<>();
        if (num == most) {
            top.get("auctions").forEach(auction -> auctions.add(auction.asLong()));
        }
        if (num < most || auctions.contains(number(count, "auction"))) {
            return top;
        }
        auctions.add(number(count, "auction"));
        auctions.sort(null);
        ArrayNode sorted = MAPPER.createArrayNode();
        auctions.forEach(sorted::add);
        return object().put("num", num).set("auctions", sorted);
    }

    private static JsonNode withWin(long seller, JsonNode win, JsonNode wins) {
        List<JsonNode> all = new ArrayList<>();
        wins.forEach(all::add);
        all.add(win);
        all.sort(Comparator.<JsonNode>comparingLong(one -> one.get(0).asLong()).thenComparingLong(one -> one.get(1).asLong())
            .thenComparingLong(one -> one.get(2).asLong()));
        return MAPPER.createArrayNode().addAll(all);
    }

    private static JsonNode withoutWin(long seller, JsonNode win, JsonNode wins) {
        ArrayNode left = MAPPER.createArrayNode();
        wins.forEach(one -> {
            if (!one.equals(win)) {
                left.add(one);
            }
        });
        return left;
    }

    private static long averageOfLast(JsonNode wins) {
        long sum = 0;
        int first = Math.max(wins.size() - 10, 0);
        for (int at = first; at < wins.size(); at++) {
            sum += wins.get(at).get(2).asLong();
        }
        return sum / Math.max(wins.size() - first, 1);
    }

    private static long window(long at) {
        return at - at % 10_000;
    }

    private static String windowKey(long person, long at) {
        return person + "@" + window(at);
    }

    private static JsonNode sale(Object auction, Object bid) {
        if (!inTime(auction, bid)) {
            return null;
        }
        ObjectNode sale = auction instanceof ObjectNode given ? given.deepCopy() : (ObjectNode) json(auction);
        return sale.put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("bid_dateTime", number(bid, "dateTime")).put("bid_extra", text(bid, "extra"));
    }

    private static JsonNode computed(Object bid) {
        long at = number(bid, "dateTime");
        long hour = at / 3_600_000 % 24;
        String extra = text(bid, "extra");
        return object()
            .put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", euros(number(bid, "price")))
            .put("bidTimeType", hour >= 8 && hour <= 18 ? "dayTime" : hour <= 6 || hour >= 20 ? "nightTime" : "otherTime")
            .put("dateTime", at).put("extra", extra).put("c_counts", extra.chars().filter(letter -> letter == 'c').count());
    }

    private static long day(Object bid) {
        long at = number(bid, "dateTime");
        return at - at % DAY;
    }

    private static String rank(long price) {
        return price < 10_000 ? "rank1" : price < 1_000_000 ? "rank2" : "rank3";
    }

    private static JsonNode noBids() {
        return object().put("total", 0).put("rank1", 0).put("rank2", 0).put("rank3", 0)
            .putNull("min").putNull("max").putNull("avg").put("sum", 0L);
    }

    private static JsonNode statistics(long key, Object bid, JsonNode before) {
        ObjectNode stats = (ObjectNode) before;
        long price = number(bid, "price");
        String rank = rank(price);
        stats.put("total", number(stats, "total") + 1).put(rank, number(stats, rank) + 1);
        if (stats.get("min").isNull() || price < number(stats, "min")) {
            stats.put("min", price);
        }
        if (stats.get("max").isNull() || price > number(stats, "max")) {
            stats.put("max", price);
        }
        stats.put("sum", number(stats, "sum") + price);
        return stats.put("avg", number(stats, "sum") / number(stats, "total"));
    }

    private static JsonNode topTen(long key, Object bid, JsonNode before) {
        List<JsonNode> top = new ArrayList<>();
        before.forEach(top::add);
        top.add(json(bid));
        top.sort(TOP_TEN);
        return MAPPER.createArrayNode().addAll(top.subList(0, Math.min(top.size(), 10)));
    }

    private static JsonNode both(Object bid, Object auction) {
        return object().put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("channel", text(bid, "channel")).put("url", text(bid, "url")).put("bid_dateTime", number(bid, "dateTime"))
            .put("bid_extra", text(bid, "extra")).put("itemName", text(auction, "itemName"))
            .put("description", text(auction, "description")).put("initialBid", number(auction, "initialBid"))
            .put("reserve", number(auction, "reserve")).put("auction_dateTime", number(auction, "dateTime"))
            .put("expires", number(auction, "expires")).put("seller", number(auction, "seller"))
            .put("category", number(auction, "category")).put("auction_extra", text(auction, "extra"));
    }

    private static final Pattern CHANNEL_ID = Pattern.compile("(?:&|^)channel_id=([^&]*)");
    private static final Map<String, String> KNOWN = Map.of("apple", "0", "google", "1", "facebook", "2", "baidu", "3");

    private static JsonNode withChannel(Object bid) {
        String channel = KNOWN.get(text(bid, "channel").toLowerCase(Locale.ROOT));
        if (channel == null) {
            Matcher found = CHANNEL_ID.matcher(text(bid, "url"));
            if (!found.find()) {
                return null;
            }
            channel = found.group(1);
        }
        return object().put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("channel", text(bid, "channel")).put("channel_id", channel);
    }

    private static JsonNode directories(Object bid) {
        String[] parts = text(bid, "url").split("/");
        return object().put("auction", number(bid, "auction")).put("bidder", number(bid, "bidder")).put("price", number(bid, "price"))
            .put("channel", text(bid, "channel")).put("dir1", parts[3]).put("dir2", parts[4]).put("dir3", parts[5]);
    }

    private static JsonNode withOrder(String item, JsonNode order, JsonNode before) {
        ObjectNode summary = (ObjectNode) before;
        long amount = number(order, "amount");
        return summary.put("orders", number(summary, "orders") + 1).put("total", number(summary, "total") + amount)
            .put("largest", Math.max(number(summary, "largest"), amount));
    }

    /** q15 and q16: bids, bidders and auctions of each group, in total and by rank of the price. */
    private static final class DistinctCounts implements Processor<String, Object, String, JsonNode> {
        private ProcessorContext<String, JsonNode> context;
        private KeyValueStore<String, Long> seen;
        private KeyValueStore<String, JsonNode> stats;

        private static final class Supplier implements ProcessorSupplier<String, Object, String, JsonNode> {
            @Override
            public Processor<String, Object, String, JsonNode> get() {
                return new DistinctCounts();
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                return Set.of(
                    Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), TEXT, LONG),
                    Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("stats"), TEXT, JSON));
            }
        }

        @Override
        public void init(ProcessorContext<String, JsonNode> given) {
            context = given;
            seen = given.getStateStore("seen");
            stats = given.getStateStore("stats");
        }

        @Override
        public void process(Record<String, Object> record) {
            Object bid = record.value();
            ObjectNode counts = (ObjectNode) stats.get(record.key());
            if (counts == null) {
                counts = object();
                for (String kind : List.of("bids", "bidders", "auctions")) {
                    for (String scope : List.of("total", "rank1", "rank2", "rank3")) {
                        counts.put(scope + "_" + kind, 0);
                    }
                }
            }
            for (String scope : List.of("total", rank(number(bid, "price")))) {
                add(counts, scope + "_bids");
                for (String kind : List.of("bidder", "auction")) {
                    if (seen.putIfAbsent(record.key() + "|" + scope + "|" + kind + "|" + number(bid, kind), 1L) == null) {
                        add(counts, scope + "_" + kind + "s");
                    }
                }
            }
            stats.put(record.key(), counts);
            context.forward(record.withValue(counts));
        }

        private static void add(ObjectNode counts, String name) {
            counts.put(name, number(counts, name) + 1);
        }
    }

    // ---- values

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    /** Return a field of a value of any format. */
    static long number(Object value, String name) {
        return value instanceof JsonNode node ? node.get(name).asLong() : (Long) SchemaValues.field(value, name);
    }

    static String text(Object value, String name) {
        return value instanceof JsonNode node ? node.get(name).asText() : SchemaValues.field(value, name).toString();
    }

    /** Return a value of any format as JSON. */
    private static JsonNode json(Object value) {
        if (value instanceof JsonNode node) {
            return node;
        }
        ObjectNode object = object();
        for (String name : SchemaValues.names(value)) {
            if (SchemaValues.field(value, name) instanceof Long number) {
                object.put(name, number);
            } else {
                object.put(name, text(value, name));
            }
        }
        return object;
    }

    private static byte[] bytes(JsonNode node) {
        try {
            return node == null ? null : MAPPER.writeValueAsBytes(node);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    private static JsonNode tree(byte[] data) {
        try {
            return data == null ? null : MAPPER.readTree(data);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }
}
