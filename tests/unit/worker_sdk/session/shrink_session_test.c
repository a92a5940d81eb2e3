/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank does with its agent's message who continues. The agent is a thread of the test. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/tcpstore/codec.h"
#include "worker_sdk/wire/contract.h"

/* What the agent does after a worker's hello. It answers when it is asked. */
struct agent {
    pthread_t thread;
    int listener;
    char name[108];
    uint32_t losses;              /* sent at once; 0: no loss */
    struct ct_worker_world world; /* the answer; epoch 0: it closes instead */
    bool is_early;                /* the answer is sent before the question */
    bool grows;                   /* a rank waits to be taken in after world 0 */
    void *(*begin)(void *);       /* another function; NULL: be_agent() */
    int store;                    /* listening socket of a worker store */
    int asked;                    /* how often */
    int names;                    /* values that the worker stored there */
};

static void say(int fd, const struct ct_message *message)
{
    struct ct_buf out;

    ct_buf_init(&out, 4096);
    assert_int_equal(ct_message_encode(&out, message), 0);
    assert_int_equal(send(fd, ct_buf_data(&out), ct_buf_length(&out), MSG_NOSIGNAL),
                     (ssize_t)ct_buf_length(&out));
    ct_buf_deinit(&out);
}

/* True when a message of this kind came; false at the end of the connection. */
static bool hears(int fd, struct ct_buf *in, int kind)
{
    struct ct_frame frame;
    uint8_t *room;
    int used;
    ssize_t n;

    for (;;) {
        while ((used = ct_frame_decode(ct_buf_data(in), ct_buf_length(in), &frame)) >
               0) {
            const int came = frame.kind;

            ct_buf_consume(in, (size_t)used);
            if (came == kind)
                return true;
        }
        if (used < 0 || ct_buf_reserve(in, 512, &room) < 0 ||
            (n = recv(fd, room, 512, 0)) <= 0)
            return false;
        ct_buf_commit(in, (size_t)n);
    }
}

static void *be_agent(void *context)
{
    struct agent *agent = context;
    const struct ct_worker_rank_lost lost = {.losses = agent->losses,
                                             .text = "rank 2 is lost"};
    const struct ct_message answer = {CT_MESSAGE_WORKER_WORLD,
                                      .worker_world = &agent->world};
    const struct ct_worker_grow grow = {0};
    const int fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC);
    struct ct_buf in;

    ct_buf_init(&in, 4096);
    if (hears(fd, &in, CT_MESSAGE_WORKER_HELLO) && agent->losses)
        say(fd, &(struct ct_message){CT_MESSAGE_WORKER_RANK_LOST,
                                     .worker_rank_lost = &lost});
    if (agent->grows)
        say(fd, &(struct ct_message){CT_MESSAGE_WORKER_GROW, .worker_grow = &grow});
    if (agent->is_early)
        say(fd, &answer);
    else if (hears(fd, &in, CT_MESSAGE_WORKER_SHRINK) && agent->world.epoch)
        say(fd, &answer);
    if (agent->world.epoch)
        (void)hears(fd, &in, 0); /* until the connection ends */
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

static void make_listener(struct agent *agent)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t length = sizeof addr.sun_family;

    agent->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(agent->listener, (struct sockaddr *)&addr, length), 0);
    assert_int_equal(listen(agent->listener, 4), 0);
    length = sizeof addr;
    assert_int_equal(getsockname(agent->listener, (struct sockaddr *)&addr, &length),
                     0);
    assert_true(ct_format(agent->name, sizeof agent->name, "@%.*s",
                          (int)(length - offsetof(struct sockaddr_un, sun_path) - 1),
                          addr.sun_path + 1) > 0);
}

static void begin_agent(struct agent *agent)
{
    make_listener(agent);
    assert_int_equal(pthread_create(&agent->thread, NULL,
                                    agent->begin ? agent->begin : be_agent, agent),
                     0);
    setenv(CT_ENV_AGENT_SOCKET, agent->name, 1);
    setenv(CT_ENV_MAY_SHRINK, "1", 1);
}

static void end_agent(struct agent *agent)
{
    pthread_join(agent->thread, NULL);
    close(agent->listener);
}

