package turbopump.interop;

/** A named scenario of the run; its arguments follow its name and a colon on the command line. */
interface Scenario {
    void run(Bench bench, Report report, String[] arguments) throws Exception;
}
