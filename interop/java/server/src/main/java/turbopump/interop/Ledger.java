package turbopump.interop;

import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * The real DLedger client. A line of input is `append BASE64` or `get INDEX`. A line of output is
 * "= " and the response: the code, then index, term and leader of an append, or index, term and
 * body of the entry.
 */
public final class Ledger {
    private Ledger() {
    }

    /** Arguments: the group, and the peers as DLedger writes them. */
    public static void main(String[] arguments) throws IOException {
        DLedgerClient client = new DLedgerClient(arguments[0], arguments[1]);
        client.startup();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ", -1);
            String answer = words[0].equals("append")
                ? append(client, Base64.getDecoder().decode(words[1]))
                : get(client, Long.parseLong(words[1]));
            System.out.println("= " + answer);
            System.out.flush();
        }
        client.shutdown();
        System.exit(0);
    }

    private static String append(DLedgerClient client, byte[] body) {
        AppendEntryResponse response = client.append(body);
        return response.getCode() + " " + response.getIndex() + " " + response.getTerm() + " "
            + response.getLeaderId();
    }

    private static String get(DLedgerClient client, long index) {
        GetEntriesResponse response = client.get(index);
        StringBuilder answer = new StringBuilder(Integer.toString(response.getCode()));
        if (response.getEntries() != null) {
            for (DLedgerEntry entry : response.getEntries()) {
                byte[] body = entry.getBody() == null ? new byte[0] : entry.getBody();
                answer.append(' ').append(entry.getIndex()).append(' ').append(entry.getTerm())
                    .append(' ').append(Base64.getEncoder().encodeToString(body)).append('.');
            }
        }
        return answer.toString();
    }
}