/* A world of one: its group needs no store. */
static int shrink_on(const char *backend, struct agent *agent,
                     struct ctrun_group **next, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_session *session;
    struct ctrun_group *old;
    int rc, dead;

    begin_agent(agent);
    assert_int_equal(ctrun_open(&session, NULL, err), 0);
    assert_true(ctrun_may_shrink(session));
    options.backend = backend;
    assert_int_equal(ctrun_group_open(&old, session, &options, err), 0);
    rc = ctrun_group_shrink(next, session, old, NULL, err);
    dead = ctrun_barrier(old, NULL, NULL);
    assert_true(dead == CTRUN_E_ABORTED || /* the loss was not known yet */
                (agent->losses && dead == CTRUN_E_PEER_LOST));
    ctrun_group_close(old);
    ctrun_group_close(*next);
    ctrun_close(session);
    end_agent(agent);
    return rc;
}

static int shrink(struct agent *agent, struct ctrun_group **next,
                  struct ctrun_error *err)
{
    return shrink_on("host", agent, next, err);
}

TEST(an_nccl_group_goes_on_too)
{
    struct agent agent = {.world = {.epoch = 1, .ranks = {1}}};
    struct ctrun_group *next;
    struct ctrun_error err;

    fake_nccl_use((struct fake_nccl){0});
    assert_int_equal(shrink_on("nccl", &agent, &next, &err), 0);
    assert_non_null(next);
    assert_int_equal(fake_nccl.aborts, 1); /* ends the kernels of the old group */
    assert_int_equal(fake_nccl.destroys, 1);
    assert_int_equal(fake_nccl.blocks, 0);
}

TEST(it_goes_on_when_the_agent_says_so)
{
    for (int is_early = 0; is_early < 2; is_early++) {
        struct agent agent = {.losses = 1,
                              .world = {.epoch = 1, .losses = 1, .ranks = {1}},
                              .is_early = is_early};
        struct ctrun_group *next;
        struct ctrun_error err;

        assert_int_equal(shrink(&agent, &next, &err), 0);
        assert_non_null(next);
    }
}

TEST(without_a_loss_they_meet_again)
{
    struct agent agent = {.world = {.epoch = 1, .ranks = {1}}};
    struct ctrun_group *next;
    struct ctrun_error err;

    assert_int_equal(shrink(&agent, &next, &err), 0);
}

TEST(who_counts_as_lost_is_told)
{
    struct agent agent = {.losses = 1,
                          .world = {.epoch = 1, .losses = 1, .ranks = {2}}};
    struct ctrun_group *next;
    struct ctrun_error err;

    assert_int_equal(shrink(&agent, &next, &err), CTRUN_E_CHANGED);
    assert_non_null(strstr(err.text, "rank 0 counts as lost"));
    assert_null(next);
}

TEST(an_agent_that_goes_away_decides_nothing)
{
    struct agent agent = {.losses = 1};
    struct ctrun_group *next;
    struct ctrun_error err;

    assert_int_equal(shrink(&agent, &next, &err), CTRUN_E_CLOSED);
    assert_null(next);
}

static int answer_first(const struct agent *agent, struct ct_buf *in);
static void say_lost(int fd);

