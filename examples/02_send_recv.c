/* SPDX-License-Identifier: Apache-2.0 */
/* Point to point: a number goes around the ring of ranks, and each adds its own.
 *
 *     cc 02_send_recv.c -o send_recv $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=4 ./send_recv */
#include <ctrun.h>
#include <inttypes.h>
#include <stdio.h>

/* Rank 0 starts the number and gets it back; the others pass it on. */
static int pass_around(struct ctrun_group *world, int64_t *number,
                       struct ctrun_error *err)
{
    int rank = ctrun_group_rank(world), size = ctrun_group_size(world);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int rc;

    if (size == 1)
        return 0;
    if (rank == 0 &&
        (rc = ctrun_send(world, number, sizeof *number, CTRUN_U8, next, NULL, err)) < 0)
        return rc;
    if ((rc = ctrun_recv(world, number, sizeof *number, CTRUN_U8, previous, NULL,
                         err)) < 0)
        return rc;
    *number += rank;
    return rank == 0
               ? 0
               : ctrun_send(world, number, sizeof *number, CTRUN_U8, next, NULL, err);
}

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;
    int64_t number = 0;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0 ||
        pass_around(world, &number, &err) < 0)
        return ctrun_fail_worker(&err);
    if (ctrun_rank(session) == 0)
        printf("sum of all ranks: %" PRId64 "\n", number);
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
