/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl stacks: where the workers of all nodes are in their code. Each node reads its own workers
 * (agent_stacks.c); the rendezvous server passes questions and answers on. One request at a time.
 *
 *     asked ──ASK──> rendezvous ──> the other agents ──TEXT, END──> rendezvous ──> put together (stacks_gather.h)
 *               └──> our own, meanwhile          all have ended, or time is up ──> the answer to ctrunctl */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/watch/stacks_gather.h"
#include "worker_sdk/base/alloc.h"

struct stacks_request {
    struct agent *agent;
    struct loop_timer *timer; /* other nodes may answer until then */
    struct stacks_gather *gather;
    struct ct_buf own;
    uint64_t since_ms;
    bool asks; /* other nodes */
};

/* ---- The answer to ctrunctl -------------------------------------------------------------- */

/* Appends NUL-terminated JSON to `out`; NUL-terminates `text`, too. */
static int format(struct ct_buf *out, struct ct_buf *text)
{
    int rc = ct_buf_append(text, "", 1);

    if (rc == 0)
        rc = ct_buf_printf(out, "{\"stacks\":");
    if (rc == 0)
        rc = ct_json_append_str(out, (const char *)ct_buf_data(text));
    return rc < 0 ? rc : ct_buf_append(out, "}", sizeof "}");
}

void agent_close_stacks(struct agent *agent)
{
    struct stacks_request *request = agent->stacks;

    agent->stacks = NULL;
    if (!request)
        return;
    loop_timer_close(request->timer);
    stacks_gather_destroy(request->gather);
    ct_buf_deinit(&request->own);
    free(request);
}

/* All nodes have answered, or time is up. Closes the request before it sends the answer, so that the next one may
 * come. */
static void finish(void *context)
{
    struct stacks_request *request = context;
    struct agent *agent = request->agent;
    const uint32_t ticket = stacks_gather_ticket(request->gather);
    struct ct_buf text, out;
    int rc = 0;

    ct_buf_init(&text, STACKS_TEXT_MAX_BYTES + 2 * CT_STACKS_ALL_MAX_BYTES + 1);
    ct_buf_init(&out, CTL_SOCKET_REPLY_MAX_BYTES);
    if (request->asks)
        rc = stacks_gather_write(request->gather, &text, agent->start.group_rank,
                                 agent->options->hello.host, &request->own,
                                 ct_now_ms() - request->since_ms);
    if (rc >= 0)
        rc = format(&out, request->asks ? &text : &request->own);
    agent_close_stacks(agent);
    if (agent->ctl_socket)
        ctl_socket_answer(agent->ctl_socket, ticket, rc < 0 ? rc : 0,
                          rc < 0 ? strerror(-rc) : (const char *)ct_buf_data(&out));
    ct_buf_deinit(&text);
    ct_buf_deinit(&out);
}

/* ---- The question ------------------------------------------------------------------------ */

/* `rank` means ranks of other nodes, too. */
static bool needs_others(const struct agent *agent, int rank)
{
    const int64_t first = agent->start.rank_base;

    return agent->start.group_world_size > 1 &&
           (rank < 0 || rank < first || rank >= first + agent->options->join.slots);
}

static int check(const struct agent *agent, int rank, struct ctrun_error *err)
{
    if (agent->stacks)
        return ct_fail(err, -EBUSY,
                       "another request for stacks is being answered: try again");
    if (rank >= 0 && agent->start.world_size > 0 &&
        (uint32_t)rank >= agent->start.world_size)
        return ct_fail(err, -ESRCH, "rank %d: the world has ranks 0 to %u", rank,
                       agent->start.world_size - 1);
    if (rank >= 0 && needs_others(agent, rank) && !link_is_up(agent->link))
        return ct_fail(err, -ENOTCONN,
                       "rank %d runs on another node, and the rendezvous is not "
                       "connected",
                       rank);
    return 0;
}

static int fail_without_worker(const struct agent *agent, int rank,
                               struct ctrun_error *err)
{
    const struct ct_waiting *waiting = &agent->waiting;

    if (agent->state == AGENT_JOINING && !waiting->is_spare &&
        waiting->joined < waiting->max_nodes)
        return ct_fail(
            err, -ESRCH,
            "no worker is running yet: this node waits for others (see ctrunctl "
            "status)");
    if (rank < 0 || agent->state != AGENT_RUNNING)
        return ct_fail(err, -ESRCH,
                       "no worker is running: the state of this node is %s",
                       agent_state_name(agent));
    return ct_fail(err, -ESRCH, "rank %d is not running", rank);
}

static int begin(struct agent *agent, uint32_t ticket, struct ctrun_error *err)
{
    struct stacks_request *request = ct_zalloc(sizeof *request);

    if (!request)
        return ct_fail(err, -ENOMEM, "out of memory");
    agent->stacks = request;
    request->agent = agent;
    request->since_ms = ct_now_ms();
    ct_buf_init(&request->own, STACKS_TEXT_MAX_BYTES + 1);
    if ((request->gather = stacks_gather_create(ticket)) &&
        (request->timer = loop_timer_open(agent->loop, finish, request)))
        return 0;
    return ct_fail(err, -ENOMEM, "out of memory");
}

