package turbopump.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntPredicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Filters by SQL92, and message traces. */
final class Filtering {
    private static final int COUNT = 120;
    private static final long DELIVERY_MS = 30_000;
    private static final long TRACE_MS = 40_000;
    private static final long QUIET_MS = 1500;
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";
    private static final Map<String, IntPredicate> EXPRESSIONS = new LinkedHashMap<>();
    private static final List<String> REFUSED = List.of("a >", "a IN (1, 2)", "a > 'x'", "a = NULL",
            "a BETWEEN 5 AND 1", "a > TRUE", "NOT a IN ('1')", "5 AND a = 1", "a = 'x", "(a = 1",
            "a > 0.0", "a = 9223372036854775808", "a ! b", "a BETWEEN 1", "TRUE = 5", "a = 1 AND");

    static {
        EXPRESSIONS.put("a > 100", i -> i > 100);
        EXPRESSIONS.put("a BETWEEN 10 AND 20", i -> i >= 10 && i <= 20);
        EXPRESSIONS.put("a NOT BETWEEN 3 AND 115", i -> i < 3 || i > 115);
        EXPRESSIONS.put("b IS NULL", i -> i % 3 == 0);
        EXPRESSIONS.put("b IS NOT NULL AND a < 9", i -> i % 3 != 0 && i < 9);
        EXPRESSIONS.put("b = a AND a < 9", i -> i % 3 != 0 && i < 9);
        EXPRESSIONS.put("b <> 'x' AND a < 9", i -> i % 3 != 0 && i < 9);
        EXPRESSIONS.put("word IN ('w1', 'w''s')", i -> i % 4 == 1 || i % 4 == 2);
        EXPRESSIONS.put("word NOT IN ('w1', 'w3') AND a < 9", i -> i < 9 && i % 2 == 0);
        EXPRESSIONS.put("word = 'w''s'", i -> i % 4 == 2);
        EXPRESSIONS.put("yes = TRUE AND a < 9", i -> i % 2 == 0 && i < 9);
        EXPRESSIONS.put("yes = FALSE AND a < 9", i -> i % 2 != 0 && i < 9);
        EXPRESSIONS.put("yes", i -> false);
        EXPRESSIONS.put("NOT yes AND a < 3", i -> i < 3);
        EXPRESSIONS.put("price >= 50.5 AND price < 52.25", i -> i >= 101 && i <= 104);
        EXPRESSIONS.put("price > 50", i -> false);
        EXPRESSIONS.put("word > 5 OR a > 0", i -> false);
        EXPRESSIONS.put("a > 115 OR word > 5", i -> i > 115);
        EXPRESSIONS.put("price > a AND a < 9", i -> false);
        EXPRESSIONS.put("a > price AND a < 9", i -> i > 0 && i < 9);
        EXPRESSIONS.put("nothing = 'x' OR a = 7", i -> i == 7);
        EXPRESSIONS.put("nothing <> 'x'", i -> false);
        EXPRESSIONS.put("NOT (nothing > 5)", i -> false);
        EXPRESSIONS.put("nothing IN ('x') OR a = 8", i -> i == 8);
        EXPRESSIONS.put("NULL OR a = 9", i -> i == 9);
        EXPRESSIONS.put("TAGS = 'TagA' AND a <= 6", i -> i % 3 == 0 && i <= 6);
        EXPRESSIONS.put("word CONTAINS '''' AND a < 9", i -> i % 4 == 2 && i < 9);
        EXPRESSIONS.put("word STARTSWITH 'w' AND NOT (a > 1)", i -> i <= 1);
        EXPRESSIONS.put("word NOT ENDSWITH '3' AND a >= 118", i -> i >= 118 && i % 4 != 3);
        EXPRESSIONS.put("a = 5 -- a comment\n OR a /* is */ = 6", i -> i == 5 || i == 6);
        EXPRESSIONS.put("label = 'the label of 11' AND a = 11L", i -> i == 11);
        EXPRESSIONS.put("a > - - 117 AND +a <= 2147483648", i -> i > 117);
        EXPRESSIONS.put("((((a = 1) OR (a = 2))))", i -> i == 1 || i == 2);
    }

    private Filtering() {
    }

    private static Message letter(String topic, int number) {
        Message message = Letters.letter(topic, number);
        message.putUserProperty("a", Integer.toString(number));
        if (number % 3 != 0) {
            message.putUserProperty("b", Integer.toString(number));
        }
        message.putUserProperty("price", Double.toString(number * 0.5));
        message.putUserProperty("yes", number % 2 == 0 ? "TRUE" : "no");
        message.putUserProperty("word", number % 4 == 2 ? "w's" : "w" + number % 4);
        return message;
    }

    private static void send(Bench bench, String topic, int from, int to) throws Exception {
        List<MessageQueue> queues = bench.queues(topic);
        for (int number = from; number < to; number++) {
            bench.producer().send(letter(topic, number), queues.get(number % queues.size()));
        }
    }

