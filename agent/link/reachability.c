/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/link/reachability.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"

struct attempt {
    struct reachability *search;
    struct ct_addr addr;
    struct loop_watch *watch; /* NULL: not begun in this pass, or failed */
    int rc;                   /* errno of the last failure */
};

struct reachability {
    struct reachability_options options;
    /* when the next address is due, or the end of a pass or pause */
    struct loop_timer *timer;
    struct attempt attempts[REACHABILITY_ADDRS_MAX];
    int count;
    int begun;  /* attempts begun in this pass */
    int passes; /* passes that have ended */
    uint64_t began_ms;
    char host[CT_HOST_MAX];
};

/* ---- What to try ------------------------------------------------------------------------- */

/* False: not numeric, or link-local without a scope. */
static bool parse(struct ct_addr *out, const char *text, int port, unsigned scope_id)
{
    char host[CT_ADDR_TEXT_MAX];

    (void)ct_format(host, sizeof host, "%.*s", (int)strcspn(text, "%"), text);
    if (ct_addr_parse(host, port, out) < 0)
        return false;
    if (ct_addr_is_link_local(out))
        out->v6.sin6_scope_id = scope_id;
    return !ct_addr_is_link_local(out) || scope_id != 0;
}

static bool is_known(const struct ct_addr *list, int count, const struct ct_addr *addr)
{
    for (int i = 0; i < count; i++)
        if (ct_addr_is_same_host(&list[i], addr))
            return true;
    return false;
}

int reachability_list(struct ct_addr *out, const struct ct_start *start,
                      unsigned scope_id)
{
    struct ct_addr addr;
    int count = 0;

    if (start->group_world_size < 2 ||
        !parse(&out[0], start->master_addr, start->master_port, scope_id) ||
        ct_addr_is_loopback(&out[0]))
        return 0;
    count = 1;
    for (int i = 0; start->group_rank != 0 && i < start->addr_count; i++)
        if (parse(&addr, start->addrs[i], start->master_port, scope_id) &&
            !ct_nic_is_mine(&addr) && !is_known(out, count, &addr))
            out[count++] = addr;
    return count;
}

/* ---- Trying ------------------------------------------------------------------------------ */

static void drop_all(struct reachability *search)
{
    for (int i = 0; i < search->count; i++) {
        loop_watch_close(search->attempts[i].watch);
        search->attempts[i].watch = NULL;
    }
}

void reachability_cancel(struct reachability *search)
{
    drop_all(search);
    loop_timer_stop(search->timer);
    search->count = 0;
}

static bool is_pending(const struct reachability *search)
{
    for (int i = 0; i < search->begun; i++)
        if (search->attempts[i].watch)
            return true;
    return false;
}

/* `search` is not used after the callback, here and in finish(): the callback may begin another
 * search. */
static void give_up(struct reachability *search)
{
    const struct attempt *first = &search->attempts[0];
    const uint64_t took_ms = ct_now_ms() - search->began_ms;
    char text[CT_REASON_MAX];
    char tried[CT_REASON_MAX] = "";
    char addr[CT_ADDR_TEXT_MAX];

    ct_addr_format(addr, &first->addr);
    (void)ct_format(text, sizeof text,
                    "cannot reach %s on %s (%s, %d tries in %llu.%llu s)", search->host,
                    addr, strerror(-first->rc), search->passes,
                    (unsigned long long)(took_ms / 1000),
                    (unsigned long long)(took_ms % 1000 / 100));
    for (int i = 1; i < search->count; i++) {
        ct_addr_format_host(addr, &search->attempts[i].addr);
        (void)ct_append_item(tried, sizeof tried, ", ", "%s (%s)", addr,
                             strerror(-search->attempts[i].rc)); /* cut is fine */
    }
    reachability_cancel(search);
    search->options.on_failed(search->options.context, text, tried);
}

/* The pause grows with each pass: n times REACHABILITY_PAUSE_MS after the n-th. */
static void end_pass(struct reachability *search)
{
    for (int i = 0; i < search->count; i++)
        if (search->attempts[i].watch)
            search->attempts[i].rc = -ETIMEDOUT;
    drop_all(search);
    search->passes++;
    search->begun = 0;
    if (search->passes == search->options.passes)
        give_up(search);
    else
        loop_timer_set(search->timer, REACHABILITY_PAUSE_MS * (uint64_t)search->passes);
}

/* True: "connection refused" counts as an answer, as no listener is required yet. */
static bool is_answer(const struct reachability *search, int rc)
{
    return rc == -ECONNREFUSED && search->options.may_refuse;
}

static void on_answer(void *context, unsigned events);

