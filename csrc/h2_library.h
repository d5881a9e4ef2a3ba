/* The used part of libnghttp2, declared here and found at run time.
 *
 * The build needs neither its headers nor its code: `h2_library_load` opens the shared library of
 * its stable interface (soname 14, since 2014) and finds each function by its name. The structures
 * here have the layout of that interface, up to their last used member. The caller owns the table,
 * and the library stays open as long as the process. */
#ifndef TURBOPUMP_H2_LIBRARY_H
#define TURBOPUMP_H2_LIBRARY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum h2_frame_type {
    H2_FRAME_DATA = 0,
    H2_FRAME_HEADERS = 1,
    H2_FRAME_PING = 6,
    H2_FRAME_GOAWAY = 7,
    H2_FRAME_CONTINUATION = 9
};

enum {
    H2_FLAG_END_STREAM = 1, /* of DATA and HEADERS */
    H2_FLAG_ACK = 1,        /* of PING */
    H2_DATA_EOF = 1,        /* set by a read callback */
    H2_DATA_NO_END_STREAM = 2,
    H2_ERR_PAUSE = -526,
    H2_ERR_DEFERRED = -508,
    H2_SETTINGS_ENABLE_PUSH = 2,
    H2_SETTINGS_MAX_CONCURRENT_STREAMS = 3,
    H2_SETTINGS_INITIAL_WINDOW_SIZE = 4,
    H2_SETTINGS_MAX_HEADER_LIST_SIZE = 6
};

struct h2_frame { /* the common beginning of all frames: nghttp2_frame_hd */
    size_t length;
    int32_t stream_id;
    uint8_t type;
    uint8_t flags;
    uint8_t reserved;
};

struct h2_pair { /* nghttp2_nv */
    const uint8_t *name;
    const uint8_t *value;
    size_t name_size;
    size_t value_size;
    uint8_t flags;
};

struct h2_setting { /* nghttp2_settings_entry */
    int32_t id;
    uint32_t value;
};

union h2_source { /* nghttp2_data_source */
    int descriptor;
    void *at;
};

typedef ssize_t (*h2_read)(void *session, int32_t stream_id, uint8_t *room, size_t size,
                           uint32_t *flags, union h2_source *source, void *user);

struct h2_provider { /* nghttp2_data_provider */
    union h2_source source;
    h2_read read;
};

typedef int (*h2_on_frame)(void *session, const struct h2_frame *frame, void *user);
typedef int (*h2_on_header)(void *session, const struct h2_frame *frame, const uint8_t *name,
                            size_t name_size, const uint8_t *value, size_t value_size,
                            uint8_t flags, void *user);
typedef int (*h2_on_data)(void *session, uint8_t flags, int32_t stream_id, const uint8_t *bytes,
                          size_t size, void *user);
typedef int (*h2_on_close)(void *session, int32_t stream_id, uint32_t error, void *user);

struct h2_library {
    int (*callbacks_new)(void **callbacks);
    void (*callbacks_del)(void *callbacks);
    void (*on_begin_headers)(void *callbacks, h2_on_frame call);
    void (*on_header)(void *callbacks, h2_on_header call);
    void (*on_frame_recv)(void *callbacks, h2_on_frame call);
    void (*on_data_chunk)(void *callbacks, h2_on_data call);
    void (*on_stream_close)(void *callbacks, h2_on_close call);
    int (*server_new)(void **session, const void *callbacks, void *user);
    int (*client_new)(void **session, const void *callbacks, void *user);
    void (*session_del)(void *session);
    ssize_t (*mem_recv)(void *session, const uint8_t *bytes, size_t size);
    ssize_t (*mem_send)(void *session, const uint8_t **bytes);
    int (*want_read)(void *session);
    int (*want_write)(void *session);
    int (*resume_data)(void *session, int32_t stream_id);
    int (*set_window)(void *session, uint8_t flags, int32_t stream_id, int32_t size);
    int (*terminate)(void *session, uint32_t error);
    int (*submit_settings)(void *session, uint8_t flags, const struct h2_setting *settings,
                           size_t count);
    int (*submit_response)(void *session, int32_t stream_id, const struct h2_pair *pairs,
                           size_t count, const struct h2_provider *provider);
    int32_t (*submit_request)(void *session, const void *priority, const struct h2_pair *pairs,
                              size_t count, const struct h2_provider *provider, void *of_stream);
    int (*submit_trailer)(void *session, int32_t stream_id, const struct h2_pair *pairs,
                          size_t count);
    int (*submit_reset)(void *session, uint8_t flags, int32_t stream_id, uint32_t error);
    int (*submit_ping)(void *session, uint8_t flags, const uint8_t *opaque);
    int (*submit_shutdown)(void *session);
};

/* Open `file` (NULL: the soname) and fill the table; 1, or 0 if the library or one of its functions
 * is missing. */
int h2_library_load(struct h2_library *library, const char *file);

#endif
