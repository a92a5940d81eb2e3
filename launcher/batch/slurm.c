/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/batch/slurm.h"

#include <errno.h>
#include <limits.h>
#include <strings.h>

#include "agent/process/slurm_step.h"
#include "worker_sdk/base/str.h"

enum {
    KILL_WAIT_S = 30, /* slurm.conf(5) */
    KILL_WAIT_MAX_S = 65533,
};

static bool is_in_step(const struct batch_source *from)
{
    return slurm_step_is_of_srun(batch_text(from, "SLURM_STEP_ID"));
}

/* One item of a per-node list, "3" or "1(x6)", of `length` bytes. */
static int parse_item(const char *field, size_t length, uint64_t *value,
                      uint64_t *times)
{
    char item[32];
    char *repeat;

    *times = 1;
    if (!length || length >= sizeof item)
        return -EINVAL;
    memcpy(item, field, length);
    item[length] = '\0';
    if ((repeat = strchr(item, '('))) {
        if (item[length - 1] != ')' || repeat[1] != 'x')
            return -EINVAL;
        item[length - 1] = '\0';
        *repeat = '\0';
        if (ct_parse_u64(repeat + 2, 1, INT_MAX, times) < 0)
            return -EINVAL;
    }
    return ct_parse_u64(item, 0, INT_MAX, value);
}

int slurm_per_node(const char *text, int *out, size_t count)
{
    const char *cursor = text;
    const char *field;
    size_t length;
    size_t done = 0;

    while (done < count && (field = ct_next_field(&cursor, ',', &length))) {
        uint64_t value;
        uint64_t times;

        if (parse_item(field, length, &value, &times) < 0)
            return -EINVAL;
        for (; times && done < count; times--)
            out[done++] = (int)value;
    }
    return done == count ? 0 : -EINVAL;
}

/* ---- Time ---------------------------------------------------------------------------- */

uint32_t slurm_kill_wait(const char *conf)
{
    static const char key[] = "killwait";
    uint64_t found = KILL_WAIT_S;

    for (const char *line = conf; line && *line; line = strchr(line, '\n')) {
        const char *at = line += strspn(line, " \t\r\n");
        char number[16];
        size_t digits;

        if (strncasecmp(at, key, sizeof key - 1) != 0)
            continue;
        at += sizeof key - 1;
        at += strspn(at, " \t");
        if (*at++ != '=')
            continue;
        at += strspn(at, " \t");
        digits = strspn(at, "0123456789");
        if (digits == 0 || digits >= sizeof number)
            continue;
        memcpy(number, at, digits);
        number[digits] = '\0';
        (void)ct_parse_u64(number, 0, KILL_WAIT_MAX_S, &found); /* else unchanged */
    }
    return (uint32_t)found;
}

uint32_t slurm_grace(const struct batch_source *from)
{
    const char *path = batch_text(from, "SLURM_CONF");
    uint32_t seconds = 0;
    char *conf;

    if (!batch_text(from, "SLURM_JOB_ID"))
        return 0;
    if ((conf = from->read(from->context, path ? path : "/etc/slurm/slurm.conf")))
        seconds = slurm_kill_wait(conf);
    free(conf);
    return seconds;
}

int slurm_nodes_without_step(const struct batch_source *from)
{
    const char *text = batch_text(from, "SLURM_NNODES");
    uint64_t nodes;

    if (!batch_text(from, "SLURM_JOB_ID") || is_in_step(from) || !text ||
        ct_parse_u64(text, 0, INT_MAX, &nodes) < 0)
        return 0;
    return (int)nodes;
}

int64_t slurm_end(const struct batch_source *from)
{
    const char *text = batch_text(from, "SLURM_JOB_END_TIME");
    uint64_t seconds;

    return text && ct_parse_u64(text, 0, INT64_MAX, &seconds) == 0 ? (int64_t)seconds
                                                                   : 0;
}

/* ---- Place --------------------------------------------------------------------------- */

