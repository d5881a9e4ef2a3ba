package turbopump.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers: sharing, broadcasting, filtering and order. */
final class Pushing {
    private static final long SHARE_MS = 60_000;
    private static final long DELIVERY_MS = 30_000;
    private static final long QUIET_MS = 1500;
    private static final long LINGER_MS = 120_000;

    private Pushing() {
    }

    static void cluster(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("cluster", 8);
        String group = bench.name("cluster-group");
        List<MessageExt> all = new ArrayList<>();
        Member first = new Member(bench, group, "cluster-1").start(topic, "*");
        Member second = new Member(bench, group, "cluster-2").start(topic, "*");
        try (first) {
            report.check("two members hold four queues each", Bench.within(SHARE_MS, () ->
                    first.queues(topic) == 4 && second.queues(topic) == 4),
                    first.queues(topic) + " and " + second.queues(topic));
            sendRound(bench, topic, 0, 400);
            report.check("all come", Bench.within(DELIVERY_MS,
                    () -> first.count() + second.count() >= 400), "");
            Thread.sleep(QUIET_MS);
            report.equal("half to the first", 200, first.count());
            report.equal("half to the second", 200, second.count());
            second.close();
            report.check("the first takes over the queues of the one that left",
                    Bench.within(SHARE_MS, () -> first.queues(topic) == 8),
                    first.queues(topic) + " queues");
            sendRound(bench, topic, 400, 480);
            report.check("it gets all that follows",
                    Bench.within(DELIVERY_MS, () -> first.count() == 280), first.count() + "");
            Thread.sleep(QUIET_MS);
            all.addAll(first.received());
            all.addAll(second.received());
            report.none("nothing lost or doubled", Letters.difference(0, 480, all));
            report.none("content is as sent", Letters.flaws(topic, all));
            report.equal("the offsets are committed", Collections.nCopies(8, 60L),
                    first.committed(bench.queues(topic)));
        }
        successor(bench, report, topic, group);
    }

    private static void successor(Bench bench, Report report, String topic, String group)
            throws Exception {
        try (Member third = new Member(bench, group, "cluster-3").start(topic, "*")) {
            report.check("a later member gets all queues",
                    Bench.within(SHARE_MS, () -> third.queues(topic) == 8), "");
            Thread.sleep(QUIET_MS);
            report.equal("and nothing of the past", 0, third.count());
            sendRound(bench, topic, 480, 500);
            report.check("and what is new", Bench.within(DELIVERY_MS, () -> third.count() == 20),
                    third.count() + "");
            report.none("as sent", Letters.difference(480, 500, third.received()));
        }
    }

    private static void sendRound(Bench bench, String topic, int from, int to) throws Exception {
        List<MessageQueue> queues = bench.queues(topic);
        for (Message message : Letters.letters(topic, from, to)) {
            bench.producer().send(message, queues.get(Letters.number(message) % queues.size()));
        }
    }

    /** Stays online until an operator's tool has made it consume all messages twice. */
    static void linger(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("linger", 4);
        try (Member member = new Member(bench, bench.name("linger-group"), "linger")
                .start(topic, "*")) {
            sendRound(bench, topic, 0, 40);
            report.check("all come", Bench.within(DELIVERY_MS, () -> member.count() == 40), "");
            Thread.sleep(QUIET_MS);
            report.equal("the offsets are committed", Collections.nCopies(4, 10L),
                    member.committed(bench.queues(topic)));
            report.check("all come again after a reset", Bench.within(LINGER_MS,
                    () -> member.count() == 80), member.count() + "");
            Thread.sleep(QUIET_MS);
            List<MessageExt> again = member.received().subList(40, member.count());
            report.none("each once", Letters.difference(0, 40, again));
        }
    }

    static void broadcast(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("broadcast", 4);
        String group = bench.name("broadcast-group");
        sendRound(bench, topic, 0, 40);
        Member first = new Member(bench, group, "broadcast-1");
        Member second = new Member(bench, group, "broadcast-2");
        Moved.broadcast(first.consumer());
        Moved.broadcast(second.consumer());
        try (first; second) {
            first.start(topic, "*");
            second.start(topic, "*");
            report.check("each member holds all queues", Bench.within(SHARE_MS, () ->
                    first.queues(topic) == 4 && second.queues(topic) == 4), "");
            sendRound(bench, topic, 40, 120);
            report.check("each gets all", Bench.within(DELIVERY_MS,
                    () -> first.count() >= 120 && second.count() >= 120),
                    first.count() + " and " + second.count());
            Thread.sleep(QUIET_MS);
            report.none("the first each once", Letters.difference(0, 120, first.received()));
            report.none("the second each once", Letters.difference(0, 120, second.received()));
            report.none("content is as sent", Letters.flaws(topic, second.received()));
        }
    }

