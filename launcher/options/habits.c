/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/habits.h"

#include <ctype.h>
#include <limits.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

struct habit {
    const char *words; /* separated by blanks */
    const char *ours;
};

static const char *find(const struct habit *habits, const char *typed)
{
    for (; habits->words; habits++) {
        const char *words = habits->words;
        size_t length;

        for (const char *word; (word = ct_next_field(&words, ' ', &length));)
            if (strlen(typed) == length && strncmp(word, typed, length) == 0)
                return habits->ours;
    }
    return NULL;
}

const char *habits_option(const char *typed)
{
    static const struct habit habits[] = {
        {"-n -np --np --nprocs --ngpus --num-gpus --gpus --gpus-per-node "
         "--ntasks-per-node --nproc-per-host --procs --workers --num-workers --devices",
         "--nproc-per-node=N, the workers of one node"},
        {"--num-processes --ntasks --world-size",
         "--nproc-per-node=N, the workers of one node, not of all"},
        {"-N --num-nodes --num-machines --nodes", "--nnodes=N"},
        {"--machine-rank --rank", "--node-rank=N"},
        {"-V", "--version"},
        {"--main-process-ip", "--master-addr=HOST"},
        {"--main-process-port", "--master-port=PORT"},
        {"-H", "--hosts=HOST,..."},
        {"--report-bindings --display-map",
         "--dry-run, which shows each worker's CPUs"},
        {"-f --hostfile -machinefile --machinefile", "--hosts-file=FILE"},
        {NULL, NULL},
    };
    char name[32];
    size_t length = strcspn(typed, "=");

    while (typed[1] != '-' && length > 2 && isdigit((unsigned char)typed[length - 1]))
        length--; /* -np4 */
    if (ct_format(name, sizeof name, "%.*s", (int)length, typed) < 0)
        return NULL;
    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    return find(habits, name);
}

const char *habits_verb(const char *word)
{
    static const struct habit habits[] = {
        {"top ps list ls show info state jobs",
         "status, which shows runs and their workers"},
        {"kill cancel abort terminate end quit",
         "stop, or signal KILL --rank N for one worker"},
        {"log tail attach output", "logs"},
        {"scale", "resize"},
        {NULL, NULL},
    };

    return find(habits, word);
}

/* True when program and arguments are in one word. */
static bool has_arguments(const char *name)
{
    const size_t word = strcspn(name, " \t");
    char first[PATH_MAX];

    return name[word] && ct_format(first, sizeof first, "%.*s", (int)word, name) >= 0 &&
           access(first, F_OK) == 0;
}

const char *habits_program(const char *name)
{
    static const struct habit habits[] = {
        {"run launch start help version",
         "; ctrun has no verbs: ctrun [options] PROGRAM [arguments ...]"},
        {"True true False false",
         "; an option before it that is a flag takes no value"},
        {NULL, NULL},
    };
    const size_t key = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    const char *found = find(habits, name);

    if (found)
        return found;
    if (ct_starts_with(name, "\xe2\x80\x93") || ct_starts_with(name, "\xe2\x80\x94"))
        return "; it begins with a long dash, and options begin with two short ones: "
               "--";
    if (ct_starts_with(name, "~/") || *name == '$')
        return "; the shell has not replaced its beginning: it does not do that "
               "between "
               "quotes";
    if (key > 0 && name[key] == '=')
        return "; variables come before ctrun: NAME=VALUE ctrun ...";
    return has_arguments(name)
               ? "; program and arguments are one word: leave out the quotes"
               : "";
}