/* Another rank dies after the first answer. */
static void *be_agent_that_loses_two(void *context)
{
    struct agent *agent = context;
    struct ct_buf in;
    const int fd = answer_first(agent, &in);

    say_lost(fd);
    agent->world.epoch = agent->world.losses = 2;
    if (hears(fd, &in, CT_MESSAGE_WORKER_SHRINK))
        say(fd, &(struct ct_message){CT_MESSAGE_WORKER_WORLD,
                                     .worker_world = &agent->world});
    agent->asked = hears(fd, &in, CT_MESSAGE_WORKER_SHRINK) ? 3 : 2;
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

static struct ctrun_group *open_alone(struct ctrun_session *session)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    if (ctrun_group_open(&group, session, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return group;
}

static void wait_for_a_loss(struct ctrun_session *session)
{
    const uint64_t until_ms = ct_deadline_ms(60000);

    while (!ctrun_world_shrinks(session))
        assert_true(ct_now_ms() < until_ms);
}

/* A rank that has opened its last group hears of the death in the first one, and asks for that. */
TEST(after_a_second_death_all_begin_with_their_first_group)
{
    struct agent agent = {.begin = be_agent_that_loses_two,
                          .world = {.epoch = 1, .losses = 1, .ranks = {1}}};
    struct ctrun_group *first, *second, *next;
    struct ctrun_session *session;
    struct ctrun_error err;

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    first = open_alone(session);
    second = open_alone(session);
    assert_int_equal(ctrun_group_shrink(&next, session, first, NULL, &err), 0);
    ctrun_group_close(first);
    first = next;
    wait_for_a_loss(session);
    assert_int_equal(ctrun_group_shrink(&next, session, second, NULL, &err),
                     CTRUN_E_PEER_LOST);
    assert_null(next);
    assert_non_null(strstr(err.text, "node n2 is lost"));
    assert_int_equal(ctrun_group_shrink(&next, session, first, NULL, &err), 0);
    ctrun_group_close(first);
    first = next;
    assert_int_equal(ctrun_group_shrink(&next, session, second, NULL, &err), 0);
    ctrun_group_close(second);
    ctrun_group_close(first);
    ctrun_group_close(next);
    ctrun_close(session);
    end_agent(&agent);
    assert_int_equal(agent.asked, 2);
}

/* The first call got its answer, but opened no group. */
TEST(without_a_group_since_the_answer_the_next_call_is_the_first)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct agent agent = {.begin = be_agent_that_loses_two,
                          .world = {.epoch = 1, .losses = 1, .ranks = {1}}};
    struct ctrun_group *group, *next;
    struct ctrun_session *session;
    struct ctrun_error err;

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    group = open_alone(session);
    options.backend = "none";
    assert_int_equal(ctrun_group_shrink(&next, session, group, &options, &err),
                     -EINVAL);
    wait_for_a_loss(session);
    assert_int_equal(ctrun_group_shrink(&next, session, group, NULL, &err), 0);
    ctrun_group_close(group);
    ctrun_group_close(next);
    ctrun_close(session);
    end_agent(&agent);
    assert_int_equal(agent.asked, 2);
}

/* Nobody can tell it from a group that is still to be passed after the first loss. */
TEST(a_group_left_out_at_a_loss_is_passed_twice_after_the_next)
{
    struct agent agent = {.begin = be_agent_that_loses_two,
                          .world = {.epoch = 1, .losses = 1, .ranks = {1}}};
    struct ctrun_group *first, *left_out, *next[2];
    struct ctrun_session *session;
    struct ctrun_error err;

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    first = open_alone(session);
    left_out = open_alone(session);
    assert_int_equal(ctrun_group_shrink(&next[0], session, first, NULL, &err), 0);
    wait_for_a_loss(session);
    assert_int_equal(ctrun_group_shrink(&next[1], session, left_out, NULL, &err),
                     CTRUN_E_PEER_LOST);
    assert_int_equal(ctrun_group_shrink(&next[1], session, left_out, NULL, &err), 0);
    ctrun_group_close(next[1]);
    ctrun_group_close(next[0]);
    ctrun_group_close(left_out);
    ctrun_group_close(first);
    ctrun_close(session);
    end_agent(&agent);
    assert_int_equal(agent.asked, 2);
}

static size_t fail_at; /* of the allocations after the answer; 0: none */

int __real_ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                                     uint64_t deadline_ms, struct ct_worker_world *out,
                                     struct ctrun_error *err);
int __wrap_ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                                     uint64_t deadline_ms, struct ct_worker_world *out,
                                     struct ctrun_error *err);
int __wrap_ct_agent_socket_ask_world(struct ct_agent_socket *agent, uint32_t epoch,
                                     uint64_t deadline_ms, struct ct_worker_world *out,
                                     struct ctrun_error *err)
{
    int rc = __real_ct_agent_socket_ask_world(agent, epoch, deadline_ms, out, err);

    ct_alloc_fail_at(fail_at);
    fail_at = 0;
    return rc;
}

/* The memory for the ranks, and for the number of groups in this epoch. */
TEST(an_answer_that_found_no_memory_is_taken_at_the_next_call)
{
    for (uint32_t n = 1; n <= 2; n++) {
        struct agent agent = {.world = {.epoch = 40 + n, .ranks = {1}}};
        struct ctrun_session *session;
        struct ctrun_group *old, *next;
        struct ctrun_error err;

        begin_agent(&agent);
        assert_int_equal(ctrun_open(&session, NULL, &err), 0);
        old = open_alone(session);
        fail_at = n;
        assert_int_equal(ctrun_group_shrink(&next, session, old, NULL, &err), -ENOMEM);
        assert_string_equal(err.text, "shrink: out of memory");
        assert_int_equal(ctrun_group_shrink(&next, session, old, NULL, &err), 0);
        ctrun_group_close(old);
        ctrun_group_close(next);
        ctrun_close(session);
        end_agent(&agent);
    }
}

static bool is_aborted; /* by another member, while a group is opened */

