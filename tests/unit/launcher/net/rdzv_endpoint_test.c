/* SPDX-License-Identifier: Apache-2.0 */
/* Which node has the rendezvous server, who answers at a port, and that no two attempts share a log
 * directory. */
#include "tests/lib/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/net/rdzv_endpoint.h"
#include "launcher/run/logdir.h"
#include "worker_sdk/wire/frame.h"

static struct config config;

static void set_endpoint(enum config_backend backend, const char *text)
{
    memset(&config, 0, sizeof config);
    config.rdzv.backend = backend;
    config.run.nodes = (struct nnodes){2, 2};
    config.rdzv.connect_timeout_ms = 1;
    assert_int_equal(ct_endpoint_parse(text, &config.rdzv.endpoint, NULL), 0);
}

TEST(who_owns_the_address_serves)
{
    struct rdzv_endpoint endpoint;

    set_endpoint(CONFIG_C10D, "127.0.0.1:1");
    assert_int_equal(rdzv_endpoint_resolve(&endpoint, &config, NULL), 0);
    assert_true(endpoint.is_mine && endpoint.is_loopback);
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config),
                     RDZV_ENDPOINT_SERVE_OR_JOIN);
    config.rdzv.is_host = CONFIG_HOST_NO;
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config), RDZV_ENDPOINT_CLIENT);
    set_endpoint(CONFIG_C10D, "203.0.113.7:1"); /* RFC 5737 */
    assert_int_equal(rdzv_endpoint_resolve(&endpoint, &config, NULL), 0);
    assert_false(endpoint.is_mine || endpoint.is_loopback);
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config), RDZV_ENDPOINT_CLIENT);
    config.rdzv.is_host = CONFIG_HOST_YES;
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config), RDZV_ENDPOINT_SERVE);
}

TEST(static_goes_by_node_rank_alone)
{
    struct rdzv_endpoint endpoint;

    set_endpoint(CONFIG_STATIC, "127.0.0.1:1");
    assert_int_equal(rdzv_endpoint_resolve(&endpoint, &config, NULL), 0);
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config), RDZV_ENDPOINT_SERVE);
    config.run.node_rank = 1;
    assert_int_equal(rdzv_endpoint_role(&endpoint, &config), RDZV_ENDPOINT_CLIENT);
}

TEST(a_name_that_never_resolves_is_a_dns_error)
{
    struct rdzv_endpoint endpoint;

    set_endpoint(CONFIG_C10D, "no-such-host.invalid:1");
    assert_int_equal(rdzv_endpoint_resolve(&endpoint, &config, NULL), CTRUN_E_DNS);
    assert_int_equal(endpoint.count, 0);
}

/* ---- What answers at a port ---------------------------------------------------------- */

struct peer {
    int listener;
    pthread_t thread;
    const void *answer;
    size_t length;
    bool resets_first;
};

static void reset_one(int listener)
{
    const struct linger now = {.l_onoff = 1};
    const int fd = accept(listener, NULL, NULL);

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void *answer_once(void *context)
{
    const struct peer *peer = context;
    int fd;
    char question[CT_FRAME_HEADER_BYTES];

    if (peer->resets_first)
        reset_one(peer->listener);
    fd = accept(peer->listener, NULL, NULL);
    if (fd >= 0 && recv(fd, question, sizeof question, MSG_WAITALL) > 0 && peer->length)
        (void)send(fd, peer->answer, peer->length, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void begin(struct peer *peer)
{
    assert_int_equal(listen(peer->listener, 1), 0);
    assert_int_equal(pthread_create(&peer->thread, NULL, answer_once, peer), 0);
}

static struct peer *late; /* is bound; listens after the first attempt to connect */

/* Replaces connect() of the C library. */
int connect(int fd, const struct sockaddr *addr, socklen_t length)
{
    const int rc = (int)syscall(SYS_connect, fd, addr, length);
    const int failed = errno;

    if (late)
        begin(late);
    late = NULL;
    errno = failed;
    return rc;
}

/* The limits of a probe are longer here, because the thread may be late on a busy machine. No test
 * waits for one of them to pass. */
uint64_t __real_ct_deadline_ms(uint64_t timeout_ms);
uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms);
uint64_t __wrap_ct_deadline_ms(uint64_t timeout_ms)
{
    return __real_ct_deadline_ms(timeout_ms < 1000 ? timeout_ms : 30 * timeout_ms);
}

static bool probe_peer(struct peer *peer, bool is_late)
{
    struct rdzv_endpoint there = {.count = 1};
    struct ct_addr addr;
    bool is_ctrun;

    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &addr), 0);
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(peer->listener, &addr.any, addr.length), 0);
    assert_int_equal(getsockname(peer->listener, &addr.any, &addr.length), 0);
    there.addrs[0] = addr;
    if (is_late)
        late = peer;
    else
        begin(peer);
    is_ctrun = rdzv_endpoint_find_ctrun(&there) == 1;
    /* The thread ends even if nobody has connected. */
    (void)shutdown(peer->listener, SHUT_RDWR);
    assert_int_equal(pthread_join(peer->thread, NULL), 0);
    close(peer->listener);
    return is_ctrun;
}

static bool probe(const void *answer, size_t length, bool is_late)
{
    struct peer peer = {.answer = answer, .length = length};

    return probe_peer(&peer, is_late);
}

