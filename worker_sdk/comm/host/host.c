/* SPDX-License-Identifier: Apache-2.0 */
/* The host back end: shared memory inside a host, TCP between hosts.
 *
 *     one host           everything in shared memory; no socket stays open
 *     one rank a host    everything over TCP
 *     mixed              messages inside a host in shared memory, all else over TCP
 *                        (loopback inside a host): in every collective each rank exchanges
 *                        headers with each other rank, so that a mismatch is found, and
 *                        reductions are in rank order
 *
 * A failure on one member is reported to all: by the verdict in the segment and by a note on each
 * control connection. The first reason stays. */
#include "worker_sdk/comm/host/host.h"

#include <errno.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/descriptors.h"
#include "worker_sdk/comm/host/exchange.h"
#include "worker_sdk/comm/host/host_shm.h"
#include "worker_sdk/comm/host/host_tcp.h"
#include "worker_sdk/comm/host/region.h"

enum {
    PAGE = 4096
};

/* Memory of ctrun_group_alloc() on a host with one member. */
struct block {
    struct block *next;
    void *data;
};

struct host {
    int size, me;
    int rank; /* in the world */
    struct ct_peer *peers;
    struct ct_verdict verdict;
    struct ct_loss_watch losses;
    /* Our host: members by local index, and back (-1: on another host). */
    const struct ct_peer **locals;
    int *local_of;
    int local_size, local_me;
    struct ct_host_shm *shm; /* NULL: alone on the host */
    /* TCP connections to the other members. */
    struct ct_mesh mesh;
    struct ct_host_tcp *tcp; /* NULL: all members are on one host */
    struct ct_exchange exchange;
    /* The call that runs in the background after its agreement. A copy; its messages belong to the
     * work (work.c), which outlives the call. */
    struct ct_call call;
    bool is_agreed;
    struct block *blocks;
};

static void host_close(void *self);

/* ---- Who is where ----------------------------------------------------------------------- */

static int allocate(struct host *host, const struct ct_backend_setup *setup)
{
    size_t size = (size_t)setup->size;

    host->size = setup->size;
    host->me = setup->me;
    host->rank = setup->place->rank;
    host->losses = setup->losses;
    host->peers = ct_zalloc_array(size, sizeof *host->peers);
    host->locals = ct_zalloc_array(size, sizeof *host->locals);
    host->local_of = ct_zalloc_array(size, sizeof(int));
    return host->peers && host->locals && host->local_of ? 0 : -ENOMEM;
}

static void sort_by_host(struct host *host)
{
    const char *ours = host->peers[host->me].host_id;

    for (int i = 0; i < host->size; i++) {
        host->local_of[i] = -1;
        if (strcmp(host->peers[i].host_id, ours) == 0) {
            host->local_of[i] = host->local_size;
            host->locals[host->local_size++] = &host->peers[i];
        }
    }
    host->local_me = host->local_of[host->me];
}

/* ---- Opening ---------------------------------------------------------------------------- */

static int check_verdict(struct host *host, struct ctrun_error *err)
{
    int rc = ct_verdict_get(&host->verdict, err);

    return rc == 0 && host->shm ? ct_host_shm_get_verdict(host->shm, err) : rc;
}

/* Called during waits in shared memory: checks for failures that come by network. */
static int check_from_shm(void *context, struct ctrun_error *err)
{
    struct host *host = context;
    int rc = ct_verdict_get(&host->verdict, err);

    if (rc == 0 && host->tcp)
        rc = ct_mesh_check(&host->mesh, CT_REASON_GRACE_MS, err);
    return rc == 0 ? ct_loss_check(&host->losses, err) : rc;
}

/* Called during waits for the network: checks for failures of this host. */
static int check_from_tcp(void *context, struct ctrun_error *err)
{
    struct host *host = context;
    int rc = check_verdict(host, err);

    return rc == 0 ? ct_loss_check(&host->losses, err) : rc;
}

