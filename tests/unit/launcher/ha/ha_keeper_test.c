/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent makes of a keeper that ends. The keeper itself is in tests/cli/test_ha.py. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/ha/ha_keeper.h"
#include "tests/lib/test.h"

TEST(a_keeper_that_ends_before_its_answer_is_not_waited_for)
{
    const struct ha_keeper_request request = {.verb = HA_KEEPER_STOP};
    struct ha_keeper_reply reply;
    struct ha_keeper keeper;
    struct ctrun_error err;
    bool has_ended = false;
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    keeper = (struct ha_keeper){.fd = ends[0]};
    assert_false(ha_keeper_has_ended(&keeper, &reply)); /* leaves EAGAIN in errno */
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0); /* it can still be written to */
    alarm(5);
    assert_int_equal(ha_keeper_ask(&keeper, &request, &reply, &has_ended, &err),
                     -EPIPE);
    alarm(0);
    assert_string_equal(err.text, "the process that runs etcd has ended");
    assert_false(has_ended);
    assert_true(ha_keeper_has_ended(&keeper, &reply));
    assert_string_equal(reply.text, err.text);
    close(ends[0]);
    close(ends[1]);
}
