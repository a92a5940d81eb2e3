/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own library, loaded where it is needed. It makes no CUDA context: looking takes no
 * memory of a GPU and disturbs nobody. Functions and structs are those of nvml.h; 0 is success. */
#pragma once

#include <stddef.h>

enum {
    NVML_TEXT_MAX = 96,
    NVML_TIMEOUT = 10,  /* nvmlReturn_t */
    NVML_CLOCK_SM = 1,  /* nvmlClockType_t */
    NVML_EVENT_XID = 8, /* nvmlEventTypeXidCriticalError */
};

struct nvml_event { /* nvmlEventData_t, version 2 */
    void *device;
    unsigned long long kind;
    unsigned long long data; /* of an Xid error: which */
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvml_pci { /* nvmlPciInfo_t, version 3 */
    char legacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned device_id;
    unsigned subsystem_id;
    char text[32];
};

struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct nvml_process { /* nvmlProcessInfo_t of version 2 and 3 */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int rc);
    int (*driver_version)(char *version, unsigned size);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **device);
    int (*by_uuid)(const char *uuid, void **device);
    int (*parent)(void *mig, void **device); /* NULL: a driver from before MIG */
    int (*name)(void *device, char *name, unsigned size);
    int (*memory)(void *device, struct nvml_memory *memory);
    /* NULL: a driver from before 510. *count: room, then how many there are. */
    int (*processes)(void *device, unsigned *count, struct nvml_process *list);
    int (*pci)(void *device, struct nvml_pci *out);
    int (*uuid)(void *device, char *text, unsigned size);
    /* Each of these may be NULL: an older driver. */
    int (*clock)(void *device, unsigned kind, unsigned *mhz);
    int (*max_clock)(void *device, unsigned kind, unsigned *mhz);
    int (*slow_reasons)(void *device,
                        unsigned long long *bits); /* nvmlClocksEventReasons */
    int (*create_events)(void **set);
    int (*register_events)(void *device, unsigned long long kinds, void *set);
    int (*wait_event)(void *set, struct nvml_event *out, unsigned timeout_ms);
};

/* Loads and initialises it. 0: nvml_close() it. -ENOENT: there is none, or none that can be used;
 * a number above 0: it refuses, in the words of why[size]. */
int nvml_open(struct nvml *nvml, char *why, size_t size);
void nvml_close(struct nvml *nvml);
