/* SPDX-License-Identifier: Apache-2.0 */
/* A node whose worker failed first in two rounds in a row makes room for a spare: the machine may
 * be broken. Without a spare the node stays. The node of the rendezvous server stays too: its end
 * would end the run. An excluded node is refused when it joins again, and its launcher ends.
 *
 * A node whose failures report broken hardware is excluded after `exclude_after` of them, with or
 * without a spare, if at least min nodes are left; later agents of that host are refused, too. */
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/str.h"

static struct member *find_culprit(const struct round *round,
                                   const struct ct_failure *failure)
{
    member_for_each(member, &round->members) {
        if (member->start.generation == round->generation && failure->node_rank >= 0 &&
            member->start.group_rank == (uint32_t)failure->node_rank)
            return member;
    }
    return NULL;
}

/* A spare: READY, and not one of this world that is already back. */
static bool has_spare(const struct round *round)
{
    member_for_each(member, &round->members) {
        if (member->state == MEMBER_READY &&
            member->start.generation != round->generation)
            return true;
    }
    return false;
}

bool round_exclude(struct round *round, const struct ct_failure *failure)
{
    struct member *culprit = find_culprit(round, failure);
    bool is_again;

    round->culprit_is_kept = false;
    if (!culprit || ct_failure_is_victim(failure))
        return false; /* the failing node is not known to be the cause */
    is_again = round->culprit_id == culprit->link.id;
    round->culprit_id = culprit->link.id;
    if (!is_again || !has_spare(round))
        return false;
    round->culprit_is_kept = culprit->link.serves;
    if (culprit->link.serves)
        return false;
    culprit->is_excluded = true;
    round_note(round, culprit);
    return true;
}

/* ---- Broken hardware ---- */

const char round_broken_text[] =
    "the hardware of this node failed as often as --exclude-node-after allows; the "
    "reports of its failures have the evidence";

static struct round_fault *find_fault(struct round *round, const char *host)
{
    struct round_fault *free_one = NULL;

    for (int i = 0; i < ROUND_FAULTS_MAX; i++) {
        struct round_fault *fault = &round->faults[i];

        if (fault->count > 0 && strcmp(fault->host, host) == 0)
            return fault;
        if (fault->count == 0 && !free_one)
            free_one = fault;
    }
    if (free_one)
        (void)ct_copy(free_one->host, sizeof free_one->host, host); /* same size */
    return free_one;
}

/* True if one of the agents of this host has the rendezvous server: a host may have several
 * agents. */
static bool serves(const struct round *round, const char *host)
{
    member_for_each(member, &round->members)
        if (member->link.serves && strcmp(member->link.host, host) == 0)
            return true;
    return false;
}

/* The number of nodes for the next world without that host: members of this world and spares. */
static size_t count_others(const struct round *round, const char *host)
{
    size_t count = 0;

    member_for_each(member, &round->members) {
        count += strcmp(member->link.host, host) != 0 && !member->is_excluded &&
                 member->state != MEMBER_LEAVING && member->state != MEMBER_LEFT &&
                 (member->start.generation == round->generation ||
                  member->state == MEMBER_READY);
    }
    return count;
}

bool round_exclude_broken(struct round *round, const struct ct_failure *failure)
{
    struct member *culprit = find_culprit(round, failure);
    struct round_fault *fault;

    round->broken_fate = CT_CULPRIT_NONE;
    if (!culprit || round->settings.exclude_after == 0 ||
        !ct_facts_find(&failure->facts, CT_FACT_HARDWARE) ||
        !(fault = find_fault(round, culprit->link.host)) ||
        ++fault->count < round->settings.exclude_after)
        return false;
    round->culprit_id = culprit->link.id;
    round->broken_fate = serves(round, fault->host) ? CT_CULPRIT_BROKEN_KEPT
                         : round_world_size(round, count_others(round, fault->host)) ==
                                 0
                             ? CT_CULPRIT_BROKEN_NEEDED
                             : CT_CULPRIT_BROKEN;
    if (round->broken_fate != CT_CULPRIT_BROKEN)
        return false;
    fault->is_out = true;
    culprit->is_excluded = true;
    round_note(round, culprit);
    return true;
}

bool round_is_broken_host(const struct round *round, const char *host)
{
    for (int i = 0; i < ROUND_FAULTS_MAX; i++)
        if (round->faults[i].is_out && strcmp(round->faults[i].host, host) == 0)
            return true;
    return false;
}

struct member *round_find_excluded(const struct round *round)
{
    member_for_each(it, &round->members)
        if (it->is_excluded)
            return it;
    return NULL;
}

static const struct member *find_kept(const struct round *round)
{
    return round->culprit_is_kept || round->broken_fate
               ? member_find(&round->members, round->culprit_id)
               : NULL;
}

void round_fill_excluded(const struct round *round, struct ct_stop *stop)
{
    const struct member *excluded = round_find_excluded(round),
                        *kept = find_kept(round);
    const struct member *culprit = excluded ? excluded : kept;

    if (!culprit)
        return;
    stop->culprit_fate = round->broken_fate ? round->broken_fate
                         : excluded         ? CT_CULPRIT_EXCLUDED
                                            : CT_CULPRIT_KEPT;
    (void)ct_copy(stop->culprit, sizeof stop->culprit,
                  culprit->link.host); /* same size */
}
