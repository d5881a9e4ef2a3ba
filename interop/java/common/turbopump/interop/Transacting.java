package turbopump.interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers of transactions, and the brokers' checks of open transactions. */
final class Transacting {
    private static final int KINDS = 6;
    private static final long QUIET_MS = 5_000;
    /** Longer than the interval at which brokers write the ends of transactions to their log. */
    private static final long ENDS_WRITTEN_MS = 500;

    private Transacting() {
    }

    /** Ends message i of a topic according to i % 6: at once, or at the first or second check. */
    private static final class Numbered implements TransactionListener {
        final Map<Integer, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (Letters.number(message) % KINDS) {
                case 0:
                case 5:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 1:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int number = Letters.number(message);
            int times = asked.merge(number, 1, Integer::sum);
            switch (number % KINDS) {
                case 2:
                    return LocalTransactionState.COMMIT_MESSAGE;
                case 3:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case 4:
                    return times < 2 ? LocalTransactionState.UNKNOW
                            : LocalTransactionState.COMMIT_MESSAGE;
                default:
                    return LocalTransactionState.ROLLBACK_MESSAGE; // none of these is asked about
            }
        }
    }

    private static TransactionMQProducer producer(Bench bench, String group,
            TransactionListener listener) throws MQClientException {
        TransactionMQProducer made = new TransactionMQProducer(bench.name(group));
        bench.configure(made, group);
        made.setSendMsgTimeout(10_000);
        made.setTransactionListener(listener);
        made.start();
        return made;
    }

