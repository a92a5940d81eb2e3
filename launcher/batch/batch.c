/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/batch/batch.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "launcher/options/nnodes.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

enum {
    /* Ports by job lie below Linux's ephemeral range (32768) and above what services use, so
     * that neither a client's socket nor a daemon is likely to use one. */
    PORT_FIRST = 20000,
    PORT_SPAN = 9000,
    PORT_STRIDE = 2251, /* prime: the candidates of neighbouring jobs do not coincide */
};

/* ---- This process -------------------------------------------------------------------- */

static const char *get(const void *env, const char *name)
{
    return ct_env_find(*(char *const *const *)env, name);
}

static char *read_file(const void *context, const char *path)
{
    size_t length;
    char *text;

    (void)context;
    (void)ct_whole_file_read(path, BATCH_FILE_MAX_BYTES, &text, &length, NULL);
    return text;
}

struct batch_source batch_source_of(char *const *const *env)
{
    static char host[CT_HOST_MAX];

    if (!*host && gethostname(host, sizeof host - 1) < 0)
        (void)ct_copy(host, sizeof host, "localhost");
    return (struct batch_source){get, read_file, env, host, getppid()};
}

/* ---- For the readers ----------------------------------------------------------------- */

const char *batch_text(const struct batch_source *from, const char *name)
{
    const char *value = from->get(from->context, name);

    return value && *value ? value : NULL;
}

int batch_number(const struct batch_source *from, const char *name, int *out,
                 struct ctrun_error *err)
{
    const char *text = batch_text(from, name);
    uint64_t value;

    if (!text || ct_parse_u64(text, 0, INT_MAX, &value) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT, "%s is %s%s%s: want a number",
                       name, text ? "'" : "", text ? text : "not set", text ? "'" : "");
    *out = (int)value;
    return 0;
}

int batch_set_tasks(struct batch_place *place, int tasks)
{
    if (!(place->tasks = ct_zalloc_array(place->nodes.count, sizeof *place->tasks)))
        return -ENOMEM;
    for (size_t i = 0; i < place->nodes.count; i++)
        place->tasks[i] = tasks;
    return 0;
}

bool batch_is_same_host(const char *a, const char *b)
{
    size_t length = strcspn(a, ".");

    if (length != strcspn(b, ".") || strncmp(a, b, length) != 0)
        return false;
    return !a[length] || !b[length] || strcmp(a, b) == 0;
}

uint32_t batch_hash(const char *text)
{
    const uint64_t hash = ct_hash(text, strlen(text));

    return (uint32_t)(hash ^ hash >> 32);
}

int batch_check(struct batch_place *place, uint32_t seed, struct ctrun_error *err)
{
    for (uint32_t i = 0; i < BATCH_PORTS; i++)
        place->ports[i] = (uint16_t)(PORT_FIRST +
                                     (seed % PORT_SPAN + i * PORT_STRIDE) % PORT_SPAN);
    if (place->nodes.count == 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT, "%s: its list of nodes is empty",
                       place->system);
    if (!place->has_size)
        return 1;
    if ((size_t)place->node_id >= place->nodes.count)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "%s: this is node %d, counted from 0, of %zu", place->system,
                       place->node_id, place->nodes.count);
    for (size_t i = 0; i < place->nodes.count; i++)
        if (place->tasks[i] > NPROC_MAX)
            return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                           "%s: %d tasks on %s: at most %d are possible", place->system,
                           place->tasks[i], place->nodes.names[i], NPROC_MAX);
    if (place->local_id >= place->tasks[place->node_id])
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "%s: this is task %d, counted from 0, of node %s, which has %d",
                       place->system, place->local_id,
                       place->nodes.names[place->node_id],
                       place->tasks[place->node_id]);
    return 1;
}

/* ---- Places -------------------------------------------------------------------------- */

void batch_place_deinit(struct batch_place *place)
{
    hostlist_deinit(&place->nodes);
    free(place->tasks);
    *place = (struct batch_place){0};
}

int batch_task_count(const struct batch_place *place)
{
    int count = 0;

    for (size_t i = 0; i < place->nodes.count; i++)
        count += place->tasks[i];
    return count;
}

int batch_task_index(const struct batch_place *place)
{
    int index = place->local_id;

    for (int i = 0; i < place->node_id; i++)
        index += place->tasks[i];
    return index;
}

/* True when --nproc-per-node asks for one worker a task: the number of tasks of each node, gpu or
 * auto. */
static bool is_one_a_task(const struct batch_place *place, const char *nproc)
{
    uint64_t count;

    if (strcmp(nproc, "gpu") == 0 || strcmp(nproc, "auto") == 0)
        return true;
    if (ct_parse_u64(nproc, 1, NPROC_MAX, &count) < 0)
        return false;
    for (size_t i = 0; i < place->nodes.count; i++)
        if (place->tasks[i] != (int)count)
            return false;
    return true;
}

enum batch_shape batch_shape(const struct batch_place *place,
                             const struct options *options)
{
    const char *nproc = option_text(options, OPTION_NPROC_PER_NODE);
    bool is_one = options->role_count == 0 &&
                  (!option_has_text(options, OPTION_NPROC_PER_NODE) ||
                   strcmp(nproc, "1") == 0);

    if (!place->has_size || batch_task_count(place) <= (int)place->nodes.count)
        return BATCH_AGENT;
    if (place->task_gpus == 1 && options->role_count == 0 &&
        is_one_a_task(place, nproc))
        return BATCH_RANKS;
    return is_one ? BATCH_RANKS : BATCH_MERGE;
}
