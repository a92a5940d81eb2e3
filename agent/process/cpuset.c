/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/cpuset.h"

#include <ctype.h>
#include <errno.h>

#include "worker_sdk/base/str.h"

enum {
    SIZE = sizeof(struct cpuset),
    WORD_CPUS = 8 * sizeof(((cpu_set_t *)0)->__bits[0])
};

void cpuset_add(struct cpuset *set, int cpu)
{
    CPU_SET_S((size_t)cpu, SIZE, set->sets);
}

bool cpuset_has(const struct cpuset *set, int cpu)
{
    return cpu >= 0 && CPU_ISSET_S((size_t)cpu, SIZE, set->sets);
}

int cpuset_count(const struct cpuset *set)
{
    return CPU_COUNT_S(SIZE, set->sets);
}

/* True for a CPU that begins a word without members. Most words are empty, and the whole set is
 * searched for each machine of few CPUs. */
static bool is_word_empty(const struct cpuset *set, int cpu)
{
    return cpu % WORD_CPUS == 0 &&
           set->sets[cpu / CPU_SETSIZE].__bits[cpu % CPU_SETSIZE / WORD_CPUS] == 0;
}

int cpuset_next(const struct cpuset *set, int from)
{
    for (int cpu = from; cpu < CPUSET_CPUS_MAX; cpu++)
        if (is_word_empty(set, cpu))
            cpu += WORD_CPUS - 1;
        else if (cpuset_has(set, cpu))
            return cpu;
    return -1;
}

void cpuset_intersect(struct cpuset *set, const struct cpuset *with)
{
    CPU_AND_S(SIZE, set->sets, set->sets, with->sets);
}

void cpuset_unite(struct cpuset *set, const struct cpuset *with)
{
    CPU_OR_S(SIZE, set->sets, set->sets, with->sets);
}

bool cpuset_is_equal(const struct cpuset *a, const struct cpuset *b)
{
    return memcmp(a, b, SIZE) == 0;
}

/* A number at *text, which moves on. */
static int parse_number(const char **text, long *out)
{
    char *end;

    if (!isdigit((unsigned char)**text))
        return -EINVAL;
    errno = 0;
    *out = strtol(*text, &end, 10);
    if (errno || *out >= CPUSET_CPUS_MAX)
        return -ERANGE;
    *text = end;
    return 0;
}

int cpuset_parse(struct cpuset *out, const char *text)
{
    *out = (struct cpuset){0};
    text += strspn(text, " \t");
    while (*text && *text != '\n') {
        long first;
        long last;
        int rc = parse_number(&text, &first);

        last = first;
        if (rc == 0 && *text == '-') {
            text++;
            rc = parse_number(&text, &last);
        }
        if (rc < 0)
            return rc;
        if (last < first)
            return -EINVAL;
        for (long cpu = first; cpu <= last; cpu++)
            cpuset_add(out, (int)cpu);
        text += strspn(text, " \t");
        if (*text == ',')
            text += 1 + strspn(text + 1, " \t");
        else if (*text && *text != '\n')
            return -EINVAL;
    }
    return 0;
}

void cpuset_format(const struct cpuset *set, char *dst, size_t size)
{
    static const char dots[] = ",...";
    size_t used = 0;

    *dst = '\0';
    for (int cpu = cpuset_next(set, 0); cpu >= 0;) {
        char range[32];
        int last = cpu;

        while (cpuset_has(set, last + 1))
            last++;
        if (last > cpu)
            (void)ct_format(range, sizeof range, "%s%d-%d", used ? "," : "", cpu, last);
        else
            (void)ct_format(range, sizeof range, "%s%d", used ? "," : "", cpu);
        if (used + strlen(range) + sizeof dots > size) {
            (void)ct_copy(dst + used, size - used, dots);
            return;
        }
        (void)ct_copy(dst + used, size - used, range);
        used += strlen(range);
        cpu = cpuset_next(set, last + 1);
    }
}
