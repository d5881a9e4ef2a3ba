package turbopump.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The messages that the scenarios send: message i of a topic is always the same, so that the
 * receiver can check its content without the sender.
 */
final class Letters {
    private static final String[] TAGS = {"TagA", "TagB", "TagC"};

    private Letters() {
    }

    static String tag(int number) {
        return TAGS[number % TAGS.length];
    }

    static byte[] body(String topic, int number) {
        byte[] noise = new byte[new Random(number).nextInt(300)];
        new Random(number * 31L + 7).nextBytes(noise);
        byte[] text = (topic + " letter " + number + " ").getBytes(StandardCharsets.UTF_8);
        byte[] body = Arrays.copyOf(text, text.length + noise.length);
        System.arraycopy(noise, 0, body, text.length, noise.length);
        return body;
    }

    static Message letter(String topic, int number) {
        return letter(topic, number, tag(number));
    }

    static Message letter(String topic, int number, String tag) {
        Message message = new Message(topic, tag, "key-" + number, body(topic, number));
        message.setFlag(number);
        message.putUserProperty("number", Integer.toString(number));
        message.putUserProperty("label", "the label of " + number);
        return message;
    }

    static List<Message> letters(String topic, int from, int to) {
        List<Message> all = new ArrayList<>();
        for (int number = from; number < to; number++) {
            all.add(letter(topic, number));
        }
        return all;
    }

    static int number(Message message) {
        String text = message.getUserProperty("number");
        return text == null ? -1 : Integer.parseInt(text);
    }

    /** Returns the fault of a received letter, or null. The caller defines the expected tag. */
    static String flaw(String sentTo, MessageExt got, String tag) {
        int number = number(got);
        String name = got.getTopic() + " " + got.getQueueId() + "/" + got.getQueueOffset() + " #"
                + number + ": ";
        if (number < 0) {
            return name + "no number property, has " + got.getProperties();
        }
        if (!Arrays.equals(body(sentTo, number), got.getBody())) {
            return name + "another body of " + got.getBody().length;
        }
        if (!Objects.equals(tag, got.getTags())) {
            return name + "tag " + got.getTags() + " instead of " + tag;
        }
        if (!("key-" + number).equals(got.getKeys())) {
            return name + "keys " + got.getKeys();
        }
        if (!("the label of " + number).equals(got.getUserProperty("label"))) {
            return name + "label " + got.getUserProperty("label");
        }
        return got.getFlag() == number ? null : name + "flag " + got.getFlag();
    }

    /** Returns the faults of letters whose tag depends on their number. */
    static List<String> flaws(String topic, Collection<MessageExt> got) {
        List<String> flaws = new ArrayList<>();
        for (MessageExt message : got) {
            String flaw = flaw(topic, message, tag(Math.max(0, number(message))));
            if (flaw != null) {
                flaws.add(flaw);
            }
        }
        return flaws;
    }

    /** Compares the received numbers with from..to-1: lost, doubled and never sent numbers. */
    static List<String> difference(int from, int to, Collection<MessageExt> got) {
        Map<Integer, Integer> counts = new HashMap<>();
        got.forEach(message -> counts.merge(number(message), 1, Integer::sum));
        List<String> flaws = new ArrayList<>();
        for (int number = from; number < to; number++) {
            Integer count = counts.remove(number);
            if (count == null) {
                flaws.add("lost " + number);
            } else if (count != 1) {
                flaws.add(number + " came " + count + " times");
            }
        }
        counts.forEach((number, count) -> flaws.add("not expected " + number + " x" + count));
        return flaws;
    }
}
