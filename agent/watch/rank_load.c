/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/rank_load.h"

#include <inttypes.h>
#include <unistd.h>

#include "agent/watch/lateness.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

#define GPU_IDLE 0x1u /* of nvmlClocksEventReasons, as those below */

/* From these differences on a value counts as worse than the others. */
#define WAIT_MORE   0.01
#define STEAL_MORE  0.01
#define FAULTS_MORE 10.0
#define RESENT_MORE 10.0
#define CLOCK_PART  0.95

/* ---- One moment -------------------------------------------------------------------------- */

static int read_stat(struct rank_load *out, pid_t pid)
{
    char text[1024];
    const char *at = ct_small_file_stat(text, sizeof text, pid, 0);

    /* from the state, field 3, to majflt, 12, and the processor, 39 */
    if (!at || sscanf(at,
                      "%*c %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64
                      " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
                      &out->faults, &out->cpu) != 2)
        return -1;
    return 0;
}

/* "cpu3 user nice system idle iowait irq softirq steal ..." */
static uint64_t find_steal_ms(const char *stat, int cpu)
{
    const long ticks = sysconf(_SC_CLK_TCK);
    uint64_t steal = 0;
    char name[24];
    const char *line;

    (void)ct_format(name, sizeof name, "\ncpu%d ", cpu);
    line = strstr(stat, name);
    if (!line || ticks <= 0 ||
        sscanf(line + strlen(name), "%*u %*u %*u %*u %*u %*u %*u %" SCNu64, &steal) !=
            1)
        return 0;
    return steal * 1000 / (uint64_t)ticks;
}

/* Two lines for each protocol: names, then as many values. */
uint64_t rank_load_find_resent(const char *snmp)
{
    static const char name[] = "RetransSegs";
    const char *names = strstr(snmp, "Tcp: ");
    const char *values = names ? strchr(names, '\n') : NULL;

    if (!values || strncmp(++values, "Tcp: ", 5) != 0)
        return 0;
    while (strncmp(names, name, sizeof name - 1) != 0) {
        names += strcspn(names, " \n");
        values += strcspn(values, " \n");
        if (*names != ' ' || *values != ' ')
            return 0;
        names++;
        values++;
    }
    return strtoull(values, NULL, 10);
}

void rank_load_look(struct rank_load *out, pid_t pid, const char *stat)
{
    char path[96], text[4096];

    *out = (struct rank_load){.at_ns = ct_now_ns()};
    if (read_stat(out, pid) < 0)
        return;
    out->pid = pid;
    (void)ct_small_file_of(text, sizeof text, pid, 0, "schedstat");
    if (sscanf(text, "%*u %" SCNu64, &out->wait_ns) != 1)
        out->wait_ns = 0;
    (void)ct_format(path, sizeof path,
                    "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", out->cpu);
    (void)ct_small_file_read(text, sizeof text, path);
    out->khz = strtoull(text, NULL, 10);
    (void)ct_small_file_of(text, sizeof text, pid, 0, "net/snmp");
    out->resent = rank_load_find_resent(text);
    out->steal_ms = find_steal_ms(stat, out->cpu);
}

/* ---- Compared ---------------------------------------------------------------------------- */

void rank_load_rates(struct rank_rates *out, const struct rank_load *before,
                     const struct rank_load *after)
{
    const double ns = after->at_ns > before->at_ns
                          ? (double)(after->at_ns - before->at_ns)
                          : 0;

    *out = (struct rank_rates){0};
    if (after->pid == 0 || before->pid != after->pid || ns == 0)
        return;
    if (after->wait_ns > before->wait_ns)
        out->wait = (double)(after->wait_ns - before->wait_ns) / ns;
    if (after->faults > before->faults)
        out->faults = (double)(after->faults - before->faults) / ns * 1e9;
    if (after->resent > before->resent)
        out->resent = (double)(after->resent - before->resent) / ns * 1e9;
    if (after->cpu == before->cpu && after->steal_ms > before->steal_ms)
        out->steal = (double)(after->steal_ms - before->steal_ms) * 1e6 / ns;
    out->mhz = (double)after->khz / 1000;
}

