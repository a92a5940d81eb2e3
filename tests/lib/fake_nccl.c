/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/fake_nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker_sdk/comm/host/reduce.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_nccl fake_nccl;

enum {
    RECENT = 22809,
    LARGE = 1 << 20,
    RANKS = 8,
    CHUNK = 1 << 16,
    BLOCKS = 256,
    DEVICES = 8,
    HIGHEST = -5, /* priority of a stream */
};

static _Thread_local int current; /* the thread's device */
static _Thread_local bool
    is_kernel; /* it runs a stream: `current` is the stream's device */

/* Guards all that follows, and fake_nccl.blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Atomic bool is_sick; /* an illegal address was used */

/* The thread sanitizer sees only the orders that CUDA promises: a stream's thread ignores the fake's own locks and
 * memory (hide), but for what a step does (show), and events, launches and the host's waits are told to it. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define TSAN(call) (call)
#else
#define TSAN(call) ((void)0)
#endif

static void hide_memory(void)
{
    TSAN(AnnotateIgnoreReadsBegin(__FILE__, __LINE__));
    TSAN(AnnotateIgnoreWritesBegin(__FILE__, __LINE__));
}

static void show_memory(void)
{
    TSAN(AnnotateIgnoreReadsEnd(__FILE__, __LINE__));
    TSAN(AnnotateIgnoreWritesEnd(__FILE__, __LINE__));
}

static void hide(void)
{
    TSAN(AnnotateIgnoreSyncBegin(__FILE__, __LINE__));
    hide_memory();
}

static void show(void)
{
    show_memory();
    TSAN(AnnotateIgnoreSyncEnd(__FILE__, __LINE__));
}

/* What came before come_before(at) in its thread comes before what follows come_after(at). */
static void come_before(void *at)
{
    (void)at;
    if (is_kernel)
        show();
    TSAN(__tsan_release(at));
    if (is_kernel)
        hide();
}

static void come_after(void *at)
{
    (void)at;
    if (is_kernel)
        show();
    TSAN(__tsan_acquire(at));
    if (is_kernel)
        hide();
}

static void die(const char *why)
{
    fprintf(stderr, "fake NCCL: %s\n", why);
    abort();
}

static void count_blocks(int change)
{
    pthread_mutex_lock(&lock);
    fake_nccl.blocks += change;
    pthread_mutex_unlock(&lock);
}

static int fail_at, entered;

EXPORT int fake_fail_at(int n)
{
    int before;

    pthread_mutex_lock(&lock);
    before = entered;
    entered = 0;
    fail_at = n;
    pthread_mutex_unlock(&lock);
    return before;
}

EXPORT bool fake_enter(void)
{
    bool fails;

    pthread_mutex_lock(&lock);
    fails = ++entered == fail_at;
    pthread_mutex_unlock(&lock);
    return fails;
}

#define ENTER_CUDA()                                                                   \
    do {                                                                               \
        if (fake_enter())                                                              \
            return cudaErrorUnknown;                                                   \
        if (is_sick)                                                                   \
            return cudaErrorIllegalAddress;                                            \
    } while (0)
#define ENTER_NCCL()                                                                   \
    do {                                                                               \
        if (fake_enter())                                                              \
            return ncclSystemError;                                                    \
    } while (0)

/* ---- Captures --------------------------------------------------------------------------- */

enum {
    CAPTURES = 2, /* at the same time */
    CAPTURED_STREAMS = 8,
};

struct step;
/* The steps that the streams of a capture got, in the order of the calls, which their events allow.
 * One stream plays them. */
struct graph {
    int users;
    struct step *first, **last;
};

static struct capture {
    unsigned long id; /* 0: there is none here */
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool is_invalid;
    struct graph *graph;
    struct CUstream_st *streams[CAPTURED_STREAMS]; /* the first one began the capture */
} captures[CAPTURES];

static _Thread_local enum cudaStreamCaptureMode thread_mode;

/* Whether the mode of this thread forbids a call that may concern any stream. Lock held. */
static bool spoils(struct capture *capture)
{
    const bool is_own = pthread_equal(capture->thread, pthread_self());

    return capture->id && thread_mode != cudaStreamCaptureModeRelaxed &&
           ((is_own && capture->mode != cudaStreamCaptureModeRelaxed) ||
            (!is_own && capture->mode == cudaStreamCaptureModeGlobal &&
             thread_mode == cudaStreamCaptureModeGlobal));
}

EXPORT bool fake_counts(void)
{
    return true;
}

EXPORT bool fake_spoils_capture(void)
{
    bool any = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < CAPTURES; i++)
        if (spoils(&captures[i]))
            any = captures[i].is_invalid = true;
    pthread_mutex_unlock(&lock);
    return any;
}

#define PERMITTED()                                                                    \
    do {                                                                               \
        if (fake_spoils_capture())                                                     \
            return cudaErrorStreamCaptureUnsupported;                                  \
    } while (0)

/* ---- Memory ----------------------------------------------------------------------------- */

static struct memory {
    unsigned char
        *host; /* not accessible; NULL: pinned memory of the host at `device` */
    unsigned char *device;
    size_t bytes;
    int on;                      /* its device */
    struct ncclComm *registered; /* with it */
} memory[BLOCKS];

static _Atomic unsigned memory_changes;

static struct memory *find_memory(const void *at)
{
    const unsigned char *byte = at;

    for (int i = 0; i < BLOCKS; i++) {
        const unsigned char *begin = memory[i].host ? memory[i].host : memory[i].device;

        if (begin && byte >= begin && byte < begin + memory[i].bytes)
            return &memory[i];
    }
    return NULL;
}

/* Finds memory of any device, and which device. */
static void *find_device(void *at, int *on)
{
    static _Thread_local struct memory last; /* kernels look for each element */
    static _Thread_local unsigned seen;
    const struct memory *found;
    void *device = NULL;

    if (is_kernel && last.host &&
        seen == atomic_load_explicit(&memory_changes, memory_order_relaxed) &&
        (unsigned char *)at >= last.host &&
        (unsigned char *)at < last.host + last.bytes) {
        *on = last.on;
        return last.device + ((unsigned char *)at - last.host);
    }
    if (is_kernel)
        hide();
    pthread_mutex_lock(&lock);
    if ((found = find_memory(at)) && found->host) {
        device = found->device + ((unsigned char *)at - found->host);
        *on = found->on;
        last = *found;
        seen = memory_changes;
    }
    pthread_mutex_unlock(&lock);
    if (is_kernel)
        show();
    return device;
}

