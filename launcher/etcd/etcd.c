/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/etcd/etcd.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "agent/loop/blocking_call.h"
#include "launcher/etcd/http.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    PATIENCE_MS =
        1000, /* for one member: without a leader it would answer only after 7 s */
    PATIENCE_MAX_MS =
        8000,      /* when all are slow: TLS and a password cost a busy etcd seconds */
    PAUSE_MS = 50, /* after all members were asked without success */
    BODY_MAX_BYTES = 2 << 20, /* etcd takes 1.5 MiB */
    REPLY_MAX_BYTES = 4 << 20,
};

struct etcd {
    const struct etcd_config *config; /* except its endpoints: */
    struct ct_endpoint endpoints[ETCD_ENDPOINTS_MAX];
    int endpoint_count;
    pthread_mutex_t mutex; /* of the two below */
    struct ct_endpoint next[ETCD_ENDPOINTS_MAX];
    int next_count; /* 0: no new ones */

    struct http_client *http;
    struct ct_buf body;
    struct ct_buf in;
    int member;           /* the one that answered last */
    uint64_t patience_ms; /* with one member, for one answer */
    bool has_answered;    /* once at least */
    int refusals;        /* members that refused our certificate, one after the other */
    bool is_open_to_all; /* etcd replied that authentication is off */
    char token[JSON_ETCD_TOKEN_MAX];
    int relogins; /* during this request */
    /* Addresses of the members' names, kept until one does not answer. */
    struct ct_addr addrs[ETCD_ENDPOINTS_MAX][CT_ADDRS_MAX];
    int addr_counts[ETCD_ENDPOINTS_MAX];
    /* Of a watch. */
    bool (*on_reply)(void *context, const struct json_etcd_reply *reply);
    void *context;
    bool has_received;
    int rc;
};

static const char *const paths[] = {
    [ETCD_LOGIN] = "/v3/auth/authenticate",
    [ETCD_RANGE] = "/v3/kv/range",
    [ETCD_TXN] = "/v3/kv/txn",
    [ETCD_GRANT] = "/v3/lease/grant",
    [ETCD_KEEPALIVE] = "/v3/lease/keepalive",
    [ETCD_REVOKE] = "/v3/lease/revoke",
    [ETCD_WATCH] = "/v3/watch",
    [ETCD_STATUS] = "/v3/maintenance/status",
    [ETCD_MOVE_LEADER] = "/v3/maintenance/transfer-leadership",
    [ETCD_USER_ADD] = "/v3/auth/user/add",
    [ETCD_ROLE_ADD] = "/v3/auth/role/add",
    [ETCD_USER_GRANT] = "/v3/auth/user/grant",
    [ETCD_AUTH_ENABLE] = "/v3/auth/enable",
    [ETCD_MEMBER_LIST] = "/v3/cluster/member/list",
    [ETCD_MEMBER_ADD] = "/v3/cluster/member/add",
    [ETCD_MEMBER_REMOVE] = "/v3/cluster/member/remove",
    [ETCD_MEMBER_PROMOTE] = "/v3/cluster/member/promote",
};

int etcd_open(struct etcd **out, const struct etcd_config *config,
              struct ctrun_error *err)
{
    const struct http_client_options options = {.ca_file = config->ca_file,
                                                .cert_file = config->cert_file,
                                                .key_file = config->key_file};
    struct etcd *etcd = ct_zalloc(sizeof *etcd);
    int rc;

    if (!etcd)
        return ct_fail(err, -ENOMEM, "etcd: out of memory");
    if ((rc = http_client_open(&etcd->http, &options, err)) < 0) {
        free(etcd);
        return ct_wrap(err, "--rdzv-backend=etcd"), rc;
    }
    etcd->config = config;
    etcd->endpoint_count = config->endpoint_count;
    memcpy(etcd->endpoints, config->endpoints, sizeof etcd->endpoints);
    pthread_mutex_init(&etcd->mutex, NULL);
    etcd->patience_ms = PATIENCE_MS;
    ct_buf_init(&etcd->body, BODY_MAX_BYTES);
    ct_buf_init(&etcd->in, REPLY_MAX_BYTES);
    *out = etcd;
    return 0;
}

