/* The minimal cost of replication here: a file sent to N others over loopback, in one thread.

       sendfile FILE PIECE RECEIVERS TARGET

   The sender gives each connection PIECE bytes in turn with sendfile. A receiver, a separate
   process, writes the bytes to TARGET.n, a fresh file whose space is reserved like a replica's log:
   with two receivers on two cores that takes half the time of reading into a mapping of the file.
   No frame, no acknowledgement, no check, no sync. Prints a JSON object; processor time is that of
   the sender, and of all receivers. bench/replication compiles and runs it. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVERS_MAX = 8, READ_SIZE = 1 << 20 };

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static double cpu(int of) {
    struct rusage used;
    getrusage(of, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static char read_[READ_SIZE];

static void receive(const struct sockaddr_in *from, const char *path, size_t size) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    must(file >= 0 && posix_fallocate(file, 0, (off_t)size) == 0, path);
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(socket_, (const struct sockaddr *)from, sizeof *from) == 0, "connect");
    size_t at = 0;
    while (at < size) {
        size_t room = size - at < READ_SIZE ? size - at : READ_SIZE;
        ssize_t got = recv(socket_, read_, room, 0);
        must(got > 0, "recv");
        must(pwrite(file, read_, (size_t)got, (off_t)at) == got, "pwrite");
        at += (size_t)got;
    }
    must(send(socket_, "", 1, 0) == 1, "send"); /* all bytes arrived */
    _exit(0);
}

static void send_all(int file, size_t size, size_t piece, const int *to, int count) {
    off_t at[RECEIVERS_MAX] = {0};
    for (int open_ = count; open_ > 0;) {
        for (int i = 0; i < count; i++) {
            if ((size_t)at[i] == size)
                continue;
            size_t left = size - (size_t)at[i];
            must(sendfile(to[i], file, &at[i], left < piece ? left : piece) > 0, "sendfile");
            open_ -= (size_t)at[i] == size;
        }
    }
    char done;
    for (int i = 0; i < count; i++)
        must(recv(to[i], &done, 1, 0) == 1, "recv");
}

int main(int argc, char **argv) {
    must(argc == 5, "sendfile FILE PIECE RECEIVERS TARGET");
    int count = atoi(argv[3]), to[RECEIVERS_MAX];
    must(count >= 1 && count <= RECEIVERS_MAX, "RECEIVERS");
    int file = open(argv[1], O_RDONLY);
    struct stat known;
    must(file >= 0 && fstat(file, &known) == 0, argv[1]);
    size_t size = (size_t)known.st_size;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof here;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(server, (struct sockaddr *)&here, length) == 0 && listen(server, count) == 0, "bind");
    must(getsockname(server, (struct sockaddr *)&here, &length) == 0, "getsockname");
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", argv[4], i);
        if (fork() == 0)
            receive(&here, path, size);
        to[i] = accept(server, NULL, NULL);
        must(to[i] >= 0, "accept");
    }
    double began = now(), own = cpu(RUSAGE_SELF);
    send_all(file, size, strtoul(argv[2], NULL, 10), to, count);
    double seconds = now() - began, sender = cpu(RUSAGE_SELF) - own;
    for (int i = 0; i < count; i++) {
        int status;
        must(wait(&status) > 0 && status == 0, "a receiver");
    }
    printf("{\"bytes\": %zu, \"seconds\": %.6f, ", size, seconds);
    printf("\"sender_cpu_s\": %.6f, \"receivers_cpu_s\": %.6f}\n", sender, cpu(RUSAGE_CHILDREN));
    return 0;
}
