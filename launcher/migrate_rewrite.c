/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a launch, and which of its options it needs no more. */
#include <errno.h>
#include <string.h>

#include "launcher/migrate_launch.h"
#include "launcher/option.h"
#include "worker_sdk/base/str.h"

/* Options that ctrun refuses: then the line is not rewritten. */
static const char *why_not(const struct migrate_work *work,
                           const struct migrate_launch *launch)
{
    const struct migrate_given *nproc = migrate_options_find(launch,
                                                             OPTION_NPROC_PER_NODE);

    if (launch->is_path && !migrate_options_is_one_word(work, launch->python))
        return "the interpreter's variable may hold more than its name; quote it";
    if (migrate_options_find(launch, OPTION_LOGS_SPECS))
        return "--logs-specs names a Python plug-in, which ctrun cannot load";
    if (nproc && migrate_is(work, nproc->value, "xpu"))
        return "ctrun knows no xpu";
    return NULL;
}

static bool is_numbered_by_slurm(const struct migrate_work *work,
                                 const struct migrate_given *rank)
{
    return migrate_has(work, rank->value, "SLURM_NODEID") ||
           migrate_has(work, rank->value, "SLURM_PROCID");
}

static bool is_meeting(int id)
{
    return id == OPTION_RDZV_ENDPOINT || id == OPTION_RDZV_BACKEND ||
           id == OPTION_NODE_RANK || id == OPTION_MASTER_ADDR ||
           id == OPTION_MASTER_PORT;
}

static bool is_derived(const struct migrate_work *work,
                       const struct migrate_given *given)
{
    return is_meeting(given->id) || (given->id == OPTION_RDZV_ID &&
                                     (migrate_has(work, given->value, "SLURM_JOB") ||
                                      migrate_has(work, given->value, "RANDOM")));
}

/* NULL where Slurm tells ctrun all that the options say; else why they stay. "": there are none. */
static const char *why_kept(const struct migrate_work *work,
                            const struct migrate_place *place,
                            const struct migrate_launch *launch)
{
    const struct migrate_given *rank = migrate_options_find(launch, OPTION_NODE_RANK);
    const struct migrate_given *backend = migrate_options_find(launch,
                                                               OPTION_RDZV_BACKEND);
    const struct migrate_given *conf = migrate_options_find(launch, OPTION_RDZV_CONF);
    bool has_meeting = false;

    for (int i = 0; i < launch->given_count; i++)
        has_meeting |= is_meeting(launch->given[i].id);
    if (!launch->has_program)
        return "options may come from a variable; ctrun takes them as torchrun does";
    if (!has_meeting)
        return "";
    if (place->is_remote)
        return "ctrun --hosts=HOST,... starts all nodes with one command, without "
               "endpoint, rank and port";
    if (!place->is_step && !(rank && is_numbered_by_slurm(work, rank)))
        return "outside of a step nothing else says where to meet; ctrun takes them as "
               "torchrun does";
    if (place->is_one_node)
        return "this srun starts one node; one `srun ctrun` over all nodes needs no "
               "endpoint, rank and port";
    if (rank && !is_numbered_by_slurm(work, rank))
        return "the node rank is not Slurm's";
    if (backend && !migrate_is(work, backend->value, "c10d") &&
        !migrate_is(work, backend->value, "static"))
        return "the backend is another one";
    if (conf && migrate_has(work, conf->value, "is_host"))
        return "--rdzv-conf says which node serves";
    return NULL;
}

static const char *why_dropped(int id)
{
    switch (id) {
    case OPTION_NODE_RANK: return "Slurm numbers the nodes, and ctrun reads it";
    case OPTION_RDZV_BACKEND: return "c10d is what ctrun takes for several nodes";
    case OPTION_RDZV_ID: return "the run is named after job and step";
    default: return "ctrun takes the first node of the step, and a port of its own";
    }
}

/* Word i and the blanks in front of it, so that line ends behind it stay. Redirections between
 * words stay: `--id 1>log` keeps its blank, or what is left could become `2>log`. */
static int drop_word(struct migrate_work *work, const struct shell_range *words,
                     size_t i)
{
    size_t start = words[i].start;
    const size_t end = words[i].end;

    if (end == work->length || !strchr("<>", work->text[end]))
        while (start > words[i - 1].end && strchr(" \t\\\n", work->text[start - 1]))
            start--;
    return text_edits_add(&work->out->edits, start, end, "");
}