static int open_shm(struct host *host, int segment_fd, uint64_t deadline_ms,
                    struct ctrun_error *err)
{
    struct ct_segment segment;
    const struct ct_segment_setup setup = {.peers = host->locals,
                                           .size = host->local_size,
                                           .me = host->local_me,
                                           .own_fd = segment_fd,
                                           .watch = {check_from_shm, host},
                                           .deadline_ms = deadline_ms};
    int rc = ct_segment_open(&segment, &setup, err);

    if (rc == 0)
        return ct_host_shm_create(&host->shm, &segment, err);
    if (segment.verdict && err)
        (void)ct_verdict_set(segment.verdict, rc,
                             err->text); /* so that the others fail at once */
    ct_segment_close(&segment);
    return rc;
}

static int open_tcp(struct host *host, int listener, const unsigned char *cookie,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ct_watch watch = {check_from_tcp, host};
    const struct ct_mesh_setup setup = {.peers = host->peers,
                                        .size = host->size,
                                        .me = host->me,
                                        .listener = listener,
                                        .cookie = cookie,
                                        .watch = watch,
                                        .deadline_ms = deadline_ms};
    int rc = ct_mesh_open(&host->mesh, &setup, err);

    return rc < 0 ? rc : ct_host_tcp_create(&host->tcp, &host->mesh, watch, err);
}

/* Errors with these codes name the ranks that they are about, and all ranks may give the same
 * reason. A time-out names whom this rank has waited for. */
static bool names_ranks(int code)
{
    return code == CTRUN_E_PEER_LOST || code == CTRUN_E_MISMATCH ||
           code == CTRUN_E_ABORTED;
}

/* What another rank has told begins with that rank: texts of our own begin with the call. */
static bool is_of_another(const char *text)
{
    return strncmp(text, "rank ", 5) == 0;
}

/* Any thread. Sets the verdict first: a thread that is woken, here or on another member, looks for
 * the reason at once. */
static void host_abort(void *self, int code, const char *text)
{
    struct host *host = self;
    char told[CT_VERDICT_TEXT_MAX];

    if (!ct_verdict_set(&host->verdict, code, text))
        return;
    if (names_ranks(code) || is_of_another(text))
        (void)ct_copy(told, sizeof told, text);
    else
        (void)ct_format(told, sizeof told, "rank %d: %s", host->rank, text);
    if (host->shm)
        ct_host_shm_abort(host->shm, code, told);
    if (host->mesh.peers) {
        ct_mesh_send_code(&host->mesh, code, told);
        ct_mesh_wake(&host->mesh);
    }
}

static int open_links(struct host *host, int segment_fd, int listener,
                      const unsigned char *cookie, uint64_t deadline_ms,
                      struct ctrun_error *err)
{
    int rc = 0;

    if (host->local_size > 1)
        rc = open_shm(host, segment_fd, deadline_ms, err);
    if (rc == 0 && host->local_size < host->size)
        rc = open_tcp(host, listener, cookie, deadline_ms, err);
    return rc;
}

/* Keeps pointers that `host` owns; host_close() therefore ends the exchange first. */
static int open_exchange(struct host *host, struct ctrun_error *err)
{
    int rc;

    host->exchange = (struct ct_exchange){
        .size = host->size,
        .me = host->me,
        .peers = host->peers,
        .local_of = host->local_of,
        .segment = host->shm ? ct_host_shm_segment(host->shm) : NULL,
        .tcp = host->tcp};
    rc = ct_exchange_init(&host->exchange);
    return rc < 0
               ? ct_fail(err, rc, "open group: prepare for messages: %s", strerror(-rc))
               : 0;
}

static int host_open(void **out, const struct ct_backend_setup *setup,
                     struct ctrun_error *err)
{
    struct host *host = ct_zalloc(sizeof *host);
    struct ctrun_error why = {.text = ""};
    unsigned char cookie[CT_COOKIE_BYTES];
    struct ct_peer *self;
    int segment_fd = -1;
    int listener = -1;
    int rc;

