package turbopump.interop;

/** One named piece of the run; its arguments are what follows the colon on the command line. */
interface Scenario {
    void run(Bench bench, Report report, String[] arguments) throws Exception;
}
