/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/doctor/doctor_net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/wire/contract.h"

enum {
    OTHERS_MS = 120000, /* for all nodes to join */
    REACHABILITY_MS = 3000,
    BATCH = 128, /* probes that run at the same time */
    RESULT_MAX_BYTES = 4 << 20,
    FINDINGS_MAX_BYTES = 64 * 1024, /* DOCTOR_FINDINGS_MAX of them */
    KEY_MAX = 64,
};

struct net {
    struct doctor *doctor;
    struct ctrun_store *store;
    struct doctor_node *nodes;
    struct doctor_node mine;
    struct doctor_probe *probes;
    size_t probe_count;
    int self;
    int count;
    int listener;
    pthread_t thread; /* reads this while is_answering */
    bool is_answering;
    struct ctrun_error err;
};

/* ---- Environment ------------------------------------------------------------------------- */

static int get_number(const char *name)
{
    const char *text = getenv(name);
    uint64_t value;

    return text && ct_parse_u64(text, 0, 65535, &value) == 0 ? (int)value : -1;
}

static int complain(struct net *net, const char *what, const char *fix)
{
    doctor_set_fix(doctor_add(net->doctor, DOCTOR_FAIL, what, "%.400s", net->err.text),
                   "%s", fix);
    return -1;
}

/* A node or the store that all use has not answered in time, or sent something else. */
static int complain_others(struct net *net, const char *what)
{
    return complain(net, what, "start it on every node; look at the output of each");
}

static int complain_memory(struct net *net)
{
    (void)ct_fail(&net->err, -ENOMEM, "out of memory");
    return complain(net, "memory", "run it where more memory is free");
}

/* Takes one worker of each node. A launcher that sets no GROUP_RANK starts one worker a node. */
static int read_place(struct net *net)
{
    const char *host = getenv(CT_ENV_MASTER_ADDR);
    const int port = get_number(CT_ENV_MASTER_PORT);
    const bool has_groups = getenv(CT_ENV_GROUP_RANK) != NULL;

    net->self = get_number(has_groups ? CT_ENV_GROUP_RANK : CT_ENV_RANK);
    net->count = get_number(has_groups ? CT_ENV_GROUP_WORLD_SIZE : CT_ENV_WORLD_SIZE);
    if (!host || port <= 0 || net->self < 0 || net->count <= net->self ||
        net->count > DOCTOR_NODES_MAX) {
        (void)ct_fail(&net->err, CTRUN_E_BAD_ENVIRONMENT,
                      "this is not a worker of at most %d nodes: RANK, WORLD_SIZE, "
                      "MASTER_ADDR or MASTER_PORT is missing or wrong",
                      DOCTOR_NODES_MAX);
        return complain(net, "environment",
                        "run it as the program of a run: ctrun --hosts=a,b ctrunctl "
                        "doctor --net");
    }
    if (ct_store_connect(&net->store, host, port, OTHERS_MS, &net->err) < 0)
        return complain_others(net, "store");
    (void)doctor_add(net->doctor, DOCTOR_OK, "store", "%s port %d", host, port);
    return 0;
}

/* ---- Our listener ------------------------------------------------------------------------ */

/* Sends our nonce on every connection, until the listener is shut down.
 * Runs on a thread of its own while the main thread probes other nodes. It reads only listener and
 * nonce, which do not change between pthread_create() and pthread_join(). EMFILE is tried again:
 * the main thread closes descriptors after each batch. */