EXPORT void *fake_device(void *at)
{
    int on;
    void *device = find_device(at, &on);

    return device && is_kernel && on != current ? NULL : device;
}

/* For a copy, which may use memory of the host and of every device. */
static void *any(const void *at)
{
    void *own, *device;
    int on;

    memcpy(&own, &at, sizeof own);
    device = find_device(own, &on);
    return device ? device : own;
}

static cudaError_t keep(void **out, unsigned char *host, unsigned char *device,
                        size_t bytes)
{
    struct memory *room;

    pthread_mutex_lock(&lock);
    for (room = memory; room->device; room++)
        if (room == memory + BLOCKS - 1)
            die("too much memory");
    *room = (struct memory){host, device, bytes, current, NULL};
    memory_changes++;
    fake_nccl.blocks++;
    pthread_mutex_unlock(&lock);
    *out = host ? host : device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    int fd;
    void *device, *host;

    ENTER_CUDA();
    PERMITTED();
    if (fake_nccl.no_memory && bytes >= LARGE)
        return cudaErrorMemoryAllocation;
    fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        die("no memory");
    device = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    host = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    close(fd);
    if (device == MAP_FAILED || host == MAP_FAILED)
        die("no memory");
    memset(device, 0x5a, bytes); /* it is not zeroed */
    return keep(out, host, device, bytes);
}

EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    void *data;

    (void)flags;
    ENTER_CUDA();
    PERMITTED();
    if (!(data = malloc(bytes)))
        return cudaErrorMemoryAllocation;
    return keep(out, NULL, data, bytes);
}

static void wait_for_device(int device);

static cudaError_t forget(void *data, bool waits)
{
    struct memory *found;
    struct memory was;

    if (!data)
        return cudaSuccess;
    PERMITTED();
    pthread_mutex_lock(&lock);
    if (!(found = find_memory(data)))
        die("free of memory that is not there");
    if (waits)
        wait_for_device(found->on);
    was = *found;
    *found = (struct memory){0};
    memory_changes++;
    fake_nccl.blocks--;
    pthread_mutex_unlock(&lock);
    if (!was.host)
        free(was.device);
    else if (munmap(was.host, was.bytes) < 0 || munmap(was.device, was.bytes) < 0)
        die("munmap");
    return cudaSuccess;
}

EXPORT cudaError_t cudaFree(void *data)
{
    return forget(data, true);
}

EXPORT cudaError_t cudaFreeHost(void *data)
{
    return forget(data, true);
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                            const void *at)
{
    const struct memory *found;

    ENTER_CUDA();
    *out = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
    pthread_mutex_lock(&lock);
    if ((found = find_memory(at)))
        *out = (struct cudaPointerAttributes){.type = found->host ? cudaMemoryTypeDevice
                                                                  : cudaMemoryTypeHost,
                                              .device = found->on};
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* ---- Streams and events ----------------------------------------------------------------- */

/* One record of an event: a stream that waits for it keeps it when the event is recorded again. */
struct record {
    int users;
    bool has_fired;
};

struct CUevent_st {
    int on;              /* its device */
    struct record *last; /* NULL: never recorded */
    /* Of a record in a capture: which one, and how many steps of each of its streams come before. */
    unsigned long capture;
    unsigned seen[CAPTURED_STREAMS];
};

struct step {
    struct step *next;
    void (*run)(struct step *);
    void *to;
    const void *from;
    size_t bytes;
    int value;
    struct record *record;
    fake_kernel *kernel;
    void *context;
    size_t context_bytes; /* of one that is copied for each run; 0: it is not */
    /* Of a collective. */
    ncclComm_t comm;
    int kind, root;
    ncclDataType_t type;
    ncclRedOp_t op;
    size_t done;        /* of a message */
    struct step *group; /* the next of the messages that move at the same time */
};

struct CUstream_st {
    struct CUstream_st *next;
    int on; /* its device */
    struct step *first, **last;
    bool is_busy, is_over;
    pthread_t thread;
    struct capture *capture; /* that it is part of */
    int place;               /* in it */
    unsigned steps;          /* that it has there */
    unsigned seen[CAPTURED_STREAMS];
};

static struct CUstream_st *streams;

static void *run_stream(void *context)
{
    struct CUstream_st *stream = context;

    hide();
    current = stream->on;
    is_kernel = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct step *step = stream->first;

        if (!step && stream->is_over)
            break;
        if (!step) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        if (!(stream->first = step->next))
            stream->last = &stream->first;
        stream->is_busy = true;
        pthread_mutex_unlock(&lock);
        if (fake_nccl.late_us)
            usleep(fake_nccl.late_us);
        come_after(step);
        step->run(step);
        come_before(stream);
        free(step);
        pthread_mutex_lock(&lock);
        stream->is_busy = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    show();
    return NULL;
}

static struct CUstream_st *new_stream(void)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);

    if (!stream)
        die("no memory");
    stream->on = current;
    stream->last = &stream->first;
    stream->next = streams;
    streams = stream;
    if (pthread_create(&stream->thread, NULL, run_stream, stream))
        die("no thread");
    return stream;
}

static struct CUstream_st *stream_of(cudaStream_t stream)
{
    static struct CUstream_st *standard[DEVICES];

    if (stream)
        return stream;
    if (!standard[current])
        standard[current] = new_stream();
    return standard[current];
}