    /** Ends transactions with commit, rollback and unknown, in all ways. */
    static void all(Bench bench, Report report, String... arguments) throws Exception {
        String topic = bench.topic("transactions", 2);
        Numbered listener = new Numbered();
        TransactionMQProducer producer = producer(bench, "tx-group", listener);
        int count = 8 * KINDS;
        List<String> wrong = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            TransactionSendResult sent =
                    producer.sendMessageInTransaction(Letters.letter(topic, number), null);
            if (sent.getTransactionId() == null || sent.getMsgId() == null
                    || !sent.getTransactionId().equals(sent.getMsgId())) {
                wrong.add(sent.toString());
            }
        }
        report.none("each half message has its id as transaction id", wrong);
        List<MessageExt> got = bench.readUntil(topic, 4 * count / KINDS);
        Bench.within(20_000, () -> listener.asked.values().stream().filter(n -> n > 1).count() >= 8);
        Thread.sleep(QUIET_MS);
        got = bench.readAll(topic);
        report.none("what is to be shown is there once", without(topic, count, got));
        // RocketMQ loses the flag of a half message that it checks.
        got.forEach(message -> message.setFlag(Letters.number(message)));
        report.none("content is as sent", Letters.flaws(topic, got));
        wrong.clear();
        for (MessageExt message : got) {
            if (message.getTransactionId() == null
                    || (message.getSysFlag() & 12) != 8
                    || message.getPreparedTransactionOffset() < 0) {
                wrong.add(message.toString());
            }
        }
        report.none("it is marked as committed", wrong);
        wrong.clear();
        for (int number = 0; number < count; number++) {
            int times = listener.asked.getOrDefault(number, 0);
            int kind = number % KINDS;
            boolean right = kind == 4 ? times == 2 : kind == 2 || kind == 3 ? times == 1 : times == 0;
            if (!right) {
                wrong.add(number + " was asked about " + times + " times");
            }
        }
        report.none("only what is not known is asked about, until it is", wrong);
        producer.shutdown();
    }

    private static List<String> without(String topic, int count, List<MessageExt> got) {
        List<String> flaws = new ArrayList<>();
        int[] times = new int[count];
        for (MessageExt message : got) {
            times[Letters.number(message)]++;
        }
        for (int number = 0; number < count; number++) {
            int kind = number % KINDS;
            int wanted = kind == 1 || kind == 3 ? 0 : 1;
            if (times[number] != wanted) {
                flaws.add(number + " came " + times[number] + " times");
            }
        }
        return flaws;
    }

    private static final class Open implements TransactionListener {
        private final int last;

        Open(int last) {
            this.last = last;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            if (Letters.number(message) == last) {
                System.out.flush();
                Runtime.getRuntime().halt(3); // the process is gone within its transaction
            }
            return Letters.number(message) % 4 == 3 ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.UNKNOW;
        }
    }

    /**
     * Begins COUNT transactions, commits every fourth, and dies during the last. The client hands
     * over the end of a transaction in another thread, and nothing answers it: the next half message
     * may overtake the end, and a process that dies then never sends it. So the last transaction
     * begins when readers see all earlier commits.
     */
    static void leave(Bench bench, Report report, String... arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        String topic = bench.topic("left", 2);
        TransactionMQProducer producer = producer(bench, "left-group", new Open(count - 1));
        report.check("the topic is there", true, "");
        int last = count - 1;
        for (int number = 0; number < last; number++) {
            producer.sendMessageInTransaction(Letters.letter(topic, number), null);
        }
        bench.readUntil(topic, last / 4);
        Thread.sleep(ENDS_WRITTEN_MS);
        producer.sendMessageInTransaction(Letters.letter(topic, last), null);
    }

    private static final class Answering implements TransactionListener {
        final Map<Integer, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            asked.merge(Letters.number(message), 1, Integer::sum);
            return Letters.number(message) % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    /** Answers checks of the open transactions in another process: commits even numbers. */
    static void answer(Bench bench, Report report, String... arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        String topic = bench.name("left");
        Bench.await("the route of " + topic, 15_000, () -> !bench.queues(topic).isEmpty());
        Answering listener = new Answering();
        TransactionMQProducer producer = producer(bench, "left-group", listener);
        producer.send(new Message(bench.topic("hello", 1), new byte[] {1})); // so brokers see it
        int shown = 0;
        for (int number = 0; number < count; number++) {
            shown += isShown(number, count) ? 1 : 0;
        }
        int wanted = shown;
        bench.readUntil(topic, wanted);
        Thread.sleep(QUIET_MS);
        List<String> wrong = new ArrayList<>();
        int[] times = new int[count];
        for (MessageExt message : bench.readAll(topic)) {
            times[Letters.number(message)]++;
        }
        for (int number = 0; number < count; number++) {
            if (times[number] != (isShown(number, count) ? 1 : 0)) {
                wrong.add(number + " came " + times[number] + " times");
            }
        }
        report.none("what was left ends as the other process says, once", wrong);
        wrong.clear();
        for (int number = 0; number < count; number++) {
            boolean open = number == count - 1 || number % 4 != 3;
            if (listener.asked.containsKey(number) != open) {
                wrong.add(number + " was asked about: " + !open);
            }
        }
        report.none("what was left is asked about, and nothing else", wrong);
        producer.shutdown();
    }

    private static boolean isShown(int number, int count) {
        boolean committed = number % 4 == 3 && number != count - 1;
        return committed || number % 2 == 0;
    }

    private static final int LIVING_KINDS = 4;
    private static final int LATE_CHECK_MS = 1_500;

    /**
     * Keeps its transactions open while their broker dies. i % 4 determines the end of number i: 0
     * is committed and 1 rolled back while no broker receives it, 2 is unknown then, and 3 is
     * committed when a broker runs again.
     */
    private static final class Living implements TransactionListener {
        final Map<Integer, Integer> asked = new ConcurrentHashMap<>();
        final Map<Integer, Long> ended = new ConcurrentHashMap<>();
        final CountDownLatch stored;
        final Path dead;
        final Path back;

        Living(int count, Path dead, Path back) {
            this.stored = new CountDownLatch(count);
            this.dead = dead;
            this.back = back;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            int number = Letters.number(message);
            stored.countDown();
            waitFor(number % LIVING_KINDS == 3 ? back : dead);
            ended.put(number, System.currentTimeMillis());
            switch (number % LIVING_KINDS) {
                case 1:
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case 2:
                    return LocalTransactionState.UNKNOW;
                default:
                    return LocalTransactionState.COMMIT_MESSAGE;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int number = Letters.number(message);
            long at = ended.getOrDefault(number, Long.MAX_VALUE);
            // A broker of RocketMQ writes a message twice if its transaction ends during a check.
            int open = number % LIVING_KINDS == 3 ? LATE_CHECK_MS : 0;
            if (at > System.currentTimeMillis() - open) {
                return LocalTransactionState.UNKNOW;
            }
            asked.merge(number, 1, Integer::sum);
            return number % LIVING_KINDS == 1 ? LocalTransactionState.ROLLBACK_MESSAGE
                    : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static void waitFor(Path file) {
        try {
            while (!Files.exists(file)) {
                Thread.sleep(20);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /**
     * Arguments: the number of transactions, the file to create when all half messages are stored,
     * the files that report that the broker is dead, and that a broker runs again; "once", or
     * "more" if a message may be committed again.
     */
    static void living(Bench bench, Report report, String... arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        Path dead = Paths.get(arguments[2]);
        Path back = Paths.get(arguments[3]);
        boolean once = arguments[4].equals("once");
        String topic = bench.topic("living", 2);
        Living listener = new Living(count, dead, back);
        TransactionMQProducer producer = producer(bench, "living-group", listener);
        List<Thread> threads = new ArrayList<>();
        List<String> wrong = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    producer.sendMessageInTransaction(Letters.letter(topic, number), null);
                } catch (Exception error) {
                    synchronized (wrong) {
                        wrong.add(number + ": " + error);
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        listener.stored.await();
        Files.createFile(Paths.get(arguments[1]));
        waitFor(back);
        for (Thread thread : threads) {
            thread.join();
        }
        report.none("no send fails although its end is lost", wrong);
        Bench.within(30_000, () -> isWhole(bench, topic, count));
        Bench.within(20_000, () -> unasked(listener, count).isEmpty());
        report.none("what no broker heard of is asked about", unasked(listener, count));
        Thread.sleep(LATE_CHECK_MS);
        wrong.clear();
        int[] times = timesOf(bench, topic, count);
        for (int number = 0; number < count; number++) {
            int wanted = number % LIVING_KINDS == 1 ? 0 : 1;
            if (once || wanted == 0 ? times[number] != wanted : times[number] == 0) {
                wrong.add(number + " came " + times[number] + " times");
            }
        }
        report.none("what was committed is there, and nothing else", wrong);
        producer.shutdown();
    }

    private static int[] timesOf(Bench bench, String topic, int count) throws Exception {
        int[] times = new int[count];
        for (MessageExt message : bench.readAll(topic)) {
            times[Letters.number(message)]++;
        }
        return times;
    }

    /** Whether readers are served, and all messages to be committed are visible. */
    private static boolean isWhole(Bench bench, String topic, int count) {
        try {
            int[] times = timesOf(bench, topic, count);
            for (int number = 0; number < count; number++) {
                if (number % LIVING_KINDS != 1 && times[number] == 0) {
                    return false;
                }
            }
            return true;
        } catch (Exception notServedYet) {
            return false;
        }
    }

    private static List<String> unasked(Living listener, int count) {
        List<String> found = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            if (number % LIVING_KINDS != 3 && !listener.asked.containsKey(number)) {
                found.add("nothing was asked about " + number);
            }
        }
        return found;
    }
}
