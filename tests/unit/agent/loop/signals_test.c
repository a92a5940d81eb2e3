/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/loop/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "tests/lib/test.h"

static void stop_loop(void *context, int signal, pid_t sender)
{
    assert_int_equal(signal, SIGTERM);
    assert_int_equal(sender, getpid());
    loop_stop(context);
}

static bool is_blocked(int signal)
{
    sigset_t mask;

    (void)sigprocmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, signal) == 1;
}

TEST(a_delayed_signal_is_handled_later)
{
    const int list[] = {SIGTERM};
    struct signals *signals;
    struct loop *loop;

    assert_int_equal(loop_create(&loop), 0);
    signals_hold();
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_int_equal(signals_open(&signals, loop, list, 1, stop_loop, loop), 0);
    loop_run(loop);
    signals_close(signals);
    assert_int_equal(loop_destroy(loop), 0);
    assert_false(is_blocked(SIGTERM));
}

TEST(a_process_that_ends_before_is_not_killed_by_it)
{
    signals_hold();
    assert_int_equal(kill(getpid(), SIGINT), 0);
    signals_close(NULL);
    assert_false(is_blocked(SIGINT));
}
