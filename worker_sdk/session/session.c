/* SPDX-License-Identifier: Apache-2.0 */
/* This process in the run: its rank, its store, its agent.
 *
 * All of it comes from the environment (wire/contract.h). Either nothing is set and we are a run of
 * one process, or RANK and WORLD_SIZE are set, and then every variable must be valid: a rank that
 * trains alone because of a misspelt variable costs days. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/client/crash.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/session/session_private.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/metric.h"

enum {
    SESSION_WORLD_MAX = 1 << 20,
    MEET_SLICE_MS = 20,
    STORE_SLICE_MS = 500,
    STORE_SLICE_MAX_MS = 8000,
};

/* ---- The environment ---- */

/* NULL when the variable is not set or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* Reads a whole number into *out. If the variable is not set: uses `fallback`, or fails when that
 * is negative. */
static int read_int(const char *name, int min, int max, int fallback, int *out,
                    struct ctrun_error *err)
{
    const char *text = variable(name);
    int64_t value = fallback;

    if (!text && fallback < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s is not set, but other variables of a launcher "
                       "are: start workers with ctrun, or set RANK, WORLD_SIZE, "
                       "MASTER_ADDR and MASTER_PORT",
                       name);
    if (text && ct_parse_i64(text, min, max, &value) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s=%s: not a whole number from %d to %d", name,
                       text, min, max);
    *out = (int)value;
    return 0;
}

static int read_generation(uint64_t *out, struct ctrun_error *err)
{
    const char *text = variable(CT_ENV_GENERATION);

    if (text && ct_parse_u64(text, 0, UINT64_MAX, out) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s=%s: not a whole number", CT_ENV_GENERATION,
                       text);
    return 0;
}

static int read_master(struct ctrun_session *session, struct ctrun_error *err)
{
    const char *host = variable(CT_ENV_MASTER_ADDR);
    int rc;

    if (session->world_size == 1 && !host && !variable(CT_ENV_MASTER_PORT))
        return 0; /* no other rank to meet */
    if ((rc = read_int(CT_ENV_MASTER_PORT, 1, 65535, -1, &session->master_port, err)) <
        0)
        return rc;
    if (!host)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s is not set, but %s is", CT_ENV_MASTER_ADDR,
                       CT_ENV_MASTER_PORT);
    if (ct_copy(session->master_addr, sizeof session->master_addr, host) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s=%.64s...: no host name is that long",
                       CT_ENV_MASTER_ADDR, host);
    return 0;
}

static bool nothing_is_set(void)
{
    static const char *const names[] = {CT_ENV_RANK, CT_ENV_WORLD_SIZE,
                                        CT_ENV_LOCAL_RANK, CT_ENV_MASTER_ADDR,
                                        CT_ENV_MASTER_PORT};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (variable(names[i]))
            return false;
    return true;
}

/* WORLD_SIZE first: it limits all other values. If LOCAL_WORLD_SIZE is not set (some launchers do
 * not set it), a local rank may be anything below the world size. */
static int read_environment(struct ctrun_session *session, struct ctrun_error *err)
{
    int rc;

    session->world_size = session->local_world_size = 1;
    if (nothing_is_set())
        return 0;
    if ((rc = read_int(CT_ENV_WORLD_SIZE, 1, SESSION_WORLD_MAX, -1,
                       &session->world_size, err)) < 0 ||
        (rc = read_int(CT_ENV_RANK, 0, session->world_size - 1, -1, &session->rank,
                       err)) < 0 ||
        (rc = read_int(CT_ENV_LOCAL_WORLD_SIZE, 1, session->world_size, 1,
                       &session->local_world_size, err)) < 0 ||
        (rc = read_int(CT_ENV_LOCAL_RANK, 0,
                       variable(CT_ENV_LOCAL_WORLD_SIZE) ? session->local_world_size - 1
                                                         : session->world_size - 1,
                       0, &session->local_rank, err)) < 0 ||
        (rc = read_int(CT_ENV_GROUP_RANK, 0, session->world_size - 1, 0,
                       &session->node_rank, err)) < 0 ||
        (rc = read_int(CT_ENV_RESTART_COUNT, 0, INT32_MAX, 0, &session->restart_count,
                       err)) < 0 ||
        (rc = read_generation(&session->generation, err)) < 0)
        return rc;
    return read_master(session, err);
}

/* ---- The crash report ---- */

