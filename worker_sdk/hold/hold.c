/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint file that is made in memory. From the commit on the agent has that memory, too, and
 * writes it to the disk, even if this process dies; without an agent the commit writes it.
 *
 *     agent has        in use here
 *     -                A                 open, write
 *     A                -                 commit: the agent writes A
 *     A                B                 open, write
 *     B                -                 commit: it forgets A once that is on the disk
 *     B                A, once more      open waits for that
 *
 * Memory that was used before stays mapped (hold_memory.h). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/durable.h"
#include "worker_sdk/hold/hold_link.h"
#include "worker_sdk/hold/hold_memory.h"

enum {
    HOLD_RESERVE_BYTES = 64 * 1024 * 1024,
    HOLD_SUM_BYTES = 1024 * 1024,
};

struct ctrun_hold {
    struct ct_worker_hold request; /* has the folder and name of the file */
    uint64_t timeout_ms;
    int folder;
    struct ct_hold_memory memory;
    bool has_agent;
    bool is_over; /* committed, or a write has failed */
    uint64_t length, reserved;
    uint32_t crc;
};

/* Guards all that follows, and both connections to the agent (hold_link.h): a request holds the
 * mutex until its reply has come. A struct ctrun_hold needs no lock: one thread uses it at a time. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner;
static struct ct_hold_memory last = CT_HOLD_MEMORY_NONE;  /* the agent has it */
static struct ct_hold_memory spare = CT_HOLD_MEMORY_NONE; /* the agent had it */
static struct ctrun_hold *making; /* not committed or closed yet; of an agent */
static uint64_t last_bytes;       /* what the next one will have, too, most likely */
static bool
    is_owed; /* the agent has a file of this process that may not be on the disk */

/* After fork() the memory belongs to the parent, which may be writing to it: the child drops it. */
static void become_owner(void)
{
    if (owner != getpid()) {
        ct_hold_memory_close(&last);
        ct_hold_memory_close(&spare);
        is_owed = false;
        making = NULL;
    }
    owner = getpid();
}

static int ask(const struct ctrun_hold *hold, struct ct_worker_hold *request, int fd,
               struct ctrun_error *err)
{
    struct ct_worker_hold_reply reply;

    return ct_hold_link_ask(CT_HOLD_LINK_MAKE, request, fd,
                            ct_deadline_ms(hold->timeout_ms), &reply, NULL, err);
}

/* ---- The file --------------------------------------------------------------------------- */

/* Opens the folder of the file: by its descriptor the agent finds the same folder from another
 * namespace. */
static int find_place(struct ct_worker_hold *request, int *folder, const char *path,
                      struct ctrun_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char directory[PATH_MAX];
    struct stat st;

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return ct_fail(err, -EISDIR, "not the name of a file");
    if (ct_copy(request->name, sizeof request->name, name) < 0)
        return ct_fail(err, -ENAMETOOLONG, "its name is longer than %zu bytes",
                       sizeof request->name - 1);
    if (ct_copy(request->path, sizeof request->path, path) < 0 ||
        ct_format(directory, sizeof directory, "%.*s",
                  slash ? (int)(slash - path + 1) : 1, slash ? path : ".") < 0)
        return ct_fail(err, -ENAMETOOLONG, "its path is longer than %zu bytes",
                       sizeof request->path - 1);
    *folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0 || fstat(*folder, &st) < 0)
        return ct_fail(err, -errno, "its folder: %s", strerror(errno));
    request->device = st.st_dev;
    request->inode = st.st_ino;
    return 0;
}

/* Else what is there would be found only when the file is complete, and by the agent. */
static int check_name(const struct ctrun_hold *hold, struct ctrun_error *err)
{
    const char *name = hold->request.name;
    struct stat st;

    if (fstatat(hold->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode))
        return ct_fail(err, -EISDIR, "%s", strerror(EISDIR));
    return ct_durable_check_old(hold->folder, name, "it", err);
}

/* ---- In the making ---------------------------------------------------------------------- */

/* Holds the mutex. Prefers the spare memory, which is mapped and has its pages, unless a process
 * that has found it still reads it. */