static void put(cudaStream_t on, struct step what)
{
    struct step *step = malloc(sizeof *step);
    struct CUstream_st *stream;

    if (!step)
        die("no memory");
    *step = what;
    step->next = NULL;
    come_before(step);
    pthread_mutex_lock(&lock);
    stream = stream_of(on);
    if (stream->capture) {
        *stream->capture->graph->last = step;
        stream->capture->graph->last = &step->next;
        stream->seen[stream->place] = ++stream->steps;
    } else {
        *stream->last = step;
        stream->last = &step->next;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_invalid(cudaStream_t stream)
{
    bool is;

    pthread_mutex_lock(&lock);
    is = stream && stream->capture && stream->capture->is_invalid;
    pthread_mutex_unlock(&lock);
    return is;
}

#define VALID(stream)                                                                  \
    do {                                                                               \
        if (is_invalid(stream))                                                        \
            return cudaErrorStreamCaptureInvalidated;                                  \
    } while (0)

/* A wait for a stream that is captured would never end. */
static bool waits_for_capture(cudaStream_t stream)
{
    bool does;

    pthread_mutex_lock(&lock);
    if ((does = stream && stream->capture))
        stream->capture->is_invalid = true;
    pthread_mutex_unlock(&lock);
    return does;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    ENTER_CUDA();
    pthread_mutex_lock(&lock);
    *out = new_stream();
    fake_nccl.blocks++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    ENTER_CUDA();
    *lowest = 0;
    *highest = HIGHEST;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags,
                                                int priority)
{
    const cudaError_t made = cudaStreamCreateWithFlags(out, flags);

    fake_nccl.urgent += made == cudaSuccess && priority == HIGHEST;
    return made;
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct CUstream_st **at;

    pthread_mutex_lock(&lock);
    stream->is_over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&lock);
    for (at = &streams; *at != stream; at = &(*at)->next) {
    }
    *at = stream->next;
    fake_nccl.blocks--;
    pthread_mutex_unlock(&lock);
    free(stream);
    return cudaSuccess;
}

static void wait_for_stream(struct CUstream_st *stream)
{
    while (stream->first || stream->is_busy)
        pthread_cond_wait(&changed, &lock);
    come_after(stream);
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (waits_for_capture(stream))
        return cudaErrorStreamCaptureUnsupported;
    pthread_mutex_lock(&lock);
    wait_for_stream(stream_of(stream));
    pthread_mutex_unlock(&lock);
    return is_sick ? cudaErrorIllegalAddress : cudaSuccess;
}

/* Lock held, except while it waits: a stream may be destroyed then, so it begins again. */
static void wait_for_device(int device)
{
    struct CUstream_st *s;

    do {
        for (s = streams; s && (s->on != device || (!s->first && !s->is_busy));)
            s = s->next;
        if (s)
            pthread_cond_wait(&changed, &lock);
    } while (s);
    for (s = streams; s; s = s->next)
        if (s->on == device)
            come_after(s);
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    PERMITTED();
    pthread_mutex_lock(&lock);
    fake_nccl.device_waits++;
    wait_for_device(current);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    ENTER_CUDA();
    if (!(*out = calloc(1, sizeof **out)))
        die("no memory");
    (*out)->on = current;
    count_blocks(1);
    return cudaSuccess;
}

/* Lock held. */
static void drop(struct record *record)
{
    if (record && --record->users == 0)
        free(record);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    pthread_mutex_lock(&lock);
    drop(event->last);
    fake_nccl.blocks--;
    pthread_mutex_unlock(&lock);
    free(event);
    return cudaSuccess;
}

static void fire(struct step *step)
{
    pthread_mutex_lock(&lock);
    come_before(step->record);
    step->record->has_fired = true;
    drop(step->record);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await(struct step *step)
{
    pthread_mutex_lock(&lock);
    if (!step->record->has_fired) {
        fake_nccl.waits++;
        while (!step->record->has_fired)
            pthread_cond_wait(&changed, &lock);
        fake_nccl.waits--;
    }
    come_after(step->record);
    drop(step->record);
    pthread_mutex_unlock(&lock);
}

/* In a capture: notes which steps come before the event. False: the stream is not captured. */
static bool capture_record(cudaEvent_t event, cudaStream_t stream)
{
    bool is_captured;

    pthread_mutex_lock(&lock);
    if ((is_captured = stream && stream->capture)) {
        event->capture = stream->capture->id;
        memcpy(event->seen, stream->seen, sizeof event->seen);
    }
    pthread_mutex_unlock(&lock);
    return is_captured;
}

/* Lock held. */
static void join_capture(struct CUstream_st *stream, struct capture *capture)
{
    int place = 0;

    while (place < CAPTURED_STREAMS && capture->streams[place])
        place++;
    if (place == CAPTURED_STREAMS)
        die("too many streams in a capture");
    capture->streams[place] = stream;
    stream->capture = capture;
    stream->place = place;
    stream->steps = 0;
    memset(stream->seen, 0, sizeof stream->seen);
}

/* A stream that waits for an event of a capture becomes part of it; one that is part of it may wait
 * for no other event. 0, 1 when there is no capture, or the error. */
static int capture_wait(struct CUstream_st *stream, cudaEvent_t event)
{
    struct capture *capture = stream ? stream->capture : NULL;
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (!event->capture && !capture) {
        rc = 1;
    } else if (capture && event->capture != capture->id) {
        capture->is_invalid = true;
        rc = cudaErrorStreamCaptureIsolation;
    } else if (!capture) {
        for (int i = 0; i < CAPTURES; i++)
            if (captures[i].id == event->capture)
                capture = &captures[i];
        if (!capture || !stream)
            rc = cudaErrorCapturedEvent;
        else
            join_capture(stream, capture);
    }
    for (int i = 0; rc == 0 && i < CAPTURED_STREAMS; i++)
        if (stream->seen[i] < event->seen[i])
            stream->seen[i] = event->seen[i];
    pthread_mutex_unlock(&lock);
    return rc;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct record *record;

    if (fake_nccl.on_record)
        fake_nccl.on_record();
    ENTER_CUDA();
    VALID(stream);
    if (event->on != (stream ? stream->on : current))
        return cudaErrorInvalidResourceHandle;
    if (capture_record(event, stream))
        return cudaSuccess;
    if (!(record = calloc(1, sizeof *record)))
        die("no memory");
    record->users = 2; /* the event and the step */
    pthread_mutex_lock(&lock);
    drop(event->last);
    event->last = record;
    event->capture = 0;
    pthread_mutex_unlock(&lock);
    put(stream, (struct step){.run = fire, .record = record});
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                       unsigned flags)
{
    struct record *record;
    int captured;

    (void)flags;
    ENTER_CUDA();
    VALID(stream);
    if ((captured = capture_wait(stream, event)) != 1)
        return (cudaError_t)captured;
    pthread_mutex_lock(&lock);
    if ((record = event->last))
        record->users++;
    pthread_mutex_unlock(&lock);
    if (record)
        put(stream, (struct step){.run = await, .record = record});
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool has_fired;

    ENTER_CUDA();
    PERMITTED();
    if (event->capture)
        return cudaErrorCapturedEvent;
    pthread_mutex_lock(&lock);
    fake_nccl.queries++;
    has_fired = !event->last || event->last->has_fired;
    if (has_fired && event->last)
        come_after(event->last);
    pthread_mutex_unlock(&lock);
    return has_fired ? cudaSuccess : cudaErrorNotReady;
}

static void carry(void *to, const void *from, size_t bytes)
{
    show_memory();
    memmove(to, from, bytes);
    hide_memory();
}

static void copy(struct step *step)
{
    carry(any(step->to), any(step->from), step->bytes);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    ENTER_CUDA();
    VALID(stream);
    put(stream, (struct step){.run = copy, .to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

static void fill(struct step *step)
{
    void *to = any(step->to);

    if (fake_nccl.on_fill)
        fake_nccl.on_fill();
    show_memory();
    memset(to, step->value, step->bytes);
    hide_memory();
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes,
                                   cudaStream_t stream)
{
    ENTER_CUDA();
    VALID(stream);
    put(stream, (struct step){.run = fill, .to = to, .value = value, .bytes = bytes});
    return cudaSuccess;
}

static void run_kernel(struct step *step)
{
    show();
    step->kernel(step->context);
    hide();
}

EXPORT void fake_launch_copy(void *stream, fake_kernel *kernel, void *context,
                             size_t bytes)
{
    put(stream, (struct step){.run = run_kernel,
                              .kernel = kernel,
                              .context = context,
                              .context_bytes = bytes});
}

EXPORT void fake_launch(void *stream, fake_kernel *kernel, void *context)
{
    fake_launch_copy(stream, kernel, context, 0);
}

static void do_nothing(void *context)
{
    (void)context;
}

EXPORT void fake_delay(void *stream, int steps)
{
    for (int i = 0; i < steps; i++)
        fake_launch(stream, do_nothing, NULL);
}

/* ---- Graphs ----------------------------------------------------------------------------- */

static void keep_comm(struct ncclComm *comm);
static void put_away(struct ncclComm *comm);

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                         enum cudaStreamCaptureStatus *out)
{
    ENTER_CUDA();
    pthread_mutex_lock(&lock);
    *out = !stream || !stream->capture   ? cudaStreamCaptureStatusNone
           : stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode before = thread_mode;

    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                          enum cudaStreamCaptureMode mode)
{
    static unsigned long ids;
    struct capture *capture = captures;
    struct graph *graph = calloc(1, sizeof *graph);

    if (!graph)
        die("no memory");
    *graph = (struct graph){.users = 1, .last = &graph->first};
    pthread_mutex_lock(&lock);
    while (capture < captures + CAPTURES && capture->id)
        capture++;
    if (capture == captures + CAPTURES || stream->capture)
        die("too many captures");
    *capture = (struct capture){
        .id = ++ids, .mode = mode, .thread = pthread_self(), .graph = graph};
    join_capture(stream, capture);
    fake_nccl.blocks++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static void free_messages(struct step *step)
{
    while (step->group) {
        struct step *one = step->group;

        step->group = one->group;
        free(one);
    }
}

static void drop_graph(struct graph *graph)
{
    count_blocks(-1);
    if (--graph->users > 0)
        return;
    while (graph->first) {
        struct step *step = graph->first;

        graph->first = step->next;
        if (step->comm)
            put_away(step->comm);
        free_messages(step);
        if (step->context_bytes)
            free(step->context);
        free(step);
    }
    free(graph);
}

/* Every stream's steps are among those that the first one has waited for. */
static bool is_joined(const struct capture *capture)
{
    const struct CUstream_st *first = capture->streams[0];

    for (int i = 1; i < CAPTURED_STREAMS; i++)
        if (capture->streams[i] && first->seen[i] < capture->streams[i]->steps)
            return false;
    return true;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    cudaError_t rc = cudaSuccess;
    struct capture was;

    *out = NULL;
    pthread_mutex_lock(&lock);
    if (!stream->capture || stream->capture->streams[0] != stream) {
        pthread_mutex_unlock(&lock);
        return cudaErrorStreamCaptureUnmatched;
    }
    was = *stream->capture;
    *stream->capture = (struct capture){.id = 0};
    for (int i = 0; i < CAPTURED_STREAMS && was.streams[i]; i++)
        was.streams[i]->capture = NULL;
    pthread_mutex_unlock(&lock);
    if (was.is_invalid)
        rc = cudaErrorStreamCaptureInvalidated;
    else if (!is_joined(&was))
        rc = cudaErrorStreamCaptureUnjoined;
    if (rc != cudaSuccess)
        drop_graph(was.graph);
    else
        memcpy(out, &was.graph, sizeof was.graph);
    return rc;
}

static struct graph *graph_of(const void *handle)
{
    struct graph *graph;

    memcpy(&graph, &handle, sizeof graph);
    return graph;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                        unsigned long long flags)
{
    struct graph *own = graph_of(graph);

    (void)flags;
    PERMITTED();
    own->users++;
    count_blocks(1);
    memcpy(out, &own, sizeof own);
    return cudaSuccess;
}

/* Runs a copy of the step, which may free what it has. */
static void play_step(const struct step *step)
{
    struct step own = *step;

    own.group = NULL;
    for (struct step *one = step->group, **last = &own.group; one; one = one->group) {
        if (!(*last = malloc(sizeof **last)))
            die("no memory");
        **last = *one;
        (*last)->done = 0;
        (*last)->group = NULL;
        last = &(*last)->group;
    }
    if (own.comm)
        keep_comm(own.comm);
    if (step->run == run_kernel && !step->context_bytes)
        die("a kernel that cannot be captured");
    if (step->context_bytes) {
        if (!(own.context = malloc(step->context_bytes)))
            die("no memory");
        memcpy(own.context, step->context, step->context_bytes);
    }
    own.run(&own);
}

static void play(struct step *step)
{
    const struct graph *graph = step->context;

    for (const struct step *one = graph->first; one; one = one->next)
        play_step(one);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    ENTER_CUDA();
    put(stream, (struct step){.run = play, .context = graph_of(graph)});
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    drop_graph(graph_of(graph));
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    cudaDeviceSynchronize(); /* it may be playing */
    drop_graph(graph_of(graph));
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    ENTER_CUDA();
    *device = current;
    return fake_nccl.no_device ? cudaErrorNoDevice : cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device > fake_nccl.more_devices || device >= DEVICES)
        return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

/* The smaller one has less than 75 % of the others. */
EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which,
                                          int device)
{
    ENTER_CUDA();
    if (which != cudaDevAttrMultiProcessorCount)
        die("another attribute");
    *value = fake_nccl.slow_device && device == fake_nccl.slow_device ? 74 : 100;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    ENTER_CUDA();
    *unused = *total = fake_nccl.lean_device && current == fake_nccl.lean_device
                           ? (size_t)74 << 30
                           : (size_t)100 << 30;
    return cudaSuccess;
}

EXPORT const char *cudaGetErrorString(cudaError_t code)
{
    return code == cudaErrorNoDevice         ? "no fake device"
           : code == cudaErrorIllegalAddress ? "an illegal fake address"
           : code == cudaErrorStreamCaptureUnsupported
               ? "operation not permitted when a fake stream is capturing"
               : "a fake CUDA error";
}

/* ---- The ranks of a communicator, in memory that they share ------------------------------ */

struct world {
    ncclUniqueId ids[RANKS][RANKS]; /* by rank: the ids that it got */
    _Atomic int with_ids;
    _Atomic int attached;
    _Atomic int pids[RANKS];
    _Atomic bool has_left[RANKS];         /* by ncclCommDestroy() */
    _Atomic unsigned long arrived[RANKS]; /* at the n-th barrier */
    struct {
        int kind, root;
        size_t bytes;
        ncclDataType_t type;
        ncclRedOp_t op;
    } calls[RANKS];
    unsigned char chunks[RANKS][CHUNK];
    struct {
        _Atomic unsigned long written, taken; /* chunks */
        unsigned char data[CHUNK];
    } lines[RANKS][RANKS]; /* from, to */
    struct {
        ncclUniqueId id;      /* of the shrunk communicator */
        _Atomic bool is_made; /* by the first rank that is left */
        unsigned excluded;    /* by that rank: a bit for each rank */
    } next;
    struct split {
        int color, key;
        ncclUniqueId id; /* of its part, where it is the first of that */
        _Atomic unsigned long came, made; /* at the n-th split; the n-th id */
    } splits[2][RANKS];                   /* a rank may be one split ahead of another */
};

struct ncclComm {
    struct world *world;
    int on; /* its device */
    int size, rank;
    int polls; /* how many answers are "in progress" now; -1: all */
    int registered;
    unsigned long barriers;
    int pidfds[RANKS];
    _Atomic int users; /* the owner, and steps on streams */
    _Atomic bool is_aborted;
    _Atomic bool is_revoked;
    _Atomic bool is_stopping; /* kernels must end */
    unsigned excluded;        /* of a shrink in progress */
    unsigned long splits;
    bool is_splitting;
    ncclComm_t
        *next; /* where the communicator of a shrink or a split goes; NULL: none */
    _Atomic int lost; /* a rank is dead */
    atomic_flag is_inside;
};

static void begin_call(ncclComm_t comm)
{
    if (atomic_flag_test_and_set(&comm->is_inside))
        die("two threads are inside");
    if (comm->is_aborted)
        die("the communicator is gone");
}

static void leave_call(ncclComm_t comm)
{
    atomic_flag_clear(&comm->is_inside);
}

static void keep_comm(struct ncclComm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

static void put_away(struct ncclComm *comm)
{
    come_before(comm);
    if (atomic_fetch_sub(&comm->users, 1) > 1)
        return;
    come_after(comm);
    for (int i = 0; i < comm->size; i++)
        if (comm->pidfds[i] > 0)
            close(comm->pidfds[i]);
    munmap(comm->world, sizeof *comm->world);
    free(comm);
}

static bool is_ended(ncclComm_t comm)
{
    return comm->is_aborted || comm->is_stopping;
}

/* A short pause in a kernel that spins; checks if the others live. False: the kernel must end. */
static bool spin(ncclComm_t comm)
{
    for (int i = 0; i < comm->size; i++) {
        struct pollfd other = {.fd = comm->pidfds[i], .events = POLLIN};

        if (i == comm->rank || !comm->world->pids[i] || comm->world->has_left[i])
            continue;
        if (!comm->pidfds[i])
            comm->pidfds[i] = (int)syscall(SYS_pidfd_open, comm->world->pids[i], 0);
        if ((comm->pidfds[i] < 0 || (other.fd > 0 && poll(&other, 1, 0) > 0)) &&
            !comm->world->has_left[i])
            comm->lost = true;
    }
    usleep(20);
    return !is_ended(comm);
}

static bool meet(ncclComm_t comm)
{
    struct world *world = comm->world;

    atomic_store(&world->arrived[comm->rank], ++comm->barriers);
    for (int i = 0; i < comm->size; i++)
        for (int looks = 0; atomic_load(&world->arrived[i]) < comm->barriers; looks++)
            if (looks > 50 && !spin(comm))
                return false;
            else
                sched_yield();
    return !is_ended(comm);
}

enum {
    ALL_REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE,
    REDUCE_SCATTER,
    SEND,
    RECV
};

static const enum ctrun_dtype dtype_of[] = {
    [ncclInt8] = CTRUN_I8,     [ncclUint8] = CTRUN_U8,     [ncclInt32] = CTRUN_I32,
    [ncclInt64] = CTRUN_I64,   [ncclFloat16] = CTRUN_F16,  [ncclFloat32] = CTRUN_F32,
    [ncclFloat64] = CTRUN_F64, [ncclBfloat16] = CTRUN_BF16};
static const enum ctrun_op op_of[] = {[ncclSum] = CTRUN_SUM,
                                      [ncclProd] = CTRUN_PROD,
                                      [ncclMax] = CTRUN_MAX,
                                      [ncclMin] = CTRUN_MIN,
                                      [ncclAvg] = CTRUN_AVG};

/* One chunk of at most CHUNK bytes, offset `at` of each rank's data. */
static void finish_chunk(const struct step *step, const unsigned char *in,
                         unsigned char *out, size_t at, size_t bytes)
{
    ncclComm_t comm = step->comm;
    const void *sources[RANKS];
    void *to = out + at;

    (void)in;
    if (step->kind == BROADCAST)
        carry(to, comm->world->chunks[step->root], bytes);
    for (int i = 0; i < comm->size; i++) {
        sources[i] = comm->world->chunks[i];
        if (step->kind == ALL_GATHER)
            carry(out + (size_t)i * step->bytes + at, sources[i], bytes);
    }
    if (step->kind == ALL_REDUCE ||
        (step->kind >= REDUCE && step->root == comm->rank)) {
        const struct ct_reduction how = {dtype_of[step->type], op_of[step->op],
                                         step->op == ncclAvg ? comm->size : 1};

        show_memory();
        ct_reduce(&how, &to, 1, sources, comm->size,
                  bytes / ctrun_dtype_size(how.dtype));
        hide_memory();
    }
}

/* All ranks make the same call, or no rank continues. */
static bool agree(const struct step *step)
{
    ncclComm_t comm = step->comm;
    struct world *world = comm->world;

    world->calls[comm->rank].kind = step->kind;
    world->calls[comm->rank].root = step->root;
    world->calls[comm->rank].bytes = step->bytes;
    world->calls[comm->rank].type = step->type;
    world->calls[comm->rank].op = step->op;
    if (!meet(comm))
        return false;
    for (int i = 0; i < comm->size; i++)
        while (memcmp(&world->calls[i], &world->calls[comm->rank],
                      sizeof world->calls[i]) != 0)
            if (!spin(comm))
                return false;
    return meet(comm);
}

static void collect_part(const struct step *step, const unsigned char *in,
                         unsigned char *out)
{
    ncclComm_t comm = step->comm;

    for (size_t at = 0; at < step->bytes; at += CHUNK) {
        size_t bytes = step->bytes - at < CHUNK ? step->bytes - at : CHUNK;

        if (step->kind != BROADCAST || step->root == comm->rank)
            carry(comm->world->chunks[comm->rank], in + at, bytes);
        if (!meet(comm))
            return;
        finish_chunk(step, in, out, at, bytes);
        if (!meet(comm))
            return;
    }
}

static void collect(const struct step *step, const unsigned char *in,
                    unsigned char *out)
{
    struct step part = *step;

    if (!agree(step))
        return;
    if (step->kind != REDUCE_SCATTER) {
        collect_part(step, in, out);
        return;
    }
    for (part.root = 0; part.root < step->comm->size; part.root++)
        collect_part(&part, in + (size_t)part.root * step->bytes, out);
}

/* Moves the next chunk of a message, if the other end is ready. */
static bool move_chunk(struct step *step)
{
    ncclComm_t comm = step->comm;
    bool is_send = step->kind == SEND;
    int from = is_send ? comm->rank : step->root;
    int to = is_send ? step->root : comm->rank;
    size_t left = step->bytes - step->done;
    size_t bytes = left < CHUNK ? left : CHUNK;
    unsigned char *data = comm->world->lines[from][to].data;
    _Atomic unsigned long *written = &comm->world->lines[from][to].written;
    _Atomic unsigned long *taken = &comm->world->lines[from][to].taken;

    if (bytes == 0 || (*written == *taken) != is_send)
        return false;
    if (is_send)
        carry(data, (const unsigned char *)any(step->from) + step->done, bytes);
    else
        carry((unsigned char *)any(step->to) + step->done, data, bytes);
    atomic_fetch_add(is_send ? written : taken, 1);
    step->done += bytes;
    return true;
}

/* Moves messages at the same time; those to one peer in their order. */
static void move(struct step *first)
{
    bool is_over = false;

    while (!is_over) {
        bool moved = false;
        bool is_taken[2][RANKS] = {{false}};

        is_over = true;
        for (struct step *step = first; step; step = step->group) {
            bool *taken = &is_taken[step->kind == SEND][step->root];

            if (step->done == step->bytes || *taken)
                continue;
            moved = move_chunk(step) || moved;
            *taken = step->done < step->bytes;
            is_over = is_over && !*taken;
        }
        if (!is_over && !moved && !spin(first->comm))
            return;
    }
}

/* Whether a kernel got memory of the host or of another device, or runs on another device. */
static bool is_strange_memory(const void *at)
{
    void *own;

    memcpy(&own, &at, sizeof own);
    return own && !fake_device(own);
}

static bool is_strange(const struct step *step)
{
    return step->comm->on != current ||
           (step->bytes &&
            (is_strange_memory(step->from) || is_strange_memory(step->to)));
}

static void run_collective(struct step *step)
{
    ncclComm_t comm = step->comm;

    while (fake_nccl.hangs && !is_ended(comm))
        usleep(20);
    if (is_strange(step))
        is_sick = true;
    else if (!is_ended(comm) && (step->kind == SEND || step->kind == RECV))
        move(step);
    else if (!is_ended(comm))
        collect(step, step->from ? any(step->from) : NULL,
                step->to ? any(step->to) : NULL);
    put_away(comm);
}

static void run_group(struct step *step)
{
    ncclComm_t comm = step->comm;

    for (struct step *one = step->group; one; one = one->group)
        is_sick = is_sick || is_strange(one);
    if (!is_sick && !is_ended(comm))
        move(step->group);
    free_messages(step);
    put_away(comm);
}

/* ---- NCCL ------------------------------------------------------------------------------- */

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = fake_nccl.version ? fake_nccl.version : RECENT;
    return ncclSuccess;
}

/* The id names the memory, which exists as long as a process has it open. */
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd;

    ENTER_NCCL();
    memset(id, 0, sizeof *id);
    fake_nccl.ids++;
    fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct world)) < 0)
        return ncclSystemError;
    (void)snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", getpid(), fd);
    return ncclSuccess;
}