int ctrun_crash_report(struct ctrun_session *session, struct ctrun_error *err)
{
    int rc;

    if (!session)
        return ct_fail_null(err, "session");
    if (!ct_agent_socket_is_there(&session->agent))
        return 0; /* no agent that reads the report */
    /* The agent gets a descriptor of the same memory: what the handler writes there outlives this
     * process. */
    if (!session->has_armed) {
        if ((rc = ct_crash_arm()) < 0)
            return ct_fail(err, rc, "crash report: make its shared memory: %s",
                           strerror(-rc));
        session->has_armed = true;
        ct_agent_socket_share(&session->agent, rc);
    }
    if ((rc = ct_crash_give_stack()) < 0)
        return ct_fail(err, rc, "crash report: set an alternate signal stack: %s",
                       strerror(-rc));
    return 0;
}

/* As the environment asks for it. A failure does not stop the training. */
static int read_crash_report(struct ctrun_session *session, struct ctrun_error *err)
{
    const char *text = variable(CT_ENV_CRASH_REPORT);
    struct ctrun_error why;

    if (!text || strcmp(text, "0") == 0)
        return 0;
    if (strcmp(text, "1") != 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "environment: %s=%.64s: must be 1 (report to the agent where "
                       "this process crashed) or 0",
                       CT_ENV_CRASH_REPORT, text);
    if (ctrun_crash_report(session, &why) < 0)
        ct_warn("no crash report why=%s", why.text);
    return 0;
}

/* Groups read it, which cannot name it as wrong before they meet. */
static int check_shm_disable(struct ctrun_error *err)
{
    const char *text = variable(CT_ENV_SHM_DISABLE);

    if (!text || strcmp(text, "0") == 0 || strcmp(text, "1") == 0)
        return 0;
    return ct_fail(
        err, CTRUN_E_BAD_ENVIRONMENT,
        "environment: %s=%.64s: must be 1 (TCP even between ranks of a host) "
        "or 0",
        CT_ENV_SHM_DISABLE, text);
}

/* ---- The session ---- */

