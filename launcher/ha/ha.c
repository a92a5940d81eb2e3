/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/ha/ha_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/thread.h"

/* Three threads call this file: the server's, the agent's loop, and ours. The mutex is never held
 * while the server or the candidate is called: such a call waits for the server's thread, which
 * takes the mutex in on_report(). */

/* ---- Calls from the server, on its thread ---------------------------------------------- */

/* Under the mutex; valid until it is released, for add_node() may move the list. */
static struct ha_node *find_node(struct ha *ha, uint64_t peer)
{
    for (size_t i = 0; i < ha->node_count; i++)
        if (ha->nodes[i].peer == peer)
            return &ha->nodes[i];
    return NULL;
}

static struct ha_node *add_node(struct ha *ha, uint64_t peer)
{
    struct ha_node *nodes;
    size_t capacity = ha->node_capacity ? 2 * ha->node_capacity : 16;

    if (ha->node_count == ha->node_capacity) {
        if (!(nodes = ct_realloc_array(ha->nodes, capacity, sizeof *nodes)))
            return NULL; /* it counts as absent */
        ha->nodes = nodes;
        ha->node_capacity = capacity;
    }
    ha->nodes[ha->node_count].peer = peer;
    return &ha->nodes[ha->node_count++];
}

static void on_report(void *context, uint64_t peer, const struct ct_ha_report *report)
{
    struct ha *ha = context;
    struct ct_addr number;
    struct ha_node *node;

    /* The address goes into the command line of etcd on all nodes. */
    if (report->key == 0 ||
        (report->client_port != 0 &&
         (report->peer_port == 0 ||
          ct_addr_parse(report->addr, report->peer_port, &number) < 0)))
        return;
    pthread_mutex_lock(&ha->mutex);
    node = find_node(ha, peer);
    if (node || (node = add_node(ha, peer)))
        node->report = *report;
    ha->has_news = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
}

static void on_gone(void *context, uint64_t peer)
{
    struct ha *ha = context;
    struct ha_node *node;

    pthread_mutex_lock(&ha->mutex);
    if ((node = find_node(ha, peer))) { /* the others keep their order */
        const size_t behind = ha->node_count - (size_t)(node - ha->nodes) - 1;

        memmove(node, node + 1, behind * sizeof *node);
        ha->node_count--;
    }
    ha->has_news = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
}

static void on_found(void *context, const struct ct_ha_plan *plan)
{
    struct ha *ha = context;

    pthread_mutex_lock(&ha->mutex);
    ha->found = *plan;
    ha->has_news = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
}

/* ---- Calls from the agent, on its loop -------------------------------------------------- */

int ha_wake_fd(const struct ha *ha)
{
    return ha->wake_fd;
}

bool ha_fill_report(struct ha *ha, const struct ct_addr *local, uint64_t instance,
                    uint64_t generation, struct ct_ha_report *out)
{
    bool is_ready;

    pthread_mutex_lock(&ha->mutex);
    /* A node that is now on the server's host reaches the server by loopback: keep the address that
     * the others can reach. */
    if (!ha->local[0] || !ct_addr_is_loopback(local))
        ct_addr_format_host(ha->local, local);
    ha->instance = instance;
    ha->generation = generation;
    is_ready = ha->self.key != 0;
    *out = ha->self;
    ha->has_news = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
    return is_ready;
}

bool ha_finds(struct ha *ha)
{
    bool finds;

    pthread_mutex_lock(&ha->mutex);
    finds = ha->finds;
    pthread_mutex_unlock(&ha->mutex);
    return finds;
}

const char *ha_why_not(struct ha *ha)
{
    const char *why = "its members were still starting";

    pthread_mutex_lock(&ha->mutex);
    if (ha->finds)
        why = "more than half of its members are lost, or this node cannot reach them";
    else if (ha->plan.epoch == 0)
        why = "not enough nodes had joined, or etcd could not be prepared on them";
    else if (ha->plan.phase == CT_HA_OFF)
        why = "its members could not be started: see the warnings above";
    else if (ha->plan.phase == CT_HA_ACTIVE)
        why = "this node had not reached it yet";
    pthread_mutex_unlock(&ha->mutex);
    return why;
}