void etcd_close(struct etcd *etcd)
{
    if (!etcd)
        return;
    http_client_close(etcd->http);
    ct_buf_deinit(&etcd->body);
    ct_buf_deinit(&etcd->in);
    memset(etcd->token, 0, sizeof etcd->token);
    pthread_mutex_destroy(&etcd->mutex);
    free(etcd);
}

void etcd_wake(struct etcd *etcd)
{
    http_client_wake(etcd->http);
}

void etcd_rearm(struct etcd *etcd)
{
    http_client_rearm(etcd->http);
}

void etcd_set_members(struct etcd *etcd, const struct etcd_config *config)
{
    pthread_mutex_lock(&etcd->mutex);
    memcpy(etcd->next, config->endpoints, sizeof etcd->next);
    etcd->next_count = config->endpoint_count;
    pthread_mutex_unlock(&etcd->mutex);
}

static void take_members(struct etcd *etcd)
{
    pthread_mutex_lock(&etcd->mutex);
    if (etcd->next_count > 0) {
        memcpy(etcd->endpoints, etcd->next, sizeof etcd->endpoints);
        etcd->endpoint_count = etcd->next_count;
        etcd->next_count = 0;
        etcd->member = 0;
        memset(etcd->addr_counts, 0, sizeof etcd->addr_counts);
    }
    pthread_mutex_unlock(&etcd->mutex);
}

struct ct_buf *etcd_body(struct etcd *etcd)
{
    ct_buf_consume(&etcd->body, ct_buf_length(&etcd->body));
    return &etcd->body;
}

/* ---- One request to one member ------------------------------------------------------- */

static bool collect(void *context, const void *data, size_t length)
{
    struct etcd *etcd = context;

    etcd->rc = ct_buf_append(&etcd->in, data, length);
    return etcd->rc == 0;
}

/* Takes the lines that are complete. False: enough. */
static bool take_lines(void *context, const void *data, size_t length)
{
    struct etcd *etcd = context;
    const uint8_t *end;

    etcd->has_received = true;
    if (!collect(context, data, length))
        return false;
    while ((end = memchr(ct_buf_data(&etcd->in), '\n', ct_buf_length(&etcd->in)))) {
        const size_t line = (size_t)(end - ct_buf_data(&etcd->in));
        struct json_etcd_reply reply;
        bool wants_more;

        if ((etcd->rc = json_etcd_read(&reply, (const char *)ct_buf_data(&etcd->in),
                                       line)) < 0)
            return false;
        ct_buf_consume(&etcd->in, line + 1);
        wants_more = etcd->on_reply(etcd->context, &reply);
        json_etcd_reply_deinit(&reply);
        if (!wants_more)
            return false;
    }
    return true;
}

/* On a thread: a name server that does not answer takes the resolver half a minute. */
struct lookup {
    struct ct_endpoint at;
    struct ct_addr addrs[CT_ADDRS_MAX];
    int count; /* or a code, with err */
    struct ctrun_error err;
};

static void look_up(void *job)
{
    struct lookup *lookup = job;

    lookup->count = ct_addr_resolve(lookup->at.host, lookup->at.port, lookup->addrs,
                                    CT_ADDRS_MAX, &lookup->err);
}

/* Numbers need no resolver; curl takes them from the URL itself. */
static int resolve(struct etcd *etcd, uint64_t deadline_ms, struct ctrun_error *err)
{
    static struct blocking_lane
        lanes[ETCD_ENDPOINTS_MAX]; /* no member waits for another's */
    struct blocking_lane *lane = &lanes[etcd->member];
    const struct ct_endpoint *at = &etcd->endpoints[etcd->member];
    const uint64_t limit_ms = (uint64_t)ct_left_ms(deadline_ms);
    struct lookup *lookup;
    struct ct_addr number;
    int rc;

    if (etcd->addr_counts[etcd->member] > 0 ||
        ct_addr_parse(at->host, at->port, &number) == 0)
        return 0;
    if (!(lookup = ct_zalloc(sizeof *lookup)))
        return ct_fail(err, -ENOMEM, "etcd: out of memory");
    lookup->at = *at;
    if ((rc = blocking_call_in(lane, look_up, free, lookup, limit_ms)) < 0)
        return ct_fail(err, rc, "host '%s': the resolver did not answer in %.1f s",
                       at->host, (double)limit_ms / 1000);
    if (lookup->count > 0) {
        etcd->addr_counts[etcd->member] = lookup->count;
        memcpy(etcd->addrs[etcd->member], lookup->addrs, sizeof lookup->addrs);
    } else {
        rc = -ENOTCONN;
        if (err)
            *err = lookup->err;
    }
    free(lookup);
    return rc;
}