int __real_ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                           const struct ctrun_group *old,
                           const struct ctrun_group_options *options,
                           struct ctrun_error *err);
int __wrap_ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                           const struct ctrun_group *old,
                           const struct ctrun_group_options *options,
                           struct ctrun_error *err);
int __wrap_ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                           const struct ctrun_group *old,
                           const struct ctrun_group_options *options,
                           struct ctrun_error *err)
{
    if (!is_aborted)
        return __real_ct_group_shrink(out, place, old, options, err);
    *out = NULL;
    return ct_fail(err, CTRUN_E_ABORTED, "rank 1 called ctrun_group_shrink()");
}

static void abort_a_later_group(struct ctrun_error *err)
{
    struct agent agent = {.world = {.epoch = 1, .ranks = {1}}};
    struct ctrun_group *first, *second, *next, *none;
    struct ctrun_session *session;

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    first = open_alone(session);
    second = open_alone(session);
    assert_int_equal(ctrun_group_shrink(&next, session, first, NULL, NULL), 0);
    is_aborted = true;
    assert_int_equal(ctrun_group_shrink(&none, session, second, NULL, err),
                     CTRUN_E_PEER_LOST);
    is_aborted = false;
    ctrun_group_close(next);
    ctrun_group_close(second);
    ctrun_group_close(first);
    ctrun_close(session);
    end_agent(&agent);
}

TEST(the_code_of_a_later_group_is_in_the_error_too)
{
    struct ctrun_error err;

    abort_a_later_group(&err);
    assert_int_equal(err.code, CTRUN_E_PEER_LOST);
    abort_a_later_group(NULL);
}

/* For groups of another library. */
static int next_world(struct agent *agent, int ranks[8], int max, uint32_t *epoch,
                      struct ctrun_error *err)
{
    struct ctrun_session *session;
    int rc;

    begin_agent(agent);
    assert_int_equal(ctrun_open(&session, NULL, err), 0);
    rc = ctrun_world_next(session, 60000, ranks, max, epoch, err);
    assert_false(ctrun_world_changes(session)); /* no other loss was reported */
    ctrun_close(session);
    end_agent(agent);
    return rc;
}

TEST(it_tells_others_who_goes_on)
{
    struct agent agent = {.losses = 1,
                          .world = {.epoch = 3, .losses = 1, .ranks = {1, 2}}};
    struct ctrun_error err;
    uint32_t epoch;
    int ranks[8];

    assert_int_equal(next_world(&agent, ranks, 8, &epoch, &err), 2);
    assert_int_equal(epoch, 3);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[1], 9);
    agent.world.ranks[0] = 0;
    assert_int_equal(next_world(&agent, ranks, 8, &epoch, &err), CTRUN_E_CHANGED);
    assert_non_null(strstr(err.text, "rank 0 counts as lost"));
}

TEST(the_answer_is_still_there_when_there_was_no_room_for_it)
{
    struct agent agent = {.world = {.epoch = 3, .ranks = {3}}};
    struct ctrun_session *session;
    struct ctrun_error err;
    uint32_t epoch;
    int ranks[2];

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    assert_int_equal(ctrun_world_next(session, 60000, ranks, 1, &epoch, &err), -EINVAL);
    assert_int_equal(ctrun_world_next(session, 0, ranks, 2, &epoch, &err), 2);
    assert_int_equal(epoch, 3);
    ctrun_close(session);
    end_agent(&agent);
}

static void assert_store(const struct ctrun_session *session, const char *host,
                         int port)
{
    int told;

    assert_string_equal(ctrun_world_store(session, &told), host);
    assert_int_equal(told, port);
}

TEST(where_the_store_is_comes_with_the_answer)
{
    static const char *const names[][2] = {
        {CT_ENV_RANK, "0"},         {CT_ENV_WORLD_SIZE, "1"},
        {CT_ENV_LOCAL_RANK, "0"},   {CT_ENV_LOCAL_WORLD_SIZE, "1"},
        {CT_ENV_MASTER_ADDR, "n1"}, {CT_ENV_MASTER_PORT, "29500"}};
    struct agent agent = {.losses = 1,
                          .world = {.epoch = 3, .losses = 1, .ranks = {1}}};
    struct ctrun_session *session;
    struct ctrun_error err;
    uint32_t epoch;
    int ranks[8];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)setenv(names[i][0], names[i][1], 1);
    for (int moves = 0; moves < 2; moves++) {
        agent.world.store_port = moves ? 258 : 0;
        (void)ct_copy(agent.world.store_addr, sizeof agent.world.store_addr,
                      moves ? "n2" : "");
        begin_agent(&agent);
        assert_int_equal(ctrun_open(&session, NULL, &err), 0);
        assert_store(session, "n1", 29500);
        assert_int_equal(ctrun_world_next(session, 60000, ranks, 8, &epoch, &err), 1);
        assert_store(session, moves ? "n2" : "n1", moves ? 258 : 29500);
        ctrun_close(session);
        end_agent(&agent);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i][0]);
}

