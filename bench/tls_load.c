/* TLS for the load generator, so that both brokers get the same load from the same loop.
 *
 *     gcc -O3 -shared -fPIC -o tls_load.so bench/tls_load.c -lssl -lcrypto -ldl
 *     LD_PRELOAD=./tls_load.so turbopump bench producer ...
 *
 * It is loaded before libc and replaces send(2) and recv(2) only for the load's native loop
 * (csrc/load.c): the rest of the process requests routes unencrypted. The handshake happens with
 * the first call for a socket, during the warm-up. Certificates are not checked. No session is ever
 * freed: the process ends with the load. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { SOCKETS_MAX = 65536, READ_BUFFER = 64 * 1024, HANDSHAKE_MS = 10000 };

static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_recv)(int, void *, size_t, int);
static SSL_CTX *context;
static SSL *sessions[SOCKETS_MAX];

__attribute__((constructor)) static void begin(void)
{
    real_send = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    real_recv = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_BUFFER);
}

/* Whether a call comes from turbopump/pyx/load.*.so. */
static int is_load(const void *caller)
{
    static __thread const void *known[2]; /* last caller in the load, last other caller */
    Dl_info info;
    const char *name;
    if (caller == known[0]) {
        return 1;
    }
    if (caller == known[1] || !dladdr(caller, &info)) {
        return 0;
    }
    name = strrchr(info.dli_fname, '/');
    name = name == NULL ? info.dli_fname : name + 1;
    known[strncmp(name, "load.", 5) != 0] = caller;
    return strncmp(name, "load.", 5) == 0;
}

static SSL *session_of(int descriptor)
{
    struct pollfd one = {.fd = descriptor};
    SSL *made = sessions[descriptor];
    int done;
    if (made != NULL) {
        return made;
    }
    made = SSL_new(context);
    SSL_set_fd(made, descriptor);
    while ((done = SSL_connect(made)) != 1) {
        int wanted = SSL_get_error(made, done);
        one.events = wanted == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
        if ((wanted != SSL_ERROR_WANT_READ && wanted != SSL_ERROR_WANT_WRITE) ||
            poll(&one, 1, HANDSHAKE_MS) != 1) {
            fprintf(stderr, "no TLS with the broker\n");
            exit(1);
        }
    }
    sessions[descriptor] = made;
    return made;
}

static ssize_t failed(SSL *session, int outcome)
{
    switch (SSL_get_error(session, outcome)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: errno = ECONNRESET; return -1;
    }
}

ssize_t send(int descriptor, const void *bytes, size_t size, int flags)
{
    SSL *session;
    size_t sent = 0;
    if (!is_load(__builtin_return_address(0)) || descriptor >= SOCKETS_MAX) {
        return real_send(descriptor, bytes, size, flags);
    }
    session = session_of(descriptor);
    while (sent < size) {
        size_t left = size - sent;
        int put = SSL_write(session, (const char *)bytes + sent,
                            left > 1 << 20 ? 1 << 20 : (int)left);
        if (put <= 0) {
            return sent > 0 ? (ssize_t)sent : failed(session, put);
        }
        sent += (size_t)put;
    }
    return (ssize_t)sent;
}

ssize_t recv(int descriptor, void *bytes, size_t size, int flags)
{
    SSL *session;
    size_t got = 0;
    if (!is_load(__builtin_return_address(0)) || descriptor >= SOCKETS_MAX) {
        return real_recv(descriptor, bytes, size, flags);
    }
    session = session_of(descriptor);
    /* No poll reports bytes that the session has read ahead. */
    do {
        size_t left = size - got;
        int put = SSL_read(session, (char *)bytes + got, left > 1 << 20 ? 1 << 20 : (int)left);
        if (put <= 0) {
            return got > 0 ? (ssize_t)got : failed(session, put);
        }
        got += (size_t)put;
    } while (got < size && SSL_has_pending(session));
    return (ssize_t)got;
}
