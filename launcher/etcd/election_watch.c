/* SPDX-License-Identifier: Apache-2.0 */
/* Watching the elected server's key: until it is deleted, the watch is cut for good, or some time
 * has passed. */
#include "launcher/etcd/election_private.h"

static void emit_watch(const struct election *election, const char *what)
{
    ct_event_emit("election_watch", CT_STR("what", what),
                  CT_INT("revision", election->seen_revision + 1));
}

/* One answer of a watch. False: look again. */
static bool on_watched(void *context, const struct json_etcd_reply *reply)
{
    struct election *election = context;

    if (reply->code != 0 || reply->is_canceled) {
        ct_info("etcd: the watch ended, looking again: %s",
                reply->compact_revision ? "compacted" : reply->message);
        emit_watch(election, reply->compact_revision ? "compacted" : "canceled");
        election->seen_revision = 0;
        election_set_state(election, ELECTION_LOOKING, "watch canceled");
        return false;
    }
    election->is_silent = false;
    if (reply->is_created && election->reports_watch) {
        emit_watch(election, "began");
        election->reports_watch = false;
    }
    for (size_t i = 0; i < reply->count; i++) {
        const struct json_etcd_kv *kv = &reply->kvs[i];

        if (kv->mod_revision > election->seen_revision)
            election->seen_revision = kv->mod_revision;
        if (kv->is_deleted)
            election->sight.end_revision = kv->mod_revision;
        else
            election_see(&election->sight, kv->mod_revision, ct_now_ms());
        election_report_leader(election, kv->is_deleted ? NULL : kv);
        if (i + 1 == reply->count && kv->is_deleted) {
            election_set_state(election, ELECTION_LOOKING,
                               "no rendezvous server is elected");
            return false;
        }
    }
    return !election_is_stopping(election);
}

bool election_has_missed_end(const struct election *election)
{
    return election->options.ends_with_run && election->seen_revision != 0 &&
           election->sight.end_revision == 0;
}

void election_watch(struct election *election)
{
    struct ctrun_error err = {.text = "out of memory"};
    int cuts = 0;

    while (election->state == ELECTION_WATCHING && !election_is_stopping(election)) {
        int rc = json_etcd_watch(etcd_body(election->etcd), election->leader_key,
                                 election->seen_revision + 1);

        election->is_silent = true;
        if (rc == 0)
            rc = etcd_watch(election->etcd, ct_deadline_ms(election->ttl_ms / 2),
                            on_watched, election, &err);
        if (rc == 0 && election->is_silent) {
            emit_watch(election, "silent");
            election->reports_watch = true;
        }
        if (rc == -ECANCELED || rc == 0)
            break; /* to look again */
        ct_info("etcd: the watch was cut, resuming revision=%lld: %s",
                (long long)election->seen_revision + 1, err.text);
        emit_watch(election, "cut");
        election->reports_watch = true;
        if (++cuts > election->options.config->endpoint_count) {
            election_set_state(election, ELECTION_LOOKING,
                               "the watch failed on every member");
            election_log_down(election, "the watch failed on every member", &err);
        }
    }
}