static struct world *attach(const ncclUniqueId *id, int rank)
{
    int fd = open(id->internal, O_RDWR | O_CLOEXEC);
    struct world *world = fd < 0 ? MAP_FAILED
                                 : mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE,
                                        MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    if (world == MAP_FAILED)
        return NULL;
    world->pids[rank] = getpid();
    atomic_fetch_add(&world->attached, 1);
    return world;
}

static void note_config(const ncclConfig_t *config)
{
    fake_nccl.min_ctas = config->minCTAs;
    fake_nccl.max_ctas = config->maxCTAs;
}

static ncclResult_t init(ncclComm_t *out, int size, int rank, struct world *world)
{
    ncclComm_t comm;

    if (!world || !(comm = calloc(1, sizeof *comm)))
        return ncclSystemError;
    comm->world = world;
    comm->on = current;
    comm->size = size;
    comm->rank = rank;
    comm->polls = fake_nccl.init_polls;
    comm->users = 1;
    count_blocks(1);
    *out = comm;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id,
                                           int rank, ncclConfig_t *config)
{
    ENTER_NCCL();
    if (fake_nccl.refuse_init)
        return (ncclResult_t)fake_nccl.refuse_init;
    if (rank < 0 || rank >= size || size > RANKS || config->blocking != 0)
        return ncclInvalidArgument;
    fake_nccl.roots = 1;
    note_config(config);
    return init(out, size, rank, attach(&id, rank));
}

