/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that gives its agent checkpoints to hold.
 *
 * usage: hold FILE MIB SAVES OUT
 *
 * Writes JSON into OUT: milliseconds of the clock and of this thread's processor time that each save kept the
 * worker, from open to commit, and those of a memcpy() of as many bytes beside each. The memory that is copied from
 * is written to before each, as by a step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/took.h"
#include "worker_sdk/include/ctrun.h"

static void print(FILE *out, const char *name, struct took from)
{
    const struct took took = took_end(from);

    fprintf(out, "\"%s_ms\": %.2f, \"%s_cpu_ms\": %.2f", name, took.wall_ms, name,
            took.cpu_ms);
}

static int save(struct ctrun_session *session, const char *path, const void *data,
                size_t bytes, struct ctrun_error *err)
{
    struct ctrun_hold *hold;
    int rc = ctrun_hold_open(&hold, session, path, NULL, err);

    if (rc == 0)
        rc = ctrun_hold_write(hold, data, bytes, err);
    if (rc == 0)
        rc = ctrun_hold_commit(hold, err);
    ctrun_hold_close(hold);
    return rc;
}

int main(int argc, char **argv)
{
    struct ctrun_session *session;
    struct ctrun_error err = {.text = ""};
    uint8_t *data, *copy;
    struct took from;
    size_t bytes;
    FILE *out;

    if (argc != 5)
        return 2;
    bytes = strtoull(argv[2], NULL, 10) << 20;
    data = malloc(bytes);
    copy = malloc(bytes);
    out = fopen(argv[4], "w");
    if (!data || !copy || !out)
        return 2;
    memset(copy, 1, bytes);
    if (ctrun_open(&session, NULL, &err) < 0)
        goto fail;
    fprintf(out, "[");
    for (long i = 0; i < strtol(argv[3], NULL, 10); i++) {
        memset(data, (int)i + 2, bytes);
        from = took_begin();
        memcpy(copy, data, bytes);
        fprintf(out, "%s{", i ? ", " : "");
        print(out, "memcpy", from);
        memset(data, (int)i + 3, bytes);
        fprintf(out, ", ");
        from = took_begin();
        if (save(session, argv[1], data, bytes, &err) < 0)
            goto fail;
        print(out, "stall", from);
        fprintf(out, "}");
        if (ctrun_hold_wait(session, 300000, &err) < 0)
            goto fail;
    }
    fprintf(out, "]\n");
    fclose(out);
    ctrun_close(session);
    free(data);
    free(copy);
    return 0;
fail:
    fprintf(stderr, "hold: %s\n", err.text);
    return 1;
}
