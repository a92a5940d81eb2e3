/* SPDX-License-Identifier: Apache-2.0 */
/* Findings from what the nodes of a run published about each other. Pure. */
#include <errno.h>
#include <inttypes.h>

#include "launcher/doctor/doctor_net.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

enum {
    CLOCK_WARN_MS = 1000, /* certificates, logs and caches need right clocks */
    CLOCK_FAIL_MS = 60000,
};

/* ---- A node as text ---------------------------------------------------------------------- */

/* Fields are separated by tabs and contain none. */
void doctor_node_format(char *dst, const struct doctor_node *node)
{
    (void)ct_format(dst, DOCTOR_TEXT_MAX,
                    "%s\t%" PRIu64 "\t%d\t%" PRId64 "\t%s\t%s\t%s\t", node->host,
                    node->nonce, node->port, node->clock_ms, node->version,
                    node->driver, node->nccl);
    for (int i = 0; i < node->addr_count; i++)
        (void)ct_append(dst, DOCTOR_TEXT_MAX, "%s%s", i ? "," : "", node->addrs[i]);
}

/* False when the field is missing or does not fit: a field of another node is never silently
 * truncated. Makes it safe for a terminal. */
static bool read_field(const char **rest, char separator, char *dst, size_t size)
{
    size_t length;
    const char *field = ct_next_field(rest, separator, &length);

    if (!field || ct_format(dst, size, "%.*s", (int)length, field) < 0)
        return false;
    ct_make_plain(dst, false);
    return true;
}

int doctor_node_parse(struct doctor_node *out, const char *text)
{
    char nonce[24];
    char port[16];
    char clock[24];
    uint64_t number;
    const char *rest = text;

    *out = (struct doctor_node){0};
    if (!read_field(&rest, '\t', out->host, sizeof out->host) ||
        !read_field(&rest, '\t', nonce, sizeof nonce) ||
        !read_field(&rest, '\t', port, sizeof port) ||
        !read_field(&rest, '\t', clock, sizeof clock) ||
        !read_field(&rest, '\t', out->version, sizeof out->version) ||
        !read_field(&rest, '\t', out->driver, sizeof out->driver) ||
        !read_field(&rest, '\t', out->nccl, sizeof out->nccl) ||
        ct_parse_u64(nonce, 0, UINT64_MAX, &out->nonce) < 0 ||
        ct_parse_u64(port, 1, 65535, &number) < 0 ||
        ct_parse_i64(clock, INT64_MIN, INT64_MAX, &out->clock_ms) < 0)
        return -EBADMSG;
    out->port = (int)number;
    while (out->addr_count < DOCTOR_NODE_ADDRS &&
           read_field(&rest, ',', out->addrs[out->addr_count], sizeof *out->addrs))
        out->addr_count += *out->addrs[out->addr_count] != '\0';
    return 0;
}

/* ---- What differs ------------------------------------------------------------------------ */

static void check_clocks(struct doctor *doctor, const struct doctor_node *nodes,
                         int count)
{
    int first = 0;
    int last = 0;
    int64_t spread_ms;
    struct doctor_finding *finding;

    for (int i = 1; i < count; i++) {
        if (nodes[i].clock_ms < nodes[first].clock_ms)
            first = i;
        if (nodes[i].clock_ms > nodes[last].clock_ms)
            last = i;
    }
    spread_ms = nodes[last].clock_ms - nodes[first].clock_ms;
    if (spread_ms < CLOCK_WARN_MS) {
        (void)doctor_add(doctor, DOCTOR_OK, "clocks", "within %" PRId64 " ms",
                         spread_ms);
        return;
    }
    finding = doctor_add(doctor, spread_ms < CLOCK_FAIL_MS ? DOCTOR_WARN : DOCTOR_FAIL,
                         "clocks", "%s is %.1f s ahead of %s", nodes[last].host,
                         (double)spread_ms / 1000, nodes[first].host);
    doctor_set_fix(finding, "set them by NTP: chronyc tracking, timedatectl status");
}

/* Compares a text of all nodes: the one at `offset` in struct doctor_node. */
static void check_same(struct doctor *doctor, const struct doctor_node *nodes,
                       int count, const char *what, size_t offset,
                       enum doctor_level level, const char *fix)
{
    const char *first = (const char *)&nodes[0] + offset;

    for (int i = 1; i < count; i++) {
        const char *other = (const char *)&nodes[i] + offset;

        if (strcmp(first, other) == 0)
            continue;
        doctor_set_fix(doctor_add(doctor, level, what, "%s on %s, %s on %s",
                                  *first ? first : "none", nodes[0].host,
                                  *other ? other : "none", nodes[i].host),
                       "%s", fix);
        return;
    }
    if (*first)
        (void)doctor_add(doctor, DOCTOR_OK, what, "%s on all nodes", first);
}

void doctor_check_nodes(struct doctor *doctor, const struct doctor_node *nodes,
                        int count)
{
    char list[384] = "";

    for (int i = 0; i < count; i++)
        (void)ct_append_item(list, sizeof list, ", ", "%s", nodes[i].host);
    (void)doctor_add(doctor, DOCTOR_OK, "nodes", "%d: %s", count, list);
    check_clocks(doctor, nodes, count);
    check_same(doctor, nodes, count, "ctrun", offsetof(struct doctor_node, version),
               DOCTOR_WARN, "install the same version everywhere");
    check_same(doctor, nodes, count, "GPU driver", offsetof(struct doctor_node, driver),
               DOCTOR_WARN, "NCCL works best with one driver everywhere");
    check_same(doctor, nodes, count, "NCCL", offsetof(struct doctor_node, nccl),
               DOCTOR_FAIL,
               "NCCL does not work with another version of itself: install one version "
               "everywhere");
}

