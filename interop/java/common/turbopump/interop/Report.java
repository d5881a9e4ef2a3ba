package turbopump.interop;

import java.util.Collection;
import java.util.Objects;

/**
 * The checks of a scenario. Each is printed at once as one JSON line, so that a killed run shows
 * its completed checks.
 */
final class Report {
    private static final int DETAIL_MAX = 2000;
    private final String scenario;
    private final long started = System.currentTimeMillis();
    private int failed;

    Report(String scenario) {
        this.scenario = scenario;
    }

    int failed() {
        return failed;
    }

    void check(String what, boolean ok, String detail) {
        if (!ok) {
            failed++;
        }
        print("check", what, ok, ok ? "" : detail);
    }

    void equal(String what, Object expected, Object actual) {
        check(what, Objects.equals(expected, actual), "expected " + expected + ", got " + actual);
    }

    /** Checks that no flaw was collected; shows the first few. */
    void none(String what, Collection<String> flaws) {
        check(what, flaws.isEmpty(), flaws.size() + " flaws, first " + flaws.stream().limit(5)
                .reduce("", (all, flaw) -> all + " | " + flaw));
    }

    void crashed(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (StackTraceElement frame : error.getStackTrace()) {
            text.append(" < ").append(frame);
        }
        check("runs to its end", false, text.toString());
    }

    void done() {
        print("done", "the scenario ended", failed == 0, "");
    }

    private void print(String kind, String what, boolean ok, String detail) {
        String line = "{\"scenario\":" + quoted(scenario) + ",\"kind\":" + quoted(kind)
                + ",\"what\":" + quoted(what) + ",\"ok\":" + ok
                + ",\"after_ms\":" + (System.currentTimeMillis() - started)
                + ",\"detail\":" + quoted(detail) + "}";
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.substring(0, Math.min(text.length(), DETAIL_MAX)).toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
