/* SPDX-License-Identifier: Apache-2.0 */
/* The same measurement with MPI; all_reduce.py compiles it with whichever mpicc there is.
 * usage: all_reduce_mpi ROUNDS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const int sizes[] = {0,       4,       8,        1024,     65536,
                            1 << 20, 4799528, 25 << 20, 100 << 20};
static const int repeats[] = {200, 200, 200, 200, 100, 40, 20, 4, 4};
enum {
    SIZES = sizeof sizes / sizeof *sizes
};

int main(int argc, char **argv)
{
    float *data = malloc(100 << 20);
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long round = 0; round < rounds; round++) {
        for (int size = 0; size < SIZES; size++) {
            int count = sizes[size] / (int)sizeof *data;
            for (int i = 0; i < repeats[size]; i++) {
                double start;
                for (int k = 0; k < count; k++)
                    data[k] = 1e-3f * (float)i;
                MPI_Barrier(MPI_COMM_WORLD);
                start = MPI_Wtime();
                if (count == 0)
                    MPI_Barrier(MPI_COMM_WORLD);
                else
                    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM,
                                  MPI_COMM_WORLD);
                if (rank == 0)
                    printf("%d %.3f\n", sizes[size], (MPI_Wtime() - start) * 1e6);
            }
        }
    }
    MPI_Finalize();
    free(data);
    return 0;
}
