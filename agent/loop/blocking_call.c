/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/loop/blocking_call.h"

#include <errno.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/thread.h"

/* Shared by two threads. The second one to take the mutex frees the call: the caller if the job
 * returned in time, else the thread, which frees the job, too. */
struct call {
    struct blocking_lane *lane;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool is_done;
    bool is_left; /* the caller has stopped waiting: the thread frees job and call */
    void (*fn)(void *job);
    void (*free_job)(void *job);
    void *job;
};

/* Guards all lanes. While calls of a lane are out, no other call of it starts: else a hung file
 * system would occupy one thread per call. Lock order: the mutex of a call, then this one. */
static pthread_mutex_t lanes = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t are_back; /* the calls of some lane */
static struct blocking_lane common;

static void init_lanes(void)
{
    ct_cond_init(&are_back);
}

static void add_to_lane(struct blocking_lane *lane, uint64_t began_ms)
{
    pthread_mutex_lock(&lanes);
    if (lane->out++ == 0)
        lane->began_ms = began_ms;
    pthread_mutex_unlock(&lanes);
}

static void take_from_lane(struct blocking_lane *lane)
{
    pthread_mutex_lock(&lanes);
    if (--lane->out == 0)
        pthread_cond_broadcast(&are_back);
    pthread_mutex_unlock(&lanes);
}

/* Waits until no call of the lane is out. False: the first one has lasted for longer than timeout_ms. */
static bool await_lane(const struct blocking_lane *lane, uint64_t timeout_ms)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool is_free;

    pthread_once(&once, init_lanes);
    pthread_mutex_lock(&lanes);
    while (lane->out > 0 &&
           ct_cond_wait(&are_back, &lanes, lane->began_ms + timeout_ms))
        ;
    is_free = lane->out == 0;
    pthread_mutex_unlock(&lanes);
    return is_free;
}

static void destroy(struct call *call)
{
    pthread_cond_destroy(&call->done);
    pthread_mutex_destroy(&call->mutex);
    free(call);
}

static struct call *create(void)
{
    struct call *call = ct_zalloc(sizeof *call);

    if (!call)
        return NULL;
    pthread_mutex_init(&call->mutex, NULL);
    ct_cond_init(&call->done);
    return call;
}

/* is_left is read under the mutex: after the unlock the caller may have freed the call already. */
static void *run(void *context)
{
    struct call *call = context;
    bool is_left;

    call->fn(call->job);
    pthread_mutex_lock(&call->mutex);
    call->is_done = true;
    is_left = call->is_left;
    pthread_cond_signal(&call->done);
    pthread_mutex_unlock(&call->mutex);
    if (is_left) {
        struct blocking_lane *lane = call->lane;

        call->free_job(call->job);
        destroy(call);
        take_from_lane(lane);
    }
    return NULL;
}

int blocking_call_start(void *(*fn)(void *job), void *job)
{
    pthread_t thread;
    const int rc = ct_thread_start(&thread, fn, job);

    if (rc == 0)
        (void)pthread_detach(thread);
    return rc;
}

/* The call is counted in its lane before its mutex is released, so that the thread cannot uncount
 * it first. */
static bool wait_for(struct call *call, uint64_t until_ms)
{
    const uint64_t began_ms = ct_now_ms();
    bool is_done;

    pthread_mutex_lock(&call->mutex);
    while (!call->is_done && ct_cond_wait(&call->done, &call->mutex, until_ms))
        ;
    is_done = call->is_done;
    call->is_left = !is_done;
    if (!is_done)
        add_to_lane(call->lane, began_ms);
    pthread_mutex_unlock(&call->mutex);
    return is_done;
}

int blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                     void (*free_job)(void *job), void *job, uint64_t timeout_ms)
{
    const uint64_t until_ms = ct_deadline_ms(timeout_ms);
    struct call *call;

    if (!await_lane(lane, timeout_ms)) {
        free_job(job);
        return -ETIMEDOUT;
    }
    call = create();
    if (call) {
        call->lane = lane;
        call->fn = fn;
        call->free_job = free_job;
        call->job = job;
    }
    if (!call || blocking_call_start(run, call) < 0) {
        const bool is_called = !lane->needs_thread;

        (is_called ? fn : free_job)(job); /* fn may hang here */
        if (call)
            destroy(call);
        return is_called ? 0 : -EAGAIN;
    }
    if (!wait_for(call, until_ms))
        return -ETIMEDOUT;
    destroy(call);
    return 0;
}

int blocking_call(void (*fn)(void *job), void (*free_job)(void *job), void *job,
                  uint64_t timeout_ms)
{
    return blocking_call_in(&common, fn, free_job, job, timeout_ms);
}

struct look {
    int count;
    struct {
        char *path; /* owned; NULL: no file */
        bool is_there;
        uint64_t written_ns;
    } list[];
};

/* Local file systems: their files get times from this kernel's clock. */
static bool is_local(const char *path)
{
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC: return true;
    default: return false;
    }
}

static void look_for_files(void *job)
{
    struct look *look = job;
    struct stat info;

    for (int i = 0; i < look->count; i++) {
        const char *path = look->list[i].path;

        look->list[i].is_there = path && stat(path, &info) == 0;
        if (look->list[i].is_there && is_local(path))
            look->list[i].written_ns = (uint64_t)info.st_mtim.tv_sec * 1000000000 +
                                       (uint64_t)info.st_mtim.tv_nsec;
    }
}

static void free_look(void *job)
{
    struct look *look = job;

    for (int i = 0; i < look->count; i++)
        free(look->list[i].path);
    free(look);
}

/* NULL: out of memory. */
static struct look *make_look(const struct blocking_file *files, int count)
{
    struct look *look = ct_zalloc(sizeof *look + (size_t)count * sizeof *look->list);

    if (look)
        look->count = count;
    for (int i = 0; look && i < count; i++)
        if (files[i].path && !(look->list[i].path = ct_strdup(files[i].path))) {
            free_look(look);
            return NULL;
        }
    return look;
}

void blocking_call_find_files(struct blocking_file *files, int count,
                              uint64_t timeout_ms)
{
    struct look *look = make_look(files, count);
    const bool is_done = look && blocking_call(look_for_files, free_look, look,
                                               timeout_ms) == 0;

    for (int i = 0; i < count; i++) {
        files[i].is_there = is_done && look->list[i].is_there;
        files[i].written_ns = is_done ? look->list[i].written_ns : 0;
    }
    if (is_done)
        free_look(look);
}
