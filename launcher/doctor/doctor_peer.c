/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a rendezvous endpoint from this machine: its name, its route, and which program answers.
 * Every ctrun server answers HTTP on the same port. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "launcher/doctor/doctor.h"
#include "launcher/report/json_status.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/net/connect_error.h"

enum {
    CONNECT_MS = 3000,
    ANSWER_MS = 3000,
    ANSWER_MAX_BYTES = 1 << 20
};

/* Sends an HTTP request and reads until the server closes the connection. Our server closes it
 * after its reply; with another program that keeps it open, reading stops at the deadline. */
static void ask(int fd, struct ct_buf *answer)
{
    static const char question[] = "GET /status HTTP/1.1\r\nHost: ctrun\r\n\r\n";
    const uint64_t deadline_ms = ct_deadline_ms(ANSWER_MS);
    uint8_t *at;
    ssize_t n = 1;

    if (send(fd, question, sizeof question - 1, MSG_NOSIGNAL) < 0)
        return;
    while (n > 0 && ct_client_poll(fd, POLLIN, deadline_ms) > 0 &&
           ct_buf_reserve(answer, 4096, &at) == 0)
        if ((n = recv(fd, at, 4096, 0)) > 0)
            ct_buf_commit(answer, (size_t)n);
}

static void look_at_server(struct doctor *doctor, int fd, const char *address)
{
    struct ct_buf answer;
    char version[32];
    char runs[384];
    const char *body;

    ct_buf_init(&answer, ANSWER_MAX_BYTES);
    ask(fd, &answer);
    body = memmem(ct_buf_data(&answer), ct_buf_length(&answer), "\r\n\r\n", 4);
    if (body &&
        json_server_read(body + 4,
                         ct_buf_length(&answer) -
                             (size_t)(body + 4 - (const char *)ct_buf_data(&answer)),
                         version, sizeof version, runs, sizeof runs) == 0)
        (void)doctor_add(doctor, DOCTOR_OK, "rendezvous", "%s: ctrun %s, runs: %s",
                         address, version, *runs ? runs : "none");
    else
        doctor_set_fix(
            doctor_add(
                doctor, DOCTOR_FAIL, "rendezvous", "%s: %s", address,
                ct_buf_length(&answer) > 0
                    ? "the answer is not that of a server of ctrun"
                    : "a program accepts connections there, but does not answer"),
            "another program may have this port (torchrun's store, perhaps): choose "
            "another, or stop it");
    ct_buf_deinit(&answer);
}

/* True when a program answered there. */
static bool look_at_address(struct doctor *doctor, const struct ct_addr *addr)
{
    char address[CT_ADDR_TEXT_MAX];
    const uint64_t began_ms = ct_now_ms();
    const int fd = ct_client_dial(addr, ct_deadline_ms(CONNECT_MS));

    ct_addr_format(address, addr);
    if (fd < 0) {
        const char *meaning = ct_connect_error_explain(fd);

        doctor_set_fix(doctor_add(doctor, DOCTOR_WARN, "connect", "%s: %s%s%s", address,
                                  strerror(-fd), meaning ? ": " : "",
                                  meaning ? meaning : ""),
                       "%s",
                       fd == -ECONNREFUSED
                           ? "is ctrun running on that host, with this port?"
                           : "open the port, or name another interface of the host");
        return false;
    }
    (void)doctor_add(doctor, DOCTOR_OK, "connect", "%s in %llu ms", address,
                     (unsigned long long)(ct_now_ms() - began_ms));
    look_at_server(doctor, fd, address);
    close(fd);
    return true;
}

void doctor_peer(struct doctor *doctor, const char *endpoint)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    struct ct_endpoint where;
    struct ctrun_error err;
    bool is_reached = false;
    uint64_t began_ms;
    int count;

    if (ct_endpoint_parse_typed(endpoint, &where, &err) < 0) {
        doctor_add(doctor, DOCTOR_FAIL, "endpoint", "%.300s", err.text);
        return;
    }
    if (!*where.host) {
        doctor_set_fix(doctor_add(doctor, DOCTOR_FAIL, "endpoint", "%.300s", endpoint),
                       "write HOST:PORT, as in --rdzv-endpoint");
        return;
    }
    began_ms = ct_now_ms();
    count = ct_addr_resolve(where.host, where.port < 0 ? CT_C10D_PORT : where.port,
                            addrs, CT_ADDRS_MAX, &err);
    if (count <= 0) {
        doctor_set_fix(
            doctor_add(doctor, DOCTOR_FAIL, "resolve", "%.400s", err.text),
            "give the IP address of the host, or add its name to /etc/hosts");
        return;
    }
    (void)doctor_add(doctor, DOCTOR_OK, "resolve", "%.200s: %d addresses in %llu ms",
                     where.host, count, (unsigned long long)(ct_now_ms() - began_ms));
    for (int i = 0; i < count; i++)
        is_reached |= look_at_address(doctor, &addrs[i]);
    if (!is_reached)
        for (size_t i = 0; i < doctor->count; i++)
            if (strcmp(doctor->list[i].what, "connect") == 0)
                doctor->list[i].level = DOCTOR_FAIL;
}