/* Answers who continues. Returns the worker's connection; the caller frees `in`. */
static int answer_first(const struct agent *agent, struct ct_buf *in)
{
    const int fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC);

    ct_buf_init(in, 4096);
    assert_true(hears(fd, in, CT_MESSAGE_WORKER_SHRINK));
    say(fd,
        &(struct ct_message){CT_MESSAGE_WORKER_WORLD, .worker_world = &agent->world});
    return fd;
}

static void say_lost(int fd)
{
    const struct ct_worker_rank_lost lost = {.losses = 2, .text = "node n2 is lost"};

    say(fd,
        &(struct ct_message){CT_MESSAGE_WORKER_RANK_LOST, .worker_rank_lost = &lost});
}

/* Answers who continues and where the store is, then reports the loss of that store, and leaves at
 * the next question. */
static void *be_agent_whose_store_is_lost(void *context)
{
    struct agent *agent = context;
    struct ct_buf in;
    const int fd = answer_first(agent, &in);

    say_lost(fd);
    assert_true(hears(fd, &in, CT_MESSAGE_WORKER_SHRINK));
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

static const char *const variables[][2] = {
    {CT_ENV_RANK, "0"},        {CT_ENV_WORLD_SIZE, "2"},
    {CT_ENV_LOCAL_RANK, "0"},  {CT_ENV_LOCAL_WORLD_SIZE, "1"},
    {CT_ENV_MASTER_PORT, "1"}, {CT_ENV_MASTER_ADDR, "127.0.0.1"},
    {CT_ENV_MAY_SHRINK, "1"},  {CT_ENV_MAY_GROW, ""}};

/* Those of rank 0 of two; `kind` "new": it takes the place of a lost one. */
static void set_variables(const char *kind)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        (void)setenv(variables[i][0], variables[i][1], 1);
    (void)setenv(CT_ENV_MAY_GROW, kind, 1);
}

static void unset_variables(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i][0]);
}

/* A new rank fails to join with this error. */
static void assert_fails_to_join(struct agent *agent, int code)
{
    struct ctrun_session *session;
    struct ctrun_group *group;
    struct ctrun_error err;

    set_variables("new");
    begin_agent(agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    assert_int_equal(ctrun_group_open(&group, session, NULL, &err), code);
    ctrun_close(session);
    end_agent(agent);
    unset_variables();
}

/* Nothing listens at port 2. The agent leaves at the second question. */
TEST(a_store_that_is_lost_before_it_is_reached_makes_it_ask_again)
{
    struct agent agent = {.begin = be_agent_whose_store_is_lost,
                          .world = {.epoch = 1,
                                    .losses = 1,
                                    .ranks = {3},
                                    .store_port = 2,
                                    .store_addr = "127.0.0.1"}};

    assert_fails_to_join(&agent, CTRUN_E_CLOSED);
}

/* Greets as a store of PyTorch 2.5 does. It ends at the first request after the greeting, if there
 * is one. */
static int greet(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    uint8_t greeting[10]; /* VALIDATE and its number, PING and its number */

    assert_int_equal(recv(fd, greeting, sizeof greeting, MSG_WAITALL), sizeof greeting);
    assert_int_equal(send(fd, greeting + 6, 4, MSG_NOSIGNAL), 4);
    return fd;
}

/* It ends at the first request behind the greeting, if there is one. */
static void greet_and_end(int listener, ssize_t requests)
{
    const int fd = greet(listener);
    uint8_t byte;

    assert_int_equal(recv(fd, &byte, 1, 0), requests);
    close(fd);
}

/* The loss is reported after the worker has connected to the store once more; or never, and the
 * store lives. */
static void *be_agent_whose_store_ends(void *context)
{
    struct agent *agent = context;
    struct ct_buf in;
    const int fd = answer_first(agent, &in);

    greet_and_end(agent->store, 1);
    if (agent->losses) {
        const int again = accept4(agent->store, NULL, NULL, SOCK_CLOEXEC);

        close(agent->store);
        say_lost(fd);
        close(again);
        assert_true(hears(fd, &in, CT_MESSAGE_WORKER_SHRINK));
    } else {
        greet_and_end(agent->store, 0);
        close(agent->store);
    }
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

/* Each key of its store exists, with a value that no rank has written. */
static void *be_agent_whose_store_has_a_long_value(void *context)
{
    const uint8_t ready = CT_TCPSTORE_READY;
    const uint8_t value[8 + 200] = {200}; /* its length and its bytes */
    struct ct_tcpstore_scan scan = {0};
    struct agent *agent = context;
    struct ct_buf in, requests;
    const int fd = answer_first(agent, &in);
    const int store = greet(agent->store);
    uint8_t *room;
    ssize_t n;
    int used;

    ct_buf_init(&requests, 4096);
    while (ct_buf_reserve(&requests, 512, &room) == 0 &&
           (n = recv(store, room, 512, 0)) > 0) {
        ct_buf_commit(&requests, (size_t)n);
        while ((used = ct_tcpstore_scan_request(&scan, CT_TCPSTORE_D2,
                                                ct_buf_data(&requests),
                                                ct_buf_length(&requests))) > 0) {
            const bool is_get = scan.query == CT_TCPSTORE_GET;

            assert_true(send(store, is_get ? value : &ready, is_get ? sizeof value : 1,
                             MSG_NOSIGNAL) > 0);
            ct_buf_consume(&requests, (size_t)used);
            scan = (struct ct_tcpstore_scan){0};
        }
    }
    close(agent->store);
    close(store);
    close(fd);
    ct_buf_deinit(&requests);
    ct_buf_deinit(&in);
    return NULL;
}

/* Returns the port. */
static int listen_as_store(struct agent *agent)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof addr;

    agent->store = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(agent->store, (struct sockaddr *)&addr, length), 0);
    assert_int_equal(listen(agent->store, 4), 0);
    assert_int_equal(getsockname(agent->store, (struct sockaddr *)&addr, &length), 0);
    return ntohs(addr.sin_port);
}

