/* SPDX-License-Identifier: Apache-2.0 */
/* A name server that does not answer: the resolver is the test's. */
#include <errno.h>
#include <netdb.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "launcher/etcd/etcd.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

static sem_t answer, has_answered;
static _Atomic int late; /* lookups that nobody has ended */

/* Waits for the answer of the one name server; the other name is known at once. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    struct timespec until;

    if ((hints->ai_flags & AI_NUMERICHOST) || strcmp(name, "known.invalid") == 0)
        return EAI_NONAME;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    if (sem_timedwait(&answer, &until) < 0)
        late++;
    sem_post(&has_answered);
    return EAI_AGAIN;
}

static struct ctrun_error ask(const char *first, const char *second, uint64_t limit_ms)
{
    struct etcd_config config = {.endpoint_count = *second ? 2 : 1};
    struct json_etcd_reply reply;
    struct ctrun_error err;
    struct etcd *etcd;

    (void)snprintf(config.endpoints[0].host, CT_HOST_MAX, "%s", first);
    (void)snprintf(config.endpoints[1].host, CT_HOST_MAX, "%s", second);
    config.endpoints[0].port = config.endpoints[1].port = 1;
    assert_int_equal(etcd_open(&etcd, &config, &err), 0);
    assert_int_equal(etcd_do(etcd, ETCD_STATUS, ct_deadline_ms(limit_ms), &reply, &err),
                     CTRUN_E_UNREACHABLE);
    etcd_close(etcd);
    return err;
}

TEST(a_name_server_that_does_not_answer_ends_no_call_late_and_is_named)
{
    struct ctrun_error err;

    sem_init(&answer, 0, 0);
    sem_init(&has_answered, 0, 0);
    err = ask("mute.invalid", "", 300);
    assert_int_equal(late, 0);
    assert_non_null(
        strstr(err.text, "host 'mute.invalid': the resolver did not answer"));
    sem_post(&answer);
    sem_wait(&has_answered);
}

TEST(a_name_that_is_looked_up_delays_no_other)
{
    struct ctrun_error err;

    sem_init(&answer, 0, 0);
    sem_init(&has_answered, 0, 0);
    err = ask("mute.invalid", "known.invalid", 1500);
    assert_int_equal(late, 0);
    assert_non_null(strstr(err.text, "known.invalid"));
    sem_post(&answer);
    sem_wait(&has_answered);
}
