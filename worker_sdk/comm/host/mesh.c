/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/mesh.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/mesh_links.h"

enum {
    /* for a reason to arrive on control after the data connection ended */
    ANSWER_MS = 100,
    NOTE_BYTES = 512,
};

/* A control message: code, then text. The code of a failure is negative. */
enum {
    NOTE_LEFT = 0,   /* sent at an orderly close */
    NOTE_ASK = 1,    /* asks whom the peer waits for; the text tells whom we wait for */
    NOTE_ANSWER = 2, /* the text tells whom this member waits for */
};

/* Filled by the thread that is in a call; ct_mesh_send_code() on another thread reads none of
 * it. */
struct mesh_note {
    unsigned char bytes[NOTE_BYTES];
    size_t length;
    bool has_left;
    bool has_answered;
    int awaited; /* the member that this one waits for; -1: none */
};

/* Our own place in the epoll is the bell, so that one epoll_wait() sees an abort as well. The bell
 * is never read: once it has rung the group has ended, and every later wait ends at once. */
static int watch_controls(struct ct_mesh *mesh, struct ctrun_error *err)
{
    mesh->watch = epoll_create1(EPOLL_CLOEXEC);
    mesh->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mesh->watch < 0 || mesh->wake < 0)
        return ct_fail(err, -errno, "open group: make an epoll or eventfd: %s",
                       strerror(errno));
    for (int i = 0; i < mesh->size; i++) {
        int fd = i == mesh->me ? mesh->wake : mesh->control[i];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(mesh->watch, EPOLL_CTL_ADD, fd, &event) < 0)
            return ct_fail(err, -errno, "open group: epoll: %s", strerror(errno));
    }
    return 0;
}

/* On failure the open sockets stay in *mesh, for ct_mesh_close(). */
int ct_mesh_open(struct ct_mesh *mesh, const struct ct_mesh_setup *setup,
                 struct ctrun_error *err)
{
    size_t size = (size_t)setup->size;
    int rc;

    *mesh = (struct ct_mesh){.size = setup->size,
                             .me = setup->me,
                             .peers = setup->peers,
                             .data = ct_zalloc_array(size, sizeof(int)),
                             .control = ct_zalloc_array(size, sizeof(int)),
                             .notes = ct_zalloc_array(size, sizeof(struct mesh_note)),
                             .awaited = -1,
                             .watch = -1,
                             .wake = -1};
    for (size_t i = 0; mesh->data && mesh->control && i < size; i++)
        mesh->data[i] = mesh->control[i] = -1;
    if (!mesh->data || !mesh->control || !mesh->notes)
        return ct_fail(err, -ENOMEM, "open group: out of memory for %d members",
                       setup->size);
    rc = ct_mesh_links_open(mesh, setup, err);
    return rc < 0 ? rc : watch_controls(mesh, err);
}

/* Sends NOTE_LEFT before it closes the sockets: a member that sees an end without it takes us for
 * dead. */
void ct_mesh_close(struct ct_mesh *mesh)
{
    if (!mesh->peers)
        return;
    ct_mesh_send_code(mesh, 0, "");
    for (int i = 0; i < mesh->size; i++) {
        if (mesh->control && mesh->control[i] >= 0)
            close(mesh->control[i]);
        if (mesh->data && mesh->data[i] >= 0)
            close(mesh->data[i]);
    }
    if (mesh->watch >= 0)
        close(mesh->watch);
    if (mesh->wake >= 0)
        close(mesh->wake);
    free(mesh->data);
    free(mesh->control);
    free(mesh->notes);
    *mesh = (struct ct_mesh){0};
}

/* ---- Control ---------------------------------------------------------------------------- */

