/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/rejects.h"

bool rejects_note(struct rejects *rejects, enum reject_kind kind, uint64_t now_ms,
                  uint64_t *more)
{
    rejects->kinds[kind].count++;
    return ct_seldom_is_due(&rejects->kinds[kind].lines, now_ms, more);
}

const char *reject_name(enum reject_kind kind)
{
    static const char *const names[] = {
        [REJECT_FOREIGN] = "foreign",     [REJECT_SLOW] = "slow",
        [REJECT_NO_MEMBER] = "no_member", [REJECT_EARLY] = "early",
        [REJECT_USER] = "other_user",     [REJECT_GONE] = "gone",
        [REJECT_MALFORMED] = "malformed", [REJECT_TOO_MANY] = "too_many",
        [REJECT_UNPROVEN] = "unproven",
    };

    return names[kind];
}

const char *reject_sentence(enum reject_kind kind)
{
    static const char *const sentences[] = {
        [REJECT_FOREIGN] = "it uses none of the protocols served here",
        [REJECT_SLOW] = "it sent no complete request in time",
        [REJECT_NO_MEMBER] =
            "it is not a node of this run; --store-access=any accepts it",
        [REJECT_EARLY] =
            ("it asks for PyTorch's store before the nodes of this run are known; a "
             "torchrun agent cannot be one of them: start ctrun on every node"),
        [REJECT_USER] =
            ("it is another user's process on this machine; --store-access=any accepts "
             "it"),
        [REJECT_GONE] = "it was closed before it identified itself",
        [REJECT_MALFORMED] = "it sent a malformed request",
        [REJECT_TOO_MANY] = "there are too many connections",
        [REJECT_UNPROVEN] = "it could not prove that it belongs to a run here",
    };

    return sentences[kind];
}
