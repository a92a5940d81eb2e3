/* SPDX-License-Identifier: Apache-2.0 */
/* How long a rank that waits for another one takes to get the error when that one dies or ends the group.
 *
 * usage: death shm|tcp kill|abort TURNS   four forked ranks; prints the milliseconds of each of the three others:
 *                                         from SIGKILL, or from ctrun_group_abort(), to the error of the call
 *        death shm|tcp lose               a worker of ctrun --survive=sdk; prints "lost ERROR SHRUNK": the times (ns
 *                                         since 1970) of the error, and of the end of ctrun_group_shrink() */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/lib/ranks.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    SIZE = 4,
    VICTIM = 2,
    COUNT = 65536,
    CALLS = 1,  /* counter: calls of rank 0 */
    READY = 2,  /* counter: ranks that make the call which the victim does not make */
    FAILED = 3, /* counter: ranks that got an error */
    ASLEEP_MS = 20,
};

struct plan {
    bool shm, is_abort;
    _Atomic uint64_t *begin_ns; /* shared */
};

static float data[COUNT];

static int call(struct ctrun_group *group, struct ctrun_error *err)
{
    return ctrun_all_reduce(group, data, data, COUNT, CTRUN_F32, CTRUN_SUM, NULL, err);
}

/* Ends the group when the others sleep in their call. */
static void end_group(struct ctrun_group *group, const struct plan *plan)
{
    ranks_await(READY, SIZE - 1);
    (void)nanosleep(&(struct timespec){.tv_nsec = ASLEEP_MS * 1000000L}, NULL);
    *plan->begin_ns = ct_now_ns();
    ctrun_group_abort(group);
}

static int wait_for_end(int rank, void *context)
{
    const struct plan *plan = context;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};
    int rc = 0;

    options.shm = plan->shm;
    group = ranks_open(rank, NULL, &options);
    CHECK_OK(call(group, &err));
    if (plan->is_abort && rank == VICTIM)
        end_group(group, plan);
    else {
        ranks_signal(READY);
        while ((rc = call(group, &err)) == 0)
            if (rank == 0)
                ranks_signal(CALLS);
        printf("%.3f\n", (double)(ct_now_ns() - *plan->begin_ns) / 1e6);
        CHECK(rc == (plan->is_abort ? CTRUN_E_ABORTED : CTRUN_E_PEER_LOST));
        ranks_signal(FAILED);
    }
    ranks_await(FAILED, SIZE - 1); /* who leaves earlier is one more loss */
    ctrun_group_close(group);
    return 0;
}

static int take_turn(struct plan *plan)
{
    struct ranks *ranks = ranks_start(SIZE, wait_for_end, plan);
    int statuses[SIZE];

    if (!plan->is_abort) {
        ranks_await(CALLS, 10);
        *plan->begin_ns = ct_now_ns();
        kill(ranks_pid(ranks, VICTIM), SIGKILL);
    }
    return ranks_finish(ranks, statuses) == !plan->is_abort ? 0 : -1;
}

static uint64_t now_since_1970_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Until the run is stopped. */
static int work(const struct plan *plan)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_session *session;
    struct ctrun_group *group, *next;
    struct ctrun_error err;

    options.shm = plan->shm;
    CHECK_OK(ctrun_open(&session, NULL, &err));
    CHECK_OK(ctrun_group_open(&group, session, &options, &err));
    printf("opened\n");
    for (;;) {
        uint64_t error_ns;
        fflush(stdout);
        while (call(group, &err) == 0)
            ;
        error_ns = now_since_1970_ns();
        CHECK(ctrun_may_shrink(session));
        CHECK_OK(ctrun_group_shrink(&next, session, group, NULL, &err));
        printf("lost %llu %llu\n", (unsigned long long)error_ns,
               (unsigned long long)now_since_1970_ns());
        ctrun_group_close(group);
        group = next;
    }
}

int main(int argc, char **argv)
{
    struct plan plan;
    uint64_t turns = 0;

    if (argc < 3 || (argc == 4 && ct_parse_u64(argv[3], 1, 10000, &turns) < 0)) {
        fprintf(stderr, "usage: death shm|tcp kill|abort TURNS, death shm|tcp lose\n");
        return 2;
    }
    plan = (struct plan){.shm = strcmp(argv[1], "shm") == 0,
                         .is_abort = strcmp(argv[2], "abort") == 0};
    if (strcmp(argv[2], "lose") == 0)
        return work(&plan);
    plan.begin_ns = mmap(NULL, sizeof *plan.begin_ns, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(plan.begin_ns != MAP_FAILED);
    for (uint64_t i = 0; i < turns; i++)
        CHECK(take_turn(&plan) == 0);
    return 0;
}
