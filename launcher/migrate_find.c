/* SPDX-License-Identifier: Apache-2.0 */
/* Where the launcher is in a command, and what stands in front of it. */
#include <string.h>

#include "launcher/migrate_launch.h"

/* The launcher that begins at word i: true, and launch->last. */
static bool begins_launcher(const struct migrate_work *work,
                            const struct shell_range *words, size_t count, size_t i,
                            struct migrate_launch *launch)
{
    size_t at = i + 1;

    launch->first = launch->last = i;
    if (migrate_is(work, words[i], "torchrun"))
        return true;
    if (migrate_ends(work, words[i], "/torchrun") &&
        !migrate_is_option(work, words[i]) && !migrate_assigned(work, words[i]) &&
        !migrate_has(work, words[i], "(") && !migrate_has(work, words[i], "`")) {
        launch->is_path = true;
        launch->python = words[i];
        return true;
    }
    if (!migrate_is_python(work, words[i]) && !migrate_is_variable(work, words[i]))
        return false;
    at += at < count && migrate_is(work, words[at], "-u");
    if (at + 1 >= count || !migrate_is(work, words[at], "-m"))
        return false;
    launch->is_old = migrate_is(work, words[at + 1], "torch.distributed.launch");
    if (!launch->is_old && !migrate_is(work, words[at + 1], "torch.distributed.run") &&
        !migrate_is(work, words[at + 1], "torch.distributed.elastic.launch"))
        return false;
    launch->last = at + 1;
    launch->is_path = !migrate_is(work, words[i], "python") &&
                      !migrate_is(work, words[i], "python3");
    launch->python = words[i];
    return true;
}

static const char keywords[] = "do then else elif if while until ! { time";
static const char wrappers[] = "srun env exec nohup time timeout nice ionice numactl "
                               "stdbuf setsid taskset ssh";

/* Options of srun whose value may be called torchrun. */
static const char named[] =
    "-J --job-name -o --output -e --error -i --input -D --chdir";

bool migrate_is_talker(const struct migrate_work *work, struct shell_range word)
{
    return migrate_is_any(work, word, "echo printf which type hash :");
}

/* Words of srun that make its step one node of several. */
static void heed_srun_word(const struct migrate_work *work, struct shell_range word,
                           struct shell_range next, struct migrate_place *place)
{
    static const char *const alone[] = {"-w",  "--nodelist", "-r",  "--relative",
                                        "-N1", "--nodes=1",  "-n1", "--ntasks=1"};
    static const char *const ones[] = {"-N", "--nodes", "-n", "--ntasks"};

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        place->is_one_node |= migrate_is(work, word, alone[i]) ||
                              (strlen(alone[i]) > 4 && i < 4 &&
                               migrate_begins(work, word, alone[i]));
    place->is_one_node |= migrate_begins(work, word, "-w");
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        place->is_one_node |= migrate_is(work, word, ones[i]) &&
                              migrate_is(work, next, "1");
}

bool migrate_find_launcher(const struct migrate_work *work,
                           const struct shell_range *words, size_t count,
                           struct migrate_place *place, struct migrate_launch *launch)
{
    bool is_wrapped = false;
    bool in_srun = false;
    bool after_option = false;
    int loose =
        0; /* words of a wrapper that are neither its options nor their values */

    for (size_t i = 0; i < count; i++) {
        const struct shell_range word = words[i];

        *launch = (struct migrate_launch){0};
        if (!(in_srun && migrate_is_any(work, words[i - 1], named)) &&
            begins_launcher(work, words, count, i, launch))
            return true;
        if (migrate_is_talker(work, word))
            return false;
        if ((!is_wrapped && migrate_is_any(work, word, keywords)) ||
            migrate_assigned(work, word))
            continue;
        if (migrate_is_any(work, word, wrappers) || migrate_ends(work, word, "/srun")) {
            in_srun = migrate_ends(work, word, "srun");
            place->is_step |= in_srun;
            place->is_remote |= migrate_is(work, word, "ssh");
            /* timeout DURATION, taskset MASK, ssh HOST */
            loose = migrate_is_any(work, word, "timeout taskset ssh");
            is_wrapped = true;
            after_option = false;
            continue;
        }
        if (!is_wrapped)
            return false;
        if (in_srun && i + 1 < count)
            heed_srun_word(work, word, words[i + 1], place);
        if (migrate_is_option(work, word)) {
            after_option = !migrate_has(work, word, "=");
        } else if (after_option || migrate_is_dynamic(work, word)) {
            after_option = false;
        } else if (loose-- <= 0) {
            return false;
        }
    }
    return false;
}

size_t migrate_find_head(const struct migrate_work *work,
                         const struct shell_range *words, size_t count)
{
    size_t i = 0;

    while (i < count && (migrate_is_any(work, words[i], keywords) ||
                         migrate_assigned(work, words[i])))
        i++;
    return i;
}
