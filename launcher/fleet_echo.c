/* SPDX-License-Identifier: Apache-2.0 */
/* Every node of a run tells the first cause, a restart, its end. Of equal words only the first
 * are shown: those of the host that says them first, or once more than any other. */

#include "launcher/fleet_screen.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    ECHOES = 64 /* different messages that are remembered; then the oldest goes */
};

struct echo {
    uint64_t hash;
    uint32_t shown;
    uint16_t *said; /* by host */
};

struct fleet_echo {
    uint32_t hosts;
    size_t next;
    struct echo list[ECHOES];
};

struct fleet_echo *fleet_echo_create(uint32_t hosts)
{
    struct fleet_echo *echo = ct_zalloc(sizeof *echo);

    if (echo)
        echo->hosts = hosts;
    return echo;
}

void fleet_echo_destroy(struct fleet_echo *echo)
{
    for (size_t i = 0; echo && i < ECHOES; i++)
        free(echo->list[i].said);
    free(echo);
}

/* FNV-1a. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < length && text[i] != '\n'; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}

bool fleet_echo_is_new(struct fleet_echo *echo, uint32_t place, const char *text,
                       size_t length)
{
    const uint64_t hash = hash_of(text, length);
    struct echo *found = NULL;

    for (size_t i = 0; i < ECHOES && !found; i++)
        if (echo->list[i].said && echo->list[i].hash == hash)
            found = &echo->list[i];
    if (!found) {
        found = &echo->list[echo->next++ % ECHOES];
        free(found->said);
        *found = (struct echo){
            .hash = hash, .said = ct_zalloc_array(echo->hosts, sizeof *found->said)};
    }
    if (!found->said)
        return true; /* out of memory: better twice than never */
    if (found->said[place] < UINT16_MAX)
        found->said[place]++;
    if (found->said[place] <= found->shown)
        return false;
    found->shown = found->said[place];
    return true;
}