/* One send() of a fixed size, so that notes of two threads never mix. */
static void send_note(const struct ct_mesh *mesh, int member,
                      const unsigned char bytes[NOTE_BYTES])
{
    if (mesh->control[member] >=
        0) /* the buffer of a control connection is never full */
        (void)send(mesh->control[member], bytes, NOTE_BYTES,
                   MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* May be called by another thread while ours is inside a call (abort). */
void ct_mesh_send_code(struct ct_mesh *mesh, int code, const char *text)
{
    unsigned char bytes[NOTE_BYTES] = {0};
    struct ct_writer out;

    ct_writer_init(&out, bytes, 4);
    ct_write_u32(&out, (uint32_t)code);
    (void)ct_copy((char *)bytes + 4, sizeof bytes - 4, text); /* cut when too long */
    for (int i = 0; mesh->control && i < mesh->size; i++)
        send_note(mesh, i, bytes);
}

static void send_awaited(const struct ct_mesh *mesh, int member, uint32_t code)
{
    unsigned char bytes[NOTE_BYTES] = {0};
    struct ct_writer out;

    ct_writer_init(&out, bytes, 8);
    ct_write_u32(&out, code);
    ct_write_u32(&out, (uint32_t)mesh->awaited);
    send_note(mesh, member, bytes);
}

void ct_mesh_wake(struct ct_mesh *mesh)
{
    uint64_t one = 1;

    if (mesh->wake >= 0 && write(mesh->wake, &one, sizeof one) < 0)
        return; /* full: already readable */
}

/* The first reason stays. */
static void keep_reason(struct ct_mesh *mesh, const struct ctrun_error *reason,
                        bool is_received)
{
    if (mesh->reason.code < 0)
        return;
    mesh->reason = *reason;
    mesh->reason_ms = ct_now_ms();
    mesh->is_received = is_received;
}

/* Removed from the epoll in any case: an ended connection stays readable and would wake every
 * wait. */
static void on_control_end(struct ct_mesh *mesh, int member, int failure)
{
    char who[CT_PEER_TEXT_MAX];
    struct ctrun_error reason;

    (void)epoll_ctl(mesh->watch, EPOLL_CTL_DEL, mesh->control[member], NULL);
    if (mesh->notes[member].has_left)
        return;
    ct_peer_format(who, &mesh->peers[member]);
    ct_fail(&reason, CTRUN_E_PEER_LOST,
            "%s " CT_PEER_ENDED ", or cannot be reached%s%s", who, failure ? ": " : "",
            failure ? strerror(failure) : "");
    keep_reason(mesh, &reason, false);
}

/* A note may arrive in pieces; it is used only when it is complete. */
static void read_note(struct ct_mesh *mesh, int member)
{
    struct mesh_note *note = &mesh->notes[member];
    struct ctrun_error reason;
    struct ct_reader in;
    int code;
    ssize_t n = recv(mesh->control[member], note->bytes + note->length,
                     NOTE_BYTES - note->length, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        on_control_end(mesh, member, n < 0 ? errno : 0);
        return;
    }
    if ((note->length += (size_t)n) < NOTE_BYTES)
        return;
    note->length = 0;
    note->bytes[NOTE_BYTES - 1] = '\0';
    ct_reader_init(&in, note->bytes, 8);
    code = (int)ct_read_u32(&in);
    if (code == NOTE_ASK || code == NOTE_ANSWER) {
        note->has_answered = true;
        note->awaited = (int)ct_read_u32(&in);
        if (code == NOTE_ASK)
            send_awaited(mesh, member, NOTE_ANSWER);
    } else if (code >= 0) {
        note->has_left = true;
    } else {
        ct_fail(&reason, code, "%s", (const char *)note->bytes + 4);
        keep_reason(mesh, &reason, true);
    }
}

int ct_mesh_check(struct ct_mesh *mesh, uint64_t grace_ms, struct ctrun_error *err)
{
    struct epoll_event events[16];
    int n = epoll_wait(mesh->watch, events, 16, 0);

    for (int i = 0; i < n; i++)
        if ((int)events[i].data.u32 != mesh->me)
            read_note(mesh, (int)events[i].data.u32);
    if (mesh->reason.code < 0 && ct_now_ms() - mesh->reason_ms >= grace_ms)
        return ct_fail(err, mesh->reason.code, "%s", mesh->reason.text);
    return 0;
}

/* A data connection may end before the reason arrives on control: waits for the reason, ANSWER_MS
 * at most. */
int ct_mesh_explain(struct ct_mesh *mesh, int member, struct ctrun_error *err)
{
    uint64_t end_ms = ct_deadline_ms(ANSWER_MS);
    char who[CT_PEER_TEXT_MAX];
    int rc;

    while ((rc = ct_mesh_check(mesh, 0, err)) == 0 && !mesh->notes[member].has_left &&
           ct_left_ms(end_ms) > 0) {
        struct pollfd entry = {.fd = mesh->control[member], .events = POLLIN};
        (void)poll(&entry, 1, ct_left_ms(end_ms));
    }
    if (rc < 0)
        return rc;
    ct_peer_format(who, &mesh->peers[member]);
    return ct_fail(err, CTRUN_E_PEER_LOST, "%s %s", who,
                   mesh->notes[member].has_left ? "has left the group"
                                                : "closed its connection");
}

void ct_mesh_ask(struct ct_mesh *mesh)
{
    for (int i = 0; i < mesh->size; i++)
        send_awaited(mesh, i, NOTE_ASK);
}

/* At most as many steps as there are members: answers given at different times may form a cycle. */
int ct_mesh_find_silent(const struct ct_mesh *mesh)
{
    int member = mesh->awaited;

    for (int steps = 0; steps < mesh->size; steps++) {
        if (member < 0 || member >= mesh->size || member == mesh->me)
            return -1;
        if (!mesh->notes[member].has_answered)
            return member;
        member = mesh->notes[member].awaited;
    }
    return -1;
}
