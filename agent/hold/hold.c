/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/hold/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/hold/hold_writer.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/str.h"

enum hold_state {
    HOLD_MAKING,
    HOLD_QUEUED,
    HOLD_WRITING,
    HOLD_WRITTEN,
    HOLD_LOST,
};

struct entry {
    struct ct_list node; /* hold->entries: in the order in which they were begun */
    enum hold_state state;
    struct hold_client *client; /* NULL: the client has gone */
    int rank;
    int folder, memory; /* memory: -1 until the commit */
    uint64_t device, inode;
    char name[sizeof((struct ct_worker_hold *)NULL)->name];
    char path[sizeof((struct ct_worker_hold *)NULL)->path];
    uint64_t bytes; /* reserved at begin; after the commit the real size */
    uint32_t crc;
    uint64_t committed_ms, deadline_ms;
    struct hold_writer *writer;       /* WRITING */
    struct hold_writer_result result; /* WRITTEN, LOST */
    bool
        is_known_lost; /* its rank was told, the user gave it up, or another world has begun */
};

struct hold_client {
    struct ct_list node;
    struct hold *hold;
    void *peer;
    int rank;
    bool is_waiting; /* for the answer to `request` */
    struct ct_worker_hold request;
    int folder; /* of a begin that waits; -1: none */
};

struct hold {
    struct hold_options options;
    struct ct_list entries, clients;
    uint64_t bytes; /* of all entries */
    int writers;
    bool is_busy; /* on_idle() is still to be called */
    int pipe;     /* by which threads return results */
    struct loop_watch *done;
    struct loop_timer *timer; /* the next deadline */
};

static bool is_under_way(const struct entry *entry)
{
    return entry->state == HOLD_QUEUED || entry->state == HOLD_WRITING;
}

bool hold_is_busy(const struct hold *hold)
{
    if (hold)
        ct_list_for_each(struct entry, entry, &hold->entries, node)
            if (is_under_way(entry))
                return true;
    return false;
}

uint64_t hold_left_ms(const struct hold *hold)
{
    uint64_t last_ms = 0;
    const uint64_t now_ms = ct_now_ms();

    ct_list_for_each(struct entry, entry, &hold->entries, node) {
        if (is_under_way(entry) && entry->deadline_ms > last_ms)
            last_ms = entry->deadline_ms;
    }
    return last_ms > now_ms ? last_ms - now_ms : 0;
}

static void free_memory(struct hold *hold, struct entry *entry)
{
    hold->bytes -= entry->bytes;
    entry->bytes = 0;
    ct_close(&entry->memory);
}

static void forget(struct hold *hold, struct entry *entry)
{
    if (entry->writer)
        hold_writer_give_up(entry->writer);
    free_memory(hold, entry);
    ct_close(&entry->folder);
    ct_list_remove(&entry->node);
    free(entry);
}

/* ---- Rules ------------------------------------------------------------------------------ */

static int count_of_rank(const struct hold *hold, int rank)
{
    int count = 0;

    ct_list_for_each(struct entry, entry, &hold->entries, node)
        count += entry->rank == rank;
    return count;
}

/* The entry that its client is making; NULL: none. */
static struct entry *find_making(const struct hold_client *client)
{
    ct_list_for_each(struct entry, entry, &client->hold->entries, node) {
        if (entry->client == client && entry->state == HOLD_MAKING)
            return entry;
    }
    return NULL;
}

/* The entry that the rank committed last; NULL: none. */
static struct entry *find_last(const struct hold *hold, int rank)
{
    struct entry *last = NULL;

    ct_list_for_each(struct entry, entry, &hold->entries, node) {
        if (entry->rank == rank && entry->state != HOLD_MAKING)
            last = entry;
    }
    return last;
}

static bool is_file(const struct entry *entry, uint64_t device, uint64_t inode,
                    const char *name)
{
    return entry->device == device && entry->inode == inode &&
           strcmp(entry->name, name) == 0;
}

/* The entry that was committed last for this file, by any rank, unless it is lost. */
static struct entry *find_file(const struct hold *hold,
                               const struct ct_worker_hold *request)
{
    struct entry *last = NULL;

    ct_list_for_each(struct entry, entry, &hold->entries, node) {
        if (entry->state != HOLD_MAKING &&
            is_file(entry, request->device, request->inode, request->name))
            last = entry;
    }
    return last && last->state != HOLD_LOST ? last : NULL;
}

/* Forgets the rank's entries that are written or lost, except the one that it committed last. */
static void forget_old(struct hold *hold, int rank)
{
    const struct entry *last = find_last(hold, rank);

    ct_list_for_each_safe(struct entry, entry, &hold->entries, node) {
        if (entry->rank == rank && entry != last && entry->state >= HOLD_WRITTEN)
            forget(hold, entry);
    }
}