    if (!host || allocate(host, setup) < 0) {
        rc = ct_fail(&why, -ENOMEM, "open group: out of memory for %d members",
                     setup->size);
        goto close_fds;
    }
    self = &host->peers[host->me];
    ct_peer_describe_self(self, setup);
    if (setup->size == 1) {
        rc = open_exchange(host, &why);
        goto close_fds;
    }
    if (!ct_peer_is_alone(self) && ct_segment_create(&segment_fd, &why) < 0) {
        ct_warn("no shared memory, using TCP: %s", why.text);
        ct_peer_be_alone(self);
    }
    self->segment_fd = segment_fd;
    rc = ct_mesh_listen(&listener, self, &why);
    if (rc == 0)
        rc = ct_descriptors_check(self, setup, &why);
    if (rc == 0)
        rc = ct_discover(host->peers, cookie, setup, &why);
    if (rc == 0) {
        sort_by_host(host);
        rc = open_links(host, segment_fd, listener, cookie, setup->deadline_ms, &why);
    }
    if (rc == 0)
        rc = open_exchange(host, &why);
close_fds:
    if (segment_fd >= 0)
        close(segment_fd);
    if (listener >= 0)
        close(listener);
    if (rc < 0) {
        if (host)
            host_abort(host, rc, why.text);
        host_close(host);
        return ct_fail(err, rc, "%s", why.text);
    }
    *out = host;
    return 0;
}

static void host_close(void *self)
{
    struct host *host = self;

    if (!host)
        return;
    ct_exchange_deinit(&host->exchange);
    ct_host_tcp_destroy(host->tcp);
    ct_mesh_close(&host->mesh);
    ct_host_shm_destroy(host->shm);
    while (host->blocks) {
        struct block *block = host->blocks;
        host->blocks = block->next;
        free(block->data);
        free(block);
    }
    free(host->peers);
    free(host->locals);
    free(host->local_of);
    free(host);
}

/* ---- Calls ------------------------------------------------------------------------------ */

static void run_alone(const struct ct_call *call)
{
    if (!ct_call_has_messages(call) && call->bytes && call->in != call->out)
        memcpy(call->out, call->in, call->bytes);
}

/* The part of a call in which all members take part: the call itself, or, for messages, only the
 * agreement. If all members know all lengths, they agree on those, too: otherwise two members whose
 * lengths match would not notice a third member with other lengths. */
static struct ct_call shared_part(const struct ct_call *call)
{
    struct ct_call shared = *call;

    if (ct_call_has_messages(call))
        shared.bytes = 0;
    if (call->kind == CT_CALL_ALL_GATHER_V)
        shared.count = call->parts;
    return shared;
}

/* The agreement before the messages. In that of ALL_TO_ALL_V all learn at the same time whether two
 * members differ about a length; which ones, only these two can find out. */
static struct ct_call agreement(const struct ct_call *call, uint64_t *sum)
{
    struct ct_call shared = shared_part(call);

    if (call->kind != CT_CALL_ALL_TO_ALL_V)
        return shared;
    *sum = 0;
    shared.in = &call->parts;
    shared.out = sum;
    shared.bytes = sizeof *sum;
    return shared;
}

/* All members have come through their messages, so none has found out which two ranks differ. */
static int fail_unbalanced(const struct ct_call *call, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "%s (collective %llu): the lengths of two ranks differ",
                   ct_call_name(call->kind), (unsigned long long)call->number);
}

static int run_shared(struct host *host, const struct ct_call *shared,
                      struct ctrun_error *err)
{
    return host->tcp ? ct_host_tcp_run(host->tcp, shared, err)
                     : ct_host_shm_run(host->shm, shared, err);
}

static int move_all(struct host *host, struct ct_call *call, struct ctrun_error *err)
{
    int rc = 0;

    while (rc >= 0 && !call->is_complete)
        rc = ct_exchange_move(&host->exchange, call, true, err);
    return rc < 0 ? rc : 0;
}

