package turbopump.interop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The state that all scenarios of a run share: a producer, a reader that pulls whole topics, unique
 * names, and waiting with a time limit.
 */
final class Bench implements AutoCloseable {
    private static final int POLL_INTERVAL_MS = 1000;
    private final String namesrv;
    private final String prefix;
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer reader;

    Bench(String namesrv, String prefix) throws MQClientException {
        this.namesrv = namesrv;
        this.prefix = prefix;
        this.producer = newProducer("shared");
        this.reader = new DefaultMQPullConsumer(name("reader"));
        configure(reader, "shared");
        reader.start();
    }

    /** Returns the name of a topic or group, with the prefix of this run. */
    String name(String suffix) {
        return prefix + "-" + suffix;
    }

    DefaultMQProducer producer() {
        return producer;
    }

    DefaultMQPullConsumer reader() {
        return reader;
    }

    void configure(ClientConfig client, String instance) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(prefix + "-" + instance);
        client.setPollNameServerInterval(POLL_INTERVAL_MS);
        client.setHeartbeatBrokerInterval(POLL_INTERVAL_MS);
        client.setPersistConsumerOffsetInterval(POLL_INTERVAL_MS);
    }

    DefaultMQProducer newProducer(String instance) throws MQClientException {
        DefaultMQProducer made = new DefaultMQProducer(name(instance + "-producer"));
        configure(made, instance);
        made.setSendMsgTimeout(10_000);
        made.start();
        return made;
    }

    DefaultLitePullConsumer newLitePull(String group, String instance) {
        DefaultLitePullConsumer made = new DefaultLitePullConsumer(group);
        configure(made, instance);
        return made;
    }

    /** Creates a topic of this run and returns its name once its route is known. */
    String topic(String suffix, int queues) throws Exception {
        String topic = name(suffix);
        Moved.createTopic(producer, topic, queues);
        await("the route of " + topic, 15_000, () -> queues(topic).size() == queues);
        return topic;
    }

    /** Returns a topic's queues, sorted by broker and id; empty while the topic has no route. */
    List<MessageQueue> queues(String topic) {
        try {
            Set<MessageQueue> found = reader.fetchSubscribeMessageQueues(topic);
            List<MessageQueue> queues = new ArrayList<>(found);
            queues.sort(Comparator.comparing(MessageQueue::getBrokerName)
                    .thenComparing(MessageQueue::getQueueId));
            return queues;
        } catch (MQClientException noRouteYet) {
            return new ArrayList<>();
        }
    }

    /** Returns all messages of a topic, queue after queue. */
    List<MessageExt> readAll(String topic) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue queue : queues(topic)) {
            all.addAll(readQueue(queue, "*"));
        }
        return all;
    }

    List<MessageExt> readQueue(MessageQueue queue, String tags) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        long at = reader.minOffset(queue);
        long end = reader.maxOffset(queue);
        while (at < end) {
            PullResult result = reader.pull(queue, tags, at, 32);
            if (result.getMsgFoundList() != null) {
                all.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= at) {
                throw new IllegalStateException(queue + " at " + at + " does not move: " + result);
            }
            at = result.getNextBeginOffset();
        }
        return all;
    }

    /** Reads a topic until it has `count` messages: readers may see a message after its send. */
    List<MessageExt> readUntil(String topic, int count) throws Exception {
        long deadline = System.currentTimeMillis() + 20_000;
        List<MessageExt> all = readAll(topic);
        while (all.size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
            all = readAll(topic);
        }
        return all;
    }

    static boolean within(long limitMs, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + limitMs;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    static void await(String what, long limitMs, BooleanSupplier condition)
            throws InterruptedException {
        if (!within(limitMs, condition)) {
            throw new IllegalStateException(what + " did not come within " + limitMs + " ms");
        }
    }

    /** Returns the error that a call throws, or null if it returns. */
    static Exception error(Callable<?> call) {
        try {
            call.call();
            return null;
        } catch (Exception error) {
            return error;
        }
    }

    @Override
    public void close() {
        reader.shutdown();
        producer.shutdown();
    }
}
