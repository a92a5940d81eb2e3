/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an election and who is elected: logged, and reported to its user. */
#include <string.h>

#include "launcher/etcd/election_private.h"
#include "worker_sdk/base/cond.h"

static const char *const state_names[] = {"looking", "watching", "leading"};

void election_set_state(struct election *election, enum election_state state,
                        const char *why)
{
    if (election->state == state)
        return;
    ct_info("etcd: %s -> %s (%s) run=%s", state_names[election->state],
            state_names[state], why, election->options.run_id);
    ct_event_emit("election", CT_STR("from", state_names[election->state]),
                  CT_STR("to", state_names[state]), CT_STR("why", why),
                  CT_INT("term", election->term));
    election->state = state;
    election->reports_watch = true;
}

bool election_is_stopping(struct election *election)
{
    return atomic_load(&election->is_stopping);
}

/* ---- Waiting ------------------------------------------------------------------------- */

/* Until the time, a write, or the end. */
void election_sleep(struct election *election, uint64_t until_ms, bool wants_writes)
{
    pthread_mutex_lock(&election->mutex);
    while (!election_is_stopping(election) && ct_left_ms(until_ms) > 0 &&
           !(wants_writes && election->journal &&
             election->sequence > election->written) &&
           !(wants_writes && election->is_hurried))
        (void)ct_cond_wait(&election->changed, &election->mutex, until_ms);
    pthread_mutex_unlock(&election->mutex);
}

void election_log_down(struct election *election, const char *what,
                       const struct ctrun_error *why)
{
    ct_log(election->is_unwell ? CTRUN_LOG_DEBUG : CTRUN_LOG_WARN, "etcd: %s: %s", what,
           why->text);
    election->is_unwell = true;
    election_sleep(election, ct_deadline_ms(ELECTION_PAUSE_MS), false);
}

void election_log_up(struct election *election)
{
    if (election->is_unwell)
        ct_warn("etcd: the election works again");
    election->is_unwell = false;
}

/* ---- Who is elected ------------------------------------------------------------------ */

void election_report_leader(struct election *election, const struct json_etcd_kv *kv)
{
    const char *text = kv ? (const char *)kv->value : "";
    struct server_record leader = {0};

    if (kv && kv->lease != 0)
        election->leader_lease = kv->lease;
    if (strncmp(text, election->leader, sizeof election->leader - 1) == 0)
        return;
    if (kv && server_record_parse(&leader, text, kv->length) < 0)
        ct_warn("etcd: %s does not hold the address of a rendezvous server",
                election->leader_key);
    else if (kv)
        ct_info("etcd: the rendezvous is on host=%s run=%s", leader.name,
                election->options.run_id);
    (void)ct_copy(election->leader, sizeof election->leader, text); /* cut: nobody's */
    election->options.on_leader(election->options.context, &leader);
}
