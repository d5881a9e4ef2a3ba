#include "grpc_call.h"

#include <string.h>

#include "bytes.h"
#include "digits.h"
#include "protobuf.h"

enum { SEEN_METHOD = 1, SEEN_PATH = 2, SEEN_CONTENT = 4, SEEN_CLIENT = 8, SEEN_NEEDED = 15,
       SEEN_TIMEOUT = 16, SEEN_ENCODING = 32 };

#define SERVICE "/apache.rocketmq.v2.MessagingService/"

static int is(struct trf_text text, const char *word)
{
    size_t size = strlen(word);
    return text.size == size && memcmp(text.at, word, size) == 0;
}

static int begins(struct trf_text text, const char *word)
{
    size_t size = strlen(word);
    return text.size >= size && memcmp(text.at, word, size) == 0;
}

static int is_timeout(struct trf_text text)
{
    int64_t number;
    return text.size > 1 && memchr("HMSmun", text.at[text.size - 1], 6) != NULL &&
           digits_read(text.at, text.size - 1, 8, &number);
}

void grc_header(struct grc_head *head, struct trf_text name, struct trf_text value)
{
    int bit = 0, fits = 1;
    if (is(name, ":method")) {
        bit = SEEN_METHOD;
        fits = is(value, "POST");
    } else if (is(name, ":path")) {
        bit = SEEN_PATH;
        head->rpc = is(value, SERVICE "SendMessage")  ? GRC_SEND
                    : is(value, SERVICE "AckMessage") ? GRC_ACK
                                                      : GRC_OTHER;
        fits = head->rpc != GRC_OTHER;
    } else if (is(name, "content-type")) {
        bit = SEEN_CONTENT;
        fits = begins(value, "application/grpc");
    } else if (is(name, "x-mq-client-id")) {
        bit = SEEN_CLIENT;
        fits = pb_is_word(value, GRC_NAME_MAX);
        head->client_id = value;
    } else if (is(name, "grpc-timeout")) {
        bit = SEEN_TIMEOUT;
        fits = is_timeout(value);
    } else if (is(name, "grpc-encoding")) {
        bit = SEEN_ENCODING;
        fits = is(value, "identity");
    }
    head->is_other |= !fits || (head->seen & bit) != 0;
    head->seen |= (uint8_t)bit;
}

int grc_is_plain(const struct grc_head *head)
{
    return !head->is_other && (head->seen & SEEN_NEEDED) == SEEN_NEEDED;
}

int grc_message(const uint8_t *data, size_t size, struct trf_text *message)
{
    if (size < GRC_PREFIX || data[0] != 0 || be_u32(data + 1) != size - GRC_PREFIX) {
        return 0;
    }
    message->at = data + GRC_PREFIX;
    message->size = (uint32_t)(size - GRC_PREFIX);
    return 1;
}

int grc_name(struct trf_text text, struct trf_text *name)
{
    struct pb_parts parts = pb_parts_of(text);
    int found;
    if (name->at != NULL) {
        return 0;
    }
    while ((found = pb_next(&parts)) > 0) {
        if (parts.kind != PB_TEXT || parts.number > 2 || !pb_is_printable(parts.text)) {
            return 0;
        }
        if (parts.number == 2) {
            *name = parts.text;
        }
    }
    return found == 0 && pb_is_word(*name, GRC_NAME_MAX);
}

size_t grc_answer(struct trf_text entry, uint8_t *out)
{
    uint8_t *at = out + GRC_PREFIX;
    at = pb_put_text(at, 0x0a, (struct trf_text){(const uint8_t *)GRC_STATUS, GRC_STATUS_SIZE});
    at = pb_put_text(at, 0x12, entry);
    out[0] = 0;
    be_put_i32(out + 1, (int32_t)(at - out - GRC_PREFIX));
    return (size_t)(at - out);
}