/* One attempt at the current member. 0 or a code of http_client_post() or -EBADMSG. */
static int post(struct etcd *etcd, enum etcd_call call, const struct ct_buf *body,
                uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct ct_endpoint *at = &etcd->endpoints[etcd->member];
    const bool is_v6 = strchr(at->host, ':');
    char url[CT_HOST_MAX + 64];
    long status;
    int rc;

    (void)ct_format(url, sizeof url, "%s://%s%s%s:%d%s",
                    etcd->config->is_tls ? "https" : "http", is_v6 ? "[" : "", at->host,
                    is_v6 ? "]" : "", at->port, paths[call]);
    ct_buf_consume(&etcd->in, ct_buf_length(&etcd->in));
    etcd->rc = 0;
    if ((rc = resolve(etcd, deadline_ms, err)) < 0)
        return rc;
    rc = http_client_post(etcd->http,
                          &(struct http_request){
                              .url = url,
                              .host = at->host,
                              .port = at->port,
                              .addrs = etcd->addrs[etcd->member],
                              .addr_count = etcd->addr_counts[etcd->member],
                              .authorization = call == ETCD_LOGIN ? NULL : etcd->token,
                              .body = ct_buf_data(body),
                              .length = ct_buf_length(body),
                              .connect_ms = etcd->patience_ms,
                              .deadline_ms = deadline_ms,
                              .on_body = call == ETCD_WATCH ? take_lines : collect,
                              .context = etcd,
                          },
                          &status, err);
    if (rc == 0 && etcd->rc < 0)
        rc = ct_fail(err, -EBADMSG, "an answer that is %s (HTTP status %ld)",
                     etcd->rc == -ENOBUFS  ? "too long"
                     : etcd->rc == -ENOMEM ? "too long for the memory that is left"
                                           : "not etcd's",
                     status);
    return rc;
}

static uint64_t attempt_deadline(const struct etcd *etcd, uint64_t deadline_ms)
{
    const uint64_t own_ms = ct_deadline_ms(etcd->patience_ms);

    return own_ms < deadline_ms ? own_ms : deadline_ms;
}

/* As post(), and the answer read. */
static int ask(struct etcd *etcd, enum etcd_call call, const struct ct_buf *body,
               uint64_t deadline_ms, struct json_etcd_reply *reply,
               struct ctrun_error *err)
{
    int rc = post(etcd, call, body, attempt_deadline(etcd, deadline_ms), err);

    *reply = (struct json_etcd_reply){0};
    if (rc < 0)
        return rc;
    rc = json_etcd_read(reply, (const char *)ct_buf_data(&etcd->in),
                        ct_buf_length(&etcd->in));
    if (rc == 0 || rc == -ENOMEM)
        return rc == 0 ? 0 : ct_fail(err, rc, "etcd: out of memory");
    if (rc == -EMSGSIZE)
        return ct_fail(err, rc, "its token is longer than %d bytes",
                       JSON_ETCD_TOKEN_MAX - 1);
    return ct_fail(err, rc, "an answer that is not etcd's: %s",
                   ct_buf_length(&etcd->in) ? "it has another form" : "it is empty");
}

/* ---- Login --------------------------------------------------------------------------- */

static int refused(struct etcd *etcd, const struct json_etcd_reply *reply,
                   struct ctrun_error *err)
{
    const char *user = etcd->config->user;

    return ct_fail(err, CTRUN_E_AUTH, "etcd refuses %s%s%s: %s",
                   *user ? "user '" : "requests without a user", user, *user ? "'" : "",
                   reply->message);
}