/* Frees entries that are on the disk or lost, and whose worker has gone, to make room; a loss that
 * nobody knows of stays in the list. */
static bool make_room(struct hold *hold, uint64_t bytes)
{
    if (hold->options.max_bytes == 0)
        hold->options.max_bytes = hold->options.find_max_bytes();
    ct_list_for_each_safe(struct entry, entry, &hold->entries, node) {
        if (bytes <= hold->options.max_bytes - hold->bytes)
            break;
        if (entry->client || entry->state < HOLD_WRITTEN)
            continue;
        if (entry->state == HOLD_LOST && !entry->is_known_lost)
            free_memory(hold, entry);
        else
            forget(hold, entry);
    }
    return bytes <= hold->options.max_bytes - hold->bytes;
}

/* ---- Answers ---------------------------------------------------------------------------- */

static void answer(struct hold_client *client, int code, const char *text)
{
    struct ct_worker_hold_reply reply = {.code = code};
    const struct hold_options *options = &client->hold->options;

    (void)ct_copy(reply.text, sizeof reply.text, text); /* cut is fine */
    client->is_waiting = false;
    options->reply(options->context, client->peer, &reply, -1);
}

static bool reserve(struct hold_client *client, struct entry *entry, uint64_t bytes)
{
    struct hold *hold = client->hold;
    char text[256];

    if (make_room(hold, bytes)) {
        entry->bytes += bytes;
        hold->bytes += bytes;
        answer(client, 0, "");
        return true;
    }
    (void)ct_format(text, sizeof text,
                    "%.1f GiB do not fit: the workers of this node hold %.1f of the "
                    "%.1f GiB that they may hold (half of its memory): save this "
                    "checkpoint without holding it",
                    (double)bytes / (1 << 30), (double)hold->bytes / (1 << 30),
                    (double)hold->options.max_bytes / (1 << 30));
    answer(client, CTRUN_E_RESOURCES, text);
    return false;
}

/* False: the rank has two entries, so the client waits until one can be forgotten. */
static bool try_begin(struct hold_client *client)
{
    struct hold *hold = client->hold;
    const struct ct_worker_hold *request = &client->request;
    struct entry *entry;

    forget_old(hold, client->rank);
    if (count_of_rank(hold, client->rank) > 1)
        return false;
    if (!(entry = ct_zalloc(sizeof *entry))) {
        ct_close(&client->folder);
        answer(client, -ENOMEM, "the agent is out of memory");
        return true;
    }
    entry->client = client;
    entry->rank = client->rank;
    entry->folder = client->folder;
    entry->memory = -1;
    entry->device = request->device;
    entry->inode = request->inode;
    client->folder = -1;
    (void)ct_copy(entry->name, sizeof entry->name, request->name); /* same size */
    (void)ct_copy(entry->path, sizeof entry->path, request->path); /* same size */
    ct_list_add(&hold->entries, &entry->node);
    if (!reserve(client, entry, request->bytes))
        forget(hold, entry);
    return true;
}

static bool try_wait(struct hold_client *client)
{
    const struct hold *hold = client->hold;
    struct entry *last = find_last(hold, client->rank);

    ct_list_for_each(const struct entry, entry, &hold->entries, node) {
        if (entry->rank == client->rank && is_under_way(entry))
            return false;
    }
    if (last && last->state == HOLD_LOST) {
        last->is_known_lost = true;
        answer(client, last->result.code, last->result.text);
    } else {
        answer(client, 0, "");
    }
    return true;
}

static bool try_find(struct hold_client *client)
{
    const struct hold_options *options = &client->hold->options;
    const struct entry *entry = find_file(client->hold, &client->request);
    struct ct_worker_hold_reply reply = {.code = -ENOENT};

    if (entry && is_under_way(entry))
        return false;
    if (entry)
        reply = (struct ct_worker_hold_reply){.bytes = entry->bytes,
                                              .crc = entry->crc,
                                              .inode = entry->result.inode,
                                              .mtime_ns = entry->result.mtime_ns};
    client->is_waiting = false;
    options->reply(options->context, client->peer, &reply, entry ? entry->memory : -1);
    return true;
}

static void try_answer(struct hold_client *client)
{
    switch (client->request.verb) {
    case CT_HOLD_BEGIN: (void)try_begin(client); break;
    case CT_HOLD_WAIT: (void)try_wait(client); break;
    case CT_HOLD_FIND: (void)try_find(client); break;
    default: break;
    }
}

static void try_all(struct hold *hold)
{
    ct_list_for_each_safe(struct hold_client, client, &hold->clients, node) {
        if (client->is_waiting)
            try_answer(client);
    }
}

/* ---- To the disk ------------------------------------------------------------------------ */

