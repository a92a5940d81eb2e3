/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/fleet_part.h"

#include <errno.h>
#include <string.h>

#include "launcher/fleet_branch.h"
#include "launcher/fleet_intake.h"
#include "launcher/fleet_node.h"
#include "launcher/fleet_serve.h"
#include "launcher/stage_manifest.h"
#include "launcher/stage_piece.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

struct fleet_part {
    struct fleet_part_options options;
    struct fleet_branch_options branch;
    uint32_t count;
    enum fleet_host_state *states;
    struct ct_list branches;
    struct fleet_node *node;
    struct fleet_intake *intake; /* NULL: nothing was staged */
    struct fleet_serve *serve;
    bool has_gone; /* GO was told */
    bool is_paused;
    bool is_starting;
    bool is_over;
};

/* ---- States ------------------------------------------------------------------------------ */

static bool is_final(enum fleet_host_state state)
{
    return state >= FLEET_HOST_FAILED;
}

enum fleet_host_state fleet_part_state(const struct fleet_part *part, uint32_t place)
{
    return part->states[place - part->options.job->first];
}

static void emit(const struct fleet_part *part, const struct fleet_message *message)
{
    static const char *const names[] = {
        [FLEET_READY] = "ready", [FLEET_FAILED] = "failed", [FLEET_STARTED] = "started",
        [FLEET_ENDED] = "ended", [FLEET_LOST] = "lost",
    };
    struct ct_event event;

    if ((size_t)message->kind >= sizeof names / sizeof *names || !names[message->kind])
        return;
    ct_event_begin(&event, "host_state");
    ct_event_str(&event, "state", names[message->kind]);
    ct_event_str(&event, "host", fleet_job_host(part->options.job, message->host));
    ct_event_int(&event, "place", message->host);
    ct_event_int(&event, "code", message->code);
    ct_event_end(&event);
}

static void check_over(struct fleet_part *part)
{
    if (part->is_over || part->is_starting || !ct_list_is_empty(&part->branches))
        return;
    for (uint32_t i = 0; i < part->count; i++)
        if (!is_final(part->states[i]))
            return;
    part->is_over = true;
    part->options.on_over(part->options.context);
}

static struct fleet_branch *find_branch(const struct fleet_part *part, uint32_t place)
{
    struct ct_list *it;

    ct_list_for_each(it, &part->branches) {
        struct fleet_branch *branch = ct_list_entry(it, struct fleet_branch, node);

        if (place >= branch->first && place - branch->first < branch->count)
            return branch;
    }
    return NULL;
}

/* What a host of a branch needs has to go through that branch. Malformed, or out of memory: the
 * host gets nothing, and whoever waits for it says so. */
static void note_needs(struct fleet_part *part, const struct fleet_message *message)
{
    struct fleet_branch *branch = find_branch(part, message->host);

    if (!branch)
        return; /* this host: it tells what it needs for those above */
    if (branch->needs.size == 0 && stage_set_init(&branch->needs, STAGE_CHUNKS_MAX) < 0)
        return;
    (void)stage_set_decode(&branch->needs, message->data, message->length);
}

/* Everything that is told about a host of this part passes here. */
static void on_message(void *context, const struct fleet_message *message)
{
    struct fleet_part *part = context;
    enum fleet_host_state *state =
        &part->states[message->host - part->options.job->first];

    if (is_final(*state))
        return;
    switch (message->kind) {
    case FLEET_READY: *state = FLEET_HOST_READY; break;
    case FLEET_FAILED: *state = FLEET_HOST_FAILED; break;
    case FLEET_ENDED: *state = FLEET_HOST_ENDED; break;
    case FLEET_LOST: *state = FLEET_HOST_LOST; break;
    case FLEET_NEED: note_needs(part, message); break;
    case FLEET_JOB:
    case FLEET_STAGE:
    case FLEET_PIECE:
    case FLEET_STAGING:
    case FLEET_STAGED:
    case FLEET_SERVE:
    case FLEET_GO:
    case FLEET_SIGNAL:
    case FLEET_SERVING:
    case FLEET_OUTPUT:
    case FLEET_WORDS:
    case FLEET_STARTED: break;
    }
    emit(part, message);
    part->options.on_message(part->options.context, message);
}

