package turbopump.interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.MessageExt;

/** Consumes in order and in a cluster while brokers die, and records the received messages. */
final class Standing {
    private static final int POLL_MS = 500;
    private static final int COMMIT_MS = 500;
    /** Few messages are in memory: the others are pulled from the broker that serves then. */
    private static final int IN_MEMORY = 4;

    private Standing() {
    }

    /** Arguments: the file for messages consumed in order, the file that suspends the consumers,
     * the file that ends the scenario, the file for messages that a second group consumes in a
     * cluster, and the topic (without it "standing-topic"). */
    static void consume(Bench bench, Report report, String[] arguments) throws Exception {
        Path out = Paths.get(arguments[0]);
        Path held = Paths.get(arguments[1]);
        Path stop = Paths.get(arguments[2]);
        Path shared = Paths.get(arguments[3]);
        String topic = bench.name(arguments.length > 4 ? arguments[4] : "standing-topic");
        AtomicInteger count = new AtomicInteger();
        try (Member ordered = member(bench, "standing"); Member any = member(bench, "shared")) {
            ordered.startOrdered(topic, message -> {
                if (Files.exists(held)) {
                    return false;
                }
                count.incrementAndGet();
                write(out, message);
                return true;
            });
            any.start(topic, "*", message -> {
                while (Files.exists(held)) {
                    sleep();
                }
                write(shared, message);
                return 0;
            });
            while (!Files.exists(stop)) {
                sleep();
            }
        }
        report.check("messages were consumed", count.get() > 0, "");
    }

    private static Member member(Bench bench, String name) {
        Member made = new Member(bench, bench.name(name), name);
        DefaultMQPushConsumer consumer = made.consumer();
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setPersistConsumerOffsetInterval(COMMIT_MS);
        consumer.setPullBatchSize(IN_MEMORY);
        consumer.setPullThresholdForQueue(IN_MEMORY);
        return made;
    }

    private static void sleep() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void write(Path out, MessageExt message) {
        String line = message.getQueueId() + " " + message.getQueueOffset() + " "
                + new String(message.getBody(), StandardCharsets.UTF_8) + "\n";
        try {
            Files.write(out, line.getBytes(StandardCharsets.UTF_8),
                    StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