/* All ids must exist, and be the same on all ranks. */
EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int size, int rank,
                                             int id_count, ncclUniqueId *ids,
                                             ncclConfig_t *config)
{
    struct world *world;

    ENTER_NCCL();
    if (rank < 0 || rank >= size || size > RANKS || config->blocking != 0 ||
        id_count < 1 || id_count > size)
        return ncclInvalidArgument;
    for (int i = 0; i < id_count; i++)
        if (access(ids[i].internal, R_OK) < 0)
            return ncclSystemError;
    if ((world = attach(&ids[0], rank))) {
        memcpy(world->ids[rank], ids, (size_t)id_count * sizeof *ids);
        atomic_fetch_add(&world->with_ids, 1);
    }
    fake_nccl.roots = id_count;
    note_config(config);
    return init(out, size, rank, world);
}

/* The first rank that is left makes the new communicator, the others attach to it. */
static ncclResult_t go_on_shrinking(ncclComm_t comm)
{
    struct world *world = comm->world;
    int rank = 0, size = 0;
    ncclResult_t made;

    for (int i = 0; i < comm->size; i++) {
        const bool is_left = !(comm->excluded & 1u << i);

        rank += is_left && i < comm->rank;
        size += is_left;
    }
    if (rank == 0 && !world->next.is_made) {
        if ((made = ncclGetUniqueId(&world->next.id)) != ncclSuccess)
            return made;
        world->next.excluded = comm->excluded;
        world->next.is_made = true;
    }
    if (!world->next.is_made)
        return ncclInProgress;
    if (world->next.excluded != comm->excluded)
        die("the ranks shrink to different ones");
    made = init(comm->next, size, rank, attach(&world->next.id, rank));
    comm->next = NULL;
    return made == ncclInProgress ? ncclSuccess : made;
}

