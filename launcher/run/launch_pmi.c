/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes find each other through srun's PMI, as launcher/config/rdzv_pmi.h has decided.
 *
 *     serving task   takes a free port, puts its card ── fence ──
 *     others                                          ── fence ── get the card
 *
 * The free port is the derived port unless that is taken: an agent that is restarted in its task
 * has no PMI any more, and tries the derived port.
 *
 * If the PMI does not answer, one line says so and the nodes meet at the derived port. After the
 * fence this is not possible: another task may have passed the fence, and uses the card. */
#include <errno.h>
#include <unistd.h>

#include "launcher/pmi/pmi_client.h"
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "launcher/run/pmi_absent.h"
#include "launcher/run/pmi_card.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    PUBLISH_AFTER_MS = 500, /* most steps have begun before, and need no names */
    PUBLISH_NODE_MS = 5,    /* for each node: a large step begins later */
    NOTICE_EVERY_MS = 10000
};

/* Else a worker would use the PMI connection that this process has used. */
static void scrub_environment(void)
{
    static const char *const names[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]); /* fails on bad names only */
}

/* ---- The serving task -------------------------------------------------------------------- */

static int serve(struct launch *launch, struct config *config,
                 struct pmi_client *client, struct ctrun_error *err)
{
    struct pmi_card *card = ct_secret_zalloc(sizeof *card);
    char text[PMI2_VALUE_MAX];
    uint16_t port;
    int rc;

    if (!card)
        return ct_fail(err, -ENOMEM, "out of memory");
    if (config->rdzv.pmi.makes_token &&
        (rc = ct_auth_token_generate(&config->rdzv.token, err)) < 0)
        goto done;
    if ((rc = launch_serve_anywhere(launch, &port, err)) < 0)
        goto done;
    server_record_fill(&card->server, config->run.host, &launch->addresses, port);
    if (config->rdzv.pmi.makes_token)
        card->token = config->rdzv.token;
    rdzv_endpoint_set(&launch->endpoint, card->server.addrs, card->server.count);
    launch->endpoint.is_mine = true;
    config->rdzv.endpoint.port = port;
    if ((rc = pmi_card_format(text, card)) < 0)
        rc = ct_fail(err, rc, "the addresses of %s: %s", config->run.host,
                     strerror(-rc));
    else
        rc = pmi_client_put(client, PMI_CARD_KEY, text, err);
    explicit_bzero(text, sizeof text);
done:
    ct_auth_token_wipe(&card->token);
    ct_secret_free(card);
    return rc;
}

/* ---- The others -------------------------------------------------------------------------- */

static int find(struct launch *launch, struct config *config, struct pmi_client *client,
                struct ctrun_error *err)
{
    struct pmi_card *card = ct_secret_zalloc(sizeof *card);
    const char *text;
    int rc;

    if (!card)
        return ct_fail(err, -ENOMEM, "out of memory");
    if ((rc = pmi_client_get(client, PMI_CARD_KEY, &text, err)) == 0 &&
        pmi_card_parse(card, text) < 0)
        rc = ct_fail(err, CTRUN_E_PROTOCOL,
                     "the value that task 0 has set cannot be read; does task 0 run "
                     "another version of ctrun?");
    if (rc == 0) {
        rdzv_endpoint_set(&launch->endpoint, card->server.addrs, card->server.count);
        config->rdzv.endpoint.port = ct_addr_port(&card->server.addrs[0]);
        if (card->token.length > 0) { /* the server accepts only this token */
            config->rdzv.token = card->token;
            config->rdzv.uses_munge = false;
        }
    }
    ct_auth_token_wipe(&card->token);
    ct_secret_free(card);
    return rc;
}

/* ---- Both -------------------------------------------------------------------------------- */

static int give_up(struct launch *launch, int tasks, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_JOIN_TIMEOUT,
                   "not all %d tasks of the step have reached it in %llu s "
                   "(RendezvousTimeoutError)",
                   tasks,
                   (unsigned long long)launch->config->rdzv.join_timeout_ms / 1000);
}

