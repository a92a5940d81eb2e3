/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_machine.h"

#include <stddef.h>

/* ---- Conditions ---------------------------------------------------------------------- */

static bool has_enough(const struct ha_facts *f)
{
    return f->may_try && f->idle >= f->wanted;
}

static bool all_run(const struct ha_facts *f)
{
    return f->voters > 0 && f->running == f->voters;
}

static bool goes_wrong(const struct ha_facts *f)
{
    return f->outcome == HA_FAILED || f->lost > 0 || f->is_late;
}

static bool is_done(const struct ha_facts *f)
{
    return f->outcome == HA_DONE;
}

static bool has_failed(const struct ha_facts *f)
{
    return f->outcome == HA_FAILED;
}

static bool all_follow(const struct ha_facts *f)
{
    return f->nodes > 0 && f->following == f->nodes;
}

static bool learner_runs(const struct ha_facts *f)
{
    return f->learner == HA_LEARNER_RUNS && f->may_try;
}

static bool learner_is_lost(const struct ha_facts *f)
{
    return f->learner == HA_LEARNER_LOST || f->is_late;
}

static bool old_learner_is_lost(const struct ha_facts *f)
{
    return f->learner == HA_LEARNER_LOST && f->may_try;
}

static bool learner_starts(const struct ha_facts *f)
{
    return f->learner == HA_LEARNER_STARTS;
}

/* Without a node to take its place a lost member stays: it may come back. */
static bool is_replaceable(const struct ha_facts *f)
{
    return f->lost > 0 && f->idle > 0 && f->learner == HA_NO_LEARNER && f->may_try;
}

static bool is_short(const struct ha_facts *f)
{
    return f->voters < f->wanted && f->lost == 0 && f->idle > 0 &&
           f->learner == HA_NO_LEARNER && f->may_try;
}

static bool always(const struct ha_facts *f)
{
    (void)f;
    return true;
}

/* ---- The table ----------------------------------------------------------------------- */

static const struct row {
    enum ha_state state;
    bool (*when)(const struct ha_facts *facts);
    enum ha_state next;
    enum ha_action action;
} table[] = {
    {HA_WAITING, has_enough, HA_STARTING, HA_DO_PLAN},
    {HA_STARTING, goes_wrong, HA_WAITING, HA_DO_DROP},
    {HA_STARTING, all_run, HA_SECURING, HA_DO_SECURE},
    {HA_SECURING, goes_wrong, HA_WAITING, HA_DO_DROP},
    {HA_SECURING, is_done, HA_MOVING, HA_DO_MOVE},
    {HA_MOVING, is_done, HA_SENDING, HA_DO_SEND}, /* first: it cannot be undone */
    {HA_MOVING, goes_wrong, HA_WAITING, HA_DO_DROP},
    {HA_SENDING, all_follow, HA_ACTIVE, HA_DO_SEND},
    {HA_SENDING, is_replaceable, HA_REMOVING, HA_DO_REMOVE},
    {HA_ACTIVE, learner_runs, HA_PROMOTING, HA_DO_PROMOTE},
    {HA_ACTIVE, old_learner_is_lost, HA_REMOVING, HA_DO_REMOVE},
    {HA_ACTIVE, learner_starts, HA_LEARNING, HA_DO_SEND},
    {HA_ACTIVE, is_replaceable, HA_REMOVING, HA_DO_REMOVE},
    {HA_ACTIVE, is_short, HA_ADDING, HA_DO_ADD},
    {HA_REMOVING, is_done, HA_ACTIVE, HA_DO_SEND},
    {HA_REMOVING, always, HA_ACTIVE, HA_DO_NOTHING},
    {HA_ADDING, is_done, HA_LEARNING, HA_DO_SEND},
    {HA_ADDING, always, HA_ACTIVE, HA_DO_NOTHING},
    {HA_LEARNING, learner_runs, HA_PROMOTING, HA_DO_PROMOTE},
    {HA_LEARNING, learner_is_lost, HA_REMOVING, HA_DO_REMOVE},
    {HA_PROMOTING, is_done, HA_ACTIVE, HA_DO_SEND},
    {HA_PROMOTING, has_failed, HA_LEARNING, HA_DO_NOTHING}, /* it is still copying */
};

enum ha_action ha_step(enum ha_state *state, const struct ha_facts *facts)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct row *row = &table[i];

        if (row->state != *state || !row->when(facts))
            continue;
        *state = row->next;
        return row->action;
    }
    return HA_DO_NOTHING;
}

int ha_survives(enum ha_state state, const struct ha_facts *facts)
{
    const int spare = facts->running - (facts->voters / 2 + 1);

    return state >= HA_ACTIVE && all_follow(facts) && spare > 0 ? spare : 0;
}

const char *ha_state_name(enum ha_state state)
{
    static const char *const names[HA_STATES] = {
        "waiting", "starting", "securing", "moving",   "sending",
        "active",  "removing", "adding",   "learning", "promoting"};

    return names[state];
}