static void join_by_a_store(void *(*begin)(void *), uint32_t losses, int code)
{
    struct agent agent = {
        .begin = begin,
        .losses = losses,
        .world = {.epoch = 1, .losses = 1, .ranks = {3}, .store_addr = "127.0.0.1"}};

    agent.world.store_port = (uint16_t)listen_as_store(&agent);
    assert_fails_to_join(&agent, code);
}

TEST(a_store_that_ends_before_its_loss_is_known_makes_it_ask_again)
{
    join_by_a_store(be_agent_whose_store_ends, 2,
                    CTRUN_E_CLOSED); /* the agent closes */
}

TEST(a_store_that_lives_and_refuses_is_an_error)
{
    join_by_a_store(be_agent_whose_store_ends, 0, CTRUN_E_PROTOCOL);
}

TEST(a_value_that_is_no_name_of_a_group_is_not_called_lack_of_memory)
{
    join_by_a_store(be_agent_whose_store_has_a_long_value, 0, CTRUN_E_PROTOCOL);
}

/* Counts the values that the worker stores, up to another request or the end. */
static int count_sets(int store, bool to_the_end)
{
    bool is_over = false;
    struct ct_tcpstore_scan scan = {0};
    struct ct_buf requests;
    uint8_t *room;
    int used, count = 0;
    ssize_t n;

    ct_buf_init(&requests, 4096);
    while (!is_over && ct_buf_reserve(&requests, 512, &room) == 0 &&
           (n = recv(store, room, 512, 0)) > 0) {
        ct_buf_commit(&requests, (size_t)n);
        while ((used = ct_tcpstore_scan_request(&scan, CT_TCPSTORE_D2,
                                                ct_buf_data(&requests),
                                                ct_buf_length(&requests))) > 0) {
            count += scan.query == CT_TCPSTORE_SET;
            is_over = !to_the_end && scan.query != CT_TCPSTORE_SET;
            ct_buf_consume(&requests, (size_t)used);
            scan = (struct ct_tcpstore_scan){0};
        }
    }
    ct_buf_deinit(&requests);
    return count;
}

/* It ends each of two connections when the worker waits for another rank. */
static void *be_store_that_ends(void *context)
{
    struct agent *agent = context;

    for (int i = 0; i < 2; i++) {
        const int store = greet(agent->store);

        agent->names += count_sets(store, false);
        close(store);
    }
    return NULL;
}