/* The first member of each part makes its communicator, the others attach to it. */
static ncclResult_t go_on_splitting(ncclComm_t comm)
{
    struct split *all = comm->world->splits[comm->splits % 2];
    struct split *own = &all[comm->rank], *first = own;
    int rank = 0, size = 0;
    ncclResult_t made = ncclInProgress;

    for (int i = 0; i < comm->size; i++) {
        struct split *one = &all[i];

        if (one->came < comm->splits)
            return ncclInProgress;
        if (one->color != own->color)
            continue;
        size++;
        rank += one->key < own->key || (one->key == own->key && i < comm->rank);
        if (one->key < first->key || (one->key == first->key && one < first))
            first = one;
    }
    if (first == own && own->made < comm->splits && own->color >= 0) {
        if ((made = ncclGetUniqueId(&own->id)) != ncclSuccess)
            return made;
        own->made = comm->splits;
    }
    if (own->color >= 0 && first->made < comm->splits)
        return ncclInProgress;
    if (own->color >= 0)
        made = init(comm->next, size, rank, attach(&first->id, rank));
    comm->next = NULL;
    return made == ncclInProgress ? ncclSuccess : made;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    begin_call(comm);
    for (int i = 0; comm->world->with_ids == comm->size && i < comm->size; i++)
        if (memcmp(comm->world->ids[i], comm->world->ids[0],
                   sizeof comm->world->ids[0]) != 0)
            die("the ranks were given different ids");
    *state = comm->polls || comm->world->attached < comm->size ? ncclInProgress
                                                               : ncclSuccess;
    if (comm->polls > 0)
        comm->polls--;
    if (comm->lost && !comm->is_revoked)
        *state = ncclRemoteError;
    if (comm->is_revoked && comm->users > 1)
        *state = ncclInProgress; /* kernels still run */
    if (comm->next && *state == ncclSuccess)
        *state = comm->is_splitting ? go_on_splitting(comm) : go_on_shrinking(comm);
    if (fake_nccl.async_error)
        *state = (ncclResult_t)fake_nccl.async_error;
    leave_call(comm);
    if (fake_enter())
        *state = ncclSystemError;
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm, _Atomic int *count)
{
    ++*count;
    count_blocks(-1);
    put_away(comm);
    return ncclSuccess;
}

