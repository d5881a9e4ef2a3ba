package turbopump.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Push consumers that query brokers for their queues while the mode of assignment changes. */
final class Assigning {
    private static final int QUEUES = 8;
    private static final int SET_MODE = 401;
    private static final int ALL_MODES = 402;
    private static final long SHARE_MS = 60_000;
    private static final long DELIVERY_MS = 30_000;
    private static final long PAUSE_MS = 20;
    private static final long TIMEOUT_MS = 3000;

    private Assigning() {
    }

    /** Arguments: the addresses of all brokers. */
    static void assigned(Bench bench, Report report, String[] brokers) throws Exception {
        String topic = bench.name("assigned");
        String group = bench.name("assigned-group");
        Moved.createTopic(bench.producer(), topic, QUEUES / brokers.length);
        Bench.await("the route", SHARE_MS, () -> bench.queues(topic).size() == QUEUES);
        List<Member> members = new ArrayList<>();
        AtomicBoolean stop = new AtomicBoolean();
        AtomicInteger sent = new AtomicInteger();
        Thread sender = new Thread(() -> send(bench, topic, sent, stop));
        sender.start();
        for (String name : new String[] {"one", "two", "three"}) {
            Member member = new Member(bench, group, "assigned-" + name);
            Moved.askBroker(member.consumer());
            members.add(member.start(topic, "*"));
            int size = members.size();
            report.check(size + " share all queues", settled(topic, members), shares(topic, members));
        }
        boolean isOurs = switchTo(brokers, members.get(0), topic, group,
                "\"rebalance\":\"CLIENT\"");
        Thread.sleep(TIMEOUT_MS);
        report.check("they do in the mode CLIENT", settled(topic, members), shares(topic, members));
        switchTo(brokers, members.get(0), topic, group,
                "\"rebalance\":\"BROKER\",\"strategyName\":\"STICKY\"");
        Thread.sleep(TIMEOUT_MS);
        report.check("and in the mode BROKER", settled(topic, members), shares(topic, members));
        Member first = members.remove(0);
        Set<MessageQueue> second = members.get(0).held(topic);
        Set<MessageQueue> third = members.get(1).held(topic);
        first.close();
        report.check("two share what a third had", settled(topic, members),
                shares(topic, members));
        if (isOurs) {
            report.check("and keep what they had", members.get(0).held(topic).containsAll(second)
                    && members.get(1).held(topic).containsAll(third), shares(topic, members));
        }
        stop.set(true);
        sender.join();
        members.add(first);
        report.check("nothing is lost", Bench.within(DELIVERY_MS,
                () -> numbers(members).size() == sent.get()),
                numbers(members).size() + " of " + sent.get());
        for (Member member : members) {
            member.close();
        }
    }

    private static void send(Bench bench, String topic, AtomicInteger sent, AtomicBoolean stop) {
        try {
            while (!stop.get()) {
                List<MessageQueue> queues = bench.queues(topic);
                int number = sent.get();
                byte[] body = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(topic, body);
                bench.producer().send(message, queues.get(number % queues.size()));
                sent.incrementAndGet();
                Thread.sleep(PAUSE_MS);
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static Set<String> numbers(List<Member> members) {
        Set<String> found = new HashSet<>();
        for (Member member : members) {
            for (MessageExt message : member.received()) {
                found.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        return found;
    }

    private static boolean settled(String topic, List<Member> members) throws Exception {
        BooleanSupplier shared = () -> {
            Set<MessageQueue> all = new HashSet<>();
            int total = 0;
            for (Member member : members) {
                Set<MessageQueue> held = member.held(topic);
                total += held.size();
                all.addAll(held);
                if (Math.abs(held.size() * members.size() - QUEUES) >= members.size()) {
                    return false;
                }
            }
            return all.size() == QUEUES && total == QUEUES;
        };
        return Bench.within(SHARE_MS, shared);
    }

    private static String shares(String topic, List<Member> members) {
        StringBuilder text = new StringBuilder();
        for (Member member : members) {
            Set<String> names = new TreeSet<>();
            for (MessageQueue queue : member.held(topic)) {
                names.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
            text.append(names).append(' ');
        }
        return text.toString();
    }

    /** Sends additional JSON members, which RocketMQ ignores; returns whether brokers kept them. */
    private static boolean switchTo(String[] brokers, Member member, String topic, String group,
            String members) throws Exception {
        boolean kept = false;
        for (String broker : brokers) {
            RemotingCommand request = RemotingCommand.createRequestCommand(SET_MODE, null);
            String body = "{\"topic\":\"" + topic + "\",\"consumerGroup\":\"" + group
                    + "\",\"mode\":\"PULL\",\"popShareQueueNum\":0," + members + "}";
            request.setBody(body.getBytes(StandardCharsets.UTF_8));
            RemotingCommand answer = member.ask(broker, request, TIMEOUT_MS);
            if (answer.getCode() != 0) {
                throw new IllegalStateException(broker + ": " + answer.getRemark());
            }
            RemotingCommand all = RemotingCommand.createRequestCommand(ALL_MODES, null);
            byte[] modes = member.ask(broker, all, TIMEOUT_MS).getBody();
            kept |= new String(modes, StandardCharsets.UTF_8).contains("\"rebalance\"");
        }
        return kept;
    }
}
