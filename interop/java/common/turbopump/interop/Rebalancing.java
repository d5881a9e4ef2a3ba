package turbopump.interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.exception.RemotingSendRequestException;

/**
 * Members of a group and their producer, for the evaluation of rebalancing. They record events as
 * lines of OpenMessaging-Chaos's history, and lines of additional kinds (`own`, `started`).
 */
final class Rebalancing {
    private static final int LOOK_MS = 5;
    private static final int KEYS = 8;

    private Rebalancing() {
    }

    private static final class Lines {
        private final BufferedWriter out;

        Lines(String file) throws IOException {
            out = Files.newBufferedWriter(Paths.get(file));
        }

        synchronized void add(Object... columns) {
            StringBuilder line = new StringBuilder();
            for (Object column : columns) {
                line.append(line.length() == 0 ? "" : "\t").append(column);
            }
            try {
                out.write(line.append('\n').toString());
                out.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Arguments: file, topic, number of members, "broker" or "client" assigns, SOCKS proxy. */
    static void consume(Bench bench, Report report, String[] arguments) throws Exception {
        Lines lines = new Lines(arguments[0]);
        String node = Paths.get(arguments[0]).getFileName().toString();
        String topic = arguments[1];
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            members.add(member(bench, topic, node + "-" + number, arguments, lines));
        }
        List<String> held = new ArrayList<>();
        members.forEach(member -> held.add(""));
        Thread looking = new Thread(() -> look(members, topic, held, lines));
        looking.setDaemon(true);
        looking.start();
        for (DefaultMQPushConsumer member : members) {
            member.start();
            lines.add("started", member.buildMQClientId(), System.currentTimeMillis());
        }
        Thread.currentThread().join();
    }

    private static DefaultMQPushConsumer member(Bench bench, String topic, String name,
            String[] arguments, Lines lines) throws MQClientException {
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(bench.name("group"));
        bench.configure(member, name);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setConsumeThreadMin(1);
        member.setConsumeThreadMax(1);
        member.setConsumeMessageBatchMaxSize(1);
        if (arguments[3].equals("broker")) {
            Moved.askBroker(member);
        }
        Moved.proxy(member, arguments[4]);
        member.subscribe(topic, "*");
        MessageListenerConcurrently listener = (messages, context) -> {
            long now = System.currentTimeMillis();
            for (MessageExt message : messages) {
                lines.add(name, "dequeue", "RESPONSE", "SUCCESS",
                        new String(message.getBody(), StandardCharsets.UTF_8), message.getKeys(),
                        now, 0, place(context.getMessageQueue()),
                        now - message.getBornTimestamp());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        member.registerMessageListener(listener);
        return member;
    }

    /** Records the queues of each member whenever they change. */
    private static void look(List<DefaultMQPushConsumer> members, String topic,
            List<String> held, Lines lines) {
        while (true) {
            for (int at = 0; at < members.size(); at++) {
                DefaultMQPushConsumer member = members.get(at);
                TreeSet<String> places = new TreeSet<>();
                for (Map.Entry<MessageQueue, ProcessQueue> one : member
                        .getDefaultMQPushConsumerImpl().getRebalanceImpl()
                        .getProcessQueueTable().entrySet()) {
                    if (one.getKey().getTopic().equals(topic) && !one.getValue().isDropped()) {
                        places.add(place(one.getKey()));
                    }
                }
                String now = String.join(",", places);
                if (!now.equals(held.get(at))) {
                    held.set(at, now);
                    lines.add("own", member.buildMQClientId(), System.currentTimeMillis(), now);
                }
            }
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }

    private static String place(MessageQueue queue) {
        return queue.getBrokerName() + ":" + queue.getQueueId();
    }

    /** Arguments: file, topic, queues per broker, all queues, ms between sends, ending file. */
    static void send(Bench bench, Report report, String[] arguments) throws Exception {
        Lines lines = new Lines(arguments[0]);
        String topic = arguments[1];
        Moved.createTopic(bench.producer(), topic, Integer.parseInt(arguments[2]));
        int all = Integer.parseInt(arguments[3]);
        Bench.await("the route", 30_000, () -> bench.queues(topic).size() == all);
        List<MessageQueue> queues = bench.queues(topic);
        Path stop = Paths.get(arguments[5]);
        for (int number = 0; !Files.exists(stop); number++) {
            String key = "key-" + number % KEYS;
            send(bench.producer(), queues.get(Math.abs(key.hashCode()) % all), number, key, lines);
            Thread.sleep(Long.parseLong(arguments[4]));
        }
    }

    private static void send(DefaultMQProducer producer, MessageQueue queue, int number, String key,
            Lines lines) {
        byte[] body = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(queue.getTopic(), "", key, body);
        long begun = System.currentTimeMillis();
        lines.add("producer", "enqueue", "REQUEST", number, key, begun, place(queue));
        String outcome = "SUCCESS";
        try {
            producer.send(message, queue);
        } catch (RemotingConnectException | RemotingSendRequestException | MQClientException
                | MQBrokerException | InterruptedException | IllegalStateException refused) {
            outcome = "FAILURE";
        } catch (Exception unknown) {
            outcome = "UNKNOWN";
        }
        long now = System.currentTimeMillis();
        lines.add("producer", "enqueue", "RESPONSE", outcome, number, key, now, now - begun,
                place(queue), -1);
    }
}
