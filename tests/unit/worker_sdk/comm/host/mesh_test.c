/* SPDX-License-Identifier: Apache-2.0 */
/* A member that was stopped for a while, when the group was opened or in a call: what came meanwhile
 * counts. The test is the other member. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/header.h"
#include "worker_sdk/comm/host/host_tcp.h"

enum {
    GREETING_BYTES = 24,
    STOP_MS = 60000, /* longer than a member waits for an answer */
};

static const unsigned char cookie[CT_COOKIE_BYTES] = "0123456789abcde";
static const struct ct_call barrier = {.kind = CT_CALL_BARRIER, .number = 1};
static uint64_t stopped_ms; /* for so long this process was stopped */

uint64_t __real_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void)
{
    return __real_ct_now_ms() + stopped_ms;
}

struct opening {
    struct ct_peer peers[2];
    struct ct_mesh_setup setup;
    struct ct_mesh mesh;
    int listener;
    int accepted, given; /* connections that the other member has, and has answered */
    int ours[2];         /* the other member's ends */
};

/* Of the group's two members; `lower` has the listener. */
static void begin(struct opening *opening, int me)
{
    struct ctrun_error err;

    *opening = (struct opening){.peers = {{.rank = 0}, {.rank = 1}}};
    if (ct_mesh_listen(&opening->listener, &opening->peers[0], &err) < 0)
        fail_msg("%s", err.text);
    opening->setup = (struct ct_mesh_setup){.peers = opening->peers,
                                            .size = 2,
                                            .me = me,
                                            .listener = opening->listener,
                                            .cookie = cookie,
                                            .deadline_ms = UINT64_MAX};
}

static void finish(struct opening *opening)
{
    ct_mesh_close(&opening->mesh);
    close(opening->ours[0]);
    close(opening->ours[1]);
    close(opening->listener);
}

static void write_greeting(unsigned char greeting[GREETING_BYTES], int half, int from,
                           int to, int kind)
{
    struct ct_writer out;

    ct_writer_init(&out, greeting, GREETING_BYTES);
    ct_write_u32(&out, 0x31736d63);
    ct_write_raw(&out, cookie + half * (CT_COOKIE_BYTES / 2), CT_COOKIE_BYTES / 2);
    ct_write_u32(&out, (uint32_t)from);
    ct_write_u32(&out, (uint32_t)to);
    ct_write_u32(&out, (uint32_t)kind);
}

/* Each end reads what the other one writes. */
static void expect_connected(int a, int b)
{
    char byte = 0;

    assert_int_equal(send(a, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(b, &byte, 1, MSG_WAITALL), 1);
    assert_int_equal(byte, 'x');
}

/* ---- The listening member was stopped --------------------------------------------------- */

static int connect_and_greet(const struct opening *opening, int kind)
{
    const struct ct_addr *addr = &opening->peers[0].addrs[0];
    unsigned char greeting[GREETING_BYTES];
    const int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, &addr->any, addr->length), 0);
    write_greeting(greeting, 0, 1, 0, kind);
    assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL),
                     sizeof greeting);
    return fd;
}

TEST(the_last_of_several_attempts_counts)
{
    unsigned char answer[GREETING_BYTES], wanted[GREETING_BYTES];
    struct opening opening;
    struct ctrun_error err;

    begin(&opening, 0);
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < 2; kind++)
            close(connect_and_greet(&opening, kind));
    for (int kind = 0; kind < 2; kind++)
        opening.ours[kind] = connect_and_greet(&opening, kind);
    if (ct_mesh_open(&opening.mesh, &opening.setup, &err) < 0)
        fail_msg("%s", err.text);
    for (int kind = 0; kind < 2; kind++) {
        write_greeting(wanted, 1, 0, 1, kind);
        assert_int_equal(recv(opening.ours[kind], answer, sizeof answer, MSG_WAITALL),
                         sizeof answer);
        assert_memory_equal(answer, wanted, sizeof answer);
    }
    expect_connected(opening.mesh.data[1], opening.ours[0]);
    expect_connected(opening.mesh.control[1], opening.ours[1]);
    finish(&opening);
}

/* ---- Congestion control ----------------------------------------------------------------- */

static void get_congestion_control(int fd, char name[16])
{
    socklen_t size = 16;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
}

/* Where bbr is the default, and only if the members share loopback; else the default stays. */
static void expect_no_bbr_over_loopback(int fd, bool is_loopback)
{
    const int fresh = socket(AF_INET, SOCK_STREAM, 0);
    char usual[16], name[16];

    get_congestion_control(fresh, usual);
    get_congestion_control(fd, name);
    assert_string_equal(name,
                        is_loopback && strcmp(usual, "bbr") == 0 ? "reno" : usual);
    close(fresh);
}

TEST(an_accepted_connection_has_bbr_only_between_hosts)
{
    for (uint64_t other_net = 0; other_net < 2; other_net++) {
        struct opening opening;
        struct ctrun_error err;

        begin(&opening, 0);
        opening.peers[1].net_id = other_net;
        for (int kind = 0; kind < 2; kind++)
            opening.ours[kind] = connect_and_greet(&opening, kind);
        if (ct_mesh_open(&opening.mesh, &opening.setup, &err) < 0)
            fail_msg("%s", err.text);
        expect_no_bbr_over_loopback(opening.mesh.data[1], other_net == 0);
        finish(&opening);
    }
}

