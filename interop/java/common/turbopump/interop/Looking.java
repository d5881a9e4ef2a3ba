package turbopump.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Queries by key and id, and text that is not ASCII in all fields that may have it. */
final class Looking {
    private static final int NO_MESSAGE = 208;
    private static final String[] TAGS = {"标签甲", "标签乙", "タグ"};

    private Looking() {
    }

    static void query(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("query", 4);
        String other = bench.topic("query-other", 1);
        long begin = System.currentTimeMillis() - 60_000;
        List<SendResult> sent = new ArrayList<>();
        for (Message message : Letters.letters(topic, 0, 30)) {
            message.setKeys("common key-" + Letters.number(message));
            sent.add(bench.producer().send(message));
        }
        Message stranger = Letters.letter(other, 99);
        stranger.setKeys("common");
        bench.producer().send(stranger);
        long end = System.currentTimeMillis() + 60_000;

        report.check("30 by the common key", Bench.within(10_000, () ->
                find(bench, topic, "common", 64, begin, end).size() == 30), "");
        List<MessageExt> all = find(bench, topic, "common", 64, begin, end);
        report.none("all of the topic once", Letters.difference(0, 30, all));
        report.equal("no more than asked for", 10,
                find(bench, topic, "common", 10, begin, end).size());
        List<MessageExt> one = find(bench, topic, "key-7", 64, begin, end);
        report.none("one by its own key", Letters.difference(7, 8, one));
        report.equal("a window of time without it", 0,
                find(bench, topic, "key-7", 64, begin - 7_200_000, begin).size());
        Exception unknown = Bench.error(() ->
                bench.producer().queryMessage(topic, "no-such-key", 64, begin, end));
        report.check("an unknown key is an error that says so", unknown instanceof MQClientException
                && ((MQClientException) unknown).getResponseCode() == NO_MESSAGE, "" + unknown);
        MessageExt byUniqueId = bench.producer().viewMessage(topic, sent.get(11).getMsgId());
        report.equal("by the client's id", 11, Letters.number(byUniqueId));
        MessageExt byOffsetId = bench.producer().viewMessage(topic, sent.get(12).getOffsetMsgId());
        report.equal("by the offset id", 12, Letters.number(byOffsetId));
        report.equal("with its place", sent.get(12).getQueueOffset(), byOffsetId.getQueueOffset());
    }

    private static List<MessageExt> find(Bench bench, String topic, String key, int count,
            long begin, long end) {
        try {
            return bench.producer().queryMessage(topic, key, count, begin, end).getMessageList();
        } catch (MQClientException nothing) {
            return new ArrayList<>();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void chinese(Bench bench, Report report, String[] none) throws Exception {
        String topic = bench.topic("chinese", 2);
        for (int number = 0; number < 12; number++) {
            bench.producer().send(chinese(topic, number));
        }
        List<MessageExt> got = bench.readUntil(topic, 12);
        report.equal("all are there", 12, got.size());
        List<String> flaws = new ArrayList<>();
        got.forEach(message -> judge(message, flaws));
        report.none("body, tags, keys and properties are as sent", flaws);
        long begin = System.currentTimeMillis() - 60_000;
        long end = System.currentTimeMillis() + 60_000;
        report.check("by a Chinese key", Bench.within(10_000, () ->
                find(bench, topic, "订单-3", 64, begin, end).size() == 1), "");
        report.equal("by the common one", 12,
                find(bench, topic, "公共钥匙", 64, begin, end).size());
        try (Member member = new Member(bench, bench.name("chinese-group"), "chinese-1")
                .start(topic, "标签甲 || タグ")) {
            report.check("a Chinese tag filters", Bench.within(30_000, () -> member.count() >= 8),
                    member.count() + "");
            Thread.sleep(1000);
            report.equal("exactly", 8L, member.received().stream().filter(message ->
                    !message.getTags().equals("标签乙")).count());
            report.equal("nothing else", 8, member.count());
        }
    }

    private static Message chinese(String topic, int number) {
        Message message = new Message(topic, TAGS[number % 3], "订单-" + number + " 公共钥匙",
                ("内容 " + number + " 🚀 naïve").getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("编号", "第" + number + "号");
        message.putUserProperty("表情", "😀🎉");
        message.putUserProperty("latin", "Ünïcödé €");
        return message;
    }

    private static void judge(MessageExt message, List<String> flaws) {
        String key = message.getKeys().split(" ")[0];
        int number = Integer.parseInt(key.substring(3));
        Message sent = chinese(message.getTopic(), number);
        boolean same = new String(message.getBody(), StandardCharsets.UTF_8)
                .equals(new String(sent.getBody(), StandardCharsets.UTF_8))
                && message.getTags().equals(sent.getTags())
                && message.getKeys().equals(sent.getKeys());
        for (String name : new String[] {"编号", "表情", "latin"}) {
            same &= sent.getUserProperty(name).equals(message.getUserProperty(name));
        }
        if (!same) {
            flaws.add(message.toString());
        }
    }
}
