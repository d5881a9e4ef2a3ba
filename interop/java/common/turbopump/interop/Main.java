package turbopump.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Runs the named scenarios side by side against one name server.
 *
 * <p>Arguments: NAMESRV PREFIX SCENARIO[:ARGUMENT[,ARGUMENT]]... where PREFIX starts every topic
 * and group name of the run. Each check is one JSON line; the exit code is 0 if all passed.
 */
public final class Main {
    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("send-sync", Sending::sync);
        SCENARIOS.put("send-async", Sending::async);
        SCENARIOS.put("send-oneway", Sending::oneway);
        SCENARIOS.put("send-batch", Sending::batch);
        SCENARIOS.put("send-auto-topic", Sending::autoTopic);
        SCENARIOS.put("big-message", Sending::big);
        SCENARIOS.put("push-cluster", Pushing::cluster);
        SCENARIOS.put("push-broadcast", Pushing::broadcast);
        SCENARIOS.put("tag-filter", Pushing::tags);
        SCENARIOS.put("ordered", Pushing::ordered);
        SCENARIOS.put("retry-dlq", Retrying::retryThenDeadLetter);
        SCENARIOS.put("delay", Retrying::delay);
        SCENARIOS.put("lite-pull", Pulling::liteSubscribe);
        SCENARIOS.put("lite-pull-assign", Pulling::liteAssign);
        SCENARIOS.put("pull", Pulling::pull);
        SCENARIOS.put("offsets", Pulling::offsets);
        SCENARIOS.put("query", Looking::query);
        SCENARIOS.put("chinese", Looking::chinese);
        SCENARIOS.put("transactions", Transacting::all);
        SCENARIOS.put("transactions-leave", Transacting::leave);
        SCENARIOS.put("transactions-answer", Transacting::answer);
        SCENARIOS.put("transactions-living", Transacting::living);
        SCENARIOS.put("timers", Timing::all);
        SCENARIOS.put("sql-filter", Filtering::sql);
        SCENARIOS.put("trace", Filtering::trace);
        SCENARIOS.put("pop", Popping::shared);
        SCENARIOS.put("pop-leave", Popping::leave);
        SCENARIOS.put("pop-go-on", Popping::goOn);
        SCENARIOS.put("linger", Pushing::linger);
        SCENARIOS.put("assigned", Assigning::assigned);
        SCENARIOS.put("chaos-consume", Rebalancing::consume);
        SCENARIOS.put("chaos-send", Rebalancing::send);
        SCENARIOS.put("standing", Standing::consume);
        SCENARIOS.put("through-kills", Enduring::throughKills);
        SCENARIOS.put("exchange-write", Exchange::write);
        SCENARIOS.put("exchange-continue", Exchange::goOn);
        SCENARIOS.put("exchange-read", Exchange::read);
    }

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        int failed = 0;
        int scenarios = arguments.length - 2;
        ExecutorService threads = Executors.newFixedThreadPool(scenarios);
        try (Bench bench = new Bench(arguments[0], arguments[1])) {
            List<Future<Integer>> running = new ArrayList<>();
            for (int i = 0; i < scenarios; i++) {
                String spec = arguments[i + 2];
                running.add(threads.submit(() -> run(bench, spec)));
            }
            for (Future<Integer> one : running) {
                failed += one.get();
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static int run(Bench bench, String spec) {
        String[] parts = spec.split(":", 2);
        Report report = new Report(parts[0]);
        try {
            Scenario scenario = SCENARIOS.get(parts[0]);
            if (scenario == null) {
                throw new IllegalArgumentException("no scenario of this name");
            }
            scenario.run(bench, report, parts.length == 1 ? new String[0] : parts[1].split(","));
        } catch (Throwable error) {
            report.crashed(error);
        }
        report.done();
        return report.failed();
    }
}
