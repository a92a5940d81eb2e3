/* SPDX-License-Identifier: Apache-2.0 */
/* Reads --stage and the options that belong to it. */
#include <limits.h>
#include <sys/stat.h>

#include "launcher/config/host_slot.h"
#include "launcher/ssh/ssh_stage.h"
#include "launcher/stage/stage_map.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

/* The staged path of PROGRAM, by its name or else by the file that a link of that name points to;
 * -ENOENT: not staged. Only for the name of a file: no module, and no name to look up in PATH. */
static int find_program(char *dst, size_t size, const struct stage_manifest *manifest,
                        const struct options *options, const char *cwd)
{
    const char *word = options->program[0];
    char path[PATH_MAX];
    char real[PATH_MAX];
    struct stat info;

    if (!word /* --role has the commands */ || options->values[OPTION_MODULE].is_on ||
        (!strchr(word, '/') && (options->values[OPTION_NO_PYTHON].is_on ||
                                stat(word, &info) < 0 || !S_ISREG(info.st_mode))) ||
        stage_map_normalise(path, sizeof path, cwd, word) < 0)
        return -1;
    if (stage_map_path(dst, size, manifest, path) == 0)
        return 0;
    return realpath(path, real) ? stage_map_path(dst, size, manifest, real) : -1;
}

/* Notes where PROGRAM is in argv: every host's command line ends with PROGRAM and its arguments. */
static int note_program(struct stage_manifest *manifest, const struct options *options,
                        char *const *argv, const char *cwd)
{
    char path[PATH_MAX] = "";
    uint32_t count = 0;

    if (find_program(path, sizeof path, manifest, options, cwd) < 0 ||
        !stage_path_is_safe(path))
        path[0] = '\0';
    while (argv[count])
        count++;
    manifest->word = count - (uint32_t)options->program_count;
    return (manifest->program = ct_strdup(path)) ? 0 : -1;
}

int ssh_stage_plan(struct ssh_stage_plan *plan, const struct options *options,
                   char *const *argv, const char *cwd, struct ctrun_error *err)
{
    const char *dir = option_text(options, OPTION_STAGE_DIR);
    int rc;

    if (!option_has_text(options, OPTION_STAGE))
        return 0;
    if (*dir && *dir != '/')
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--stage-dir=%.200s: must be an absolute path: it is a folder of "
            "each host",
            dir);
    rc = stage_scan_open(&plan->scan, &plan->manifest,
                         option_text(options, OPTION_STAGE), cwd, err);
    if (rc < 0)
        return rc;
    plan->manifest.is_removed = options->values[OPTION_STAGE_REMOVE].is_on;
    if (!(plan->manifest.dir = ct_strdup(dir)) ||
        note_program(&plan->manifest, options, argv, cwd) < 0)
        return ct_fail(err, CTRUN_E_STAGE, "--stage: out of memory");
    return 0;
}

int ssh_stage_check(const struct options *options, struct ctrun_error *err)
{
    if (host_slot_get()->is_given || !option_has_text(options, OPTION_STAGE))
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "--stage=%.200s: needs --hosts: it copies over the ssh connections "
                   "of --hosts, and these nodes were started in another way; under "
                   "Slurm: sbcast, or ctrun --hosts=... in place of srun ctrun",
                   option_text(options, OPTION_STAGE));
}

void ssh_stage_plan_deinit(struct ssh_stage_plan *plan)
{
    stage_scan_close(plan->scan);
    stage_manifest_deinit(&plan->manifest);
    plan->scan = NULL;
}
