#include "h2_library.h"

#include <dlfcn.h>
#include <string.h>

static const char SONAME[] = "libnghttp2.so.14";

struct symbol {
    char name[64]; /* an array: a pointer would need relocation */
    size_t at;     /* position in the table */
};

#define AT(member) offsetof(struct h2_library, member)

static const struct symbol SYMBOLS[] = {
    {"nghttp2_session_callbacks_new", AT(callbacks_new)},
    {"nghttp2_session_callbacks_del", AT(callbacks_del)},
    {"nghttp2_session_callbacks_set_on_begin_headers_callback", AT(on_begin_headers)},
    {"nghttp2_session_callbacks_set_on_header_callback", AT(on_header)},
    {"nghttp2_session_callbacks_set_on_frame_recv_callback", AT(on_frame_recv)},
    {"nghttp2_session_callbacks_set_on_data_chunk_recv_callback", AT(on_data_chunk)},
    {"nghttp2_session_callbacks_set_on_stream_close_callback", AT(on_stream_close)},
    {"nghttp2_session_server_new", AT(server_new)},
    {"nghttp2_session_client_new", AT(client_new)},
    {"nghttp2_session_del", AT(session_del)},
    {"nghttp2_session_mem_recv", AT(mem_recv)},
    {"nghttp2_session_mem_send", AT(mem_send)},
    {"nghttp2_session_want_read", AT(want_read)},
    {"nghttp2_session_want_write", AT(want_write)},
    {"nghttp2_session_resume_data", AT(resume_data)},
    {"nghttp2_session_set_local_window_size", AT(set_window)},
    {"nghttp2_session_terminate_session", AT(terminate)},
    {"nghttp2_submit_settings", AT(submit_settings)},
    {"nghttp2_submit_response", AT(submit_response)},
    {"nghttp2_submit_request", AT(submit_request)},
    {"nghttp2_submit_trailer", AT(submit_trailer)},
    {"nghttp2_submit_rst_stream", AT(submit_reset)},
    {"nghttp2_submit_ping", AT(submit_ping)},
    {"nghttp2_submit_shutdown_notice", AT(submit_shutdown)},
};

int h2_library_load(struct h2_library *library, const char *file)
{
    void *opened = dlopen(file != NULL ? file : SONAME, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL) {
        return 0;
    }
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof SYMBOLS[0]; i++) {
        void *found = dlsym(opened, SYMBOLS[i].name);
        if (found == NULL) {
            return 0;
        }
        /* C cannot cast an object pointer to a function pointer; POSIX guarantees the same size. */
        memcpy((uint8_t *)library + SYMBOLS[i].at, &found, sizeof found);
    }
    return 1;
}