int ctrun_open(struct ctrun_session **out, const struct ctrun_options *options,
               struct ctrun_error *err)
{
    struct ctrun_options all = CTRUN_OPTIONS_INIT;
    struct ctrun_session *session;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (options &&
        (rc = ct_sized_read(&all, sizeof all, options, "CTRUN_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "session: options"), rc;
    if (!(session = ct_zalloc(sizeof *session)))
        return ct_fail(err, -ENOMEM, "session: out of memory");
    session->options = all;
    session->owner = getpid();
    if (all.timeout_ms == 0)
        session->options.timeout_ms =
            (struct ctrun_options)CTRUN_OPTIONS_INIT.timeout_ms;
    pthread_mutex_init(&session->board_lock, NULL);
    if ((rc = read_environment(session, err)) == 0 &&
        (rc = check_shm_disable(err)) == 0 &&
        (rc = ct_session_count_groups(session, NULL)) < 0)
        ct_fail(err, rc, "session: out of memory");
    if (rc < 0) {
        pthread_mutex_destroy(&session->board_lock);
        free(session);
        return rc;
    }
    /* Connects at once, so that a worker can be asked to stop before it reports its first step.
     * Without an agent this socket does nothing. */
    ct_agent_socket_init(&session->agent, variable(CT_ENV_AGENT_SOCKET), session->rank,
                         session->generation);
    /* Without an agent no rank is asked to stop, so the key in the store is not read. */
    session->agrees_on_stop = session->world_size > 1 && variable(CT_ENV_AGENT_SOCKET);
    session->survives = variable(CT_ENV_MAY_SHRINK) && variable(CT_ENV_AGENT_SOCKET) &&
                        strcmp(variable(CT_ENV_MAY_SHRINK), "1") == 0;
    session->grows = session->survives && session->world_size > 1 &&
                     variable(CT_ENV_MAY_GROW);
    session->is_new = session->grows && strcmp(variable(CT_ENV_MAY_GROW), "new") == 0;
    if ((rc = read_crash_report(session, err)) < 0) {
        ctrun_close(session);
        return rc;
    }
    *out = session;
    return 0;
}

void ctrun_close(struct ctrun_session *session)
{
    if (!session)
        return;
    /* Removes the handler first: after that nothing writes into memory that the socket has
     * shared. */
    if (session->has_armed)
        ct_crash_disarm();
    ct_agent_socket_deinit(&session->agent);
    ctrun_store_close(session->store);
    ctrun_store_close(session->board_store);
    pthread_mutex_destroy(&session->board_lock);
    free(session->ranks);
    free(session);
}

int ct_session_check(const struct ctrun_session *session, const char *name,
                     struct ctrun_error *err)
{
    if (!session)
        return ct_fail_null(err, "session");
    if (session->owner != getpid())
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s: process %d has opened the session, and this one is its "
                       "child after fork(): only the parent opens groups",
                       name, (int)session->owner);
    return 0;
}

int ctrun_rank(const struct ctrun_session *session)
{
    return session ? session->rank : -EINVAL;
}

int ctrun_world_size(const struct ctrun_session *session)
{
    return session ? session->world_size : -EINVAL;
}

int ctrun_local_rank(const struct ctrun_session *session)
{
    return session ? session->local_rank : -EINVAL;
}

int ctrun_local_world_size(const struct ctrun_session *session)
{
    return session ? session->local_world_size : -EINVAL;
}

int ctrun_node_rank(const struct ctrun_session *session)
{
    return session ? session->node_rank : -EINVAL;
}

int ctrun_restart_count(const struct ctrun_session *session)
{
    return session ? session->restart_count : -EINVAL;
}

uint64_t ctrun_generation(const struct ctrun_session *session)
{
    return session ? session->generation : 0;
}

void ctrun_step(struct ctrun_session *session, uint64_t step)
{
    if (session)
        ct_agent_socket_step(&session->agent, step);
}

int ctrun_metric(struct ctrun_session *session, const char *name, double value,
                 struct ctrun_error *err)
{
    if (!session)
        return ct_fail_null(err, "session");
    if (!name)
        return ct_fail_null(err, "name");
    if (!ct_metric_is_name(name, CT_METRIC_NAME_MAX))
        return ct_fail(err, -EINVAL,
                       "metric '%.64s': a name has 1 to %d letters, digits, '_' and "
                       "':', and does not begin with a digit, \"ctrun\" or \"__\"",
                       name, CT_METRIC_NAME_MAX - 1);
    if (ct_agent_socket_metric(&session->agent, name, value) < 0)
        return ct_fail(err, -ENOSPC,
                       "metric '%s': this process has reported %d other names, and "
                       "there is no room for more",
                       name, CT_METRICS_MAX);
    return 0;
}

void ctrun_batch(struct ctrun_session *session, const uint64_t *ids, size_t count)
{
    if (session && (ids || count == 0))
        ct_agent_socket_samples(&session->agent, ids, count);
}

/* ---- The store ---- */

static int connect_store(struct ctrun_store **out, struct ctrun_session *session,
                         uint64_t timeout_ms, struct ctrun_error *err)
{
    const char *served = variable(CT_ENV_USE_AGENT_STORE);
    int rc;

    *out = NULL;
    if (session->master_port == 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "store: %s and %s are not set: start this process with ctrun, "
                       "or set them to the address of a store",
                       CT_ENV_MASTER_ADDR, CT_ENV_MASTER_PORT);
    rc = ct_store_connect(out, session->master_addr, session->master_port, timeout_ms,
                          err);
    if (rc == CTRUN_E_UNREACHABLE && (!served || strcmp(served, "True") != 0) && err) {
        char why[CTRUN_ERROR_TEXT_MAX];

        (void)ct_copy(why, sizeof why, err->text);
        return ct_fail(err, rc,
                       "%s; %s is not True, so no launcher serves a store there: start "
                       "the workers with ctrun, without " CT_ENV_NO_SHARED_STORE,
                       why, CT_ENV_USE_AGENT_STORE);
    }
    return rc;
}

int ctrun_store_open(struct ctrun_store **out, struct ctrun_session *session,
                     struct ctrun_error *err)
{
    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (!session)
        return ct_fail_null(err, "session");
    return connect_store(out, session, session->options.timeout_ms, err);
}

/* ---- When all ranks stop, or take another one in ---- */

/* A key of the store through which the ranks agree. */
struct meeting {
    struct ctrun_session *session;
    const char *word;
};

/* If a rank is lost and no decision accounts for it yet, that loss is the reason why the store does
 * not answer: the store may be on the lost node. */
static int explain_store(struct ctrun_session *session, int rc, struct ctrun_error *err)
{
    return rc < 0 && session->survives &&
                   ct_agent_socket_check_ranks(&session->agent, session->losses, err) <
                       0
               ? CTRUN_E_PEER_LOST
               : rc;
}

/* Tries in slices if ranks may be lost. The slices grow, so that a store that is slow because many
 * ranks connect can answer. */
int ct_session_open_store(struct ctrun_session *session, uint64_t deadline_ms,
                          struct ctrun_error *err)
{
    const uint64_t began_ms = ct_now_ms();
    uint64_t slice_ms = session->survives ? STORE_SLICE_MS : UINT64_MAX;
    int rc;

    if (session->store && !ct_store_has_ended(session->store))
        return 0;
    ctrun_store_close(session->store);
    session->store = NULL;
    for (;;) {
        const uint64_t left_ms = (uint64_t)ct_left_ms(deadline_ms);

        rc = connect_store(&session->store, session,
                           left_ms < slice_ms ? left_ms : slice_ms, err);
        if ((rc = explain_store(session, rc, err)) != CTRUN_E_UNREACHABLE ||
            left_ms <= slice_ms)
            break;
        if (slice_ms < STORE_SLICE_MAX_MS)
            slice_ms *= 2;
    }
    if (rc == CTRUN_E_UNREACHABLE)
        ct_wrap(err, "tried for %.1f s", (double)(ct_now_ms() - began_ms) / 1e3);
    if (rc == 0)
        ct_store_set_timeout(session->store, session->options.timeout_ms);
    return rc;
}

void ct_session_move_store(struct ctrun_session *session,
                           const struct ct_worker_world *world)
{
    if (world->store_port == 0 ||
        (world->store_port == session->master_port &&
         strcmp(world->store_addr, session->master_addr) == 0))
        return;
    ctrun_store_close(session->store);
    session->store = NULL;
    pthread_mutex_lock(&session->board_lock);
    ctrun_store_close(session->board_store);
    session->board_store = NULL;
    session->master_port = world->store_port;
    memcpy(session->master_addr, world->store_addr, sizeof session->master_addr);
    pthread_mutex_unlock(&session->board_lock);
}

static int swap_key(void *context, const char *expected, const char *desired,
                    char actual[CT_STOP_VALUE_MAX], struct ctrun_error *err)
{
    const struct meeting *meeting = context;
    struct ctrun_session *session = meeting->session;
    char key[64];
    size_t length;
    void *value;
    int rc = 0;

    /* One that has ended stays so until a group needs it: each step would wait for it. */
    if (!session->store)
        rc = ct_session_open_store(session, ct_deadline_ms(session->options.timeout_ms),
                                   err);
    if (rc < 0)
        return rc;
    ct_store_set_timeout(session->store, session->options.timeout_ms);
    /* A key for each round: the static backend and torchrun keep one store over restarts, and the
     * request of the previous round must not stop this one. */
    (void)ct_format(key, sizeof key, "ctrun/%s/%llu.%d.%u", meeting->word,
                    (unsigned long long)session->generation, session->restart_count,
                    session->epoch);
    if ((rc = ct_store_compare_set(session->store, key, expected, desired, &value,
                                   &length, err)) < 0)
        return rc;
    /* too long: not a value that we write */
    (void)ct_copy(actual, CT_STOP_VALUE_MAX, value);
    free(value);
    return 0;
}

/* Whether all ranks do at this call what some ranks were asked to do (stop, grow). */
static bool agree(struct ctrun_session *session, struct ct_stop_point *point,
                  const char *word, const char *name, bool is_asked, bool *agrees)
{
    struct meeting meeting = {session, word};
    const struct ct_stop_key key = {swap_key, &meeting, name};
    struct ctrun_error why;
    const int rc = ct_stop_point_check(point, is_asked, ct_now_ms(), &key, &why);

    if (rc >= 0)
        return rc > 0;
    /* The store may be lost with its node; the next world tells where the next store is. */
    if (session->survives)
        return is_asked;
    /* From now on without the store: the other ranks may have agreed and stopped or grown without
     * this one. */
    ct_warn("ranks may %s at different steps why=%s", word, why.text);
    *agrees = false;
    return is_asked;
}

bool ctrun_should_stop(struct ctrun_session *session)
{
    bool is_asked;

    if (!session)
        return false;
    is_asked = ct_agent_socket_should_stop(&session->agent);
    return session->agrees_on_stop && !session->is_new
               ? agree(session, &session->stop_point, "stop", "ctrun_should_stop",
                       is_asked, &session->agrees_on_stop)
               : is_asked;
}

bool ctrun_should_grow(struct ctrun_session *session)
{
    return session && session->grows && !session->is_new &&
           agree(session, &session->grow_point, "grow", "ctrun_should_grow",
                 ct_agent_socket_should_grow(&session->agent, session->epoch),
                 &session->grows);
}

/* ---- Groups meet through the store ---- */

/* Limits a request of the store by the time left to the caller's deadline, so that several requests
 * in a row keep that deadline together. */
static struct ctrun_store *store_until(void *context, uint64_t deadline_ms)
{
    struct ctrun_session *session = context;

    ct_store_set_timeout(session->store, (uint64_t)ct_left_ms(deadline_ms));
    return session->store;
}

/* As explain_store(), for a connection that broke or that the server closed. If the store is lost
 * with its node, this waits until the agent reports that. A server that accepts a new connection is
 * alive, and has refused this request or an earlier one: it does not confirm each request. */
static int explain_end(struct ctrun_session *session, uint64_t deadline_ms, int rc,
                       struct ctrun_error *err)
{
    struct ctrun_error why;

    rc = explain_store(session, rc, err);
    if (!session->survives || (rc != CTRUN_E_PROTOCOL && !ct_client_is_passing(rc)))
        return rc;
    ctrun_store_close(session->store);
    session->store = NULL;
    if (ct_session_open_store(session, deadline_ms, &why) != CTRUN_E_PEER_LOST)
        return rc;
    if (err)
        *err = why;
    return CTRUN_E_PEER_LOST;
}

static int meet_set(void *context, const char *key, const void *value, size_t length,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    int rc = ct_session_open_store(context, deadline_ms, err);

    if (rc == 0)
        rc = ctrun_store_set(store_until(context, deadline_ms), key, value, length,
                             err);
    return explain_end(context, deadline_ms, rc, err);
}

/* Waits in slices if ranks may be lost, so that nobody waits for a key of a lost rank. */
static int await_key(struct ctrun_session *session, const char *key,
                     uint64_t deadline_ms, struct ctrun_error *err)
{
    const uint64_t slice_ms = session->survives ? MEET_SLICE_MS : UINT64_MAX;
    int rc = ct_session_open_store(session, deadline_ms, err);

    if (rc < 0)
        return rc;
    do {
        const uint64_t left_ms = (uint64_t)ct_left_ms(deadline_ms);

        rc = ctrun_store_wait(session->store, &key, 1,
                              left_ms < slice_ms ? left_ms : slice_ms, err);
        rc = explain_end(session, deadline_ms, rc, err);
    } while (rc == CTRUN_E_TIMEOUT && ct_left_ms(deadline_ms) > 0);
    return rc;
}

static int meet_get(void *context, const char *key, void **value, size_t *length,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ctrun_session *session = context;
    int rc = session->survives ? await_key(context, key, deadline_ms, err) : 0;

    if (rc < 0 || (rc = ct_session_open_store(context, deadline_ms, err)) < 0)
        return rc;
    rc = ctrun_store_get(store_until(context, deadline_ms), key, value, length, err);
    return explain_end(context, deadline_ms, rc, err);
}

static int meet_wait(void *context, const char *key, uint64_t deadline_ms,
                     struct ctrun_error *err)
{
    return await_key(context, key, deadline_ms, err);
}

static int check_losses(void *context, uint32_t losses, bool leaves_node,
                        struct ctrun_error *err)
{
    struct ctrun_session *session = context;
    int rc = leaves_node ? ct_agent_socket_check_loss(&session->agent, err) : 0;

    return rc == 0 && session->survives
               ? ct_agent_socket_check_ranks(&session->agent, losses, err)
               : rc;
}

/* Borrows the session: a group may outlive the call, so the session is closed after its groups.
 * All groups of a process are numbered together. */
struct ct_group_place ct_session_place(struct ctrun_session *session)
{
    return (struct ct_group_place){
        .rank = session->rank,
        .world_size = session->world_size,
        .ranks = session->ranks,
        .rank_count = session->rank_count,
        .epoch = session->epoch,
        .generation = session->generation,
        .restart_count = (uint64_t)session->restart_count,
        .sequence = session->group_sequence,
        .bootstrap = {.context = session,
                      .set = meet_set,
                      .get = meet_get,
                      .wait = meet_wait},
        .board = ct_session_board(session),
        .losses = {.check = check_losses,
                   .context = session,
                   .losses = session->losses,
                   .sees_ranks = session->survives},
        .local_first = session->rank - session->local_rank,
        .local_count = session->local_world_size,
    };
}
