package turbopump.interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Both halves of a store's move: one broker writes the store, another broker opens it. */
final class Exchange {
    private static final int QUEUES = 4;
    private static final int SENDERS = 4;
    private static final int BATCH = 10;
    private static final int COMMITTED = 123;

    private Exchange() {
    }

    private static String topic(Bench bench) {
        return bench.name("exchange");
    }

    /** Arguments: the first number and the end of the numbers; half of them are sent in batches. */
    static void write(Bench bench, Report report, String[] arguments) throws Exception {
        int from = Integer.parseInt(arguments[0]);
        int to = Integer.parseInt(arguments[1]);
        String topic = topic(bench);
        if (bench.queues(topic).isEmpty()) {
            bench.topic("exchange", QUEUES);
        }
        List<MessageQueue> queues = bench.queues(topic);
        List<String> flaws = Collections.synchronizedList(new ArrayList<>());
        ExecutorService senders = Executors.newFixedThreadPool(SENDERS);
        for (int sender = 0; sender < SENDERS; sender++) {
            int mine = sender;
            senders.submit(() -> send(bench, queues.get(mine), from, to, flaws));
        }
        senders.shutdown();
        report.check("all senders end", senders.awaitTermination(120, TimeUnit.SECONDS), "");
        report.none("every send is acknowledged", flaws);
        if (from == 0) {
            commit(bench, queues.get(0));
            report.equal("an offset is committed", (long) COMMITTED,
                    bench.reader().fetchConsumeOffset(queues.get(0), true));
        }
    }

    private static void send(Bench bench, MessageQueue queue, int from, int to,
            List<String> flaws) {
        List<Message> batch = new ArrayList<>();
        boolean batched = queue.getQueueId() % 2 == 1;
        try {
            for (int number = from; number < to; number++) {
                if (number % QUEUES != queue.getQueueId()) {
                    continue;
                }
                batch.add(Letters.letter(queue.getTopic(), number));
                if (batch.size() == (batched ? BATCH : 1)) {
                    flush(bench, batch, queue, flaws);
                }
            }
            if (!batch.isEmpty()) {
                flush(bench, batch, queue, flaws);
            }
        } catch (Exception error) {
            flaws.add(error.toString());
        }
    }

    private static void flush(Bench bench, List<Message> batch, MessageQueue queue,
            List<String> flaws) throws Exception {
        SendStatus status = batch.size() == 1
                ? bench.producer().send(batch.get(0), queue).getSendStatus()
                : bench.producer().send(batch, queue).getSendStatus();
        if (status != SendStatus.SEND_OK) {
            flaws.add(status + " for " + batch);
        }
        batch.clear();
    }

    private static void commit(Bench bench, MessageQueue queue) throws Exception {
        DefaultMQPullConsumer reader = bench.reader();
        // The first pull creates the group; an unknown group cannot commit.
        reader.pull(queue, "*", 0, 1);
        reader.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, COMMITTED, false);
    }

    /** Arguments: the number of messages, and "committed" if the group must have its offset. */
    static void read(Bench bench, Report report, String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        String topic = topic(bench);
        Bench.await("the route", 20_000, () -> bench.queues(topic).size() == QUEUES);
        List<MessageExt> got = bench.readUntil(topic, count);
        report.none("nothing lost or doubled", Letters.difference(0, count, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        report.none("each queue in the order sent", disorder(got));
        MessageQueue third = bench.queues(topic).get(2);
        List<MessageExt> tagged = bench.readQueue(third, "TagB");
        report.check("a tag filters", tagged.stream().allMatch(message ->
                message.getTags().equals("TagB")), "");
        report.equal("and finds all of them", (long) tagged.size(), got.stream()
                .filter(message -> message.getQueueId() == 2 && message.getTags().equals("TagB"))
                .count());
        lookUp(bench, report, topic, got);
        if (arguments[1].equals("committed")) {
            report.equal("the group's offset came along", (long) COMMITTED,
                    bench.reader().fetchConsumeOffset(bench.queues(topic).get(0), true));
        }
    }

    /** Arguments: the numbers of messages before and after, and "committed" as for `read`. */
    static void goOn(Bench bench, Report report, String[] arguments) throws Exception {
        read(bench, report, new String[] {arguments[0], arguments[2]});
        write(bench, report, new String[] {arguments[0], arguments[1]});
        read(bench, report, new String[] {arguments[1], arguments[2]});
    }

    private static List<String> disorder(List<MessageExt> got) {
        List<String> flaws = new ArrayList<>();
        long[] next = new long[QUEUES];
        for (MessageExt message : got) {
            long place = next[message.getQueueId()]++;
            if (message.getQueueOffset() != place
                    || Letters.number(message) != place * QUEUES + message.getQueueId()) {
                flaws.add(message.getQueueId() + "/" + message.getQueueOffset() + " holds "
                        + Letters.number(message));
            }
        }
        return flaws;
    }

    private static void lookUp(Bench bench, Report report, String topic, List<MessageExt> got)
            throws Exception {
        long begin = got.get(0).getStoreTimestamp() - 3_600_000;
        long end = System.currentTimeMillis() + 60_000;
        List<String> flaws = new ArrayList<>();
        for (int i = 0; i < got.size(); i += got.size() / 50) {
            MessageExt message = got.get(i);
            int number = Letters.number(message);
            List<MessageExt> byKey = bench.producer()
                    .queryMessage(topic, "key-" + number, 8, begin, end).getMessageList();
            if (!Letters.difference(number, number + 1, byKey).isEmpty()) {
                flaws.add("key-" + number + " finds " + byKey.size());
            }
            MessageExt byId = bench.producer().viewMessage(topic, message.getMsgId());
            if (Letters.number(byId) != number) {
                flaws.add(message.getMsgId() + " finds " + Letters.number(byId));
            }
        }
        report.none("50 are found by key and by id", flaws);
    }
}