    /** Filters by tags; Aa and BB have the same hash, and the broker's queues store only hashes. */
    static void tags(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("tags", 2);
        String[] tags = {"TagA", "TagB", "Aa", "BB", null};
        List<MessageQueue> queues = bench.queues(topic);
        for (int number = 0; number < 100; number++) {
            bench.producer().send(Letters.letter(topic, number, tags[number % tags.length]),
                    queues.get(number % 2));
        }
        try (Member some = new Member(bench, bench.name("tags-some"), "tags-1");
                Member every = new Member(bench, bench.name("tags-every"), "tags-2")) {
            some.start(topic, "TagA || Aa");
            every.start(topic, "*");
            report.check("all that match come", Bench.within(DELIVERY_MS,
                    () -> some.count() >= 40 && every.count() >= 100),
                    some.count() + " and " + every.count());
            Thread.sleep(QUIET_MS);
            report.none("the star gets everything once",
                    Letters.difference(0, 100, every.received()));
            Map<String, Integer> counts = new HashMap<>();
            List<String> flaws = new ArrayList<>();
            for (MessageExt message : some.received()) {
                counts.merge(message.getTags(), 1, Integer::sum);
                String flaw = Letters.flaw(topic, message, tags[Letters.number(message) % 5]);
                if (flaw != null) {
                    flaws.add(flaw);
                }
            }
            report.equal("exactly the two tags come", Map.of("TagA", 20, "Aa", 20), counts);
            report.none("content is as sent", flaws);
        }
        PullResult nothing = bench.reader().pull(queues.get(0), "NoSuchTag", 0, 32);
        report.equal("a tag that no message has: no match", PullStatus.NO_MATCHED_MSG,
                nothing.getPullStatus());
        report.check("and the reader is sent on", nothing.getNextBeginOffset() > 0,
                nothing.toString());
    }

    static void ordered(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("ordered", 4);
        String group = bench.name("ordered-group");
        int keys = 12;
        int each = 25;
        Map<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
        Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
        List<String> flaws = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger suspended = new AtomicInteger();
        Predicate<MessageExt> judge = message -> {
            AtomicInteger busy = inside.computeIfAbsent(message.getQueueId(),
                    id -> new AtomicInteger());
            if (busy.incrementAndGet() != 1) {
                flaws.add("two at once in queue " + message.getQueueId());
            }
            try {
                int number = Letters.number(message);
                if (number == 5 * keys + 3 && suspended.getAndIncrement() < 2) {
                    return false;
                }
                seen.computeIfAbsent(number % keys, key -> new ArrayList<>()).add(number / keys);
                return true;
            } finally {
                busy.decrementAndGet();
            }
        };
        try (Member first = new Member(bench, group, "ordered-1").startOrdered(topic, judge);
                Member second = new Member(bench, group, "ordered-2").startOrdered(topic, judge)) {
            report.check("two members hold two queues each", Bench.within(SHARE_MS, () -> {
                first.rebalance();
                second.rebalance();
                return first.queues(topic) == 2 && second.queues(topic) == 2;
            }), first.queues(topic) + " and " + second.queues(topic));
            for (Message message : Letters.letters(topic, 0, keys * each)) {
                bench.producer().send(message, (queues, sent, key) ->
                        queues.get((Integer) key % queues.size()), Letters.number(message) % keys);
            }
            report.check("all come", Bench.within(DELIVERY_MS,
                    () -> first.count() + second.count() >= keys * each),
                    first.count() + " and " + second.count());
            Thread.sleep(QUIET_MS);
            report.equal("half to each", first.count(), second.count());
            List<MessageExt> all = first.received();
            all.addAll(second.received());
            report.none("nothing lost or doubled", Letters.difference(0, keys * each, all));
            report.none("content is as sent", Letters.flaws(topic, all));
        }
        flaws.addAll(disorder(seen, each));
        report.none("each key in its order, one at a time", flaws);
        report.equal("a suspended message comes again first", 3, suspended.get());
    }

    private static Collection<String> disorder(Map<Integer, List<Integer>> seen, int each) {
        List<String> flaws = new ArrayList<>();
        seen.forEach((key, order) -> {
            for (int i = 0; i < each; i++) {
                if (i >= order.size() || order.get(i) != i) {
                    flaws.add("key " + key + ": " + order);
                    return;
                }
            }
        });
        return flaws;
    }
}
