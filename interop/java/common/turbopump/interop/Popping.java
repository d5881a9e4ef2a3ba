package turbopump.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers in mode POP: messages that they handle, refuse, or leave open. */
final class Popping {
    private static final int DIED = 3;
    private static final int THREADS = 64;
    private static final int QUEUES = 4;
    private static final int COUNT = 200;
    private static final int REFUSED = 7;
    private static final int SLOW = 11;
    private static final long INVISIBLE_MS = 5_000;
    private static final long OPEN_MS = 12_000;
    private static final long SLOW_MS = 9_000;
    private static final long DELIVERY_MS = 40_000;
    private static final long QUIET_MS = 8_000;
    private static final int LEVEL = 1;

    private Popping() {
    }

    /** Two members: a letter is refused once, another is handled beyond its invisible time. */
    static void shared(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("pop", QUEUES);
        String group = bench.name("pop-group");
        Map<Integer, AtomicInteger> seen = new ConcurrentHashMap<>();
        List<Long> refusedAt = new ArrayList<>();
        Function<MessageExt, Integer> judge = message -> {
            int number = Letters.number(message);
            int times = seen.computeIfAbsent(number, key -> new AtomicInteger()).incrementAndGet();
            if (number == REFUSED) {
                refusedAt.add(System.currentTimeMillis());
                return times == 1 ? LEVEL : 0;
            }
            if (number == SLOW && times == 1) {
                sleep(SLOW_MS);
            }
            return 0;
        };
        try (Member first = popping(bench, group, topic, "pop-1", INVISIBLE_MS);
                Member second = popping(bench, group, topic, "pop-2", INVISIBLE_MS)) {
            first.start(topic, "*", judge);
            second.start(topic, "*", judge);
            send(bench, topic, COUNT);
            report.check("all come", Bench.within(DELIVERY_MS,
                    () -> seen.size() == COUNT), seen.size() + "");
            report.check("and the two once more", Bench.within(DELIVERY_MS,
                    () -> first.count() + second.count() >= COUNT + 2),
                    first.count() + second.count() + "");
            Thread.sleep(QUIET_MS);
            List<String> flaws = new ArrayList<>();
            seen.forEach((number, times) -> {
                int expected = number == REFUSED || number == SLOW ? 2 : 1;
                if (times.get() != expected) {
                    flaws.add(number + " came " + times + " times");
                }
            });
            report.none("nothing else comes twice", flaws);
            List<MessageExt> all = first.received();
            all.addAll(second.received());
            report.none("content is as sent", Letters.flaws(topic, all));
            List<Integer> retries = new ArrayList<>();
            for (MessageExt message : all) {
                if (Letters.number(message) == REFUSED) {
                    retries.add(message.getReconsumeTimes());
                }
            }
            retries.sort(null);
            report.equal("a refused letter counts how often it came", List.of(0, 1), retries);
            report.check("both members have some", first.count() > 0 && second.count() > 0,
                    first.count() + " and " + second.count());
            long waited = refusedAt.size() < 2 ? 0 : refusedAt.get(1) - refusedAt.get(0);
            report.check("it comes after the time that the client asked for, 30 s",
                    waited >= 29_900 && waited < 37_000, waited + " ms");
        }
    }

    /** Argument: the count. Handles even numbers, and dies without acknowledging the odd ones. */
    static void leave(Bench bench, Report report, String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        String topic = bench.topic("pop-move", QUEUES);
        send(bench, topic, count);
        CountDownLatch all = new CountDownLatch(count);
        Member member = popping(bench, bench.name("pop-move-group"), topic, "pop-leave", OPEN_MS);
        member.start(topic, "*", message -> {
            all.countDown();
            if (Letters.number(message) % 2 == 1) {
                sleep(DELIVERY_MS * 2);
            }
            return 0;
        });
        all.await();
        Thread.sleep(2_000);
        Runtime.getRuntime().halt(DIED);
    }

    /** Argument: the count of `leave`. The odd numbers arrive, and no others. */
    static void goOn(Bench bench, Report report, String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        String topic = bench.name("pop-move");
        Bench.await("the route", 20_000, () -> bench.queues(topic).size() == QUEUES);
        try (Member member = popping(bench, bench.name("pop-move-group"), topic, "pop-go-on",
                OPEN_MS)) {
            member.start(topic, "*");
            report.check("what was left comes", Bench.within(DELIVERY_MS,
                    () -> member.count() >= count / 2), member.count() + "");
            Thread.sleep(QUIET_MS);
            List<String> flaws = new ArrayList<>();
            for (MessageExt message : member.received()) {
                if (Letters.number(message) % 2 == 0) {
                    flaws.add("handled, and came again: " + Letters.number(message));
                }
            }
            report.none("nothing that was acknowledged comes", flaws);
            report.equal("each once", count / 2, member.count());
            report.none("content is as sent", Letters.flaws(topic, member.received()));
        }
    }

    private static Member popping(Bench bench, String group, String topic, String instance,
            long invisibleMs) throws Exception {
        Member member = new Member(bench, group, instance);
        member.consumer().setConsumeThreadMax(THREADS);
        member.consumer().setConsumeThreadMin(THREADS);
        Moved.pop(member.consumer(), bench.producer(), bench.queues(topic).get(0), invisibleMs);
        return member;
    }

    private static void send(Bench bench, String topic, int count) throws Exception {
        List<MessageQueue> queues = bench.queues(topic);
        for (Message message : Letters.letters(topic, 0, count)) {
            bench.producer().send(message, queues.get(Letters.number(message) % queues.size()));
        }
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
