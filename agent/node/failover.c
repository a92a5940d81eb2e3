/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/failover.h"

#include <assert.h>

#include "agent/loop/limits.h"

static const char *const state_names[FAILOVER_STATES] = {
    "first", "linked", "resuming", "seeking", "found", "fencing", "returning", "over"};

#define BIT(value) (1u << (FAILOVER_##value))

static const unsigned edges[FAILOVER_STATES] = {
    [FAILOVER_FIRST] = BIT(LINKED) | BIT(OVER),
    [FAILOVER_LINKED] = BIT(RESUMING) | BIT(SEEKING) | BIT(FENCING) | BIT(RETURNING) |
                        BIT(OVER),
    [FAILOVER_RESUMING] = BIT(LINKED) | BIT(SEEKING) | BIT(FENCING) | BIT(RETURNING) |
                          BIT(OVER),
    [FAILOVER_SEEKING] = BIT(LINKED) | BIT(FOUND) | BIT(FENCING) | BIT(OVER),
    [FAILOVER_FOUND] = BIT(LINKED) | BIT(SEEKING) | BIT(FENCING) | BIT(OVER),
    [FAILOVER_FENCING] = BIT(RETURNING) | BIT(OVER),
    [FAILOVER_RETURNING] = BIT(LINKED) | BIT(OVER),
    [FAILOVER_OVER] = 0,
};

/* A link that has gone down reports nothing before it is told to connect. A link that resumes may
 * break again before it has resumed. */
static const unsigned events[FAILOVER_STATES] = {
    [FAILOVER_FIRST] = BIT(WELCOMED) | BIT(LOST) | BIT(REFUSED) | BIT(ENDED),
    [FAILOVER_LINKED] = BIT(BROKE) | BIT(LOST) | BIT(REFUSED) | BIT(GONE) | BIT(ENDED),
    [FAILOVER_RESUMING] = BIT(BROKE) | BIT(RESUMED) | BIT(LOST) | BIT(REFUSED) |
                          BIT(GONE) | BIT(ENDED),
    [FAILOVER_SEEKING] = BIT(WELCOMED) | BIT(BROKE) | BIT(RESUMED) | BIT(LOST) |
                         BIT(REFUSED) | BIT(GONE) | BIT(ENDED),
    [FAILOVER_FOUND] = BIT(WELCOMED) | BIT(BROKE) | BIT(RESUMED) | BIT(LOST) |
                       BIT(REFUSED) | BIT(GONE) | BIT(ENDED),
    [FAILOVER_FENCING] = BIT(GONE) | BIT(ENDED),
    [FAILOVER_RETURNING] = BIT(WELCOMED) | BIT(LOST) | BIT(REFUSED) | BIT(ENDED),
    [FAILOVER_OVER] = BIT(WELCOMED) | BIT(BROKE) | BIT(RESUMED) | BIT(LOST) |
                      BIT(REFUSED) | BIT(GONE) | BIT(ENDED), /* none matters */
};

static const unsigned works[FAILOVER_STATES] = {
    [FAILOVER_FIRST] = BIT(NO_WORK),
    [FAILOVER_LINKED] = BIT(WAITS) | BIT(RUNS) | BIT(ENDS) | BIT(CLEANS) | BIT(LEAVES) |
                        BIT(IS_EMPTY) | BIT(IS_DONE),
    [FAILOVER_RESUMING] = BIT(WAITS) | BIT(RUNS) | BIT(ENDS) | BIT(CLEANS) |
                          BIT(LEAVES) | BIT(IS_EMPTY) | BIT(IS_DONE),
    [FAILOVER_SEEKING] = BIT(WAITS) | BIT(ENDS) | BIT(CLEANS) | BIT(LEAVES) |
                         BIT(IS_EMPTY) | BIT(IS_DONE),
    [FAILOVER_FOUND] = BIT(ENDS) | BIT(CLEANS) | BIT(LEAVES),
    [FAILOVER_FENCING] = BIT(FENCES) | BIT(LEAVES),
    [FAILOVER_RETURNING] = BIT(NO_WORK),
};

const char *failover_state_name(enum failover_state state)
{
    return state_names[state];
}

/* While this is true this node joins no other world. */
static bool has_live_workers(enum failover_work work)
{
    return work == FAILOVER_RUNS || work == FAILOVER_ENDS || work == FAILOVER_CLEANS ||
           work == FAILOVER_FENCES || work == FAILOVER_LEAVES;
}

bool failover_is_drawn(enum failover_state state, enum failover_event event,
                       enum failover_work work)
{
    if (!(events[state] & 1u << event))
        return false;
    return state == FAILOVER_OVER || event == FAILOVER_ENDED ||
           (works[state] & 1u << work &&
            (event != FAILOVER_GONE || has_live_workers(work)));
}

bool failover_is_edge(enum failover_state from, enum failover_state to)
{
    return edges[from] & 1u << to;
}

static void change(struct failover *failover, enum failover_state to)
{
    if (failover->state == to)
        return;
    assert(failover_is_edge(failover->state, to));
    failover->state = to;
}

uint64_t failover_left_ms(const struct failover *failover, uint64_t now_ms)
{
    return failover->seek_deadline_ms > now_ms ? failover->seek_deadline_ms - now_ms
                                               : 0;
}

bool failover_has_sought(const struct failover *failover)
{
    return failover->seek_deadline_ms != 0;
}

/* Only a node that was a member looks for the next server, and only as long as it stays a member.
 * The deadline is set once: further breaks do not move it, and a welcome clears it. */