static void tell(struct fleet_part *part, enum fleet_kind kind, uint32_t place,
                 int code, const char *text)
{
    const struct fleet_message message = {.kind = kind,
                                          .host = place,
                                          .code = code,
                                          .data = text,
                                          .length = strlen(text)};

    on_message(part, &message);
}

/* ---- Branches ---------------------------------------------------------------------------- */

static void spread(struct fleet_part *part, uint32_t first, uint32_t count);

static void on_branch_over(void *context, struct fleet_branch *branch, int code,
                           const char *why)
{
    struct fleet_part *part = context;
    const uint32_t first = branch->first;
    const uint32_t count = branch->count;

    part->is_starting = true; /* it is not over before the rest was called */
    if (branch->is_open) {
        for (uint32_t i = first; i < first + count; i++)
            tell(part, FLEET_LOST, i, code, why); /* but for those that have ended */
        fleet_branch_close(branch);
    } else {
        tell(part, FLEET_FAILED, first, code, why);
        fleet_branch_close(branch);
        spread(part, first + 1, count - 1);
    }
    part->is_starting = false;
    part->options.on_room(part->options.context); /* it may have been the full one */
    check_over(part);
}

static void call(struct fleet_part *part, uint32_t first, uint32_t count)
{
    struct ctrun_error err = {.text = "out of memory"};
    struct fleet_branch *branch = fleet_branch_open(&part->branch, first, count, &err);

    if (branch) {
        ct_list_add(&part->branches, &branch->node);
        fleet_branch_pause(branch, part->is_paused);
        return;
    }
    for (uint32_t i = first; i < first + count; i++)
        tell(part, FLEET_FAILED, i, CTRUN_E_EXEC, err.text);
}

static void spread(struct fleet_part *part, uint32_t first, uint32_t count)
{
    const uint32_t fanout = part->options.job->fanout;
    const uint32_t pieces = count < fanout ? count : fanout;

    for (uint32_t i = 0; i < pieces; i++) {
        const uint32_t begin = (uint32_t)((uint64_t)count * i / pieces);
        const uint32_t end = (uint32_t)((uint64_t)count * (i + 1) / pieces);

        call(part, first + begin, end - begin);
    }
}

/* ---- This host --------------------------------------------------------------------------- */

static void go(struct fleet_part *part, const struct fleet_message *message)
{
    const struct fleet_node_options options = {.loop = part->options.loop,
                                               .job = part->options.job,
                                               .place = part->options.here,
                                               .intake = part->intake,
                                               .context = part,
                                               .on_message = on_message};
    char endpoint[FLEET_TEXT_MAX];
    struct ctrun_error err;

    part->has_gone = true;
    fleet_intake_rest(part->intake);
    (void)ct_format(endpoint, sizeof endpoint, "%.*s", (int)message->length,
                    (const char *)message->data);
    if (fleet_node_open(&part->node, &options, endpoint, &err) < 0)
        tell(part, FLEET_LOST, part->options.here, err.code, err.text);
    else
        fleet_node_pause(part->node, part->is_paused);
}

static void serve(struct fleet_part *part)
{
    const uint32_t place = part->options.here;
    char endpoint[FLEET_TEXT_MAX];
    struct ctrun_error err;

    if (fleet_serve_open(&part->serve, part->options.job, place, endpoint,
                         sizeof endpoint, &err) < 0)
        tell(part, FLEET_LOST, place, err.code, err.text);
    else
        tell(part, FLEET_SERVING, place, 0, endpoint);
}

static void on_intake(void *context, const struct fleet_message *message)
{
    on_message(context, message);
    if (message->kind == FLEET_FAILED)
        check_over(context);
}

static void take_in(struct fleet_part *part, const struct fleet_message *message)
{
    const struct fleet_intake_options options = {.loop = part->options.loop,
                                                 .job = part->options.job,
                                                 .place = part->options.here,
                                                 .context = part,
                                                 .on_message = on_intake};

    if (!part->intake && !part->has_gone &&
        !(part->intake = fleet_intake_open(&options)))
        tell(part, FLEET_FAILED, part->options.here, CTRUN_E_STAGE, "out of memory");
    if (part->intake)
        fleet_intake_take(part->intake, message);
}

