package turbopump.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** A member of a consumer group that keeps its received messages. */
final class Member implements AutoCloseable {
    private static final int THREADS = 4;
    private static final long COMMIT_MS = 500;
    private final DefaultMQPushConsumer consumer;
    private final Queue<MessageExt> received = new ConcurrentLinkedQueue<>();

    Member(Bench bench, String group, String instance) {
        consumer = new DefaultMQPushConsumer(group);
        bench.configure(consumer, instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(THREADS);
        consumer.setConsumeThreadMax(THREADS);
        consumer.setConsumeMessageBatchMaxSize(1);
    }

    DefaultMQPushConsumer consumer() {
        return consumer;
    }

    /** Starts with a listener that accepts everything. */
    Member start(String topic, String tags) throws MQClientException {
        return start(topic, tags, message -> 0);
    }

    /** Starts with a listener that retries at the delay level that `judge` returns; 0 accepts. */
    Member start(String topic, String tags, Function<MessageExt, Integer> judge)
            throws MQClientException {
        MessageListenerConcurrently listener = (messages, context) -> {
            int delayLevel = 0;
            for (MessageExt message : messages) {
                received.add(message);
                delayLevel = Math.max(delayLevel, judge.apply(message));
            }
            if (delayLevel == 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(delayLevel);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        };
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener(listener);
        consumer.start();
        return this;
    }

    /** Starts an ordered listener; a message that `judge` refuses suspends its queue. */
    Member startOrdered(String topic, Predicate<MessageExt> judge) throws MQClientException {
        MessageListenerOrderly listener = (messages, context) -> {
            for (MessageExt message : messages) {
                if (!judge.test(message)) {
                    context.setSuspendCurrentQueueTimeMillis(200);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                received.add(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        };
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return this;
    }

    List<MessageExt> received() {
        return new ArrayList<>(received);
    }

    int count() {
        return received.size();
    }

    /** Returns the number of the topic's queues that this member holds now. */
    int queues(String topic) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    /** Returns the topic's queues that this member holds now. */
    Set<MessageQueue> held(String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic)).collect(Collectors.toSet());
    }

    /** Sends a request to a broker over this client's connection. */
    RemotingCommand ask(String broker, RemotingCommand request, long timeoutMs) throws Exception {
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl()
                .getRemotingClient().invokeSync(broker, request, timeoutMs);
    }

    /** Rebalances now, not at the client's next round (every 20 s). */
    void rebalance() {
        consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
    }

    /**
     * Returns the group's committed offset of each queue. The query overwrites this member's own
     * offsets, so the member commits first and waits: a commit has no response.
     */
    List<Long> committed(List<MessageQueue> queues) throws InterruptedException {
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Thread.sleep(COMMIT_MS);
        List<Long> offsets = new ArrayList<>();
        for (MessageQueue queue : queues) {
            offsets.add(consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
                    .readOffset(queue, ReadOffsetType.READ_FROM_STORE));
        }
        return offsets;
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
