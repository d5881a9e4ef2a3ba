package turbopump.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** All ways to send; each message is read back, and its place, order and content are checked. */
final class Sending {
    private static final int MEBIBYTE = 1 << 20;
    private static final int MESSAGE_ILLEGAL = 13;

    private Sending() {
    }

    static void sync(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("sync", 4);
        List<MessageQueue> queues = bench.queues(topic);
        long[] next = new long[queues.size()];
        List<String> flaws = new ArrayList<>();
        List<SendResult> results = new ArrayList<>();
        for (int number = 0; number < 80; number++) {
            MessageQueue queue = queues.get(number % queues.size());
            SendResult sent = bench.producer().send(Letters.letter(topic, number), queue);
            results.add(sent);
            if (sent.getSendStatus() != SendStatus.SEND_OK || !sent.getMessageQueue().equals(queue)
                    || sent.getQueueOffset() != next[queue.getQueueId()]++) {
                flaws.add(sent.toString());
            }
        }
        report.none("each send is OK and takes the next place of its queue", flaws);
        List<MessageExt> got = bench.readUntil(topic, 80);
        report.none("all are there once", Letters.difference(0, 80, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        report.none("place and ids are those of the answer", misplaced(results, got));
    }

    private static List<String> misplaced(List<SendResult> results, List<MessageExt> got) {
        List<String> flaws = new ArrayList<>();
        for (MessageExt message : got) {
            SendResult sent = results.get(Letters.number(message));
            boolean same = sent.getQueueOffset() == message.getQueueOffset()
                    && sent.getMessageQueue().getQueueId() == message.getQueueId()
                    && sent.getMsgId().equals(message.getMsgId())
                    && message.getReconsumeTimes() == 0
                    && message.getBornHostString() != null
                    && message.getStoreTimestamp() + 60_000 > message.getBornTimestamp()
                    && message.getBrokerName().equals(sent.getMessageQueue().getBrokerName());
            if (!same) {
                flaws.add(sent + " but " + message);
            }
        }
        return flaws;
    }

    static void async(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("async", 4);
        int count = 300;
        CountDownLatch answered = new CountDownLatch(count);
        Map<String, SendResult> results = new ConcurrentHashMap<>();
        List<String> flaws = Collections.synchronizedList(new ArrayList<>());
        for (Message message : Letters.letters(topic, 0, count)) {
            bench.producer().send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    results.put(sent.getMsgId(), sent);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    flaws.add(error.toString());
                    answered.countDown();
                }
            });
        }
        report.check("every send is answered", answered.await(20, TimeUnit.SECONDS),
                answered.getCount() + " are not");
        report.none("no send failed", flaws);
        report.equal("every answer has its own id", count, results.size());
        List<MessageExt> got = bench.readUntil(topic, count);
        report.none("all are there once", Letters.difference(0, count, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        report.check("places are those of the answers", got.stream().allMatch(message ->
                results.get(message.getMsgId()).getQueueOffset() == message.getQueueOffset()), "");
    }

    static void oneway(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("oneway", 2);
        MessageQueue queue = bench.queues(topic).get(1);
        for (Message message : Letters.letters(topic, 0, 100)) {
            bench.producer().sendOneway(message, queue);
        }
        List<MessageExt> got = bench.readUntil(topic, 100);
        report.none("all are there once", Letters.difference(0, 100, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        report.check("all went to the requested queue",
                got.stream().allMatch(message -> message.getQueueId() == 1), "");
    }

    static void batch(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("batch", 2);
        MessageQueue queue = bench.queues(topic).get(0);
        SendResult first = bench.producer().send(Letters.letters(topic, 0, 32), queue);
        SendResult second = bench.producer().send(Letters.letters(topic, 32, 40), queue);
        report.equal("the first batch is OK", SendStatus.SEND_OK, first.getSendStatus());
        report.equal("its place is that of its first message", 0L, first.getQueueOffset());
        report.equal("it has an id for each message", 32, first.getMsgId().split(",").length);
        report.equal("and an offset id for each", 32, first.getOffsetMsgId().split(",").length);
        report.equal("the second batch follows", 32L, second.getQueueOffset());
        List<MessageExt> got = bench.readUntil(topic, 40);
        report.none("all are there once", Letters.difference(0, 40, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        report.check("in the order of the batches", inOrder(got), got.toString());
        report.equal("the ids are those of the answer", Arrays.asList(first.getMsgId().split(",")),
                ids(got.subList(0, 32)));
        report.equal("a message of the batch is found by its offset id", 7,
                Letters.number(bench.producer()
                        .viewMessage(topic, first.getOffsetMsgId().split(",")[7])));
    }

    private static boolean inOrder(List<MessageExt> got) {
        for (int i = 0; i < got.size(); i++) {
            if (Letters.number(got.get(i)) != i || got.get(i).getQueueOffset() != i) {
                return false;
            }
        }
        return true;
    }

    private static List<String> ids(List<MessageExt> messages) {
        List<String> ids = new ArrayList<>();
        messages.forEach(message -> ids.add(message.getMsgId()));
        return ids;
    }

    /** The first send to an unknown topic creates it. */
    static void autoTopic(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.name("auto");
        for (Message message : Letters.letters(topic, 0, 20)) {
            report.equal("send " + Letters.number(message), SendStatus.SEND_OK,
                    bench.producer().send(message).getSendStatus());
        }
        report.check("the route of the topic comes",
                Bench.within(15_000, () -> !bench.queues(topic).isEmpty()), "");
        report.equal("it has the queues the producer asks for",
                bench.producer().getDefaultTopicQueueNums(), bench.queues(topic).size());
        List<MessageExt> got = bench.readUntil(topic, 20);
        report.none("all are there once", Letters.difference(0, 20, got));
        report.none("content is as sent", Letters.flaws(topic, got));
        Exception refused = Bench.error(() ->
                bench.producer().send(new Message(bench.name("no good name!"), new byte[] {1})));
        report.check("a bad topic name is refused", refused != null, "it was accepted");
    }

    static void big(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("big", 1);
        MessageQueue queue = bench.queues(topic).get(0);
        DefaultMQProducer producer = bench.newProducer("big");
        try {
            producer.setMaxMessageSize(16 * MEBIBYTE);
            producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            byte[] limit = new byte[4 * MEBIBYTE];
            new Random(4).nextBytes(limit);
            SendResult sent = producer.send(new Message(topic, "Big", "big", limit), queue);
            report.equal("4 MiB are accepted", SendStatus.SEND_OK, sent.getSendStatus());
            Exception refused = Bench.error(() -> producer.send(
                    new Message(topic, new byte[4 * MEBIBYTE + 1]), queue));
            report.check("one byte more is refused with MESSAGE_ILLEGAL",
                    refused instanceof MQBrokerException && ((MQBrokerException) refused)
                            .getResponseCode() == MESSAGE_ILLEGAL, "" + refused);
            producer.setCompressMsgBodyOverHowmuch(4096);
            byte[] text = new byte[2 * MEBIBYTE];
            Arrays.fill(text, (byte) 'x');
            producer.send(new Message(topic, "Big", "text", text), queue);
            List<MessageExt> got = bench.readUntil(topic, 2);
            report.equal("both are there", 2, got.size());
            report.check("the 4 MiB are as sent", Arrays.equals(limit, got.get(0).getBody()), "");
            report.check("the compressed text is as sent",
                    Arrays.equals(text, got.get(1).getBody()), "");
            report.check("it was stored compressed", got.get(1).getStoreSize() < MEBIBYTE,
                    got.get(1).getStoreSize() + " bytes");
            MessageExt looked = producer.viewMessage(topic, sent.getOffsetMsgId());
            report.check("it is found by id", Arrays.equals(limit, looked.getBody()), "");
            pushed(bench, report, topic, limit);
        } finally {
            producer.shutdown();
        }
    }

    private static void pushed(Bench bench, Report report, String topic, byte[] limit)
            throws Exception {
        try (Member member = new Member(bench, bench.name("big-group"), "big-member")
                .start(topic, "*")) {
            report.check("a push consumer gets both",
                    Bench.within(40_000, () -> member.count() == 2), member.count() + " came");
            report.check("with the 4 MiB as sent", member.received().stream().anyMatch(message ->
                    Arrays.equals(limit, message.getBody())), "");
        }
    }
}