static int drop(struct migrate_work *work, const struct shell_range *words,
                const struct migrate_given *given, const char *why)
{
    const struct shell_range range = {words[given->first].start,
                                      words[given->last].end};
    char what[MIGRATE_SHOWN + 1];
    int rc = 0;

    for (size_t i = given->first; i <= given->last && rc == 0; i++)
        rc = drop_word(work, words, i);
    migrate_show(what, sizeof what, work, range.start, range.end);
    return rc < 0 ? rc
                  : migrate_note(work, MIGRATE_CHANGED, range.start, what, "goes: %s",
                                 why);
}

/* `ctrun`, with the interpreter that torchrun would have had. */
static int replace(struct migrate_work *work, const struct shell_range *words,
                   const struct migrate_launch *launch, const char *name)
{
    static const char torchrun[] = "torchrun";
    const size_t start = words[launch->first].start;
    const struct shell_range python = launch->python;
    char text[512];
    int rc = 0;

    if (!launch->is_path)
        rc = ct_copy(text, sizeof text, name);
    else if (migrate_ends(work, python, "/torchrun")) {
        const char last = work->text[python.end - 1];
        const size_t quote = last == '"' || last == '\'';
        const size_t head = python.end - quote - python.start - strlen(torchrun);

        rc = ct_format(text, sizeof text, "env PYTHON_EXEC=%.*spython%.*s %s",
                       (int)head, work->text + python.start, (int)quote,
                       work->text + python.end - quote, name);
    } else {
        rc = ct_format(text, sizeof text, "env PYTHON_EXEC=%.*s %s",
                       (int)(python.end - python.start), work->text + python.start,
                       name);
    }
    return rc < 0 ? 1
                  : text_edits_add(&work->out->edits, start, words[launch->last].end,
                                   text);
}

int migrate_rewrite(struct migrate_work *work, const struct shell_range *words,
                    const struct migrate_place *place,
                    const struct migrate_launch *launch)
{
    const struct migrate_given *use_env = migrate_options_find(launch, OPTION_USE_ENV);
    const char *kept = why_kept(work, place, launch);
    const char *name = launch->is_old && !use_env ? "ctrun-launch" : "ctrun";
    const struct shell_range range = {words[launch->first].start,
                                      words[launch->last].end};
    char what[MIGRATE_SHOWN + 1];
    const char *why = why_not(work, launch);
    int rc;

    if (why)
        return migrate_note(work, MIGRATE_LEFT, range.start, "torchrun", "stays: %s",
                            why);
    rc = replace(work, words, launch, name);
    migrate_show(what, sizeof what, work, range.start, range.end);
    if (rc == 1)
        return migrate_note(work, MIGRATE_LEFT, range.start, what,
                            "the path of its interpreter is too long");
    if (rc == 0)
        rc = migrate_note(
            work, MIGRATE_CHANGED, range.start, what, "becomes %s: %s%s", name,
            !launch->is_old ? "it takes the same options"
            : use_env       ? "workers find LOCAL_RANK in the environment"
                            : "it gives the program --local-rank=N in the same way",
            launch->is_path ? "; PYTHON_EXEC keeps the interpreter" : "");
    for (int i = 0; i < launch->given_count && rc == 0; i++) {
        const struct migrate_given *given = &launch->given[i];

        if (given->id == OPTION_USE_ENV)
            rc = drop(work, words, given, "ctrun always does so");
        else if (!kept && is_derived(work, given))
            rc = drop(work, words, given, why_dropped(given->id));
    }
    if (rc == 0 && place->is_step && !place->is_one_node && launch->has_program &&
        !migrate_options_find(launch, OPTION_NNODES) &&
        !migrate_options_find(launch, OPTION_STANDALONE))
        rc = migrate_note(
            work, MIGRATE_HINT, range.start, what,
            "has no --nnodes: on several nodes torchrun made a world of "
            "each, ctrun makes one of all; --standalone keeps them apart");
    work->out->launches++;
    work->has_kept |= kept && *kept;
    if (rc == 0 && kept && *kept)
        rc = migrate_note(work, MIGRATE_HINT, range.start, what, "its options stay: %s",
                          kept);
    return rc < 0 ? rc : text_edits_add(&work->seen, range.start, range.end, "");
}