static int dispatch(struct host *host, const struct ct_call *call,
                    struct ctrun_error *err)
{
    struct ct_call moved = *call;
    struct ct_call shared = agreement(call, &moved.parts);
    int rc = 0;

    if (host->size == 1)
        run_alone(call);
    else
        rc = run_shared(host, &shared, err);
    if (rc == 0 && ct_call_has_messages(call))
        rc = move_all(host, &moved, err);
    if (rc < 0 || !ct_call_is_unbalanced(&moved))
        return rc;
    shared = shared_part(call);
    rc = run_shared(host, &shared, err);
    return rc < 0 ? rc : fail_unbalanced(call, err);
}

/* Reports to all members why a call failed, and returns the group's reason, which may be an earlier
 * one. */
static int host_fail(struct host *host, int code, const struct ctrun_error *why,
                     struct ctrun_error *err)
{
    host_abort(host, code, why->text);
    return ct_verdict_get(&host->verdict, err);
}

/* The group had failed when this call came: `why` is of an earlier call, perhaps of another rank. */
static int fail_before(struct host *host, const struct ct_call *call, int code,
                       const struct ctrun_error *why, struct ctrun_error *err)
{
    int rc = host_fail(host, code, why, err);

    ct_wrap(err, CT_FAILED_BEFORE, ct_call_name(call->kind));
    return rc;
}

/* Another member may have failed while we computed. */
static int check_others(struct host *host, struct ctrun_error *err)
{
    int rc = check_verdict(host, err);

    return rc == 0 && host->tcp ? ct_mesh_check(&host->mesh, 0, err) : rc;
}

static int host_run(void *self, const struct ct_call *call, struct ctrun_error *err)
{
    struct host *host = self;
    struct ctrun_error why = {.text = ""};
    int rc = check_others(host, &why);

    if (rc < 0)
        return fail_before(host, call, rc, &why, err);
    rc = dispatch(host, call, &why);
    return rc < 0 ? host_fail(host, rc, &why, err) : 0;
}

static bool host_is_inline(const void *self)
{
    const struct host *host = self;

    return !host->tcp;
}

/* Only if is_inline(): then there is no TCP, so beginning and advancing never block in a socket. */
static int host_begin(void *self, const struct ct_call *call, struct ctrun_error *err)
{
    struct host *host = self;
    struct ctrun_error why = {.text = ""};
    struct ct_call shared;
    int rc = check_verdict(host, &why);

    host->call = *call;
    shared = agreement(call, &host->call.parts);
    host->is_agreed = !host->shm;
    if (rc < 0)
        return fail_before(host, call, rc, &why, err);
    if (host->shm)
        rc = ct_host_shm_begin(host->shm, &shared, &why);
    else
        run_alone(call);
    return rc < 0 ? host_fail(host, rc, &why, err) : 0;
}

/* Our messages are done: waits for the members that find the difference. */
static int await_difference(struct host *host, struct ctrun_error *err)
{
    const struct ct_call shared = shared_part(&host->call);

    host->is_agreed = false;
    return ct_host_shm_begin(host->shm, &shared, err);
}

static int host_advance(void *self, bool wait, struct ctrun_error *err)
{
    struct host *host = self;
    struct ctrun_error why = {.text = ""};
    int rc = 1;

    if (!host->is_agreed)
        rc = ct_host_shm_advance(host->shm, wait, &why);
    host->is_agreed = rc > 0;
    if (rc > 0 && ct_call_is_unbalanced(&host->call) && host->call.is_complete)
        rc = fail_unbalanced(&host->call, &why);
    else if (rc > 0 && ct_call_has_messages(&host->call)) {
        rc = ct_exchange_move(&host->exchange, &host->call, wait, &why);
        host->is_agreed = true;
        if (rc > 0 && ct_call_is_unbalanced(&host->call))
            rc = await_difference(host, &why);
    }
    return rc < 0 ? host_fail(host, rc, &why, err) : rc;
}