static bool may_seek(struct failover *failover, const struct failover_facts *facts)
{
    if (facts->seek_ms == 0 || facts->work == FAILOVER_NO_WORK ||
        facts->work == FAILOVER_LEAVES || facts->work == FAILOVER_IS_OVER)
        return false;
    if (failover->seek_deadline_ms == 0)
        failover->seek_deadline_ms = facts->now_ms + facts->seek_ms;
    return failover_left_ms(failover, facts->now_ms) > 0;
}

/* A server without elected successors comes back, or none does. If the server is elected, SEEKING
 * has already looked for the next one long enough. */
static unsigned lose(struct failover *failover, enum failover_event event,
                     enum failover_work work)
{
    switch (work) {
    case FAILOVER_RUNS:
    case FAILOVER_ENDS:
    case FAILOVER_CLEANS: change(failover, FAILOVER_FENCING); return FAILOVER_FENCE;
    case FAILOVER_WAITS:
        if (event != FAILOVER_LOST || failover->state == FAILOVER_SEEKING)
            break;
        change(failover, FAILOVER_RETURNING);
        return FAILOVER_CONNECT;
    case FAILOVER_IS_EMPTY:
        if (failover->state == FAILOVER_SEEKING)
            break;
        change(failover, FAILOVER_RETURNING);
        return FAILOVER_CONNECT;
    case FAILOVER_FENCES: change(failover, FAILOVER_FENCING); return 0;
    case FAILOVER_LEAVES:
    case FAILOVER_IS_OVER: change(failover, FAILOVER_OVER); return 0;
    case FAILOVER_NO_WORK:
    case FAILOVER_IS_DONE:
    case FAILOVER_WORKS: break;
    }
    change(failover, FAILOVER_OVER);
    return FAILOVER_FAIL;
}

static unsigned on_down(struct failover *failover, enum failover_event event,
                        const struct failover_facts *facts)
{
    if (event != FAILOVER_LOST || !may_seek(failover, facts))
        return lose(failover, event, facts->work);
    if (failover->state != FAILOVER_FOUND) /* the next server does not know us either */
        change(failover, FAILOVER_SEEKING);
    failover->is_cut = true;
    return facts->work == FAILOVER_RUNS || facts->work == FAILOVER_ENDS
               ? FAILOVER_SEEK | FAILOVER_END_WORKERS
               : FAILOVER_SEEK;
}

static unsigned on_welcomed(struct failover *failover, enum failover_work work)
{
    failover->seek_deadline_ms = 0;
    failover->is_cut = false;
    change(failover, has_live_workers(work) ? FAILOVER_FOUND : FAILOVER_LINKED);
    return has_live_workers(work) ? 0 : FAILOVER_JOIN;
}

static unsigned on_resumed(struct failover *failover)
{
    failover->seek_deadline_ms = 0;
    failover->is_cut = false;
    if (failover->state != FAILOVER_FOUND)
        change(failover, FAILOVER_LINKED);
    return FAILOVER_SEND_AGAIN;
}

static unsigned on_gone(struct failover *failover, enum failover_work work)
{
    if (work == FAILOVER_LEAVES) {
        change(failover, FAILOVER_OVER);
    } else if (failover->state == FAILOVER_FENCING) {
        const bool has_sought = failover_has_sought(failover);

        change(failover, has_sought ? FAILOVER_OVER : FAILOVER_RETURNING);
        return has_sought ? FAILOVER_FAIL : FAILOVER_CONNECT;
    } else if (failover->state == FAILOVER_FOUND) {
        change(failover, failover->is_cut ? FAILOVER_SEEKING : FAILOVER_LINKED);
        return FAILOVER_JOIN; /* sent again when the connection is there */
    }
    return 0;
}

/* A transition that is not drawn must not happen: a debug build stops there, and so does the
 * simulation; a release build ignores it. */
unsigned failover_next(struct failover *failover, enum failover_event event,
                       const struct failover_facts *facts)
{
    const bool is_drawn = failover_is_drawn(failover->state, event, facts->work);

    assert(is_drawn);
    if (failover->state == FAILOVER_OVER || !is_drawn)
        return 0;
    switch (event) {
    case FAILOVER_WELCOMED: return on_welcomed(failover, facts->work);
    case FAILOVER_RESUMED: return on_resumed(failover);
    case FAILOVER_LOST:
    case FAILOVER_REFUSED: return on_down(failover, event, facts);
    case FAILOVER_GONE: return on_gone(failover, facts->work);
    case FAILOVER_BROKE: /* otherwise the search or the later join continues anyway */
        if (failover->state == FAILOVER_LINKED)
            change(failover, FAILOVER_RESUMING);
        failover->is_cut = true;
        return 0;
    case FAILOVER_ENDED: change(failover, FAILOVER_OVER); return 0;
    case FAILOVER_EVENTS: break;
    }
    return 0;
}

uint64_t failover_return_ms(bool is_silent, uint64_t tried_ms, uint64_t at_most_ms)
{
    uint64_t limit_ms = LINK_RETURN_MS;

    if (!is_silent)
        limit_ms = tried_ms + LINK_RECONNECT_MIN_MS < LINK_RECONNECT_MS
                       ? LINK_RECONNECT_MS - tried_ms
                       : LINK_RECONNECT_MIN_MS;
    return at_most_ms < limit_ms ? at_most_ms : limit_ms;
}

uint64_t failover_grace_ms(uint64_t grace_ms, uint64_t lost_after_ms, uint64_t left_ms)
{
    if (grace_ms > lost_after_ms / 10)
        grace_ms = lost_after_ms / 10;
    return grace_ms < left_ms ? grace_ms : left_ms;
}
