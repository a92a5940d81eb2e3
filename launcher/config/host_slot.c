/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/host_slot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static struct host_slot slot;
static bool has_channel;
static bool has_reported;

static bool take_number(const char **at, int *out)
{
    char text[16];
    size_t length;
    uint64_t value;
    const char *field = ct_next_field(at, '/', &length);

    if (!field || ct_format(text, sizeof text, "%.*s", (int)length, field) < 0 ||
        ct_parse_u64(text, 0, 1 << 20, &value) < 0)
        return false;
    *out = (int)value;
    return true;
}

/* The parent may be killed together with its guard: then no other process ends this one. */
static void die_with_parent(void)
{
    char byte;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (recv(HOST_SLOT_CHANNEL, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        _exit(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
}

/* Variables that made this run one of many hosts are removed: this process gets its place in another
 * way, and a ctrun that a worker starts would start on all hosts again, from each rank. */
static void drop_env(void)
{
    static const char *const names[] = {HOST_SLOT_ENV, "CTRUN_HOSTS",
                                        "CTRUN_HOSTS_FILE", "CTRUN_CONFIG",
                                        "CTRUN_STAGE"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]); /* fails on bad names only */
}

bool host_slot_take_env(void)
{
    const char *text = getenv(HOST_SLOT_ENV);
    const char *field;
    size_t length;
    int type;
    socklen_t size = sizeof type;

    if (!text)
        return true;
    if (!take_number(&text, &slot.place) || !take_number(&text, &slot.total) ||
        !(field = ct_next_field(&text, '/', &length)) || !text ||
        ct_format(slot.endpoint, sizeof slot.endpoint, "%.*s", (int)length, field) <
            0 ||
        ct_copy(slot.run_id, sizeof slot.run_id, text) < 0)
        return false;
    slot.is_given = true;
    drop_env();
    has_channel = getsockopt(HOST_SLOT_CHANNEL, SOL_SOCKET, SO_TYPE, &type, &size) ==
                      0 &&
                  type == SOCK_SEQPACKET &&
                  fcntl(HOST_SLOT_CHANNEL, F_SETFD, FD_CLOEXEC) == 0;
    if (has_channel)
        die_with_parent();
    return true;
}

void host_slot_set(const struct host_slot *given)
{
    slot = *given;
}

const struct host_slot *host_slot_get(void)
{
    return &slot;
}

static bool send_record(const char *head, size_t head_length, const char *text,
                        size_t length)
{
    struct iovec parts[] = {{(void *)(uintptr_t)head, head_length},
                            {(void *)(uintptr_t)text, length}};
    const struct msghdr record = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n;

    if (!has_channel)
        return false;
    do
        n = sendmsg(HOST_SLOT_CHANNEL, &record, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)(head_length + length);
}

bool host_slot_send_line(enum messages_level level, const char *text, size_t length)
{
    const char head[HOST_SLOT_WORDS_HEAD_BYTES] = {HOST_SLOT_WORDS, (char)level};

    return send_record(head, sizeof head, text, length);
}

void host_slot_send_started(void)
{
    if (!has_reported)
        has_reported = send_record(&(char){HOST_SLOT_STARTED}, 1, NULL, 0);
}

/* For these two a failure does not matter: without a reader nobody needs them. */
void host_slot_send_saving(uint64_t limit_ms)
{
    char seconds[24];

    (void)ct_format(seconds, sizeof seconds, "%" PRIu64, limit_ms / 1000 + 1);
    (void)send_record(&(char){HOST_SLOT_SAVING}, 1, seconds, strlen(seconds));
}

void host_slot_send_verdict(bool has_flaw)
{
    (void)send_record(&(char){has_flaw ? HOST_SLOT_FLAW : HOST_SLOT_VERDICT}, 1, NULL,
                      0);
}