/* Other nodes read their workers while we read ours. */
static void ask(struct agent *agent, int rank, uint32_t ticket)
{
    struct ct_stacks *stacks = ct_zalloc(sizeof *stacks);

    if (!stacks)
        return; /* then no other node answers */
    *stacks = (struct ct_stacks){.what = CT_STACKS_ASK, .ticket = ticket, .rank = rank};
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_STACKS, .stacks = stacks});
    free(stacks);
}

/* A hang watch does not take the answers of recorders for progress. */
static int write_own(struct agent *agent, int rank, struct ct_buf *out,
                     struct ctrun_error *err)
{
    int rc;

    agent_settle_look(agent);
    rc = agent_write_stacks(agent, rank, STACKS_WRITE_MS, out, err);
    agent_discount_look(agent);
    return rc;
}

/* Reads our own workers within the call, which blocks the loop for STACKS_WRITE_MS at most; the timer limits the wait
 * for other nodes. */
int agent_show_stacks(void *context, int rank, uint32_t ticket, struct ctrun_error *err)
{
    struct agent *agent = context;
    const bool asks = needs_others(agent, rank);
    int rc = check(agent, rank, err);

    if (rc < 0)
        return rc;
    if ((rc = begin(agent, ticket, err)) < 0) {
        agent_close_stacks(agent);
        return rc;
    }
    if ((agent->stacks->asks = asks))
        ask(agent, rank, ticket);
    rc = write_own(agent, rank, &agent->stacks->own, err);
    if (rc == 0 && !asks)
        rc = fail_without_worker(agent, rank, err);
    if (rc < 0 && !asks) {
        agent_close_stacks(agent);
        return rc;
    }
    if (rc < 0)
        (void)ct_buf_printf(&agent->stacks->own, "%s\n", err->text);
    loop_timer_set(agent->stacks->timer,
                   asks && link_is_up(agent->link) ? STACKS_GATHER_MS : 0);
    return 0;
}

/* ---- Another node asks ------------------------------------------------------------------- */

static void send_part(struct agent *agent, struct ct_stacks *stacks, const char *text,
                      size_t length, bool is_last)
{
    stacks->what = is_last ? CT_STACKS_END : CT_STACKS_TEXT;
    memcpy(stacks->text, text, length);
    stacks->text[length] = '\0';
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_STACKS, .stacks = stacks});
}

/* The length of the whole lines at the start of text[length]; `length` if text has no end of a
 * line. */
static size_t whole_lines(const char *text, size_t length)
{
    const char *end = length > 0 ? memrchr(text, '\n', length) : NULL;

    return end ? (size_t)(end + 1 - text) : length;
}

/* Sends `most` bytes at most; says so if some are left out. Each piece ends with a line, so that no
 * piece ends inside a character. */
static void send_text(struct agent *agent, struct ct_stacks *stacks,
                      const struct ct_buf *buf, size_t most)
{
    static const char more[] =
        "the rest is left out, because it is too long: give a rank\n";
    const char *text = (const char *)ct_buf_data(buf);
    size_t left = ct_buf_length(buf);
    const bool is_cut = left > most;

    if (is_cut)
        left = most > sizeof more ? whole_lines(text, most - sizeof more) : 0;
    while (left >= sizeof stacks->text) {
        const size_t part = whole_lines(text, sizeof stacks->text - 1);

        send_part(agent, stacks, text, part, false);
        text += part;
        left -= part;
    }
    send_part(agent, stacks, text, left, !is_cut);
    if (is_cut)
        send_part(agent, stacks, more, sizeof more - 1, true);
}

static void answer(struct agent *agent, const struct ct_stacks *message)
{
    struct ct_stacks *stacks = ct_zalloc(sizeof *stacks);
    struct ctrun_error err;
    struct ct_buf text;
    int rc;

    if (!stacks)
        return; /* then this node counts as one that does not answer */
    stacks->ticket = message->ticket;
    stacks->asker = message->asker;
    ct_buf_init(&text, STACKS_TEXT_MAX_BYTES);
    rc = write_own(agent, message->rank, &text, &err);
    if (rc < 0)
        rc = ct_buf_printf(&text, "%s\n", err.text);
    else if (rc == 0)
        rc = ct_buf_printf(&text, "no worker is running\n");
    if (rc >= 0)
        send_text(agent, stacks, &text,
                  message->most < CT_STACKS_NODE_MAX_BYTES ? message->most
                                                           : CT_STACKS_NODE_MAX_BYTES);
    ct_buf_deinit(&text);
    free(stacks);
}

void agent_on_stacks(struct agent *agent, const struct ct_stacks *message)
{
    if (message->what == CT_STACKS_ASK)
        answer(agent, message);
    else if (agent->stacks && stacks_gather_on_stacks(agent->stacks->gather, message))
        loop_timer_set(agent->stacks->timer, 0);
}
