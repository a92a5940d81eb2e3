/* SPDX-License-Identifier: Apache-2.0 */
/* Every node of a run prints the first cause, a restart and its end. Of equal messages only one is
 * shown: the first one; and again when a host sends it once more than it was shown. */

#include "launcher/ssh/ssh_console.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

enum {
    LINES_MAX = 64 /* remembered messages; a new one replaces the oldest */
};

struct message {
    uint64_t hash;
    uint32_t shown;
    uint16_t *counts; /* how often each host has sent it */
};

struct ssh_message_dedup {
    uint32_t hosts;
    size_t next;
    struct message list[LINES_MAX];
};

struct ssh_message_dedup *ssh_message_dedup_create(uint32_t hosts)
{
    struct ssh_message_dedup *dedup = ct_zalloc(sizeof *dedup);

    if (dedup)
        dedup->hosts = hosts;
    return dedup;
}

void ssh_message_dedup_destroy(struct ssh_message_dedup *dedup)
{
    for (size_t i = 0; dedup && i < LINES_MAX; i++)
        free(dedup->list[i].counts);
    free(dedup);
}

static size_t ends_at(const char *text, size_t length)
{
    const char *end = length > 0 ? memchr(text, '\n', length) : NULL;

    return end ? (size_t)(end - text) : length;
}

bool ssh_message_dedup_is_new(struct ssh_message_dedup *dedup, uint32_t place,
                              const char *text, size_t length)
{
    const uint64_t hash = ct_hash(text, ends_at(text, length));
    struct message *found = NULL;

    for (size_t i = 0; i < LINES_MAX && !found; i++)
        if (dedup->list[i].counts && dedup->list[i].hash == hash)
            found = &dedup->list[i];
    if (!found) {
        found = &dedup->list[dedup->next++ % LINES_MAX];
        free(found->counts);
        *found = (struct message){
            .hash = hash,
            .counts = ct_zalloc_array(dedup->hosts, sizeof *found->counts)};
    }
    if (!found->counts)
        return true; /* out of memory: print it */
    if (found->counts[place] < UINT16_MAX)
        found->counts[place]++;
    if (found->counts[place] <= found->shown)
        return false;
    found->shown = found->counts[place];
    return true;
}
