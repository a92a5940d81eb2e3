/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: every rank gives a vector and gets the sum of all of them.
 *
 *     cc 03_all_reduce.c -o all_reduce $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=4 ./all_reduce */
#include <ctrun.h>
#include <stdio.h>

enum {
    COUNT = 1 << 20
};

static float data[COUNT];

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;
    int rank, size;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    rank = ctrun_group_rank(world);
    size = ctrun_group_size(world);
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)(rank + 1);
    if (ctrun_all_reduce(world, data, data, COUNT, CTRUN_F32, CTRUN_SUM, NULL, &err) <
        0)
        return ctrun_fail_worker(&err);
    for (int i = 0; i < COUNT; i++) {
        if (data[i] != (float)(size * (size + 1) / 2)) {
            fprintf(stderr, "rank %d: element %d is %g\n", rank, i, (double)data[i]);
            return 1;
        }
    }
    if (rank == 0)
        printf("1 + ... + %d = %g, on every rank, %d times\n", size, (double)data[0],
               COUNT);
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
