/* SPDX-License-Identifier: Apache-2.0 */
/* What may make one rank slower than the others, as far as /proc and /sys show: other processes or the hypervisor use
 * its CPU; the CPU has a lower clock; its memory comes from the disk; its machine sends TCP segments again, which is
 * the same for all ranks of one machine. The caller adds the values of its GPU. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    RANK_LOAD_TEXT_MAX = 512,
    RANK_LOAD_STAT_MAX = 64 * 1024 /* of /proc/stat: some 250 CPUs */
};

/* At one moment; all values only grow, except the clock. */
struct rank_load {
    pid_t pid; /* 0: not read, or the process is gone */
    uint64_t at_ns;
    uint64_t wait_ns;  /* how long its first thread could run, but had no CPU */
    uint64_t faults;   /* pages that came from a disk */
    uint64_t resent;   /* TCP segments in its network namespace, mostly the host's */
    int cpu;           /* the CPU on which its first thread ran last */
    uint64_t steal_ms; /* of that CPU; the kernel counts in hundredths of a second */
    uint64_t khz;      /* clock of that CPU; 0: not known */
};

/* `stat` is the text of /proc/stat, for the steal time. Blocks only as long as reading /proc and
 * /sys. */
void rank_load_look(struct rank_load *out, pid_t pid, const char *stat);

enum {
    RANK_GPU_NO_XID = -1
};

/* Its GPU, as the driver reports. */
struct rank_gpu {
    double mhz, max_mhz; /* clock of its SMs; 0: not known */
    uint32_t slow;       /* why it is below its maximum: nvmlClocksEventReasons */
    int32_t
        xid; /* the last error since the run began, or RANK_GPU_NO_XID; 0: not known */
};

/* Between two looks. Fractions are of the time in between. */
struct rank_rates {
    double wait, steal;
    double faults, resent; /* a second */
    double mhz;            /* 0: not known */
    struct rank_gpu gpu;   /* set by the caller; zeros: not known */
};

/* RetransSegs of a text like /proc/net/snmp; 0: it is not there. Pure. */
uint64_t rank_load_find_resent(const char *snmp);
/* All zeros if the two are not of one process. Pure. */
void rank_load_rates(struct rank_rates *out, const struct rank_load *before,
                     const struct rank_load *after);
/* In which values rates[index] is worse than the median of the others, as readable text; "": in
 * none. Pure. */
void rank_load_differs(char dst[RANK_LOAD_TEXT_MAX], const struct rank_rates *rates,
                       int count, int index);