/* ---- The thread ------------------------------------------------------------------------- */

static void wait_for_news(struct ha *ha, uint64_t until_ms)
{
    pthread_mutex_lock(&ha->mutex);
    while (!ha->is_stopping && !ha->has_news &&
           ct_cond_wait(&ha->changed, &ha->mutex, until_ms))
        ;
    ha->has_news = false;
    pthread_mutex_unlock(&ha->mutex);
}

static bool is_stopping(struct ha *ha)
{
    bool stops;

    pthread_mutex_lock(&ha->mutex);
    stops = ha->is_stopping;
    pthread_mutex_unlock(&ha->mutex);
    return stops;
}

/* Works on a copy of the plan: one that comes meanwhile sets has_news, and the next turn takes
 * it. */
static void *run(void *context)
{
    struct ha *ha = context;
    struct ct_ha_plan plan;

    while (!is_stopping(ha)) {
        bool is_busy;

        ha_take_found(ha);
        pthread_mutex_lock(&ha->mutex);
        plan = ha->plan;
        pthread_mutex_unlock(&ha->mutex);
        is_busy = ha_keep_member(ha, &plan);
        is_busy |= ha_follow(ha, &plan);
        is_busy |= ha_lead(ha, &plan);
        /* `finds` is written by this thread alone, which therefore reads it without the mutex. */
        if (ha->finds && ct_left_ms(ha->messenger_ms) == 0)
            ha_send_messenger(ha, ha->leads ? &ha->made : &plan);
        wait_for_news(ha, ct_deadline_ms(is_busy ? HA_BUSY_MS : HA_IDLE_MS));
    }
    ha_lead_end(ha);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------- */

int ha_create(struct ha **out, const struct ha_options *options,
              struct ctrun_error *err)
{
    struct ha *ha = ct_zalloc(sizeof *ha);

    if (!ha)
        return ct_fail(err, -ENOMEM, "--ha: out of memory");
    ha->options = *options;
    ha->hooks = (struct ha_hooks){ha, on_report, on_gone, on_found};
    ha->begin_again_ms = HA_BEGIN_AGAIN_MS;
    pthread_mutex_init(&ha->mutex, NULL);
    ct_cond_init(&ha->changed);
    ha->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *out = ha;
    return ha->wake_fd < 0 ? ct_fail(err, -errno, "--ha: eventfd: %s", strerror(errno))
                           : 0;
}

const struct ha_hooks *ha_hooks(struct ha *ha)
{
    return &ha->hooks;
}

int ha_start(struct ha *ha, struct server *server, uint16_t port, bool is_founder,
             const struct addresses *reached, const struct rdzv_endpoint *endpoint,
             struct ctrun_error *err)
{
    int rc;

    ha->server = server;
    ha->port = port;
    ha->is_founder = is_founder;
    ha->reached = reached;
    ha->endpoint = endpoint;
    ha->owns_endpoint = is_founder;
    ha->leads = is_founder;
    /* As long as the server waits for nodes of a world that continues: a new etcd would be a second
     * one. */
    ha->retry_ms = ct_deadline_ms(HA_LISTEN_MS);
    rc = ct_thread_start(&ha->thread, run, ha);
    ha->has_thread = rc == 0;
    return rc == 0 ? 0 : ct_fail(err, rc, "--ha: start a thread: %s", strerror(-rc));
}

void ha_stop(struct ha *ha)
{
    if (!ha || !ha->has_thread)
        return;
    pthread_mutex_lock(&ha->mutex);
    ha->is_stopping = true;
    pthread_cond_signal(&ha->changed);
    pthread_mutex_unlock(&ha->mutex);
    pthread_join(ha->thread, NULL);
    ha->has_thread = false;
}

void ha_destroy(struct ha *ha)
{
    if (!ha)
        return;
    if (ha->wake_fd >= 0)
        close(ha->wake_fd);
    pthread_cond_destroy(&ha->changed);
    pthread_mutex_destroy(&ha->mutex);
    etcd_config_wipe(&ha->etcd);
    free(ha->nodes);
    free(ha);
}
