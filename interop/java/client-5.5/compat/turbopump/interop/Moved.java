package turbopump.interop;

import java.util.HashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** The calls whose classes or arguments changed between 4.9 and 5.x: here as 5.x has them. */
final class Moved {
    private Moved() {
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    /** Has a consumer ask a broker for its queues. */
    static void askBroker(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues)
            throws MQClientException {
        producer.createTopic("TBW102", topic, queues, new HashMap<>());
    }
}
