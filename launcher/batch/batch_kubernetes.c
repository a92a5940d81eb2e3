/* SPDX-License-Identifier: Apache-2.0 */
/* A pod of a Kubernetes Job with completionMode Indexed: its index is in the environment, its name
 * is JOB-INDEX. The number of pods is not there: --nnodes gives it. Where the Job has a headless
 * service (spec.subdomain), /etc/hosts has the pod's full name, from which that of pod 0
 * follows. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/str.h"

static const char blanks[] = " \t";

/* The longest name of `pod` in a hosts file ("10.0.0.7 train-1.svc.ns.svc.cluster.local
 * train-1"), without the pod itself: ".svc.ns.svc.cluster.local". Empty when there is none. */
static void find_domain(char *dst, size_t size, const char *hosts, const char *pod)
{
    size_t length = strlen(pod);

    dst[0] = '\0';
    for (const char *at = hosts; at && *at;) {
        size_t word = strcspn(at, " \t\n");

        if (word > length && strncmp(at, pod, length) == 0 && at[length] == '.' &&
            word - length > strlen(dst))
            (void)ct_format(dst, size, "%.*s", (int)(word - length), at + length);
        at += word;
        at += strspn(at, blanks);
        at += *at == '\n';
    }
}

int batch_kubernetes_read(struct batch_place *out, const struct batch_source *from,
                          struct ctrun_error *err)
{
    const char *index = batch_text(from, "JOB_COMPLETION_INDEX");
    const char *pod = batch_text(from, "HOSTNAME");
    char domain[CT_HOST_MAX];
    char first[CT_HOST_MAX];
    char *hosts;
    size_t base;
    int rc;

    if (!index || !batch_text(from, "KUBERNETES_SERVICE_HOST"))
        return 0;
    pod = pod ? pod : from->host;
    out->system = "Kubernetes";
    if ((rc = batch_number(from, "JOB_COMPLETION_INDEX", &out->node_id, err)) < 0)
        return rc;
    base = pod && strlen(pod) > strlen(index) ? strlen(pod) - strlen(index) : 0;
    if (base < 2 || pod[base - 1] != '-' || strcmp(pod + base, index) != 0)
        return ct_fail(
            err, CTRUN_E_BAD_ENVIRONMENT,
            "Kubernetes: JOB_COMPLETION_INDEX is %s, but the pod's name '%s' "
            "does not end in -%s",
            index, pod ? pod : "", index);
    hosts = from->read(from->context, "/etc/hosts");
    find_domain(domain, sizeof domain, hosts, pod);
    free(hosts);
    if (ct_format(first, sizeof first, "%.*s0%s", (int)base, pod, domain) < 0)
        return ct_fail(
            err, CTRUN_E_BAD_ENVIRONMENT,
            "Kubernetes: the name of pod 0, '%.*s0' with the domain '%s', is "
            "longer than a host name can be",
            (int)base, pod, domain);
    if (hostlist_add(&out->nodes, first) < 0 || batch_set_tasks(out, 1) < 0)
        return ct_fail(err, -ENOMEM, "Kubernetes: out of memory");
    (void)ct_format(out->job, sizeof out->job, "job %.*s index %s",
                    (int)(base < 90 ? base - 1 : 90), pod, index);
    (void)ct_format(out->run_id, sizeof out->run_id, "k8s-%.*s",
                    (int)(base < 90 ? base - 1 : 90), pod);
    rc = batch_check(out, 0, err);
    out->ports[0] = CT_C10D_PORT; /* a pod has its own address: users open this port */
    return rc;
}