static int read_nodes(struct batch_place *out, const struct batch_source *from,
                      struct ctrun_error *err)
{
    const char *list = batch_text(from, "SLURM_STEP_NODELIST");
    const char *tasks = batch_text(from, "SLURM_STEP_TASKS_PER_NODE");
    int rc;

    if (!list)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: SLURM_STEP_ID is set, SLURM_STEP_NODELIST is not");
    if ((rc = hostlist_parse(list, &out->nodes, err)) < 0) {
        ct_wrap(err, "Slurm: SLURM_STEP_NODELIST");
        return rc == -ENOMEM ? rc : CTRUN_E_BAD_ENVIRONMENT;
    }
    if ((size_t)out->node_id >= out->nodes.count)
        return ct_fail(
            err, CTRUN_E_BAD_ENVIRONMENT,
            "Slurm: SLURM_NODEID is %d, SLURM_STEP_NODELIST '%s' has %zu nodes",
            out->node_id, list, out->nodes.count);
    if (batch_set_tasks(out, 1) < 0)
        return ct_fail(err, -ENOMEM, "Slurm: out of memory");
    if (tasks && slurm_per_node(tasks, out->tasks, out->nodes.count) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: SLURM_STEP_TASKS_PER_NODE '%s' is not for the %zu nodes "
                       "of SLURM_STEP_NODELIST",
                       tasks, out->nodes.count);
    return 0;
}

/* The step's numbers; in a step Slurm sets all of them. */
static int read_numbers(struct batch_place *out, const struct batch_source *from,
                        int *job, int *step, struct ctrun_error *err)
{
    const struct {
        const char *name;
        int *value;
    } numbers[] = {
        {"SLURM_JOB_ID", job},
        {"SLURM_STEP_ID", step},
        {"SLURM_NODEID", &out->node_id},
        {"SLURM_LOCALID", &out->local_id},
    };
    int rc;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if ((rc = batch_number(from, numbers[i].name, numbers[i].value, err)) < 0)
            return rc;
    return 0;
}

/* "gpu:per_task:1", as slurmd or srun tells the task. */
static int read_task_gpus(const struct batch_source *from)
{
    static const char *const names[] = {"SLURMD_TRES_BIND", "SLURM_TRES_BIND",
                                        "SLURM_GPU_BIND"};
    static const char key[] = "per_task:";
    const char *visible = batch_text(from, "CUDA_VISIBLE_DEVICES");
    int seen = visible ? 1 : 0;

    for (const char *at = visible; at && (at = strchr(at, ',')); at++)
        seen++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = batch_text(from, names[i]);
        const char *at = text ? strstr(text, key) : NULL;
        const long gpus = at ? strtol(at + sizeof key - 1, NULL, 10) : 0;

        if (gpus > 0 && gpus <= INT_MAX && (!visible || seen == gpus))
            return (int)gpus;
    }
    return 0;
}

static void read_history(struct batch_place *out, const struct batch_source *from)
{
    const char *text = batch_text(from, "SLURM_RESTART_COUNT");
    uint64_t restarts = 0;

    if (text && ct_parse_u64(text, 0, UINT32_MAX, &restarts) == 0)
        out->requeues = (uint32_t)restarts;
}

int slurm_read(struct batch_place *out, const struct batch_source *from,
               struct ctrun_error *err)
{
    int job = 0, step = 0;
    int rc;

    if (!is_in_step(from))
        return 0;
    out->system = "Slurm";
    out->has_size = true;
    if ((rc = read_numbers(out, from, &job, &step, err)) < 0 ||
        (rc = read_nodes(out, from, err)) < 0)
        return rc;
    read_history(out, from);
    out->task_gpus = read_task_gpus(from);
    (void)ct_format(out->job, sizeof out->job, "job %d step %d", job, step);
    (void)ct_format(out->run_id, sizeof out->run_id, "slurm-%d.%d", job, step);
    if (out->requeues)
        (void)ct_format(out->run_id, sizeof out->run_id, "slurm-%d.%d.%u", job, step,
                        out->requeues);
    return batch_check(out, (uint32_t)job * 7u + (uint32_t)step * 31u, err);
}
