/* SPDX-License-Identifier: Apache-2.0 */
/* --wrap=poll: the first wait for openssl is over at once. */
#include "launcher/ha/ha_certs.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/tree.h"

int __real_poll(struct pollfd *list, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms);

static int polls;

int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms)
{
    return polls++ == 0 ? 0 : __real_poll(list, count, timeout_ms);
}

TEST(an_openssl_that_does_not_end_is_killed)
{
    static const uint8_t secret[HA_SECRET_BYTES] = {1};
    char folder[] = "/tmp/ctrun-certs-XXXXXX";
    struct ctrun_error err;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    (void)alarm(60);
    assert_int_equal(symlink("/bin/sh", "openssl"), 0);
    test_put(folder, "req", "exec sleep 600");
    assert_int_equal(ha_certs_make("./openssl", secret, "127.0.0.1", &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "it did not end in time"));
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(test_remove_tree(folder), 0);
    (void)alarm(0);
}