/* Only if a call is not done at once, so that there are other members. */
static uint32_t host_arm(void *self)
{
    const struct host *host = self;

    return ct_segment_arm(ct_host_shm_segment(host->shm));
}

static void host_rest(void *self, uint32_t bell, bool sleeps)
{
    const struct host *host = self;

    ct_segment_rest(ct_host_shm_segment(host->shm), bell, sleeps);
}

/* The one that gets the error of all. */
static const struct ct_call *find_open(const struct ct_call *call)
{
    while (call->is_complete && call->next)
        call = call->next;
    return call;
}

static int host_move(void *self, struct ct_call *first, bool wait,
                     struct ctrun_error *err)
{
    struct host *host = self;
    struct ctrun_error why = {.text = ""};
    int rc = check_others(host, &why);

    if (rc < 0 && !find_open(first)->has_moved)
        return fail_before(host, find_open(first), rc, &why, err);
    for (struct ct_call *call = first; rc == 0 && call; call = call->next)
        call->has_moved = true;
    if (rc == 0)
        rc = ct_exchange_move(&host->exchange, first, wait, &why);
    return rc < 0 ? host_fail(host, rc, &why, err) : rc;
}

static void host_nudge(void *self)
{
    ct_exchange_nudge(&((struct host *)self)->exchange);
}

/* Whole zeroed pages, like shared memory, so that programs see no difference when they are
 * alone. */
static int alloc_alone(struct host *host, size_t bytes, void **out,
                       struct ctrun_error *err)
{
    size_t rounded = (bytes + PAGE - 1) / PAGE * PAGE;
    struct block *block = ct_zalloc(sizeof *block);
    void *data = block && rounded >= bytes ? aligned_alloc(PAGE, rounded) : NULL;

    if (!data) {
        free(block);
        return ct_fail(err, -ENOMEM, "group alloc: out of memory for %zu bytes", bytes);
    }
    memset(data, 0, rounded);
    *block = (struct block){.next = host->blocks, .data = data};
    host->blocks = block;
    *out = data;
    return 0;
}

static int free_alone(struct host *host, const void *data)
{
    for (struct block **at = &host->blocks; *at; at = &(*at)->next) {
        struct block *block = *at;

        if (block->data != data)
            continue;
        *at = block->next;
        free(block->data);
        free(block);
        return 0;
    }
    return -ENOENT;
}

static int host_free(void *self, void *data)
{
    struct host *host = self;

    return host->shm ? ct_host_shm_free(host->shm, data) : free_alone(host, data);
}

static int host_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                      struct ctrun_error *err)
{
    const struct ct_call call = {.kind = CT_CALL_ALLOC};
    struct host *host = self;
    struct ctrun_error why = {.text = ""};
    int rc = check_verdict(host, &why);

    if (rc < 0)
        return fail_before(host, &call, rc, &why, err);
    if (bytes > CT_REGION_MAX_BYTES)
        return ct_fail(err, -EINVAL,
                       "group alloc: %zu bytes: a block has at most %llu bytes", bytes,
                       (unsigned long long)CT_REGION_MAX_BYTES);
    rc = host->shm ? ct_host_shm_alloc(host->shm, bytes, deadline_ms, out, &why)
                   : alloc_alone(host, bytes, out, &why);
    if (rc == -EINVAL || host->size == 1) /* no other member has taken part */
        return rc < 0 ? ct_fail(err, rc, "%s", why.text) : 0;
    return rc < 0 ? host_fail(host, rc, &why, err) : 0;
}

const struct ct_backend_ops ct_host_backend = {.version = CT_BACKEND_VERSION,
                                               .name = "host",
                                               .open = host_open,
                                               .run = host_run,
                                               .is_inline = host_is_inline,
                                               .begin = host_begin,
                                               .advance = host_advance,
                                               .arm = host_arm,
                                               .rest = host_rest,
                                               .move = host_move,
                                               .nudge = host_nudge,
                                               .alloc = host_alloc,
                                               .free = host_free,
                                               .abort = host_abort,
                                               .close = host_close};
