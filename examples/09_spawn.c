/* SPDX-License-Identifier: Apache-2.0 */
/* A program that starts its own workers: started by hand, it executes `ctrun` with itself as the
 * program. Started by ctrun, torchrun or srun, it is a worker.
 *
 *     cc 09_spawn.c -o spawn $(pkg-config --cflags --libs ctrun)
 *     ./spawn 4 */
#include <ctrun.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int become_ctrun(char **argv, const char *workers)
{
    char option[32];
    char *const words[] = {"ctrun", "--standalone", option, argv[0], NULL};

    snprintf(option, sizeof option, "--nproc-per-node=%s", workers);
    execvp(words[0], words);
    perror("ctrun");
    return 127;
}

int main(int argc, char **argv)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;
    int64_t sum = 1;

    if (!getenv("RANK"))
        return become_ctrun(argv, argc > 1 ? argv[1] : "auto");
    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    if (ctrun_all_reduce(world, &sum, &sum, 1, CTRUN_I64, CTRUN_SUM, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    if (ctrun_rank(session) == 0)
        printf("%lld workers\n", (long long)sum);
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
