/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pmi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/loop.h"
#include "agent/pmi_job.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"

struct client {
    struct pmi *pmi;
    int rank;
    int theirs;               /* until it is handed out; -1 */
    struct loop_watch *watch; /* NULL: it has said goodbye, or is not served any more */
    bool has_begun;           /* has asked something */
    bool has_ended;           /* has said goodbye */
    size_t used;
    char line[PMI_LINE_MAX];
};

struct pmi {
    struct pmi_job *job;
    int count;
    struct client *clients;
    void (*on_abort)(void *context, int rank, int code);
    void *context;
    struct pmi_reply reply;
};

static void hang_up(struct client *client, const char *why)
{
    if (why)
        ct_warn("PMI: rank %d: %s: it is not served any more", client->rank, why);
    loop_watch_close(client->watch);
    client->watch = NULL;
}

/* An answer is far smaller than the socket's buffer, and who asks waits for it. */
static void tell(struct client *client, const struct pmi_reply *reply)
{
    if (client->watch && send(loop_watch_fd(client->watch), reply->text, reply->length,
                              MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)reply->length)
        hang_up(client, errno == EPIPE ? NULL : "does not read its answers");
}

static void serve(struct client *client, char *line)
{
    struct pmi *pmi = client->pmi;
    const int rc = pmi_job_serve(pmi->job, client->rank, line, &pmi->reply);

    if (rc < 0) {
        hang_up(client, rc == -EPROTO ? "not PMI-1" : strerror(-rc));
        return;
    }
    client->has_begun = true;
    switch (pmi->reply.act) {
    case PMI_ANSWER: tell(client, &pmi->reply); break;
    case PMI_ANSWER_ALL:
        for (int i = 0; i < pmi->count; i++)
            tell(&pmi->clients[i], &pmi->reply);
        break;
    case PMI_WAIT: break;
    case PMI_GOODBYE:
        client->has_ended = true;
        tell(client, &pmi->reply);
        hang_up(client, NULL);
        break;
    case PMI_ABORT:
        pmi->on_abort(pmi->context, client->rank, pmi->reply.exit_code);
        break;
    }
}

/* The lines that are whole. */
static void serve_lines(struct client *client)
{
    char *at = client->line;
    char *end;

    while (client->watch &&
           (end = memchr(at, '\n', client->used - (size_t)(at - client->line)))) {
        *end = '\0';
        serve(client, at);
        at = end + 1;
    }
    client->used -= (size_t)(at - client->line);
    memmove(client->line, at, client->used);
    if (client->watch && client->used == sizeof client->line)
        hang_up(client, "a line without end");
}

static void on_ready(void *context, unsigned events)
{
    struct client *client = context;
    const ssize_t n = recv(loop_watch_fd(client->watch), client->line + client->used,
                           sizeof client->line - client->used, MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* its end says more */
        hang_up(client, NULL);
        return;
    }
    client->used += (size_t)n;
    serve_lines(client);
}

static int open_client(struct client *client, struct loop *loop)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    client->theirs = fds[1];
    if (!(client->watch = loop_watch_open(loop, fds[0], on_ready, client)))
        return -ENOMEM;
    loop_watch_for(client->watch, LOOP_READ);
    return 0;
}

int pmi_open(struct pmi **out, struct loop *loop, int count,
             void (*on_abort)(void *context, int rank, int code), void *context)
{
    struct pmi *pmi = ct_zalloc(sizeof *pmi);
    int rc = 0;

    if (!pmi)
        return -ENOMEM;
    pmi->on_abort = on_abort;
    pmi->context = context;
    pmi->job = pmi_job_create(count);
    pmi->clients = ct_zalloc_array((size_t)count, sizeof *pmi->clients);
    if (!pmi->job || !pmi->clients)
        rc = -ENOMEM;
    for (; rc == 0 && pmi->count < count; pmi->count++) {
        struct client *client = &pmi->clients[pmi->count];

        client->pmi = pmi;
        client->rank = pmi->count;
        client->theirs = -1;
        rc = open_client(client, loop);
    }
    if (rc == 0)
        *out = pmi;
    else
        pmi_close(pmi);
    return rc;
}

void pmi_close(struct pmi *pmi)
{
    if (!pmi)
        return;
    for (int i = 0; i < pmi->count; i++) {
        loop_watch_close(pmi->clients[i].watch);
        if (pmi->clients[i].theirs >= 0)
            close(pmi->clients[i].theirs);
    }
    free(pmi->clients);
    pmi_job_destroy(pmi->job);
    free(pmi);
}

bool pmi_is_missed(const struct pmi *pmi, int rank)
{
    const struct client *client = &pmi->clients[rank];

    return client->has_begun && !client->has_ended;
}

int pmi_hand_out(struct pmi *pmi, int rank, struct ct_env *env, int *fd)
{
    /* Of a launcher around us: they would win over ours. */
    static const char *const foreign[] = {"PMI_PORT", "PMI_ID", "PMI_SPAWNED",
                                          "PMI_JOBID", "PMI2_SIZE"};
    struct client *client = &pmi->clients[rank];
    int rc;

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        ct_env_remove(env, foreign[i]);
    if ((rc = ct_env_setf(env, "PMI_FD", "%d", client->theirs)) < 0 ||
        (rc = ct_env_setf(env, "PMI_RANK", "%d", rank)) < 0 ||
        (rc = ct_env_setf(env, "PMI_SIZE", "%d", pmi->count)) < 0)
        return rc;
    *fd = client->theirs;
    client->theirs = -1;
    return 0;
}
