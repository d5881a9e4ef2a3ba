package turbopump.interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers: the lite pull consumer, the plain pull consumer, and their queries. */
final class Pulling {
    private static final long POLL_MS = 500;
    private static final long FETCH_MS = 60_000;

    private Pulling() {
    }

    static void liteSubscribe(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("lite", 4);
        String group = bench.name("lite-group");
        send(bench, topic, 0, 60);
        DefaultLitePullConsumer first = lite(bench, group, "lite-1", topic);
        try {
            List<MessageExt> got = poll(first, 60);
            report.none("all come once", Letters.difference(0, 60, got));
            report.none("content is as sent", Letters.flaws(topic, got));
            report.none("each queue in order", disorder(got));
            first.commitSync();
            report.check("the commit is kept", Bench.within(FETCH_MS, () -> committed(bench, first,
                    topic) == 60), "committed " + committed(bench, first, topic));
        } finally {
            first.shutdown();
        }
        send(bench, topic, 60, 80);
        DefaultLitePullConsumer second = lite(bench, group, "lite-2", topic);
        try {
            List<MessageExt> got = poll(second, 20);
            report.none("the next one goes on where the first stopped",
                    Letters.difference(60, 80, got));
        } finally {
            second.shutdown();
        }
    }

    private static DefaultLitePullConsumer lite(Bench bench, String group, String instance,
            String topic) throws MQClientException {
        DefaultLitePullConsumer consumer = bench.newLitePull(group, instance);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullThreadNums(4);
        consumer.subscribe(topic, "*");
        consumer.start();
        return consumer;
    }

    private static long committed(Bench bench, DefaultLitePullConsumer consumer, String topic) {
        long sum = 0;
        for (MessageQueue queue : bench.queues(topic)) {
            try {
                Long offset = consumer.committed(queue);
                sum += offset == null ? -1 : offset;
            } catch (MQClientException error) {
                return -1;
            }
        }
        return sum;
    }

    /** Polls until `count` messages have arrived and another poll returns nothing. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> got = new ArrayList<>();
        long deadline = System.currentTimeMillis() + FETCH_MS;
        boolean quiet = false;
        while (!(quiet && got.size() >= count) && System.currentTimeMillis() < deadline) {
            List<MessageExt> some = consumer.poll(POLL_MS);
            got.addAll(some);
            quiet = some.isEmpty();
        }
        return got;
    }

    private static List<String> disorder(List<MessageExt> got) {
        Map<Integer, Long> last = new HashMap<>();
        List<String> flaws = new ArrayList<>();
        for (MessageExt message : got) {
            Long before = last.put(message.getQueueId(), message.getQueueOffset());
            if (message.getQueueOffset() != (before == null ? 0 : before + 1)) {
                flaws.add(message.getQueueOffset() + " after " + before);
            }
        }
        return flaws;
    }

    static void liteAssign(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("assign", 2);
        send(bench, topic, 0, 50);
        DefaultLitePullConsumer consumer = bench.newLitePull(bench.name("assign-group"), "assign");
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
            report.equal("the queues are known", 2, queues.size());
            consumer.assign(queues);
            List<MessageExt> got = poll(consumer, 50);
            report.none("all come once", Letters.difference(0, 50, got));
            report.none("content is as sent", Letters.flaws(topic, got));
            consumer.seekToBegin(queues.get(1));
            report.equal("again from the beginning of one", 25, poll(consumer, 25).size());
            consumer.seek(queues.get(0), 20);
            report.equal("again from place 20 of the other", 5, poll(consumer, 5).size());
            consumer.seekToEnd(queues.get(1));
            report.equal("nothing at the end", 0, poll(consumer, 0).size());
        } finally {
            consumer.shutdown();
        }
    }

    static void pull(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("pull", 1);
        MessageQueue queue = bench.queues(topic).get(0);
        DefaultMQPullConsumer reader = bench.reader();
        report.equal("an empty queue has nothing new", PullStatus.NO_NEW_MSG,
                reader.pull(queue, "*", 0, 32).getPullStatus());
        CompletableFuture<Long> arrived = new CompletableFuture<>();
        CompletableFuture<PullResult> waited = CompletableFuture.supplyAsync(() -> {
            try {
                PullResult result = reader.pullBlockIfNotFound(queue, "*", 0, 32);
                arrived.complete(System.currentTimeMillis());
                return result;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        Thread.sleep(1000);
        report.check("a long poll waits", !waited.isDone(), "it was answered");
        send(bench, topic, 0, 1);
        PullResult result = waited.get(20, TimeUnit.SECONDS);
        MessageExt message = result.getMsgFoundList().get(0);
        long late = arrived.get() - message.getStoreTimestamp();
        report.check("and is answered when a message comes", late < 1000, late + " ms later");
        report.equal("with the next place", 1L, result.getNextBeginOffset());
        send(bench, topic, 1, 100);
        Bench.await("the last message", 10_000, () -> max(reader, queue) == 100);
        PullResult ten = reader.pull(queue, "*", 5, 10);
        report.equal("as many as requested", 10, ten.getMsgFoundList().size());
        report.none("from the requested offset", Letters.difference(5, 15, ten.getMsgFoundList()));
        report.equal("the largest offset is given", 100L, ten.getMaxOffset());
        report.equal("at the end nothing is new", PullStatus.NO_NEW_MSG,
                reader.pull(queue, "*", 100, 32).getPullStatus());
        PullResult beyond = reader.pull(queue, "*", 200, 32);
        report.equal("beyond it the offset is illegal", PullStatus.OFFSET_ILLEGAL,
                beyond.getPullStatus());
        report.equal("and the right one is given", 100L, beyond.getNextBeginOffset());
    }

    private static long max(DefaultMQPullConsumer reader, MessageQueue queue) {
        try {
            return reader.maxOffset(queue);
        } catch (MQClientException error) {
            return -1;
        }
    }

    static void offsets(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("offsets", 1);
        MessageQueue queue = bench.queues(topic).get(0);
        DefaultMQPullConsumer reader = bench.reader();
        report.equal("empty: max", 0L, reader.maxOffset(queue));
        for (int number = 0; number < 10; number++) {
            send(bench, topic, number, number + 1);
            Thread.sleep(20);
        }
        List<MessageExt> got = bench.readUntil(topic, 10);
        report.equal("min", 0L, reader.minOffset(queue));
        report.equal("max", 10L, reader.maxOffset(queue));
        report.equal("earliest store time", got.get(0).getStoreTimestamp(),
                reader.earliestMsgStoreTime(queue));
        report.equal("by the time of a message", 5L,
                reader.searchOffset(queue, got.get(5).getStoreTimestamp()));
        report.equal("by the millisecond after it", 6L,
                reader.searchOffset(queue, got.get(5).getStoreTimestamp() + 1));
        report.equal("by a time before all", 0L,
                reader.searchOffset(queue, got.get(0).getStoreTimestamp() - 60_000));
        report.equal("by a time after all", 10L,
                reader.searchOffset(queue, System.currentTimeMillis() + 60_000));
        reader.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, 7, false);
        report.equal("a committed offset is kept", 7L, reader.fetchConsumeOffset(queue, true));
    }

    private static void send(Bench bench, String topic, int from, int to) throws Exception {
        List<MessageQueue> queues = bench.queues(topic);
        for (Message message : Letters.letters(topic, from, to)) {
            bench.producer().send(message, queues.get(Letters.number(message) % queues.size()));
        }
    }
}
