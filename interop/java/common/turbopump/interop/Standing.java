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

/** Consumes in order, whatever happens to the brokers, and writes down what it was given. */
final class Standing {
    private static final int POLL_MS = 500;
    private static final int COMMIT_MS = 500;

    private Standing() {
    }

    /** Arguments: the file for what was consumed, the file that holds it up, the one that ends it. */
    static void consume(Bench bench, Report report, String[] arguments) throws Exception {
        Path out = Paths.get(arguments[0]);
        Path held = Paths.get(arguments[1]);
        Path stop = Paths.get(arguments[2]);
        AtomicInteger count = new AtomicInteger();
        try (Member member = new Member(bench, bench.name("standing"), "standing")) {
            DefaultMQPushConsumer consumer = member.consumer();
            consumer.setPollNameServerInterval(POLL_MS);
            consumer.setPersistConsumerOffsetInterval(COMMIT_MS);
            member.startOrdered(bench.name("standing-topic"), message -> {
                if (Files.exists(held)) {
                    return false;
                }
                count.incrementAndGet();
                String line = message.getQueueId() + " " + message.getQueueOffset() + " "
                        + new String(message.getBody(), StandardCharsets.UTF_8) + "\n";
                try {
                    Files.write(out, line.getBytes(StandardCharsets.UTF_8),
                            StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
                return true;
            });
            while (!Files.exists(stop)) {
                Thread.sleep(50);
            }
        }
        report.check("messages were consumed", count.get() > 0, "");
    }
}
