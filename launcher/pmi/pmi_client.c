/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/pmi/pmi_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"

#define FENCE  "kvs-fence"
#define LOOKUP "name-lookup"

/* ---- Bytes. O_NONBLOCK of the socket is not changed: others may share the socket. -------- */

static int fail_io(int rc, struct ctrun_error *err)
{
    if (rc == -ETIMEDOUT)
        return ct_fail(err, CTRUN_E_TIMEOUT,
                       "the PMI server did not answer within %d s",
                       PMI_CLIENT_ANSWER_MS / 1000);
    if (rc == -ECONNRESET || rc == -EPIPE)
        return ct_fail(err, rc, "the PMI server has closed the connection");
    return ct_fail(err, rc, "connection to the PMI server: %s", strerror(-rc));
}

static int send_all(struct pmi_client *client, const char *data, size_t length,
                    uint64_t deadline_ms, struct ctrun_error *err)
{
    while (length > 0) {
        ssize_t n = send(client->fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        int rc;

        if (n > 0) {
            data += n;
            length -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return fail_io(-errno, err);
        } else if ((rc = ct_client_poll(client->fd, POLLOUT, deadline_ms)) < 0) {
            return fail_io(rc, err);
        }
    }
    return 0;
}

static int receive(struct pmi_client *client, char *data, size_t size,
                   uint64_t deadline_ms, struct ctrun_error *err)
{
    while (size > 0) {
        int rc = ct_client_poll(client->fd, POLLIN, deadline_ms);
        ssize_t n = rc < 0 ? 0 : recv(client->fd, data, size, MSG_DONTWAIT);

        if (rc < 0)
            return fail_io(rc, err);
        if (n == 0)
            return fail_io(-ECONNRESET, err);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail_io(-errno, err);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

/* ---- Requests and answers ------------------------------------------------------------------ */

static int send_request(struct pmi_client *client, const char *name,
                        const struct pmi2_field *fields, size_t count,
                        struct ctrun_error *err)
{
    char text[PMI2_LENGTH_BYTES + PMI2_BODY_MAX];
    int length = pmi2_format(text, sizeof text, name, fields, count);

    if (length < 0)
        return ct_fail(err, length,
                       "%s: a value is too long for PMI-2, or has a character that it "
                       "does not allow",
                       name);
    return send_all(client, text, (size_t)length, ct_deadline_ms(PMI_CLIENT_ANSWER_MS),
                    err);
}

static int fail_answer(const char *name, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_PROTOCOL,
                   "the PMI server's answer to %s is malformed (not PMI-2)", name);
}

static int receive_any(struct pmi_client *client, const char *name,
                       struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(PMI_CLIENT_ANSWER_MS);
    char length_text[PMI2_LENGTH_BYTES];
    int length;
    int rc = receive(client, length_text, sizeof length_text, deadline_ms, err);

    if (rc < 0)
        return rc;
    if ((length = pmi2_parse_length(length_text)) < 0)
        return fail_answer(name, err);
    if ((rc = receive(client, client->body, (size_t)length, deadline_ms, err)) < 0)
        return rc;
    return pmi2_parse(&client->answer, client->body, (size_t)length) < 0
               ? fail_answer(name, err)
               : 0;
}

/* True for an answer that comes while that to `name` is awaited: the fence's, which is kept, and
 * that of a request about names which was given up. */
static bool is_of_another(struct pmi_client *client, const char *name)
{
    const char *cmd = pmi2_find(&client->answer, "cmd");

    if (!cmd || ct_starts_with(cmd, name))
        return false;
    if (client->is_in_fence && ct_starts_with(cmd, FENCE)) {
        client->is_in_fence = false;
        client->is_refused = pmi2_check(&client->answer, FENCE) < 0;
        return true;
    }
    return ct_starts_with(cmd, "name-");
}

/* Its success is not checked. */
static int receive_next(struct pmi_client *client, const char *name,
                        struct ctrun_error *err)
{
    int rc;

    do
        rc = receive_any(client, name, err);
    while (rc == 0 && is_of_another(client, name));
    return rc;
}

static int receive_answer(struct pmi_client *client, const char *name,
                          struct ctrun_error *err)
{
    int rc = receive_next(client, name, err);

    if (rc == 0 && pmi2_check(&client->answer, name) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL, "the PMI server refused %s (%s)", name,
                       pmi2_find(&client->answer, "errmsg")
                           ? pmi2_find(&client->answer, "errmsg")
                           : "it gave no reason");
    return rc;
}

static int ask(struct pmi_client *client, const char *name,
               const struct pmi2_field *fields, size_t count, struct ctrun_error *err)
{
    int rc = send_request(client, name, fields, count, err);

    return rc < 0 ? rc : receive_answer(client, name, err);
}

/* ---- Hello ----------------------------------------------------------------------------- */

/* Reads no byte after the line: those belong to the next answer. */
static int receive_line(struct pmi_client *client, char *dst, size_t size,
                        struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(PMI_CLIENT_ANSWER_MS);

    for (size_t used = 0; used + 1 < size; used++) {
        int rc = receive(client, dst + used, 1, deadline_ms, err);

        if (rc < 0)
            return rc;
        if (dst[used] == '\n') {
            dst[used] = '\0';
            return 0;
        }
    }
    return fail_answer("init", err);
}

static int read_number(const struct pmi_client *client, const char *key, int *out,
                       struct ctrun_error *err)
{
    const char *text = pmi2_find(&client->answer, key);
    uint64_t value;

    if (!text || ct_parse_u64(text, 0, 1 << 24, &value) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "the PMI server's answer to fullinit has no number for %s", key);
    *out = (int)value;
    return 0;
}

int pmi_client_open(struct pmi_client *out, int fd, const char *job, int rank,
                    struct ctrun_error *err)
{
    char line[2 * PMI2_LINE_MAX];
    char rank_text[16];
    const struct pmi2_field fields[] = {
        {"pmijobid", job},
        {"pmirank", rank_text},
        {"threaded", "FALSE"},
    };
    int rc;

    out->fd = fd;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)ct_format(rank_text, sizeof rank_text, "%d", rank);
    if ((rc = send_all(out, pmi2_init_line, strlen(pmi2_init_line),
                       ct_deadline_ms(PMI_CLIENT_ANSWER_MS), err)) < 0 ||
        (rc = receive_line(out, line, sizeof line, err)) < 0)
        return rc;
    if (pmi2_check_init(line) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL, "the PMI server does not support PMI-2");
    if ((rc = ask(out, "fullinit", fields, sizeof fields / sizeof *fields, err)) < 0 ||
        (rc = read_number(out, "rank", &out->rank, err)) < 0)
        return rc;
    return read_number(out, "size", &out->size, err);
}

/* ---- The rest ---------------------------------------------------------------------------- */

int pmi_client_put(struct pmi_client *client, const char *key, const char *value,
                   struct ctrun_error *err)
{
    const struct pmi2_field fields[] = {{"key", key}, {"value", value}};

    return ask(client, "kvs-put", fields, 2, err);
}

int pmi_client_fence_begin(struct pmi_client *client, struct ctrun_error *err)
{
    client->is_in_fence = true;
    return send_request(client, FENCE, NULL, 0, err);
}

int pmi_client_fence_wait(struct pmi_client *client, uint64_t deadline_ms,
                          struct ctrun_error *err)
{
    int rc;

    if (client->is_refused)
        return ct_fail(err, CTRUN_E_PROTOCOL, "the PMI server refused " FENCE);
    if (!client->is_in_fence)
        return 0;
    if ((rc = ct_client_poll(client->fd, POLLIN, deadline_ms)) == -ETIMEDOUT)
        return ct_fail(err, CTRUN_E_TIMEOUT, "not all tasks have reached the fence");
    if (rc < 0)
        return fail_io(rc, err);
    if ((rc = receive_answer(client, FENCE, err)) == 0)
        client->is_in_fence = false;
    return rc;
}

/* ---- Names --------------------------------------------------------------------------------- */

int pmi_client_publish(struct pmi_client *client, const char *name, const char *value,
                       struct ctrun_error *err)
{
    const struct pmi2_field fields[] = {{"name", name}, {"port", value}};

    return ask(client, "name-publish", fields, 2, err);
}

int pmi_client_look_up(struct pmi_client *client, const char *name,
                       struct ctrun_error *err)
{
    const struct pmi2_field fields[] = {{"name", name}};
    int rc;

    if ((rc = send_request(client, LOOKUP, fields, 1, err)) < 0 ||
        (rc = receive_next(client, LOOKUP, err)) < 0)
        return rc;
    return pmi2_check(&client->answer, LOOKUP) == 0;
}

/* ---- Values -------------------------------------------------------------------------------- */

int pmi_client_get(struct pmi_client *client, const char *key, const char **value,
                   struct ctrun_error *err)
{
    /* srcid: who may have put it; -1 is anybody. */
    const struct pmi2_field fields[] = {{"srcid", "-1"}, {"key", key}};
    const char *found;
    int rc = ask(client, "kvs-get", fields, 2, err);

    if (rc < 0)
        return rc;
    found = pmi2_find(&client->answer, "found");
    *value = pmi2_find(&client->answer, "value");
    if (!found || strcmp(found, "TRUE") != 0 || !*value)
        return ct_fail(err, -ENOENT, "no task has set %s", key);
    return 0;
}

void pmi_client_close(struct pmi_client *client)
{
    (void)ask(client, "finalize", NULL, 0, NULL); /* the server forgets us anyway */
    (void)close(client->fd);
    client->fd = -1;
}
