/* SPDX-License-Identifier: Apache-2.0 */
/* --gpu-wait: this node joins the next round once the memory of its GPUs is free, or after the
 * limit. A thread of the launcher looks at the GPUs and sends words on a socket; if the driver does
 * not answer, the wait ends as well. */
#include <errno.h>
#include <sys/socket.h>

#include "agent/node/agent_private.h"

/* The watch owns our end of the socket. We do not wait for the thread at the other end, which may hang in the driver:
 * it ends after its limit, or when its next send fails. */
static void close_wait(struct agent *agent)
{
    loop_watch_close(agent->gpu_watch);
    agent->gpu_watch = NULL;
    if (agent->gpu_timer)
        loop_timer_stop(agent->gpu_timer);
}

/* Unless another event has ended the pause meanwhile. */
static void go_on(struct agent *agent)
{
    close_wait(agent);
    if (agent->state == AGENT_STOPPING && agent->is_gone && !agent->stop.is_final)
        agent_join(agent);
}

static void report(const struct agent *agent, const struct agent_gpu_word *word)
{
    const struct agent_options *options = agent->options;

    if (word->kind != AGENT_GPU_FREE)
        ct_event_emit("gpu_memory_held", CT_INT("generation", agent->start.generation),
                      CT_INT("is_over", word->kind == AGENT_GPU_LATE),
                      CT_STR("text", word->text));
    if (options->on_gpu)
        options->on_gpu(options->context, word);
}

/* Each datagram is one agent_gpu_word. Any other datagram, or the end of the connection, ends the
 * wait. */
static void on_word(void *context, unsigned events)
{
    struct agent *agent = context;
    struct agent_gpu_word word;
    const ssize_t n = recv(loop_watch_fd(agent->gpu_watch), &word, sizeof word, 0);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == sizeof word) {
        word.text[sizeof word.text - 1] = '\0';
        report(agent, &word);
    }
    if (n != sizeof word || word.kind != AGENT_GPU_HELD)
        go_on(agent);
}

/* The thread reports the end of its own limit; this timer is for a thread that hangs in the driver. */
static void on_gpu_timer(void *context)
{
    struct agent *agent = context;
    const struct agent_gpu_word word = {.kind = AGENT_GPU_LATE,
                                        .text = "the GPU driver does not answer"};

    report(agent, &word);
    go_on(agent);
}

void agent_join_when_free(struct agent *agent)
{
    const struct agent_options *options = agent->options;
    const int fd = options->wait_for_gpus && !agent->gpu_watch
                       ? options->wait_for_gpus(options->context)
                       : -1;

    if (!agent->gpu_timer)
        agent->gpu_timer = loop_timer_open(agent->loop, on_gpu_timer, agent);
    if (fd >= 0)
        agent->gpu_watch = loop_watch_open(agent->loop, fd, on_word, agent);
    if (!agent->gpu_watch || !agent->gpu_timer) {
        close_wait(agent);
        agent_join(agent);
        return;
    }
    loop_watch_for(agent->gpu_watch, LOOP_READ);
    loop_timer_set(agent->gpu_timer, options->gpu_wait_ms + AGENT_GPU_ANSWER_MS);
}

void agent_close_gpu(struct agent *agent)
{
    close_wait(agent);
    loop_timer_close(agent->gpu_timer);
}
