/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers count as asking when workers continue without a lost one. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/worker/worker_group_private.h"
#include "tests/lib/test.h"

/* Starts a process that leads a session, as a worker does; it does when start() returns. */
static pid_t start(void)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    if ((pid = fork()) == 0) {
        (void)setsid();
        (void)!write(ready[1], "", 1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Its question may arrive while it is being ended: the other nodes must not learn of a worker that
 * is about to end. */
TEST(a_new_worker_that_is_ended_for_the_move_of_the_store_cannot_ask)
{
    struct worker workers[3] = {
        {.rank = 4, .is_new = true}, {.rank = 5, .is_new = true}, {.rank = 6}};
    struct worker_group group = {.workers = workers, .count = 3};
    int status;

    for (int i = 0; i < 3; i++) {
        workers[i].state = WORKER_RUNNING;
        workers[i].pid = start();
    }
    assert_true(worker_group_ask(&group, 5, workers[1].pid)); /* it has connected */
    worker_group_renew_new(&group);
    assert_true(worker_group_is_renewed(&group, 4));
    assert_false(worker_group_is_renewed(&group, 5));
    assert_false(worker_group_is_renewed(&group, 6));
    assert_false(worker_group_ask(&group, 4, workers[0].pid));
    assert_true(worker_group_ask(&group, 6, workers[2].pid));
    assert_int_equal(waitpid(workers[0].pid, &status, 0), workers[0].pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(waitpid(workers[i].pid, &status, WNOHANG), 0);
        assert_int_equal(kill(workers[i].pid, SIGKILL), 0);
        assert_int_equal(waitpid(workers[i].pid, &status, 0), workers[i].pid);
    }
}
