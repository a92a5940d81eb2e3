/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/habits.h"

#include <ctype.h>
#include <stddef.h>

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
         "--ntasks-per-node --nproc-per-host",
         "--nproc-per-node=N, the workers of one node"},
        {"--num-processes --ntasks",
         "--nproc-per-node=N, the workers of one node, not of all"},
        {"-N --num-nodes --num-machines --nodes", "--nnodes=N"},
        {"--machine-rank", "--node-rank=N"},
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