/* The entry is WRITTEN or LOST now: see its result. */
static void settle(struct hold *hold, struct entry *entry)
{
    const struct ctrun_error *why = NULL;
    struct ctrun_error err;
    struct hold_end end;

    entry->writer = NULL;
    entry->state = entry->result.code < 0 ? HOLD_LOST : HOLD_WRITTEN;
    if (entry->state == HOLD_LOST) {
        (void)ct_fail(&err, entry->result.code, "%s", entry->result.text);
        why = &err;
    }
    end = (struct hold_end){.rank = entry->rank,
                            .path = entry->path,
                            .bytes = entry->bytes,
                            .took_ms = ct_now_ms() - entry->committed_ms,
                            .is_left = !entry->client,
                            .why = why};
    hold->options.on_end(hold->options.context, &end);
}

static void lose(struct hold *hold, struct entry *entry, int code, const char *why)
{
    if (entry->writer) {
        hold_writer_give_up(entry->writer);
        hold->writers--;
    }
    entry->result.code = code;
    (void)ct_copy(entry->result.text, sizeof entry->result.text, why);
    settle(hold, entry);
}

/* The entries of one file are written in the order of their commits, one at a time. */
static bool is_next(const struct hold *hold, const struct entry *entry)
{
    ct_list_for_each(const struct entry, other, &hold->entries, node) {
        if (other == entry)
            break;
        if (is_under_way(other) &&
            is_file(other, entry->device, entry->inode, entry->name))
            return false;
    }
    return true;
}

static void start(struct hold *hold, struct entry *entry)
{
    const struct hold_writer_job job = {.memory = entry->memory,
                                        .folder = entry->folder,
                                        .name = entry->name,
                                        .bytes = entry->bytes,
                                        .crc = entry->crc,
                                        .may_write = hold->options.may_write,
                                        .entry = entry};

    entry->writer = hold_writer_start(&job, hold->pipe);
    if (!entry->writer) {
        lose(hold, entry, -ENOMEM,
             "the agent has no thread, descriptor or memory for it");
        return;
    }
    entry->state = HOLD_WRITING;
    hold->writers++;
}

/* Starts entries that wait for a thread, ends those whose time is over, and sets the timer. */
static void go_on(struct hold *hold)
{
    const uint64_t now_ms = ct_now_ms();
    uint64_t next_ms = UINT64_MAX;

    ct_list_for_each(struct entry, entry, &hold->entries, node) {
        if (is_under_way(entry) && now_ms >= entry->deadline_ms)
            lose(hold, entry, -ETIMEDOUT, "it was not written to the disk in time");
        else if (entry->state == HOLD_QUEUED && hold->writers < HOLD_WRITERS_MAX &&
                 is_next(hold, entry))
            start(hold, entry);
        if (is_under_way(entry) && entry->deadline_ms < next_ms)
            next_ms = entry->deadline_ms;
    }
    if (next_ms != UINT64_MAX)
        loop_timer_set(hold->timer, next_ms - now_ms);
    else
        loop_timer_stop(hold->timer);
    try_all(hold);
    if (hold->is_busy && !hold_is_busy(hold)) {
        hold->is_busy = false;
        hold->options.on_idle(hold->options.context);
    }
}

static void on_time(void *context)
{
    go_on(context);
}

static void on_done(void *context, unsigned events)
{
    struct hold *hold = context;
    struct hold_writer_result result;

    (void)events;
    while (hold_writer_read(loop_watch_fd(hold->done), &result)) {
        struct entry *entry = result.entry;

        if (!entry)
            continue; /* its entry was given up before and counts no more */
        hold->writers--;
        entry->result = result;
        settle(hold, entry);
    }
    go_on(hold);
}

void hold_forget_lost(struct hold *hold)
{
    ct_list_for_each(struct entry, entry, &hold->entries, node)
        entry->is_known_lost = true;
}

int hold_find_lost(const struct hold *hold, int rank, struct ctrun_error *err)
{
    const struct entry *last = find_last(hold, rank);

    if (!last || last->state != HOLD_LOST || last->is_known_lost)
        return 0;
    return ct_fail(
        err, last->result.code,
        "the workers have succeeded, but rank %d's last checkpoint, %s, is not "
        "on the disk: %s",
        rank, last->path, last->result.text);
}

void hold_cancel(struct hold *hold, const char *why)
{
    ct_list_for_each(struct entry, entry, &hold->entries, node) {
        if (is_under_way(entry)) {
            entry->is_known_lost = true; /* the user gives it up */
            lose(hold, entry, -ECANCELED, why);
        }
    }
    go_on(hold);
}

/* ---- Requests of workers ----------------------------------------------------------------- */

/* A memfd that has exactly what was reported, and no more than was reserved. */
static bool is_memory(int fd, uint64_t bytes)
{
    struct stat st;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == bytes;
}

