/* Traffic requests of any bytes, the properties of plain requests, and their answers. Input: mode,
 * bytes that the scratch lacks, then a frame, or the header of a valid frame. */
#include "traffic.h"

#include "bytes.h"
#include "fuzz.h"
#include "json_text.h"
#include "traffic_members.h"
#include "traffic_reply.h"

enum {
    MODE_ROCKETMQ = 1,
    MODE_FRAME = 2, /* the input is the whole frame */
    MODE_BODY = 4,
    HEAD = 8
};

static int is_inside(struct trf_text text, const uint8_t *at, size_t size)
{
    return text.at >= at && text.at + text.size <= at + size;
}

struct place {
    const uint8_t *frame, *scratch;
    size_t size, scratch_size;
};

static void check_text(struct trf_text text, const struct place *place)
{
    if (text.at == NULL) {
        CHECK(text.size == 0);
        return;
    }
    CHECK(is_inside(text, place->frame, place->size) ||
          is_inside(text, place->scratch, place->scratch_size));
    CHECK(json_is_utf8(text.at, text.size));
}

/* Copy into a block of exactly this size, so that the sanitizer finds a read beyond it. */
static void check_properties(struct trf_text text)
{
    struct trf_properties found;
    uint8_t *copy = room(text.size);
    size_t pairs = 0;
    int plain;
    if (text.size > 0) {
        memcpy(copy, text.at, text.size);
    }
    text.at = copy;
    plain = trf_scan_properties(text, &found);
    CHECK(!plain || (found.canonical && (found.names & TRF_SPECIAL) == 0));
    for (size_t i = 0; i < text.size; i++) {
        pairs += copy[i] == 2;
    }
    CHECK(!found.canonical || text.size == 0 || (copy[text.size - 1] != 2) == found.unended);
    CHECK(!found.canonical || pairs + found.unended <= 64);
    CHECK(found.unique_key.at == NULL || is_inside(found.unique_key, copy, text.size));
    CHECK((found.unique_key.at != NULL) == ((found.names & TRF_UNIQ_KEY) != 0));
    free(copy);
}

/* Check that a text of the request is the same after it was written to an answer and parsed. */
static void check_answers(const struct trf_request *request, struct trf_text text)
{
    static const uint8_t host[20];
    int64_t offsets[2] = {request->opaque, INT64_MIN};
    struct trf_send_answer sent = {
        .opaque = request->opaque,
        .log_offsets = offsets,
        .count = 2,
        .store_host = host,
        .store_host_size = sizeof host,
        .transaction_id = text,
        .batch_id = text,
        .region = text,
    };
    struct trf_pull_answer pulled = {.opaque = request->opaque, .remark = text, .body_size = 9};
    struct trf_request again;
    size_t large = trf_send_reply_room(&sent), size;
    uint8_t *out = room(large), *scratch = room(large);
    size = trf_send_reply(out, large, &sent);
    CHECK(size > HEAD && size <= large && be_u32(out) == size - 4);
    CHECK(trf_decode(out, size, scratch, large, &again) == TRF_OTHER); /* it is a response */
    CHECK(json_find_special(out + HEAD, out + size) == out + HEAD + 1);
    CHECK(trf_send_reply(out, large - 1, &sent) == 0);
    size = trf_pull_reply(out, trf_pull_reply_room(&pulled), &pulled);
    CHECK(size > HEAD && size <= trf_pull_reply_room(&pulled) && be_u32(out) == size + 9 - 4);
    CHECK(be_u32(out + 4) == size - HEAD && out[size - 1] == '}');
    free(scratch);
    free(out);
}

/* Check that all texts of the header lie in the buffers. */
static void check_header(const struct trf_request *request, const struct place *place)
{
    for (size_t i = 0; i < TRF_MEMBERS; i++) {
        const struct trf_member *member = &trf_members[i];
        if (member->kind == request->kind && member->type == TRF_TEXT) {
            struct trf_text text;
            memcpy(&text, (const uint8_t *)request + member->place, sizeof text);
            check_text(text, place);
        }
    }
}

static void check_plain(const struct trf_request *request, const struct place *place)
{
    CHECK(request->codec <= 1 && request->language < TRF_LANGUAGES && (request->flag & 1) == 0);
    CHECK(is_inside(request->body, place->frame, place->size));
    CHECK(request->body.at + request->body.size == place->frame + place->size);
    check_header(request, place);
    if (request->kind == TRF_PULL) {
        CHECK(request->code == TRF_PULL_MESSAGE);
        CHECK(request->pull.topic.at != NULL && request->pull.consumer_group.at != NULL);
        check_answers(request, request->pull.topic);
        return;
    }
    if (request->kind == TRF_END) {
        CHECK(request->code == TRF_END_TRANSACTION);
        CHECK(request->end.producer_group.at != NULL && request->end.msg_id.at != NULL);
        return;
    }
    if (request->kind == TRF_ACK) {
        CHECK(request->code == TRF_ACK_MESSAGE);
        CHECK(request->ack.topic.at != NULL && request->ack.consumer_group.at != NULL &&
              request->ack.extra_info.at != NULL);
        return;
    }
    if (request->kind == TRF_POP) {
        CHECK(request->code == TRF_POP_MESSAGE);
        CHECK(request->pop.topic.at != NULL && request->pop.consumer_group.at != NULL);
        return;
    }
    CHECK(request->kind == TRF_SEND && request->code != TRF_PULL_MESSAGE &&
          request->code != TRF_END_TRANSACTION && request->code != TRF_ACK_MESSAGE &&
          request->code != TRF_POP_MESSAGE);
    CHECK(request->send.topic.at != NULL && request->body.size > 0);
    check_properties(request->send.properties);
    check_answers(request, request->send.topic);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned mode = (unsigned)take(&input, 1);
    size_t lacks = (size_t)take(&input, 1), len = input.left;
    size_t head = mode & MODE_FRAME ? 0 : HEAD, body = mode & MODE_BODY && head > 0;
    uint8_t *frame = room(head + len + body), *scratch;
    size_t room_size = lacks < head + len ? head + len - lacks : 0;
    struct trf_request request, other;
    struct place place;
    enum trf_verdict verdict;

    if (head > 0) {
        be_put_i32(frame, (int32_t)(len + 4 + body));
        be_put_i32(frame + 4, (int32_t)((mode & MODE_ROCKETMQ) << 24 | len));
    }
    if (len > 0) {
        memcpy(frame + head, input.at, len);
    }
    scratch = room(room_size);
    place = (struct place){frame, scratch, head + len + body, room_size};
    verdict = trf_decode(frame, place.size, scratch, room_size, &request);
    CHECK(verdict == TRF_PLAIN || verdict == TRF_OTHER || verdict == TRF_BAD);
    CHECK(verdict != TRF_BAD || head == 0);
    if (verdict == TRF_PLAIN) {
        check_plain(&request, &place);
        if (trf_decode(frame, place.size, NULL, 0, &other) == TRF_PLAIN) {
            CHECK(other.code == request.code && other.opaque == request.opaque);
        }
    }
    check_properties((struct trf_text){frame, (uint32_t)place.size});
    free(scratch);
    free(frame);
    return 0;
}