/* An abort ends the kernels, and so their events fire. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclUniqueId id;

    begin_call(comm);
    if (comm->next && comm->is_splitting &&
        comm->world->splits[comm->splits % 2][comm->rank].color >= 0 &&
        ncclGetUniqueId(&id) == ncclSuccess)
        (void)init(comm->next, 1, 0, attach(&id, 0));
    comm->is_aborted = true;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BLOCKS; i++)
        if (memory[i].registered == comm)
            memory[i].registered = NULL;
    fake_nccl.registered -= comm->registered;
    pthread_mutex_unlock(&lock);
    return end(comm, &fake_nccl.aborts);
}

/* After it the communicator reports no dead rank, and can only be shrunk. */
EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    ENTER_NCCL();
    if (fake_nccl.refuse_revoke)
        return (ncclResult_t)fake_nccl.refuse_revoke;
    begin_call(comm);
    if (comm->is_revoked || flags != NCCL_REVOKE_DEFAULT)
        die("revoked twice, or how?");
    fake_nccl.revokes++;
    comm->is_revoked = comm->is_stopping = true;
    leave_call(comm);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                                  ncclConfig_t *config)
{
    struct split *own;

    ENTER_NCCL();
    if (fake_nccl.refuse_split)
        return (ncclResult_t)fake_nccl.refuse_split;
    begin_call(comm);
    if (comm->is_revoked || comm->next || comm->users > 1 || comm->polls ||
        config->blocking != 0 || color < NCCL_SPLIT_NOCOLOR)
        die("a split that is none of ours, or of a communicator that is in use");
    fake_nccl.splits++;
    note_config(config);
    own = &comm->world->splits[++comm->splits % 2][comm->rank];
    own->color = color;
    own->key = key;
    own->came = comm->splits;
    *out = NULL;
    comm->next = out;
    comm->is_splitting = true;
    comm->polls = fake_nccl.split_polls;
    leave_call(comm);
    return ncclInProgress;
}

