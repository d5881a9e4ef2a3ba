package turbopump.interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * RocketMQ's gRPC client against a proxy: each kind of message, push and simple consumers.
 *
 * <p>Arguments: PROXY SCENARIO...; topics and groups have the scenarios' names and must exist.
 */
public final class Proxied {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final long DELIVERY_MS = 45_000;
    private static final long QUIET_MS = 3_000;
    private static final int COUNT = 40;
    private final ClientConfiguration configuration;

    private Proxied(String proxy) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(proxy)
                .enableSsl(Boolean.getBoolean("turbopump.tls"))
                .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    /** One scenario of the run. */
    private interface Piece {
        void run(Report report, String topic) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Proxied proxied = new Proxied(arguments[0]);
        Map<String, Piece> pieces = Map.of("push", proxied::push, "simple", proxied::simple,
                "fifo", proxied::fifo, "delay", proxied::delay, "transaction",
                proxied::transaction);
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Integer>> running = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) {
            String name = arguments[i];
            running.add(threads.submit(() -> run(name, pieces.get(name))));
        }
        int failed = 0;
        for (Future<Integer> one : running) {
            failed += one.get();
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static int run(String name, Piece piece) {
        Report report = new Report(name);
        try {
            piece.run(report, name);
        } catch (Throwable error) {
            report.crashed(error);
        }
        report.done();
        return report.failed();
    }

    /** All messages arrive, and a message that is refused once arrives again. */
    private void push(Report report, String topic) throws Exception {
        Queue<MessageView> came = new ConcurrentLinkedQueue<>();
        Set<String> refused = ConcurrentHashMap.newKeySet();
        MessageListener listener = view -> {
            came.add(view);
            boolean refuses = body(view).equals("7") && refused.add("7");
            return refuses ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
        try (Producer producer = producer(topic);
                PushConsumer consumer = consumer(topic, listener)) {
            Set<String> ids = new TreeSet<>();
            for (int number = 0; number < COUNT; number++) {
                ids.add(producer.send(message(topic, number).build()).getMessageId().toString());
            }
            report.check("all come, and the refused one again",
                    within(() -> came.size() > COUNT), came.size() + " came");
            report.equal("each of them", numbers(COUNT), bodies(came));
            report.equal("by the ids that sends returned", ids, came.stream()
                    .map(view -> view.getMessageId().toString())
                    .collect(Collectors.toCollection(TreeSet::new)));
            List<Integer> attempts = came.stream().filter(view -> body(view).equals("7"))
                    .map(MessageView::getDeliveryAttempt).collect(Collectors.toList());
            report.equal("attempts are counted", List.of(1, 2), attempts);
            MessageView one = came.peek();
            report.equal("with its tag", "even-or-odd", one.getTag().orElse(""));
            report.equal("with its property", body(one), one.getProperties().get("number"));
            report.equal("with its key", List.of("key-" + body(one)),
                    new ArrayList<>(one.getKeys()));
        }
    }

    /** Acknowledged messages are not redelivered; the others are, after the changed time. */
    private void simple(Report report, String topic) throws Exception {
        try (Producer producer = producer(topic);
                SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                        .setClientConfiguration(configuration).setConsumerGroup(topic)
                        .setAwaitDuration(Duration.ofSeconds(3))
                        .setSubscriptionExpressions(all(topic)).build()) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(message(topic, number).build());
            }
            Queue<MessageView> came = new ConcurrentLinkedQueue<>();
            MessageView left = null;
            long deadline = System.currentTimeMillis() + DELIVERY_MS;
            while (came.size() < COUNT && System.currentTimeMillis() < deadline) {
                for (MessageView view : consumer.receive(16, Duration.ofSeconds(90))) {
                    came.add(view);
                    if (body(view).equals("5")) {
                        left = view;
                    } else {
                        consumer.ack(view);
                    }
                }
            }
            report.equal("each comes", numbers(COUNT), bodies(came));
            report.equal("once", COUNT, came.size());
            long changed = System.currentTimeMillis();
            consumer.changeInvisibleDuration(left, Duration.ofSeconds(10));
            List<MessageView> again = new ArrayList<>();
            while (again.isEmpty() && System.currentTimeMillis() < changed + DELIVERY_MS) {
                again.addAll(consumer.receive(16, Duration.ofSeconds(90)));
            }
            long waited = System.currentTimeMillis() - changed;
            report.equal("what is left comes again", List.of("5"),
                    again.stream().map(Proxied::body).collect(Collectors.toList()));
            report.check("after the changed time", waited >= 9_500 && waited < 45_000,
                    waited + " ms");
            for (MessageView view : again) {
                consumer.ack(view);
            }
            report.equal("then nothing", 0, consumer.receive(16, Duration.ofSeconds(90)).size());
        }
    }