/* ---- Reachability ------------------------------------------------------------------------ */

static const char *error_text(int error)
{
    return error == DOCTOR_SOMEBODY_ELSE ? "another machine or program answers"
                                         : strerror(error);
}

/* All probes from one node to another. */
struct pair {
    bool works;
    char bad[384]; /* unreachable addresses */
};

/* `probes` are the probes from one node. */
static void check_pair(struct pair *out, const struct doctor_node *nodes,
                       const struct doctor_probe *probes, size_t count, int to)
{
    *out = (struct pair){0};
    for (size_t i = 0; i < count; i++) {
        const struct doctor_probe *probe = &probes[i];

        if (probe->to != to)
            continue;
        out->works |= probe->error == 0;
        if (probe->error != 0)
            (void)ct_append_item(out->bad, sizeof out->bad, "; ", "%s: %s",
                                 nodes[to].addrs[probe->addr],
                                 error_text(probe->error));
    }
}

static void report_pair(struct doctor *doctor, const struct doctor_node *nodes,
                        int from, int to, const struct pair *pair)
{
    struct doctor_finding *finding = doctor_add(
        doctor, pair->works ? DOCTOR_WARN : DOCTOR_FAIL, "reachability",
        "%s -> %s: %.300s", nodes[from].host, nodes[to].host,
        *pair->bad ? pair->bad
                   : "it has no addresses but loopback and link-local ones");

    if (pair->works)
        doctor_set_fix(finding, "other addresses work: choose their network for all "
                                "libraries with --net=CIDR");
    else
        doctor_set_fix(finding, "open TCP between them (few ports: --port-range), or "
                                "name a network that both are in: --net");
}

void doctor_check_probes(struct doctor *doctor, const struct doctor_node *nodes,
                         int count, const struct doctor_probe *probes,
                         size_t probe_count)
{
    int slowest_ms = 0;
    int good = 0;

    for (size_t i = 0; i < probe_count; i++)
        if (probes[i].error == 0 && probes[i].took_ms > slowest_ms)
            slowest_ms = probes[i].took_ms;
    /* check_pair() reads only the probes of `from`: 1024 nodes have a million pairs. */
    for (int from = 0; from < count; from++) {
        size_t of_from = 0;

        while (of_from < probe_count && probes[of_from].from == from)
            of_from++;
        for (int to = 0; to < count; to++) {
            struct pair pair;

            if (from == to)
                continue;
            check_pair(&pair, nodes, probes, of_from, to);
            good += pair.works;
            if (!pair.works || *pair.bad)
                report_pair(doctor, nodes, from, to, &pair);
        }
        probes += of_from;
        probe_count -= of_from;
    }
    (void)doctor_add(doctor, DOCTOR_OK, "reachability",
                     "%d of %d network paths between nodes work; slowest in %d ms",
                     good, count * (count - 1), slowest_ms);
}

/* ---- Each node by itself ----------------------------------------------------------------- */

void doctor_findings_format(char *dst, size_t size, const struct doctor *doctor)
{
    *dst = '\0';
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];
        const size_t used = strlen(dst);

        if (finding->level != DOCTOR_OK &&
            ct_append(dst, size, "%d\t%s\t%s\t%s\n", finding->level, finding->what,
                      finding->value, finding->fix) < 0) {
            dst[used] = '\0';
            return;
        }
    }
}

/* Finds a finding with the same level, name and fix. The value is not compared, because it differs
 * between nodes. */
static struct doctor_finding *find_same(struct doctor *doctor, int level,
                                        const char *what, const char *fix)
{
    for (size_t i = 0; i < doctor->count; i++) {
        struct doctor_finding *finding = &doctor->list[i];

        if ((int)finding->level == level && strcmp(finding->what, what) == 0 &&
            strcmp(finding->fix, fix) == 0)
            return finding;
    }
    return NULL;
}

static void add_finding(struct doctor *doctor, const char *host, int level,
                        const char *what, const char *value, const char *fix)
{
    struct doctor_finding *same = find_same(doctor, level, what, fix);
    char others[sizeof same->value];

    if (!same) {
        doctor_set_fix(doctor_add(doctor, (enum doctor_level)level, what, "%s: %.300s",
                                  host, value),
                       "%s", fix);
        return;
    }
    (void)ct_copy(others, sizeof others, same->value); /* same size */
    (void)ct_format(same->value, sizeof same->value, "%s, %s", host, others);
}

void doctor_add_findings(struct doctor *doctor, const char *host, const char *text)
{
    const char *rest = text;
    char level[8];
    char what[32];
    char value[512];
    char fix[256];
    uint64_t number;

    while (read_field(&rest, '\t', level, sizeof level) &&
           read_field(&rest, '\t', what, sizeof what) &&
           read_field(&rest, '\t', value, sizeof value) &&
           read_field(&rest, '\n', fix, sizeof fix) &&
           ct_parse_u64(level, DOCTOR_WARN, DOCTOR_FAIL, &number) == 0)
        add_finding(doctor, host, (int)number, what, value, fix);
}
