#include "grpc_ack.h"

#include <string.h>

#include "digits.h"
#include "protobuf.h"

enum { HANDLE_MAX = 1024, DIGITS_MOST = 18, QUEUE_DIGITS = 9, WORDS = 9 };
enum { START, POP_TIME, INVISIBLE, REVIVE_QUEUE, KIND, BROKER, QUEUE, QUEUE_OFFSET, LOG_OFFSET };

static int read_entry(struct trf_text text, struct gra_entry *entry)
{
    struct pb_parts parts = pb_parts_of(text);
    int found;
    if (entry->receipt_handle.at != NULL) {
        return 0;
    }
    while ((found = pb_next(&parts)) > 0) {
        if (parts.kind != PB_TEXT || parts.number > 2 || !pb_is_printable(parts.text) ||
            parts.text.size > HANDLE_MAX) {
            return 0;
        }
        *(parts.number == 1 ? &entry->message_id : &entry->receipt_handle) = parts.text;
    }
    return found == 0 && entry->receipt_handle.at != NULL;
}

/* Split a receipt handle at single blanks into its words; 0 if it has not nine words. */
static int split(struct trf_text text, struct trf_text words[WORDS])
{
    const uint8_t *at = text.at, *end = text.at + text.size;
    for (int number = 0; number < WORDS; number++) {
        const uint8_t *stop = memchr(at, ' ', (size_t)(end - at));
        if ((stop == NULL) != (number == WORDS - 1)) {
            return 0;
        }
        stop = stop != NULL ? stop : end;
        words[number].at = at;
        words[number].size = (uint32_t)(stop - at);
        at = stop + (number < WORDS - 1);
    }
    return 1;
}

static int number_of(struct trf_text word, size_t most, int64_t *value)
{
    return digits_read(word.at, word.size, most, value);
}

static int read_handle(struct gra_entry *entry)
{
    struct trf_text words[WORDS];
    int64_t pop_time_ms, invisible_ms, queue_id, log_offset;
    if (!split(entry->receipt_handle, words) ||
        !number_of(words[POP_TIME], DIGITS_MOST, &pop_time_ms) ||
        !number_of(words[INVISIBLE], DIGITS_MOST, &invisible_ms) ||
        !number_of(words[QUEUE], QUEUE_DIGITS, &queue_id) ||
        !number_of(words[QUEUE_OFFSET], DIGITS_MOST, &entry->ack.offset) ||
        !number_of(words[LOG_OFFSET], DIGITS_MOST, &log_offset) || words[KIND].size != 1 ||
        words[KIND].at[0] != '0') {
        return 0;
    }
    entry->broker_name = words[BROKER];
    entry->until_ms = pop_time_ms + invisible_ms;
    entry->ack.queue_id = (int32_t)queue_id;
    entry->ack.extra_info.at = entry->receipt_handle.at;
    entry->ack.extra_info.size =
        (uint32_t)(words[LOG_OFFSET].at - 1 - entry->receipt_handle.at);
    return 1;
}

int gra_read(const uint8_t *data, size_t size, struct gra_entry *entry)
{
    struct trf_text request;
    struct pb_parts parts;
    int found;
    if (!grc_message(data, size, &request)) {
        return 0;
    }
    memset(entry, 0, sizeof *entry);
    parts = pb_parts_of(request);
    while ((found = pb_next(&parts)) > 0) {
        int is_read = 0;
        if (parts.kind == PB_TEXT && parts.number == 1) {
            is_read = grc_name(parts.text, &entry->ack.consumer_group);
        } else if (parts.kind == PB_TEXT && parts.number == 2) {
            is_read = grc_name(parts.text, &entry->ack.topic);
        } else if (parts.kind == PB_TEXT && parts.number == 3) {
            is_read = read_entry(parts.text, entry);
        }
        if (!is_read) {
            return 0;
        }
    }
    return found == 0 && entry->ack.consumer_group.at != NULL && entry->ack.topic.at != NULL &&
           entry->receipt_handle.at != NULL && read_handle(entry);
}

size_t gra_answer(const struct gra_entry *entry, uint8_t *out)
{
    uint8_t made[GRC_ANSWER_ROOM - 32], *end = made;
    end = pb_put_text(end, 0x0a, entry->message_id);
    end = pb_put_text(end, 0x12, entry->receipt_handle);
    end = pb_put_text(end, 0x1a, (struct trf_text){(const uint8_t *)GRC_STATUS, GRC_STATUS_SIZE});
    return grc_answer((struct trf_text){made, (uint32_t)(end - made)}, out);
}