    /** Each message group arrives in order, although a message is refused once. */
    private void fifo(Report report, String topic) throws Exception {
        int groups = 4;
        Queue<MessageView> came = new ConcurrentLinkedQueue<>();
        Set<String> refused = ConcurrentHashMap.newKeySet();
        MessageListener listener = view -> {
            boolean refuses = body(view).equals("9") && refused.add("9");
            if (refuses) {
                return ConsumeResult.FAILURE;
            }
            came.add(view);
            return ConsumeResult.SUCCESS;
        };
        try (Producer producer = producer(topic);
                PushConsumer consumer = consumer(topic, listener)) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(message(topic, number)
                        .setMessageGroup("group-" + number % groups).build());
            }
            report.check("all come", within(() -> came.size() >= COUNT), came.size() + " came");
            List<String> flaws = new ArrayList<>();
            for (int group = 0; group < groups; group++) {
                int own = group;
                List<Integer> order = came.stream().map(view -> Integer.parseInt(body(view)))
                        .filter(number -> number % groups == own).collect(Collectors.toList());
                List<Integer> wanted = IntStream.range(0, COUNT)
                        .filter(number -> number % groups == own).boxed()
                        .collect(Collectors.toList());
                if (!order.equals(wanted)) {
                    flaws.add("group " + group + ": " + order);
                }
            }
            report.none("in the order of their groups", flaws);
            report.equal("one was refused", Set.of("9"), refused);
        }
    }

    /** A message arrives at its delivery time. */
    private void delay(Report report, String topic) throws Exception {
        Map<String, Long> came = new ConcurrentHashMap<>();
        MessageListener listener = view -> {
            came.put(body(view), System.currentTimeMillis());
            return ConsumeResult.SUCCESS;
        };
        try (Producer producer = producer(topic);
                PushConsumer consumer = consumer(topic, listener)) {
            long due = System.currentTimeMillis() + 5_000;
            for (int number = 0; number < 4; number++) {
                producer.send(message(topic, number)
                        .setDeliveryTimestamp(due + number * 500).build());
            }
            report.check("all come", within(() -> came.size() == 4), came.toString());
            List<String> flaws = new ArrayList<>();
            came.forEach((number, at) -> {
                long late = at - due - Long.parseLong(number) * 500;
                if (late < -1_000 || late > 5_000) {
                    flaws.add(number + " is late by " + late + " ms");
                }
            });
            report.none("when they are due", flaws);
        }
    }

    /** A commit shows the message, a rollback does not; open transactions are checked. */
    private void transaction(Report report, String topic) throws Exception {
        Queue<MessageView> came = new ConcurrentLinkedQueue<>();
        Set<String> asked = ConcurrentHashMap.newKeySet();
        MessageListener listener = view -> {
            came.add(view);
            return ConsumeResult.SUCCESS;
        };
        ProducerBuilder builder = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics(topic)
                .setTransactionChecker(view -> {
                    asked.add(body(view));
                    return body(view).equals("2") ? TransactionResolution.COMMIT
                            : TransactionResolution.ROLLBACK;
                });
        try (Producer producer = builder.build();
                PushConsumer consumer = consumer(topic, listener)) {
            for (int number = 0; number < 4; number++) {
                Transaction transaction = producer.beginTransaction();
                SendReceipt receipt = producer.send(message(topic, number).build(), transaction);
                report.check("a half message has an id",
                        !receipt.getMessageId().toString().isEmpty(), receipt.toString());
                if (number == 0) {
                    transaction.commit();
                } else if (number == 1) {
                    transaction.rollback();
                }
            }
            report.check("what is open is asked about", within(() -> asked.size() == 2),
                    asked.toString());
            report.check("what is committed comes", within(() -> came.size() >= 2),
                    bodies(came).toString());
            Thread.sleep(QUIET_MS);
            report.equal("and nothing else", Set.of("0", "2"), bodies(came));
            report.equal("asked about", Set.of("2", "3"), asked);
        }
    }

    private Producer producer(String topic) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                .setTopics(topic).build();
    }

    private PushConsumer consumer(String topic, MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(topic).setSubscriptionExpressions(all(topic))
                .setMessageListener(listener).build();
    }

    private static Map<String, FilterExpression> all(String topic) {
        return Collections.singletonMap(topic, FilterExpression.SUB_ALL);
    }

    private static MessageBuilder message(String topic, int number) throws IOException {
        return PROVIDER.newMessageBuilder().setTopic(topic).setTag("even-or-odd")
                .setKeys("key-" + number).addProperty("number", String.valueOf(number))
                .setBody(String.valueOf(number).getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView view) {
        ByteBuffer bytes = view.getBody();
        return StandardCharsets.UTF_8.decode(bytes.duplicate()).toString();
    }

    private static Set<String> bodies(Queue<MessageView> views) {
        return views.stream().map(Proxied::body).collect(Collectors.toCollection(TreeSet::new));
    }

    private static Set<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf)
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private static boolean within(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + DELIVERY_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }
}