/* ---- Descriptors were short ------------------------------------------------------------- */

/* Called by the member in each turn: it may accept one connection in the third turn only, and no other comes
 * until its deadline is over. */
static int lack_for_a_turn(void *context, struct ctrun_error *err)
{
    struct opening *opening = context;
    struct rlimit limit;
    int next;

    (void)err;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (opening->given == 0)
        opening->ours[0] = connect_and_greet(opening, 0);
    if (opening->given < 2) {
        close(next = dup(STDERR_FILENO)); /* the lowest one that is free */
        limit.rlim_cur = opening->given == 0 ? (rlim_t)next : limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    } else {
        stopped_ms = STOP_MS;
    }
    opening->given++;
    return 0;
}

TEST(a_lack_that_has_passed_is_not_why_others_are_missing)
{
    struct opening opening;
    struct ctrun_error err;
    struct rlimit limit, all;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    begin(&opening, 0);
    opening.ours[1] = -1;
    opening.setup.watch = (struct ct_watch){lack_for_a_turn, &opening};
    opening.setup.deadline_ms = __real_ct_now_ms() + STOP_MS;
    assert_int_equal(ct_mesh_open(&opening.mesh, &opening.setup, &err),
                     CTRUN_E_TIMEOUT);
    assert_null(strstr(err.text, strerror(EMFILE)));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(all.rlim_cur, all.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    finish(&opening);
    stopped_ms = 0;
}

/* ---- The connecting member was stopped -------------------------------------------------- */

/* Called by the member in each turn: answers its two connections, then stops it until its time for
 * them is over. Another connection is an error. */
static int answer_once(void *context, struct ctrun_error *err)
{
    struct opening *opening = context;
    unsigned char greeting[GREETING_BYTES], answer[GREETING_BYTES];
    const int fd = accept4(opening->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0 && opening->accepted == 2)
        return close(fd), ct_fail(err, -EISCONN, "it connects again");
    if (fd >= 0)
        opening->ours[opening->accepted++] = fd;
    while (opening->given < opening->accepted &&
           recv(opening->ours[opening->given], greeting, sizeof greeting,
                MSG_DONTWAIT) == sizeof greeting) {
        write_greeting(answer, 1, 0, 1, greeting[20]);
        if (send(opening->ours[opening->given++], answer, sizeof answer,
                 MSG_NOSIGNAL) != sizeof answer)
            return ct_fail(err, -EPIPE, "no answer");
    }
    if (opening->given == 2)
        stopped_ms = STOP_MS;
    return 0;
}

TEST(an_answer_that_came_meanwhile_counts)
{
    struct opening opening;
    struct ctrun_error err;

    begin(&opening, 1);
    assert_int_equal(ct_mesh_listen(&opening.setup.listener, &opening.peers[1], &err),
                     0);
    assert_true(opening.peers[0].addr_count > 0);
    opening.peers[0].addrs[1] = opening.peers[0].addrs[0]; /* another one to try */
    opening.peers[0].addr_count = 2;
    opening.setup.watch = (struct ct_watch){answer_once, &opening};
    if (ct_mesh_open(&opening.mesh, &opening.setup, &err) < 0)
        fail_msg("%s", err.text);
    expect_connected(opening.mesh.data[0], opening.ours[0]);
    expect_connected(opening.mesh.control[0], opening.ours[1]);
    expect_no_bbr_over_loopback(opening.mesh.data[0], true);
    close(opening.setup.listener);
    finish(&opening);
    stopped_ms = 0;
}

/* ---- A member was stopped in a call ------------------------------------------------------ */

/* Called by the member when it has waited for a while: the other one answers, then the member is
 * stopped until its deadline is over. */
static int answer_late(void *context, struct ctrun_error *err)
{
    const struct opening *opening = context;
    unsigned char header[CT_HEADER_BYTES];

    if (stopped_ms)
        return 0;
    ct_header_write(header, &barrier);
    if (send(opening->ours[0], header, sizeof header, MSG_NOSIGNAL) != sizeof header)
        return ct_fail(err, -EPIPE, "no answer");
    stopped_ms = STOP_MS;
    return 0;
}

TEST(data_that_came_meanwhile_count)
{
    struct ct_host_tcp *tcp = NULL;
    struct opening opening;
    struct ct_call call = barrier;
    struct ctrun_error err;

    begin(&opening, 0);
    for (int kind = 0; kind < 2; kind++)
        opening.ours[kind] = connect_and_greet(&opening, kind);
    if (ct_mesh_open(&opening.mesh, &opening.setup, &err) < 0 ||
        ct_host_tcp_create(&tcp, &opening.mesh,
                           (struct ct_watch){answer_late, &opening}, &err) < 0)
        fail_msg("%s", err.text);
    call.deadline_ms = ct_deadline_ms(STOP_MS);
    if (ct_host_tcp_run(tcp, &call, &err) < 0)
        fail_msg("%s", err.text);
    ct_host_tcp_destroy(tcp);
    finish(&opening);
    stopped_ms = 0;
}