/* Nobody but the session can open its store again. */
TEST(a_session_opens_its_store_again)
{
    struct agent agent = {.names = 0};
    struct ctrun_session *session;
    struct ctrun_group *group;
    struct ctrun_error err;
    char port[16];

    set_variables("1");
    setenv(CT_ENV_RANK, "1", 1); /* it only waits for what rank 0 stores */
    unsetenv(CT_ENV_MAY_SHRINK);
    assert_true(ct_format(port, sizeof port, "%d", listen_as_store(&agent)) > 0);
    setenv(CT_ENV_MASTER_PORT, port, 1);
    assert_int_equal(pthread_create(&agent.thread, NULL, be_store_that_ends, &agent),
                     0);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ctrun_group_open(&group, session, NULL, &err),
                         CTRUN_E_PROTOCOL);
        assert_null(group);
    }
    assert_int_equal(pthread_join(agent.thread, NULL), 0);
    assert_int_equal(agent.names, 2);
    ctrun_close(session);
    unset_variables();
    close(agent.store);
}

/* Is the store, too. Answers twice. */
static void *be_agent_that_counts_names(void *context)
{
    struct agent *agent = context;
    const int store = greet(agent->store);
    struct ct_buf in;
    const int fd = answer_first(agent, &in);

    assert_true(hears(fd, &in, CT_MESSAGE_WORKER_SHRINK));
    agent->world.epoch++;
    say(fd,
        &(struct ct_message){CT_MESSAGE_WORKER_WORLD, .worker_world = &agent->world});
    agent->names = count_sets(store, true);
    close(store);
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

/* After an error of its own a rank calls again, and must meet all ranks then, not only those of its
 * old group. */
TEST(a_wrong_option_does_not_keep_it_from_the_ranks_that_are_new)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *part, *whole, *next;
    struct ctrun_session *session;
    struct ctrun_error err;
    const int own = 0;
    char port[16];
    struct agent agent = {.begin = be_agent_that_counts_names,
                          .world = {.epoch = 1, .ranks = {1}}};

    set_variables("1");
    assert_true(ct_format(port, sizeof port, "%d", listen_as_store(&agent)) > 0);
    setenv(CT_ENV_MASTER_PORT, port, 1);
    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    options.ranks = &own;
    options.rank_count = 1;
    assert_int_equal(ctrun_group_open(&part, session, &options, &err), 0);
    assert_int_equal(ctrun_group_shrink(&whole, session, part, NULL, &err), 0);
    options.backend = "none";
    assert_int_equal(ctrun_group_shrink(&next, session, whole, &options, &err),
                     -EINVAL);
    assert_int_equal(ctrun_group_shrink(&next, session, whole, NULL, &err), 0);
    ctrun_group_close(next);
    ctrun_group_close(whole);
    ctrun_group_close(part);
    ctrun_close(session);
    end_agent(&agent);
    unset_variables();
    close(agent.store);
    assert_int_equal(agent.names, 2);
}

TEST(a_loss_or_one_that_waits_changes_the_world)
{
    struct agent agent = {.losses = 1, .world = {.epoch = 1, .ranks = {1}}};
    struct ctrun_session *session;
    struct ctrun_error err;
    const uint64_t until_ms = ct_deadline_ms(60000);

    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    while (!ctrun_world_changes(session))
        assert_true(ct_now_ms() < until_ms);
    assert_true(ctrun_world_shrinks(session));
    ctrun_close(session);
    end_agent(&agent);
    agent.losses = 0;
    agent.grows = true;
    begin_agent(&agent);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    while (!ctrun_world_changes(session))
        assert_true(ct_now_ms() < until_ms);
    assert_false(ctrun_world_shrinks(session));
    ctrun_close(session);
    end_agent(&agent);
}