/* 0, or a negative errno: it has failed at once. */
static int begin(struct attempt *attempt)
{
    int fd = socket(attempt->addr.any.sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, &attempt->addr.any, attempt->addr.length) < 0 &&
        errno != EINPROGRESS) {
        const int rc = -errno;

        close(fd);
        return rc;
    }
    attempt->watch = loop_watch_open(attempt->search->options.loop, fd, on_answer,
                                     attempt);
    if (!attempt->watch)
        return -ENOMEM;
    loop_watch_for(attempt->watch, LOOP_WRITE);
    return 0;
}

/* The local address for a connection to `remote`. A datagram socket gets one before anything is
 * sent; a stream socket may have lost its own when it was refused. */
static struct ct_addr local_end(const struct ct_addr *remote)
{
    struct ct_addr local = {.length = sizeof local.v6};
    const int fd = socket(remote->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, &remote->any, remote->length) < 0 ||
        getsockname(fd, &local.any, &local.length) < 0)
        local = (struct ct_addr){0};
    if (fd >= 0)
        close(fd);
    return local;
}

static void finish(struct attempt *attempt)
{
    struct reachability *search = attempt->search;
    const struct ct_addr remote = attempt->addr;
    struct ct_addr local = {.length = sizeof local.v6};

    if (search->options.may_refuse)
        local = local_end(&remote);
    else if (getsockname(loop_watch_fd(attempt->watch), &local.any, &local.length) < 0)
        local = (struct ct_addr){0};
    reachability_cancel(search);
    search->options.on_found(search->options.context, &remote, &local);
}

/* Begins the next attempt that does not fail at once; then sets the timer for the attempt after
 * it, or for the end of the pass. */
static void go_on(struct reachability *search)
{
    while (search->begun < search->count) {
        struct attempt *attempt = &search->attempts[search->begun++];

        attempt->rc = begin(attempt);
        if (is_answer(search, attempt->rc)) {
            finish(attempt);
            return;
        }
        if (attempt->rc == 0)
            break;
    }
    if (search->begun < search->count)
        loop_timer_set(search->timer, REACHABILITY_STAGGER_MS);
    else
        /* All attempts have begun: from here the pass lasts this long, twice as long as the one
         * before. */
        loop_timer_set(search->timer,
                       is_pending(search)
                           ? (uint64_t)REACHABILITY_ATTEMPT_MS << search->passes
                           : 0);
}

static void on_timer(void *context)
{
    struct reachability *search = context;

    if (search->begun < search->count)
        go_on(search);
    else
        end_pass(search);
}

static void on_answer(void *context, unsigned events)
{
    struct attempt *attempt = context;
    int error = 0;
    socklen_t length = sizeof error;

    (void)events;
    if (getsockopt(loop_watch_fd(attempt->watch), SOL_SOCKET, SO_ERROR, &error,
                   &length) == 0 &&
        (error == 0 || is_answer(attempt->search, -error))) {
        finish(attempt);
        return;
    }
    attempt->rc = error ? -error : -EIO;
    loop_watch_close(attempt->watch);
    attempt->watch = NULL;
    ct_debug("reachability: an address does not answer: %s", strerror(-attempt->rc));
    if (attempt->search->begun < attempt->search->count || !is_pending(attempt->search))
        loop_timer_set(attempt->search->timer,
                       0); /* at once: the next one, or the end */
}

void reachability_find(struct reachability *search, const struct ct_addr *addrs,
                       int count, const char *host)
{
    reachability_cancel(search);
    for (int i = 0; i < count && i < REACHABILITY_ADDRS_MAX; i++)
        search->attempts[i] = (struct attempt){.search = search, .addr = addrs[i]};
    search->count = count < REACHABILITY_ADDRS_MAX ? count : REACHABILITY_ADDRS_MAX;
    search->begun = 0;
    search->passes = 0;
    search->began_ms = ct_now_ms();
    (void)ct_copy(search->host, sizeof search->host, host); /* same size */
    loop_timer_set(search->timer, 0);
}

/* ---- Life -------------------------------------------------------------------------------- */

int reachability_open(struct reachability **out,
                      const struct reachability_options *options)
{
    struct reachability *search = ct_zalloc(sizeof *search);

    if (!search)
        return -ENOMEM;
    search->options = *options;
    if (search->options.passes == 0)
        search->options.passes = REACHABILITY_PASSES;
    search->timer = loop_timer_open(options->loop, on_timer, search);
    if (!search->timer) {
        free(search);
        return -ENOMEM;
    }
    *out = search;
    return 0;
}

void reachability_close(struct reachability *search)
{
    if (!search)
        return;
    reachability_cancel(search);
    loop_timer_close(search->timer);
    free(search);
}
