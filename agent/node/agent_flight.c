/* SPDX-License-Identifier: Apache-2.0 */
/* The last calls of this node's workers on their groups, when a worker has failed or is stuck: the
 * last call of each becomes a part of the failure report, and all calls are written to files beside
 * the workers' folders. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/node/agent_private.h"
#include "agent/loop/blocking_call.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/flight.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

struct flight_save {
    struct ct_flight raw; /* of one rank at a time */
    struct flight flight;
    int most; /* calls of one rank that are kept */
    struct ct_buf text;
    struct ct_buf trace;
    uint64_t now_ns;
    int rc;
    int count; /* records that were read */
    struct flight_place *places;
    int place_count;
    int place_max;
    char text_path[PATH_MAX];
    char trace_path[PATH_MAX];
};

static void free_save(void *context)
{
    struct flight_save *save = context;

    ct_buf_deinit(&save->text);
    ct_buf_deinit(&save->trace);
    free(save->places);
    free(save);
}

/* By rising rank; a rank counts once, even if its children have calls, too. */
static void add_place(struct flight_save *save, const struct flight_place *place)
{
    int at = save->place_count;

    while (at > 0 && save->places[at - 1].rank > place->rank)
        at--;
    if (save->place_count == save->place_max ||
        (at > 0 && save->places[at - 1].rank == place->rank))
        return;
    memmove(&save->places[at + 1], &save->places[at],
            (size_t)(save->place_count - at) * sizeof *place);
    save->places[at] = *place;
    save->place_count++;
}

static struct flight_save *make_save(const struct agent *agent)
{
    struct flight_save *save = ct_zalloc(sizeof *save);
    const int workers = worker_group_count(agent->group);

    if (!save)
        return NULL;
    ct_buf_init(&save->text, FLIGHT_FILE_MAX_BYTES);
    ct_buf_init(&save->trace, FLIGHT_FILE_MAX_BYTES);
    save->now_ns = ct_now_ns();
    save->most = FLIGHT_CALLS_MAX / workers;
    save->place_max = workers;
    save->places = ct_zalloc_array((size_t)workers, sizeof *save->places);
    if (!save->places || flight_begin_trace(&save->trace) < 0) {
        free_save(save);
        return NULL;
    }
    return save;
}

struct flight_search {
    const struct agent *agent;
    struct flight_save *save; /* NULL: none was found */
};

static void take(void *context, int rank, int fd)
{
    struct flight_search *search = context;
    struct flight_save *save = search->save;
    struct flight_place place;

    if (!save)
        save = search->save = make_save(search->agent);
    if (!save || save->rc < 0 ||
        pread(fd, &save->raw, sizeof save->raw, 0) != sizeof save->raw ||
        flight_decode(&save->raw, sizeof save->raw, &save->flight) < 0)
        return;
    save->flight.rank = rank;
    if (flight_find_place(&place, &save->flight))
        add_place(save, &place);
    flight_keep(&save->flight, save->most);
    save->rc = flight_format(&save->text, &save->flight, save->now_ns);
    if (save->rc >= 0)
        save->rc = flight_add_trace(&save->trace, &save->flight, save->now_ns,
                                    save->count++ == 0);
}

/* ---- Files --------------------------------------------------------------------------- */

/* The first worker's folder is below that of the round. */
bool agent_make_round_path(char *dst, size_t size, const struct agent *agent,
                           const char *name, const char *suffix)
{
    const char *file = worker_group_worker(agent->group, 0)->plan.error_file;
    const char *slash = file ? strrchr(file, '/') : NULL;
    int length;

    while (slash && slash > file && slash[-1] != '/')
        slash--;
    length = slash && slash > file ? (int)(slash - file) : 0;
    return length > 0 && ct_format(dst, size, "%.*s%s.node%u.%s", length, file, name,
                                   agent->start.group_rank, suffix) >= 0;
}

int agent_write_evidence(const char *path, const struct ct_buf *bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                        0644);
    size_t done = 0;
    ssize_t n = 0;

    if (fd < 0)
        return -errno;
    while (n >= 0 && done < ct_buf_length(bytes))
        if ((n = write(fd, ct_buf_data(bytes) + done, ct_buf_length(bytes) - done)) > 0)
            done += (size_t)n;
    n = n < 0 ? -errno : 0;
    close(fd);
    return (int)n;
}

static void write_files(void *context)
{
    struct flight_save *save = context;

    save->rc = agent_write_evidence(save->text_path, &save->text);
    if (save->rc == 0)
        save->rc = agent_write_evidence(save->trace_path, &save->trace);
}

/* ---- The report ---------------------------------------------------------------------- */

static void add_facts(const struct flight_save *save, struct ct_failure *carrier)
{
    char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX];
    const int count = flight_format_places(lines, save->places, save->place_count,
                                           save->now_ns);

    for (int i = 0; i < count; i++)
        facts_add(carrier, CT_FACT_CALLS, "%s", lines[i]);
}

/* A rank that only lost a peer may report its failure first: the places of other ranks are added to
 * it as well. */
void agent_add_calls(const struct agent *agent, struct ct_failure *failure)
{
    const struct ct_facts *calls = &agent->calls.facts;

    if (agent->calls_saved != agent->start.generation ||
        ct_facts_find(&failure->facts, CT_FACT_CALLS))
        return;
    for (int i = 0; i < calls->count; i++)
        facts_add(failure, CT_FACT_CALLS, "%s", ct_facts_text(calls, i));
}

void agent_save_calls(struct agent *agent)
{
    struct flight_search search = {.agent = agent};
    struct flight_save *save;
    int rc;

    if (agent->calls_saved == agent->start.generation)
        return;
    agent->calls_saved = agent->start.generation;
    agent->calls = (struct ct_failure){0};
    worker_socket_each_flight(agent->worker_socket, agent->start.generation, take,
                              &search);
    if (!(save = search.save))
        return;
    if (save->place_count > 0)
        add_facts(save, &agent->calls);
    if (save->count == 0 || save->rc < 0 || flight_end_trace(&save->trace) < 0 ||
        !agent_make_round_path(save->text_path, sizeof save->text_path, agent, "calls",
                               "txt") ||
        !agent_make_round_path(save->trace_path, sizeof save->trace_path, agent,
                               "calls", "json")) {
        free_save(save);
        return;
    }
    rc = blocking_call(write_files, free_save, save, FLIGHT_WRITE_MS);
    if (rc < 0)
        return; /* the thread owns it */
    if (save->rc < 0)
        ct_warn("the last calls were not saved path=%s why=%s", save->text_path,
                strerror(-save->rc));
    else
        facts_add(&agent->calls, CT_FACT_CALLS, "the last calls of each rank: %s",
                  save->text_path);
    free_save(save);
}