static int take_memory(struct ctrun_hold *hold, struct ctrun_error *err)
{
    hold->memory = spare;
    spare = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
    if (hold->memory.fd >= 0 && flock(hold->memory.fd, LOCK_EX | LOCK_NB) < 0)
        ct_hold_memory_close(&hold->memory);
    if (hold->memory.fd < 0)
        return ct_hold_memory_open(&hold->memory, err);
    ct_hold_memory_map(&hold->memory);
    return 0;
}

/* Holds the mutex. Without a reply of the agent nobody knows whether it still writes what it has. */
static void drop_shared(void)
{
    if (last.fd >= 0)
        ct_hold_memory_close(&spare);
    ct_hold_memory_close(&last);
}

/* Holds the mutex. Returns what ct_hold_link_begin() does. */
static int ask_to_begin(struct ctrun_hold *hold, struct ctrun_session *session,
                        struct ctrun_error *err)
{
    struct ct_worker_hold_reply reply;
    int rc;

    hold->request.verb = CT_HOLD_BEGIN;
    hold->request.bytes = last_bytes;
    rc = ct_hold_link_begin(session, CT_HOLD_LINK_MAKE, &hold->request, hold->folder,
                            ct_deadline_ms(hold->timeout_ms), &reply, NULL, err);
    if (rc == CTRUN_E_RESOURCES &&
        hold->request.bytes > 0) { /* perhaps it is smaller */
        hold->request.bytes = 0;
        rc = ask(hold, &hold->request, hold->folder, err);
    }
    hold->reserved = hold->request.bytes;
    return rc;
}

/* Holds the mutex. The agent replies when the memory before the last one is on the disk: then the
 * spare memory may be written to. */
static int begin(struct ctrun_hold *hold, struct ctrun_session *session,
                 struct ctrun_error *err)
{
    struct ct_worker_hold drop = {.verb = CT_HOLD_DROP};
    int rc;

    become_owner();
    if (making) /* the agent would drop that one */
        return ct_fail(err, CTRUN_E_USAGE,
                       "this process is making %s: commit or close that one first",
                       making->request.path);
    rc = ask_to_begin(hold, session, err);
    hold->has_agent = rc == 0;
    if (rc < 0)
        return rc;
    if (!hold->has_agent)
        drop_shared();
    rc = take_memory(hold, err); /* nobody else has the spare memory any more */
    if (rc < 0 && hold->has_agent)
        /* else the agent would refuse the next one, as this one is not over */
        (void)ask(hold, &drop, -1, NULL);
    if (rc == 0 && hold->has_agent)
        making = hold;
    return rc;
}

int ctrun_hold_open(struct ctrun_hold **out, struct ctrun_session *session,
                    const char *path, const struct ctrun_hold_options *given,
                    struct ctrun_error *err)
{
    struct ctrun_hold_options options = CTRUN_HOLD_OPTIONS_INIT;
    struct ctrun_hold *hold;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (!session || !path)
        return ct_fail_null(err, session ? "path" : "session");
    if (!(hold = ct_zalloc(sizeof *hold)))
        return ct_fail(err, -ENOMEM, "hold checkpoint %s: out of memory", path);
    hold->folder = -1;
    hold->memory = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
    if (given)
        rc = ct_sized_read(&options, sizeof options, given, "CTRUN_HOLD_OPTIONS_INIT",
                           err);
    else
        rc = 0;
    hold->timeout_ms = options.timeout_ms;
    if (rc == 0 && (rc = find_place(&hold->request, &hold->folder, path, err)) == 0 &&
        (rc = check_name(hold, err)) == 0) {
        pthread_mutex_lock(&mutex);
        rc = begin(hold, session, err);
        pthread_mutex_unlock(&mutex);
    }
    if (rc < 0) {
        ctrun_hold_close(hold);
        ct_wrap(err, "hold checkpoint %s", path);
        return rc;
    }
    *out = hold;
    return 0;
}

/* Asks the agent for room before the memory is filled: a save that does not fit then ends with an
 * error, and not with an OOM kill. In large steps, because each is a round trip. */