TEST(only_a_frame_in_return_is_a_ctrun)
{
    static const uint8_t frame[] = {CT_FRAME_MAGIC_0, CT_FRAME_MAGIC_1, 1, 3};

    assert_true(probe(frame, sizeof frame, false));
    assert_false(probe("HTTP/1.1 400", 12, false));
    assert_false(probe(frame, 1, false));
    assert_false(probe("", 0, false));
    assert_true(probe(frame, sizeof frame, true));
    assert_false(probe("", 0, true));
}

/* As a server that has too many connections at this moment. */
TEST(who_resets_the_first_connection_is_asked_again)
{
    static const uint8_t frame[] = {CT_FRAME_MAGIC_0, CT_FRAME_MAGIC_1, 1, 3};
    struct peer peer = {.answer = frame, .length = sizeof frame, .resets_first = true};

    assert_true(probe_peer(&peer, false));
}

/* ---- Log directories ----------------------------------------------------------------- */

TEST(a_repeated_restart_count_gets_a_directory_of_its_own)
{
    char base[] = "/tmp/rdzv_endpoint_test_XXXXXX";
    struct logdir dir;
    struct stat info;
    char *path;
    char first[PATH_MAX];

    assert_non_null(mkdtemp(base));
    assert_int_equal(logdir_open(&dir, NULL, base, "a/b", NULL), 0);
    assert_non_null(strstr(dir.run, "/a_b_"));
    assert_int_equal(logdir_enter(&dir, 1, 0, 0, NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 1, NULL), 0);
    (void)snprintf(first, sizeof first, "%s", dir.attempt);
    assert_non_null(strstr(first, "/attempt_0"));
    /* Only the membership changed. */
    assert_int_equal(logdir_enter(&dir, 2, 0, 0, NULL), 0);
    assert_non_null(strstr(dir.attempt, "/attempt_0.2"));
    assert_int_equal(stat(first, &info), 0);
    assert_int_equal(logdir_enter(&dir, 3, 1, 0, NULL), 0);
    path = logdir_path(&dir, 0, "stdout.log");
    assert_non_null(strstr(path, "/attempt_1/0/stdout.log"));
    free(path);
    logdir_close(&dir); /* nothing was written, so all is removed */
    assert_int_equal(rmdir(base), 0);
}

TEST(what_was_written_stays)
{
    char base[] = "/tmp/rdzv_endpoint_test_XXXXXX";
    struct logdir dir;
    char *path;
    FILE *file;

    assert_non_null(mkdtemp(base));
    assert_int_equal(logdir_open(&dir, NULL, base, "J", NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 0, NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 1, NULL), 0);
    path = logdir_path(&dir, 1, "error.json");
    assert_non_null(file = fopen(path, "w"));
    assert_int_equal(fclose(file), 0);
    logdir_close(&dir);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    free(path);
    dir.is_open = true;
    logdir_close(&dir); /* it is empty now, so it is removed */
    assert_int_equal(rmdir(base), 0);
}

static void put_file(const struct logdir *dir, int local_rank)
{
    char *path = logdir_path(dir, local_rank, "error.json");
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    free(path);
}

static void remove_file(const struct logdir *dir, int local_rank)
{
    char *path = logdir_path(dir, local_rank, "error.json");

    assert_int_equal(unlink(path), 0);
    free(path);
}

TEST(tidying_removes_folders_that_stayed_empty)
{
    char base[] = "/tmp/rdzv_endpoint_test_XXXXXX";
    struct logdir dir;

    assert_non_null(mkdtemp(base));
    assert_int_equal(logdir_open(&dir, NULL, base, "J", NULL), 0);
    for (int rank = 2; rank < 5; rank++)
        assert_int_equal(logdir_enter(&dir, 1, 0, rank, NULL), 0);
    assert_false(logdir_tidy(&dir));
    assert_false(dir.is_open);
    assert_int_equal(rmdir(base), 0);
}

TEST(tidying_sees_and_keeps_what_was_written)
{
    char base[] = "/tmp/rdzv_endpoint_test_XXXXXX";
    struct logdir dir;

    assert_non_null(mkdtemp(base));
    assert_int_equal(logdir_open(&dir, NULL, base, "J", NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 0, NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 1, NULL), 0);
    put_file(&dir, 1);
    assert_true(logdir_tidy(&dir));
    logdir_close(&dir);
    remove_file(&dir, 1);
    dir.is_open = true;
    logdir_close(&dir);
    assert_int_equal(rmdir(base), 0);
}

TEST(tidying_keeps_what_an_earlier_attempt_wrote)
{
    char base[] = "/tmp/rdzv_endpoint_test_XXXXXX";
    struct logdir dir, earlier;

    assert_non_null(mkdtemp(base));
    assert_int_equal(logdir_open(&dir, NULL, base, "J", NULL), 0);
    assert_int_equal(logdir_enter(&dir, 1, 0, 0, NULL), 0);
    put_file(&dir, 0);
    earlier = dir;
    assert_int_equal(logdir_enter(&dir, 2, 1, 0, NULL), 0);
    assert_false(logdir_tidy(&dir)); /* files of this attempt stay */
    logdir_close(&dir);
    remove_file(&earlier, 0);
    logdir_close(&earlier);
    assert_int_equal(rmdir(base), 0);
}
