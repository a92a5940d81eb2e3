/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that uses the store and groups through <ctrun.h> only, with any launcher and with any
 * store at MASTER_ADDR:MASTER_PORT. Prints what it got, or fails as a worker. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_sdk/include/ctrun.h"

/* Counter, value and wait: what each rank gets from the others through the store. */
static int use_store(struct ctrun_session *session, struct ctrun_error *err)
{
    static const char *const done[] = {"sdk/done"};
    struct ctrun_store *store;
    int64_t arrived = 0;
    void *value = NULL;
    size_t length = 0;
    int rc;

    if ((rc = ctrun_store_open(&store, session, err)) < 0)
        return rc;
    if (ctrun_rank(session) == 0)
        rc = ctrun_store_set(store, "sdk/word", "hello\0world", 11, err);
    if (rc == 0 && (rc = ctrun_store_get(store, "sdk/word", &value, &length, err)) == 0)
        rc = ctrun_store_add(store, "sdk/arrived", 1, &arrived, err);
    if (rc == 0 && arrived == ctrun_world_size(session))
        rc = ctrun_store_set(store, done[0], "", 0, err);
    if (rc == 0)
        rc = ctrun_store_wait(store, done, 1, 60000, err);
    if (rc == 0)
        printf("word %zu %s deleted %d\n", length, (char *)value + 6,
               ctrun_store_delete(store, "sdk/absent", NULL));
    free(value);
    ctrun_store_close(store);
    return rc;
}

/* Sum of all ranks' numbers over a group; nothing where this rank is no member. */
static int use_group(struct ctrun_session *session, const char *name, const int *ranks,
                     size_t count, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    int64_t sum = ctrun_rank(session) + 1;
    int rc;

    options.ranks = ranks;
    options.rank_count = count;
    options.timeout_ms = 60000;
    if ((rc = ctrun_group_open(&group, session, &options, err)) < 0 || !group)
        return rc;
    if ((rc = ctrun_all_reduce(group, &sum, &sum, 1, CTRUN_I64, CTRUN_SUM, NULL,
                               err)) == 0)
        printf("%s %d of %d sum %lld\n", name, ctrun_group_rank(group),
               ctrun_group_size(group), (long long)sum);
    ctrun_group_close(group);
    return rc;
}

/* A child cannot stand in for its rank. */
static void use_group_in_a_child(struct ctrun_session *session)
{
    struct ctrun_group *group;
    struct ctrun_error err;
    int status = -1;
    const pid_t child = fork();

    if (child == 0)
        _exit(ctrun_group_open(&group, session, NULL, &err) != CTRUN_E_USAGE);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        printf("child %d\n", status);
}

int main(void)
{
    static const int outer[] = {0, 2};
    struct ctrun_options options = CTRUN_OPTIONS_INIT;
    struct ctrun_session *session, *second = NULL;
    struct ctrun_error err;
    int rc;

    options.timeout_ms = 60000;
    if (ctrun_open(&session, &options, &err) < 0)
        return ctrun_fail_worker(&err);
    use_group_in_a_child(session);
    if ((rc = use_store(session, &err)) == 0 &&
        (rc = use_group(session, "world", NULL, 0, &err)) == 0 &&
        (rc = use_group(session, "outer", outer, 2, &err)) == 0)
        rc = use_group(session, "again", NULL, 0, &err);
    if (rc == 0 && (rc = ctrun_open(&second, &options, &err)) == 0)
        rc = use_group(second, "beside", NULL, 0, &err);
    ctrun_close(session);
    if (rc == 0 && (rc = ctrun_open(&session, &options, &err)) == 0) {
        rc = use_group(session, "later", NULL, 0, &err);
        ctrun_close(session);
    }
    ctrun_close(second);
    if (rc == 0)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return ctrun_fail_worker(&err);
}
