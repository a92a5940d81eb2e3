/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/net/dns_retry.h"

#include <time.h>

#include "launcher/report/messages.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    PAUSE_FIRST_MS = 200,
    PAUSE_MAX_MS = 1000,
    NOTICE_FIRST_MS =
        2000, /* then at twice the time, and so on, but every ten seconds */
    NOTICE_EVERY_MS = 10000,
};

/* "files dns" of the line "hosts: files dns"; "?" when there is none. */
static void read_sources(char *dst, size_t size)
{
    FILE *file = fopen("/etc/nsswitch.conf", "re");
    char line[512];

    (void)ct_copy(dst, size, "?");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = line + strspn(line, " \t");

        if (!ct_starts_with(at, "hosts:"))
            continue;
        at += strlen("hosts:");
        at += strspn(at, " \t");
        (void)ct_format(dst, size, "%.*s", (int)strcspn(at, "#\n"),
                        at); /* cut is fine */
        break;
    }
    if (file)
        (void)fclose(file); /* only read */
}

static void print_notice(const char *name, uint64_t waited_ms)
{
    char sources[128];

    read_sources(sources, sizeof sources);
    messages_notice("waiting for DNS: '%s' not found (nsswitch: %s), %llu s", name,
                    sources, (unsigned long long)(waited_ms / 1000));
}

static void pause_for(uint64_t ms)
{
    const struct timespec pause = {.tv_sec = (time_t)(ms / 1000),
                                   .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL); /* a signal only shortens the pause */
}

int dns_retry_resolve(const struct ct_endpoint *endpoint, uint64_t timeout_ms,
                      struct ct_addr *out, int max, struct ctrun_error *err)
{
    const uint64_t begin_ms = ct_now_ms();
    const uint64_t deadline_ms = ct_deadline_ms(timeout_ms);
    uint64_t notice_ms = NOTICE_FIRST_MS;
    uint64_t pause_ms = PAUSE_FIRST_MS;
    int count;

    while ((count = ct_addr_resolve(endpoint->host, endpoint->port, out, max, err)) ==
           CTRUN_E_DNS) {
        const uint64_t waited_ms = ct_now_ms() - begin_ms;
        const uint64_t left_ms = (uint64_t)ct_left_ms(deadline_ms);

        if (left_ms == 0)
            break;
        if (waited_ms >= notice_ms) {
            print_notice(endpoint->host, waited_ms);
            notice_ms = notice_ms < NOTICE_EVERY_MS / 2 ? notice_ms * 2
                                                        : waited_ms + NOTICE_EVERY_MS;
        }
        pause_for(pause_ms < left_ms ? pause_ms : left_ms);
        pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
    }
    return count;
}
