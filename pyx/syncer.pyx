# cython: auto_pickle=False
"""A thread that makes one range of a mapping durable at a time, without ever needing the
interpreter.

Owns the thread and the descriptor that notifies a loop of the end. It must never decide the range
or the time of a sync.

    begin -> semaphore -> the thread: msync -> semaphore, eventfd -> take, or wait
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint64_t, uintptr_t
from libc.string cimport memset

from turbopump.pyx.region cimport Region

cdef extern from "pthread.h" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t *thread, const void *attributes, void *(*run)(void *) noexcept,
                       void *argument)
    int pthread_join(pthread_t thread, void **result)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set)
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
    enum:
        SIG_SETMASK

cdef extern from "semaphore.h" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t *semaphore, int shared, unsigned int value)
    int sem_destroy(sem_t *semaphore)
    int sem_post(sem_t *semaphore)
    int sem_wait(sem_t *semaphore)
    int sem_trywait(sem_t *semaphore)

cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int value, int flags)
    int eventfd_read(int descriptor, uint64_t *value)
    int eventfd_write(int descriptor, uint64_t value)
    enum:
        EFD_CLOEXEC
        EFD_NONBLOCK

cdef extern from "sys/mman.h" nogil:
    int msync(void *address, size_t length, int flags)
    enum:
        MS_SYNC

cdef extern from "unistd.h" nogil:
    int close(int descriptor)
    long sysconf(int name)
    enum:
        _SC_PAGESIZE

cdef uintptr_t PAGE = <uintptr_t>sysconf(_SC_PAGESIZE)

cdef struct sync_work:
    sem_t go
    sem_t ended
    int event
    int closing
    int failed                    # errno of the last sync, 0: the range is durable
    void *start
    size_t length


cdef void *run(void *argument) noexcept nogil:
    cdef sync_work *work = <sync_work *>argument
    while True:
        while sem_wait(&work.go) != 0:
            pass  # a signal
        if work.closing:
            return NULL
        work.failed = errno if msync(work.start, work.length, MS_SYNC) != 0 else 0
        sem_post(&work.ended)
        eventfd_write(work.event, 1)


cdef class Syncer:
    """See the stub."""

    cdef sync_work *work
    cdef pthread_t thread
    cdef bint waited
    cdef object held              # the mapping being synced, None: no sync is running

    def __cinit__(self):
        cdef sigset_t every
        cdef sigset_t before
        cdef int failed
        self.work = <sync_work *>PyMem_Malloc(sizeof(sync_work))
        if self.work == NULL:
            raise MemoryError
        memset(self.work, 0, sizeof(sync_work))
        self.work.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        sem_init(&self.work.go, 0, 0)
        sem_init(&self.work.ended, 0, 0)
        # Signals are for the thread that runs Python; the new one inherits the mask.
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        failed = pthread_create(&self.thread, NULL, run, self.work)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if failed or self.work.event < 0:
            if not failed:
                end(self.work, self.thread)
            free(self.work)
            self.work = NULL
            raise OSError(failed or errno, "no thread for syncs")

    def __dealloc__(self):
        self.close()

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when a sync has ended; -1 after `close`."""
        return self.work.event if self.work != NULL else -1

    @property
    def busy(self) -> bool:
        """Whether a sync is running, or has ended and its result was not taken."""
        return self.held is not None

    def begin(self, Region region not None, Py_ssize_t position, Py_ssize_t length) -> None:
        """Start to sync the pages of the range. Calling this while busy is a programming error."""
        cdef uintptr_t first = <uintptr_t>region.reading(position, length)
        cdef uintptr_t start = first - first % PAGE
        assert self.held is None and self.work != NULL, "one sync at a time"
        self.held = region.buffer
        self.work.start, self.work.length = <void *>start, first + <size_t>length - start
        sem_post(&self.work.go)

    def take(self) -> int | None:
        """Return the errno of the ended sync, 0 for success; None while it is running."""
        cdef uint64_t times
        if self.work == NULL:
            return None
        eventfd_read(self.work.event, &times)
        if self.held is None or sem_trywait(&self.work.ended) != 0:
            return None
        self.held = None
        return self.work.failed

    def wait(self) -> int:
        """Wait for the end of the sync, then return its errno, 0 for success."""
        cdef int again = 1
        cdef sync_work *work = self.work
        assert self.held is not None and work != NULL, "nothing to wait for"
        self.waited = True
        with nogil:
            while again:
                again = sem_wait(&work.ended)
        self.waited = False
        self.held = None
        return work.failed

    def close(self) -> None:
        """End the thread, after a running sync. Calling this during `wait` is a programming
        error."""
        cdef sync_work *work = self.work
        assert not self.waited, "a sync is waited for"
        if work == NULL:
            return
        self.work = NULL  # calls during the join find no thread
        end(work, self.thread)
        free(work)
        self.held = None


cdef void end(sync_work *work, pthread_t thread) noexcept:
    work.closing = 1
    sem_post(&work.go)
    with nogil:
        pthread_join(thread, NULL)


cdef void free(sync_work *work) noexcept:
    if work.event >= 0:
        close(work.event)
    sem_destroy(&work.go)
    sem_destroy(&work.ended)
    PyMem_Free(work)