/* Waits until all tasks have reached the fence; the limit is --join-timeout. */
static int pass_fence(struct launch *launch, struct pmi_client *client,
                      struct pmi_absent *absent, struct ctrun_error *err)
{
    const struct config *config = launch->config;
    const uint64_t began_ms = ct_now_ms();
    const uint64_t deadline_ms = ct_deadline_ms(config->rdzv.join_timeout_ms);
    uint64_t until_ms = ct_deadline_ms(PUBLISH_AFTER_MS +
                                       PUBLISH_NODE_MS * absent->nodes->count +
                                       (absent->is_first ? 0 : NOTICE_EVERY_MS));
    bool is_known;
    int rc = pmi_client_fence_begin(client, err);

    if (rc < 0)
        return rc;
    for (;;) {
        const bool is_last = until_ms >= deadline_ms;

        rc = pmi_client_fence_wait(client, is_last ? deadline_ms : until_ms, err);
        if (rc != CTRUN_E_TIMEOUT)
            return rc;
        until_ms = ct_deadline_ms(NOTICE_EVERY_MS);
        if (absent->is_first && !absent->is_published && !absent->is_failed &&
            !is_last) {
            pmi_absent_publish(absent, client);
            continue;
        }
        is_known = pmi_absent_find(absent, client, launch->absent);
        if (!client->is_in_fence)
            continue; /* passed while we looked */
        if (is_last) {
            rc = pmi_client_fence_wait(client, 0, err); /* passed while we looked? */
            if (rc == CTRUN_E_TIMEOUT && is_known)
                (void)ct_append(launch->absent, sizeof launch->absent, ": never came");
            return rc == CTRUN_E_TIMEOUT ? give_up(launch, client->size, err) : rc;
        }
        if (!config->run.task.is_quiet)
            messages_notice("waiting %llu s: not all %d tasks of the step have reached "
                            "srun's PMI; missing %s",
                            (unsigned long long)(ct_now_ms() - began_ms) / 1000,
                            client->size, launch->absent);
    }
}

static int open_client(const struct config *config, struct pmi_client *client,
                       struct ctrun_error *err)
{
    int rc = pmi_client_open(client, config->rdzv.pmi.fd, config->rdzv.pmi.job,
                             config->rdzv.pmi.rank, err);

    if (rc == 0 && client->size != config->rdzv.pmi.size)
        rc = ct_fail(err, CTRUN_E_PROTOCOL,
                     "the PMI server counts %d tasks, but PMI_SIZE is %d", client->size,
                     config->rdzv.pmi.size);
    return rc;
}

/* Only before the fence, when no other task relies on the PMI yet. */
static int fall_back(const struct config *config, struct pmi_client *client,
                     struct ctrun_error *err)
{
    (void)close(config->rdzv.pmi.fd);
    ct_secret_free(client);
    if (config->rdzv.pmi.is_required)
        return ct_wrap(err, "--bootstrap=pmi: srun's PMI"), err->code;
    if (!config->run.task.is_quiet)
        messages_notice("srun's PMI cannot be used (%s): the nodes meet at %s port %d",
                        err->text, config->rdzv.endpoint.host,
                        config->rdzv.endpoint.port);
    return 0;
}

int launch_meet_by_pmi(struct launch *launch, struct config *config,
                       struct ctrun_error *err)
{
    struct pmi_client *client = ct_secret_zalloc(sizeof *client);
    const bool serves = config->rdzv.is_host == CONFIG_HOST_YES;
    struct pmi_absent absent = {
        .nodes = &config->run.expected,
        .node = (size_t)(config->run.task.is_rank ? config->run.task.node_id
                                                  : config->run.node_rank),
        .is_first = config->run.task.local_id == 0,
    };
    int rc;

    scrub_environment();
    if (!client)
        return ct_fail(err, -ENOMEM, "out of memory");
    if (open_client(config, client, err) < 0)
        return fall_back(config, client, err);
    rc = serves ? serve(launch, config, client, err) : 0;
    if (rc == 0 && (rc = pass_fence(launch, client, &absent, err)) == 0 && !serves)
        rc = find(launch, config, client, err);
    pmi_absent_deinit(&absent);
    pmi_client_close(client);
    ct_secret_free(client);
    if (rc < 0)
        return ct_wrap(err, "srun's PMI"), rc;
    if (serves)
        messages_notice("the nodes meet at %s port %d, sent through srun's PMI",
                        config->rdzv.endpoint.host, config->rdzv.endpoint.port);
    return 1;
}