    static void sql(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("sql", 1);
        String group = bench.name("sql-group");
        send(bench, topic, 0, COUNT);
        bench.readUntil(topic, COUNT);
        MessageQueue queue = bench.queues(topic).get(0);
        // A client learns the broker's version with its first heartbeat.
        Bench.await("the version of the broker", 15_000,
                () -> Bench.error(() -> matched(bench, queue, "a = 1")) == null);
        for (Map.Entry<String, IntPredicate> one : EXPRESSIONS.entrySet()) {
            report.equal(one.getKey(), expected(one.getValue()),
                    matched(bench, queue, one.getKey()));
        }
        DefaultMQPushConsumer first = push(bench, group, "sql-1");
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        listen(first, topic, "a BETWEEN 100 AND 129 AND yes = TRUE", got);
        try {
            report.check("a push consumer gets what matches", Bench.within(DELIVERY_MS,
                    () -> got.size() >= 10), got.size() + "");
            send(bench, topic, COUNT, 160);
            report.check("and what comes while it waits", Bench.within(DELIVERY_MS,
                    () -> got.size() >= 15), got.size() + "");
            Thread.sleep(QUIET_MS);
            report.equal("each once and nothing else", expected(
                    i -> i >= 100 && i < 130 && i % 2 == 0, 160), numbers(got));
            report.none("content is as sent", Letters.flaws(topic, got));
        } finally {
            first.shutdown();
        }
        changed(bench, report, topic, group);
    }

    /** A later member of the group subscribes with another expression. */
    private static void changed(Bench bench, Report report, String topic, String group)
            throws Exception {
        DefaultMQPushConsumer second = push(bench, group, "sql-2");
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        listen(second, topic, "a >= 190", got);
        try {
            send(bench, topic, 160, 200);
            report.check("the new expression counts", Bench.within(DELIVERY_MS,
                    () -> got.size() >= 10), got.size() + "");
            Thread.sleep(QUIET_MS);
            report.equal("and it alone", expected(i -> i >= 190, 200), numbers(got));
        } finally {
            second.shutdown();
        }
        for (String expression : REFUSED) {
            DefaultMQPushConsumer bad = push(bench, bench.name("sql-bad"), "sql-bad");
            Exception error = Bench.error(() -> {
                listen(bad, topic, expression, new ArrayList<>());
                return null;
            });
            Object code = error instanceof MQClientException
                    ? ((MQClientException) error).getResponseCode() : error;
            report.equal("refused: " + expression, 23, code);
            Bench.error(() -> {
                bad.shutdown();
                return null;
            });
        }
    }

    private static DefaultMQPushConsumer push(Bench bench, String group, String instance) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        bench.configure(made, instance);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return made;
    }

    private static void listen(DefaultMQPushConsumer consumer, String topic, String expression,
            List<MessageExt> got) throws MQClientException {
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static List<Integer> expected(IntPredicate predicate) {
        return expected(predicate, COUNT);
    }

    private static List<Integer> expected(IntPredicate predicate, int count) {
        List<Integer> numbers = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            if (predicate.test(number)) {
                numbers.add(number);
            }
        }
        return numbers;
    }

    private static List<Integer> numbers(List<MessageExt> got) {
        List<Integer> numbers = new ArrayList<>();
        got.forEach(message -> numbers.add(Letters.number(message)));
        numbers.sort(null);
        return numbers;
    }

    private static List<Integer> matched(Bench bench, MessageQueue queue, String expression)
            throws Exception {
        List<Integer> numbers = new ArrayList<>();
        long at = 0;
        while (at < COUNT) {
            PullResult result = bench.reader().pull(queue, MessageSelector.bySql(expression), at,
                    32);
            if (result.getMsgFoundList() != null) {
                result.getMsgFoundList().forEach(one -> numbers.add(Letters.number(one)));
            }
            if (result.getNextBeginOffset() <= at) {
                throw new IllegalStateException(expression + " at " + at + ": " + result);
            }
            at = result.getNextBeginOffset();
        }
        return numbers;
    }

    static void trace(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("traced", 1);
        DefaultMQProducer producer = new DefaultMQProducer(
                bench.name("traced-producer"), true, TRACES);
        bench.configure(producer, "traced-out");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                bench.name("traced-group"), true, TRACES);
        bench.configure(consumer, "traced-in");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.start();
        consumer.start();
        try {
            SendResult sent = producer.send(Letters.letter(topic, 1));
            report.check("traces are wanted", sent.isTraceOn(), sent.toString());
            report.check("it is delivered", Bench.within(DELIVERY_MS, () -> !got.isEmpty()), "");
            for (TraceType type : List.of(TraceType.Pub, TraceType.SubBefore, TraceType.SubAfter)) {
                report.check("the trace has " + type, Bench.within(TRACE_MS,
                        () -> has(bench, type, sent.getMsgId())), traces(bench).size() + " traces");
            }
            report.check("id " + sent.getMsgId(), true, "");
        } finally {
            producer.shutdown();
            consumer.shutdown();
        }
    }

    private static boolean has(Bench bench, TraceType type, String id) {
        return traces(bench).stream().anyMatch(one -> one.getTraceType() == type
                && one.getTraceBeans().get(0).getMsgId().equals(id));
    }

    private static List<TraceContext> traces(Bench bench) {
        List<TraceContext> all = new ArrayList<>();
        try {
            for (MessageExt message : bench.readAll(TRACES)) {
                all.addAll(TraceDataEncoder.decoderFromTraceDataString(
                        new String(message.getBody(), StandardCharsets.UTF_8)));
            }
        } catch (Exception error) {
            return all;
        }
        return all;
    }
}