static int reserve(struct ctrun_hold *hold, uint64_t bytes, struct ctrun_error *err)
{
    struct ct_worker_hold request = {.verb = CT_HOLD_RESERVE};
    uint64_t needed;
    int rc = 0;

    if (!hold->has_agent || bytes <= hold->reserved)
        return 0;
    needed = bytes - hold->reserved;
    request.bytes = needed < HOLD_RESERVE_BYTES ? HOLD_RESERVE_BYTES : needed;
    pthread_mutex_lock(&mutex);
    rc = ask(hold, &request, -1, err);
    if (rc == CTRUN_E_RESOURCES && request.bytes > needed) {
        request.bytes = needed;
        rc = ask(hold, &request, -1, err);
    }
    pthread_mutex_unlock(&mutex);
    if (rc == 0)
        hold->reserved += request.bytes;
    return rc;
}

int ctrun_hold_write(struct ctrun_hold *hold, const void *data, size_t length,
                     struct ctrun_error *err)
{
    int rc;

    if (!hold)
        return ct_fail_null(err, "hold");
    if (hold->is_over)
        return ct_fail(err, -EPIPE,
                       "hold checkpoint %s: it was committed, or a write has failed",
                       hold->request.path);
    if (!data && length)
        rc = ct_fail_null(err, "data");
    else if (length > PTRDIFF_MAX) /* the sum below might overflow */
        rc = ct_fail(err, -EINVAL, "%zu bytes are too many", length);
    else
        rc = reserve(hold, hold->length + length, err);
    if (rc == 0)
        rc = ct_hold_memory_write(&hold->memory, hold->length, data, length, &hold->crc,
                                  err);
    if (rc == 0)
        hold->length += length;
    if (rc < 0) {
        hold->is_over = true;
        ct_wrap(err, "hold checkpoint %s", hold->request.path);
    }
    return rc;
}

/* The memory of this hold is the agent's from now on; the memory that the agent had before is ours
 * again once it is on the disk. */
