package turbopump.interop;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** The calls whose classes or arguments changed between 4.9 and 5.x, for the client of 4.9. */
final class Moved {
    static final boolean RECALLS = false;

    private Moved() {
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    /** Not supported: clients of 4.9 always compute their shares themselves. */
    static void askBroker(DefaultMQPushConsumer consumer) {
        throw new UnsupportedOperationException("4.9 does not ask brokers");
    }

    static void proxy(DefaultMQPushConsumer consumer, String address) {
        throw new UnsupportedOperationException("clients here are reached directly");
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues)
            throws MQClientException {
        producer.createTopic("TBW102", topic, queues);
    }

    static void pop(DefaultMQPushConsumer consumer, DefaultMQProducer producer, MessageQueue queue,
            long invisibleMs) {
        throw new UnsupportedOperationException("4.9 has no pop");
    }

    static String handle(SendResult sent) {
        throw new UnsupportedOperationException("4.9 has no recalls");
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) {
        throw new UnsupportedOperationException("4.9 has no recalls");
    }
}
