package turbopump.interop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are delivered later or again: retries, dead letters and delay levels. */
final class Retrying {
    private static final int LEVEL_ONE_SECOND = 1;
    private static final int LEVEL_FIVE_SECONDS = 2;
    private static final long TIMER_SLACK_MS = 150;

    private Retrying() {
    }

    /** Of ten messages, one is always refused and one twice; two retries are allowed. */
    static void retryThenDeadLetter(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("retry", 2);
        String group = bench.name("retry-group");
        Member member = new Member(bench, group, "retry-1");
        member.consumer().setMaxReconsumeTimes(2);
        try (member) {
            member.start(topic, "*", message -> refuses(message) ? LEVEL_ONE_SECOND : 0);
            String retry = "%RETRY%" + group;
            report.check("the group's retry topic is there", Bench.within(15_000,
                    () -> !bench.queues(retry).isEmpty()), "");
            report.equal("with one queue", 1, bench.queues(retry).size());
            report.check("the member holds it", Bench.within(30_000, () -> {
                member.rebalance();
                return member.queues(retry) == 1;
            }), "");
            List<SendResult> sent = new ArrayList<>();
            for (Message message : Letters.letters(topic, 0, 10)) {
                sent.add(bench.producer().send(message));
            }
            report.check("14 deliveries come", Bench.within(40_000, () -> member.count() >= 14),
                    member.count() + "");
            List<MessageExt> dead = deadLetters(bench, report, "%DLQ%" + group);
            report.equal("no more deliveries than 14", 14, member.count());
            judgeDeliveries(report, topic, member.received());
            report.equal("one dead letter", 1, dead.size());
            judgeDeadLetter(report, topic, dead.get(0), sent.get(0));
        }
    }

    private static boolean refuses(MessageExt message) {
        int number = Letters.number(message);
        return number == 0 || number == 1 && message.getReconsumeTimes() < 2;
    }

    private static List<MessageExt> deadLetters(Bench bench, Report report, String topic)
            throws Exception {
        report.check("the dead letter topic is there", Bench.within(20_000,
                () -> !bench.queues(topic).isEmpty()), "");
        List<MessageExt> dead = bench.readUntil(topic, 1);
        Thread.sleep(1500);
        return dead.isEmpty() ? dead : bench.readAll(topic);
    }

    private static void judgeDeliveries(Report report, String topic, List<MessageExt> got) {
        Map<Integer, List<MessageExt>> byNumber = got.stream()
                .collect(Collectors.groupingBy(Letters::number));
        List<String> flaws = new ArrayList<>(Letters.flaws(topic, got));
        byNumber.forEach((number, deliveries) -> {
            deliveries.sort(Comparator.comparing(MessageExt::getReconsumeTimes));
            String tries = deliveries.stream().map(one -> "" + one.getReconsumeTimes())
                    .collect(Collectors.joining(","));
            if (!tries.equals(number < 2 ? "0,1,2" : "0")) {
                flaws.add("message " + number + " was tried at " + tries);
            }
            for (int i = 1; i < deliveries.size(); i++) {
                long wait = deliveries.get(i).getStoreTimestamp()
                        - deliveries.get(i - 1).getStoreTimestamp();
                if (wait < 1000 - TIMER_SLACK_MS) {
                    flaws.add("retry " + i + " of " + number + " after " + wait + " ms");
                }
            }
            if (deliveries.stream().anyMatch(one -> !one.getTopic().equals(topic))) {
                flaws.add("message " + number + " shows another topic");
            }
        });
        report.none("retries are counted, late enough and complete", flaws);
    }

    private static void judgeDeadLetter(Report report, String topic, MessageExt dead,
            SendResult sent) {
        String flaw = Letters.flaw(topic, dead, Letters.tag(0));
        report.check("the dead letter is the refused message", flaw == null, flaw);
        report.equal("it is number 0", 0, Letters.number(dead));
        report.equal("it names the first message", sent.getMsgId(),
                dead.getProperty("UNIQ_KEY"));
        report.equal("and where that lay", sent.getOffsetMsgId(),
                dead.getProperty("ORIGIN_MESSAGE_ID"));
        report.equal("and the topic", topic, dead.getProperty("RETRY_TOPIC"));
    }

    static void delay(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("delay", 2);
        try (Member member = new Member(bench, bench.name("delay-group"), "delay-1")
                .start(topic, "*")) {
            Bench.await("the member's queues", 60_000, () -> member.queues(topic) == 2);
            int[] levels = {0, LEVEL_ONE_SECOND, LEVEL_FIVE_SECONDS};
            for (Message message : Letters.letters(topic, 0, 12)) {
                message.setDelayTimeLevel(levels[Letters.number(message) % levels.length]);
                bench.producer().send(message);
            }
            report.check("all come", Bench.within(30_000, () -> member.count() >= 12),
                    member.count() + "");
            Thread.sleep(1000);
            List<MessageExt> got = member.received();
            report.none("each once", Letters.difference(0, 12, got));
            report.none("content is as sent", Letters.flaws(topic, got));
            long[] least = {0, 1000, 5000};
            List<String> flaws = new ArrayList<>();
            for (MessageExt message : got) {
                long waited = message.getStoreTimestamp() - message.getBornTimestamp();
                long level = least[Letters.number(message) % least.length];
                if (waited < level - TIMER_SLACK_MS || waited > level + 4000) {
                    flaws.add(Letters.number(message) + " after " + waited);
                }
            }
            report.none("each at its time", flaws);
        }
    }
}
