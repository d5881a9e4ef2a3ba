package turbopump.interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands one after the other in one JVM, which saves a start for each.
 *
 * <p>A line of input is one command, its words separated by tabs; a line of output is the
 * command's whole output, in base64.
 */
public final class Admin {
    private static final long LOOK_NANOS = 50_000_000;

    private Admin() {
    }

    /** Runs a command as a new object: some objects keep a client that is shut down already. */
    private static final class Commands extends MQAdminStartup {
        static void runAfresh(String[] words) {
            SUB_COMMANDS.clear();
            main0(words, null);
        }
    }

    /**
     * Wakes the event thread of the 5.x client while the main thread waits for its end: it checks
     * only every 3 s whether to stop, which would delay three of four commands.
     */
    private static void hurry(Thread main) {
        while (true) {
            for (StackTraceElement frame : main.getStackTrace()) {
                if (frame.getClassName().equals("org.apache.rocketmq.common.ServiceThread")) {
                    Thread.getAllStackTraces().keySet().stream()
                            .filter(thread -> thread.getName().startsWith("NettyEventExecutor"))
                            .forEach(Thread::interrupt);
                }
            }
            LockSupport.parkNanos(LOOK_NANOS);
        }
    }

    public static void main(String[] none) throws IOException {
        PrintStream console = System.out;
        Thread main = Thread.currentThread();
        Thread hurry = new Thread(() -> hurry(main));
        hurry.setDaemon(true);
        hurry.start();
        BufferedReader lines = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            try {
                Commands.runAfresh(line.split("\t"));
            } catch (RuntimeException error) {
                error.printStackTrace(capture);
            }
            console.println(Base64.getEncoder().encodeToString(printed.toByteArray()));
            console.flush();
        }
        System.exit(0);
    }
}
