/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/strangers.h"

#include "rendezvous/limits.h"

bool strangers_note(struct strangers *strangers, enum stranger_kind kind,
                    uint64_t now_ms, uint64_t *more)
{
    const uint64_t told_ms = strangers->kinds[kind].told_ms;

    strangers->kinds[kind].count++;
    if (told_ms != 0 && now_ms - told_ms < STRANGERS_SAY_EVERY_MS) {
        strangers->kinds[kind].untold++;
        return false;
    }
    *more = strangers->kinds[kind].untold;
    strangers->kinds[kind].untold = 0;
    strangers->kinds[kind].told_ms = now_ms ? now_ms : 1;
    return true;
}

const char *stranger_name(enum stranger_kind kind)
{
    static const char *const names[] = {
        [STRANGER_FOREIGN] = "foreign",     [STRANGER_SLOW] = "slow",
        [STRANGER_NO_MEMBER] = "no_member", [STRANGER_MALFORMED] = "malformed",
        [STRANGER_TOO_MANY] = "too_many",   [STRANGER_UNPROVEN] = "unproven",
    };

    return names[kind];
}

const char *stranger_sentence(enum stranger_kind kind)
{
    static const char *const sentences[] = {
        [STRANGER_FOREIGN] = "it speaks none of our protocols",
        [STRANGER_SLOW] = "it did not say in time what it wants",
        [STRANGER_NO_MEMBER] =
            "it is no node of this run; --store-access=any lets it in",
        [STRANGER_MALFORMED] = "it sent what no client of ours sends",
        [STRANGER_TOO_MANY] = "there are too many connections",
        [STRANGER_UNPROVEN] = "it could not prove that it belongs here",
    };

    return sentences[kind];
}