/* The lower of the two middle values: half of the others have no more. */
static double middle_of_others(const struct rank_rates *rates, int count, int index,
                               size_t field)
{
    double list[256];
    int others = 0;

    for (int i = 0; i < count && others < (int)(sizeof list / sizeof *list); i++)
        if (i != index)
            memcpy(&list[others++], (const char *)&rates[i] + field, sizeof *list);
    qsort(list, (size_t)others, sizeof *list, lateness_compare);
    return others > 0 ? list[(others - 1) / 2] : 0;
}

/* Empty if no reason is known. */
static void name_reasons(char *dst, size_t size, uint32_t slow)
{
    static const struct {
        uint32_t bits;
        const char *name;
    } reasons[] = {
        {0x2, "clocks were set"},        {0x4, "power limit"},
        {0x8, "slowed by the hardware"}, {0x10, "sync boost with other GPUs"},
        {0x20 | 0x40, "heat"},           {0x80, "power brake"}};

    *dst = '\0';
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (slow & reasons[i].bits)
            (void)ct_append(dst, size, "%s%s", *dst ? ", " : " (",
                            reasons[i].name); /* fits */
    if (*dst)
        (void)ct_append(dst, size, ")");
}

static void add_gpu(char dst[RANK_LOAD_TEXT_MAX], const struct rank_gpu *own,
                    double others_mhz)
{
    /* A GPU without work has a low clock for that reason. */
    const bool is_slow = own->mhz > 0 && !(own->slow & GPU_IDLE) &&
                         own->mhz <= others_mhz * CLOCK_PART;
    char reasons[112];

    name_reasons(reasons, sizeof reasons, own->slow);
    if (is_slow)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ",
                             "its GPU at %.0f of %.0f MHz (others %.0f)%s", own->mhz,
                             own->max_mhz, others_mhz, reasons);
    if (own->xid > 0)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ", "Xid %d of its GPU",
                             own->xid);
    else if (is_slow && own->xid == 0)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ",
                             "whether its GPU had an Xid is not known");
}

void rank_load_differs(char dst[RANK_LOAD_TEXT_MAX], const struct rank_rates *rates,
                       int count, int index)
{
    const struct rank_rates *own = &rates[index];
    const struct rank_rates others = {
        .wait = middle_of_others(rates, count, index,
                                 offsetof(struct rank_rates, wait)),
        .steal = middle_of_others(rates, count, index,
                                  offsetof(struct rank_rates, steal)),
        .faults = middle_of_others(rates, count, index,
                                   offsetof(struct rank_rates, faults)),
        .resent = middle_of_others(rates, count, index,
                                   offsetof(struct rank_rates, resent)),
        .mhz = middle_of_others(rates, count, index, offsetof(struct rank_rates, mhz)),
        .gpu.mhz = middle_of_others(rates, count, index,
                                    offsetof(struct rank_rates, gpu.mhz))};

    *dst = '\0'; /* all of it fits */
    if (own->wait >= others.wait + WAIT_MORE)
        (void)ct_append_item(
            dst, RANK_LOAD_TEXT_MAX, "; ",
            "ready to run but without a CPU %.1f %% of the time (others %.1f)",
            own->wait * 100, others.wait * 100);
    if (own->steal >= others.steal + STEAL_MORE)
        (void)ct_append_item(
            dst, RANK_LOAD_TEXT_MAX, "; ",
            "its CPU taken by the hypervisor %.1f %% of the time (others %.1f)",
            own->steal * 100, others.steal * 100);
    if (own->mhz > 0 && own->mhz <= others.mhz * CLOCK_PART)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ",
                             "its CPU at %.0f MHz (others %.0f)", own->mhz, others.mhz);
    if (own->faults >= 2 * others.faults + FAULTS_MORE)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ",
                             "%.0f pages a second from the disk (others %.0f)",
                             own->faults, others.faults);
    if (own->resent >= 2 * others.resent + RESENT_MORE)
        (void)ct_append_item(dst, RANK_LOAD_TEXT_MAX, "; ",
                             "%.0f TCP segments a second sent again (others %.0f)",
                             own->resent, others.resent);
    add_gpu(dst, &own->gpu, others.gpu.mhz);
}
