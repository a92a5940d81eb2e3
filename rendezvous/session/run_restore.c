/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/run_restore.h"

#include <errno.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

int run_restore_all(struct runs *runs, struct journal_book *book)
{
    ct_list_for_each(struct journal_entry, entry, &book->entries, node) {
        const struct round *round = entry->round;
        struct run *run = run_open(runs, entry->id, entry->round, entry->heartbeat_ms);

        if (!run)
            return -ENOMEM;
        entry->round = NULL;
        run->mark.is_kept = true;
        run_arm_timer(run);
        ct_info("run restored run=%s state=%s generation=%llu members=%zu", run->id,
                round_state_name(round->state), (unsigned long long)round->generation,
                round->members.count);
    }
    if (book->has_past)
        runs->held_from_ms = ct_now_ms();
    if (book->last_id > runs->last_id)
        runs->last_id = book->last_id;
    return 0;
}
