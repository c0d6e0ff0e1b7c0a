import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * An application of Kafka Streams with a store, a window and a join, over two topics of the same
 * partitions, `orders` and `payments`, whose names begin with the application's;
 * test_streams_exactly_once.py computes what it must say.
 *
 * <p>`totals`: after each order, the sum of the values of its key. `windows`: after each order, how
 * many its key has in the same ten seconds. `joined`: each order with each payment of its key that
 * is no more than five seconds away.
 */
public final class Exactly {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration APART = Duration.ofSeconds(5);
    /** Whatever comes late is counted: what is said depends on times alone. */
    private static final Duration GRACE = Duration.ofDays(1);

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        String prefix = properties.getProperty("application.id") + "-";
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream(prefix + "orders");
        KStream<String, String> payments = builder.stream(prefix + "payments");
        KGroupedStream<String, String> grouped = orders.groupByKey();
        grouped
            .aggregate(
                () -> 0L, (key, value, sum) -> sum + Long.parseLong(value),
                Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(prefix + "totals");
        grouped
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(String::valueOf)
            .to(prefix + "windows");
        orders
            .join(
                payments, (order, payment) -> order + "+" + payment,
                JoinWindows.ofTimeDifferenceAndGrace(APART, GRACE),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
            .to(prefix + "joined");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