/* A communicator that is not revoked and has an error does not shrink, as in 2.28.9. */
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count,
                                   ncclComm_t *out, ncclConfig_t *config, int flags)
{
    ENTER_NCCL();
    if (fake_nccl.refuse_shrink)
        return (ncclResult_t)fake_nccl.refuse_shrink;
    begin_call(comm);
    if (flags != NCCL_SHRINK_ABORT || config->blocking != 0 || comm->next)
        die("a shrink that is none of ours");
    comm->is_stopping = true;
    while (comm->users > 1)
        usleep(20);
    comm->is_stopping = comm->is_revoked; /* a revoked one runs nothing again */
    comm->excluded = 0;
    for (int i = 0; i < count; i++)
        comm->excluded |= 1u << excluded[i];
    comm->is_splitting = false;
    leave_call(comm);
    *out = NULL;
    if (count < 1 || comm->excluded & 1u << comm->rank)
        return ncclInvalidArgument;
    if (comm->lost && !comm->is_revoked)
        return ncclRemoteError;
    fake_nccl.shrinks++;
    note_config(config);
    comm->next = out;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    begin_call(comm);
    if (comm->is_revoked)
        die("a revoked communicator is finalized");
    leave_call(comm);
    ENTER_NCCL();
    return (ncclResult_t)fake_nccl.finalize_code;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    begin_call(comm);
    if (comm->registered)
        die("a communicator ends with memory that is registered");
    comm->world->has_left[comm->rank] = true;
    return end(comm, &fake_nccl.destroys);
}

static size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
    }
}

/* Between ncclGroupStart() and ncclGroupEnd(), of this thread. */
static _Thread_local struct {
    bool is_open;
    struct step *first, **last;
    cudaStream_t stream;
} group;

static ncclResult_t put_call(struct step step, cudaStream_t stream)
{
    ncclComm_t comm = step.comm;

    if (is_invalid(stream))
        return ncclUnhandledCudaError;
    keep_comm(comm);
    comm->polls = fake_nccl.call_polls;
    put(stream, step);
    return comm->polls ? ncclInProgress : ncclSuccess;
}

static ncclResult_t call(struct step step, size_t count, cudaStream_t stream)
{
    ncclComm_t comm = step.comm;
    ncclResult_t rc = ncclSuccess;

    ENTER_NCCL();
    if (fake_nccl.refuse_call)
        return (ncclResult_t)fake_nccl.refuse_call;
    begin_call(comm);
    if (comm->is_revoked)
        die("a call with a communicator that is revoked");
    fake_nccl.calls++;
    step.run = run_collective;
    step.bytes = count * size_of(step.type);
    if (group.is_open) {
        if (!(*group.last = malloc(sizeof step)))
            die("no memory");
        **group.last = step;
        group.last = &(*group.last)->group;
        group.stream = stream;
    } else {
        rc = put_call(step, stream);
    }
    leave_call(comm);
    return rc;
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    ENTER_NCCL();
    if (group.is_open)
        die("a group in a group");
    group.is_open = true;
    group.first = NULL;
    group.last = &group.first;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    if (!group.is_open)
        die("no group");
    group.is_open = false;
    if (fake_enter()) {
        while (group.first) {
            struct step *one = group.first;

            group.first = one->group;
            free(one);
        }
        return ncclSystemError;
    }
    if (!group.first)
        return ncclSuccess;
    return put_call((struct step){.run = run_group,
                                  .comm = group.first->comm,
                                  .group = group.first},
                    group.stream);
}

static ncclResult_t collective(int kind, const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return call((struct step){.kind = kind,
                              .from = in,
                              .to = out,
                              .type = type,
                              .op = op,
                              .root = root,
                              .comm = comm},
                count, stream);
}

EXPORT ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t comm, cudaStream_t stream)
{
    return collective(REDUCE, in, out, count, type, op, root, comm, stream);
}

EXPORT ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream)
{
    return collective(REDUCE_SCATTER, in, out, count, type, op, 0, comm, stream);
}

EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                                  ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream)
{
    return collective(ALL_REDUCE, in, out, count, type, op, 0, comm, stream);
}

EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                                  ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream)
{
    return collective(BROADCAST, in, out, count, type, 0, root, comm, stream);
}

EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                                  ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream)
{
    return collective(ALL_GATHER, in, out, count, type, 0, 0, comm, stream);
}

EXPORT ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream)
{
    return collective(SEND, in, NULL, count, type, 0, peer, comm, stream);
}

EXPORT ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream)
{
    return collective(RECV, NULL, out, count, type, 0, peer, comm, stream);
}

EXPORT const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError ? "the fake peer is gone" : "a fake NCCL error";
}

/* ---- NCCL's own memory ------------------------------------------------------------------ */

EXPORT ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

EXPORT ncclResult_t ncclMemFree(void *data)
{
    const struct memory *found;

    pthread_mutex_lock(&lock);
    if ((found = find_memory(data)) && found->registered)
        die("memory is freed that is registered");
    pthread_mutex_unlock(&lock);
    return forget(data, false) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

static void mark(void *data, ncclComm_t before, ncclComm_t after)
{
    struct memory *found;

    pthread_mutex_lock(&lock);
    if (!(found = find_memory(data)) || found->registered != before)
        die("registered twice, or not at all");
    found->registered = after;
    fake_nccl.registered += after ? 1 : -1;
    pthread_mutex_unlock(&lock);
}

EXPORT ncclResult_t ncclCommRegister(ncclComm_t comm, void *data, size_t bytes,
                                     void **handle)
{
    (void)bytes;
    ENTER_NCCL();
    if (fake_nccl.refuse_register)
        return (ncclResult_t)fake_nccl.refuse_register;
    begin_call(comm);
    mark(data, NULL, comm);
    comm->registered++;
    *handle = data;
    leave_call(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    begin_call(comm);
    if (comm->is_revoked)
        die("deregistered from a communicator that is revoked");
    mark(handle, comm, NULL);
    comm->registered--;
    leave_call(comm);
    return ncclSuccess;
}