static int hand_over(struct ctrun_hold *hold, struct ctrun_error *err)
{
    int rc;

    hold->request.verb = CT_HOLD_COMMIT;
    hold->request.bytes = hold->length;
    hold->request.crc = hold->crc;
    pthread_mutex_lock(&mutex);
    making = NULL;
    is_owed = true;
    (void)flock(hold->memory.fd, LOCK_UN); /* from now on others may find it */
    if ((rc = ask(hold, &hold->request, hold->memory.fd, err)) == 0) {
        ct_hold_memory_close(&spare);
        spare = last;
        last = hold->memory;
        last_bytes = hold->length;
        hold->memory = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
    } else {
        ct_hold_memory_close(&hold->memory); /* the agent may have it, and write it */
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* Called without an agent. The memory stays ours, and close() keeps it for the next one. A relative
 * path is that of the folder at the opening: this process may work in another one by now. */
static int write_now(struct ctrun_hold *hold, struct ctrun_error *err)
{
    const bool moves = hold->request.path[0] != '/' &&
                       access("/proc/self/fd", X_OK) == 0;
    char path[PATH_MAX];
    const struct ct_durable_source source = {.fd = hold->memory.fd,
                                             .length = hold->length,
                                             .crc = hold->crc,
                                             .name = hold->request.path};
    const char *target = hold->request.path;
    int rc;

    if (moves && ct_format(path, sizeof path, "/proc/self/fd/%d/%s", hold->folder,
                           hold->request.name) >= 0)
        target = path;
    rc = ct_durable_copy(target, &source, err);
    pthread_mutex_lock(&mutex);
    is_owed = is_owed && rc < 0;
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* Cuts the memory first: reused memory may be longer, and the agent accepts only memory of the
 * length in the request. */
int ctrun_hold_commit(struct ctrun_hold *hold, struct ctrun_error *err)
{
    int rc;

    if (!hold)
        return ct_fail_null(err, "hold");
    if (hold->is_over)
        return ct_fail(err, -EPIPE,
                       "hold checkpoint %s: it was committed, or a write has failed",
                       hold->request.path);
    hold->is_over = true;
    if ((rc = ct_hold_memory_cut(&hold->memory, hold->length, err)) == 0)
        rc = hold->has_agent ? hand_over(hold, err) : write_now(hold, err);
    if (rc < 0)
        ct_wrap(err, "hold checkpoint %s", hold->request.path);
    return rc;
}

void ctrun_hold_close(struct ctrun_hold *hold)
{
    struct ct_worker_hold drop = {.verb = CT_HOLD_DROP};

    if (!hold)
        return;
    if (hold->memory.fd >= 0) { /* else it was committed, or never begun */
        pthread_mutex_lock(&mutex);
        if (making == hold)
            making = NULL;
        if (hold->has_agent)
            (void)ask(hold, &drop, -1, NULL); /* a lost connection drops it, too */
        if (spare.fd < 0 && owner == getpid()) {
            spare = hold->memory;
            hold->memory = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
        }
        pthread_mutex_unlock(&mutex);
    }
    ct_hold_memory_close(&hold->memory);
    ct_close(&hold->folder);
    free(hold);
}

/* ---- What was committed ----------------------------------------------------------------- */

int ctrun_hold_wait(struct ctrun_session *session, uint64_t timeout_ms,
                    struct ctrun_error *err)
{
    const struct ct_worker_hold request = {.verb = CT_HOLD_WAIT};
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);
    struct ct_worker_hold_reply reply;
    int rc;

    if (!session)
        return ct_fail_null(err, "session");
    pthread_mutex_lock(&mutex);
    become_owner();
    rc = ct_hold_link_begin(session, CT_HOLD_LINK_LOOK, &request, -1, deadline_ms,
                            &reply, NULL, err);
    if (rc == CT_HOLD_LINK_NO_AGENT) /* else what was committed was written */
        rc = is_owed ? ct_fail(err, CTRUN_E_CLOSED,
                               "the agent ended before it wrote the file")
                     : 0;
    is_owed = is_owed && rc < 0;
    pthread_mutex_unlock(&mutex);
    return rc < 0 ? (ct_wrap(err, "held checkpoint"), rc) : 0;
}

/* Whether the file of that name is still the one that was written from this memory: another node
 * may have replaced it. */
static bool is_current(const struct ct_worker_hold *request, int folder,
                       const struct ct_worker_hold_reply *reply)
{
    struct stat st;

    return fstatat(folder, request->name, &st, 0) == 0 &&
           (uint64_t)st.st_size == reply->bytes && st.st_ino == reply->inode &&
           (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec ==
               reply->mtime_ns;
}

/* Checks the sum of the memory, as the agent does: other processes have this memory, too. */
static bool is_whole(int fd, const struct ct_worker_hold_reply *reply)
{
    void *room = malloc(HOLD_SUM_BYTES);
    uint32_t crc = 0;
    uint64_t at = 0;
    ssize_t n = 1;

    while (room && at < reply->bytes &&
           (n = pread(fd, room, HOLD_SUM_BYTES, (off_t)at)) > 0) {
        crc = ct_crc32c(crc, room, (size_t)n);
        at += (uint64_t)n;
    }
    free(room);
    return room && at == reply->bytes && crc == reply->crc;
}

/* Returns a read-only descriptor with a position of its own. Its lock keeps the process that has
 * made the memory from using it again; the lock ends with the last copy of the descriptor. -1 also
 * when that process is using it already. */
static int reopen(int fd)
{
    char path[40];
    int own;

    (void)ct_format(path, sizeof path, "/proc/self/fd/%d", fd);
    own = open(path, O_RDONLY | O_CLOEXEC);
    if (own >= 0 && flock(own, LOCK_SH | LOCK_NB) < 0)
        ct_close(&own);
    return own;
}

int ctrun_hold_find(struct ctrun_session *session, const char *path,
                    uint64_t timeout_ms, int *out, struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);
    struct ct_worker_hold request = {.verb = CT_HOLD_FIND};
    struct ct_worker_hold_reply reply;
    int folder = -1, held = -1;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = -1;
    if (!session || !path)
        return ct_fail_null(err, session ? "path" : "session");
    if ((rc = find_place(&request, &folder, path, err)) == 0) {
        pthread_mutex_lock(&mutex);
        rc = ct_hold_link_begin(session, CT_HOLD_LINK_LOOK, &request, -1, deadline_ms,
                                &reply, &held, err);
        pthread_mutex_unlock(&mutex);
    }
    if (rc == 0 && held >= 0 && is_current(&request, folder, &reply) &&
        (*out = reopen(held)) >= 0 && !is_whole(*out, &reply))
        ct_close(out);
    ct_close(&held);
    ct_close(&folder);
    if (rc < 0 && rc != -ENOENT) {
        ct_wrap(err, "held checkpoint %s", path);
        return rc;
    }
    return *out >= 0;
}