static int commit(struct hold_client *client, int *fd)
{
    struct hold *hold = client->hold;
    const struct ct_worker_hold *request = &client->request;
    struct entry *entry = find_making(client);

    if (!entry || *fd < 0 || request->bytes > entry->bytes ||
        !is_memory(*fd, request->bytes))
        return CTRUN_E_PROTOCOL;
    hold->bytes -= entry->bytes - request->bytes;
    entry->bytes = request->bytes;
    entry->crc = request->crc;
    entry->memory = *fd;
    *fd = -1;
    entry->state = HOLD_QUEUED;
    hold->is_busy = true;
    entry->committed_ms = ct_now_ms();
    entry->deadline_ms = entry->committed_ms + HOLD_WRITE_MS +
                         entry->bytes / HOLD_WRITE_BYTES_PER_MS;
    /* Moved behind all others that were committed: it is the last one now. */
    ct_list_remove(&entry->node);
    ct_list_add(&hold->entries, &entry->node);
    forget_old(hold, client->rank);
    answer(client, 0, "");
    go_on(hold);
    return 0;
}

static bool is_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static int begin(struct hold_client *client, int *fd)
{
    if (*fd < 0 || find_making(client) || !is_name(client->request.name))
        return CTRUN_E_PROTOCOL;
    client->folder = *fd;
    *fd = -1;
    (void)try_begin(client);
    return 0;
}

static int obey(struct hold_client *client, int *fd)
{
    struct entry *entry = find_making(client);

    switch (client->request.verb) {
    case CT_HOLD_BEGIN: return begin(client, fd);
    case CT_HOLD_RESERVE:
        if (!entry)
            return CTRUN_E_PROTOCOL;
        (void)reserve(client, entry, client->request.bytes);
        return 0;
    case CT_HOLD_COMMIT: return commit(client, fd);
    case CT_HOLD_DROP:
        if (entry)
            forget(client->hold, entry);
        answer(client, 0, "");
        try_all(client->hold);
        return 0;
    case CT_HOLD_WAIT:
    case CT_HOLD_FIND: try_answer(client); return 0;
    default: return CTRUN_E_PROTOCOL;
    }
}

int hold_on_request(struct hold_client *client, const struct ct_worker_hold *request,
                    int fd)
{
    int rc = CTRUN_E_PROTOCOL;

    if (!client->is_waiting) { /* else the last request has no answer yet */
        client->request = *request;
        client->is_waiting = true;
        rc = obey(client, &fd);
    }
    ct_close(&fd);
    return rc;
}

struct hold_client *hold_join(struct hold *hold, void *peer, int rank)
{
    struct hold_client *client = ct_zalloc(sizeof *client);

    if (!client)
        return NULL;
    client->hold = hold;
    client->peer = peer;
    client->rank = rank;
    client->folder = -1;
    ct_list_add(&hold->clients, &client->node);
    return client;
}

void hold_leave(struct hold_client *client)
{
    struct hold *hold = client ? client->hold : NULL;

    if (!client)
        return;
    ct_list_for_each_safe(struct entry, entry, &hold->entries, node) {
        if (entry->client != client)
            continue;
        entry->client = NULL;
        if (entry->state == HOLD_MAKING)
            forget(hold, entry);
    }
    ct_close(&client->folder);
    ct_list_remove(&client->node);
    free(client);
    try_all(hold);
}

/* ---- Life ------------------------------------------------------------------------------- */

int hold_create(struct hold **out, const struct hold_options *options)
{
    struct hold *hold = ct_zalloc(sizeof *hold);
    int ends[2];

    if (!hold)
        return -ENOMEM;
    hold->options = *options;
    ct_list_init(&hold->entries);
    ct_list_init(&hold->clients);
    hold->pipe = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
        hold->pipe = ends[1];
        hold->done = loop_watch_open(options->loop, ends[0], on_done, hold);
    }
    hold->timer = loop_timer_open(options->loop, on_time, hold);
    if (!hold->done || !hold->timer) {
        hold_destroy(hold);
        return -ENOMEM;
    }
    loop_watch_for(hold->done, LOOP_READ);
    *out = hold;
    return 0;
}

void hold_destroy(struct hold *hold)
{
    struct hold_writer_result result;

    if (!hold)
        return;
    ct_list_for_each_safe(struct hold_client, client, &hold->clients, node)
        hold_leave(client);
    ct_list_for_each_safe(struct entry, entry, &hold->entries, node)
        forget(hold, entry);
    while (hold->done && hold_writer_read(loop_watch_fd(hold->done), &result))
        ; /* results that came before they were given up */
    loop_watch_close(hold->done);
    loop_timer_close(hold->timer);
    ct_close(&hold->pipe);
    free(hold);
}
