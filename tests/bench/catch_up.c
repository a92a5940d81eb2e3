/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a new rank gets its state from a peer's memory (ctrun_group_catch_up(), checksums
 * included), beside the same bytes through a bare TCP connection over loopback, in turn.
 *
 * usage: catch_up MIB TURNS
 * Prints "KIND GIGABYTES_PER_SECOND" of each turn, on rank 0: tcp and shm, link, and broadcast: tcp without the
 * checksums. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    PIECE = 1 << 20,
};

struct plan {
    size_t bytes;
    uint64_t turns;
    int listener;
    struct sockaddr_in addr;
};

static void tell(int rank, const char *kind, size_t bytes, uint64_t start_ns)
{
    if (rank == 0)
        printf("%s %.3f\n", kind, (double)bytes / (double)(ct_now_ns() - start_ns));
}

static void catch_up(struct ctrun_group *group, const char *kind, char *data,
                     const struct plan *plan)
{
    struct ctrun_tensor state = CTRUN_TENSOR_INIT;
    const int rank = ctrun_group_rank(group);
    uint64_t steps = rank == 0;
    struct ctrun_error err;
    uint64_t start_ns;

    state.name = "state";
    state.dtype = CTRUN_U8;
    state.dims = 1;
    state.sizes[0] = (int64_t)plan->bytes;
    state.data = data;
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    start_ns = ct_now_ns();
    CHECK_OK(ctrun_group_catch_up(group, &steps, &state, 1, &err));
    tell(rank, kind, plan->bytes, start_ns);
    CHECK(steps == 1 && data[plan->bytes - 1] == 7);
}

static void send_bare(struct ctrun_group *group, char *data, const struct plan *plan)
{
    struct ctrun_error err;
    uint64_t start_ns;

    CHECK_OK(ctrun_barrier(group, NULL, &err));
    start_ns = ct_now_ns();
    CHECK_OK(ctrun_broadcast(group, data, data, plan->bytes, CTRUN_U8, 0, NULL, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    tell(ctrun_group_rank(group), "broadcast", plan->bytes, start_ns);
}

/* The receiver sends a byte when it has all. */
static void pass(struct ctrun_group *group, int fd, char *data, const struct plan *plan)
{
    const int rank = ctrun_group_rank(group);
    struct ctrun_error err;
    uint64_t start_ns;
    char end = 0;

    CHECK_OK(ctrun_barrier(group, NULL, &err));
    start_ns = ct_now_ns();
    for (size_t done = 0; done < plan->bytes;) {
        const size_t left = plan->bytes - done;
        const size_t want = left < PIECE ? left : PIECE;
        const ssize_t n = rank == 0 ? send(fd, data + done, want, MSG_NOSIGNAL)
                                    : recv(fd, data + done, want, 0);

        CHECK(n > 0);
        done += (size_t)n;
    }
    CHECK((rank == 0 ? recv(fd, &end, 1, 0) : send(fd, &end, 1, MSG_NOSIGNAL)) == 1);
    tell(rank, "link", plan->bytes, start_ns);
}

static int body(int rank, void *context)
{
    const struct plan *plan = context;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *shm = ranks_open(rank, NULL, &options);
    struct ctrun_group *tcp;
    char *data = aligned_alloc(4096, plan->bytes);
    int fd;

    options.shm = 0;
    tcp = ranks_open(rank, NULL, &options);
    CHECK(data);
    memset(data, rank == 0 ? 7 : 0, plan->bytes);
    fd = rank == 0 ? accept(plan->listener, NULL, NULL)
                   : socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(rank == 0 ||
          connect(fd, (const struct sockaddr *)&plan->addr, sizeof plan->addr) == 0);
    for (uint64_t turn = 0; turn < plan->turns; turn++) {
        pass(tcp, fd, data, plan);
        send_bare(tcp, data, plan);
        catch_up(tcp, "tcp", data, plan);
        catch_up(shm, "shm", data, plan);
    }
    close(fd);
    free(data);
    ctrun_group_close(tcp);
    ctrun_group_close(shm);
    return 0;
}

int main(int argc, char **argv)
{
    struct plan plan = {.addr = {.sin_family = AF_INET}};
    socklen_t length = sizeof plan.addr;
    uint64_t mib;

    if (argc != 3 || ct_parse_u64(argv[1], 1, 4096, &mib) < 0 ||
        ct_parse_u64(argv[2], 1, 1000, &plan.turns) < 0) {
        fprintf(stderr, "usage: catch_up MIB TURNS\n");
        return 2;
    }
    plan.bytes = mib << 20;
    plan.addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    plan.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (plan.listener < 0 ||
        bind(plan.listener, (struct sockaddr *)&plan.addr, sizeof plan.addr) < 0 ||
        listen(plan.listener, 1) < 0 ||
        getsockname(plan.listener, (struct sockaddr *)&plan.addr, &length) < 0) {
        perror("catch_up: listen on loopback");
        return 1;
    }
    return ranks_run(2, body, &plan) ? 1 : 0;
}
