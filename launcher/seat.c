/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static struct seat seat;
static bool has_channel;
static bool has_told;

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

/* Who started us may be killed together with its guard: then nobody else ends us. */
static void die_with_parent(void)
{
    char byte;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (recv(SEAT_CHANNEL, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        _exit(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
}

/* What made this run one of many hosts is told to us otherwise, and not meant for a ctrun that a
 * worker starts: that would go to all hosts again, from each rank, or have nobody to copy to. */
static void drop_env(void)
{
    static const char *const names[] = {SEAT_ENV, "CTRUN_HOSTS", "CTRUN_HOSTS_FILE",
                                        "CTRUN_CONFIG", "CTRUN_STAGE"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]); /* fails on bad names only */
}

bool seat_take_env(void)
{
    const char *text = getenv(SEAT_ENV);
    const char *field;
    size_t length;
    int type;
    socklen_t size = sizeof type;

    if (!text)
        return true;
    if (!take_number(&text, &seat.place) || !take_number(&text, &seat.total) ||
        !(field = ct_next_field(&text, '/', &length)) || !text ||
        ct_format(seat.endpoint, sizeof seat.endpoint, "%.*s", (int)length, field) <
            0 ||
        ct_copy(seat.run_id, sizeof seat.run_id, text) < 0)
        return false;
    seat.is_given = true;
    drop_env();
    has_channel = getsockopt(SEAT_CHANNEL, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                  type == SOCK_SEQPACKET &&
                  fcntl(SEAT_CHANNEL, F_SETFD, FD_CLOEXEC) == 0;
    if (has_channel)
        die_with_parent();
    return true;
}

void seat_set(const struct seat *given)
{
    seat = *given;
}

const struct seat *seat_get(void)
{
    return &seat;
}

bool seat_say(const char *text, size_t length)
{
    ssize_t n;

    if (!has_channel)
        return false;
    do
        n = send(SEAT_CHANNEL, text, length, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)length;
}

void seat_tell_started(void)
{
    if (!has_told)
        has_told = seat_say(SEAT_STARTED, 1);
}