static void *answer(void *context)
{
    const struct net *net = context;
    int fd;

    while ((fd = accept4(net->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 ||
           errno == EINTR || errno == ECONNABORTED || errno == EMFILE) {
        if (fd < 0)
            continue;
        (void)send(fd, &net->mine.nonce, sizeof net->mine.nonce, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

/* On any port of any address: v6 and v4, or v4 alone. Its descriptor, or a negative errno. */
static int open_listener(void)
{
    const struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    const struct sockaddr_in any4 = {.sin_family = AF_INET};
    const int off = 0;
    bool is_v6 = true;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0 && errno == EAFNOSUPPORT) {
        is_v6 = false;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (fd < 0)
        return -errno;
    if (is_v6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    rc = is_v6 ? bind(fd, (const struct sockaddr *)&any6, sizeof any6)
               : bind(fd, (const struct sockaddr *)&any4, sizeof any4);
    if (rc == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

/* 0, or a negative errno. */
static int start_answering(struct net *net, struct ct_addr *bound)
{
    int rc;

    if (getsockname(net->listener, &bound->any, &bound->length) < 0 ||
        getrandom(&net->mine.nonce, sizeof net->mine.nonce, 0) < 0)
        return -errno;
    if ((rc = pthread_create(&net->thread, NULL, answer, net)) != 0)
        return -rc;
    net->is_answering = true;
    return 0;
}

static int open_listening(struct net *net)
{
    struct ct_addr bound = {.length = sizeof bound.v6};
    int rc = net->listener = open_listener();

    if (rc >= 0)
        rc = start_answering(net, &bound);
    if (rc < 0) {
        (void)ct_fail(&net->err, rc, "no TCP port can be opened: %s", strerror(-rc));
        return complain(net, "listen",
                        "check ulimit -n, ulimit -u and the memory of this node");
    }
    net->mine.port = ct_addr_port(&bound);
    return 0;
}

static void describe_self(struct net *net)
{
    struct ct_nic nics[CT_NICS_MAX];
    const int count = ct_nic_list(nics, CT_NICS_MAX);
    struct doctor_node *mine = &net->mine;

    (void)gethostname(mine->host, sizeof mine->host - 1);
    (void)ct_copy(mine->version, sizeof mine->version, ctrun_version());
    doctor_gpu_versions(mine->driver, mine->nccl, sizeof mine->driver);
    for (int i = 0; i < count && mine->addr_count < DOCTOR_NODE_ADDRS; i++)
        if (!nics[i].is_loopback && !ct_addr_is_link_local(&nics[i].addr))
            ct_addr_format_host(mine->addrs[mine->addr_count++], &nics[i].addr);
}

/* ---- Nodes ------------------------------------------------------------------------------- */

static const char *key_of(char key[KEY_MAX], const char *what, int node)
{
    (void)ct_format(key, KEY_MAX, "ctrun-doctor/%s/%d", what, node);
    return key;
}

/* Waits until all nodes have published `what`. The error names the first node that has not, and calls
 * it `label`. */
static int await_all(struct net *net, const char *what, const char *label)
{
    char text[KEY_MAX];
    const char *key = text;

    for (int i = 0; i < net->count; i++) {
        (void)key_of(text, what, i);
        if (ctrun_store_wait(net->store, &key, 1, OTHERS_MS, &net->err) < 0) {
            doctor_set_fix(doctor_add(net->doctor, DOCTOR_FAIL, "nodes",
                                      "node %d of %d did not send its %s: %.300s", i,
                                      net->count, label, net->err.text),
                           "start it on every node; look at the output of that node");
            return -1;
        }
    }
    return 0;
}

/* All wait for one key, which the last node to arrive writes, so that all read their clocks at the
 * same moment. */
static int publish_node(struct net *net)
{
    static const char *const tick = "ctrun-doctor/tick";
    char text[DOCTOR_TEXT_MAX];
    char key[KEY_MAX];
    int64_t here = 0;

    if (ctrun_store_add(net->store, "ctrun-doctor/here", 1, &here, &net->err) < 0 ||
        (here == net->count &&
         ctrun_store_set(net->store, tick, "1", 1, &net->err) < 0) ||
        ctrun_store_wait(net->store, &tick, 1, OTHERS_MS, &net->err) < 0)
        return complain_others(net, "nodes");
    net->mine.clock_ms = (int64_t)(ct_wall_ns() / 1000000);
    doctor_node_format(text, &net->mine);
    if (ctrun_store_set(net->store, key_of(key, "node", net->self), text, strlen(text),
                        &net->err) < 0)
        return complain_others(net, "store");
    return await_all(net, "node", "addresses");
}

/* Takes what each node from number `first` on has published; `take` returns a code. */
static int read_each(struct net *net, const char *what, int first,
                     int (*take)(struct net *net, int node, const char *text))
{
    char key[KEY_MAX];

    for (int i = first; i < net->count; i++) {
        void *text;
        size_t length;
        int rc = ctrun_store_get(net->store, key_of(key, what, i), &text, &length,
                                 &net->err);

        if (rc == 0) {
            rc = take(net, i, text);
            free(text);
            if (rc < 0)
                (void)ct_fail(&net->err, rc, "node %d sent a malformed message", i);
        }
        if (rc < 0)
            return complain_others(net, "nodes");
    }
    return 0;
}

static int take_node(struct net *net, int node, const char *text)
{
    return doctor_node_parse(&net->nodes[node], text);
}

/* ---- Probes ------------------------------------------------------------------------------ */

struct attempt {
    struct doctor_probe *probe;
    uint64_t nonce;
    int fd; /* -1: finished */
    bool is_connected;
    uint64_t began_ms;
};

static void finish(struct attempt *attempt, int error)
{
    attempt->probe->error = error;
    attempt->probe->took_ms = (int)(ct_now_ms() - attempt->began_ms);
    ct_close(&attempt->fd);
}

static void start(struct attempt *attempt, const struct doctor_node *node)
{
    struct ct_addr addr;

    attempt->began_ms = ct_now_ms();
    attempt->nonce = node->nonce;
    attempt->fd = -1;
    if (ct_addr_parse(node->addrs[attempt->probe->addr], node->port, &addr) < 0) {
        finish(attempt, EINVAL);
        return;
    }
    attempt->fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                         0);
    if (attempt->fd < 0 ||
        (connect(attempt->fd, &addr.any, addr.length) < 0 && errno != EINPROGRESS))
        finish(attempt, errno);
}

/* Called when the connection is established or has failed, or its nonce has arrived. */
static void go_on(struct attempt *attempt)
{
    socklen_t length = sizeof(int);
    uint64_t nonce = 0;
    int error = 0;
    ssize_t n;

    if (!attempt->is_connected) {
        (void)getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        attempt->is_connected = error == 0;
        if (error != 0)
            finish(attempt, error);
        return;
    }
    n = recv(attempt->fd, &nonce, sizeof nonce, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    finish(attempt, n < 0 ? errno
                    : n != sizeof nonce || nonce != attempt->nonce
                        ? DOCTOR_SOMEBODY_ELSE
                        : 0);
}

/* poll() ignores negative descriptors, so finished attempts keep their slot. All of a
 * batch share one deadline: a path that drops packets costs a batch REACHABILITY_MS once. */
static void try_batch(struct attempt *attempts, size_t count)
{
    const uint64_t deadline_ms = ct_deadline_ms(REACHABILITY_MS);
    struct pollfd fds[BATCH];
    size_t open = count;

    while (open > 0 && ct_left_ms(deadline_ms) > 0) {
        open = 0;
        for (size_t i = 0; i < count; i++) {
            fds[i] = (struct pollfd){.fd = attempts[i].fd,
                                     .events = attempts[i].is_connected ? POLLIN
                                                                        : POLLOUT};
            open += attempts[i].fd >= 0;
        }
        if (open == 0 || poll(fds, count, ct_left_ms(deadline_ms)) <= 0)
            continue;
        for (size_t i = 0; i < count; i++)
            if (attempts[i].fd >= 0 && fds[i].revents)
                go_on(&attempts[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (attempts[i].fd >= 0)
            finish(&attempts[i], ETIMEDOUT);
}

/* Connects to every address of every other node. */
static int run_probes(struct net *net)
{
    struct attempt attempts[BATCH];
    size_t total = 0;
    size_t in_batch = 0;

    for (int i = 0; i < net->count; i++)
        /* addr_count is checked by doctor_node_parse(): other nodes' texts never make an array
         * longer than DOCTOR_NODE_ADDRS */
        total += i == net->self ? 0 : (size_t)net->nodes[i].addr_count;
    if (!(net->probes = ct_zalloc_array(total + 1, sizeof *net->probes)))
        return complain_memory(net);
    for (int to = 0; to < net->count; to++)
        for (int a = 0; to != net->self && a < net->nodes[to].addr_count; a++) {
            struct doctor_probe *probe = &net->probes[net->probe_count++];

            *probe = (struct doctor_probe){.from = net->self, .to = to, .addr = a};
            attempts[in_batch] = (struct attempt){.probe = probe};
            start(&attempts[in_batch++], &net->nodes[to]);
            if (in_batch == BATCH || net->probe_count == total) {
                try_batch(attempts, in_batch);
                in_batch = 0;
            }
        }
    return 0;
}

/* ---- Results ----------------------------------------------------------------------------- */

static int publish_probes(struct net *net)
{
    struct ct_buf text;
    char key[KEY_MAX];
    int rc = 0;

    ct_buf_init(&text, RESULT_MAX_BYTES);
    for (size_t i = 0; i < net->probe_count && rc == 0; i++)
        rc = ct_buf_printf(&text, "%d %d %d %d,", net->probes[i].to,
                           net->probes[i].addr, net->probes[i].error,
                           net->probes[i].took_ms);
    if (rc < 0) {
        ct_buf_deinit(&text);
        return complain_memory(net);
    }
    rc = ctrun_store_set(net->store, key_of(key, "probes", net->self),
                         ct_buf_data(&text), ct_buf_length(&text), &net->err);
    ct_buf_deinit(&text);
    return rc < 0 ? complain_others(net, "store") : 0;
}

/* Publishes this node's findings about itself; made after the probes, so as not to slow them. */
static int publish_findings(struct net *net)
{
    struct doctor *own = ct_zalloc(sizeof *own);
    char *text = ct_zalloc(FINDINGS_MAX_BYTES);
    char key[KEY_MAX];
    const bool is_whole = own && text;
    int rc = 0;

    if (is_whole) {
        doctor_machine(own);
        doctor_gpus(own);
        doctor_findings_format(text, FINDINGS_MAX_BYTES, own);
        rc = ctrun_store_set(net->store, key_of(key, "findings", net->self), text,
                             strlen(text), &net->err);
    }
    free(own);
    free(text);
    if (!is_whole)
        return complain_memory(net);
    return rc < 0 ? complain_others(net, "store") : 0;
}

static int take_findings(struct net *net, int node, const char *text)
{
    doctor_add_findings(net->doctor, net->nodes[node].host, text);
    return 0;
}

/* The text comes from another node: indices are checked here, since doctor_check_probes() uses
 * them unchecked. */
static int take_probes(struct net *net, int from, const char *text)
{
    const char *rest = text;
    size_t length;

    for (const char *item; (item = ct_next_field(&rest, ',', &length)) && length > 0;) {
        struct doctor_probe probe = {.from = from};
        struct doctor_probe *probes;

        if (sscanf(item, "%d %d %d %d", &probe.to, &probe.addr, &probe.error,
                   &probe.took_ms) != 4 ||
            probe.to < 0 || probe.to >= net->count || probe.addr < 0 ||
            probe.addr >= net->nodes[probe.to].addr_count)
            return -EBADMSG;
        probes = ct_realloc_array(net->probes, net->probe_count + 1, sizeof *probes);
        if (!probes)
            return -ENOMEM;
        net->probes = probes;
        net->probes[net->probe_count++] = probe;
    }
    return 0;
}

static int evaluate(struct net *net)
{
    if (await_all(net, "probes", "probes") < 0 ||
        await_all(net, "findings", "findings") < 0 ||
        read_each(net, "probes", 1, take_probes) < 0)
        return -1;
    doctor_check_nodes(net->doctor, net->nodes, net->count);
    if (read_each(net, "findings", 0, take_findings) < 0)
        return -1;
    doctor_check_probes(net->doctor, net->nodes, net->count, net->probes,
                        net->probe_count);
    return 0;
}

/* No node leaves before node 0 has evaluated: all listeners must stay open until then, and the
 * store too. */
static int leave(struct net *net)
{
    static const char *const over = "ctrun-doctor/over";
    int rc = net->self == 0
                 ? ctrun_store_set(net->store, over, "1", 1, &net->err)
                 : ctrun_store_wait(net->store, &over, 1, OTHERS_MS, &net->err);

    return rc < 0 ? complain_others(net, "store") : 0;
}

/* Every wait is at most OTHERS_MS, so a node that never joins is a finding, not a hang.
 * What is opened or allocated here belongs to `net`; doctor_net() frees it in every case. */
static int run(struct net *net)
{
    int rc = 0;

    if (read_place(net) < 0 || open_listening(net) < 0)
        return -1;
    describe_self(net);
    if (!(net->nodes = ct_zalloc_array((size_t)net->count, sizeof *net->nodes)))
        return complain_memory(net);
    if (publish_node(net) < 0 || read_each(net, "node", 0, take_node) < 0 ||
        run_probes(net) < 0 || publish_probes(net) < 0 || publish_findings(net) < 0)
        return -1;
    if (net->self == 0)
        rc = evaluate(net);
    return leave(net) < 0 ? -1 : rc;
}

bool doctor_net(struct doctor *doctor)
{
    struct net *net;
    bool is_evaluator;

    if (get_number(CT_ENV_LOCAL_RANK) > 0)
        return false;
    if (!(net = ct_zalloc(sizeof *net))) {
        (void)doctor_add(doctor, DOCTOR_FAIL, "memory", "out of memory");
        return false;
    }
    net->doctor = doctor;
    is_evaluator = run(net) == 0 && net->self == 0;
    ctrun_store_close(net->store);
    free(net->nodes);
    free(net->probes);
    if (net->is_answering) {
        (void)shutdown(net->listener, SHUT_RDWR); /* accept() fails then */
        (void)pthread_join(net->thread, NULL);
        close(net->listener);
    }
    free(net);
    return is_evaluator;
}
