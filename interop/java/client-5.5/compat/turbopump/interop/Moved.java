package turbopump.interop;

import java.util.HashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** The calls whose classes or arguments changed between 4.9 and 5.x, for the client of 5.5. */
final class Moved {
    static final boolean RECALLS = true;
    private static final long TIMEOUT_MS = 5_000;

    private Moved() {
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    /** Makes a consumer query a broker for its queues. */
    static void askBroker(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
    }

    /** Makes a client connect to all servers through a SOCKS proxy. */
    static void proxy(DefaultMQPushConsumer consumer, String address) {
        consumer.setSocksProxyConfig("{\"0.0.0.0/0\":{\"addr\":\"" + address + "\"}}");
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues)
            throws MQClientException {
        producer.createTopic("TBW102", topic, queues, new HashMap<>());
    }

    /** Makes the broker assign the queues of the group, and the group pop its messages. */
    static void pop(DefaultMQPushConsumer consumer, DefaultMQProducer producer, MessageQueue queue,
            long invisibleMs) throws Exception {
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(invisibleMs);
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(queue.getTopic());
        String address = client.findBrokerAddressInPublish(queue.getBrokerName());
        client.getMQClientAPIImpl().setMessageRequestMode(address, queue.getTopic(),
                consumer.getConsumerGroup(), MessageRequestMode.POP, 0, TIMEOUT_MS);
    }

    static String handle(SendResult sent) {
        return sent.getRecallHandle();
    }

    static String recall(DefaultMQProducer producer, String topic, String handle)
            throws Exception {
        return producer.recallMessage(topic, handle);
    }
}
