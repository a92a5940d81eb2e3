/* SPDX-License-Identifier: Apache-2.0 */
/* Every node of a run tells the first cause, a restart, its end. Of equal words only the first
 * are shown: those of the host that says them first, or once more than any other. */

#include "launcher/ssh/ssh_console.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

enum {
    ECHOES = 64 /* different messages that are remembered; then the oldest goes */
};

struct echo {
    uint64_t hash;
    uint32_t shown;
    uint16_t *said; /* by host */
};

struct ssh_message_dedup {
    uint32_t hosts;
    size_t next;
    struct echo list[ECHOES];
};

struct ssh_message_dedup *ssh_message_dedup_create(uint32_t hosts)
{
    struct ssh_message_dedup *echo = ct_zalloc(sizeof *echo);

    if (echo)
        echo->hosts = hosts;
    return echo;
}

void ssh_message_dedup_destroy(struct ssh_message_dedup *echo)
{
    for (size_t i = 0; echo && i < ECHOES; i++)
        free(echo->list[i].said);
    free(echo);
}

static size_t ends_at(const char *text, size_t length)
{
    const char *end = length > 0 ? memchr(text, '\n', length) : NULL;

    return end ? (size_t)(end - text) : length;
}

bool ssh_message_dedup_is_new(struct ssh_message_dedup *echo, uint32_t place,
                              const char *text, size_t length)
{
    const uint64_t hash = ct_hash(text, ends_at(text, length));
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