TEST(without_survive_it_is_refused_at_once)
{
    struct ctrun_session *session;
    struct ctrun_group *old, *next;
    struct ctrun_error err;
    uint32_t epoch;
    int rank;

    unsetenv(CT_ENV_AGENT_SOCKET);
    unsetenv(CT_ENV_MAY_SHRINK);
    assert_int_equal(ctrun_open(&session, NULL, &err), 0);
    assert_false(ctrun_may_shrink(session));
    assert_int_equal(ctrun_world_next(session, 1000, &rank, 1, &epoch, &err),
                     CTRUN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--survive=torch"));
    assert_false(ctrun_world_changes(session));
    assert_int_equal(ctrun_group_open(&old, session, NULL, &err), 0);
    assert_int_equal(ctrun_group_shrink(&next, session, old, NULL, &err),
                     CTRUN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--survive=sdk"));
    assert_null(next);
    assert_int_equal(ctrun_barrier(old, NULL, &err), 0); /* it can still be used */
    ctrun_group_close(old);
    ctrun_close(session);
}

/* One that answers late: the first wait ends at its deadline, the next one finds the answer. */
TEST(the_wait_for_the_answer_has_an_end)
{
    struct agent agent = {.world = {.epoch = 1}};
    struct ct_agent_socket ours;
    struct ct_worker_world world;
    struct ctrun_error err;

    begin_agent(&agent);
    ct_agent_socket_init(&ours, agent.name, 0, 0);
    assert_int_equal(
        /* The answer is for epoch 0. */
        ct_agent_socket_ask_world(&ours, 1, ct_deadline_ms(30), &world, &err),
        CTRUN_E_TIMEOUT);
    assert_int_equal(
        ct_agent_socket_ask_world(&ours, 0, ct_deadline_ms(30000), &world, &err), 0);
    assert_int_equal(world.epoch, 1);
    ct_agent_socket_deinit(&ours);
    end_agent(&agent);
}

/* Many workers start at once: the first attempt to connect finds the accept queue full. */
TEST(an_agent_that_is_slow_to_accept_is_asked_later)
{
    struct agent agent = {.world = {.epoch = 1}};
    struct ct_agent_socket ours;
    struct ct_worker_world world;
    struct ctrun_error err;
    int fds[2];

    make_listener(&agent);
    assert_int_equal(listen(agent.listener, 0), 0);
    fds[0] = ct_agent_socket_connect(agent.name);
    assert_true(fds[0] >= 0);
    ct_agent_socket_init(&ours, agent.name, 0, 0);
    assert_int_equal(ct_agent_socket_ask_world(&ours, 0, 0, &world, &err),
                     CTRUN_E_TIMEOUT);
    fds[1] = accept4(agent.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(pthread_create(&agent.thread, NULL, be_agent, &agent), 0);
    assert_int_equal(
        ct_agent_socket_ask_world(&ours, 0, ct_deadline_ms(30000), &world, &err), 0);
    assert_int_equal(world.epoch, 1);
    ct_agent_socket_deinit(&ours);
    end_agent(&agent);
    close(fds[0]);
    close(fds[1]);
}

/* Such as *out of a rank that is no member. */
TEST(a_group_that_is_null_is_refused)
{
    const struct ctrun_parts parts = CTRUN_PARTS_INIT;
    struct ctrun_param param = CTRUN_PARAM_INIT;
    struct ctrun_session *session;
    struct ctrun_group *group;
    struct ctrun_zero *zero;
    struct ctrun_ddp *ddp;
    uint64_t steps = 0;
    float x[2] = {0};
    void *block;

    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    const int codes[] = {
        ctrun_group_shrink(&group, session, NULL, NULL, NULL),
        ctrun_group_grow(&group, session, NULL, NULL, NULL),
        ctrun_group_split(&group, session, NULL, 0, NULL, NULL),
        ctrun_group_catch_up(NULL, &steps, NULL, 0, NULL),
        ctrun_group_alloc(NULL, 8, &block, NULL),
        ctrun_group_free(NULL, x, NULL),
        ctrun_all_reduce(NULL, x, x, 1, CTRUN_F32, CTRUN_SUM, NULL, NULL),
        ctrun_gather(NULL, x, x, 1, CTRUN_F32, 0, NULL, NULL),
        ctrun_scatter(NULL, x, x, 1, CTRUN_F32, 0, NULL, NULL),
        ctrun_all_to_all(NULL, x, x + 1, 1, CTRUN_F32, NULL, NULL),
        ctrun_all_gather_v(NULL, x, x, &parts, CTRUN_F32, NULL, NULL),
        ctrun_all_to_all_v(NULL, x, &parts, x + 1, &parts, CTRUN_F32, NULL, NULL),
        ctrun_batch_begin(NULL, NULL),
        ctrun_batch_end(NULL, NULL, NULL),
        ctrun_ddp_create(&ddp, NULL, &param, 1, NULL, NULL),
        ctrun_zero_create(&zero, NULL, &param, 1, NULL, NULL)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(codes[i], -EINVAL);
    assert_int_equal(ctrun_group_rank(NULL), -EINVAL);
    assert_int_equal(ctrun_group_size(NULL), -EINVAL);
    ctrun_group_abort(NULL);
    ctrun_close(session);
}
