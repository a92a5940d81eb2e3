/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/slurm.h"

#include <errno.h>
#include <limits.h>

#include "worker_sdk/base/str.h"

enum {
    /* Ports by job and step lie below Linux's ephemeral range (32768) and above what services
     * use, so that neither a passing client nor a daemon is likely to have one. */
    PORT_FIRST = 20000,
    PORT_SPAN = 9000,
    PORT_STRIDE = 2251, /* prime: the candidates of neighbouring jobs do not coincide */
};

struct source {
    const char *(*get)(const void *context, const char *name);
    const void *context;
};

static const char *text_of(const struct source *from, const char *name)
{
    const char *value = from->get(from->context, name);

    return value && *value ? value : NULL;
}

static int number_of(const struct source *from, const char *name, int *out,
                     struct ctrun_error *err)
{
    const char *text = text_of(from, name);
    uint64_t value;

    if (!text || ct_parse_u64(text, 0, INT_MAX, &value) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: %s is %s%s%s: want a number", name, text ? "'" : "",
                       text ? text : "not set", text ? "'" : "");
    *out = (int)value;
    return 0;
}

int slurm_per_node(const char *text, size_t index, int *out)
{
    const char *cursor = text;
    const char *field;
    size_t length;

    while ((field = ct_next_field(&cursor, ',', &length))) {
        char item[32];
        char *repeat;
        uint64_t value;
        uint64_t times = 1;

        if (!length || length >= sizeof item)
            return -EINVAL;
        memcpy(item, field, length);
        item[length] = '\0';
        if ((repeat = strchr(item, '('))) {
            if (item[length - 1] != ')' || repeat[1] != 'x')
                return -EINVAL;
            item[length - 1] = '\0';
            *repeat = '\0';
            if (ct_parse_u64(repeat + 2, 1, INT_MAX, &times) < 0)
                return -EINVAL;
        }
        if (ct_parse_u64(item, 0, INT_MAX, &value) < 0)
            return -EINVAL;
        if (index < times) {
            *out = (int)value;
            return 0;
        }
        index -= times;
    }
    return -EINVAL;
}

static int read_nodes(struct slurm_place *out, const struct source *from,
                      struct ctrun_error *err)
{
    const char *list = text_of(from, "SLURM_STEP_NODELIST");
    const char *tasks = text_of(from, "SLURM_STEP_TASKS_PER_NODE");

    if (!list)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: SLURM_STEP_ID is set, SLURM_STEP_NODELIST is not");
    if (hostlist_parse(list, &out->nodes, err) < 0) {
        ct_wrap(err, "Slurm: SLURM_STEP_NODELIST");
        return CTRUN_E_BAD_ENVIRONMENT;
    }
    if ((size_t)out->node_id >= out->nodes.count)
        return ct_fail(
            err, CTRUN_E_BAD_ENVIRONMENT,
            "Slurm: SLURM_NODEID is %d, SLURM_STEP_NODELIST '%s' has %zu nodes",
            out->node_id, list, out->nodes.count);
    out->tasks_here = 1;
    if (tasks && slurm_per_node(tasks, (size_t)out->node_id, &out->tasks_here) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: SLURM_STEP_TASKS_PER_NODE '%s' has no entry %d", tasks,
                       out->node_id);
    return 0;
}

static void choose_ports(struct slurm_place *out, int job, int step)
{
    uint32_t seed = (uint32_t)job * 7u + (uint32_t)step * 31u;

    for (uint32_t i = 0; i < SLURM_PORTS; i++)
        out->ports[i] = (uint16_t)(PORT_FIRST +
                                   (seed % PORT_SPAN + i * PORT_STRIDE) % PORT_SPAN);
}

/* The step's numbers; in a step Slurm sets all of them. */
static int read_numbers(struct slurm_place *out, const struct source *from,
                        struct ctrun_error *err)
{
    const struct {
        const char *name;
        int *value;
    } numbers[] = {
        {"SLURM_NODEID", &out->node_id},
        {"SLURM_LOCALID", &out->local_id},
        {"SLURM_PROCID", &out->task_rank},
        {"SLURM_STEP_NUM_TASKS", &out->task_count},
    };
    int rc;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((rc = number_of(from, numbers[i].name, numbers[i].value, err)) < 0)
            return rc;
    return 0;
}

int slurm_place_read(struct slurm_place *out,
                     const char *(*get)(const void *context, const char *name),
                     const void *context, struct ctrun_error *err)
{
    const struct source from = {get, context};
    const char *restart = text_of(&from, "SLURM_RESTART_COUNT");
    int job = 0, step = 0;
    int rc;

    *out = (struct slurm_place){0};
    if (!text_of(&from, "SLURM_STEP_ID"))
        return 0;
    if ((rc = number_of(&from, "SLURM_JOB_ID", &job, err)) < 0 ||
        (rc = number_of(&from, "SLURM_STEP_ID", &step, err)) < 0 ||
        (rc = read_numbers(out, &from, err)) < 0 ||
        (rc = read_nodes(out, &from, err)) < 0) {
        slurm_place_deinit(out);
        return rc;
    }
    (void)ct_format(out->run_id, sizeof out->run_id, "slurm-%d.%d%s%.10s", job, step,
                    restart ? "." : "", restart ? restart : "");
    choose_ports(out, job, step);
    return 1;
}

void slurm_place_deinit(struct slurm_place *place)
{
    hostlist_deinit(&place->nodes);
    *place = (struct slurm_place){0};
}
