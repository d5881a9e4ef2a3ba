/* A disk that is slow, fails or hangs, and a wall clock that is wrong: preloaded into a process.
 *
 * The variable TURBOPUMP_SHIM names a file of rules, which is read again whenever its modification
 * time or size has changed. Each line is a rule; of several rules that match a path the first
 * applies:
 *
 *     sync slow MILLISECONDS PATH     fsync, fdatasync, msync and sync_file_range take longer
 *     sync fail PATH                  these calls fail with EIO
 *     sync hang PATH                  these calls return only after the rule is removed; the first
 *                                     of them creates a file: the name of the rules' file + ".hung"
 *     clock MILLISECONDS              added to CLOCK_REALTIME; may be negative
 *
 * PATH is a part of the file's name; "-" matches every file. Only tests/machine/shim.py uses this.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum kind { SLOW, FAIL, HANG };

struct rule {
    enum kind kind;
    long ms;
    char path[256];
};

enum { RULES = 32 };

static struct rule rules[RULES];
static int rule_count;
static int64_t clock_ahead_ms;
static struct timespec seen_time;
static off_t seen_size = -1;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static int real_clock(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))next("clock_gettime");
    return real(id, now);
}

static void parse(FILE *file) {
    char line[512];
    rule_count = 0;
    clock_ahead_ms = 0;
    while (fgets(line, sizeof line, file)) {
        struct rule made = {.kind = SLOW};
        long long ms;
        if (sscanf(line, "clock %lld", &ms) == 1) {
            clock_ahead_ms = ms;
            continue;
        }
        if (sscanf(line, "sync slow %ld %255s", &made.ms, made.path) == 2) made.kind = SLOW;
        else if (sscanf(line, "sync fail %255s", made.path) == 1) made.kind = FAIL;
        else if (sscanf(line, "sync hang %255s", made.path) == 1) made.kind = HANG;
        else continue;
        if (rule_count < RULES) rules[rule_count++] = made;
    }
}

/* Read the rules again if their file has changed; the caller holds the guard. */
static void refresh(void) {
    const char *name = getenv("TURBOPUMP_SHIM");
    struct stat now;
    if (!name || stat(name, &now) != 0) {
        rule_count = 0;
        clock_ahead_ms = 0;
        seen_size = -1;
        return;
    }
    if (now.st_size == seen_size && now.st_mtim.tv_sec == seen_time.tv_sec
        && now.st_mtim.tv_nsec == seen_time.tv_nsec) {
        return;
    }
    FILE *file = fopen(name, "r");
    if (!file) return;
    parse(file);
    fclose(file);
    seen_size = now.st_size;
    seen_time = now.st_mtim;
}

static int find(const char *path, struct rule *found) {
    int has = 0;
    pthread_mutex_lock(&guard);
    refresh();
    for (int i = 0; i < rule_count && !has; i++) {
        if (strcmp(rules[i].path, "-") == 0 || strstr(path, rules[i].path)) {
            *found = rules[i];
            has = 1;
        }
    }
    pthread_mutex_unlock(&guard);
    return has;
}

static void pause_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void tell_of_hang(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s.hung", getenv("TURBOPUMP_SHIM"));
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    if (fd >= 0) close(fd);
}

/* Before a sync of the file: 0, or -1 with errno. */
static int trouble(const char *path) {
    struct rule rule;
    int told = 0;
    while (find(path, &rule)) {
        if (rule.kind == HANG && !told) {
            tell_of_hang();
            told = 1;
        }
        if (rule.kind == FAIL) {
            errno = EIO;
            return -1;
        }
        pause_ms(rule.kind == SLOW ? rule.ms : 10);
        if (rule.kind == SLOW) return 0;
    }
    return 0;
}

static int trouble_of_descriptor(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return trouble(path);
}

static int trouble_of_address(const void *address) {
    char line[4352], path[4096] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) return 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        int at = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &at) >= 2
            && (unsigned long)address >= start && (unsigned long)address < end) {
            snprintf(path, sizeof path, "%s", at ? line + at : "");
            path[strcspn(path, "\n")] = 0;
            break;
        }
    }
    fclose(maps);
    return trouble(path);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))next("fsync");
    return trouble_of_descriptor(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))next("fdatasync");
    return trouble_of_descriptor(fd) ? -1 : real(fd);
}

int sync_file_range(int fd, off64_t from, off64_t count, unsigned flags) {
    int (*real)(int, off64_t, off64_t, unsigned) =
        (int (*)(int, off64_t, off64_t, unsigned))next("sync_file_range");
    return trouble_of_descriptor(fd) ? -1 : real(fd, from, count, flags);
}

int msync(void *address, size_t length, int flags) {
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))next("msync");
    return trouble_of_address(address) ? -1 : real(address, length, flags);
}

static int64_t ahead_ms(void) {
    /* Many calls a second: the file is looked at every 20 ms. */
    static int64_t looked_ms;
    struct timespec now;
    real_clock(CLOCK_MONOTONIC, &now);
    int64_t at_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
    if (at_ms - __atomic_load_n(&looked_ms, __ATOMIC_RELAXED) >= 20) {
        pthread_mutex_lock(&guard);
        refresh();
        pthread_mutex_unlock(&guard);
        __atomic_store_n(&looked_ms, at_ms, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&clock_ahead_ms, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = real_clock(id, now);
    if (result != 0 || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return result;
    int64_t ms = ahead_ms(), nanoseconds = now->tv_nsec + ms % 1000 * 1000000;
    now->tv_sec += ms / 1000;
    if (nanoseconds < 0) {
        nanoseconds += 1000000000;
        now->tv_sec--;
    }
    now->tv_sec += nanoseconds / 1000000000;
    now->tv_nsec = nanoseconds % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}
