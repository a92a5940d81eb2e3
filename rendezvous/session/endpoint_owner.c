/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/endpoint_owner.h"

#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* "5 s", "12 min", "3 h" */
static void format_age(char *dst, size_t size, uint64_t age_ms)
{
    const unsigned long long seconds = age_ms / 1000;

    if (seconds < 120)
        (void)ct_format(dst, size, "%llu s", seconds);
    else if (seconds < 7200)
        (void)ct_format(dst, size, "%llu min", seconds / 60);
    else
        (void)ct_format(dst, size, "%llu h", seconds / 3600);
}

/* The user of this server's process: the server of one run is a part of its launcher. The name in
 * the user database would be better, but a lookup may block. */
void endpoint_owner_format(char *dst, size_t size)
{
    const char *name = getenv("USER");

    if (name && *name)
        (void)ct_format(dst, size, " of user %s", name); /* cut is fine */
    else
        (void)ct_format(dst, size, " of uid %u", (unsigned)getuid());
}

void endpoint_owner_format_job(const struct run *run, char *dst, size_t size)
{
    const struct round *round = run ? run->round : NULL;
    uint32_t joined = 0;
    char age[32];

    dst[0] = '\0';
    if (!run)
        return;
    member_for_each(member, &round->members)
        joined += member_is_in_world(member) || member->state == MEMBER_READY;
    format_age(age, sizeof age, ct_now_ms() - run->born_ms);
    (void)ct_format(dst, size, " (%u/%u nodes, up %s)", joined,
                    round->settings.max_nodes, age);
}
