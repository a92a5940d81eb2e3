/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/stop_point.h"

#include "worker_sdk/base/str.h"

static void format(char value[CT_STOP_VALUE_MAX], const char *verb, uint64_t call)
{
    (void)ct_format(value, CT_STOP_VALUE_MAX, "%s %llu", verb,
                    (unsigned long long)call);
}

/* Chooses the call at which to read the key again: after as many calls as took
 * CT_STOP_LOOK_EVERY_MS, but at most twice as many as last time, because one fast step is no proof
 * of the pace. */
static uint64_t choose_next(const struct ct_stop_point *point, uint64_t now_ms)
{
    uint64_t calls = point->call - point->looked;
    uint64_t ms = now_ms - point->looked_ms;
    uint64_t span = ms ? calls * CT_STOP_LOOK_EVERY_MS / ms : 2 * calls;

    if (point->next == 0)
        return point->call + 1;
    if (span > 2 * calls)
        span = 2 * calls;
    return point->call + (span ? span : 1);
}

/* Adopts the value that another rank wrote. */
static int adopt(struct ct_stop_point *point, const char *value, const char *name,
                 struct ctrun_error *err)
{
    const bool is_stop = strncmp(value, "stop ", 5) == 0;
    uint64_t call;

    if ((!is_stop && strncmp(value, "go ", 3) != 0) ||
        ct_parse_u64(value + (is_stop ? 5 : 3), 1, UINT64_MAX, &call) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "agree on a step: the key of %s() in the store holds '%s', not "
                       "'go N' or 'stop N'; perhaps another program has set it",
                       name, value);
    if (call < point->call || call < point->next ||
        (call == point->next && !is_stop)) /* also if the store lost the key */
        return ct_fail(
            err, CTRUN_E_MISMATCH,
            "agree on a step: this rank is at call %llu of %s(), but the "
            "store still holds '%s'; perhaps the store has lost its keys, or "
            "a rank does not call it once a step",
            (unsigned long long)point->call, name, value);
    point->next = call;
    point->is_stop = is_stop;
    return 0;
}

int ct_stop_point_check(struct ct_stop_point *point, bool is_asked, uint64_t now_ms,
                        const struct ct_stop_key *key, struct ctrun_error *err)
{
    char expected[CT_STOP_VALUE_MAX] = "";
    char desired[CT_STOP_VALUE_MAX];
    char actual[CT_STOP_VALUE_MAX];
    bool has_looked = false;
    int rc;

    point->call++;
    while (!point->is_stop && (is_asked || point->call >= point->next)) {
        /* If no rank has read the key yet: stop at the current call. */
        const uint64_t stop = point->next ? point->next : point->call;
        const uint64_t next = is_asked ? stop : choose_next(point, now_ms);

        has_looked = true;
        if (point->next)
            format(expected, "go", point->next);
        format(desired, is_asked ? "stop" : "go", next);
        if ((rc = key->swap(key->context, expected, desired, actual, err)) < 0)
            return rc;
        if (strcmp(actual, desired) != 0) {
            if ((rc = adopt(point, actual, key->name, err)) < 0)
                return rc;
            continue;
        }
        point->next = next;
        point->is_stop = is_asked;
    }
    if (has_looked) {
        point->looked = point->call;
        point->looked_ms = now_ms;
    }
    return point->is_stop && point->call >= point->next;
}