/* 0: we have a token or need none. */
static int login(struct etcd *etcd, uint64_t deadline_ms, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    struct ct_buf body;
    int rc;

    if (!etcd->config->user[0] || etcd->token[0] || etcd->is_open_to_all)
        return 0;
    ct_buf_init(&body, BODY_MAX_BYTES);
    rc = json_etcd_login(&body, etcd->config->user, etcd->config->password);
    if (rc == 0)
        rc = ask(etcd, ETCD_LOGIN, &body, deadline_ms, &reply, err);
    else
        (void)ct_fail(err, rc, "etcd: out of memory");
    ct_buf_deinit(&body);
    if (rc < 0)
        return rc;
    if (reply.code == JSON_ETCD_INVALID)
        rc = refused(etcd, &reply, err);
    else if (reply.code == JSON_ETCD_UNAVAILABLE)
        rc = ct_fail(err, -ENOTCONN, "%s", reply.message);
    else if (reply.code == 0)
        (void)ct_copy(etcd->token, sizeof etcd->token, reply.token); /* same size */
    else
        etcd->is_open_to_all = true; /* authentication is not enabled */
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* ---- Members ------------------------------------------------------------------------- */

static void leave_member(struct etcd *etcd, const struct ctrun_error *why)
{
    const struct ct_endpoint *at = &etcd->endpoints[etcd->member];

    ct_debug("etcd member left host=%s port=%d: %s", at->host, at->port, why->text);
    etcd->addr_counts[etcd->member] = 0;
    etcd->member = (etcd->member + 1) % etcd->endpoint_count;
}

/* The code of an error that is the same for all members, with its text; 0: try the next member. */
static int judge(struct etcd *etcd, int rc, struct ctrun_error *err)
{
    char what[512];
    char why[sizeof err->text];

    if (rc == -ECANCELED || rc == CTRUN_E_AUTH || rc == -ENOMEM)
        return rc;
    etcd->refusals = rc == -EPERM ? etcd->refusals + 1 : 0;
    if (rc != -EACCES && rc != -EPERM && rc != -EBADF && rc != -EMSGSIZE)
        return 0;
    if (rc == -EPERM && etcd->refusals < etcd->endpoint_count)
        return 0;
    if (etcd->has_answered && rc != -EMSGSIZE)
        return 0; /* certificates may be being renewed */
    etcd_config_format(what, sizeof what, etcd->config);
    (void)ct_copy(why, sizeof why, err->text);
    if (rc == -EMSGSIZE)
        return ct_fail(err, CTRUN_E_AUTH, "etcd at %s: %s", what, why);
    if (rc == -EBADF)
        return ct_fail(err, CTRUN_E_USAGE, "certificate files for etcd: %s", why);
    if (rc == -EPERM)
        return ct_fail(
            err, CTRUN_E_AUTH,
            "etcd at %s: TLS: it ended the handshake, in which this node showed "
            "%s: %s; check cert and key in --rdzv-conf",
            what, *etcd->config->cert_file ? "its certificate" : "no certificate", why);
    return ct_fail(err, CTRUN_E_AUTH,
                   "etcd at %s: TLS: its certificate: %s; check that, and cacert in "
                   "--rdzv-conf",
                   what, why);
}

static int unreachable(const struct etcd *etcd, struct ctrun_error *err)
{
    const bool is_mute = err->code == -ENODATA;
    char what[512];
    char why[sizeof err->text];

    etcd_config_format(what, sizeof what, etcd->config);
    (void)ct_copy(why, sizeof why, err->text);
    return ct_fail(err, CTRUN_E_UNREACHABLE, "no etcd answers at %s: %s%s", what, why,
                   is_mute && !etcd->config->is_tls
                       ? "; if it wants TLS: protocol=https in --rdzv-conf"
                       : "");
}

/* How to handle an error of etcd in this call: 0 return it to the caller, 1 ask again, or a
 * code. */
static int weigh(struct etcd *etcd, const struct json_etcd_reply *reply,
                 struct ctrun_error *err)
{
    switch (reply->code) {
    case JSON_ETCD_BAD_TOKEN: etcd->token[0] = '\0'; return 1;
    case JSON_ETCD_DENIED: return refused(etcd, reply, err);
    case JSON_ETCD_INVALID:
        if (*etcd->config->user && etcd->relogins == 0) { /* its users were changed? */
            etcd->token[0] = '\0';
            etcd->is_open_to_all = false;
            return 1;
        }
        return strstr(reply->message, "user name is empty") ? refused(etcd, reply, err)
                                                            : 0;
    case 1: /* canceled, deadline exceeded, unavailable: this member cannot just now */
    case 2:
    case 4:
    case JSON_ETCD_UNAVAILABLE: return ct_fail(err, -ENOTCONN, "%s", reply->message);
    default: return 0;
    }
}

static int try_member(struct etcd *etcd, enum etcd_call call, uint64_t deadline_ms,
                      struct json_etcd_reply *reply, struct ctrun_error *err)
{
    int rc = login(etcd, deadline_ms, err);

    if (rc < 0)
        return rc;
    if ((rc = ask(etcd, call, &etcd->body, deadline_ms, reply, err)) < 0)
        return rc;
    if ((rc = weigh(etcd, reply, err)) != 0)
        json_etcd_reply_deinit(reply);
    return rc;
}

/* Twice the time that was needed, or that was too short. */
static void set_patience(struct etcd *etcd, uint64_t ms)
{
    etcd->patience_ms = 2 * ms < PATIENCE_MS       ? PATIENCE_MS
                        : 2 * ms > PATIENCE_MAX_MS ? PATIENCE_MAX_MS
                                                   : 2 * ms;
}

int etcd_do(struct etcd *etcd, enum etcd_call call, uint64_t deadline_ms,
            struct json_etcd_reply *reply, struct ctrun_error *err)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    struct ctrun_error own, before = {0};
    bool is_slow = false;
    int rc;

    if (!err)
        err = &own;
    take_members(etcd);
    etcd->relogins = 0;
    for (int tried = 1;; tried++) {
        const uint64_t began_ms = ct_now_ms();

        if ((rc = try_member(etcd, call, deadline_ms, reply, err)) == 0) {
            set_patience(etcd, ct_now_ms() - began_ms);
            etcd->has_answered = true;
            return 0;
        }
        if (rc > 0 && etcd->relogins++ < 2)
            continue;
        if (rc > 0)
            return ct_fail(err, CTRUN_E_AUTH,
                           "etcd refused the token that it had issued");
        is_slow |= rc == -ETIMEDOUT;
        /* A try that had too little time does not hide the reason of the one before. */
        if (rc == -ETIMEDOUT && *before.text && deadline_ms < began_ms + PATIENCE_MS)
            *err = before;
        before = *err;
        if ((rc = judge(etcd, rc, err)) < 0)
            return rc;
        leave_member(etcd, err);
        if (ct_left_ms(deadline_ms) <= PAUSE_MS)
            return unreachable(etcd, err);
        if (tried % etcd->endpoint_count != 0)
            continue;
        if (is_slow)
            set_patience(etcd, etcd->patience_ms);
        (void)nanosleep(&pause, NULL); /* a signal only shortens it */
    }
}

/* ---- Watch --------------------------------------------------------------------------- */

int etcd_watch(struct etcd *etcd, uint64_t deadline_ms,
               bool (*on_reply)(void *context, const struct json_etcd_reply *reply),
               void *context, struct ctrun_error *err)
{
    struct ctrun_error own;
    int rc, verdict;

    if (!err)
        err = &own;
    take_members(etcd);
    etcd->on_reply = on_reply;
    etcd->context = context;
    etcd->has_received = false;
    rc = login(etcd, deadline_ms, err);
    if (rc == 0)
        rc = post(etcd, ETCD_WATCH, &etcd->body, deadline_ms, err);
    if (rc == 0)
        return 0;
    if (rc == -ETIMEDOUT && ct_left_ms(deadline_ms) == 0) {
        if (!etcd->has_received) /* not even is_created: ask another member next */
            leave_member(etcd, err);
        return 0;
    }
    if ((verdict = judge(etcd, rc, err)) < 0)
        return verdict;
    leave_member(etcd, err);
    return unreachable(etcd, err);
}
