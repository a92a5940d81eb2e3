/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that waits while no descriptor is left, not even libuv's spare one, or no memory. */
#include "rendezvous/net/listener.h"

#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/net/peer_uid.h"
#include "rendezvous/server/store_port.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    DESCRIPTORS = 64,
    TURNS = 20,   /* of the loop */
    LIMIT_S = 60, /* then this process ends by SIGALRM */
    LINE_MAX_BYTES = 256,
};

static int filled[DESCRIPTORS];
static int filled_count;
static int turns; /* left */
static char line[LINE_MAX_BYTES];

static void keep_line(void *context, enum ctrun_log_level level, const char *text)
{
    (void)ct_copy(line, sizeof line, text); /* cut is fine */
}

static void fill_descriptors(void)
{
    int fd;

    while (filled_count < DESCRIPTORS && (fd = dup(0)) >= 0)
        filled[filled_count++] = fd;
}

static void free_descriptors(void)
{
    while (filled_count > 0)
        close(filled[--filled_count]);
}

static void on_turn(uv_idle_t *idle)
{
    if (--turns == 0)
        uv_stop(idle->loop);
}

static void turn(uv_loop_t *loop)
{
    uv_idle_t idle;

    turns = TURNS;
    (void)uv_idle_init(loop, &idle);
    (void)uv_idle_start(&idle, on_turn);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&idle, NULL);
    (void)uv_run(loop, UV_RUN_NOWAIT);
}

static int connect_from(const char *own, uint16_t port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ct_addr addr;

    assert_int_equal(ct_addr_parse(own, 0, &addr), 0);
    assert_int_equal(bind(fd, &addr.any, addr.length), 0);
    assert_int_equal(ct_addr_parse("127.0.0.1", port, &addr), 0);
    assert_int_equal(connect(fd, &addr.any, addr.length), 0);
    return fd;
}

static int connect_to(uint16_t port)
{
    return connect_from("127.0.0.1", port);
}

struct rig {
    uv_loop_t loop;
    struct conn_pool *pool;
    struct store_port *port;
    int client;
};

/* A connection waits. */
static void begin(struct rig *rig)
{
    struct listen_place place = {0};
    struct ctrun_error err;

    alarm(LIMIT_S);
    assert_non_null(rig->pool = ct_zalloc(sizeof *rig->pool));
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    assert_int_equal(conn_pool_init(rig->pool, &rig->loop, 0), 0);
    assert_int_equal(ct_addr_parse("127.0.0.1", 0, &place.addr), 0);
    assert_int_equal(store_port_open(&rig->port, rig->pool, &place, &err), 0);
    rig->client = connect_to(rig->port->port);
}

static void end(struct rig *rig)
{
    while (rig->pool->count == 0) /* until it is accepted */
        (void)uv_run(&rig->loop, UV_RUN_ONCE);
    close(rig->client);
    store_port_close(rig->port);
    conn_pool_close(rig->pool);
    (void)uv_run(&rig->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    free(rig->pool);
}

TEST(without_a_descriptor_the_connection_waits_and_the_loop_does_not)
{
    const struct rlimit few = {DESCRIPTORS, DESCRIPTORS};
    struct rig rig;

    begin(&rig);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    if (rig.loop.emfile_fd >= 0)
        close(rig.loop.emfile_fd);
    rig.loop.emfile_fd = -1; /* another thread has got it */
    fill_descriptors();
    ct_log_set_sink(keep_line, NULL, CTRUN_LOG_WARN);
    for (int i = 0; i < 2; i++)
        turn(&rig.loop);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_string_equal(line, "rendezvous: cannot accept a connection, tries again: "
                              "Too many open files; raise ulimit -n");
    assert_int_equal(rig.pool->count, 0);
    free_descriptors();
    end(&rig);
}

/* It does not keep the next one waiting. */
TEST(without_memory_it_is_refused)
{
    struct rig rig;
    char byte;

    begin(&rig);
    line[0] = '\0';
    ct_log_set_sink(keep_line, NULL, CTRUN_LOG_WARN);
    ct_alloc_fail_at(1);
    turn(&rig.loop);
    ct_alloc_fail_at(0);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_string_equal(line, "rendezvous: refused a connection: out of memory");
    assert_int_equal(rig.pool->count, 0);
    assert_true(recv(rig.client, &byte, 1, 0) <= 0);
    close(rig.client);
    rig.client = connect_to(rig.port->port);
    end(&rig);
}

static int made; /* connections, also those that are closed at once */

int __real_uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp);
int __wrap_uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp);

int __wrap_uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp)
{
    made++;
    return __real_uv_tcp_init(loop, tcp);
}

TEST(a_connection_is_made_only_for_one_that_waits)
{
    struct rig rig;

    begin(&rig);
    made = 0;
    turn(&rig.loop);
    assert_int_equal(rig.pool->count, 1);
    assert_int_equal(made, 1);
    end(&rig);
}

static void get_congestion_control(int fd, char name[16])
{
    socklen_t size = 16;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
}

/* Where bbr is the default. */
TEST(a_connection_has_bbr_only_between_hosts)
{
    for (int is_far = 0; is_far < 2; is_far++) {
        char usual[16], name[16];
        uv_os_fd_t fd = -1;
        struct rig rig;

        begin(&rig);
        get_congestion_control(rig.client, usual);
        if (is_far) {
            close(rig.client);
            rig.client = connect_from("127.0.0.2", rig.port->port);
        }
        turn(&rig.loop);
        ct_list_for_each(struct conn, conn, &rig.pool->conns, node)
            (void)uv_fileno((uv_handle_t *)&conn->tcp, &fd);
        get_congestion_control(fd, name);
        assert_string_equal(name,
                            !is_far && strcmp(usual, "bbr") == 0 ? "reno" : usual);
        end(&rig);
    }
}

TEST(whose_user_cannot_be_asked_for_lack_of_descriptors_is_not_ours)
{
    struct ct_addr near = {.length = sizeof near.v6}, far = near;
    struct sockaddr_in any = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof any;
    struct rlimit limit, none;
    int server;

    assert_int_equal(bind(listener, (struct sockaddr *)&any, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&any, &length), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&any, length), 0);
    assert_true((server = accept(listener, NULL, NULL)) >= 0);
    assert_int_equal(getpeername(server, &far.any, &far.length), 0);
    assert_int_equal(getsockname(server, &near.any, &near.length), 0);
    assert_int_equal(peer_user_of(&far, &near), PEER_USER_OURS);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(peer_user_of(&far, &near), PEER_USER_GONE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(server);
    close(client);
    close(listener);
}