static void tell_here(struct fleet_part *part, const struct fleet_message *message)
{
    const uint32_t place = part->options.here;

    if (fleet_part_state(part, place) != FLEET_HOST_READY)
        return;
    if (message->kind == FLEET_GO && !part->has_gone)
        go(part, message);
    else if (message->kind == FLEET_SERVE && message->host == place)
        serve(part);
    else if (message->kind == FLEET_SIGNAL)
        fleet_node_signal(part->node, message->code);
    else if (message->kind == FLEET_STAGE || message->kind == FLEET_PIECE)
        take_in(part, message);
}

/* Does anybody in that branch need it? */
static bool is_wanted(const struct fleet_branch *branch,
                      const struct fleet_message *message)
{
    struct stage_piece piece;

    return message->kind != FLEET_PIECE ||
           (stage_piece_decode(&piece, message->data, message->length) == 0 &&
            stage_set_has(&branch->needs, piece.chunk));
}

bool fleet_part_is_full(const struct fleet_part *part)
{
    struct ct_list *it;

    ct_list_for_each(it, &part->branches)
        if (ct_list_entry(it, struct fleet_branch, node)->is_full)
            return true;
    return false;
}

static void on_room(void *context)
{
    const struct fleet_part *part = context;

    if (!fleet_part_is_full(part))
        part->options.on_room(part->options.context);
}

uint32_t fleet_part_tell(struct fleet_part *part, const struct fleet_message *message)
{
    struct ct_list *it;
    struct ct_list *keep;
    uint32_t count = 0;

    ct_list_for_each_safe(it, keep, &part->branches) {
        struct fleet_branch *branch = ct_list_entry(it, struct fleet_branch, node);

        if (branch->is_open && is_wanted(branch, message)) {
            fleet_branch_send(branch, message);
            count++;
        }
    }
    if (part->options.here != FLEET_NOWHERE)
        tell_here(part, message);
    check_over(part);
    return count;
}

void fleet_part_pause(struct fleet_part *part, bool is_paused)
{
    struct ct_list *it;

    if (part->is_paused == is_paused)
        return;
    part->is_paused = is_paused;
    ct_list_for_each(it, &part->branches)
        fleet_branch_pause(ct_list_entry(it, struct fleet_branch, node), is_paused);
    fleet_node_pause(part->node, is_paused);
}

/* ---- Life -------------------------------------------------------------------------------- */

int fleet_part_create(struct fleet_part **out, const struct fleet_part_options *options)
{
    struct fleet_part *part = ct_zalloc(sizeof *part);

    if (!part)
        return -ENOMEM;
    part->options = *options;
    part->count = fleet_job_count(options->job);
    part->branch = (struct fleet_branch_options){.loop = options->loop,
                                                 .job = options->job,
                                                 .context = part,
                                                 .on_message = on_message,
                                                 .on_over = on_branch_over,
                                                 .on_room = on_room};
    ct_list_init(&part->branches);
    if (!(part->states = ct_zalloc_array(part->count, sizeof *part->states))) {
        free(part);
        return -ENOMEM;
    }
    *out = part;
    return 0;
}

void fleet_part_start(struct fleet_part *part)
{
    const uint32_t first = part->options.job->first;
    const uint32_t here = part->options.here;

    part->is_starting = true;
    if (here == FLEET_NOWHERE) {
        spread(part, first, part->count);
    } else {
        tell(part, FLEET_READY, here, 0, "");
        spread(part, first, here - first);
        spread(part, here + 1, first + part->count - here - 1);
    }
    part->is_starting = false;
    check_over(part);
}

void fleet_part_reap(struct fleet_part *part)
{
    struct ct_list *it;
    struct ct_list *keep;

    ct_list_for_each_safe(it, keep, &part->branches)
        fleet_branch_reap(ct_list_entry(it, struct fleet_branch, node));
    fleet_node_reap(part->node);
    check_over(part);
}

void fleet_part_destroy(struct fleet_part *part)
{
    struct ct_list *it;
    struct ct_list *keep;

    if (!part)
        return;
    ct_list_for_each_safe(it, keep, &part->branches)
        fleet_branch_close(ct_list_entry(it, struct fleet_branch, node));
    fleet_node_close(part->node);
    fleet_intake_close(part->intake);
    fleet_serve_close(part->serve);
    free(part->states);
    free(part);
}
