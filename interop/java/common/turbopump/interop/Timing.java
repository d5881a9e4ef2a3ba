package turbopump.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Timers: accepted and refused delivery times. */
final class Timing {
    private static final long LATE_MS = 4_000; // RocketMQ reads a slot after its second has passed
    private static final long FAR_MS = 4L * 24 * 3_600_000;
    private static final long RECALLED_MS = 5_000;
    private static final int ILLEGAL = 13;
    private static final String SECONDS = "TIMER_DELAY_SEC";
    private static final String DELAY = "TIMER_DELAY_MS";
    private static final String DELIVER = "TIMER_DELIVER_MS";

    private Timing() {
    }

    private static Message with(Message message, Object... properties) {
        for (int i = 0; i < properties.length; i += 2) {
            MessageAccessor.putProperty(message, (String) properties[i], "" + properties[i + 1]);
        }
        return message;
    }

    /** Sends each property, two at once, past times and refused values, and recalls a timer. */
    static void all(Bench bench, Report report, String... none) throws Exception {
        String topic = bench.topic("timers", 1);
        DefaultMQProducer producer = bench.producer();
        Map<Integer, Long> due = new HashMap<>();
        long far = 60_000;
        Object[][] cases = {
            {3_000L, DELIVER, "at 3000"},
            {3_000L, DELAY, 3_000},
            {3_000L, SECONDS, 3},
            {2_000L, SECONDS, 2, DELAY, far, DELIVER, "at " + far},
            {2_000L, DELAY, 2_000, DELIVER, "at " + far},
            {1_000L, "DELAY", 1, DELIVER, "at " + far},
            {0L, DELIVER, "at -10000"},
            {0L, DELIVER, -1},
            {0L, DELAY, 0},
            {0L, SECONDS, 0, DELIVER, "at " + far},
        };
        for (int number = 0; number < cases.length; number++) {
            Object[] one = cases[number].clone();
            long now = System.currentTimeMillis();
            for (int i = 2; i < one.length; i += 2) {
                if (one[i] instanceof String && ((String) one[i]).startsWith("at ")) {
                    one[i] = now + Long.parseLong(((String) one[i]).substring(3));
                }
            }
            due.put(number, now + (Long) one[0]);
            Object[] properties = Arrays.copyOfRange(one, 1, one.length);
            producer.send(with(Letters.letter(topic, number), properties));
        }
        refusals(report, producer, topic);
        long recalledAt = System.currentTimeMillis() + RECALLED_MS;
        recall(bench, report, topic, cases.length, recalledAt);
        List<MessageExt> got = bench.readUntil(topic, cases.length);
        Thread.sleep(Math.max(0, recalledAt + LATE_MS - System.currentTimeMillis()));
        got = bench.readAll(topic);
        report.none("each comes once, what was recalled does not",
                Letters.difference(0, cases.length, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        List<String> wrong = new ArrayList<>();
        for (MessageExt message : got) {
            long late = message.getStoreTimestamp() - due.getOrDefault(Letters.number(message), 0L);
            if (late < 0 || late > LATE_MS) {
                wrong.add(Letters.number(message) + " came " + late + " ms behind its time");
            }
        }
        report.none("each at its time", wrong);
    }

    private static void refusals(Report report, DefaultMQProducer producer, String topic) {
        Object[][] refused = {
            {DELIVER, System.currentTimeMillis() + FAR_MS},
            {DELIVER, Long.MAX_VALUE},
            {DELAY, FAR_MS},
            {SECONDS, FAR_MS / 1000},
            {DELIVER, "soon"},
            {DELAY, "1.5"},
            {DELIVER, "9223372036854775808"},
        };
        List<String> wrong = new ArrayList<>();
        for (Object[] properties : refused) {
            Message message = with(Letters.letter(topic, 1_000), properties);
            Exception error = Bench.error(() -> producer.send(message));
            boolean right = error instanceof MQBrokerException
                    && ((MQBrokerException) error).getResponseCode() == ILLEGAL;
            if (!right) {
                wrong.add(properties[0] + " " + properties[1] + ": " + error);
            }
        }
        report.none("what is too far ahead, or no number, is refused", wrong);
    }

    private static void recall(Bench bench, Report report, String topic, int number, long at)
            throws Exception {
        if (!Moved.RECALLS) {
            return;
        }
        DefaultMQProducer producer = bench.producer();
        SendResult sent = producer.send(with(Letters.letter(topic, number), DELIVER, at));
        String handle = Moved.handle(sent);
        report.check("a timer has a handle", handle != null && !handle.isEmpty(), sent.toString());
        report.equal("a recall names the message", sent.getMsgId(),
                Moved.recall(producer, topic, handle));
        Exception error = Bench.error(() -> Moved.recall(producer, topic, "no handle"));
        report.check("no handle is refused", error != null, "it was taken");
    }
}
