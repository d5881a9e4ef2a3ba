package turbopump.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Sends without pause while brokers die, and records the acknowledged messages. */
final class Enduring {
    private static final int THREADS = 4;
    /** Pause between two sends of a thread: the test has to remember each send. */
    private static final int PAUSE_MS = 2;

    private Enduring() {
    }

    /** Arguments: file for the records, file that ends the scenario, interval of the route poll. */
    static void throughKills(Bench bench, Report report, String[] arguments) throws Exception {
        Path stop = Paths.get(arguments[1]);
        String topic = bench.topic("kills", 4);
        DefaultMQProducer producer = new DefaultMQProducer(bench.name("kills-producer"));
        bench.configure(producer, "kills");
        producer.setPollNameServerInterval(Integer.parseInt(arguments[2]));
        producer.start();
        AtomicInteger numbers = new AtomicInteger();
        AtomicInteger acknowledged = new AtomicInteger();
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[0]))) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                Thread thread = new Thread(() -> {
                    while (!Files.exists(stop)) {
                        if (send(producer, topic, numbers.getAndIncrement(), out)) {
                            acknowledged.incrementAndGet();
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        } finally {
            producer.shutdown();
        }
        report.check("sends were acknowledged", acknowledged.get() > 0, "");
    }

    private static boolean send(DefaultMQProducer producer, String topic, int number,
            BufferedWriter out) {
        long begun;
        SendResult sent;
        try {
            Thread.sleep(PAUSE_MS);
            begun = System.currentTimeMillis();
            byte[] body = (number + " letter").getBytes(StandardCharsets.UTF_8);
            sent = producer.send(new Message(topic, body));
        } catch (Exception refused) {
            return false;
        }
        if (sent.getSendStatus() != SendStatus.SEND_OK) {
            return false;
        }
        synchronized (out) {
            try {
                out.write(begun + " " + System.currentTimeMillis() + " "
                        + sent.getMessageQueue().getQueueId() + " " + sent.getQueueOffset() + " "
                        + number + "\n");
                out.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        return true;
    }
}
